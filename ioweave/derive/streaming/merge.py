"""Merge: partial states of one plan, from disjoint pieces of the axis, become the state of the whole.

The same correction that a step applies to an accumulator applies between pieces: each part is
recentred and multiplied by the plan's factor with its own references as the old ones and the merged
references as the new (split keys, trees and rings are this merge).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ioweave.derive.streaming.cascade import inline, on_reads
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import BOTH, Plan, Segments
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import OLD, RUNNING, Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Apply, Expr, Read, reads
from ioweave.diagrams.lists import KEYED, KEYS, PAYLOAD, follows, is_list, leaders, slots
from ioweave.hierarchy.steps import and_list

PART = "part"  # the axis that tells partial states apart


def state_name(array: str) -> str:
    """The array of partial states of a reduction: ``state(X)[part, *axes]``."""
    return f"state({array})"


def merge_states(states: Sequence[Box], factors: Mapping[str, Box]) -> tuple[Box, ...]:
    """The boxes that join partial states over the axis of parts, each corrected to the merged references.

    ``states`` are the reductions, in order; ``factors`` holds the boxes that recentre and rescale
    them, and the maps of state that these read, by name.
    """
    made: dict[str, Box] = {}
    part = Affine.axis(PART)
    lists = {b.name: b for b in states if is_list(b)}
    for b in states:
        if b.name in lists:
            made[b.name] = merge_lists(b, lists)
            continue
        value: Expr = Read(state_name(b.name), (part, *(Affine.axis(a) for a in b.axes)))
        for op, name in (("add", b.recentre), ("mul", b.rescale)):
            if name is not None:
                value = Apply(op, (value, _correction(name, factors, made)))
        made[b.name] = replace(b, body=value, over=(PART,), running=False, rescale=None, recentre=None)
    return tuple(made.values())


def merge_lists(box: Box, lists: Mapping[str, Box]) -> Box:
    """The box that joins partial lists of one kind: the best slots of all parts, by their keys and positions.

    ``lists`` holds the partial lists that order it. Partial positions are picked beside their keys.
    """

    def partial(b: Box) -> Read:
        of = (slots(a) if a == b.into else a for a in b.axes)
        return Read(state_name(b.name), tuple(Affine.axis(a) for a in (PART, *of)))

    body: Expr = partial(box)
    if follows(box):
        body = Apply(KEYED, (partial(lists[leaders(box)[0]]), body))
    over = (PART, slots(box.into or ""))
    kind = KEYS if box.reduction == KEYS else PAYLOAD
    return replace(box, body=body, reduction=kind, over=over, running=False)


def _correction(name: str, boxes: Mapping[str, Box], made: dict[str, Box]) -> Read:
    """The read of a step's box between parts: old values are those of one part, new ones the merged."""
    box = boxes[name]
    if name not in made:

        def between(r: Read) -> Expr:
            if r.array.endswith(OLD):
                return Read(state_name(r.array.removesuffix(OLD)), (Affine.axis(PART), *r.index))
            if r.array.endswith(RUNNING):
                return Read(r.array.removesuffix(RUNNING), r.index)
            if _is_of_state(r.array, boxes):
                inner = _correction(r.array, boxes, made)
                return Read(r.array, (*inner.index[: len(inner.index) - len(r.index)], *r.index))
            return r

        body = on_reads(box.body, between)
        of_part = any(Affine.axis(PART) in r.index for r in reads(body))
        made[name] = replace(box, axes=(PART, *box.axes) if of_part else box.axes, body=body)
    return Read(name, tuple(Affine.axis(a) for a in made[name].axes))


def _is_of_state(name: str, boxes: Mapping[str, Box]) -> bool:
    """Whether a map reads running or old values, by itself or through other maps."""
    box = boxes.get(name)
    if box is None or box.reduction is not None:
        return False
    return any(r.array.endswith((OLD, RUNNING)) or _is_of_state(r.array, boxes) for r in box.reads())


def merge_boxes(plan: Plan, tail: bool = True) -> tuple[Box, ...]:
    """The boxes that merge the partial states of a plan, and run its tail.

    Raises `Refused` for a plan of several passes, whose later passes start from merged results.
    """
    if plan.passes > 1:
        raise Refused(f"a plan of {plan.passes} passes has no merge: its later passes need the merged results")
    return (*merge_states(plan.state, {b.name: b for b in plan.boxes}), *(plan.tail if tail else ()))


_SIGNS = {"sum": " + ", "prod": " * ", "any": " or ", "all": " and "}


def merge_text(plan: Plan, lifted: Mapping[str, str] = MappingProxyType({})) -> str:
    """The merge of two states, ``m₁`` and ``m₂``, in words of formulas; one line for each accumulator.

    ``lifted`` has the formula that stands for the second state of an accumulator, where it is corrected first.
    """
    lines: list[str] = []
    for acc in plan.state:
        if is_list(acc):
            order = f" by {leaders(acc)[0]}" if follows(acc) else ""
            lines.append(f"{acc.name} = {acc.reduction}[{acc.into}]({acc.name}₁, {acc.name}₂{order})")
            continue
        parts = []
        for i in ("₁", "₂"):
            value = lifted.get(acc.name, f"{acc.name}{i}") if i == "₂" else f"{acc.name}{i}"
            if acc.rescale is not None and value != f"{acc.name}{i}":
                value = f"({value})"
            if acc.recentre is not None:
                value = f"({value} + {text(_numbered(_of_state(plan, acc.recentre), i))})"
            if acc.rescale is not None:
                value = f"{text(_numbered(_of_state(plan, acc.rescale), i))} * {value}"
            parts.append(value)
        sign = _SIGNS.get(acc.reduction or "")
        joined = sign.join(parts) if sign else f"{acc.reduction}({', '.join(parts)})"
        lines.append(f"{acc.name} = {joined}")
    return "; ".join(lines)


def _of_state(plan: Plan, name: str) -> Expr:
    """The body of a correction with the maps of the loop that follow the state written out."""
    boxes = {b.name: b for b in plan.boxes}
    return inline(boxes[name].body, boxes, lambda r: _is_of_state(r.array, boxes))


def _numbered(e: Expr, i: str) -> Expr:
    return on_reads(e, lambda r: Read(r.array.removesuffix(OLD) + i) if r.array.endswith(OLD) else r)


def merge_lines(plan: Plan, found: Segments) -> str:
    """The merge in words of formulas: states and maps in order, then accumulators, then what is walked again."""
    lines = [f"{b.name.removesuffix(BOTH)} = {_spelled(b, found.joined)}" for b in _last(found.joined, BOTH)]
    if found.again:
        lines.append(f"{and_list(found.again)}: each piece is walked again from the state that enters it")
    lifted = {b.name: _spelled(b, found.lifts) for b in found.lifts if b.name in {s.name for s in plan.state}}
    lines += [x for x in (merge_text(plan, lifted),) if x]
    return "; ".join(lines)


def _last(boxes: Iterable[Box], ending: str) -> list[Box]:
    return [b for b in boxes if b.name.endswith(ending)]


def _spelled(b: Box, boxes: Iterable[Box]) -> str:
    """The right side of a joined box, the sums that it needs written out."""
    table = {x.name: x for x in boxes}

    def written(r: Read) -> Expr:
        part = table.get(r.array)
        if part is None or part.name == b.name:
            return Read(r.array)
        body = text(on_reads(part.body, written))
        return Read(
            f"{part.reduction}[{', '.join(a.rstrip(chr(39)) for a in part.over)}]({body})" if part.over else body
        )

    return text(on_reads(b.body, written))
