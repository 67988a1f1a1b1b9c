"""Parting: what of a form depends on which axes, and forms with their axes replaced."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ioweave.derive.streaming.cascade import placed
from ioweave.derive.streaming.forms import Form, Monomial, make_form, make_monomial
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Expr, free_axes


def parted(m: Monomial, over: frozenset[str]) -> tuple[Monomial, Monomial]:
    """A monomial as the product of what is free of axes and what is not."""
    free = {a: p for a, p in m.factors if over.isdisjoint(free_axes(a))}
    bound = {a: p for a, p in m.factors if a not in free}
    still = {e: c for e, c in m.exponent if over.isdisjoint(axes_used(e))}
    moving = {e: c for e, c in m.exponent if e not in still}
    return make_monomial(free, make_form(still)), make_monomial(bound, make_form(moving))


def without(m: Monomial, e: Expr) -> Monomial:
    """A monomial without one of its atoms."""
    return Monomial(tuple((a, p) for a, p in m.factors if a != e), m.exponent)


def axes_used(m: Monomial) -> frozenset[str]:
    """The axes that a monomial depends on."""
    found = {a for e, _ in m.factors for a in free_axes(e)}
    for e, _ in m.exponent:
        found |= axes_used(e)
    return frozenset(found)


def axes_used_form(f: Form) -> tuple[str, ...]:
    """The axes that a form depends on, sorted."""
    return tuple(sorted({a for m, _ in f for a in axes_used(m)}))


def size_of(f: Form) -> int:
    """The number of terms of a form, those of its exponents included."""
    return sum(1 + size_of(m.exponent) for m, _ in f)


def moved(f: Form, names: Mapping[str, Affine]) -> Form:
    """A form with axes replaced."""

    def monomial(m: Monomial) -> Monomial:
        factors: dict[Expr, Fraction] = {}
        for a, p in m.factors:
            b = placed(a, names)
            factors[b] = factors.get(b, Fraction(0)) + p
        return make_monomial(factors, moved(m.exponent, names))

    total: dict[Monomial, Fraction] = {}
    for m, c in f:
        n = monomial(m)
        total[n] = total.get(n, Fraction(0)) + c
    return make_form(total)
