"""Stream: an axis is walked in steps inside every instance, carrying a state.

Statement: a function with an accumulator over an axis may take it chunk by chunk; composing it
with per-chunk work and weaving it keep this ("FlashAttention on a Napkin", arXiv 2412.03317,
stream partition and theorem 1, appendix A.1). A reduction that needs another over the same axis
is repaired to run beside it where that can be proved, and takes a further pass where it cannot,
so streaming is always legal and the number of passes is part of the answer.
"""

from __future__ import annotations

from dataclasses import replace

from ioweave.derive.rewrites.regions import (
    Check,
    axis_of,
    boxes_of,
    checked,
    leaving,
    plan_of,
    position,
    tile_of,
    unchecked,
)
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.lists import check_whole, of_nothing
from ioweave.diagrams.notation.printer import print_expr
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.scans import check_scans
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.steps import Step, and_list


def stream(levelled: Levelled, region: str, axis: str, size: int, check: Check = unchecked) -> tuple[Levelled, Step]:
    """Axis component ``axis`` of ``region`` walked in steps of ``size``, inside the loops there are.

    Raises Refused for an axis that no member has, and for one that is streamed already.
    """
    at = position(levelled, region)
    opened = open_diagram(levelled.diagram)
    before = levelled.regions[at]
    axis_of(opened, before, axis)
    tile_of(size)
    if axis in dict(before.stream):
        raise Refused(f"{axis} is streamed in steps of {dict(before.stream)[axis]} already")
    after = levelled.with_region(at, replace(before, stream=(*before.stream, (axis, size)), implicit=False))
    boxes = boxes_of(opened, before)
    check_whole(boxes, (axis,))
    check_scans(boxes, (), (axis,))
    plan = plan_of(levelled, boxes, axis, leaving(opened, boxes))
    step = Step("stream", _because(plan, axis, opened.outputs), region, axis, size, _identity(plan))
    return checked(after, region, check), step


def _because(plan: Plan, axis: str, outputs: tuple[str, ...]) -> str:
    if not plan.state and not plan.recurrences:
        return f"no reduction runs over {axis}, so its steps are independent and carry nothing"
    if plan.passes <= 1:
        return f"one pass over {axis} carries {_state(plan)}{_follows(plan)}{_walks(plan, axis)}"
    said = [f"{plan.passes} passes over {axis}, carrying {_state(plan)}{_follows(plan)}{_walks(plan, axis)}"]
    for r in plan.refusals:
        waits = and_list(r.waits) or "an earlier result"
        said.append(f"{r.reduction} needs the finished {waits}: {r.reason}")
    last = [b.name for b in plan.boxes if axis in b.axes and b.name in outputs and plan.pass_of(b.name) > 1]
    if last:
        said.append(f"{and_list(last)} has {axis} and needs finished results over it")
    return "; ".join(said)


def _state(plan: Plan) -> str:
    carried = [f"{b.name} (from {_start(b)})" for b in plan.state]
    carried += [f"the last {b.name} (from {_begin(b)})" for b in plan.recurrences]
    return "the state " + and_list(carried)


def _begin(box: Box) -> str:
    return print_expr(box.scan.start, box.axes) if box.scan is not None else ""


def _walks(plan: Plan, axis: str) -> str:
    """Why a loop has the direction that it has."""
    scans = [b for b in plan.recurrences if b.scan is not None and b.scan.axis == axis]
    if not scans:
        return ""
    back = any(b.scan is not None and b.scan.backward for b in scans)
    way, neighbour = ("backwards", "after") if back else ("forwards", "before")
    names = and_list([b.name for b in scans])
    needs = "needs" if len(scans) == 1 else "need"
    return f", {axis} taken {way}, for every element of {names} {needs} the one {neighbour} it"


def _start(box: Box) -> str:
    value = of_nothing(box)
    return "no positions" if value is None else f"{value:g}"


def _follows(plan: Plan) -> str:
    """How accumulators follow the ones that they depend on."""
    rescaled = [b.name for b in plan.state if b.rescale is not None]
    said = ""
    if rescaled:
        said += f", each step multiplying {and_list(rescaled)} by the change of what they are relative to"
    recentred = [b.name for b in plan.state if b.recentre is not None]
    if recentred:
        said += f", {and_list(recentred)} about running means, each step adding what their change makes of the old"
    shifted = [r.accumulator for r in plan.repairs if r.kind == "shift"]
    if shifted:
        said += f", {and_list(shifted)} taken without a shift that the tail puts back"
    separate = list(dict.fromkeys(r.reduction for r in plan.repairs if r.kind == "separate"))
    if separate:
        said += f", {and_list(separate)} in terms free of unfinished results that the tail puts together"
    return said


def _identity(plan: Plan) -> str | None:
    found = dict.fromkeys((*(r.identity for r in plan.repairs if r.identity), *plan.identities))
    return "; ".join(found) or None
