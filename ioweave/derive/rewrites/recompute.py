"""Recompute: a line is computed a second time, for some of its readers.

Statement: a box is a pure function of its operands, so a copy of it has the same value, and a
reader may take either (copying commutes with boxes: naturality of copy in a cartesian category,
Neural Circuit Diagrams, arXiv 2402.05424). It buys arithmetic for transfers: a region that
holds the copy need not load the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ioweave.derive.rewrites.regions import Check, checked, position_of_line, rebuilt, unchecked
from ioweave.diagrams.diagram import Diagram, Line
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Expr, Read, reads, transform
from ioweave.diagrams.sizes import axis_names
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.steps import Step, and_list


def recompute(
    levelled: Levelled, line: str, readers: Sequence[str], name: str | None = None, check: Check = unchecked
) -> tuple[Levelled, Step]:
    """A copy of ``line``, called ``name`` or by a fresh name, that ``readers`` read in its place.

    The copy stands in the region of the readers, before the first of them; where they stand
    outside any block, it is a region by itself after the line. Raises Refused where a reader
    does not read the line, where nobody would read the line itself, and where readers stand in
    different blocks.
    """
    diagram = levelled.diagram
    at = position_of_line(levelled, line)
    original = diagram.line(line)
    every = [n.name for n in diagram.lines if any(r.array == line for r in reads(n.expr))]
    strangers = [n for n in readers if n not in every]
    if strangers or not readers:
        raise Refused(f"{and_list(strangers) or 'nobody'} does not read {line}; its readers are {and_list(every)}")
    if line not in diagram.outputs and set(every) <= set(readers):
        raise Refused(f"nobody but {and_list(every)} reads {line}: computing it twice would leave the first unused")
    copy = fresh_name(diagram, line) if name is None else name
    if copy in _taken(diagram):
        raise Refused(f"{copy} is the name of something else; a copy of {line} needs a fresh name")
    places = dict.fromkeys(position_of_line(levelled, n) for n in readers)
    homes = [levelled.regions[k] for k in places]
    regions = list(levelled.regions)
    if all(h.implicit for h in homes):
        place = copy
        regions.insert(at + 1, Region(copy, levelled.levels[-1], (copy,), implicit=True))
    elif len(homes) == 1:
        place = homes[0].name
        still = [n for n in every if n in homes[0].lines() and n not in readers]
        held = tuple(h for h in homes[0].hold if h[0] != line or still)
        regions[next(iter(places))] = replace(_inserted(homes[0], copy, readers), hold=held)
    else:
        raise Refused(
            f"{and_list(readers)} stand in different regions ({and_list([h.name for h in homes])}); "
            "recompute for one region at a time"
        )
    lines = [_redirected(n, line, copy) if n.name in readers else n for n in diagram.lines]
    k = next(i for i, n in enumerate(lines) if n.name == line)
    lines.insert(k + 1, Line(copy, original.axes, original.expr, original.dtype))
    step = Step(
        "recompute",
        f"{line} is a function of {_operands(original)} alone, so {copy} has the same values; "
        f"{and_list(list(readers))} need not load {line}",
        region=place,
        identity=f"{copy} = {line}",
        lines=(line, *readers),
        arrays=(copy,),
    )
    return checked(rebuilt(levelled, replace(diagram, lines=tuple(lines)), regions), place, check), step


def fresh_name(diagram: Diagram, line: str) -> str:
    """``S_1``, or the first ``S_n`` that names nothing in the diagram."""
    taken = _taken(diagram)
    n = 1
    while f"{line}_{n}" in taken:
        n += 1
    return f"{line}_{n}"


def _taken(diagram: Diagram) -> set[str]:
    names = {d.name for d in diagram.definitions} | set(axis_names(diagram))
    return names | {i.name for i in diagram.inputs} | {n.name for n in diagram.lines}


def _redirected(line: Line, old: str, new: str) -> Line:
    def step(e: Expr) -> Expr:
        return Read(new, e.index) if isinstance(e, Read) and e.array == old else e

    return replace(line, expr=transform(line.expr, step))


def _inserted(region: Region, copy: str, readers: Sequence[str]) -> Region:
    for k, m in enumerate(region.members):
        if m in readers:
            return replace(region, members=(*region.members[:k], copy, *region.members[k:]))
        if isinstance(m, Region) and set(readers) & set(m.lines()):
            inner = _inserted(m, copy, readers)
            return replace(region, members=(*region.members[:k], inner, *region.members[k + 1 :]))
    return region


def _operands(line: Line) -> str:
    return and_list(list(dict.fromkeys(r.array for r in reads(line.expr)))) or "its indices"
