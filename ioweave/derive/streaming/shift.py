"""Shift: a maximum or minimum follows a summand or factor that is free of the streamed axis.

Statement. ``max_x (f(x) + c) = max_x f(x) + c``; ``max_x (c f(x)) = c max_x f(x)`` for ``c >= 0``;
``max_x exp(f(x)) = exp(max_x f(x))``; the same for min. The accumulator runs over ``f`` alone and
the tail applies ``c``, so the loop carries no correction.
Source. Monotone maps commute with max and min: the fusion theorem of Abbott and Zardini (arXiv
2412.03317, theorem 1) with a tail.
Check. ``c`` is free of the axis by construction, its sign is proved from declared facts and from the
expression (`signs`), and the gate compares the terms on numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    conditions,
    express,
    is_indicator,
    is_mask,
    make_form,
    make_monomial,
    mask,
    multiply,
)
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import Unrepairable
from ioweave.derive.streaming.rescale import bounded, positive_scale
from ioweave.derive.streaming.separate import Part, axes_of, form_atoms, monomial_atoms
from ioweave.diagrams.expressions import Expr, reads


@dataclass(frozen=True, slots=True)
class Extremum:
    """``R_x f = factor * g(R'_x body) + shift``, where ``g`` is the identity, or exp of it plus ``lift``.

    ``flipped`` says that R' is min for max, or max for min: the factor's number is negative.
    """

    body: Form
    factor: Form
    shift: Form
    exponential: bool
    lift: Form
    flipped: bool


def whole(p: Part) -> Form:
    """The part as a form."""
    exponent = add(p.inner_exponent, p.outer_exponent)
    return multiply(((p.outer, p.coefficient),), ((Monomial(p.inner.factors, exponent), ONE),))


def masks(m: Monomial) -> Form:
    """The sum of the masks that a monomial's indicators amount to in an exponent."""
    return add(*(atom(mask(c)) for c in conditions(m)))


def extremum(parts: tuple[Part, ...], over: frozenset[str], nonnegative: Callable[[Expr], bool]) -> Extremum:
    """How the maximum or minimum of the parts is repaired; raises `Unrepairable` if it is not."""
    walking: list[Part] = []
    shift: Form = ()
    for p in parts:
        if over.isdisjoint(axes_of((*monomial_atoms(p.inner), *form_atoms(p.inner_exponent)))):
            shift = add(shift, whole(p))
        else:
            walking.append(p)
    if not walking:
        raise Unrepairable("the reduced value does not change along the axis")
    first = walking[0]
    alone = len(walking) == 1
    if (
        alone
        and (first.inner_exponent or first.outer_exponent)
        and all(is_indicator(a) for a, _ in first.inner.factors)
    ):
        _need(first.outer, nonnegative)
        body = add(first.inner_exponent, masks(first.inner))
        flipped = first.coefficient < 0
        if flipped and first.inner.factors:
            raise Unrepairable("a masked exponential with a negative factor has its extremum at the mask")
        return Extremum(body, ((first.outer, first.coefficient),), shift, True, first.outer_exponent, flipped)
    plain = [p for p in walking if not _is_mask(p)]
    lead = plain[0] if plain else first
    if any((p.outer, p.outer_exponent) != (lead.outer, lead.outer_exponent) for p in plain):
        raise Unrepairable("its terms change by different factors, which do not come out of a maximum or minimum")
    if lead.outer_exponent and not all(bounded(p.inner_exponent, nonnegative) for p in plain):
        raise Unrepairable("an exponential times other values is not carried under a maximum or minimum")
    _need(lead.outer, nonnegative)
    body = make_form({_body(p): p.coefficient for p in walking})
    return Extremum(body, ((Monomial(lead.outer.factors, lead.outer_exponent), ONE),), shift, False, (), False)


def _body(p: Part) -> Monomial:
    return make_monomial(dict(p.inner.factors), p.inner_exponent)


def _is_mask(p: Part) -> bool:
    one = len(p.inner.factors) == 1 and not p.inner_exponent and p.outer == UNIT and p.coefficient > 0
    return one and is_mask(p.inner.factors[0][0])


def _need(outer: Monomial, nonnegative: Callable[[Expr], bool]) -> None:
    if not positive_scale(outer, ONE, nonnegative):
        shown = text(express(((outer, ONE),)))
        raise Unrepairable(
            f"{shown} comes out of a maximum or minimum only where it is >= 0, which is not proved",
            tuple(r.array for a in monomial_atoms(outer) for r in reads(a)),
        )
