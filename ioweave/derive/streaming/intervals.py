"""Proved bounds of expressions and arrays, for every index and every finite input that its facts allow.

Statement. `Intervals.of(e)` holds the value of ``e``, over the reals, wherever it is defined (no
division by 0, no root of a negative value, no ``inf - inf``). A cast may round or not.
Source. Interval arithmetic (`ioweave.derive.streaming.ranges`) on each operator, met with what
the shape of an expression proves (`ioweave.derive.streaming.norms`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ioweave.derive.streaming.formats import largest_finite, smallest_positive
from ioweave.derive.streaming.norms import ARITHMETIC, Structure
from ioweave.derive.streaming.ranges import (
    ALL,
    ANY,
    INF,
    POSITIVE,
    UNIT,
    Interval,
    integer_power,
    mul,
    operate,
    outward,
    point,
)
from ioweave.diagrams.boxes import Box, base_name, source
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Reduce, Size
from ioweave.diagrams.lists import payload

__all__ = ["Interval", "Intervals", "fits", "fits_above"]


class Intervals:
    """Bounds by name and by expression; each is worked out once.

    ``values`` gives numbers to sizes and constants: a size that it lacks is at least 1, a constant
    that it lacks is any number. ``boxes`` must not change while the object is used.
    """

    def __init__(
        self,
        boxes: Mapping[str, Box],
        facts: Mapping[str, tuple[str, float]],
        values: Mapping[str, int | float],
    ) -> None:
        self._boxes = boxes
        self._facts = facts
        self._values = values
        self._arrays: dict[str, Interval] = {}
        self._known: dict[Expr, Interval] = {}
        self._busy: set[Expr] = set()
        self._structure = Structure(boxes, self.of, self.array, self._size)

    def of(self, e: Expr) -> Interval:
        """The interval of an expression's values."""
        known = self._known.get(e)
        if known is None:
            known = self._bound(e)
            if e not in self._busy:
                self._known[e] = known
        return known

    def array(self, name: str) -> Interval:
        """The interval of an array's elements; of a running form, of its value at any step."""
        if name not in self._arrays:
            self._arrays[name] = ANY  # a box of a plan may read its own running value
            self._arrays[name] = self._element(name)
        return self._arrays[name]

    def _element(self, name: str) -> Interval:
        box = self._boxes.get(source(name))
        if box is None or box.scan is not None:
            return _fact(self._facts.get(source(name)))
        if box.rescale is not None or box.recentre is not None:
            return ANY
        whole = self._box(box)
        if source(name) == name or box.reduction is None:
            return whole
        partial = {"sum": point(0), "prod": point(1), "max": point(-INF), "min": point(INF)}
        if box.reduction == "prod" and whole.lo < 0:
            return ANY
        return self._partial(box, whole).join(partial.get(box.reduction, UNIT))

    def _partial(self, box: Box, whole: Interval) -> Interval:
        """What a reduction may be after some of its terms."""
        if box.reduction in ("sum", "prod"):
            body, n = self.of(box.body), self._count(box.over)
            few = Interval(1.0, n.hi)
            return repeated_sum(body, few) if box.reduction == "sum" else repeated_product(body, few)
        return whole

    def _box(self, box: Box) -> Interval:
        body = self.of(box.body)
        n = self._count(box.over)
        match box.reduction:
            case "sum":
                return self._structure.total(box, repeated_sum(body, n))
            case "prod":
                return repeated_product(body, n)
            case "any" | "all":
                return UNIT
            case "topk":
                return body.join(point(-INF))  # of a slot that no term has filled
            case "argtopk":
                return Interval(0.0, n.hi)
            case "pick":
                return self.of(payload(box)).join(point(0))
            case _:
                return body

    def _size(self, axis: str) -> Interval:
        for name in (axis, base_name(axis)):
            if name in self._values:
                return point(self._values[name])
        return Interval(1.0, INF)

    def _count(self, axes: tuple[str, ...]) -> Interval:
        total = point(1)
        for a in axes:
            n = self._size(a)
            total = Interval(total.lo * n.lo, total.hi * n.hi)
        return total

    def _bound(self, e: Expr) -> Interval:
        match e:
            case Number(value=v):
                return point(v)
            case Constant(name=n):
                return point(self._values[n]) if n in self._values else ALL
            case Index(axis=a):
                return Interval(0.0, max(self._size(a).hi - 1, 0.0))
            case Size(axis=a):
                return self._size(a)
            case Read(array=name):
                return self.array(name)
            case Reduce(op="sum", axes=axes, body=body):
                return repeated_sum(self.of(body), self._count(axes))
            case Apply(op=op, args=args):
                if op == "mul" and args[0] == args[1]:
                    plain = integer_power(self.of(args[0]), 2)
                else:
                    plain = operate(op, tuple(self.of(a) for a in args))
                if op not in ARITHMETIC or e in self._busy:
                    return plain
                self._busy.add(e)
                try:
                    return self._structure.sharpen(e, plain)
                finally:
                    self._busy.discard(e)
            case _:
                return ANY


def repeated_sum(body: Interval, n: Interval) -> Interval:
    """The sum of ``n`` values of an interval."""
    if body.empty:
        return body
    result = mul(Interval(body.lo, body.hi), n)
    return outward(result.lo, result.hi, body.masked, body.infinite)


def repeated_product(body: Interval, n: Interval) -> Interval:
    """The product of ``n`` values of an interval."""
    if body.masked or body.infinite:
        return ANY
    if body.lo >= 0:
        lo, hi = (_repeat(x, n, up) for x, up in ((body.lo, False), (body.hi, True)))
        return outward(lo, hi)
    most = _repeat(body.magnitude, n, True)
    return outward(-most, most)


def _repeat(x: float, n: Interval, up: bool) -> float:
    """``x**n`` for x >= 0, its most or least over the values of ``n``."""
    times = n.hi if (x > 1) == up else n.lo
    if times == INF:
        return INF if x > 1 else 0.0 if x < 1 else 1.0
    p = integer_power(point(x), int(times)) if x < INF else POSITIVE
    return p.hi if up else p.lo


def _fact(fact: tuple[str, float] | None) -> Interval:
    """A declared fact as a closed interval."""
    if fact is None:
        return ALL
    relation, bound = fact
    return {
        ">": Interval(bound, INF),
        ">=": Interval(bound, INF),
        "<": Interval(-INF, bound),
        "<=": Interval(-INF, bound),
        "==": Interval(bound, bound),
    }.get(relation, ALL)


def fits_above(interval: Interval, dtype: str, terms: float = 1) -> bool:
    """Whether ``terms`` exponentials of values of the interval add up within the range of a type."""
    if interval.empty:
        return True
    if interval.infinite or interval.hi == INF:
        return False
    return interval.hi + math.log(max(terms, 1e-300)) <= math.log(largest_finite(dtype)) * (1 - 1e-12)


def fits(interval: Interval, dtype: str, terms: float = 1) -> bool:
    """`fits_above`, and no exponential of a value that is not masked falls below the type's least positive value."""
    least = math.log(smallest_positive(dtype))
    return fits_above(interval, dtype, terms) and (interval.empty or interval.lo >= least + abs(least) * 1e-12)
