"""Giving a name of its own to an axis component that a tile must tell from another of its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.diagram import Definition, Diagram, Line
from ioweave.diagrams.expressions import (
    Composite,
    Constant,
    Expr,
    Index,
    Read,
    Reduce,
    children,
    rebuild,
)
from ioweave.diagrams.opening import line_dtype, open_diagram, open_one
from ioweave.diagrams.operators import COMPOSITES_THAT_REDUCE
from ioweave.hierarchy.levelled import Levelled, Region


def separate(levelled: Levelled) -> tuple[Diagram, tuple[Region, ...]]:
    """The diagram and regions with as many components renamed as the tiles need; none where they need none."""
    opened = open_diagram(levelled.diagram)
    ambiguous = _ambiguous(opened, levelled.regions)
    if not ambiguous:
        return levelled.diagram, levelled.regions
    base = dict(opened.base)
    taken = {d.name for d in levelled.diagram.definitions} | {i.name for i in levelled.diagram.inputs}
    taken |= {n.name for n in levelled.diagram.lines}
    names: dict[str, str] = {}
    for component in ambiguous:
        number = 1
        while (name := f"{base[component]}_{number}") in taken:
            number += 1
        taken.add(name)
        names[component] = name
    diagram = _rename(levelled.diagram, opened, names)
    back = _mapping(opened, open_diagram(diagram))
    return diagram, tuple(_region(r, back) for r in levelled.regions)


def _ambiguous(opened: Opened, regions: tuple[Region, ...]) -> tuple[str, ...]:
    """Every component but the first of its name in some region that tiles one of them."""
    base = dict(opened.base)
    found: dict[str, None] = {}
    for region in _all(regions):
        lines = region.lines()
        mine = dict.fromkeys(a for b in opened.boxes if b.line in lines for a in b.all_axes)
        tiled = {base[a] for a, _ in (*region.group, *region.stream) if a in base}
        for name in tiled:
            same = sorted(c for c in mine if base[c] == name)
            found.update(dict.fromkeys(same[1:]))
    return tuple(found)


def _all(regions: tuple[Region, ...]) -> Iterator[Region]:
    for r in regions:
        yield r
        yield from _all(tuple(m for m in r.members if isinstance(m, Region)))


def _rename(diagram: Diagram, opened: Opened, names: Mapping[str, str]) -> Diagram:
    base = dict(opened.base)
    known = {i.name: i.dtype for i in diagram.inputs}
    lines: list[Line] = []
    for line in diagram.lines:
        known[line.name] = dtype = line_dtype(line, known)
        boxes = [b for b in opened.boxes if b.line == line.name]
        outer = dict(zip(line.axes, opened.box(line.name).axes, strict=True))
        # each binding of the line under a name of its own, so that its box tells its component
        unique = _Bindings()
        marked = replace(line, expr=unique.mark(line.expr, {}))
        component = dict(outer)
        for mine, box in zip(open_one(marked, dtype), boxes, strict=True):
            component.update(zip(mine.over, box.over, strict=True))
        final = {u: names.get(c, base[c]) for u, c in component.items()}
        for axis in outer:
            final[axis] = names.get(outer[axis], axis)
        lines.append(replace(line, axes=tuple(final[a] for a in line.axes), expr=_apply(marked.expr, final)))
    added = tuple(Definition(new, Constant(base[c])) for c, new in names.items())
    return replace(diagram, definitions=(*diagram.definitions, *added), lines=tuple(lines))


class _Bindings:
    """Numbers the bindings of one line."""

    def __init__(self) -> None:
        self.count = 0

    def mark(self, e: Expr, scope: Mapping[str, str]) -> Expr:
        inner = dict(scope)
        if isinstance(e, Reduce) or (isinstance(e, Composite) and e.op in COMPOSITES_THAT_REDUCE):
            for a in e.axes:
                self.count += 1
                inner[a] = f"{a}#{self.count}"
        kids = children(e)
        if isinstance(e, Composite):
            n = len(e.args)
            new = (*(self.mark(c, inner) for c in kids[:n]), *(self.mark(c, scope) for c in kids[n:]))
        else:
            new = tuple(self.mark(c, inner) for c in kids)
        return _here(rebuild(e, new) if kids else e, inner)


def _here(e: Expr, names: Mapping[str, str]) -> Expr:
    """This node alone with its axes renamed."""
    match e:
        case Index(axis=a):
            return Index(names.get(a, a))
        case Read(array=array, index=index):
            return Read(array, tuple(form.rename(names) for form in index))
        case Reduce(axes=axes) | Composite(axes=axes):
            return replace(e, axes=tuple(names.get(a, a) for a in axes))
        case _:
            return e


def _apply(e: Expr, names: Mapping[str, str]) -> Expr:
    kids = children(e)
    return _here(rebuild(e, tuple(_apply(c, names) for c in kids)) if kids else e, names)


def _mapping(before: Opened, after: Opened) -> dict[str, str]:
    """Components before and after a renaming, box by box."""
    found: dict[str, str] = {}
    for a, b in zip(before.boxes, after.boxes, strict=True):
        found.update(zip(a.all_axes, b.all_axes, strict=True))
    return found


def _region(region: Region, names: Mapping[str, str]) -> Region:
    return replace(
        region,
        members=tuple(m if isinstance(m, str) else _region(m, names) for m in region.members),
        group=tuple((names.get(a, a), n) for a, n in region.group),
        stream=tuple((names.get(a, a), n) for a, n in region.stream),
    )
