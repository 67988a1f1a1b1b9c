"""Second moments: which accumulators are ``sum w f g`` beside ``sum w f``, ``sum w g`` and ``sum w``.

Statement. The terms ``c, a, b, w`` of four sums over the same axes are of this kind if ``c w = a b``
as normal forms. ``w`` is the term of an accumulator that is never negative, 1, or a predicate that
all terms have; its sum is made where it is not there, as a running count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement

from ioweave.derive.streaming.cascade import Passes, inline
from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    conditions,
    express,
    indicator,
    is_indicator,
    make_form,
    make_monomial,
    multiply,
    product,
)
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.rescale import read_of
from ioweave.derive.streaming.separate import form_atoms, is_fixed
from ioweave.diagrams.boxes import OLD, RUNNING, Box, base_name, source
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, Size, free_axes, walk

Nonnegative = Callable[[Expr], bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """Accumulators of one second moment: ``square = sum w f g``, ``left = sum w f``, ``right = sum w g``.

    ``weight`` is the accumulator of ``w``, there already or to be made; ``unit`` says that it counts,
    so that its finished value is a product of sizes.
    """

    square: Box
    left: Box
    right: Box
    weight: Box
    unit: bool


def second_moments(
    sums: list[Box],
    boxes: list[Box],
    passes: Passes,
    streamed: frozenset[str],
    canonical: Canonical,
    nonnegative: Nonnegative,
) -> Iterator[Moment]:
    """The second moments among the sums of one pass, sums known by fewer axes first."""
    followed = {source(r.array) for b in boxes for r in b.reads() if r.array.endswith((RUNNING, OLD))}
    maps = {b.name: b for b in boxes if b.reduction is None and passes.when[b.name].inside}
    forms = {b.name: canonical.form(inline(b.body, maps, lambda r: transparent(r, maps))) for b in sums}
    means = sorted((b for b in sums if b.recentre is None), key=lambda b: len(b.axes))
    names = {b.name for b in boxes}
    for c in sums:
        if c.recentre is not None or c.name in followed:
            continue
        here = [b for b in means if b is not c and _beside(b, c, passes)]
        for a, b in combinations_with_replacement(here, 2):
            whole = multiply(forms[a.name], forms[b.name])
            for w in here:
                if w is a or w is b or not form_atoms(forms[w.name]) or not nonnegative(w.body):
                    continue
                if multiply(forms[c.name], forms[w.name]) == whole:
                    yield Moment(c, a, b, w, False)
            if c.rescale is not None:
                continue
            for test in _tests(forms[c.name], forms[a.name], forms[b.name]):
                body: Expr = Number(1) if test is None else indicator(test)
                if multiply(forms[c.name], canonical.form(body)) == whole:
                    yield Moment(c, a, b, _counter(c, a, b, body, here, names, streamed), test is None)


def unscaled(sums: list[Box], boxes: list[Box], passes: Passes, canonical: Canonical) -> list[Box] | None:
    """The boxes with numbers and sizes taken out of sums; None if no sum has such a factor.

    The new sum has a new name, and a map of the old one multiplies it.
    """
    followed = {source(r.array) for b in boxes for r in b.reads() if r.array.endswith((RUNNING, OLD))}
    maps = {b.name: b for b in boxes if b.reduction is None and passes.when[b.name].inside}
    names = {b.name for b in boxes}
    scaled: dict[str, bool] = {}

    def hides(r: Read) -> bool:
        """Whether a map of the loop has such a factor, by itself or through the maps that it reads."""
        if not transparent(r, maps):
            return False
        if r.array not in scaled:
            whole = canonical.form(inline(maps[r.array].body, maps, lambda q: transparent(q, maps)))
            scaled[r.array] = _content(whole)[0] != _UNSCALED
        return scaled[r.array]

    out: list[Box] = []
    changed = False
    for b in boxes:
        out.append(b)
        if b not in sums or b.name in followed or b.recentre is not None or is_fixed(b.body):
            continue
        body = inline(b.body, maps, hides)
        factor, rest = _content(canonical.form(body))
        if factor == _UNSCALED:
            continue
        order = {n: i for i, n in enumerate(dict.fromkeys(walk(body)))}
        inner = replace(b, name=fresh(f"{b.name}.acc", names), body=express(rest, order))
        whole = multiply((factor,), ((make_monomial({read_of(inner): ONE}), ONE),))
        names.add(inner.name)
        out[-1:] = [inner, Box(b.name, b.axes, express(whole), None, (), b.dtype, b.line)]
        changed = True
    return out if changed else None


_UNSCALED = (UNIT, ONE)


def _content(f: Form) -> tuple[tuple[Monomial, Fraction], Form]:
    """The numbers and sizes that all terms of a form have as factors, and the form without them."""
    if not f:
        return _UNSCALED, f
    number = f[0][1] if len({abs(c) for _, c in f}) == 1 else ONE
    fixed = [{(a, p) for a, p in m.factors if is_fixed(a)} for m, _ in f]
    common = make_monomial(dict(set.intersection(*fixed)))
    if (common, number) == _UNSCALED:
        return _UNSCALED, f
    return (common, number), multiply(f, ((make_monomial({a: -p for a, p in common.factors}), 1 / number),))


def _tests(*forms: Form) -> tuple[Expr | None, ...]:
    """What may select the terms that count: nothing, or the predicates that every term of the forms has."""
    shared = [set(conditions(m)) for f in forms for m, _ in f]
    each = sorted(set.intersection(*shared), key=text) if shared else []
    if not each:
        return (None,)
    test = each[0]
    for other in each[1:]:
        test = Apply("and", (test, other))
    return None, test


def transparent(r: Read, maps: Mapping[str, Box]) -> bool:
    """Whether a read is of one of the maps, at its own place."""
    return r.array in maps and r == read_of(maps[r.array])


def _beside(b: Box, c: Box, passes: Passes) -> bool:
    """Whether a sum runs with another, over the same axes, by the same factor, and needs no further axis."""
    same = frozenset(b.over) == frozenset(c.over) and b.rescale == c.rescale and set(b.axes) <= set(c.axes)
    return same and passes.when[b.name].run == passes.when[c.name].run


def _counter(c: Box, a: Box, b: Box, body: Expr, here: list[Box], names: set[str], streamed: frozenset[str]) -> Box:
    """The accumulator that counts terms, there already or new: one for each row that both means have."""
    axes = tuple(x for x in a.axes if x in b.axes)
    over = c.over
    if body == Number(1):  # sizes of the axes that are whole in every step cost nothing
        over = tuple(x for x in c.over if x in streamed)
        body = product(Size(base_name(x)) for x in c.over if x not in streamed)
    else:
        needed = free_axes(body)
        axes = tuple(x for x in c.axes if x in axes or x in needed)
    for known in here:
        if known.body == body and frozenset(known.over) == frozenset(over) and set(known.axes) == set(axes):
            return known
    return Box(fresh(f"{c.line}.count", names), axes, body, "sum", over, a.dtype, c.line, running=True)


def fresh(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken."""
    n, free = 1, name
    while free in taken:
        n += 1
        free = f"{name}{n}"
    return free


def terms(moment: Moment, maps: Mapping[str, Box]) -> tuple[Expr, Expr, Callable[[Expr], Expr]] | None:
    """``f``, ``g``, and what makes ``w h`` of ``h``; None where f or g cannot be had.

    ``maps`` are the boxes of the loop that may be written in.
    """
    w = moment.weight.body
    if moment.unit:
        return moment.left.body, moment.right.body, lambda h: h
    canonical = Canonical()
    for opened in ({}, maps):
        weight = canonical.form(inline(w, opened, lambda r: transparent(r, maps)))
        sides = []
        for a in (moment.left, moment.right):
            body = inline(a.body, opened, lambda r: transparent(r, maps))
            order = {n: i for i, n in enumerate(dict.fromkeys(walk(body)))}
            quotient = _quotient(canonical.form(body), weight)
            sides.append(None if quotient is None else express(quotient, order))
        f, g = sides
        if f is not None and g is not None:
            return f, g, lambda h: _times(w, h)
    return None


def _times(w: Expr, h: Expr) -> Expr:
    """``w h``; what a mask hides of w, it hides of the product."""
    if isinstance(w, Apply) and w.op == "where" and w.args[2] == Number(0):
        inner = h if w.args[1] == Number(1) else Apply("mul", (w.args[1], h))
        return Apply("where", (w.args[0], inner, Number(0)))
    return Apply("mul", (w, h))


def _quotient(a: Form, w: Form) -> Form | None:
    """``f`` with ``f w = a``, free of the indicators of w; None if it is no sum of monomials, or not one for many."""
    shown = [(_shown(m), c) for m, c in a]
    bare = [(_shown(m), c) for m, c in w]
    if not shown or not bare:
        return None
    if len(bare) == 1:
        (m, c) = bare[0]
        inverse: Form = ((make_monomial({x: -p for x, p in m.factors}, tuple((e, -k) for e, k in m.exponent)), 1 / c),)
        found = multiply(make_form(dict(shown)), inverse)
    else:
        (m, c), (n, k) = shown[0], bare[0]
        for n, k in bare:
            inverse = ((make_monomial({x: -p for x, p in n.factors}, tuple((e, -q) for e, q in n.exponent)), 1 / k),)
            found = multiply(((m, c),), inverse)
            if multiply(found, w) == a:
                return found
        return None
    return found if multiply(found, w) == a else None


def _shown(m: Monomial) -> Monomial:
    return make_monomial({x: p for x, p in m.factors if not is_indicator(x)}, m.exponent)


def contracts(e: Expr, axes: tuple[str, ...]) -> bool:
    """Whether a product is of two factors, each with an axis of the result that the other lacks."""
    sides = [frozenset(free_axes(f)) & set(axes) for f in _factors(e)]
    found = sorted(set[str]().union(*sides))
    return any(not any({p, q} <= s for s in sides) for p, q in combinations(found, 2))


def _factors(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Apply) and e.op == "mul":
        return tuple(f for a in e.args for f in _factors(a))
    if isinstance(e, Apply) and e.op == "where" and e.args[2] == Number(0):
        return _factors(e.args[1])
    return (e,)
