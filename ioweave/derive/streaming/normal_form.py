"""Normal form of scalar expressions over the reals: sums of products of powers and exponentials.

``2 * exp(a - m) / l + b`` is the form of two monomials ``2 * l**-1 * exp(a - m)`` and ``b``. Equal
mathematics gets equal forms: division is a power -1, roots are fractional powers, ``exp2(a)`` is
``exp(log(2) a)``, ``exp(log(a))`` is ``a``, ``masked_sub`` and ``masked_div`` are plain, and
``where(c, a, b)`` is ``[c] a + [not c] b`` with an indicator ``[c]``. Anything else is an atom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, isqrt

from ioweave.derive.streaming.budget import spend
from ioweave.derive.streaming.formula import key
from ioweave.diagrams.expressions import Apply, Expr, Number, Read

MAX_TERMS = 48  # a product that would have more stays a product of atoms
_EXACT = 2**53  # integers up to here are exact as floats
ONE = Fraction(1)
HALF = Fraction(1, 2)
INFINITY = Number(float("inf"))
VANISHING = "?"  # ends the name of a sum whose terms may all be hidden
LOG2 = Apply("log", (Number(2),))


@dataclass(frozen=True, slots=True)
class Monomial:
    """``prod(atom**power) * exp(exponent)``; factors sorted by `key`, powers never 0."""

    factors: tuple[tuple[Expr, Fraction], ...] = ()
    exponent: Form = ()


# A sum of coefficients times monomials, sorted, coefficients never 0.
Form = tuple[tuple[Monomial, Fraction], ...]
UNIT = Monomial()


@lru_cache(maxsize=65536)
def monomial_key(m: Monomial) -> str:
    """A text that orders monomials."""
    head = "*".join(f"{key(a)}^{p}" for a, p in m.factors)
    return f"{head}@{form_key(m.exponent)}" if m.exponent else head


def form_key(f: Form) -> str:
    """A text that tells forms apart."""
    return "+".join(f"{c}*{monomial_key(m)}" for m, c in f)


def make_form(terms: Mapping[Monomial, Fraction]) -> Form:
    """The form of a map from monomials to coefficients."""
    kept = [(m, c) for m, c in terms.items() if c]
    return tuple(sorted(kept, key=lambda t: monomial_key(t[0]))) if len(kept) > 1 else tuple(kept)


def make_monomial(factors: Mapping[Expr, Fraction], exponent: Form = ()) -> Monomial:
    """The monomial of a map from atoms to powers and an exponent."""
    kept = [(a, p) for a, p in factors.items() if p]
    return Monomial(tuple(sorted(kept, key=lambda t: key(t[0]))) if len(kept) > 1 else tuple(kept), exponent)


def constant(value: int | Fraction) -> Form:
    """The form of a number."""
    return ((UNIT, Fraction(value)),) if value else ()


def atom(e: Expr, power: Fraction = ONE) -> Form:
    """The form of an atom to a power."""
    return ((Monomial(((e, power),)), ONE),)


def may_vanish(e: Expr) -> bool:
    """Whether an atom is a sum that masks may leave without a term: its inverse does not undo it there."""
    return isinstance(e, Read) and e.array.endswith(VANISHING)


def indicator(condition: Expr) -> Expr:
    """The atom ``[condition]``: 1 where it holds, else 0."""
    return Apply("where", (condition, Number(1), Number(0)))


def mask(condition: Expr) -> Expr:
    """The atom that is 0 where the condition holds, else minus infinity."""
    return Apply("where", (condition, Number(0), Number(float("-inf"))))


def is_indicator(e: Expr) -> bool:
    """Whether an atom is an indicator."""
    return isinstance(e, Apply) and e.op == "where" and e.args[1:] == (Number(1), Number(0))


def is_mask(e: Expr) -> bool:
    """Whether an atom is 0 or minus infinity."""
    return isinstance(e, Apply) and e.op == "where" and e.args[1:] == (Number(0), Number(float("-inf")))


def negated(condition: Expr) -> Expr:
    """The opposite predicate."""
    if isinstance(condition, Apply) and condition.op == "not":
        return condition.args[0]
    return Apply("not", (condition,))


def add(*forms: Form) -> Form:
    """The sum of forms."""
    total: dict[Monomial, Fraction] = {}
    for f in forms:
        for m, c in f:
            total[m] = total.get(m, Fraction(0)) + c
    return make_form(total)


def scale(f: Form, c: Fraction) -> Form:
    """A form times a number."""
    return tuple((m, k * c) for m, k in f) if c else ()


def _join(a: Monomial, b: Monomial) -> Monomial | None:
    """The product of two monomials; None if it is zero."""
    powers: dict[Expr, Fraction] = dict(a.factors)
    for e, p in b.factors:
        powers[e] = powers.get(e, Fraction(0)) + p
        if not powers[e] and may_vanish(e):
            powers[indicator(Apply("ne", (e, Number(0))))] = ONE  # 0 / 0 is 0 where everything is masked
    for e, p in powers.items():
        if is_indicator(e):
            if p != 1:
                powers[e] = ONE
            if isinstance(e, Apply) and (indicator(negated(e.args[0])) in powers or mask(e.args[0]) in powers):
                return None  # a mask is 0 where its condition holds
    exponent = add(a.exponent, b.exponent) if a.exponent and b.exponent else a.exponent or b.exponent
    return make_monomial(powers, exponent)


def multiply(f: Form, g: Form, most: int = MAX_TERMS) -> Form:
    """The product, distributed unless it would have more than ``most`` terms before like ones join."""
    if len(f) * len(g) > most:
        f, g = (((_atom_of(h)) if len(h) > 1 else h) for h in (f, g))
    total: dict[Monomial, Fraction] = {}
    spend(len(f) * len(g))
    for m, c in f:
        for n, k in g:
            j = _join(m, n)
            if j is not None:
                total[j] = total.get(j, Fraction(0)) + c * k
    return make_form(total)


def _atom_of(f: Form) -> Form:
    return atom(express(f))


def number_power(c: Fraction, p: Fraction) -> Form | None:
    """``c**p`` exactly, irrational roots as atoms; None for the root of a negative number."""
    if p.denominator == 1:
        return constant(c ** int(p))
    if c < 0:
        return None
    if p.denominator == 2:
        n, d = isqrt(c.numerator), isqrt(c.denominator)
        if n * n == c.numerator and d * d == c.denominator:
            return constant(Fraction(n, d) ** p.numerator)
    if max(c.numerator, c.denominator) >= _EXACT:
        return atom(Number(float(c)), p)
    powers = {Number(c.numerator): p, Number(c.denominator): -p}
    return ((make_monomial({e: q for e, q in powers.items() if e.value != 1}), ONE),)


class Canonical:
    """Turns expressions into forms.

    ``opaque`` says which sub-expressions stay whole; ``nonnegative`` which atoms are never
    negative, so that roots, logarithms and absolute values go through products of them.
    """

    def __init__(
        self,
        opaque: Callable[[Expr], bool] = lambda e: False,
        nonnegative: Callable[[Expr], bool] = lambda e: False,
    ) -> None:
        self.opaque = opaque
        self.nonnegative = nonnegative

    def leaf(self, e: Expr) -> Form:
        """The form of what is no function: an atom, unless a subclass knows its value."""
        return atom(e)

    def form(self, e: Expr) -> Form:
        """The normal form of an expression."""
        if isinstance(e, Number):
            return self._number(e)
        if not isinstance(e, Apply):
            return self.leaf(e)
        if self.opaque(e):
            return atom(e)
        a = e.args
        match e.op:
            case "add":
                return add(self.form(a[0]), self.form(a[1]))
            case "sub" | "masked_sub":
                return add(self.form(a[0]), scale(self.form(a[1]), -ONE))
            case "neg":
                return scale(self.form(a[0]), -ONE)
            case "mul":
                return multiply(self.form(a[0]), self.form(a[1]))
            case "div" | "masked_div":
                return multiply(self.form(a[0]), self.power(self.form(a[1]), -ONE))
            case "sqrt":
                return self.power(self.form(a[0]), HALF)
            case "rsqrt":
                return self.power(self.form(a[0]), -HALF)
            case "pow":
                return self._pow(e)
            case "exp":
                return self.exponential(self.form(a[0]))
            case "exp2":
                return self.exponential(multiply(atom(LOG2), self.form(a[0])))
            case "log":
                return self.logarithm(self.form(a[0]))
            case "log2":
                return multiply(self.logarithm(self.form(a[0])), atom(LOG2, -ONE))
            case "abs" | "relu":
                return self._homogeneous(e.op, self.form(a[0]))
            case "where":
                return self._where(a[0], a[1], a[2])
            case _:
                return atom(Apply(e.op, tuple(self.canonical(x) for x in a)))

    def canonical(self, e: Expr) -> Expr:
        """The expression of the normal form: equal for equal forms."""
        if isinstance(e, Apply) and not self.opaque(e):
            return express(self.form(e))
        return e

    def _number(self, e: Number) -> Form:
        v = e.value
        if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))):
            return scale(atom(INFINITY), ONE if v > 0 else -ONE) if v == v else atom(e)
        return constant(Fraction(v))

    def power(self, f: Form, p: Fraction) -> Form:
        """``f**p``."""
        if p == 1:
            return f
        if not f:
            return () if p > 0 else atom(Apply("pow", (Number(0), Number(float(p)))))
        if len(f) == 1:
            return self._monomial_power(f[0], p)
        if p.denominator == 1 and p > 1 and comb(len(f) + int(p) - 1, int(p)) <= MAX_TERMS:
            result = f
            for _ in range(int(p) - 1):
                result = multiply(result, f, MAX_TERMS * MAX_TERMS)
            return result
        common, rest = self.common(f, p)
        if common != UNIT:
            return multiply(self._monomial_power((common, ONE), p), self.power(rest, p))
        lead = abs(next((c for m, c in f if m != UNIT), f[0][1]))
        outside = number_power(lead, p)
        base = scale(f, 1 / lead)
        return multiply(outside or constant(1), atom(express(base), p))

    def common(self, f: Form, p: Fraction = HALF) -> tuple[Monomial, Form]:
        """The monomial that every term of a sum has as a factor, as far as it may leave a power p, and the rest."""
        (first, _), *others = f
        powers = dict(first.factors)
        exponent = dict(first.exponent)
        for m, _ in others:
            mine = dict(m.factors)
            powers = {a: min(q, mine[a]) for a, q in powers.items() if a in mine and q * mine[a] > 0}
            theirs = dict(m.exponent)
            exponent = {e: c for e, c in exponent.items() if theirs.get(e) == c}
        whole = p.denominator == 1
        powers = {a: q for a, q in powers.items() if (whole or self.nonnegative(a)) and not is_indicator(a)}
        powers = {a: q for a, q in powers.items() if not may_vanish(a)}
        shared = make_monomial(powers, make_form(exponent))
        if shared == UNIT:
            return shared, f
        back = make_monomial({a: -q for a, q in powers.items()}, scale(shared.exponent, -ONE))
        return shared, multiply(f, ((back, ONE),))

    def _monomial_power(self, term: tuple[Monomial, Fraction], p: Fraction) -> Form:
        m, c = term
        if p < 0 and any(is_indicator(a) for a, _ in m.factors):
            return atom(express((term,)), p)  # the inverse of a hidden term is infinite, not hidden
        whole = p.denominator == 1
        inside: dict[Expr, Fraction] = {}
        outside: dict[Expr, Fraction] = {}
        for e, q in m.factors:
            # (a**2)**(1/2) is |a|: even powers of unknown sign may not be merged with a root.
            plain = whole or self.nonnegative(e) or (q.numerator % 2 == 1 and len(m.factors) == 1 and c > 0)
            (outside if plain else inside)[e] = q * p if plain else q
        number = number_power(c, p) if not inside or c > 0 else None
        if number is None:
            if not inside and c < 0:
                return atom(Apply("pow", (express((term,)), Number(float(p)))))
            inner = make_form({make_monomial(inside): c})
            rest = atom(express(inner), p)
        else:
            inner = make_form({make_monomial(inside): ONE}) if inside else ()
            rest = multiply(number, atom(express(inner), p)) if inside else number
        return multiply(rest, ((make_monomial(outside, scale(m.exponent, p)), ONE),))

    def _pow(self, e: Apply) -> Form:
        exponent = self.form(e.args[1])
        if not exponent:
            return constant(1)
        if len(exponent) == 1 and exponent[0][0] == UNIT:
            return self.power(self.form(e.args[0]), exponent[0][1])
        base = self.form(e.args[0])
        if len(base) == 1 and base[0][0] == UNIT and base[0][1] > 0:
            return self.exponential(multiply(exponent, self.logarithm(base)))
        return atom(Apply("pow", (self.canonical(e.args[0]), self.canonical(e.args[1]))))

    def exponential(self, f: Form) -> Form:
        """``exp(f)``; ``exp(c log(a))`` is ``a**c``."""
        rest: dict[Monomial, Fraction] = {}
        out = constant(1)
        for m, c in f:
            if not m.exponent and len(m.factors) == 1 and m.factors[0][1] == 1:
                a = m.factors[0][0]
                if isinstance(a, Apply) and a.op == "log" and a != LOG2:
                    out = multiply(out, self.power(self.form(a.args[0]), c))
                    continue
            rest[m] = c
        return multiply(out, ((Monomial((), make_form(rest)), ONE),)) if rest else out

    def logarithm(self, f: Form) -> Form:
        """``log(f)``; exponentials and factors that are not negative come out."""
        if len(f) != 1:
            shared, rest = self.common(f) if f else (UNIT, f)
            if shared != UNIT:
                return add(self.logarithm(((shared, ONE),)), self.logarithm(rest))
            return atom(Apply("log", (express(f),)))
        m, c = f[0]
        out = m.exponent
        inside: dict[Expr, Fraction] = {}
        for e, q in m.factors:
            if self.nonnegative(e):
                out = add(out, scale(self.logarithm_atom(e), q))
            else:
                inside[e] = q
        left = make_form({make_monomial(inside): c if inside else ONE})
        if inside:
            out = add(out, self.logarithm_atom(express(left)))
        elif c != 1:
            out = add(out, self.logarithm_atom(express(constant(c))))
        return out

    def logarithm_atom(self, e: Expr) -> Form:
        """``log`` of an atom."""
        return atom(Apply("log", (e,)))

    def _homogeneous(self, op: str, f: Form) -> Form:
        """``abs`` and ``relu``: factors that are not negative come out."""
        if len(f) != 1:
            return atom(Apply(op, (express(f),))) if f else ()
        m, c = f[0]
        inside: dict[Expr, Fraction] = {}
        outside: dict[Expr, Fraction] = {}
        for e, q in m.factors:
            even = q.denominator != 1 or q.numerator % 2 == 0
            (outside if even or self.nonnegative(e) else inside)[e] = q
        front: Form = ((make_monomial(outside, m.exponent), abs(c)),)
        if not inside:
            return front if c > 0 or op == "abs" else ()
        sign = ONE if c > 0 or op == "abs" else -ONE
        return multiply(front, atom(Apply(op, (express(((make_monomial(inside), sign),)),))))

    def _where(self, condition: Expr, a: Expr, b: Expr) -> Form:
        then, other = self.form(a), self.form(b)
        minus = scale(atom(INFINITY), -ONE)
        if other == minus and then != minus:
            return add(then, atom(mask(condition))) if then else atom(mask(condition))
        if then == minus and other != minus:
            return add(other, atom(mask(negated(condition))))
        if any(INFINITY in dict(m.factors) for m, _ in (*then, *other)):
            return atom(Apply("where", (condition, express(then), express(other))))
        return add(
            multiply(atom(indicator(condition)), then),
            multiply(atom(indicator(negated(condition))), other) if other else (),
        )


def conditions(m: Monomial) -> tuple[Expr, ...]:
    """The predicates of a monomial's indicators."""
    return tuple(a.args[0] for a, _ in m.factors if isinstance(a, Apply) and is_indicator(a))


def express(f: Form, order: Mapping[Expr, int] | None = None, guarded: frozenset[Expr] = frozenset()) -> Expr:
    """An expression of a form; factors stand in ``order`` where it is given.

    A divisor in ``guarded`` divides as ``masked_div``; an indicator becomes a ``where`` around
    its term, so that what it hides may be anything.
    """
    if not f:
        return Number(0)
    rank = order or {}

    def place(t: tuple[Monomial, Fraction]) -> tuple[bool, int, str]:
        m, c = t
        return c < 0, min((rank.get(a, 10**6) for a, _ in m.factors), default=10**6), monomial_key(m)

    result: Expr | None = None
    for m, c in sorted(f, key=place):
        term = express_monomial(m, abs(c) if result is not None else c, rank, guarded)
        if result is None:
            result = term
        elif c < 0 and isinstance(result, Number) and result.value == 0:
            result = Apply("neg", (term,))
        else:
            result = Apply("sub" if c < 0 else "add", (result, term))
    assert result is not None
    return result


def number(c: Fraction) -> Number:
    """The literal of an exact number, an int where it is one."""
    return Number(int(c)) if c.denominator == 1 and abs(c) < _EXACT else Number(float(c))


def product(parts: Iterable[Expr]) -> Expr:
    """The product of expressions, left to right; 1 for none."""
    result: Expr | None = None
    for e in parts:
        result = e if result is None else Apply("mul", (result, e))
    return Number(1) if result is None else result


def power_of(e: Expr, p: Fraction) -> Expr:
    """``e**p`` for a positive p, as a root where it is one."""
    if p == 1:
        return e
    if p == HALF:
        return Apply("sqrt", (e,))
    return Apply("pow", (e, number(p)))


def express_exponential(exponent: Form, rank: Mapping[Expr, int]) -> Expr:
    """``exp(exponent)``, or ``exp2`` where log(2) is a factor throughout."""
    if all((LOG2, ONE) in m.factors for m, _ in exponent):
        rest = multiply(exponent, atom(LOG2, -ONE))
        return Apply("exp2", (express(rest, rank),))
    return Apply("exp", (express(exponent, rank),))


def express_monomial(m: Monomial, c: Fraction, rank: Mapping[Expr, int], guarded: frozenset[Expr]) -> Expr:
    """``c * m`` as an expression."""
    above: list[tuple[int, Expr]] = []
    below: list[tuple[int, Expr]] = []
    for a, p in m.factors:
        if is_indicator(a):
            continue
        place = rank.get(a, 10**6)
        if p == -HALF and a not in guarded:
            above.append((place, Apply("rsqrt", (a,))))
        elif p > 0:
            above.append((place, power_of(a, p)))
        else:
            below.append((place, power_of(a, -p)))
    if m.exponent:
        above.append((-1, express_exponential(m.exponent, rank)))
    above.sort(key=lambda t: t[0])
    below.sort(key=lambda t: t[0])
    top = [e for _, e in above]
    negative = c < 0
    c = abs(c)
    divisor = 1
    if c.numerator == 1 and 1 < c.denominator < 2**20 and (c.denominator & (c.denominator - 1) or not top):
        divisor, c = c.denominator, ONE
    if c != 1 or not top:
        top.insert(0, number(c))
    result = product(top)
    for _, e in below:
        result = Apply("masked_div" if e in guarded else "div", (result, e))
    if divisor != 1:
        result = Apply("div", (result, Number(divisor)))
    tests = conditions(m)
    if tests:
        test = tests[0]
        for t in tests[1:]:
            test = Apply("and", (test, t))
        result = Apply("where", (test, result, Number(0)))
    return Apply("neg", (result,)) if negative else result
