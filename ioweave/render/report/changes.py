"""Changes of a diagram as text: the nearest first, each with its verdict, what differs and its new lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ioweave.hierarchy.changes import Change
from ioweave.hierarchy.verdicts import Verdict
from ioweave.render.report.words import numbered


def changes_rows(v: Verdict) -> Iterator[tuple[str, RenderableType]]:
    """The nearest change with its lines, then the others; what was not tried is a sentence alone."""
    if not v.changes:
        if v.nearest:
            yield "nearest", Text(v.nearest)
        return
    for k, change in enumerate(v.changes):
        parts: list[RenderableType] = [_said(change)]
        parts += [Padding(Text(line), (0, 0, 0, 2)) for line in change.lines] if k == 0 else []
        yield ("nearest" if k == 0 else "or" if k == 1 else ""), Group(*parts)


def _said(c: Change) -> Text:
    """The edit, what was proved of it, and what differs."""
    line = Text(c.edit)
    state = f", {numbered(c.state_values, 'value')} a row" if c.state_values is not None else ""
    line.append(f"  ({c.verdict} over {c.axis}{state}; {c.note})", style="dim")
    return line
