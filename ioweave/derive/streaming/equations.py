"""Equations: the boxes of a plan as lines for people, by stage."""

from __future__ import annotations

from collections.abc import Iterable

from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.operators import REDUCTIONS


def start_of(b: Box) -> str:
    """What an accumulator starts from."""
    value = REDUCTIONS[b.reduction or "sum"].identity
    return str(int(value)) if abs(value) != float("inf") else str(value)


def equation(b: Box) -> str:
    """A box as an equation; of an accumulator, what a step makes of it."""
    body = text(b.body)
    if b.reduction is None:
        return f"{b.name} = {body}"
    term = f"{b.reduction}[{', '.join(b.over)}]({body})"
    if not b.running:
        return f"{b.name} = {term}"
    if b.reduction == "sum":
        before = f"{b.name} + {b.recentre}" if b.recentre else b.name
        if b.rescale:
            before = f"{b.rescale} * ({before})" if b.recentre else f"{b.rescale} * {before}"
        return f"{b.name} = {before} + {term}"
    if b.reduction == "prod":
        return f"{b.name} = {b.name} * {term}"
    if b.reduction in ("max", "min"):
        return f"{b.name} = {b.reduction}({b.name}, {term})"
    return f"{b.name} = {b.name} {'or' if b.reduction == 'any' else 'and'} {term}"


def equations(plan: Plan, boxes: Iterable[Box]) -> tuple[str, ...]:
    """Boxes as equations, with their pass where the plan has several."""
    many = plan.passes > 1
    return tuple((f"pass {plan.pass_of(b.name)}: " if many else "") + equation(b) for b in boxes)


def head_equations(plan: Plan) -> tuple[str, ...]:
    """What runs before any loop, and what the state starts from."""
    return (*(equation(b) for b in plan.head), *(f"{b.name} = {start_of(b)}" for b in plan.state))
