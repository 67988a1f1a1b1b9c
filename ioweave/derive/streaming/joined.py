"""Joined: sums that every result needs in one and the same combination are one accumulator.

Statement. If ``A = sum_x a`` and ``B = sum_x b`` enter every result as ``A + rho B``, with ``rho`` known
before the loop, then ``sum_x (a + rho b)`` is state enough: ``sum (a + b)`` and ``sum a + sum b`` need
the same state, whichever was written.
Source. Linearity of the sum; the state of a streamed function is what its tail can tell apart (Abbott
and Zardini, arXiv 2412.03317, theorem 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ioweave.derive.streaming.budget import spend
from ioweave.derive.streaming.forms import ONE, Form, Monomial, add, is_indicator, make_monomial, multiply
from ioweave.derive.streaming.interchange import Settled, rebuilt
from ioweave.derive.streaming.parting import axes_used
from ioweave.derive.streaming.separate import monomial_atoms
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Apply, Expr, Read, reads

_STEP = 1000  # terms that one joining counts for against the budget
Place = tuple[int, Monomial]  # the form that a sum stands in, and what it is multiplied by there


def joined(forms: Mapping[str, Form], settled: Settled) -> dict[str, Form]:
    """The forms with every group of sums that stand in one combination replaced by one sum."""
    current = dict(forms)
    while True:
        pair = _pair(_places(current, settled), settled)
        if pair is None:
            return current
        first, second, ratio = pair
        a, b = settled.values.atoms[first], settled.values.atoms[second]
        whole = add(a.inner, multiply((ratio,), b.inner))
        new = settled.values.irreducible("sum", a.over, whole)
        spend(_STEP)
        if new.array in (first, second):
            return current
        current = _replaced(current, {first: ((make_monomial({new: ONE}), ONE),), second: ()}, settled)


def _replaced(forms: Mapping[str, Form], new: Mapping[str, Form], settled: Settled) -> dict[str, Form]:
    return {n: rebuilt(f, settled.values, lambda r: new.get(r.array)) for n, f in forms.items()}


def _places(forms: Mapping[str, Form], settled: Settled) -> dict[str, dict[Place, Fraction] | None]:
    """Where each sum over the streamed axes stands as a factor; None for one that stands elsewhere too."""
    found: dict[str, dict[Place, Fraction] | None] = {}
    todo = list(forms.values())
    seen: list[Form] = []
    while todo:
        f = todo.pop(0)
        if f in seen:
            continue
        seen.append(f)
        for m, c in f:
            for a, p in m.factors:
                if isinstance(a, Read) and p == 1 and _is_sum(a, settled):
                    rest = Monomial(tuple((e, q) for e, q in m.factors if e != a), m.exponent)
                    table = found.setdefault(a.array, {})
                    if table is not None:
                        table[len(seen) - 1, rest] = c
                elif isinstance(a, Read) and a.array in settled.values.atoms:
                    found[a.array] = None
                elif isinstance(a, Apply):
                    whole = a.op in ("add", "sub", "neg", "mul", "div")  # a sum under a power is one form
                    todo += [settled.values.form(x) for x in ((a,) if whole else a.args)]
            for e in monomial_atoms(Monomial((), m.exponent)):
                for r in reads(e):
                    found[r.array] = None
        for name in {r.array for m, _ in f for e in monomial_atoms(m) for r in reads(e)}:
            known = settled.values.atoms.get(name)
            if known is not None:
                todo.append(known.inner)
    return found


def _is_sum(a: Read, settled: Settled) -> bool:
    known = settled.values.atoms.get(a.array)
    bare = known is not None and a.index == tuple(Affine.axis(x) for x in known.axes)
    return known is not None and bare and known.op == "sum" and settled.reduces(a.array)


def _pair(
    places: Mapping[str, dict[Place, Fraction] | None], settled: Settled
) -> tuple[str, str, tuple[Monomial, Fraction]] | None:
    names = [n for n, p in places.items() if p]
    for first in names:
        for second in names:
            if first == second or not _alike(first, second, settled):
                continue
            mine, theirs = places[first] or {}, places[second] or {}
            ratio = _ratio(mine, theirs, settled) if len(mine) == len(theirs) else None
            if ratio is not None:
                return first, second, ratio
    return None


def _alike(first: str, second: str, settled: Settled) -> bool:
    a, b = settled.values.atoms[first], settled.values.atoms[second]
    if a.over != b.over or settled.depth_of(first) != settled.depth_of(second):
        return False
    kinds = {(m.exponent, _tests(m) if m.exponent else ()) for m, _ in (*a.inner, *b.inner)}
    return len(kinds) == 1


def _tests(m: Monomial) -> tuple[Expr, ...]:
    return tuple(a for a, _ in m.factors if is_indicator(a))


def _ratio(
    mine: Mapping[Place, Fraction], theirs: Mapping[Place, Fraction], settled: Settled
) -> tuple[Monomial, Fraction] | None:
    (where, rest), c = next(iter(theirs.items()))
    for (place, own), k in mine.items():
        if place != where:
            continue
        ratio = multiply(((rest, c / k),), settled.values.power(((own, ONE),), -ONE))
        if len(ratio) != 1 or not _known(ratio[0][0], settled):
            continue
        expected: dict[Place, Fraction] = {}
        for (p, m), q in mine.items():
            moved = multiply(((m, q),), ratio)
            if len(moved) == 1:
                expected[p, moved[0][0]] = moved[0][1]
        if expected == dict(theirs):
            return ratio[0]
    return None


def _known(m: Monomial, settled: Settled) -> bool:
    """Whether a factor is at hand before the loop, and may be multiplied by."""
    if m.exponent or settled.depth(((m, ONE),)) or any(p < 0 or p.denominator != 1 for _, p in m.factors):
        return False
    return settled.axes.isdisjoint(axes_used(m)) and not any(is_indicator(a) for a, _ in m.factors)
