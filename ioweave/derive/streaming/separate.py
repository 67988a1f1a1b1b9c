"""Separate: a sum whose terms are ``f(x, r) = sum_j a_j(r) b_j(x)`` needs one accumulator per ``b_j``.

Statement. If ``f`` is a finite sum of products of a factor free of the streamed axis and a factor
free of the unfinished results ``r``, then ``sum_x f(x, r) = sum_j a_j(r) sum_x b_j(x)``: the
accumulators do not read ``r``, and the tail recombines them with its finished value.
Source. Linearity of the sum; the fusion theorem of Abbott and Zardini (arXiv 2412.03317,
theorem 1): work mapped over the streamed axis may precede a streamable reduction, and any tail may
follow it. The normalised contraction of arXiv 2505.09326 (lemma 2) is the case of one term.
Check. The split below is exact on normal forms; the gate compares both sides on numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ioweave.derive.streaming.forms import Form, Monomial, express, make_form, make_monomial
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import Unrepairable
from ioweave.diagrams.expressions import Apply, Expr, Number, Size, free_axes, reads, walk


@dataclass(frozen=True, slots=True)
class Part:
    """One term ``coefficient * outer * inner * exp(inner_exponent + outer_exponent)``.

    ``outer`` and ``outer_exponent`` are free of the reduced streamed axes and hold all unfinished
    results; ``inner`` and ``inner_exponent`` read no unfinished result.
    """

    coefficient: Fraction
    outer: Monomial
    inner: Monomial
    inner_exponent: Form
    outer_exponent: Form


@dataclass(frozen=True, slots=True)
class View:
    """What is unfinished, and which axes are streamed, for the reduction at hand."""

    unfinished: Callable[[str], bool]
    streamed: frozenset[str]

    def waits(self, e: Expr) -> bool:
        """Whether an expression reads an unfinished result."""
        return any(self.unfinished(r.array) for r in reads(e))

    def walks(self, e: Expr) -> bool:
        """Whether an expression changes along a streamed axis."""
        return not self.streamed.isdisjoint(free_axes(e))

    def outer(self, e: Expr) -> bool:
        """Whether an atom goes to the tail; raises `Unrepairable` for one that is neither."""
        if not self.waits(e):
            return False
        if self.walks(e):
            names = tuple(dict.fromkeys(r.array for r in reads(e) if self.unfinished(r.array)))
            raise Unrepairable(f"no factor or summand comes out of {_short(e)}", names)
        return True


def split(term: tuple[Monomial, Fraction], view: View) -> Part:
    """A term of a normal form as a `Part`; raises `Unrepairable` if an atom mixes both sides."""
    m, c = term
    outer: dict[Expr, Fraction] = {}
    inner: dict[Expr, Fraction] = {}
    for a, p in m.factors:
        # numbers and sizes cost less in the tail
        (outer if view.outer(a) or is_fixed(a) else inner)[a] = p
    inner_exponent: dict[Monomial, Fraction] = {}
    outer_exponent: dict[Monomial, Fraction] = {}
    for e, k in m.exponent:
        waiting = monomial_waits(e, view)
        if waiting and monomial_walks(e, view):
            raise _mixed_exponent(e, view)
        (outer_exponent if waiting else inner_exponent)[e] = k
    return Part(c, make_monomial(outer), make_monomial(inner), make_form(inner_exponent), make_form(outer_exponent))


def is_fixed(e: Expr) -> bool:
    """Whether an atom is made of numbers and sizes alone."""
    return all(isinstance(n, Number | Size | Apply) for n in walk(e))


def monomial_waits(m: Monomial, view: View) -> bool:
    """Whether a monomial reads an unfinished result."""
    return any(view.waits(a) for a, _ in m.factors) or any(monomial_waits(e, view) for e, _ in m.exponent)


def monomial_walks(m: Monomial, view: View) -> bool:
    """Whether a monomial changes along a streamed axis."""
    return any(view.walks(a) for a, _ in m.factors) or any(monomial_walks(e, view) for e, _ in m.exponent)


def monomial_atoms(m: Monomial) -> tuple[Expr, ...]:
    """Every atom of a monomial, those of its exponent included."""
    return (*(a for a, _ in m.factors), *form_atoms(m.exponent))


def form_atoms(f: Form) -> tuple[Expr, ...]:
    """Every atom of a form."""
    return tuple(a for m, _ in f for a in monomial_atoms(m))


def axes_of(atoms: tuple[Expr, ...]) -> tuple[str, ...]:
    """The axes that atoms depend on, in order of appearance."""
    return tuple(dict.fromkeys(axis for a in atoms for axis in free_axes(a)))


def _mixed_exponent(e: Monomial, view: View) -> Unrepairable:
    names = dict.fromkeys(r.array for a in monomial_atoms(e) for r in reads(a) if view.unfinished(r.array))
    shown = _short(express(((e, Fraction(1)),)))
    return Unrepairable(f"the exponent {shown} is neither free of the axis nor free of the result", tuple(names))


def _short(e: Expr) -> str:
    shown = text(e)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
