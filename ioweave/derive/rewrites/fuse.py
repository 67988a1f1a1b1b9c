"""Fuse: several regions become one (recolouring).

Statement: where one region ends with storing an array and another begins with loading it, the
array may stay at the lower level; both transfers vanish ("FlashAttention on a Napkin", arXiv
2412.03317, fusion by recolouring; for a streamed axis, theorem 1 of its appendix A.1). It holds
where the joint region is convex (no path leaves it and comes back, else it would need a result
of a region that needs one of its own) and where the partition labels of the parts agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ioweave.derive.rewrites.group import legal_group
from ioweave.derive.rewrites.regions import (
    Check,
    boxes_of,
    checked,
    graph,
    leaving,
    position_of_line,
    rebuilt,
    unchecked,
)
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import reads
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.steps import Step, and_list


def fuse(levelled: Levelled, lines: Sequence[str], check: Check = unchecked) -> tuple[Levelled, Step]:
    """The regions that hold ``lines`` joined into one, at the place of the first; others move only where they must.

    A part without tiles takes those of the others; the region is named after its last line.
    Raises Refused where the result is not convex, where levels or tiles disagree, and where a
    new member cannot have the tiles.
    """
    chosen = sorted({position_of_line(levelled, n) for n in lines})
    if len(chosen) < 2:
        raise Refused(f"{and_list(tuple(lines)) or 'nothing'} stands in one region already: nothing to fuse")
    parts = [levelled.regions[k] for k in chosen]
    order = _order(levelled, chosen)
    joined = _joined(parts)
    regions = [joined if k == chosen[0] else levelled.regions[k] for k in order]
    after = rebuilt(levelled, levelled.diagram, regions)
    opened = open_diagram(after.diagram)
    joined = next(r for r in after.regions if r.name == joined.name)
    for axis, _ in joined.group:
        legal_group(levelled, opened, joined, axis)
    step = Step(
        "fuse",
        _because(levelled, parts, opened, joined),
        region=joined.name,
        lines=joined.lines(),
        arrays=_staying(opened, joined),
    )
    return checked(after, joined.name, check), step


def _order(levelled: Levelled, chosen: Sequence[int]) -> list[int]:
    """The regions in a valid order, ``chosen`` standing together as the first of them.

    Raises Refused where another region needs one of ``chosen`` and is needed by one.
    """
    first, last = chosen[0], chosen[-1]
    between = [k for k in range(first, last) if k not in chosen]
    before = _needed(levelled, chosen, between) if between else set()
    return [
        *range(first),
        *(k for k in between if k in before),
        first,
        *(k for k in between if k not in before),
        *range(last + 1, len(levelled.regions)),
    ]


def _needed(levelled: Levelled, chosen: Sequence[int], between: Sequence[int]) -> set[int]:
    """Those of ``between`` that ``chosen`` need. Raises Refused where one of them needs one of ``chosen``."""
    import networkx as nx

    needs = graph(levelled)
    before = {k for c in chosen for k in nx.descendants(needs, c)} & set(between)
    for k in sorted(before):
        within = nx.descendants(needs, k) & set(chosen)
        if within:
            name = levelled.regions[k].name
            source = levelled.regions[min(within)].name
            sink = next(levelled.regions[c].name for c in chosen if nx.has_path(needs, c, k))
            raise Refused(
                f"the region would not be convex: {name} needs {source} and {sink} needs {name}; "
                f"take {name} into the region, or leave {sink} out"
            )
    return before


def _joined(parts: Sequence[Region]) -> Region:
    """One region with the members of all, and the labels that they agree on."""
    levels = dict.fromkeys(p.level for p in parts)
    if len(levels) > 1:
        raise Refused(f"regions at different levels ({', '.join(levels)}) cannot be one region")
    tiled = [p for p in parts if not p.implicit]
    labels = {(p.group, p.stream, p.place, p.buffers) for p in tiled}
    if len(labels) > 1:
        raise Refused(
            f"{and_list([p.name for p in tiled])} have different tiles; give them the same tiles before they are fused"
        )
    model = tiled[0] if tiled else parts[0]
    members = tuple(m for p in parts for m in p.members)
    last = parts[-1].lines()[-1]
    made = {n for p in parts for n in p.lines()}
    hold = dict(h for p in tiled for h in p.hold if h[0] not in made)
    return replace(model, name=last, members=members, hold=tuple(hold.items()), implicit=False)


def _staying(opened: Opened, region: Region) -> tuple[str, ...]:
    """The lines' arrays that never leave the region."""
    stored = leaving(opened, boxes_of(opened, region))
    return tuple(n for n in region.lines() if n not in stored)


def _because(levelled: Levelled, parts: Sequence[Region], opened: Opened, region: Region) -> str:
    inside = set(region.lines())
    stay = _staying(opened, region)
    at = {n: k for k, p in enumerate(parts) for n in p.lines()}
    crossing: dict[str, None] = {}
    shared: dict[str, set[int]] = {}
    for name in region.lines():
        for r in reads(levelled.diagram.line(name).expr):
            if r.array in inside and at[r.array] != at[name]:
                crossing.setdefault(r.array)
            elif r.array not in inside:
                shared.setdefault(r.array, set()).add(at[name])
    gone = tuple(n for n in crossing if n in stay)
    kept = tuple(n for n in crossing if n not in stay)
    twice = tuple(a for a, where in shared.items() if len(where) > 1)
    said = []
    if gone:
        said.append(f"{and_list(gone)} {_are(gone)} made and read here alone and no longer {_moves(gone)}")
    if kept:
        said.append(f"{and_list(kept)} {_are(kept)} stored for what else needs {_it(kept)}, and not loaded here again")
    if twice:
        said.append(f"{and_list(twice)} {_are(twice)} read by several of the lines")
    said.append("no path leaves the region and comes back")
    return "; ".join(said)


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _moves(names: Sequence[str]) -> str:
    return "moves" if len(names) == 1 else "move"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
