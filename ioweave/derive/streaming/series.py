"""Taylor coefficients of a function of one variable, as intervals that hold them.

Statement. `coefficients(f, x, n)` holds ``f^(k)(t) / k!`` for k = 0 .. n and every t of the interval
``x``, where ``f`` is analytic on it; it raises `NotAnalytic` where that is not proved.
Source. Moore, Interval Analysis (1966), chapter 11: recurrences of the coefficients of a composition.
Numbers are intervals of `PRECISION` bits, rounded outward by mpmath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpmath import iv, mp

from ioweave.diagrams.expressions import Apply, Expr, Number, Read
from ioweave.diagrams.operators import CASTS, COMPARISONS

PRECISION = 160  # bits
VARIABLE = Read("~variable")
Series = list[Any]  # intervals, lowest order first; a coefficient known to be 0 is the integer


class NotAnalytic(Exception):
    """A function is not analytic where it is asked for; the message says which operator stands in the way."""


def interval(low: Any, high: Any | None = None) -> Any:
    """The interval between two numbers, exact for floats, integers and numbers of mpmath."""
    with_precision()
    return iv.mpf([low, low if high is None else high])


def with_precision() -> None:
    """Set the working precision of the intervals."""
    iv.prec = PRECISION
    mp.prec = PRECISION


def low(x: Any) -> Any:
    """The lower end of an interval."""
    return mp.mpf(iv.convert(x).a)


def high(x: Any) -> Any:
    """The upper end of an interval."""
    return mp.mpf(iv.convert(x).b)


def size(x: Any) -> Any:
    """The largest absolute value in an interval."""
    return max(abs(low(x)), abs(high(x)))


def coefficients(f: Expr, x: Any, order: int) -> Series:
    """The coefficients 0 .. ``order`` of ``f``, an expression of `VARIABLE` and numbers, on the interval ``x``."""
    with_precision()
    return _Expansion(x, order).of(f)


def vanishes(s: Any) -> bool:
    """Whether a coefficient is exactly zero."""
    return isinstance(s, int) or bool(s.a == 0 and s.b == 0)


class _Expansion:
    """The series of the sub-expressions of one function, each worked out once."""

    def __init__(self, x: Any, order: int) -> None:
        self._x = x
        self._n = order + 1
        self._known: dict[Expr, Series] = {}

    def of(self, e: Expr) -> Series:
        known = self._known.get(e)
        if known is None:
            known = self._known[e] = self._series(e)
        return known

    def _constant(self, value: Any) -> Series:
        return [value, *(0 for _ in range(self._n - 1))]

    def _series(self, e: Expr) -> Series:
        if e == VARIABLE:
            return [self._x, iv.mpf(1), *(0 for _ in range(self._n - 2))][: self._n]
        if isinstance(e, Number):
            return self._constant(iv.mpf(e.value if not isinstance(e.value, bool) else int(e.value)))
        assert isinstance(e, Apply)
        return self._apply(e.op, e.args)

    def _apply(self, op: str, args: tuple[Expr, ...]) -> Series:
        match op:
            case "where":
                return self.of(args[1] if self._decided(args[0], args[1:]) else args[2])
            case "pow":
                return self._power(self.of(args[0]), args[1])
            case "abs" | "relu" | "max" | "min":
                return self._piecewise(op, args)
            case _ if op in _FUNCTIONS:
                return _FUNCTIONS[op](self, *(self.of(a) for a in args))
            case _ if op in CASTS or op in ("round", "floor", "floordiv", "mod"):
                raise NotAnalytic(f"{op} is a step function, which no polynomial comes near")
        raise NotAnalytic(f"{op} is not analytic")

    def _decided(self, condition: Expr, branches: tuple[Expr, ...]) -> bool:
        if isinstance(condition, Apply) and condition.op in COMPARISONS and condition.op not in ("eq", "ne"):
            a, b = (self.of(x)[0] for x in condition.args)
            less, more = (a, b) if condition.op in ("lt", "le") else (b, a)
            strict = condition.op in ("lt", "gt")
            if low(more) > high(less) or (not strict and low(more) >= high(less)):
                return True
            if low(less) > high(more) or (strict and low(less) >= high(more)):
                return False
        raise NotAnalytic("the value jumps or has a kink where its condition changes")

    def _piecewise(self, op: str, args: tuple[Expr, ...]) -> Series:
        first = self.of(args[0])
        other = self.of(args[1]) if len(args) > 1 else self._constant(iv.mpf(0))
        gap = first[0] - other[0]
        if low(gap) < 0 < high(gap):
            raise NotAnalytic(f"{op} has a kink inside the interval")
        upper = low(gap) >= 0
        if op == "abs":
            return first if upper else [-a for a in first]
        return (first if upper else other) if op in ("relu", "max") else (other if upper else first)

    def _power(self, a: Series, exponent: Expr) -> Series:
        p = self.of(exponent)
        if any(not vanishes(c) for c in p[1:]) or p[0].a != p[0].b:
            raise NotAnalytic("the exponent of a power changes with the weight")
        k = low(p[0])
        if k == int(k) and abs(k) <= 64:
            result = self._constant(iv.mpf(1))
            for _ in range(abs(int(k))):
                result = self.multiply(result, a)
            return self.divide(self._constant(iv.mpf(1)), result) if k < 0 else result
        return self.real_power(a, p[0], "pow")

    def multiply(self, a: Series, b: Series) -> Series:
        """The product."""
        return [_dot(a, b, k) for k in range(self._n)]

    def divide(self, a: Series, b: Series) -> Series:
        """The quotient; raises where the divisor may be 0."""
        if low(b[0]) <= 0 <= high(b[0]):
            raise NotAnalytic("a division by a value that may be 0 is not analytic")
        out: Series = []
        for k in range(self._n):
            out.append((a[k] - _dot(b, out, k, 1)) / b[0])
        return out

    def real_power(self, a: Series, p: Any, name: str) -> Series:
        """``a**p`` of a positive ``a``; raises where it may be 0 or less."""
        if low(a[0]) <= 0:
            raise NotAnalytic(f"{name} is not analytic at 0, which its argument may be")
        out: Series = [iv.exp(p * iv.log(a[0]))]
        for k in range(1, self._n):
            total = sum((p * j - (k - j)) * a[j] * out[k - j] for j in range(1, k + 1) if not _zero(a[j]))
            out.append(total / (k * a[0]))
        return out

    def logarithm(self, a: Series) -> Series:
        """The natural logarithm; raises where the argument may be 0 or less."""
        if low(a[0]) <= 0:
            raise NotAnalytic("log is not analytic at 0, which its argument may be")
        out: Series = [iv.log(a[0])]
        for k in range(1, self._n):
            total = sum(j * out[j] * a[k - j] for j in range(1, k) if not _zero(a[k - j]))
            out.append((a[k] - total / iv.mpf(k)) / a[0])
        return out

    def exponential(self, a: Series) -> Series:
        """exp."""
        out: Series = [iv.exp(a[0])]
        for k in range(1, self._n):
            out.append(_weighted(a, out, k))
        return out

    def waves(self, a: Series) -> tuple[Series, Series]:
        """sin and cos."""
        s, c = [iv.sin(a[0])], [iv.cos(a[0])]
        for k in range(1, self._n):
            s_k, c_k = _weighted(a, c, k), -_weighted(a, s, k)
            s.append(s_k)
            c.append(c_k)
        return s, c

    def _solution(self, first: Any, slope: Callable[[Series], Any], a: Series) -> Series:
        """The function of value ``first`` whose derivative by its argument has the coefficients ``slope(y)``.

        ``slope`` gives the coefficient of the order of the last one of ``y``.
        """
        out: Series = [first]
        slopes: Series = []
        for k in range(1, self._n):
            slopes.append(slope(out))
            out.append(_weighted(a, slopes, k))
        return out

    def tanh(self, a: Series) -> Series:
        """tanh, by ``y' = 1 - y**2``."""
        first = 1 - 2 / (iv.exp(2 * a[0]) + 1)
        return self._solution(first, lambda y: (1 if len(y) == 1 else 0) - _dot(y, y, len(y) - 1), a)

    def sigmoid(self, a: Series) -> Series:
        """1 / (1 + exp(-a)), by ``y' = y - y**2``."""
        first = 1 / (1 + iv.exp(-a[0]))
        return self._solution(first, lambda y: y[-1] - _dot(y, y, len(y) - 1), a)

    def erf(self, a: Series) -> Series:
        """erf, by its derivative ``2 / sqrt(pi) exp(-a**2)``."""
        square = [-x for x in self.multiply(a, a)]
        slope = self.scaled(self.exponential(square), 2 / iv.sqrt(iv.pi))
        little = mp.mpf(2) ** (8 - PRECISION)
        ends = [mp.erf(low(a[0])) - little, mp.erf(high(a[0])) + little]
        return self._solution(iv.mpf(ends), lambda y: slope[len(y) - 1], a)

    def scaled(self, a: Series, factor: Any) -> Series:
        """The series times a number."""
        return [x * factor for x in a]

    def gelu(self, a: Series) -> Series:
        """``a / 2 (1 + erf(a / sqrt(2)))``."""
        inner = self.erf(self.scaled(a, 1 / iv.sqrt(iv.mpf(2))))
        return self.scaled(self.multiply(a, [inner[0] + 1, *inner[1:]]), iv.mpf(1) / 2)


def _zero(c: Any) -> bool:
    return isinstance(c, int) and c == 0


def _dot(a: Series, b: Series, k: int, first: int = 0) -> Any:
    """Coefficient k of a product, from the terms whose left order is at least ``first``."""
    return sum(a[j] * b[k - j] for j in range(first, k + 1) if not _zero(a[j]) and not _zero(b[k - j]))


def _weighted(a: Series, y: Series, k: int) -> Any:
    """Coefficient k of a function whose derivative by ``a`` is ``y``."""
    return sum(j * a[j] * y[k - j] for j in range(1, k + 1) if not _zero(a[j]) and not _zero(y[k - j])) / iv.mpf(k)


def _sum(a: Series, b: Series) -> Series:
    return [x + y for x, y in zip(a, b, strict=True)]


def _difference(a: Series, b: Series) -> Series:
    return [x - y for x, y in zip(a, b, strict=True)]


_FUNCTIONS: dict[str, Callable[..., Series]] = {
    "add": lambda s, a, b: _sum(a, b),
    "sub": lambda s, a, b: _difference(a, b),
    "masked_sub": lambda s, a, b: _difference(a, b),
    "neg": lambda s, a: [-x for x in a],
    "mul": lambda s, a, b: s.multiply(a, b),
    "div": lambda s, a, b: s.divide(a, b),
    "masked_div": lambda s, a, b: s.divide(a, b),
    "sqrt": lambda s, a: s.real_power(a, iv.mpf(1) / 2, "sqrt"),
    "rsqrt": lambda s, a: s.real_power(a, -iv.mpf(1) / 2, "rsqrt"),
    "log": lambda s, a: s.logarithm(a),
    "log2": lambda s, a: s.scaled(s.logarithm(a), 1 / iv.log(iv.mpf(2))),
    "exp": lambda s, a: s.exponential(a),
    "exp2": lambda s, a: s.exponential(s.scaled(a, iv.log(iv.mpf(2)))),
    "sin": lambda s, a: s.waves(a)[0],
    "cos": lambda s, a: s.waves(a)[1],
    "tanh": lambda s, a: s.tanh(a),
    "sigmoid": lambda s, a: s.sigmoid(a),
    "silu": lambda s, a: s.multiply(a, s.sigmoid(a)),
    "erf": lambda s, a: s.erf(a),
    "gelu": lambda s, a: s.gelu(a),
}
