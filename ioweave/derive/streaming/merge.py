"""Merge: partial states of one plan, from disjoint pieces of the axis, become the state of the whole.

The same correction that a step applies to an accumulator applies between pieces: each part is
multiplied by the plan's factor with its own references as the old ones and the merged references
as the new (split keys, trees and rings are this merge).
"""

from __future__ import annotations

from dataclasses import replace

from ioweave.derive.streaming.cascade import on_reads
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import OLD, RUNNING, Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Apply, Expr, Read

PART = ".part"


def part_of(name: str) -> str:
    """The array that holds the partial states of an accumulator, one for each piece."""
    return name + PART


def merge_boxes(plan: Plan, part: str = "part", tail: bool = True) -> tuple[Box, ...]:
    """The boxes that merge partial states, indexed by the further axis ``part``, and run the tail.

    ``acc.part[part, *axes]`` are the operands. Raises `Refused` for a plan of several passes,
    whose later passes start from merged results.
    """
    if plan.passes > 1:
        raise Refused(f"a plan of {plan.passes} passes has no merge: its later passes need the merged results")
    made: dict[str, Box] = {}
    first = Affine.axis(part)
    for acc in plan.state:
        value: Expr = Read(part_of(acc.name), (first, *(Affine.axis(a) for a in acc.axes)))
        if acc.rescale is not None:
            delta = plan.box(acc.rescale)
            if delta.name not in made:
                made[delta.name] = replace(delta, axes=(part, *delta.axes), body=_between(delta.body, first))
            factor = Read(delta.name, (first, *(Affine.axis(a) for a in delta.axes)))
            value = Apply("mul", (factor, value))
        made[acc.name] = replace(acc, body=value, over=(part,), running=False, rescale=None)
    return (*made.values(), *(plan.tail if tail else ()))


def _between(e: Expr, part: Affine) -> Expr:
    """A step's factor as the factor of one part: old values are the part's, new ones the merged."""

    def step(r: Read) -> Expr:
        if r.array.endswith(OLD):
            return Read(part_of(r.array.removesuffix(OLD)), (part, *r.index))
        return Read(r.array.removesuffix(RUNNING), r.index)

    return on_reads(e, step)


_SIGNS = {"sum": " + ", "prod": " * ", "any": " or ", "all": " and "}


def merge_text(plan: Plan) -> str:
    """The merge of two states, ``m1`` and ``m2``, in words of formulas; one line for each accumulator."""
    lines: list[str] = []
    for acc in plan.state:
        parts = []
        for i in ("1", "2"):
            value = f"{acc.name}{i}"
            if acc.rescale is not None:
                value = f"{text(_numbered(plan.box(acc.rescale).body, i))} * {value}"
            parts.append(value)
        sign = _SIGNS.get(acc.reduction or "")
        joined = sign.join(parts) if sign else f"{acc.reduction}({', '.join(parts)})"
        lines.append(f"{acc.name} = {joined}")
    return "; ".join(lines)


def _numbered(e: Expr, i: str) -> Expr:
    return on_reads(e, lambda r: Read(r.array.removesuffix(OLD) + i) if r.array.endswith(OLD) else r)
