"""The page of a chunked diagram: an axis as chunks and places, and the lines written so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ioweave.derive.streaming.carry import ZERO, product_of
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Diagram, Line
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Expr,
    Index,
    Number,
    Read,
    Reduce,
    Scan,
    free_axes,
    rename_axes,
    transform,
)

ONE = Number(1)


@dataclass(frozen=True, slots=True)
class Frame:
    """The names of a chunked axis: ``chunk`` counts chunks, ``at`` and ``by`` are places in one of ``size``."""

    axis: str
    size: int
    chunk: str
    at: str
    by: str


def fresh(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; it is taken then."""
    free, k = name, 1
    while free in taken:
        k += 1
        free = f"{name}{k}"
    taken.add(free)
    return free


class Page:
    """The lines of the chunked diagram as they are written, and the names taken."""

    def __init__(self, diagram: Diagram, frame: Frame, taken: set[str]) -> None:
        self.diagram = diagram
        self.frame = frame
        self.taken = taken
        self.out: list[Line] = []
        self.ties: dict[str, str] = {}
        self.along = {x.name: x.axes for x in diagram.lines if frame.axis in x.axes}

    def own(self, name: str, axes: tuple[str, ...], e: Expr) -> Read:
        """A line made of one expression along the axis, and the read of it."""
        line = fresh(name, self.taken)
        self.out.append(Line(line, self.axes(axes), self.placed(e, self.frame.at)))
        self.along[line] = axes
        return Read(line, tuple(Affine.axis(a) for a in axes))

    def placed(self, e: Expr, at: str) -> Expr:
        """An expression along the axis at place ``at`` of a chunk."""
        f = self.frame

        def step(node: Expr) -> Expr:
            match node:
                case Index(axis=a) if a == f.axis:
                    return Apply("add", (Apply("mul", (Number(f.size), Index(f.chunk))), Index(at)))
                case Read(array=array, index=index):
                    return Read(array, self._index(array, index, at))
                case Reduce(axes=axes) | Composite(axes=axes) if f.axis in axes:
                    return replace(node, axes=tuple(x for a in axes for x in ((f.chunk, at) if a == f.axis else (a,))))
                case Scan(axis=a) if a == f.axis:
                    raise Refused("a scan inside the line of another has no chunked form")
            return node

        return transform(e, step)

    def _index(self, array: str, index: tuple[Affine, ...], at: str) -> tuple[Affine, ...]:
        f = self.frame
        own = self.along.get(array)
        out: list[Affine] = []
        for k, form in enumerate(index):
            if own is not None and own[k] == f.axis:
                if form.bare != f.axis:
                    raise Refused(f"{array} is read at {form}, and chunks hold its elements at {f.axis} alone")
                out += [Affine.axis(f.chunk), Affine.axis(at)]
                continue
            if f.axis in form.names and dict(form.axes).get(f.axis) is None:
                raise Refused(f"{array} is looked up along {f.axis}, which chunks cannot place")
            c = dict(form.axes).get(f.axis, 0)
            others = {a: k for a, k in form.axes if a != f.axis}
            rest = Affine.make(others, dict(form.sizes), form.offset, dict(form.lookups))
            out.append(rest + Affine.make({f.chunk: c * f.size, at: c}) if c else form)
        return tuple(out)

    def emit(self, name: str, axes: Iterable[str], e: Expr) -> Read:
        """A further line, and the read of it at its own axes."""
        free = set(free_axes(e))
        order = (self.frame.chunk, self.frame.at, self.frame.by)
        own = tuple(dict.fromkeys(a for a in (*order, *axes, *free_axes(e)) if a in free))
        line = fresh(name, self.taken)
        self.out.append(Line(line, own, e))
        return Read(line, tuple(Affine.axis(a) for a in own))

    def axes(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axes with the walked one as chunks and places."""
        f = self.frame
        return tuple(x for a in axes for x in ((f.chunk, f.at) if a == f.axis else (a,)))


def plus(a: Expr, b: Expr) -> Expr:
    """The sum without summands of 0."""
    return b if a == ZERO else a if b == ZERO else Apply("add", (a, b))


def times(a: Expr, b: Expr) -> Expr:
    """The product without factors of 1; 0 where one is 0."""
    return ZERO if ZERO in (a, b) else product_of(a, b)


def moved(e: Expr, places: Mapping[str, str]) -> Expr:
    """An expression at other places."""
    return rename_axes(e, dict(places))
