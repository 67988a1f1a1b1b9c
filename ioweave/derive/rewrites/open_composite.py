"""Open: a line with a composite becomes the lines of its parts.

Statement: a composite is defined by lines of the same notation; putting them in its place,
woven over the line's other axes, gives the same function (equivalence of diagrams, Neural
Circuit Diagrams, arXiv 2402.05424). The boxes, and so what the prover sees, stay as they were.
"""

from __future__ import annotations

from dataclasses import replace

from ioweave.derive.rewrites.regions import position_of_line, rebuilt
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Composite, walk
from ioweave.diagrams.notation.printer import print_line
from ioweave.diagrams.opening import can_open, open_line
from ioweave.diagrams.sizes import axis_names
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.steps import Step


def open_composite(levelled: Levelled, line: str) -> tuple[Levelled, Step]:
    """Line ``line`` replaced by its parts, each a region by itself unless the line stands in a block.

    Raises Refused for a line without a composite.
    """
    at = position_of_line(levelled, line)
    region = levelled.regions[at]
    written = levelled.diagram.line(line)
    if not can_open(written):
        raise Refused(f"{line} has no composite to open: it is written in reductions and scalar operators already")
    diagram = open_line(levelled.diagram, line)
    known = {n.name for n in levelled.diagram.lines}
    parts = (*(n.name for n in diagram.lines if n.name not in known), line)
    regions = list(levelled.regions)
    if region.implicit:
        regions[at : at + 1] = [replace(region, name=p, members=(p,)) for p in parts]
    else:
        regions[at] = _opened(region, line, parts)
    axes = axis_names(diagram)
    named = dict.fromkeys(f"{n.op}[{', '.join(n.axes)}]" for n in walk(written.expr) if isinstance(n, Composite))
    step = Step(
        "open",
        f"{' and '.join(named)} of {line} stands for these lines, so the function is the same",
        region=line if region.implicit else region.name,
        identity="; ".join(print_line(diagram.line(p), axes) for p in parts),
        lines=(line,),
        arrays=parts,
    )
    return rebuilt(levelled, diagram, regions), step


def _opened(region: Region, line: str, parts: tuple[str, ...]) -> Region:
    members: list[str | Region] = []
    for m in region.members:
        if isinstance(m, Region):
            members.append(_opened(m, line, parts))
        else:
            members.extend(parts if m == line else (m,))
    return replace(region, members=tuple(members))
