"""Closed intervals of extended reals, and what each scalar operator makes of them.

Source. R. E. Moore, Interval Analysis (1966): an operator's interval holds its values on every
choice of arguments from their intervals, so an expression's interval holds its values. Each bound
is rounded outward by a relative 1e-12, far above the error of a float64 operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ioweave.derive.streaming.formats import cast_error, largest_finite
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.operators import CASTS

INF = math.inf
_ROUND = 1e-12  # relative
_TINY = 5e-324  # the least positive float64: what a product or exponential that underflows is at most
_ABSOLUTE = 1e-15  # sigmoid and its kin are computed as differences near 1: their error is absolute
_SILU_LEAST = (-1.2784645427610738, -0.2784645427610739)  # where silu is least, and its value there
_GELU_LEAST = (-0.7517915246935646, -0.1699712074798971)


@dataclass(frozen=True, slots=True)
class Interval:
    """Every finite value lies in ``[lo, hi]``; -inf and inf are bounds that are not known.

    ``masked``: the value may also be exactly -inf, outside ``[lo, hi]``. ``infinite``: it may be
    exactly inf; then ``hi`` is inf too. ``lo = hi = -inf`` says that it is nothing but -inf.
    """

    lo: float
    hi: float
    masked: bool = False
    infinite: bool = False

    def meet(self, other: Interval) -> Interval:
        """What is in both; both are proved, so they overlap but for rounding."""
        lo, hi = max(self.lo, other.lo), min(self.hi, other.hi)
        if lo > hi:
            lo, hi = hi, lo
        infinite = self.infinite and other.infinite
        return Interval(lo, INF if infinite else hi, self.masked and other.masked, infinite)

    def join(self, other: Interval) -> Interval:
        """The least interval around both."""
        masked, infinite = self.masked or other.masked, self.infinite or other.infinite
        if self.empty or other.empty:
            kept = other if self.empty else self
            return Interval(kept.lo, INF if infinite else kept.hi, masked, infinite)
        return Interval(min(self.lo, other.lo), max(self.hi, other.hi), masked, infinite)

    @property
    def empty(self) -> bool:
        """Whether no finite value is possible."""
        return self.hi == -INF

    @property
    def bounded(self) -> bool:
        """Whether both bounds are known."""
        return self.lo > -INF and self.hi < INF

    @property
    def magnitude(self) -> float:
        """The largest absolute value of a finite value."""
        return max(abs(self.lo), abs(self.hi))


ALL = Interval(-INF, INF)
ANY = Interval(-INF, INF, True, True)
MASK = Interval(-INF, -INF, True)
UNIT = Interval(0.0, 1.0)
POSITIVE = Interval(0.0, INF)


def point(v: int | float) -> Interval:
    """The interval of one number."""
    try:
        f = float(v)
    except OverflowError:
        return Interval(-INF, INF)
    if f == -INF:
        return MASK
    if f == INF:
        return Interval(INF, INF, infinite=True)
    return ALL if f != f else Interval(f, f)


def outward(lo: float, hi: float, masked: bool = False, infinite: bool = False) -> Interval:
    """The interval rounded outward; bounds that are not numbers are not known."""
    lo = lo - abs(lo) * _ROUND - (_TINY if 0 < abs(lo) < 1e-290 else 0.0) if abs(lo) < INF else lo
    hi = hi + abs(hi) * _ROUND + (_TINY if 0 < abs(hi) < 1e-290 else 0.0) if abs(hi) < INF else hi
    lo = -INF if lo != lo or lo == INF else lo
    return Interval(lo, INF if hi != hi or hi == -INF or infinite else hi, masked, infinite)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _underflow(v: float, exact: bool, up: bool) -> float:
    """A product that is 0 although no factor is lies above or below 0 by less than the least float."""
    return v if exact or v != 0 else (_TINY if up else -_TINY)


def add(a: Interval, b: Interval) -> Interval:
    """``a + b``."""
    if a.empty or b.empty:
        return MASK
    return outward(a.lo + b.lo, a.hi + b.hi, a.masked or b.masked, a.infinite or b.infinite)


def neg(a: Interval) -> Interval:
    """``-a``."""
    if a.empty:
        return Interval(INF, INF, infinite=True)
    if a.lo == INF:
        return MASK
    return Interval(-a.hi, INF if a.masked else -a.lo, a.infinite, a.masked)


def sub(a: Interval, b: Interval) -> Interval:
    """``a - b``; also what `masked_sub` makes of it."""
    if a.empty:
        return MASK
    return add(a, neg(b))


def mul(a: Interval, b: Interval) -> Interval:
    """``a * b``; 0 times an unknown bound is 0, for values are finite."""
    if a.empty or b.empty or a.lo == INF or b.lo == INF:
        return ANY
    corners = [_times(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    exact = 0.0 in (a.lo, a.hi, b.lo, b.hi)
    lo, hi = min(corners), max(corners)
    if not exact:
        lo, hi = _underflow(lo, lo > 0 or hi != 0, False), _underflow(hi, hi < 0 or lo != 0, True)
        if lo == -_TINY and all(x >= 0 for x in (a.lo, b.lo)):
            lo = 0.0
    elif hi == 0 and max(a.hi, b.hi) > 0 and min(a.lo, b.lo) >= 0 and a.hi > 0 and b.hi > 0:
        hi = _TINY
    up, down = _infinite_products(a, b)
    return outward(lo, hi, down, up)


def _infinite_products(a: Interval, b: Interval) -> tuple[bool, bool]:
    """Whether a product may be exactly inf, and exactly -inf."""
    up = down = False
    for x, y in ((a, b), (b, a)):
        above, below = y.hi > 0 or y.infinite, y.lo < 0 or y.masked
        up |= (x.infinite and above) or (x.masked and below)
        down |= (x.masked and above) or (x.infinite and below)
    return up, down


def inverse(b: Interval) -> Interval:
    """``1 / b`` where ``b`` is not 0."""
    zero = b.masked or b.infinite
    if b.empty or b.lo == INF:
        return point(0)
    if b.lo < 0 < b.hi or (b.lo == b.hi == 0):
        return ALL
    lo = -INF if b.hi == 0 else 1 / b.hi if abs(b.hi) > 1e-308 else ALL.lo if b.hi < 0 else 0.0
    hi = INF if b.lo == 0 else 1 / b.lo if abs(b.lo) > 1e-308 else INF
    result = outward(lo, hi)
    return result.join(point(0)) if zero else result


def div(a: Interval, b: Interval) -> Interval:
    """``a / b`` where ``b`` is not 0."""
    return mul(a, inverse(b))


def masked_div(a: Interval, b: Interval) -> Interval:
    """``a / b``, 0 where ``a`` is 0."""
    result = div(a, b)
    return result.join(point(0)) if a.lo <= 0 <= a.hi else result


def integer_power(a: Interval, n: int) -> Interval:
    """``a**n``; even powers are never negative."""
    if n < 0:
        return inverse(integer_power(a, -n))
    if n == 0:
        return point(1)
    if n == 1:
        return a
    even = n % 2 == 0
    if a.empty or a.lo == INF:
        return Interval(INF, INF, infinite=True) if even or a.lo == INF else MASK
    ends = [_power(a.lo, n), _power(a.hi, n)]
    up = a.infinite or (even and a.masked)
    if not even:
        return outward(ends[0], ends[1], a.masked, up)
    lo = 0.0 if a.lo <= 0 <= a.hi else min(ends)
    return outward(max(lo, 0.0), max(ends) or (_TINY if a.magnitude else 0.0), False, up)


def _power(x: float, n: float) -> float:
    try:
        return float(x**n)
    except OverflowError:
        return -INF if x < 0 and n % 2 == 1 else INF
    except ZeroDivisionError:
        return INF


def power(a: Interval, b: Interval) -> Interval:
    """``a**b``."""
    if b.masked or b.infinite:
        return ANY
    if b.lo == b.hi and b.lo == math.floor(b.lo) and abs(b.lo) <= 1024:
        return integer_power(a, int(b.lo))
    if a.masked or a.infinite:
        return ANY
    if b.lo != b.hi and a.lo < 0:
        return ALL  # an integer power of a negative value may have either sign
    low = max(a.lo, 0.0)  # the root of a negative value is no number
    if a.hi < low:
        return ALL
    corners = [_power(x, y) for x in (low, a.hi) for y in (b.lo, b.hi)]
    if any(c != c for c in corners) or (b.lo != b.hi and a.hi == INF):
        return POSITIVE
    return outward(max(min(corners), 0.0), max(corners) or _TINY)


def fraction_power(a: Interval, p: float) -> Interval:
    """``a**p`` for one number p."""
    return power(a, point(p))


def _monotone(f: Callable[[float], float], least: float, most: float) -> Callable[[Interval], Interval]:
    """An increasing function with limits ``least`` and ``most``, within an absolute error."""

    def apply(a: Interval) -> Interval:
        lo = least if a.masked or a.lo == -INF else f(a.lo)
        hi = most if a.infinite or a.hi == INF else least if a.empty else f(a.hi)
        return Interval(max(least, lo - _ABSOLUTE - abs(lo) * _ROUND), min(most, hi + _ABSOLUTE + abs(hi) * _ROUND))

    return apply


def _exponential(base: Callable[[float], float]) -> Callable[[Interval], Interval]:
    def at(x: float) -> float:
        try:
            return base(x)
        except OverflowError:
            return INF

    def apply(a: Interval) -> Interval:
        if a.empty:
            return point(0)
        result = outward(at(a.lo), at(a.hi) or _TINY, False, a.infinite)
        return Interval(0.0, result.hi, False, a.infinite) if a.masked else result

    return apply


def _logarithm(f: Callable[[float], float]) -> Callable[[Interval], Interval]:
    def apply(a: Interval) -> Interval:
        if a.hi < 0:
            return ALL
        zero = a.lo <= 0
        lo = -INF if zero else f(a.lo) if a.lo < INF else INF
        hi = INF if a.hi == INF else -INF if a.hi == 0 else f(a.hi)
        return MASK if hi == -INF else outward(lo, hi, zero, a.infinite)

    return apply


def _sqrt(a: Interval) -> Interval:
    if a.hi < 0:
        return ALL
    return outward(math.sqrt(max(a.lo, 0.0)), math.sqrt(a.hi), False, a.infinite)


def _valley(f: Callable[[float], float], least: tuple[float, float]) -> Callable[[Interval], Interval]:
    """A function that falls from 0 at -inf to ``least``, then rises."""

    def apply(a: Interval) -> Interval:
        if a.empty:
            return point(0)
        at, bottom = least
        ends = [0.0 if x == -INF else f(x) for x in (a.lo, a.hi)]
        if a.masked:
            ends.append(0.0)
        lo = bottom if a.lo <= at <= a.hi or (a.masked and a.hi >= at) else min(ends)
        scale = _ABSOLUTE * max(1.0, min(a.magnitude, 1e3))
        result = outward(lo - scale, max(ends) + scale, False, a.infinite)
        return Interval(max(result.lo, bottom - scale), result.hi, False, a.infinite)

    return apply


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x)) if x > -700 else 0.0


def _gelu(x: float) -> float:
    return x if x == INF else 0.5 * x * math.erfc(-x / math.sqrt(2))


def _wave(phase: float) -> Callable[[Interval], Interval]:
    """``sin(a + phase)``."""

    def apply(a: Interval) -> Interval:
        if not a.bounded or a.hi - a.lo >= 2 * math.pi or a.magnitude > 1e6:
            return Interval(-1.0, 1.0)
        lo, hi = a.lo + phase - 1e-9, a.hi + phase + 1e-9
        ends = [math.sin(lo), math.sin(hi)]
        top = math.floor((hi - math.pi / 2) / (2 * math.pi)) >= math.ceil((lo - math.pi / 2) / (2 * math.pi))
        bottom = math.floor((hi + math.pi / 2) / (2 * math.pi)) >= math.ceil((lo + math.pi / 2) / (2 * math.pi))
        return Interval(-1.0 if bottom else max(-1.0, min(ends) - 1e-12), 1.0 if top else min(1.0, max(ends) + 1e-12))

    return apply


def _stepwise(f: Callable[[float], float]) -> Callable[[Interval], Interval]:
    def apply(a: Interval) -> Interval:
        lo, hi = (x if abs(x) in (0.0, INF) or abs(x) > 2**53 else float(f(x)) for x in (a.lo, a.hi))
        return Interval(lo, hi, a.masked, a.infinite)

    return apply


def absolute(a: Interval) -> Interval:
    """``abs(a)``."""
    up = a.masked or a.infinite
    if a.empty or a.lo == INF:
        return Interval(INF, INF, infinite=True)
    lo = 0.0 if a.lo <= 0 <= a.hi else min(abs(a.lo), abs(a.hi))
    return Interval(lo, INF if up else a.magnitude, False, up)


def largest(a: Interval, b: Interval) -> Interval:
    """``max(a, b)``."""
    if a.empty or b.empty:
        return b if a.empty else a
    masked = a.masked and b.masked
    lo = min(max(a.lo, b.lo), *([b.lo] if a.masked else []), *([a.lo] if b.masked else []), INF)
    return Interval(lo, max(a.hi, b.hi), masked, a.infinite or b.infinite)


def smallest(a: Interval, b: Interval) -> Interval:
    """``min(a, b)``."""
    if a.empty or b.empty:
        return MASK
    masked = a.masked or b.masked
    hi = min(a.hi, b.hi)
    return Interval(min(a.lo, b.lo), hi, masked, a.infinite and b.infinite)


def modulo(a: Interval, b: Interval) -> Interval:
    """``a % b``, of the sign of ``b``."""
    if b.masked or b.infinite or a.masked or a.infinite:
        return ANY
    if a.lo >= 0 and a.hi < b.lo:
        return a
    return Interval(min(b.lo, 0.0), max(b.hi, 0.0))


def _less(a: Interval, b: Interval, strict: bool) -> Interval:
    """``a < b`` or ``a <= b``, decided where the intervals decide it."""
    if a.masked or a.infinite or b.masked or b.infinite:
        return UNIT
    if a.hi < b.lo or (a.hi == b.lo and not strict):
        return point(1)
    return point(0) if a.lo > b.hi or (a.lo == b.hi and strict) else UNIT


def _equal(a: Interval, b: Interval) -> Interval:
    if a.masked or a.infinite or b.masked or b.infinite:
        return UNIT
    if a.lo == a.hi == b.lo == b.hi:
        return point(1)
    return point(0) if a.hi < b.lo or b.hi < a.lo else UNIT


def _opposite(a: Interval) -> Interval:
    if a.lo == a.hi == 0 and not (a.masked or a.infinite):
        return point(1)
    return point(0) if a.lo > 0 or (a.hi < 0 and not a.empty) else UNIT


def _truth(a: Interval) -> Interval:
    return _opposite(_opposite(a))


def choose(condition: Interval, a: Interval, b: Interval) -> Interval:
    """``where(condition, a, b)``."""
    truth = _truth(condition)
    return a.join(b) if truth == UNIT else (a if truth.lo else b)


def _both(a: Interval, b: Interval) -> Interval:
    return smallest(_truth(a), _truth(b))


def _either(a: Interval, b: Interval) -> Interval:
    return largest(_truth(a), _truth(b))


def cast(a: Interval, dtype: str) -> Interval:
    """The value as it is or rounded to a type, and unknown where it leaves the type's range."""
    if a.empty or a.lo == INF:
        return a
    if DTYPES[dtype].kind == "bool":
        return a.join(UNIT)
    u, t = cast_error(dtype)
    top = largest_finite(dtype)
    lo, hi = a.lo - abs(a.lo) * u - t, a.hi + abs(a.hi) * u + t
    if a.lo >= 0:
        lo = max(lo, 0.0)  # rounding keeps the sign
    if a.hi <= 0:
        hi = min(hi, 0.0)
    fits = a.lo >= -top and a.hi <= top
    if DTYPES[dtype].kind == "int" and not fits:
        return ANY  # it may wrap
    return outward(lo if a.lo >= -top else -INF, hi if a.hi <= top else INF, a.masked, a.infinite)


UNARY: dict[str, Callable[[Interval], Interval]] = {
    "neg": neg,
    "abs": absolute,
    "relu": lambda a: largest(a, point(0)),
    "exp": _exponential(math.exp),
    "exp2": _exponential(lambda x: 0.0 if x == -INF else 2.0**x),
    "log": _logarithm(math.log),
    "log2": _logarithm(math.log2),
    "sqrt": _sqrt,
    "rsqrt": lambda a: inverse(_sqrt(a)),
    "tanh": _monotone(math.tanh, -1.0, 1.0),
    "erf": _monotone(math.erf, -1.0, 1.0),
    "sigmoid": _monotone(lambda x: 0.5 * (1 + math.tanh(0.5 * x)), 0.0, 1.0),
    "silu": _valley(_silu, _SILU_LEAST),
    "gelu": _valley(_gelu, _GELU_LEAST),
    "sin": _wave(0.0),
    "cos": _wave(math.pi / 2),
    "floor": _stepwise(math.floor),
    "round": _stepwise(round),
    "not": _opposite,
}
BINARY: dict[str, Callable[[Interval, Interval], Interval]] = {
    "add": add,
    "sub": sub,
    "masked_sub": sub,
    "mul": mul,
    "div": div,
    "masked_div": masked_div,
    "pow": power,
    "mod": modulo,
    "floordiv": lambda a, b: UNARY["floor"](div(a, b)),
    "min": smallest,
    "max": largest,
    "lt": lambda a, b: _less(a, b, True),
    "le": lambda a, b: _less(a, b, False),
    "gt": lambda a, b: _less(b, a, True),
    "ge": lambda a, b: _less(b, a, False),
    "eq": _equal,
    "ne": lambda a, b: _opposite(_equal(a, b)),
    "and": _both,
    "or": _either,
}


def operate(op: str, args: tuple[Interval, ...]) -> Interval:
    """The interval of a scalar operator's values on intervals."""
    if op in CASTS:
        return cast(args[0], op)
    if op == "where":
        return choose(*args)
    if op == "keep":
        return UNIT
    return UNARY[op](args[0]) if len(args) == 1 else BINARY[op](*args)
