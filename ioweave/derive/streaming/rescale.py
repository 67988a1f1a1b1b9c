"""Rescale: an accumulated sum follows the change of a result that its terms are multiplied by.

Statement. If ``f(x, r') = c(r, r') f(x, r)`` with ``c`` free of the streamed axis, and ``*``
distributes over the reduction, then ``R_x f(x, r') = c(r, r') R_x f(x, r)``: when a step changes
``r`` to ``r'``, the accumulator is multiplied by ``c`` and the new terms are added with ``r'``.
Source. The softmax-contraction kernel of Abbott and Zardini (arXiv 2412.03317, table 4 and
theorem 1), method.md 2.3.
Form. ``f = b(x) exp(s(x) - k m)`` has ``c = exp(k (m - m'))``. The exponent is kept whole in the
loop, where a bound keeps it from overflow: ``m`` is a running maximum with ``s <= k m``, so no
prefix overflows, and ``m = -inf`` only where every ``s`` is ``-inf`` and the accumulator is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ioweave.derive.streaming.cascade import on_reads
from ioweave.derive.streaming.forms import (
    LOG2,
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    express,
    is_mask,
    make_form,
    make_monomial,
    multiply,
    scale,
)
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, old, running, source
from ioweave.diagrams.expressions import Apply, Expr, Read, free_axes, reads, transform


def read_of(box: Box) -> Read:
    """The read of a box at its own axes."""
    return Read(box.name, tuple(Affine.axis(a) for a in box.axes))


def as_running(e: Expr, names: Callable[[str], bool]) -> Expr:
    """The expression with reads of the named accumulators turned into running ones."""
    return on_reads(e, lambda r: Read(running(r.array), r.index) if names(r.array) else r)


def as_old(e: Expr, names: Callable[[str], bool]) -> Expr:
    """The same with the values before the present step."""
    return on_reads(e, lambda r: Read(old(r.array), r.index) if names(r.array) else r)


def as_finished(e: Expr) -> Expr:
    """The expression with running and old reads turned into plain ones."""
    return on_reads(e, lambda r: Read(source(r.array), r.index))


def guard(e: Expr, names: Callable[[str], bool]) -> Expr:
    """Subtractions of a running reference made to keep ``-inf - -inf`` at ``-inf``."""

    def step(n: Expr) -> Expr:
        if isinstance(n, Apply) and n.op == "sub" and any(names(r.array) for r in reads(n.args[1])):
            return Apply("masked_sub", n.args)
        return n

    return transform(e, step)


def guard_exponents(e: Expr, names: Callable[[str], bool]) -> Expr:
    """`guard` within exponentials alone."""

    def step(n: Expr) -> Expr:
        if isinstance(n, Apply) and n.op in ("exp", "exp2"):
            return Apply(n.op, (guard(n.args[0], names),))
        return n

    return transform(e, step)


@dataclass(frozen=True, slots=True)
class Carried:
    """An exponent carried in the loop as ``exp(inner - reference)``, ``reference = sum k m``.

    ``rest`` is what is left for the tail: the whole exponent is ``inner - reference + rest``.
    """

    inner: Form
    reference: Form
    rest: Form


def positive_scale(m: Monomial, c: Fraction, nonnegative: Callable[[Expr], bool]) -> bool:
    """Whether ``c * m`` is proved to be >= 0."""
    return c >= 0 and not m.exponent and all(never_negative(a, p, nonnegative) for a, p in m.factors)


def never_negative(a: Expr, p: Fraction, nonnegative: Callable[[Expr], bool]) -> bool:
    """Whether a power is proved to be >= 0 wherever it is a real number: even powers and roots are."""
    return p.numerator % 2 == 0 or p.denominator % 2 == 0 or nonnegative(a)


def bounded(f: Form, nonnegative: Callable[[Expr], bool]) -> bool:
    """Whether a form is proved to be at most a constant."""

    def small(m: Monomial, c: Fraction) -> bool:
        if m == UNIT:
            return True
        if len(m.factors) == 1 and not m.exponent and is_mask(m.factors[0][0]) and m.factors[0][1] == 1 and c > 0:
            return True
        return all((p.numerator % 2 == 0 and p.denominator == 1) or nonnegative(a) for a, p in m.factors) and c < 0

    return all(small(m, c) for m, c in f)


def carry(
    inner: Form,
    effective: Form,
    outer: Form,
    references: Mapping[Read, tuple[str, Form]],
    nonnegative: Callable[[Expr], bool],
    full: Callable[[Form], Form],
) -> Carried | None:
    """Choose the bound that an exponent is carried under, or None if none is proved.

    ``effective`` is ``inner`` with the masks that hide its terms added; ``references`` maps the
    read of each running maximum or minimum to its kind and the form that it runs over; ``full``
    expands a form to the bottom, for comparison.
    """
    reference: dict[Monomial, Fraction] = {}
    over: list[Form] = []
    for m, c in outer:
        for a, p in m.factors:
            if p == 1 and isinstance(a, Read) and a in references and not m.exponent:
                kind, body = references[a]
                k = make_monomial({b: q for b, q in m.factors if b != a})
                sign = -c if kind == "max" else c
                if positive_scale(k, sign, nonnegative):
                    reference[m] = -c
                    over.append(multiply(((k, -c),), body))
                break
    if not reference:
        return None
    gap = add(full(effective), scale(full(add(*over)), -ONE))
    if not bounded(gap, nonnegative):
        return None
    ref = make_form(reference)
    return Carried(inner, ref, add(outer, ref))


def carried_body(
    c: Carried,
    accumulators: Callable[[str], bool],
    order: Mapping[Expr, int],
    guarded: frozenset[Expr] = frozenset(),
) -> Expr:
    """``exp(inner - reference)`` with running references, safe where all is masked."""
    inner, reference, base = c.inner, c.reference, "exp"
    if inner and all((LOG2, ONE) in m.factors for m, _ in (*inner, *reference)):
        base = "exp2"
        inner, reference = (multiply(f, atom(LOG2, -ONE)) for f in (inner, reference))
    low = as_running(express(reference, order), accumulators)
    return Apply(base, (Apply("masked_sub", (express(inner, order, guarded), low)),))


def delta_body(reference: Form, accumulators: Callable[[str], bool]) -> Expr:
    """``exp(old reference - new reference)``: what a step multiplies the accumulator by."""
    base = "exp"
    if all((LOG2, ONE) in m.factors for m, _ in reference):
        base, reference = "exp2", multiply(reference, atom(LOG2, -ONE))
    e = express(reference)
    return Apply(base, (Apply("masked_sub", (as_old(e, accumulators), as_running(e, accumulators))),))


def exponential_form(c: Carried) -> Form:
    """``inner - reference`` as one exponent."""
    return add(c.inner, scale(c.reference, -ONE))


def reference_axes(reference: Form) -> tuple[str, ...]:
    """The axes of a reference."""
    return tuple(dict.fromkeys(axis for a in _atoms(reference) for axis in free_axes(a)))


def _atoms(f: Form) -> tuple[Expr, ...]:
    """Every atom of a form, those of its exponents included."""
    return tuple(a for m, _ in f for a in (*(b for b, _ in m.factors), *_atoms(m.exponent)))
