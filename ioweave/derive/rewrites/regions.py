"""What the rewrites share: finding regions, what leaves them, and keeping tiles on their axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import reads
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.sizes import ties
from ioweave.hierarchy.levelled import Levelled, Region

Check = Callable[[Levelled], object]
"""Raises Refused where a region cannot be run as written; is given one region at a time."""


def unchecked(levelled: Levelled) -> None:
    """The check that accepts everything."""


def checked(levelled: Levelled, name: str, check: Check) -> Levelled:
    """The same levelled diagram, after ``check`` has seen its region ``name``."""
    check(replace(levelled, regions=(levelled.regions[position(levelled, name)],)))
    return levelled


def position(levelled: Levelled, name: str) -> int:
    """Which region is called ``name``. Raises Refused if none is."""
    for k, region in enumerate(levelled.regions):
        if region.name == name:
            return k
    known = ", ".join(r.name for r in levelled.regions)
    raise Refused(f"no region is called {name}; the regions are {known}")


def position_of_line(levelled: Levelled, line: str) -> int:
    """Which region holds a line. Raises Refused if none does."""
    for k, region in enumerate(levelled.regions):
        if line in region.lines():
            return k
    known = ", ".join(n.name for n in levelled.diagram.lines)
    raise Refused(f"no line is called {line}; the lines are {known}")


def boxes_of(opened: Opened, region: Region) -> tuple[Box, ...]:
    """The boxes of a region's lines, in order."""
    lines = set(region.lines())
    return tuple(b for b in opened.boxes if b.line in lines)


def leaving(opened: Opened, boxes: Iterable[Box]) -> frozenset[str]:
    """The arrays made by these boxes that leave them: read by other boxes, or outputs."""
    names = {b.name for b in boxes}
    read = {r.array for b in opened.boxes if b.name not in names for r in b.reads()}
    return frozenset(n for n in names if n in read or n in opened.outputs)


def plan_of(levelled: Levelled, boxes: tuple[Box, ...], axis: str, stored: frozenset[str]) -> Plan:
    """The prover's plan for an axis of boxes of a levelled diagram, at the diagram's own sizes."""
    diagram = levelled.diagram
    facts = {i.name: i.fact for i in diagram.inputs if i.fact is not None}
    return repair(boxes, frozenset({axis}), stored, facts, diagram.values(), ties=ties(diagram.definitions))


def axis_of(opened: Opened, region: Region, axis: str) -> str:
    """``axis``, if a box of the region has it. Raises Refused otherwise (counting.md 15)."""
    axes = tuple(dict.fromkeys(a for b in boxes_of(opened, region) for a in b.all_axes))
    if axis not in axes:
        raise Refused(f"no member of {region.name} has an axis {axis}; its axes are {', '.join(axes) or 'none'}")
    return axis


def tile_of(size: int) -> int:
    """``size``, if it can be a tile. Raises Refused otherwise."""
    if size < 1:
        raise Refused(f"a tile is 1 or more, not {size}")
    return size


def graph(levelled: Levelled) -> Any:
    """The regions, by position, as a networkx graph with an edge from each to every region whose arrays it reads."""
    import networkx as nx

    at = {line: k for k, region in enumerate(levelled.regions) for line in region.lines()}
    result = nx.DiGraph()
    result.add_nodes_from(range(len(levelled.regions)))
    for line in levelled.diagram.lines:
        k = at[line.name]
        result.add_edges_from((k, at[r.array]) for r in reads(line.expr) if at.get(r.array, k) != k)
    return result


def rebuilt(before: Levelled, diagram: Diagram, regions: Sequence[Region]) -> Levelled:
    """A changed diagram with its regions: lines in the order of the regions, tiles on the same axes as before.

    Components are numbered over the whole diagram, so a change elsewhere may rename an axis of
    a region; its boxes tell which. Raises Refused where an axis of a region would become two.
    """
    order = {name: k for k, name in enumerate(n for r in regions for n in r.lines())}
    diagram = replace(diagram, lines=tuple(sorted(diagram.lines, key=lambda n: order[n.name])))
    old = open_diagram(before.diagram)
    new = open_diagram(diagram)
    return replace(before, diagram=diagram, regions=tuple(_renamed(r, old, new) for r in regions))


def _renamed(region: Region, old: Opened, new: Opened) -> Region:
    if not (region.group or region.stream or any(isinstance(m, Region) for m in region.members)):
        return region
    names = component_names((b, b.name) for b in boxes_of(old, region))
    final = components(names, new, region.name)
    return replace(
        region,
        members=tuple(m if isinstance(m, str) else _renamed(m, old, new) for m in region.members),
        group=tuple((final[a], n) for a, n in region.group),
        stream=tuple((final[a], n) for a, n in region.stream),
    )


def component_names(boxes: Iterable[tuple[Box, str]]) -> dict[str, tuple[tuple[str, int], ...]]:
    """For each axis component, where it stands: names of boxes (as they will be called) and places of their axes."""
    found: dict[str, list[tuple[str, int]]] = {}
    for box, name in boxes:
        for place, axis in enumerate(box.all_axes):
            found.setdefault(axis, []).append((name, place))
    return {a: tuple(places) for a, places in found.items()}


def components(names: Mapping[str, tuple[tuple[str, int], ...]], opened: Opened, region: str) -> dict[str, str]:
    """The component that each of ``names`` is in another opening. Raises Refused where it is several there."""
    made = {b.name: b for b in opened.boxes}
    result: dict[str, str] = {}
    for axis, places in names.items():
        found = dict.fromkeys(made[name].all_axes[place] for name, place in places if name in made)
        if len(found) > 1:
            raise Refused(f"axis {axis} of {region} would fall apart into {' and '.join(found)}")
        if found:
            (result[axis],) = found
    return result
