"""What a report is about: a text with or without levels, or a diagram, at given sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ioweave.derive.rewrites.unfused import unfused
from ioweave.diagrams.diagram import Definition, Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Number
from ioweave.diagrams.library import source
from ioweave.diagrams.notation import parse_with_warnings, warnings
from ioweave.diagrams.notation.elaborate import elaborate
from ioweave.diagrams.notation.parser import parse_text
from ioweave.diagrams.notation.syntax import Block
from ioweave.diagrams.sizes import axis_names, axis_sizes
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled
from ioweave.hierarchy.quantities import parse_number, parse_size

Value = int | float
Anything = str | Diagram | Levelled


@dataclass(frozen=True, slots=True)
class Source:
    """A text and what it is called in reports and in errors."""

    name: str
    text: str
    file: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A diagram at its sizes; ``levelled`` where its levels were written."""

    name: str
    diagram: Diagram
    levelled: Levelled | None
    warnings: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Value]:
        """Every size and constant with its number."""
        return self.diagram.values()

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """The sizes of the axes, in the order in which they were defined."""
        sizes = axis_sizes(self.diagram)
        defined = [d.name for d in self.diagram.definitions if d.name in sizes]
        return tuple((a, sizes[a]) for a in dict.fromkeys((*defined, *sizes)))

    @property
    def title(self) -> str:
        """The first line of the diagram's own description."""
        lines = self.diagram.doc.strip().splitlines()
        return lines[0] if lines else ""


def find(what: str) -> Source:
    """The text of a catalogue name, a path or ``-``. Raises WeaveError as `library.source` does."""
    text, file = source(what)
    return Source("stdin" if what == "-" else PurePath(file).stem, text, file)


def inline(text: str) -> Source:
    """A text given on the spot."""
    if not text.strip():
        raise WeaveError("the lines given inline are empty; write inputs and at least one line")
    return Source("inline", text, "<inline>")


def settle(
    given: Source, sizes: Mapping[str, Value] | None = None, levels: tuple[str, ...] = ("gmem", "smem")
) -> Subject:
    """The subject of a text at these sizes. Raises WeaveError with the place."""
    diagram, notes = parse_with_warnings(given.text, given.file, sizes)
    diagram = replace(diagram, name=given.name)
    levelled = None
    if any(isinstance(s, Block) for s in parse_text(given.text, given.file).statements):
        levelled = replace(parse_levelled(given.text, given.file, sizes, levels), diagram=diagram)
    return Subject(given.name, diagram, levelled, notes)


def as_subject(
    what: Anything, sizes: Mapping[str, Value] | None = None, levels: tuple[str, ...] = ("gmem", "smem")
) -> Subject:
    """The subject of a catalogue name, a path, a text of the notation, a diagram or a levelled diagram."""
    if isinstance(what, str):
        return settle(inline(what) if any(c in what for c in "\n[=") else find(what), sizes, levels)
    diagram = what.diagram if isinstance(what, Levelled) else what
    if sizes:
        diagram.values(sizes)  # an unknown name is an error
        diagram = replace(
            diagram,
            definitions=tuple(
                Definition(d.name, Number(sizes[d.name]), d.position) if d.name in sizes else d
                for d in diagram.definitions
            ),
        )
    axis_sizes(diagram)
    levelled = replace(what, diagram=diagram) if isinstance(what, Levelled) else None
    return Subject(diagram.name or "diagram", diagram, levelled, warnings(diagram))


def as_written(s: Subject, levels: tuple[str, ...]) -> Levelled:
    """The levels as written; a line outside any block is a region by itself."""
    return unfused(s.diagram, levels) if s.levelled is None else s.levelled


def parse_sizes(given: Sequence[str], sources: Sequence[Source]) -> dict[str, Value]:
    """``q=128Ki`` and the like: sizes of axes, or constants of these texts. Raises WeaveError, one line."""
    axes: set[str] = set()
    for one in sources:
        try:
            axes |= set(axis_names(elaborate(parse_text(one.text, one.file)).diagram))
        except WeaveError:
            continue  # its error is told with the sizes in place
    found: dict[str, Value] = {}
    for part in given:
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise WeaveError(f"sizes are written axis=size, as q=4096 or q=128Ki, not {part!r}")
        if name in found:
            raise WeaveError(f"the size of `{name}` is given twice; give it once")
        read = parse_size if name in axes else parse_number
        found[name] = read(amount, f"the size of `{name}`")
    return found


def sizes_for(one: Source, sizes: Mapping[str, Value], sources: Sequence[Source]) -> dict[str, Value]:
    """The sizes that a text has a name for; one that no text has a name for is left for an error to tell."""
    words = {s: set(re.findall(r"\w+", s.text)) for s in sources}
    known = set().union(*words.values())
    return {n: v for n, v in sizes.items() if n in words[one] or n not in known}
