"""The notation: text to syntax tree (`parser`), to diagram (`elaborate`), and back (`printer`)."""

from __future__ import annotations

from collections.abc import Mapping

from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.notation.elaborate import elaborate, unread
from ioweave.diagrams.notation.parser import parse_text
from ioweave.diagrams.notation.printer import print_diagram, print_expr, print_line

__all__ = ["parse", "parse_with_warnings", "print_diagram", "print_expr", "print_line", "warnings"]


def parse(text: str, file: str = "<text>", overrides: Mapping[str, int | float] | None = None) -> Diagram:
    """The diagram of a text in the notation; ``with level`` blocks lose their levels.

    ``overrides`` replace sizes and constants, in the diagram's definitions too. Raises
    `WeaveError`, one line with the place and the repair, for anything that is not a diagram.
    """
    return elaborate(parse_text(text, file), overrides).diagram


def parse_with_warnings(
    text: str, file: str = "<text>", overrides: Mapping[str, int | float] | None = None
) -> tuple[Diagram, tuple[str, ...]]:
    """The diagram of a text, and a line for each input, size or constant that nothing uses."""
    done = elaborate(parse_text(text, file), overrides)
    return done.diagram, done.warnings


def warnings(diagram: Diagram) -> tuple[str, ...]:
    """A line for each input, size or constant of a diagram that nothing uses."""
    return unread(diagram)
