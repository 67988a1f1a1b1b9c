"""The least and the greatest value of an expression of indices, by interval arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size
from ioweave.diagrams.operators import CASTS, KEEP, PREDICATES
from ioweave.diagrams.sizes import Value

Reach = tuple[float, float]
Spans = Mapping[str, tuple[int, int]]
EVERY: Reach = (-math.inf, math.inf)


def reach(e: Expr, values: Mapping[str, Value], spans: Spans) -> Reach:
    """An interval that holds every value of ``e``; `EVERY` where nothing is known.

    ``values`` gives sizes and constants, ``spans`` what arrays of positions hold.
    """
    match e:
        case Number(value=value):
            return value, value
        case Constant(name=name) | Size(axis=name):
            return values[name], values[name]
        case Index(axis=axis):
            return 0, values[axis] - 1
        case Read(array=array):
            return spans.get(array, EVERY)
        case Apply(op=op) if op in PREDICATES or op == KEEP:
            return 0, 1
        case Apply(op=op, args=args):
            return _applied(op, [reach(a, values, spans) for a in args])
        case _:
            return EVERY


def _applied(op: str, parts: list[Reach]) -> Reach:
    if op == "where":
        (a, b), (c, d) = parts[1:]
        return min(a, c), max(b, d)
    if op in _MONOTONE or op in CASTS:
        a, b = parts[0]
        f = _MONOTONE.get(op)
        return (a, b) if f is None else (f(a), f(b))
    if len(parts) == 1:
        (a, b) = parts[0]
        if op == "neg":
            return -b, -a
        if op == "abs":
            return (0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
        return EVERY
    if len(parts) == 2:
        return _two(op, *parts)
    return EVERY


def _whole(f: Callable[[float], float]) -> Callable[[float], float]:
    return lambda v: v if math.isinf(v) else f(v)


_MONOTONE: dict[str, Callable[[float], float]] = {
    "floor": _whole(math.floor),
    "round": _whole(round),
    "relu": lambda v: max(v, 0),
}


def _two(op: str, x: Reach, y: Reach) -> Reach:
    (a, b), (c, d) = x, y
    match op:
        case "add":
            return a + c, b + d
        case "sub":
            return a - d, b - c
        case "min":
            return min(a, c), min(b, d)
        case "max":
            return max(a, c), max(b, d)
    if op == "mod" and c > 0 and not math.isinf(d):
        whole = all(isinstance(v, int) for v in (a, b, c, d))
        return (a, b) if a >= 0 and b < c else (0, d - 1 if whole else d)
    if any(map(math.isinf, (a, b, c, d))):
        return EVERY
    if op == "mul":
        corners = [p * q for p in x for q in y]
        return min(corners), max(corners)
    if c <= 0 <= d:
        return EVERY
    if op in ("div", "floordiv"):
        corners = [p // q if op == "floordiv" else p / q for p in x for q in y]
        return min(corners), max(corners)
    return EVERY
