"""Equations: the boxes of a plan as lines for people, by stage."""

from __future__ import annotations

from collections.abc import Iterable

from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.lists import PAYLOAD, follows, holds_positions, is_list, key, payload, start
from ioweave.diagrams.operators import REDUCTIONS


def start_of(b: Box) -> str:
    """What an accumulator starts from; of a list, what its empty slots hold."""
    if b.scan is not None:
        return text(b.scan.start)
    if holds_positions(b):
        return f"size({' * '.join(b.over)})"
    if is_list(b):
        return str(start(b, 0)).removesuffix(".0")
    value = REDUCTIONS[b.reduction or "sum"].identity
    return str(int(value)) if abs(value) != float("inf") else str(value)


def equation(b: Box) -> str:
    """A box as an equation; of an accumulator, what a step makes of it."""
    if is_list(b):
        return f"{b.name} = {list_term(b)}"
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


def list_term(b: Box) -> str:
    """The list of a box: of the slots that it has and the terms of a step, where it runs."""
    keys = text(key(b))
    terms = keys
    if follows(b):
        rides = text(payload(b)) if b.reduction == PAYLOAD else ", ".join(b.over)
        terms = f"{rides} by {keys}"
    before = f"{b.name}, " if b.running else ""
    return f"{b.reduction}[{b.into}]({before}{terms})"


def equations(plan: Plan, boxes: Iterable[Box]) -> tuple[str, ...]:
    """Boxes as equations, with their pass where the plan has several."""
    many = plan.passes > 1
    return tuple((f"pass {plan.pass_of(b.name)}: " if many else "") + equation(b) for b in boxes)


def head_equations(plan: Plan) -> tuple[str, ...]:
    """What runs before any loop, and what the state starts from."""
    return (*(equation(b) for b in plan.head), *(f"{b.name} = {start_of(b)}" for b in (*plan.recurrences, *plan.state)))
