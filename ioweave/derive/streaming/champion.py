"""Champions: a sum over the places where an extremum is reached follows the running extremum.

Statement. For ``m = max_x s(x)`` the terms ``[s(x) = m] f(x)`` of the places seen so far change as
``[s = m'] = [m = m'] [s = m]`` when a step moves ``m`` to ``m' >= m``: the accumulator is kept where the
extremum stays and dropped where it moves (hard attention, counts of ties, the value at the largest score).
Source. `rescale` with the factor ``[m = m']``: Abbott and Zardini (arXiv 2412.03317, theorem 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ioweave.derive.streaming.forms import Form, Monomial, express, is_indicator
from ioweave.derive.streaming.parting import axes_used_form
from ioweave.derive.streaming.rescale import as_old, as_running
from ioweave.derive.streaming.values import Values
from ioweave.diagrams.expressions import Apply, Expr, Number


@dataclass(frozen=True, slots=True)
class Champion:
    """The factor ``[score = top]`` of a term; ``top`` is the extremum ``op`` of ``score`` over the axes summed."""

    factor: Expr
    score: Form
    top: Form
    op: str


def champion(e: Expr, over: tuple[str, ...], values: Values) -> Champion | None:
    """What an indicator says, if it is of the places of an extremum over ``over``; else None."""
    if not is_indicator(e) or not isinstance(e, Apply):
        return None
    test = e.args[0]
    if not isinstance(test, Apply) or test.op not in ("eq", "le"):
        return None
    left, right = (values.form(a) for a in test.args)
    # `top <= score` holds where `top = score`, and nowhere else
    ways = [(left, right, "min"), (right, left, "max")]
    if test.op == "eq":
        ways += [(left, right, "max"), (right, left, "min")]
    for score, top, op in ways:
        axes = tuple(a for a in over if a in axes_used_form(score))
        if axes and values.reduced(op, axes, score) == top:
            return Champion(e, score, top, op)
    return None


def champion_of(m: Monomial, over: tuple[str, ...], values: Values) -> Champion | None:
    """The first factor of a monomial that picks the places of an extremum."""
    return next((c for a, p in m.factors if p == 1 and (c := champion(a, over, values)) is not None), None)


def kept(score: Expr, top: Form, terms: Expr, running: Callable[[str], bool]) -> Expr:
    """The terms of a step where the score is the running extremum, 0 elsewhere."""
    return Apply("where", (Apply("eq", (score, as_running(express(top), running))), terms, Number(0)))


def stays(top: Form, running: Callable[[str], bool]) -> Expr:
    """The factor of the old value: 1 where the extremum has not moved, else 0."""
    e = express(top)
    return Apply("where", (Apply("eq", (as_old(e, running), as_running(e, running))), Number(1), Number(0)))


def followed(op: str) -> str:
    """The identity that the repair rests on."""
    order = "s <= r <= r'" if op == "max" else "s >= r >= r'"
    return f"[s = r'] = [r = r'] * [s = r] for {order}"
