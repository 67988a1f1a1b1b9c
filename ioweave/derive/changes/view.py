"""What a diagram's lines depend on along one axis, and the edits that are made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Diagram, Input, Line
from ioweave.diagrams.expressions import (
    Composite,
    Expr,
    Read,
    Reduce,
    Scan,
    children,
    free_axes,
    reads,
    rebuild,
    walk,
)
from ioweave.diagrams.opening import open_line


@dataclass(frozen=True, slots=True)
class Edit:
    """A changed diagram: ``text`` says what was done, ``note`` what differs or what it costs.

    ``axis`` is streamed; ``same`` says that the outputs are what they were. Edits of a smaller
    ``rank`` are nearer to what was written.
    """

    text: str
    diagram: Diagram
    axis: str
    same: bool
    note: str
    rank: int


@dataclass(frozen=True)
class View:
    """A diagram seen along the axis named ``axis``."""

    diagram: Diagram
    axis: str

    @cached_property
    def waiting(self) -> frozenset[str]:
        """The lines that need a finished reduction over the axis."""
        found: set[str] = set()
        for line in self.diagram.lines:
            if self.reduces(line.expr) or any(r.array in found for r in reads(line.expr)):
                found.add(line.name)
        return frozenset(found)

    def reduces(self, e: Expr) -> bool:
        """Whether something in an expression reduces, or normalises, over the axis."""
        return any(isinstance(n, Reduce | Composite) and self.axis in n.axes for n in walk(e))

    def waits(self, e: Expr) -> bool:
        """Whether a value depends on a reduction over the axis."""
        return self.reduces(e) or any(r.array in self.waiting for r in reads(e))

    def walks(self, e: Expr) -> bool:
        """Whether a value changes along the axis."""
        return self.axis in free_axes(e)

    def mixed(self, e: Expr) -> bool:
        """Whether a value changes along the axis and depends on a reduction over it."""
        return self.walks(e) and self.waits(e)

    def inside(self, line: Line) -> bool:
        """Whether a line runs along the axis: it has it, or reduces over it."""
        return self.axis in line.axes or self.reduces(line.expr)

    @cached_property
    def frontier(self) -> tuple[str, ...]:
        """The finished values that lines along the axis read."""
        found: dict[str, None] = {}
        lines = {line.name: line for line in self.diagram.lines}
        for line in self.diagram.lines:
            for r in reads(line.expr) if self.inside(line) else ():
                if r.array in self.waiting and self.axis not in lines[r.array].axes:
                    found.setdefault(r.array)
        return tuple(found)

    @cached_property
    def holders(self) -> tuple[str, ...]:
        """The lines that hold a reduction over the axis inside them, which opening writes as a line of its own."""
        found: list[str] = []
        for line in self.diagram.lines:
            part = line.expr.body if isinstance(line.expr, Reduce) else line.expr
            if not isinstance(line.expr, Scan) and self.reduces(part):
                found.append(line.name)
        return tuple(found)

    def opened(self, names: tuple[str, ...]) -> View:
        """The diagram with these lines opened."""
        d = self.diagram
        for n in names:
            d = open_line(d, n)
        return View(d, self.axis)

    def holders_of(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The lines whose opening makes any of these lines."""
        own = {line.name for line in self.diagram.lines}
        wanted = set(parts) - own
        return tuple(n for n in self.holders if any(x.name in wanted for x in open_line(self.diagram, n).lines))


def pruned(d: Diagram) -> Diagram:
    """The diagram without lines and inputs that no output needs."""
    needed = set(d.outputs)
    lines: list[Line] = []
    for line in reversed(d.lines):
        if line.name in needed:
            lines.append(line)
            needed |= {r.array for r in reads(line.expr)}
    return replace(d, lines=tuple(reversed(lines)), inputs=tuple(i for i in d.inputs if i.name in needed))


def with_line(d: Diagram, name: str, change: Callable[[Expr], Expr]) -> Diagram:
    """The diagram with one line's expression changed."""
    return replace(d, lines=tuple(replace(x, expr=change(x.expr)) if x.name == name else x for x in d.lines))


def swapped(e: Expr, old: Expr, new: Expr) -> Expr:
    """An expression with a sub-expression replaced, wherever it stands."""
    if e == old:
        return new
    kids = children(e)
    return rebuild(e, tuple(swapped(k, old, new) for k in kids)) if kids else e


def swap(old: Expr, new: Expr) -> Callable[[Expr], Expr]:
    """The change of an expression that puts ``new`` in the place of ``old``."""
    return lambda e: swapped(e, old, new)


def names_of(d: Diagram) -> set[str]:
    """The names of a diagram's lines and inputs."""
    return {*(x.name for x in d.lines), *(i.name for i in d.inputs)}


def array_input(name: str, axes: tuple[str, ...], dtype: str = "fp32") -> Input:
    """An input with one dimension for each axis."""
    return Input(name, tuple(Affine.make({}, {a: 1}, 0) for a in axes), dtype)


def at_axes(name: str, axes: tuple[str, ...]) -> Read:
    """An array read at these axes."""
    return Read(name, tuple(Affine.axis(a) for a in axes))
