"""Normal form of scalar expressions over the reals: sums of products of powers and exponentials.

``2 * exp(a - m) / l + b`` is the form of two monomials ``2 * l**-1 * exp(a - m)`` and ``b``. Equal
mathematics gets equal forms: division is a power -1, roots are fractional powers, ``exp2(a)`` is
``exp(log(2) a)``, ``exp(log(a))`` is ``a``, ``masked_sub`` and ``masked_div`` are plain, and
``where(c, a, b)`` is ``[c] a + [not c] b`` with an indicator ``[c]``. Anything else is an atom.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import comb

from ioweave.derive.streaming.forms import (
    HALF,
    INFINITY,
    LOG2,
    MAX_TERMS,
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    constant,
    express,
    indicator,
    is_indicator,
    is_mask,
    make_form,
    make_monomial,
    mask,
    may_vanish,
    multiply,
    negated,
    number,
    number_power,
    scale,
)
from ioweave.diagrams.expressions import Apply, Constant, Expr, Number


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
                return _less(self.form(a[0]), self.form(a[1]))
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
        if p.denominator == 1 and any(_is_abs(a) and (q * p) % 2 == 0 for a, q in m.factors):
            even = {a: q for a, q in m.factors if _is_abs(a) and (q * p) % 2 == 0}
            others = Monomial(tuple((a, q) for a, q in m.factors if a not in even), m.exponent)
            squared = self.power(((others, c),), p)
            for a, q in even.items():
                if isinstance(a, Apply):
                    squared = multiply(squared, self.power(self.form(a.args[0]), q * p))  # |a|**2 is a**2
            return squared
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

    def known(self, name: str) -> int | float | None:
        """The number of a named constant, where it is known."""
        return None

    def _pow(self, e: Apply) -> Form:
        named = self.known(e.args[1].name) if isinstance(e.args[1], Constant) else None
        exponent = self.form(e.args[1]) if named is None else constant(Fraction(named))
        if not exponent:
            return constant(1)
        if len(exponent) == 1 and exponent[0][0] == UNIT:
            return self.power(self.form(e.args[0]), exponent[0][1])
        base = self.form(e.args[0])
        if len(base) == 1 and base[0][0] == UNIT and base[0][1] > 0:
            return self.exponential(multiply(exponent, self.logarithm(base)))
        if len(base) == 1 and base[0][1] > 0 and all(self.nonnegative(a) for a, _ in base[0][0].factors):
            return self._symbolic_power(base[0], exponent)
        return atom(Apply("pow", (express(base), express(exponent))))

    def _symbolic_power(self, term: tuple[Monomial, Fraction], exponent: Form) -> Form:
        """A product of values that are never negative, to a power that is no number: factor by factor."""
        m, c = term
        to = express(exponent)
        if any(is_indicator(a) for a, _ in m.factors) and not self.nonnegative(to):
            return atom(Apply("pow", (express((term,)), to)))
        factors: dict[Expr, Fraction] = {a if is_indicator(a) else Apply("pow", (a, to)): p for a, p in m.factors}
        front = ((make_monomial(factors), ONE),) if c == 1 else atom(Apply("pow", (number(c), to)))
        if c != 1:
            front = multiply(front, ((make_monomial(factors), ONE),))
        return multiply(front, self.exponential(multiply(exponent, m.exponent))) if m.exponent else front

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


def _is_abs(e: Expr) -> bool:
    return isinstance(e, Apply) and e.op == "abs"


def _less(left: Form, right: Form) -> Form:
    """The difference of two forms; what a mask hides on the left stays hidden, whatever is taken away."""
    masks = {m for m, c in left if c > 0 and not m.exponent and len(m.factors) == 1 and is_mask(m.factors[0][0])}
    return add(left, tuple((m, -c) for m, c in right if m not in masks))
