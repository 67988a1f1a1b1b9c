"""What the shape of an expression proves of its bounds, where interval arithmetic forgets who is who.

Statements, each over the reals; ``D`` is a reduction, ``L`` one of what it runs over.
A maximum, and a sum of terms that are never negative, is at least each ``L``; a minimum is at most
each. So ``x - max x <= 0``, ``t / sum t`` and ``abs(x) / max abs(x)`` are in [0, 1].
A sum of squares with its cross terms is never negative: ``|2ab| <= a**2 + b**2``.
A sum or a maximum over the same terms may be moved into one: ``sum a - sum b = sum (a - b)``.
Source. Hardy, Littlewood and Polya, Inequalities (1934), 2.4 and 2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from itertools import islice, product

from ioweave.derive.streaming.forms import (
    ONE,
    Form,
    Monomial,
    add,
    is_indicator,
    make_form,
    make_monomial,
    multiply,
    scale,
)
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.ranges import INF, Interval, fraction_power, operate, outward, point
from ioweave.derive.streaming.ranges import add as plus
from ioweave.derive.streaming.ranges import mul as times
from ioweave.derive.streaming.rows import Rows
from ioweave.derive.streaming.unfold import Unfold, bound_axes
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Read, free_axes

ARITHMETIC = frozenset(
    {"add", "sub", "masked_sub", "neg", "mul", "div", "masked_div", "pow", "sqrt", "rsqrt", "exp", "exp2", "log"}
)
_DEPTH = 3  # how many reductions in a row are bounded by what they run over
_WORK = 90  # forms bounded for one expression or sum, what it is made of included
_LONG = 16  # terms of a form that are compared with each other
_MOST = 8  # how many lower bounds of one factor are tried
ZERO = point(0)


class Structure:
    """Bounds from shape; ``of`` and ``array`` give the plain ones, ``size`` those of an axis."""

    def __init__(
        self,
        boxes: Mapping[str, Box],
        of: Callable[[Expr], Interval],
        array: Callable[[str], Interval],
        size: Callable[[str], Interval],
    ) -> None:
        self._boxes = boxes
        self._of = of
        self._array = array
        self._size = size
        self._canonical = Canonical(nonnegative=self._nonnegative)
        self._unfold = Unfold(boxes, of, self._canonical)
        self._rows = Rows(self._unfold, of, self.interval, size)
        self._known: dict[tuple[Form, int], Interval] = {}
        self._terms: dict[tuple[Monomial, int], Interval] = {}
        self._inside = 0
        self._left = _WORK

    def _nonnegative(self, e: Expr) -> bool:
        bound = self._atom(e)
        return bound.lo >= 0 and not bound.masked

    def _atom(self, e: Expr) -> Interval:
        # an atom of a form may be as large as what it came from: only its parts are asked for
        if isinstance(e, Apply):
            return operate(e.op, tuple(self._of(a) for a in e.args))
        return self._of(e)

    def sharpen(self, e: Expr, plain: Interval) -> Interval:
        """The interval of an expression met with what its form proves; the flag of a mask stays."""
        if plain.empty or not self._unfold.tells(e):
            return plain
        with self._budget():
            return self._sharpened(e, plain)

    @contextmanager
    def _budget(self) -> Iterator[None]:
        """One allowance of work for the outermost expression."""
        if self._inside == 0:
            self._left = _WORK
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _sharpened(self, e: Expr, plain: Interval) -> Interval:
        form = self._unfold.form(e)
        proved = self.interval(form, _DEPTH)
        proved = plain.meet(Interval(proved.lo, proved.hi, plain.masked, proved.infinite))
        return proved if proved.bounded or proved.masked or len(form) < 2 else self._in_row(e, form, proved)

    def _in_row(self, e: Expr, form: Form, proved: Interval) -> Interval:
        """An element of a row is at most the length of the row, as its divisors bound it."""
        places = frozenset(free_axes(e))
        for m, _ in form[:1]:
            for d, p in m.factors:
                for over in self._unfold.summed_over(d) if p < 0 else ():
                    axes = [x for x in places if bound_axes(x) == bound_axes(over[0])] if len(over) == 1 else []
                    for x in axes:
                        if x in free_axes(d):
                            continue
                        square = self._rows.norm(e, (x,), 2)
                        if square < INF:
                            proved = proved.meet(outward(-(square**0.5), square**0.5))
        return proved

    def total(self, box: Box, plain: Interval) -> Interval:
        """The interval of a sum: by the inequality of Hoelder, and by the term that attains a maximum."""
        if not self._unfold.settled(box):
            return plain
        with self._budget():
            return self._total(box, plain)

    def _total(self, box: Box, plain: Interval) -> Interval:
        proved = plain.meet(self._holder(box.body, box.over, plain))
        body = self._of(box.body)
        if body.lo >= 0 and not body.masked:
            for r in box.reads():
                least = self._attained(box, r)
                if least > proved.lo:
                    proved = Interval(min(least, proved.hi), proved.hi, proved.masked, proved.infinite)
        return proved

    def _holder(self, body: Expr, axes: tuple[str, ...], plain: Interval) -> Interval:
        body_bound = self._of(body)
        if body_bound.masked or body_bound.infinite:
            return plain
        found = self._rows.contraction(body, axes)
        if found is None:
            return plain
        return outward(-found, found)

    def _attained(self, box: Box, r: Read) -> float:
        """A lower bound of a sum of terms >= 0: its term where a maximum or minimum ``r`` over its axes is attained."""
        for m in self._extremes(r, set()):
            reference = self._boxes[m.array]
            if len(reference.over) != len(box.over) or self._array(m.array).masked or self._array(m.array).infinite:
                continue
            if set(free_axes(m)) & set(box.over):
                continue
            names = {a: Affine.axis(b) for a, b in zip(reference.over, box.over, strict=True)}
            if [bound_axes(a) for a in reference.over] != [bound_axes(a) for a in box.over]:
                continue
            there = self._unfold.placed(reference, m.index, names)
            form = self._unfold.form(box.body, {m: there})
            return self.interval(form, 1).lo
        return 0.0

    def _extremes(self, r: Read, seen: set[str]) -> Iterator[Read]:
        """The maxima and minima behind a read, through maps at their own places."""
        box = self._boxes.get(r.array)
        if box is None or r.array in seen:
            return
        seen.add(r.array)
        if box.reduction in ("max", "min"):
            yield r
        elif box.reduction is None:
            for e in self._unfold.inside(r):
                yield from self._extremes(e, seen)

    # intervals of forms

    def interval(self, f: Form, depth: int = 0) -> Interval:
        """The interval of a form's values; ``depth`` reductions in a row are looked into."""
        known = self._known.get((f, depth))
        if known is None:
            self._left -= 1
            if self._left < 0 < depth:
                return self.interval(f, 0)
            known = self._known[f, depth] = self._sum(f, depth)
        return known

    def _sum(self, f: Form, depth: int) -> Interval:
        if len(f) == 1:
            return self._term(f[0], depth)
        parts = [self._term(t, depth) for t in f]
        total = ZERO
        for p in parts:
            total = plus(total, p)
        if total.empty:
            return total
        lo = max(total.lo, self._squares(f, parts))
        hi = min(total.hi, -self._squares(scale(f, -ONE), [times(p, point(-1)) for p in parts]))
        if depth > 0 and len(f) <= _LONG:
            for other, up in self._replaced(f):
                bound = self.interval(other, depth - 1)
                if up and not bound.infinite:
                    hi = min(hi, bound.hi)
                elif not up and not bound.masked:
                    lo = max(lo, bound.lo)
            gathered = self._unfold.gathered(f)
            if gathered is not None:
                axes, body, rest = gathered
                bound = plus(times(self._axes(axes), self.interval(body, depth - 1)), self.interval(rest, depth - 1))
                lo, hi = max(lo, bound.lo), min(hi, bound.hi)
        if lo > hi:
            lo, hi = hi, lo
        return Interval(lo, hi, total.masked, total.infinite and hi == INF)

    def _axes(self, axes: tuple[str, ...]) -> Interval:
        total = point(1)
        for a in axes:
            total = times(total, self._size(a))
        return total

    def _term(self, t: tuple[Monomial, Fraction], depth: int) -> Interval:
        m, c = t
        return times(point(float(c)), self._monomial(m, depth)) if c != 1 else self._monomial(m, depth)

    def _monomial(self, m: Monomial, depth: int) -> Interval:
        if (m, depth) not in self._terms:
            self._terms[m, depth] = self._product(m, depth)
        return self._terms[m, depth]

    def _product(self, m: Monomial, depth: int) -> Interval:
        value = point(1)
        for a, p in m.factors:
            v = self._atom(a)
            value = times(value, v if p == 1 else fraction_power(v, float(p)))
        if m.exponent:
            value = times(value, operate("exp", (self.interval(m.exponent, depth),)))
        if depth > 0:
            for a, p in m.factors:
                if p < 0:
                    value = self._below(m, a, p, value, depth)
                elif p == 1 and isinstance(a, Read):
                    value = self._moved(m, a, value)
        return value

    def _below(self, m: Monomial, a: Expr, p: Fraction, value: Interval, depth: int) -> Interval:
        """Bounds of ``R * D**p``, ``p < 0``: with ``D >= L >= 0`` it lies between 0 and ``R * L**p``."""
        rest = make_monomial({b: q for b, q in m.factors if b != a}, m.exponent)
        axes = free_axes_of(m)
        present = set(_atoms(((rest, ONE),)))
        present |= {Apply("abs", (b,)) for b in present}
        for low in self._least(a, axes):
            if len(low) != 1 or not any(b in present or self._looks_into(b) for b in _atoms(low)):
                continue
            # where an indicator of the product is 0 so is the product, and elsewhere it hides nothing of L
            low = _without(low, present)
            bound = self.interval(multiply(((rest, ONE),), self._canonical.power(low, p)), depth - 1)
            if not bound.masked and not bound.infinite:
                value = value.meet(bound.join(ZERO))
            if not value.bounded:
                # roots of squares are absolute values: the square of the quotient keeps who is who
                whole = multiply(((power2(rest), ONE),), self._canonical.power(low, 2 * p))
                value = self._root(value, self.interval(even(whole), depth - 1))
            if value.bounded and value.hi <= 1 + 1e-9 and value.lo >= -1 - 1e-9:
                break
        return value

    def _root(self, value: Interval, square: Interval) -> Interval:
        """A value met with what a bound of its square says."""
        if square.hi == INF or square.masked or square.hi < 0:
            return value
        most = square.hi**0.5
        return value.meet(outward(-most, most))

    def _looks_into(self, e: Expr) -> bool:
        """Whether an atom is a reduction, whose own parts may be compared."""
        return isinstance(e, Read) and self._unfold.reduction(e) is not None

    def _moved(self, m: Monomial, a: Read, value: Interval) -> Interval:
        """Bounds of ``R * sum b`` as the sum of ``R * b``."""
        box = self._unfold.sum_of(a)
        if box is None:
            return value
        if value.bounded and not any(p < 0 for _, p in m.factors):
            return value
        body, axes = self._unfold.opened(a, box)
        rest = [(b, p) for b, p in m.factors if b != a]
        found = self._rows.contraction(body, axes, rest, m.exponent)
        return value if found is None else value.meet(outward(-found, found))

    def _least(self, d: Expr, axes: tuple[str, ...]) -> Iterator[Form]:
        """Forms that are >= 0 and at most ``d``."""
        for low in islice(self._lower(d, axes), _MOST):
            bounds = [self._term(t, 0) for t in low]
            # a term that may be -inf hides the others
            if all(b.lo >= 0 and not b.masked for b in bounds):
                for t in low:
                    yield (t,)

    def _lower(self, d: Expr, axes: tuple[str, ...]) -> Iterator[Form]:
        match d:
            case Read():
                box = self._unfold.reduction(d)
                if box is None:
                    return
                body = self._of(box.body)
                if box.reduction == "max" or (box.reduction == "sum" and body.lo >= 0 and not body.masked):
                    yield from self._elements(d, box, axes)
            case Apply(op="add"):
                yield self._unfold.form(d)
            case Apply(op="max", args=args):
                for a in args:
                    yield self._unfold.form(a)

    def _elements(self, r: Read, box: Box, axes: tuple[str, ...]) -> Iterator[Form]:
        """What a reduction runs over, at each choice of its axes among ``axes``."""
        choices = [[a for a in axes if bound_axes(a) == bound_axes(o)] for o in box.over]
        for n, chosen in enumerate(product(*choices)):
            if n >= _MOST:
                return
            names = {o: Affine.axis(c) for o, c in zip(box.over, chosen, strict=True)}
            yield self._unfold.form(self._unfold.placed(box, r.index, names))

    def _replaced(self, f: Form) -> Iterator[tuple[Form, bool]]:
        """Forms that bound ``f`` from above (True) or below: one extreme replaced by what it runs over."""
        axes = tuple(dict.fromkeys(a for m, _ in f for a in free_axes_of(m)))
        for m, c in f:
            for a, p in m.factors:
                least = self._is_least(a) if p == 1 else None
                if least is None:
                    continue
                rest = make_monomial({b: q for b, q in m.factors if b != a}, m.exponent)
                factor = self._term((rest, c), 0)
                sign = 1 if factor.lo >= 0 else -1 if factor.hi <= 0 else 0
                if sign == 0 or factor.masked or factor.infinite:
                    continue
                up = (sign > 0) == least
                without = make_form({n: k for n, k in f if n != m})
                present = set(_atoms(without))
                for element in self._beside(a, axes):
                    if any(b in present or self._looks_into(b) for b in _atoms(element)):
                        yield add(without, multiply(((rest, c),), element)), up

    def _is_least(self, e: Expr) -> bool | None:
        """Whether an atom is at most what it compares (True), at least it (False), or neither (None)."""
        if isinstance(e, Apply) and e.op in ("max", "min"):
            return e.op == "min"
        box = self._unfold.reduction(e) if isinstance(e, Read) else None
        if box is None or box.reduction not in ("max", "min", "sum"):
            return None
        if box.reduction == "sum":
            body = self._of(box.body)
            return False if body.lo >= 0 and not body.masked else None
        return box.reduction == "min"

    def _beside(self, e: Expr, axes: tuple[str, ...]) -> Iterator[Form]:
        """What an extreme compares."""
        if isinstance(e, Apply):
            for a in e.args:
                yield self._unfold.form(a)
        elif isinstance(e, Read):
            box = self._unfold.reduction(e)
            if box is not None:
                yield from self._elements(e, box, axes)

    def _squares(self, f: Form, parts: list[Interval]) -> float:
        """A lower bound of a sum by ``a**2 + b**2 >= 2 |ab|``."""
        if not 3 <= len(f) <= _LONG:
            return -INF
        where = {m: i for i, (m, _) in enumerate(f)}
        left = dict(f)
        done: set[int] = set()
        for i, (m, c) in enumerate(f):
            if parts[i].lo >= 0:
                continue
            for s, k in list(left.items()):
                if k <= 0 or s == m:
                    continue
                other = _quotient(power2(m), s)
                if other is None or other == s or left.get(other, Fraction(0)) <= 0:
                    continue
                if c * c <= 4 * k * left[other] and all(self._monomial(n, 0).lo >= 0 for n in (s, other)):
                    # c ab >= -(|c| / 2) (r a**2 + b**2 / r) with r that uses up a share of each
                    left[s], left[other] = Fraction(0), left[other] - c * c / (4 * k)
                    done.add(i)
                    break
        if not done:
            return -INF
        total = ZERO
        for m, c in left.items():
            if where[m] not in done and c:
                total = plus(total, self._term((m, c), 0))
        return total.lo


def _atoms(f: Form) -> Iterator[Expr]:
    """The atoms of a form, exponents included."""
    for m, _ in f:
        for a, _ in m.factors:
            yield a
        yield from _atoms(m.exponent)


def _without(f: Form, present: set[Expr]) -> Form:
    """A form without the indicators that are present elsewhere."""
    kept = [({a: p for a, p in m.factors if not (is_indicator(a) and a in present)}, m.exponent, c) for m, c in f]
    return add(*(((make_monomial(powers, exponent), c),) for powers, exponent, c in kept))


def even(f: Form) -> Form:
    """A form with ``abs(a)**2`` as ``a**2``, for atoms of single arguments."""
    result: list[Form] = []
    for m, c in f:
        powers: dict[Expr, Fraction] = {}
        for a, p in m.factors:
            if isinstance(a, Apply) and a.op == "abs" and p.denominator == 1 and p % 2 == 0:
                a = a.args[0]
            powers[a] = powers.get(a, Fraction(0)) + p
        result.append(((make_monomial(powers, m.exponent), c),))
    return add(*result)


def free_axes_of(m: Monomial) -> tuple[str, ...]:
    """The axes of a monomial, exponents included."""
    found = dict.fromkeys(x for a, _ in m.factors for x in free_axes(a))
    for n, _ in m.exponent:
        found.update(dict.fromkeys(free_axes_of(n)))
    return tuple(found)


def power2(m: Monomial) -> Monomial:
    """The square of a monomial."""
    return make_monomial({a: 2 * p for a, p in m.factors}, scale(m.exponent, Fraction(2)))


def _quotient(a: Monomial, b: Monomial) -> Monomial | None:
    """``a / b``, None where an indicator would divide."""
    if any(is_indicator(e) for e, _ in (*a.factors, *b.factors)):
        return None
    powers = dict(a.factors)
    for e, p in b.factors:
        powers[e] = powers.get(e, Fraction(0)) - p
    return make_monomial(powers, add(a.exponent, scale(b.exponent, -ONE)))
