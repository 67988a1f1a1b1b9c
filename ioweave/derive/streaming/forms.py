"""Forms: sums of products of powers and exponentials, and their algebra.

``2 * exp(a - m) / l + b`` is the form of two monomials ``2 * l**-1 * exp(a - m)`` and ``b``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from ioweave.derive.streaming.budget import spend
from ioweave.derive.streaming.formula import key
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, reads, walk

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
    if isinstance(e, Apply):
        return e.op == "where"
    return isinstance(e, Read) and e.array.endswith(VANISHING)


def hides(e: Expr) -> bool:
    """Whether an atom may be 0 or minus infinity: a condition, a mask anywhere in it, a logarithm."""
    return any(
        (isinstance(n, Number) and n.value in (float("inf"), float("-inf")))
        or (isinstance(n, Apply) and n.op in ("log", "log2"))
        for n in walk(e)
    ) or is_indicator(e)


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
    """The opposite predicate: of a comparison, the opposite comparison."""
    if isinstance(condition, Apply):
        a = condition.args
        match condition.op:
            case "not":
                return a[0]
            case "lt" | "le":
                return Apply("le" if condition.op == "lt" else "lt", (a[1], a[0]))
            case "gt" | "ge":
                return Apply("le" if condition.op == "gt" else "lt", a)
            case "eq" | "ne":
                return Apply("ne" if condition.op == "eq" else "eq", a)
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
    """``c * m`` as an expression; 0 where a guarded divisor is 0, which it is where everything is masked."""
    above: list[tuple[int, Expr]] = []
    below: list[tuple[int, Expr, bool]] = []
    sums = False  # whether a guarded sum multiplies: it is 0 where the divisors are
    for a, p in m.factors:
        if is_indicator(a):
            continue
        place = rank.get(a, 10**6)
        guards = bool(guarded) and any(r in guarded for r in reads(a))
        if p == -HALF and not guards:
            above.append((place, Apply("rsqrt", (a,))))
        elif p > 0:
            above.append((place, power_of(a, p)))
            sums = sums or a in guarded
        else:
            below.append((place, power_of(a, -p), guards))
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
    for _, e, guards in below:
        result = Apply("masked_div" if guards else "div", (result, e))
    if divisor != 1:
        result = Apply("div", (result, Number(divisor)))
    tests = list(conditions(m))
    if not sums:
        tests += [Apply("ne", (e, Number(0))) for _, e, guards in below if guards]
    if tests:
        test = tests[0]
        for t in tests[1:]:
            test = Apply("and", (test, t))
        result = Apply("where", (test, result, Number(0)))
    return Apply("neg", (result,)) if negative else result
