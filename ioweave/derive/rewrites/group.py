"""Group and split: an axis is cut into tiles, an instance of the region for each.

Statement: a function woven over an axis may be run on chunks of it that know nothing of each
other ("FlashAttention on a Napkin", arXiv 2412.03317, group partition): every stored member has
the axis, so instances write disjoint parts. Where a stored member reduces over the axis, each
instance stores its partial state, and a merge joins them; that needs a plan with a merge.
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
from ioweave.derive.streaming.merge import merge_text
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.lists import check_whole
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.scans import check_scans
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.steps import Step, and_list


def group(levelled: Levelled, region: str, axis: str, size: int, check: Check = unchecked) -> tuple[Levelled, Step]:
    """Axis component ``axis`` of ``region`` grouped in tiles of ``size``.

    The step is ``split`` where a stored member reduces over the axis. Raises Refused for an axis
    that no member has, one grouped already, a stored member that neither has the axis nor
    reduces over it (counting.md 16), and a reduction whose plan has no merge (counting.md 24).
    """
    at = position(levelled, region)
    opened = open_diagram(levelled.diagram)
    before = levelled.regions[at]
    axis_of(opened, before, axis)
    tile_of(size)
    if axis in dict(before.group):
        raise Refused(f"{axis} is grouped in tiles of {dict(before.group)[axis]} already")
    plan = legal_group(levelled, opened, before, axis)
    after = levelled.with_region(at, replace(before, group=(*before.group, (axis, size)), implicit=False))
    if plan is None:
        step = Step("group", _because(opened, before, axis), region, axis, size)
    else:
        step = Step("split", _split(opened, before, plan, axis), region, axis, size, merge_text(plan))
    return checked(after, region, check), step


def legal_group(levelled: Levelled, opened: Opened, region: Region, axis: str) -> Plan | None:
    """The plan whose states are merged where a stored member reduces over ``axis``; None where none does.

    Raises Refused where the axis cannot be grouped.
    """
    boxes = boxes_of(opened, region)
    check_whole(boxes, (axis,))
    check_scans(boxes, (axis,), ())
    stored = leaving(opened, boxes)
    late = _waiting(boxes, axis)
    split = False
    for b in boxes:
        if b.name not in stored:
            continue
        if axis in b.axes and b.name in late:
            raise Refused(
                f"{b.name} has {axis} and needs a reduction over all of {axis}, which no instance has; "
                f"stream {axis} or leave it whole"
            )
        if axis not in b.axes and b.name not in late:
            raise Refused(
                f"{b.name} is stored, and it neither has {axis} nor reduces over it: two instances would write one "
                f"place; leave {axis} whole or stream it, or put {b.name} in a region of its own"
            )
        split = split or b.name in late
    if not split:
        return None
    plan = plan_of(levelled, boxes, axis, stored)
    if plan.passes > 1:
        why = "; ".join(f"{r.reduction}: {r.reason}" for r in plan.refusals) or "a later pass needs finished results"
        raise Refused(f"{region.name} over {axis} takes {plan.passes} passes, so partial states have no merge ({why})")
    return plan


def _waiting(boxes: tuple[Box, ...], axis: str) -> set[str]:
    """Boxes that reduce over ``axis``, or depend on one that does."""
    late: set[str] = set()
    for b in boxes:
        if axis in b.over or any(r.array in late for r in b.reads()):
            late.add(b.name)
    return late


def _because(opened: Opened, region: Region, axis: str) -> str:
    boxes = boxes_of(opened, region)
    made = {b.name for b in boxes}
    stored = leaving(opened, boxes)
    out = [b.name for b in boxes if b.name in stored]
    said = [
        f"{and_list(out)}, stored, {'has' if len(out) == 1 else 'have'} {axis}, "
        "so instances write disjoint parts and need nothing of each other"
    ]
    having: dict[str, bool] = {}
    for b in boxes:
        for r in b.reads():
            if r.array not in made:
                having[r.array] = having.get(r.array, False) or any(axis in f.names for f in r.index)
    again = [a for a, has in having.items() if not has]
    if again:
        said.append(f"{and_list(again)} without {axis} {'is' if len(again) == 1 else 'are'} loaded by every instance")
    twice = [b.name for b in boxes if b.name not in stored and axis not in b.all_axes]
    if twice:
        said.append(f"{and_list(twice)} without {axis} {'is' if len(twice) == 1 else 'are'} computed in every instance")
    return "; ".join(said)


def _split(opened: Opened, region: Region, plan: Plan, axis: str) -> str:
    state = and_list([b.name for b in plan.state])
    return f"every instance stores its partial {state} over {axis}, and a merge joins them and runs the tail"
