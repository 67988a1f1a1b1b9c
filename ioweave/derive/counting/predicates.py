"""Predicates of indices over tiles: true everywhere, false everywhere, or mixed (counting.md 25).

A predicate whose comparisons all bear on one linear form of (floored) axes is decided by the
range of that form, at any size. Any other is decided by a table of its truth, while the table
is small enough; beyond that it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from ioweave.derive.counting.lengths import Bounds
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Size, free_axes
from ioweave.diagrams.operators import COMPARISONS

TABLE = 1 << 25
FALSE, TRUE, MIXED = 0, 1, 2

Term = tuple[str, int, int]  # floor((axis + add) / divisor)
Form = tuple[tuple[Term, int], ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """``form + constant`` compared with zero by ``op`` (lt, le, gt, ge, eq, ne)."""

    form: Form
    constant: int
    op: str


@dataclass(frozen=True, slots=True)
class Junction:
    """All (``and``) or any (``or``) of the parts."""

    op: str
    parts: tuple[Atom | Junction, ...]


_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


class _NotLinear(Exception):
    """The predicate is not made of comparisons of linear forms."""


def compile_predicate(e: Expr, names: Mapping[str, int | float]) -> Atom | Junction | None:
    """The predicate as comparisons of linear forms; None where it is not."""
    try:
        return _junction(e, names, True)
    except _NotLinear:
        return None


def _junction(e: Expr, names: Mapping[str, int | float], positive: bool) -> Atom | Junction:
    match e:
        case Number(value=value):
            truth = bool(value) == positive
            return Atom((), 0 if truth else 1, "eq")
        case Apply(op="not", args=(a,)):
            return _junction(a, names, not positive)
        case Apply(op=("and" | "or") as op, args=args):
            kind = op if positive else ("or" if op == "and" else "and")
            return Junction(kind, tuple(_junction(a, names, positive) for a in args))
        case Apply(op=op, args=(a, b)) if op in COMPARISONS:
            return _compare(a, b, op if positive else _NEGATED[op], names)
    raise _NotLinear


def _compare(a: Expr, b: Expr, op: str, names: Mapping[str, int | float]) -> Atom | Junction:
    for left, right, o in ((a, b, op), (b, a, _mirror(op))):
        if isinstance(left, Apply) and left.op == "abs":
            inner = left.args[0]
            below = _compare(inner, right, o, names)
            above = _compare(Apply("neg", (inner,)), right, o, names)
            return Junction("and" if o in ("lt", "le", "ne") else "or", (below, above))
    form, constant = _linear(Apply("sub", (a, b)), names)
    if not np.isfinite(constant):
        raise _NotLinear
    if not float(constant).is_integer():  # only the side of a fraction matters
        if op in ("eq", "ne"):
            return Atom((), 0 if op == "ne" else 1, "eq")
        constant = float(np.floor(constant) if op in ("gt", "ge") else np.ceil(constant))
        op = "ge" if op in ("gt", "ge") else "le"
    return Atom(form, int(constant), op)


def _mirror(op: str) -> str:
    return {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(op, op)


def _linear(e: Expr, names: Mapping[str, int | float]) -> tuple[Form, float]:
    match e:
        case Number(value=v):
            return (), float(v)
        case Constant(name=n) | Size(axis=n):
            return (), float(names[n])
        case Index(axis=a):
            return (((a, 0, 1), 1),), 0.0
        case Apply(op=("add" | "sub") as op, args=(a, b)):
            fa, ca = _linear(a, names)
            fb, cb = _linear(b, names)
            sign = 1 if op == "add" else -1
            total = dict(fa)
            for t, c in fb:
                total[t] = total.get(t, 0) + sign * c
            return tuple(sorted((t, c) for t, c in total.items() if c)), ca + sign * cb
        case Apply(op="neg", args=(a,)):
            form, rest = _linear(a, names)
            return tuple((t, -k) for t, k in form), -rest
        case Apply(op="mul", args=(a, b)):
            fa, ca = _linear(a, names)
            fb, cb = _linear(b, names)
            if fa and fb:
                raise _NotLinear
            form, times, rest = (fa, cb, ca) if fa else (fb, ca, cb)
            if form and not float(times).is_integer():
                raise _NotLinear
            return tuple((t, int(times) * c) for t, c in form if times), rest * times
        case Apply(op="floordiv", args=(a, b)):
            form, rest = _linear(a, names)
            divisor, by = _linear(b, names)
            if divisor or not by.is_integer() or by <= 0 or not rest.is_integer():
                raise _NotLinear
            if not form:
                return (), float(rest // by)
            if len(form) == 1 and form[0][1] == 1 and form[0][0][2] == 1:
                (axis, add, _), _ = form[0]
                return (((axis, add + int(rest), int(by)), 1),), 0.0
    raise _NotLinear


def forms(p: Atom | Junction) -> tuple[Atom, ...]:
    """Every comparison of the predicate."""
    return (p,) if isinstance(p, Atom) else tuple(a for part in p.parts for a in forms(part))


def _range(form: Form, bounds: Bounds) -> tuple[Any, Any]:
    low: Any = 0
    high: Any = 0
    for (axis, add, divisor), c in form:
        lo, hi = bounds[axis]
        first, last = (lo + add) // divisor, (hi - 1 + add) // divisor
        low = low + (c * first if c > 0 else c * last)
        high = high + (c * last if c > 0 else c * first)
    return low, high


def _every_value(form: Form) -> bool:
    """Whether a form takes every value between its least and its greatest on a tile: unit steps of different axes."""
    return all(abs(c) == 1 for _, c in form) and len({axis for (axis, _, _), _ in form}) == len(form)


def _normal(a: Atom) -> tuple[Form, int, str]:
    """The atom with its form's first coefficient positive, as ``form op bound``."""
    if a.form and a.form[0][1] < 0:
        return tuple((t, -c) for t, c in a.form), a.constant, _mirror(a.op)
    return a.form, -a.constant, a.op


_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def _truth(p: Atom | Junction, v: Any) -> Any:
    """The truth of a predicate of one form at values of the form."""
    if isinstance(p, Atom):
        form, bound, op = _normal(p)
        return _COMPARE[op](v if form else 0, bound)
    parts = [_truth(q, v) for q in p.parts]
    return np.logical_and.reduce(parts) if p.op == "and" else np.logical_or.reduce(parts)


def decide(e: Expr, bounds: Bounds, names: Mapping[str, int | float], sizes: Mapping[str, int]) -> Any:
    """FALSE, TRUE or MIXED for every tile of ``bounds`` (arrays that broadcast).

    Raises Refused where the predicate ties axes in no single linear form and its table is too large.
    """
    p = compile_predicate(e, names)
    if p is not None:
        atoms = [a for a in forms(p) if a.form]
        keys = {_normal(a)[0] for a in atoms}
        if len(keys) <= 1 and all(_every_value(k) for k in keys):
            return _decide_single(p, keys, bounds)
        state, exact = _three_valued(p, bounds)
        if exact or not np.any(state == MIXED):
            return state
    return _decide_by_table(e, bounds, names, sizes)


def _decide_single(p: Atom | Junction, keys: set[Form], bounds: Bounds) -> Any:
    if not keys:
        return np.asarray(int(bool(_truth(p, np.int64(0)))))
    (form,) = keys
    low, high = _range(form, bounds)
    breaks = sorted({b + d for a in forms(p) if a.form for b in [_normal(a)[1]] for d in (0, 1)})
    some_true: Any = False
    some_false: Any = False
    edges = [None, *breaks, None]
    for first, after in pairwise(edges):
        at = first if first is not None else (after or 0) - 1
        meets: Any = True
        if first is not None:
            meets = meets & (high >= first)
        if after is not None:
            meets = meets & (low < after)
        if bool(_truth(p, np.int64(at))):
            some_true = some_true | meets
        else:
            some_false = some_false | meets
    return np.where(some_true & ~np.asarray(some_false), TRUE, np.where(some_true, MIXED, FALSE))


def _three_valued(p: Atom | Junction, bounds: Bounds) -> tuple[Any, bool]:
    """Kleene's three values, and whether they are exact (parts bear on disjoint axes)."""
    if isinstance(p, Atom):
        keys = {_normal(p)[0]} if p.form else set()
        unit = _every_value(p.form)
        return _decide_single(p, keys, bounds), unit
    states, exact, seen = [], True, set[str]()
    for part in p.parts:
        state, ok = _three_valued(part, bounds)
        axes = {t[0] for a in forms(part) for t, _ in a.form}
        exact = exact and ok and not (axes & seen)
        seen |= axes
        states.append(state)
    states = list(np.broadcast_arrays(*states))
    zero, one = (FALSE, TRUE) if p.op == "and" else (TRUE, FALSE)
    some_zero = np.logical_or.reduce([s == zero for s in states])
    all_one = np.logical_and.reduce([s == one for s in states])
    return np.where(some_zero, zero, np.where(all_one, one, MIXED)), exact


def _decide_by_table(e: Expr, bounds: Bounds, names: Mapping[str, int | float], sizes: Mapping[str, int]) -> Any:
    axes = tuple(sorted(free_axes(e)))
    cells = 1
    for a in axes:
        cells *= sizes[a]
    if cells > TABLE:
        raise Refused(
            f"the predicate ties {', '.join(axes)} in a way that is counted by element, and there are {cells:,}; "
            "write it as comparisons of one linear form (such as q - x), or use smaller sizes"
        )
    table = _table(e, axes, tuple(sizes[a] for a in axes), tuple(sorted(names.items())))
    count: Any = 0
    volume: Any = 1
    for corner in range(1 << len(axes)):
        index = tuple(bounds[a][1 if corner >> k & 1 else 0] for k, a in enumerate(axes))
        sign = -1 if (len(axes) - corner.bit_count()) % 2 else 1
        count = count + sign * table[index]
    for a in axes:
        volume = volume * (bounds[a][1] - bounds[a][0])
    return np.where(count == 0, FALSE, np.where(count == volume, TRUE, MIXED))


@lru_cache(maxsize=8)
def _table(e: Expr, axes: tuple[str, ...], shape: tuple[int, ...], names: tuple[tuple[str, int | float], ...]) -> Any:
    """Summed truth: entry (i, j, ...) counts the true elements below it."""
    grids = dict(zip(axes, np.ogrid[tuple(slice(0, n) for n in shape)], strict=True))
    truth = np.broadcast_to(evaluate(e, grids, dict(names)), shape)
    total = np.zeros(tuple(n + 1 for n in shape), dtype=np.int64 if truth.size > 2**31 else np.int32)
    total[tuple(slice(1, None) for _ in shape)] = truth
    for k in range(len(shape)):
        np.cumsum(total, axis=k, out=total)
    return total


def evaluate(e: Expr, grids: Mapping[str, Any], names: Mapping[str, int | float]) -> Any:
    """The value of an expression of indices, sizes and constants on grids of indices."""
    match e:
        case Number(value=v):
            return v
        case Constant(name=n) | Size(axis=n):
            return names[n]
        case Index(axis=a):
            return grids[a]
        case Apply(op=op, args=args):
            return FUNCTIONS[op](*(evaluate(a, grids, names) for a in args))
    raise Refused("a predicate of indices reads an array")
