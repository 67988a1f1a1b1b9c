"""An edit to a list: only the keys of the k largest scores count, so that the state is a list of k."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ioweave.derive.changes.view import Edit, View, at_axes, names_of, pruned
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Definition, Diagram, Line
from ioweave.diagrams.expressions import (
    Composite,
    Expr,
    Index,
    Lookup,
    Number,
    Read,
    Reduce,
    Size,
    children,
    rebuild,
    walk,
)
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.sizes import axis_sizes

_LENGTH = 32  # of the list, where the axis is as long
_NAMES = ("k", "top", "kept", "slot")


@dataclass(frozen=True, slots=True)
class _List:
    """The score ``key`` at ``places``, the axis and the list's own, and the lines that hold values and positions."""

    key: str
    places: tuple[str, ...]
    axis: str
    into: str
    values: str
    positions: str

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.into if a == self.axis else a for a in self.places)


def shortlisted(view: View) -> Iterator[Edit]:
    """What follows a score, over the keys of its k largest values alone."""
    d = view.diagram
    names = names_of(d) | {x.name for x in d.definitions} | set(axis_sizes(d))
    key = _key(view)
    into = next((n for n in _NAMES if n not in names), None)
    if key is None or into is None or any(view.axis in d.line(n).axes for n in d.outputs):
        return
    made = _List(
        key.array,
        tuple(f.bare or "" for f in key.index),
        view.axis,
        into,
        _fresh(f"{key.array}.top", names),
        _fresh(f"{key.array}.at", names),
    )
    walked = any(b.scan is not None and b.scan.axis == view.axis for b in open_diagram(d).boxes)
    if "" in made.places or walked:
        return  # a scan would walk the list in the order of its keys
    changed = _changed(view, made)
    if changed is None:
        return
    size = axis_sizes(d).get(view.axis, _LENGTH)
    yield Edit(
        text=f"keep the {into} largest {key.array} alone, in a list",
        diagram=changed(min(_LENGTH, size)),
        axis=view.axis,
        same=False,
        note=f"a different function: what is not among the {into} largest counts for nothing",
        rank=4,
    )


def _fresh(name: str, names: set[str]) -> str:
    while name in names:
        name += "2"
    return name


def _key(view: View) -> Read | None:
    """The score: what the first maximum or normalisation over the axis reads, and waits for nothing."""
    for line in view.diagram.lines:
        for n in walk(line.expr):
            if not isinstance(n, Composite | Reduce) or view.axis not in n.axes:
                continue
            key = n.args[0] if isinstance(n, Composite) else n.body if n.op == "max" else None
            if isinstance(key, Read) and view.walks(key) and not view.waits(key):
                return key
    return None


def _changed(view: View, made: _List) -> Callable[[int], Diagram] | None:
    """The diagram over a list of a given length; None where nothing follows the score."""
    d = view.diagram
    walked: set[str] = set()
    lines: list[Line] = []
    for line in d.lines:
        if view.axis not in line.axes and not view.reduces(line.expr):
            lines.append(line)
            continue
        if not view.waits(line.expr):
            lines.append(line)
            continue
        walked.add(line.name)
        expr = _listed(line.expr, made, walked)
        lines.append(replace(line, axes=tuple(made.into if a == view.axis else a for a in line.axes), expr=expr))
    if not walked:
        return None
    source = Read(made.key, tuple(Affine.axis(a) for a in made.places))
    pair = [
        Line(made.values, made.axes, Reduce("topk", (view.axis,), source, into=made.into)),
        Line(made.positions, made.axes, Reduce("argtopk", (view.axis,), source, into=made.into)),
    ]
    first = next(i for i, x in enumerate(lines) if x.name in walked)
    lines[first:first] = pair

    def with_length(length: int) -> Diagram:
        definition = Definition(made.into, Number(length))
        return pruned(replace(d, definitions=(*d.definitions, definition), lines=tuple(lines)))

    return with_length


def _listed(e: Expr, made: _List, walked: set[str]) -> Expr:
    """An expression with the axis replaced by the list's: scores from the list, other arrays where it points."""
    at = at_axes(made.positions, made.axes)
    match e:
        case Index(axis=a) if a == made.axis:
            return at
        case Size(axis=a) if a == made.axis:
            return Size(made.into)
        case Read(array=array, index=index):
            if array == made.key and tuple(f.bare for f in index) == made.places:
                return at_axes(made.values, made.axes)
            if array in walked:
                return Read(array, tuple(f.rename({made.axis: made.into}) for f in index))
            return Read(array, tuple(_pointed(f, made.axis, at) for f in index))
        case Reduce(axes=axes) | Composite(axes=axes):
            kids = tuple(_listed(k, made, walked) for k in children(e))
            new = rebuild(e, kids)
            assert isinstance(new, Reduce | Composite)
            return replace(new, axes=tuple(made.into if a == made.axis else a for a in axes))
        case _:
            kids = children(e)
            return rebuild(e, tuple(_listed(k, made, walked) for k in kids)) if kids else e


def _pointed(f: Affine, axis: str, at: Read) -> Affine:
    axes: Mapping[str, int] = dict(f.axes)
    if axis not in axes:
        return f
    rest = {a: c for a, c in axes.items() if a != axis}
    return Affine.make(rest, dict(f.sizes), f.offset, {**dict(f.lookups), Lookup(at): axes[axis]})
