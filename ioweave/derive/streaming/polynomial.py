"""Polynomials near analytic functions of one variable, with proved errors.

Statement. With ``f(t) = t**m g(t)`` (``m`` is 0 unless the interval starts at 0, where ``f`` may vanish),
`Target.error` bounds ``|f - p| / scale`` on the whole interval: the scale is ``|f|`` where ``g`` keeps
its sign, else ``t**m max |g|``. The polynomial is what its coefficients, numbers of float64, say.
Source. Interpolation at the zeros of a Chebyshev polynomial (Trefethen, Approximation Theory and
Approximation Practice, 2013, chapter 16). The bound is that of a Taylor model on each piece of the
interval (Moore 1966; Berz and Makino 1998): series with remainder, less the polynomial written
about the middle of the piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import comb
from typing import Any

from mpmath import iv, mp

from ioweave.derive.streaming.series import (
    PRECISION,
    NotAnalytic,
    Series,
    coefficients,
    high,
    interval,
    low,
    size,
    vanishes,
    with_precision,
)
from ioweave.diagrams.expressions import Expr

MOST_MOMENTS = 24  # powers of one weight
_ORDERS = (16, 32)  # of Taylor models, each above the degrees it serves by 4
_PIECES = 16  # of the interval, at first
_MOST_PIECES = 512
_SAMPLES = 16  # of a piece
_PROBES = 64  # of the interval, where a degree is guessed
_MOST_ZERO = 8  # orders of a zero that are taken out


@dataclass(frozen=True, slots=True)
class Piece:
    """A Taylor model: ``f`` is its series about ``middle`` up to ``remainder``, within ``radius`` of it."""

    middle: Any
    radius: Any
    series: tuple[Any, ...]
    remainder: Any


@dataclass(frozen=True, slots=True)
class Fitted:
    """A polynomial of these coefficients, lowest first, with proved bounds of its error.

    ``positive`` says that f is never negative. ``error`` is relative to ``|f|`` where ``relative``, else to
    ``scale * t**zeros``; ``gap`` bounds ``|f - p|``.
    """

    coefficients: tuple[float, ...]
    error: float
    gap: float
    relative: bool
    positive: bool
    scale: float
    zeros: int

    @property
    def degree(self) -> int:
        """The highest power."""
        return len(self.coefficients) - 1


class Target:
    """The function ``f``, an expression of `series.VARIABLE`, on an interval.

    Raises `NotAnalytic` where it is not proved analytic there.
    """

    def __init__(self, f: Expr, lowest: float, highest: float) -> None:
        with_precision()
        self.f = f
        self.lowest, self.highest = lowest, highest
        self.zeros = self._zeros()
        self._models: dict[int, tuple[Piece, ...]] = {}

    def _zeros(self) -> int:
        coefficients(self.f, interval(self.lowest, self.highest), 0)  # where a kink or a pole is, it raises
        if self.lowest != 0:
            return 0
        about = coefficients(self.f, interval(0), _MOST_ZERO)
        return next((k for k, c in enumerate(about) if not vanishes(c)), 0)

    def fit(self, degree: int) -> tuple[float, ...]:
        """The coefficients of the polynomial through ``f`` at Chebyshev points, of a degree of at least `zeros`."""
        with_precision()
        a, b = mp.mpf(self.lowest), mp.mpf(self.highest)
        n = degree - self.zeros + 1
        points = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
        divided = [self._at(t) / t**self.zeros for t in points]
        for level in range(1, n):
            for k in range(n - 1, level - 1, -1):
                divided[k] = (divided[k] - divided[k - 1]) / (points[k] - points[k - level])
        power = [mp.mpf(0)] * n
        for k in range(n - 1, -1, -1):
            moved = [mp.mpf(0), *power[:-1]]
            power = [m - points[k] * p for m, p in zip(moved, power, strict=True)]
            power[0] += divided[k]
        return (*(0.0,) * self.zeros, *(float(c) for c in power))

    def _at(self, t: Any) -> Any:
        return mp.mpf(coefficients(self.f, interval(t), 0)[0].mid)

    @cached_property
    def _probes(self) -> tuple[tuple[Any, Any], ...]:
        a, b = mp.mpf(self.lowest), mp.mpf(self.highest)
        points = [a + (b - a) * (1 - mp.cos(mp.pi * (k + 1) / (_PROBES + 1))) / 2 for k in range(_PROBES)]
        return tuple((t, self._at(t)) for t in points)

    def guess(self, polynomial: tuple[float, ...]) -> float:
        """About the error of a polynomial, from some points: no bound, but nearly a lower one."""
        values = [(abs(f - mp.polyval(list(reversed(polynomial)), t)), abs(f), t**self.zeros) for t, f in self._probes]
        if self._keeps_sign:
            return float(max((d / f for d, f, _ in values if f), default=mp.mpf(0)))
        return float(max(d / t for d, _, t in values) / self._scale)

    @cached_property
    def _scale(self) -> float:
        """A bound of ``|g|``."""
        return float(max(size(_range(p, self._over(p))) for p in self._pieces(_ORDERS[0]))) * (1 + 1e-12)

    @cached_property
    def _keeps_sign(self) -> int:
        """The sign of g where it keeps one, else 0."""
        ranges = [_range(p, self._over(p)) for p in self._pieces(_ORDERS[0])]
        if all(low(r) > 0 for r in ranges):
            return 1
        return -1 if all(high(r) < 0 for r in ranges) else 0

    @property
    def _positive(self) -> bool:
        return self._keeps_sign > 0 and (self.zeros == 0 or self.lowest >= 0)

    def _over(self, p: Piece) -> int:
        """The power of the variable that the series of a piece about 0 is divided by."""
        return self.zeros if p.middle == 0 else 0

    def blank(self) -> Fitted:
        """What is known of every polynomial near the function, with an error of 0."""
        return Fitted((), 0.0, 0.0, self._keeps_sign != 0, self._positive, self._scale, self.zeros)

    def prove(self, polynomial: tuple[float, ...]) -> Fitted:
        """The polynomial with its bound."""
        with_precision()
        exact = [iv.mpf(c) for c in polynomial]
        worst = gap_most = mp.mpf(0)
        for p in self._pieces(next(n for n in _ORDERS if n >= len(polynomial) + 4)):
            about = _moved(exact, p.middle, len(p.series))
            over = self._over(p)
            gap = Piece(p.middle, p.radius, tuple(s - q for s, q in zip(p.series, about, strict=True)), p.remainder)
            most, whole = _largest(gap, over, self.zeros)
            gap_most = max(gap_most, whole)
            scale = self._least(p) if self._keeps_sign else mp.mpf(self._scale)
            worst = max(worst, most / scale)
        return Fitted(
            polynomial, _up(worst), _up(gap_most), self._keeps_sign != 0, self._positive, self._scale, self.zeros
        )

    def _least(self, p: Piece) -> Any:
        """The least ``|g|`` on a piece."""
        r = _range(p, self._over(p))
        if self._over(p) or not self.zeros:
            return min(abs(low(r)), abs(high(r)))
        return min(abs(low(r)), abs(high(r))) / (p.middle + p.radius) ** self.zeros

    def _pieces(self, order: int) -> tuple[Piece, ...]:
        if order not in self._models:
            self._models[order] = tuple(self._model(order))
        return self._models[order]

    def _model(self, order: int) -> list[Piece]:
        a, b = mp.mpf(self.lowest), mp.mpf(self.highest)
        ends = [a + (b - a) * k / _PIECES for k in range(_PIECES + 1)]
        todo = list(reversed(list(pairwise(ends))))
        found: list[Piece] = []
        while todo:
            lo, hi = todo.pop()
            at_zero = self.zeros > 0 and lo == 0
            middle = mp.mpf(0) if at_zero else (lo + hi) / 2
            radius = hi - middle
            try:
                piece = self._piece(middle, radius, lo, hi, order)
            except NotAnalytic:
                piece = None
            tiny = mp.mpf(10) ** -18
            if piece is None or piece.remainder * radius ** (order - self._over(piece)) > tiny:
                if len(found) + len(todo) > _MOST_PIECES:
                    raise NotAnalytic("its Taylor series has no bound that is small enough")
                todo += [((lo + hi) / 2, hi), (lo, (lo + hi) / 2)]
            else:
                found.append(piece)
        return found

    def _piece(self, middle: Any, radius: Any, lo: Any, hi: Any, order: int) -> Piece:
        series: Series = coefficients(self.f, interval(middle), order - 1)
        rest = coefficients(self.f, interval(lo, hi), order)[order]
        return Piece(middle, radius, tuple(series), size(rest))


def _moved(polynomial: Series, middle: Any, length: int) -> Series:
    """The coefficients of a polynomial about another point, padded with zeros."""
    c = interval(middle)
    powers = [iv.mpf(1)]
    for _ in polynomial:
        powers.append(powers[-1] * c)
    out: Series = [iv.mpf(0)] * length
    for j, a in enumerate(polynomial):
        for k in range(j + 1):
            out[k] = out[k] + a * comb(j, k) * powers[j - k]
    return out


def _range(p: Piece, over: int) -> Any:
    """The interval of a model's values, divided by the variable to the power ``over`` about 0."""
    offset = interval(0, p.radius) if over else interval(-p.radius, p.radius)
    total = iv.mpf(0)
    for c in reversed(p.series[over:]):
        total = total * offset + c
    rest = p.remainder * p.radius ** (len(p.series) - over)
    return total + interval(-rest, rest)


def _largest(p: Piece, over: int, zeros: int) -> tuple[Any, Any]:
    """Bounds of ``|d(t)| / t**zeros`` and ``|d(t)|`` for a model of d: at samples, and by its curvature between them.

    The series is divided by ``t**over`` first.
    """
    series = p.series[over:]
    start = mp.mpf(0) if over else -p.radius
    step = (p.radius - start) / _SAMPLES
    values = []
    for k in range(_SAMPLES + 1):
        t = interval(start + k * step)
        total = iv.mpf(0)
        for c in reversed(series):
            total = total * t + c
        values.append(size(total))
    bend = sum((k * (k - 1) * size(c) * p.radius ** (k - 2) for k, c in enumerate(series) if k > 1), mp.mpf(0))
    slack = bend * step**2 / 8 + p.remainder * p.radius ** len(series)
    up = 1 + mp.mpf(2) ** (16 - PRECISION)
    scaled = whole = mp.mpf(0)
    for k in range(_SAMPLES):
        cell = (max(values[k], values[k + 1]) + slack) * up
        ends = [abs(p.middle + start + (k + n) * step) for n in (0, 1)]
        scaled = max(scaled, cell / ends[0] ** zeros if zeros and not over else cell)
        whole = max(whole, cell * ends[1] ** over)
    return scaled, whole


def _up(x: Any) -> float:
    """A float that is not below a number."""
    return float(x) * (1 + 2.0**-50) + 5e-324
