"""Thresholds: of weights that are few when large, a sum that leaves out the small ones is a list.

Statement. Let w(x) be never negative with ``sum_x w(x) <= c``, and let the terms ``g(w(x), x)`` of a sum be 0
wherever ``w(x) <= t``, for a number t > 0. Then fewer than c / t terms are not 0, so at most ceil(c / t) - 1, and
they are among that many terms of largest w: the list of those holds all that the sum needs. Where the terms are 0
for ``w(x) < t`` alone, at most floor(c / t) are not. For weights of any sign with ``sum_x w(x)^2 <= c`` the same
holds of ``|w|`` with t squared. While the axis is walked the normaliser of w only grows and the threshold
with it: a term that has left the list never comes back.
Source. Markov's inequality for the counting measure; selection by merging, as in `lists`.
Check. t is found from g's own expression: exact spans of the weight go through it (`spans`), t is the simplest
fraction up to which the terms are proved to be 0, and the plan is executed beside the reference.
Reach. g is made of sums, products, whole powers, comparisons, minima, maxima, relu, abs, round, floor and casts to
whole numbers; t and c are numbers once the constants are. A threshold that depends on the length of the
axis, on other data or on the largest weight bounds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, floor

from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    constant,
    is_indicator,
    make_monomial,
    multiply,
    scale,
)
from ioweave.derive.streaming.parting import axes_used
from ioweave.derive.streaming.separate import form_atoms
from ioweave.derive.streaming.spans import HALF, Span, simplest
from ioweave.derive.streaming.values import Values
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Apply, Constant, Expr, Number, reads
from ioweave.diagrams.operators import CASTS, COMPARISONS

LEAST = Fraction(1, 2**24)  # the smallest threshold that is looked for
CLOSE = Fraction(1, 2**40)  # relative: how near the largest threshold is found before it is made a simple fraction
_STEPS = frozenset({"relu", "abs", "round", "floor", "max", "min", *COMPARISONS, *CASTS})


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of which ``sum_x w^power <= total``, over the streamed axis; ``power`` is 1, or 2 for any sign."""

    monomial: Monomial
    power: int
    total: Fraction


@dataclass(frozen=True, slots=True)
class Threshold:
    """The terms are 0 where ``|weight| <= at`` (``strict``) or ``< at``: at most ``slots`` of them are not."""

    weight: Weight
    at: Fraction
    strict: bool

    @property
    def slots(self) -> int:
        """The number of terms that need not be 0."""
        many = self.weight.total / self.at**self.weight.power
        return ceil(many) - 1 if self.strict else floor(many)


def threshold(form: Form, axis: str, values: Values, fixed: frozenset[str]) -> Threshold | None:
    """The threshold below which the terms ``form`` of a sum over ``axis`` are 0; None where none is proved.

    ``fixed`` names the constants that do not depend on the length of the axis.
    """
    tried: set[Monomial] = set()
    for m in _candidates(form, axis, values):
        if m in tried:
            continue
        tried.add(m)
        weight = _weight(m, axis, values)
        found = None if weight is None else _Search(form, axis, weight, values, fixed).found()
        if found is not None:
            return found
    return None


def _candidates(form: Form, axis: str, values: Values) -> Iterator[Monomial]:
    """What changes along the axis inside functions that may be 0 of it: alone, and against what does not change."""
    for f in _arguments(form, values):
        walking = [(m, c) for m, c in f if axis in axes_used(m)]
        still = [m for m, _ in f if axis not in axes_used(m)]
        for m, _ in walking:
            yield m
            yield from (n for n, _ in values.power(((m, ONE),), HALF))
            for n in still:
                if n != UNIT:
                    quotient = multiply(((m, ONE),), values.power(((n, ONE),), -ONE))
                    yield from (q for q, _ in quotient[:1])
        if walking and not any(m.exponent for m, _ in f):
            raised = values.exponential(tuple((m, c) for m, c in f if m != UNIT))
            yield from (q for q, _ in raised if len(raised) == 1)


def _arguments(form: Form, values: Values) -> Iterator[Form]:
    """The arguments of every function in a form, and the difference of the two sides of a comparison."""
    todo: list[Expr] = list(form_atoms(form))
    seen: set[Expr] = set()
    while todo:
        e = todo.pop(0)
        if e in seen or not isinstance(e, Apply):
            continue
        seen.add(e)
        forms = [values.form(a) for a in e.args] if e.op not in ("and", "or", "not", "where") else []
        if e.op in COMPARISONS or e.op in ("max", "min"):
            forms = [add(forms[0], scale(forms[1], -ONE)), *forms]
        if e.op in _STEPS:
            yield from forms
        todo += e.args
        todo += [a for f in forms for a in form_atoms(f)]


def _weight(m: Monomial, axis: str, values: Values) -> Weight | None:
    """The weight with a proved total, where there is one."""
    if axis not in axes_used(m):
        return None
    joint = [values.atoms[r.array].over for a, _ in m.factors for r in reads(a) if r.array in values.atoms]
    sets = dict.fromkeys(((axis,), *(o for o in joint if axis in o)))
    inside = (
        r.array for a, _ in m.factors if isinstance(a, Apply) for e in form_atoms(values.form(a)) for r in reads(e)
    )
    sets |= dict.fromkeys(values.atoms[n].over for n in inside if n in values.atoms and axis in values.atoms[n].over)
    for power in (1, 2):
        if power == 1 and not values.positive(m):
            continue
        raised = values.power(((m, ONE),), Fraction(power))
        for over in sets:
            total = _at_most(values.reduced("sum", over, raised), values)
            if total is not None:
                return Weight(m, power, total)
    return None


def _at_most(form: Form, values: Values) -> Fraction | None:
    """A number that a form never exceeds: counts of conditions, and parts of sums over those sums."""
    total = Fraction(0)
    for m, c in form:
        if c < 0 or m.exponent:
            return None
        rest = [(a, p) for a, p in m.factors if not (is_indicator(a) and p > 0)]
        part = _share(rest, values) if rest else ONE
        if part is None:
            return None
        total += c * part
    return total


def _share(factors: list[tuple[Expr, Fraction]], values: Values) -> Fraction | None:
    """The most that ``a / (c a + b)`` can be, for b that is never negative; None for anything else."""
    whole = [a for a, p in factors if p == -1 and isinstance(a, Apply)]
    if len(whole) != 1:
        return None
    above = make_monomial({a: p for a, p in factors if a != whole[0]})
    below = values.form(whole[0])
    if not values.positive(above) or any(c < 0 or not values.positive(m) for m, c in below):
        return None
    mine = dict(below).get(above)
    return None if not mine else 1 / mine


class _Search:
    """The largest threshold of one weight."""

    def __init__(self, form: Form, axis: str, weight: Weight, values: Values, fixed: frozenset[str]) -> None:
        self.form = form
        self.axis = axis
        self.weight = weight
        self.values = values
        self.fixed = fixed
        self.region = Span.point(0)

    def found(self) -> Threshold | None:
        """The threshold up to which the terms are 0, if they are at all."""
        most = self.weight.total + 1
        if not self.vanishes(LEAST, False) or self.vanishes(most, True):
            return None
        low, high = LEAST, most
        while high > low * (1 + CLOSE):
            middle = Fraction(float((low + high) / 2 if high <= 2 * low else low * 2))
            if self.vanishes(middle, True):
                low = middle
            else:
                high = middle
        at = simplest(low * (1 - 4 * CLOSE), high * (1 + 4 * CLOSE))
        for closed in (False, True):
            if self.vanishes(at, closed):
                continue
            if closed:
                return Threshold(self.weight, at, False)
            return Threshold(self.weight, low, True)
        return Threshold(self.weight, at, True)

    def vanishes(self, t: Fraction, closed: bool) -> bool:
        """Whether the terms are 0 for every weight of size below ``t``, or up to it."""
        low = -t if self.weight.power == 2 else Fraction(0)
        self.region = Span(low, t, self.weight.power == 2 and not closed, not closed)
        return not self.simplified(self.form)

    def simplified(self, f: Form) -> Form:
        """The form with every function replaced that is decided for these weights."""
        total: Form = ()
        for m, c in f:
            kept: dict[Expr, Fraction] = {}
            term: Form = constant(_exact(c))
            for a, p in m.factors:
                new = self._decided(a) if isinstance(a, Apply) else None
                if new is None:
                    kept[a] = p
                elif not new:
                    term = () if p > 0 else term
                    if p < 0:
                        kept[a] = p
                else:
                    term = multiply(term, self.values.power(new, p))
            total = add(total, multiply(term, ((make_monomial(kept, m.exponent), ONE),)))
        return total

    def _decided(self, e: Apply) -> Form | None:
        """What a function is for these weights, where one simpler form is all of it."""
        if is_indicator(e):
            test = self._test(e.args[0])
            return None if test is None else constant(int(test))
        match e.op:
            case "relu":
                return self._kept(e, self.values.form(e.args[0]))
            case "max" | "min":
                first, second = (self.simplified(self.values.form(a)) for a in e.args)
                gap = self.sign(add(first, scale(second, -ONE)))
                if gap is None or not (gap.never_negative or gap.never_positive):
                    return None
                return first if gap.never_negative == (e.op == "max") else second
            case "abs" | "round" | "floor":
                value = self._span_of(e)
                return None if value is None or value.value is None else constant(value.value)
            case "where":
                test = self._test(e.args[0])
                return None if test is None else self.simplified(self.values.form(e.args[1 if test else 2]))
        if e.op in CASTS:
            value = self._span_of(e)
            return () if value is not None and value.value == 0 else None
        return None

    def _kept(self, e: Apply, inside: Form) -> Form | None:
        """``relu`` of a form whose sign is known."""
        inside = self.simplified(inside)
        gap = self.sign(inside)
        if gap is None:
            return None
        return () if gap.never_positive else inside if gap.never_negative else None

    def _test(self, e: Expr) -> bool | None:
        """Whether a condition holds for these weights, where it is the same for all of them."""
        if not isinstance(e, Apply):
            return None
        if e.op in ("and", "or"):
            found = [self._test(a) for a in e.args]
            settles = e.op == "or"
            return settles if settles in found else None if None in found else not settles
        if e.op == "not":
            inner = self._test(e.args[0])
            return None if inner is None else not inner
        if e.op not in COMPARISONS:
            return None
        left, right = (self.simplified(self.values.form(a)) for a in e.args)
        gap = self.sign(add(left, scale(right, -ONE)))
        if gap is None:
            return None
        low, high = gap.below_zero, gap.above_zero
        match e.op:
            case "lt" | "ge":
                known = True if low else False if gap.never_negative else None
                return known if e.op == "lt" or known is None else not known
            case "le" | "gt":
                known = True if gap.never_positive else False if high else None
                return known if e.op == "le" or known is None else not known
        same = True if gap.value == 0 else False if low or high else None
        return same if e.op == "eq" or same is None else not same

    def sign(self, f: Form) -> Span | None:
        """A span of the sign of a form: of itself, of it over what does not change, or of exponentials of its sides."""
        direct = self.span(f)
        if direct is not None:
            return direct
        still = {m for m, _ in f if self.axis not in axes_used(m)}
        if len(still) == 1 and UNIT not in still and self.values.positive(next(iter(still))):
            back = self.values.power(((next(iter(still)), ONE),), -ONE)
            return self.span(multiply(f, back))
        lift = tuple((m, c) for m, c in f if m != UNIT)
        shift = next((c for m, c in f if m == UNIT), Fraction(0))
        for side in (ONE, -ONE) if lift and not any(m.exponent for m, _ in lift) else ():
            raised = self.values.exponential(scale(lift, side))
            found = self.span(add(raised, constant(-Fraction(exp(float(-side * shift))))))
            if found is not None:
                return found.times(side)
        return None

    def span(self, f: Form) -> Span | None:
        """The span of a form for these weights; None where another value enters."""
        total = Span.point(0)
        for m, c in f:
            part = self._monomial(m)
            if part is None:
                return None
            total = total + part.times(_exact(c))
        return total

    def _monomial(self, m: Monomial) -> Span | None:
        for power in (1, 2):
            if self.values.power(((self.weight.monomial, ONE),), Fraction(power)) == ((m, ONE),):
                return self.region.power(Fraction(power))
        if m.exponent:
            return None
        total = Span.point(1)
        unknown = False
        for a, p in m.factors:
            part = self._atom(a)
            raised = part.power(p) if part is not None else None
            if raised is not None and raised.value == 0:
                return Span.point(0)
            if raised is None or (raised.value is None and total.value is None):
                unknown = True
            elif raised.value is not None:
                total = total.times(raised.value)
            else:
                total = raised.times(total.value or ONE)
        return None if unknown else total

    def _atom(self, e: Expr) -> Span | None:
        if isinstance(e, Number) and not isinstance(e.value, bool):
            return Span.point(_exact(Fraction(e.value))) if abs(e.value) != float("inf") else None
        if isinstance(e, Constant) and e.name in self.fixed:
            known = self.values.known(e.name)
            return None if known is None else Span.point(_exact(Fraction(known)))
        return self._span_of(e) if isinstance(e, Apply) else None

    def _span_of(self, e: Apply) -> Span | None:
        if is_indicator(e):
            test = self._test(e.args[0])
            return Span(Fraction(0), ONE) if test is None else Span.point(int(test))
        if e.op in ("add", "sub", "mul", "neg", "div"):
            return self.span(self.values.form(e))
        if e.op not in _STEPS or e.op in COMPARISONS or len(e.args) != 1:
            new = self._decided(e)
            return None if new is None else self.span(new)
        inner = self.span(self.values.form(e.args[0]))
        if inner is None:
            new = self._decided(e) if e.op == "relu" else None
            return None if new is None else self.span(new)
        match e.op:
            case "relu":
                zero = Fraction(0)
                return Span(max(inner.lo, zero), max(inner.hi, zero), inner.lo_open, inner.hi_open and inner.hi > 0)
            case "abs":
                return inner.size()
            case "round":
                return inner.rounded()
            case "floor":
                return inner.floored()
        small = inner.lo >= -HALF and inner.hi <= HALF  # nearest or towards 0: both give 0
        whole = DTYPES[e.op].kind == "int"
        return Span.point(0) if inner.value == 0 or (whole and small) else None


def _exact(c: Fraction) -> Fraction:
    """A number as it was written: the shortest decimal that is the same float."""
    if c.denominator < 2**20 or c != Fraction(float(c)):
        return c
    return Fraction(repr(float(c)))
