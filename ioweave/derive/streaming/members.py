"""Members: a reduction in which only the places of a list count runs over the list.

Statement. If the terms f(x) of a reduction change nothing unless x is one of the positions ``I_j`` of a list over x,
which are all different, then ``R_x f(x) = R_j f(I_j)``: what is read along x is read at the positions, after the loop.
Source. Distinct positions: a sum over the places of a set is a sum over its elements.
Reach. The condition is ``any[k](I[q, k] == x)``, the number of such k, or ``I[q, 0] == x`` for one slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ioweave.derive.streaming.cascade import Passes, inline, placed
from ioweave.derive.streaming.values import Values
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Index, Lookup, Number, Read, walk
from ioweave.diagrams.lists import POSITIONS

LOWEST = Number(float("-inf"))
IDLE: dict[str, float | bool] = {"sum": 0, "max": float("-inf"), "min": float("inf"), "any": False}


@dataclass(frozen=True, slots=True)
class Membership:
    """A condition of a term, and the position of the list that it is true at; ``slots`` is the list's axis, if many."""

    condition: Expr
    position: Read
    slots: str | None


def members(boxes: tuple[Box, ...], axis: str, values: Values) -> tuple[Box, ...]:
    """The boxes with such reductions over ``axis`` written over the list; the same tuple where there is none."""
    table = {b.name: b for b in boxes}
    passes = Passes(frozenset({axis}))
    made: list[Box] = []
    for b in boxes:
        waits = axis in b.over and passes.earliest(b) > 1 and b.reduction in IDLE
        passes.place(b)
        made.append((_over_members(b, table, passes, axis, values) or b) if waits else b)
    return tuple(made) if any(a is not b for a, b in zip(made, boxes, strict=True)) else boxes


def _over_members(box: Box, table: Mapping[str, Box], passes: Passes, axis: str, values: Values) -> Box | None:
    def late(r: Read) -> bool:
        at = passes.when[r.array]
        return at.inside and at.run > 1

    body = inline(box.body, table, late)
    for found in _conditions(body, table, axis):
        if not _idle(_folded(body, found.condition, False), box.reduction or "sum", values):
            continue
        place = Affine.make({}, {}, 0, {Lookup(found.position): 1})
        rest = tuple(a for a in box.over if a != axis)
        over = rest if found.slots is None else (found.slots, *rest)
        term = placed(_folded(body, found.condition, True), {axis: place})
        return replace(box, body=term, over=over, reduction=box.reduction if over else None)
    return None


def _conditions(body: Expr, table: Mapping[str, Box], axis: str) -> list[Membership]:
    """The conditions in a body that x is a position of a list over the axis."""
    found: list[Membership] = []
    for n in walk(body):
        if isinstance(n, Read) and n.array in table:
            made = table[n.array]
            own = all(f.bare == a for a, f in zip(made.axes, n.index, strict=True))
            test = made.body if made.reduction == "any" else _counted(made)
            at = _position(test, table, axis) if own and len(made.over) == 1 else None
            if at is not None and any(f.bare == made.over[0] for f in at.index[-1:]):
                found.append(Membership(n, at, made.over[0]))
        at = _position(n, table, axis)
        if at is not None and not at.index[-1].names:
            found.append(Membership(n, at, None))
    return found


def _counted(box: Box) -> Expr | None:
    """The condition whose truths a sum counts."""
    e = box.body
    if box.reduction != "sum" or not isinstance(e, Apply) or e.op != "where":
        return None
    return e.args[0] if e.args[1:] == (Number(1), Number(0)) else None


def _position(e: Expr | None, table: Mapping[str, Box], axis: str) -> Read | None:
    """The position that ``I[...] == x`` compares the axis with, its slot last."""
    if not isinstance(e, Apply) or e.op != "eq" or Index(axis) not in e.args:
        return None
    other = e.args[1] if e.args[0] == Index(axis) else e.args[0]
    made = table.get(other.array) if isinstance(other, Read) else None
    if made is None or not isinstance(other, Read) or made.reduction != POSITIONS or made.over != (axis,):
        return None
    if made.axes[-1] != made.into or any(f.bare != a for a, f in zip(made.axes[:-1], other.index[:-1], strict=True)):
        return None
    return other


def _idle(e: Expr, reduction: str, values: Values) -> bool:
    """Whether a term changes nothing."""
    if reduction == "sum":
        return e == Number(0) or not values.form(e)
    return e == Number(IDLE[reduction])


def _folded(e: Expr, condition: Expr, truth: bool) -> Expr:
    """The expression with a condition decided, and what that decides in turn."""
    if e == condition:
        return Number(truth)
    if not isinstance(e, Apply):
        return e
    a = tuple(_folded(x, condition, truth) for x in e.args)
    match e.op:
        case "where" if isinstance(a[0], Number):
            return a[1] if a[0].value else a[2]
        case "and" | "or" if any(isinstance(x, Number) for x in a):
            one, other = a if isinstance(a[0], Number) else (a[1], a[0])
            assert isinstance(one, Number)
            return other if bool(one.value) == (e.op == "and") else Number(e.op == "or")
        case "not" if isinstance(a[0], Number):
            return Number(not a[0].value)
        case "gt" | "ne" if a == (Number(False), Number(0)) or a == (Number(True), Number(0)):
            return Number(a[0] == Number(True))
        case "masked_sub" if a[0] == LOWEST:
            return LOWEST
        case "exp" | "exp2" if a[0] == LOWEST:
            return Number(0)
        case "mul" if Number(0) in a:
            return Number(0)
        case "mul" if a[0] == Number(True) or a[1] == Number(True):
            return a[1] if a[0] == Number(True) else a[0]
        case "div" | "masked_div" if a[0] == Number(0):
            return Number(0)
    return e if a == e.args else Apply(e.op, a)
