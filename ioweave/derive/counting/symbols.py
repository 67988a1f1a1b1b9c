"""How a region's sizes and tiles are written in formulas, and its terms in those symbols.

``q`` is the size of the axis q, ``g_q`` its group tile, ``s_x`` the step of x; q has ``q/g_q`` tiles, which divide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ioweave.derive.counting import symbolic
from ioweave.derive.counting.levelled import Placed
from ioweave.derive.counting.symbolic import ONE, Term, add, expand, gather
from ioweave.derive.counting.terms import At, Factor, Gathered, Product
from ioweave.derive.program.coordinates import Coordinate
from ioweave.derive.program.reach import Place, Reach
from ioweave.derive.program.spans import Span
from ioweave.derive.streaming.merge import PART
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.lists import slots

Sum = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A count as text that sympy reads and as LaTeX.

    ``bound`` says that the count is at most this: it is that of the region without its masks, or of
    windows that are not cut. ``symbols`` are the numbers at which it was made. It supposes that tiles divide.
    """

    text: str
    latex: str
    bound: bool = False
    symbols: tuple[tuple[str, int], ...] = ()
    terms: Sum = ()

    @property
    def value(self) -> Fraction:
        """The value at its symbols: the count itself where tiles divide and it is no bound."""
        return symbolic.evaluate(self.terms, dict(self.symbols))

    @property
    def expression(self) -> Any:
        """The formula as a sympy expression, for substitution, limits and derivatives."""
        return symbolic.expression(self.terms)


@dataclass(frozen=True)
class Names:
    """How a region's sizes and tiles are written.

    ``size``, ``group`` and ``step`` give the term of an axis; ``order`` is that of symbols in a product;
    ``values`` holds the number of every symbol; ``divides`` whether the region's tiles divide there.
    """

    size: Mapping[str, Term]
    group: Mapping[str, Term]
    step: Mapping[str, Term]
    order: tuple[str, ...]
    values: Mapping[str, int]
    divides: bool

    def tile(self, axis: str, at: At) -> Term:
        """The size of an axis, its group tile or its step."""
        if at == "step":
            return self.step[axis]
        return self.group[axis] if at == "tile" else self.size[axis]

    def formula(self, parts: Iterable[Term], bound: bool = False) -> Formula:
        """A sum as a formula."""
        merged = gather(parts)
        used = {s for t in merged for s in t.symbols()}
        symbols = tuple((s, self.values[s]) for s in self.order if s in used)
        return Formula(symbolic.text(merged, self.order), symbolic.latex(merged, self.order), bound, symbols, merged)


def region_names(placed: Sequence[Placed], apart: bool = False) -> tuple[Names, ...]:
    """The names of regions' symbols, merges written in the tiles of the region before them.

    With ``apart`` tiles of one name that differ between the regions carry the region's name: ``g_q_S``.
    """
    shared: dict[str, set[int]] = {}
    if apart:
        for p in placed:
            if not _is_merge(p):
                for kind, tiles in (("g", p.tiles.group), ("s", p.tiles.stream)):
                    for a, n in tiles.items():
                        shared.setdefault(f"{kind}_{_plain(a)}", set()).add(n)
    result: list[Names] = []
    for k, p in enumerate(placed):
        if _is_merge(p):
            parent = next((j for j in range(k - 1, -1, -1) if placed[j].program.merge is p.program), None)
            result.append(_merge_names(p, None if parent is None else (placed[parent], result[parent])))
        else:
            result.append(_own_names(p, shared))
    return tuple(result)


def _is_merge(p: Placed) -> bool:
    return PART in p.tiles.sizes


def _plain(axis: str) -> str:
    """An axis in a symbol's name: the second component of d is ``d_1``."""
    primes = len(axis) - len(base_name(axis))
    return base_name(axis) + (f"_{primes}" if primes else "")


def _base_sizes(p: Placed) -> dict[str, str]:
    """The name of every component's size."""
    return {a: base_name(name) for a, name in p.setting.opened.base}


def _own_names(p: Placed, shared: Mapping[str, set[int]]) -> Names:
    base = _base_sizes(p)
    values = {n: p.setting.sizes[n] for n in p.setting.constants if n in p.setting.sizes}
    for a, name in base.items():
        values.setdefault(name, p.setting.sizes[a])
    taken = set(values)
    tiles: dict[str, dict[str, str]] = {"g": {}, "s": {}}
    numbers: dict[str, int] = {}
    for kind, sizes in (("g", p.tiles.group), ("s", p.tiles.stream)):
        for a, n in sizes.items():
            alone = sum(base_name(other) == base_name(a) for other in sizes) == 1
            symbol = f"{kind}_{base_name(a) if alone else _plain(a)}"
            if len(shared.get(f"{kind}_{_plain(a)}", ())) > 1:
                symbol += "_" + p.region.name.replace(".", "_")
            while symbol in taken:
                symbol += "_"
            taken.add(symbol)
            tiles[kind][a], numbers[symbol] = symbol, n
    order: list[str] = []
    for name in values:
        order.append(name)
        order += [s for of in tiles.values() for a, s in of.items() if base.get(a, a) == name]
    divides = all(p.tiles.sizes[a] % g == 0 for a, g in p.tiles.group.items()) and all(
        p.tiles.group.get(a, p.tiles.sizes[a]) % s == 0 for a, s in p.tiles.stream.items()
    )
    return Names(
        _sizes(p, base, values),
        {a: Term.symbol(s) for a, s in tiles["g"].items()},
        {a: Term.symbol(s) for a, s in tiles["s"].items()},
        tuple(order),
        {**values, **numbers},
        divides,
    )


def _sizes(p: Placed, base: Mapping[str, str], values: Mapping[str, int]) -> dict[str, Term]:
    """The size of every axis: slots of a list as its axis, an axis that has no name by its number."""
    alike = {slots(a): name for a, name in base.items()}
    found = {a: base.get(a, alike.get(a, a)) for a in p.setting.sizes}
    return {a: Term.symbol(n) if n in values else Term.number(p.setting.sizes[a]) for a, n in found.items()}


def _merge_names(p: Placed, parent: tuple[Placed, Names] | None) -> Names:
    """A merge walks its axes in steps of 1, and has as many parts as instances split its reduction."""
    step = dict.fromkeys(p.tiles.stream, ONE)
    if parent is None:
        own = _own_names(replace(p, tiles=replace(p.tiles, stream={})), {})
        size = {**own.size, PART: Term.symbol(PART)}
        values = {**own.values, PART: p.tiles.sizes[PART]}
        return Names(size, {}, step, (*own.order, PART), values, True)
    before, names = parent
    parts = ONE
    for a in before.program.split:
        parts = parts * names.size[a] / names.group[a]
    return replace(names, size={**names.size, PART: parts}, step=step)


# -- terms


def product_term(p: Product, names: Names) -> Term:
    """A product of the counts' terms in symbols."""
    result = Term.number(p.coefficient)
    for f in p.factors:
        result = result * (_gathered(f, names) if isinstance(f, Gathered) else _factor(f, names))
    return result


def _gathered(f: Gathered, names: Names) -> Term:
    result = lookup_term(((_factor(extent, names), kind, by) for extent, kind, by in f.parts), f.limit, f.dims, names)
    if f.kind == "swept":
        for axis, at in f.places:
            result = result * names.size[axis] / names.tile(axis, at)
    return result


def lookup_term(parts: Iterable[tuple[Term, str, int]], limit: int, dims: Sequence[int], names: Names) -> Term:
    """The most that a lookup touches on one tile: a product of extents, or all that there is where that is less."""
    result = ONE
    for term, kind, by in parts:
        n = term.evaluate(names.values)
        if kind == "quotient" and n > 1:
            parts_of = [t / Term.number(by) for t in expand([term])]
            term = add(parts_of if n % by == 0 else [*parts_of, Term.number(2)])
        elif kind == "astride" and n > 1:  # tiles that begin anywhere
            term = add([*(t / Term.number(by) for t in expand([term])), Term.number(2)])
        elif kind == "remainder" and n > by:
            term = Term.number(by)
        result = result * term
    if result.evaluate(names.values) <= limit:
        return result
    result = ONE
    for size in dims:
        result = result * _named(size, names)
    return result if result.evaluate(names.values) == limit else Term.number(limit)


def _named(n: int, names: Names) -> Term:
    """A dimension by the one size that is as long, or as a number."""
    alike = [s for s in names.order if names.values[s] == n and Term.symbol(s) in names.size.values()]
    return Term.symbol(alike[0]) if len(alike) == 1 else Term.number(n)


def _factor(f: Factor, names: Names) -> Term:
    n = names.size[f.axis]
    if f.kind == "size":
        return n
    tile = names.tile(f.axis, f.at)
    if f.kind == "tiles":
        return n / tile
    others = tuple((names.tile(a, at), c) for a, c, at in f.also)
    length = _window(((tile, f.scale), *((names.size[a], c) for a, c in f.spread), *others), f.more)
    if f.kind == "swept":
        for a, _, at in f.also:
            length = length * names.size[a] / names.tile(a, at)
        return n / tile * length
    if f.limit and length.evaluate(names.values) > f.limit:
        whole = names.size[f.axis]
        return whole if whole.evaluate(names.values) == f.limit else Term.number(f.limit)
    return length


def _window(tiles: Iterable[tuple[Term, int]], more: int) -> Term:
    """The length of the hull of an index form over tiles: ``sum(c * (t - 1)) + 1 + more``."""
    parts: list[Term] = []
    constant = 1 + more
    for t, c in tiles:
        parts.append(Term.number(c) * t)
        constant -= c
    return add([*parts, Term.number(constant)])


def swept_term(spans: Iterable[Place], entered: frozenset[str], p: Placed, names: Names) -> Term:
    """The hull of spans on one tile, times the tiles of every axis that is tiled here."""
    result = extent_term(spans, entered, p, names)
    for axis in dict.fromkeys((*p.program.grouped, *p.program.loops)):
        at = _place(axis, entered, p)
        if at != "whole":
            result = result * names.size[axis] / names.tile(axis, at)
    return result


def extent_term(spans: Iterable[Place], entered: frozenset[str], p: Placed, names: Names) -> Term:
    """The hull of spans on one tile, and the most that lookups touch there."""
    result = ONE
    for span in spans:
        if isinstance(span, Reach):
            parts = [part for c in span.most for part in _coordinate(c, entered, p, names)]
            result = result * lookup_term(parts, span.cap, span.sizes, names)
            continue
        more = span.high - span.low
        if not span.axes:
            more = min(span.high, span.size - 1) - max(span.low, 0)
        tiled_first = sorted(span.axes, key=lambda t: _place(t[0], entered, p) == "whole")
        length = _window(((names.tile(a, _place(a, entered, p)), abs(c)) for a, c in tiled_first), more)
        if length.evaluate(names.values) > span.size:
            length = _limit(span, names)
        result = result * length
    return result


def _coordinate(c: Coordinate, entered: frozenset[str], p: Placed, names: Names) -> list[tuple[Term, str, int]]:
    kind: str = "value" if c.kind == "tuple" else c.kind
    if kind == "quotient" and not _aligned(c, entered, p):
        kind = "astride"
    return [(extent_term([v.span], entered, p, names), kind, c.by) for v in c.variables]


def _aligned(c: Coordinate, entered: frozenset[str], p: Placed) -> bool:
    """Whether all tiles of a quotient begin at multiples of what divides it."""
    axis = c.span.bare
    if axis is None or c.variables[0].shift:
        return False
    steps = [p.tiles.group[axis]] if axis in p.tiles.group else []
    if axis in entered and axis in p.tiles.stream:
        steps.append(p.tiles.stream[axis])
    return all(s % c.by == 0 for s in steps)


def _limit(span: Span, names: Names) -> Term:
    """The length of a span's array axis: the size of its own axis where that is as long."""
    sizes = (names.size[a] for a, _ in span.axes)
    return next((n for n in sizes if n.evaluate(names.values) == span.size), Term.number(span.size))


def _place(axis: str, entered: frozenset[str], p: Placed) -> At:
    if axis in entered and axis in p.tiles.stream:
        return "step"
    return "tile" if axis in p.tiles.group else "whole"


def is_exact(spans: Sequence[Place], entered: frozenset[str], p: Placed) -> bool:
    """Whether the hull of spans is what they touch at every tile: uncut, without gaps, no diagonal.

    Of lookups the most that they may touch is meant; it is the product of extents of whole tiles.
    """
    sizes, seen = p.tiles.sizes, set[str]()
    for span in spans:
        if isinstance(span, Reach):
            if span.plain is None or seen & {a for a, _ in span.axes}:
                return False
            seen |= {a for a, _ in span.axes}
            continue
        if not span.axes:
            continue
        axes = {a for a, _ in span.axes}
        if axes & seen:
            return False
        seen |= axes
        low = span.low + sum(c * (sizes[a] - 1) for a, c in span.axes if c < 0)
        high = span.high + sum(c * (sizes[a] - 1) for a, c in span.axes if c > 0)
        if low < 0 or high >= span.size or span.parts:
            return False
        reach = span.high - span.low + 1
        for a, c in sorted(span.axes, key=lambda t: abs(t[1])):
            n = _length(a, entered, p)
            if abs(c) > reach and n > 1:
                return False
            reach += abs(c) * (n - 1)
    return True


def _length(axis: str, entered: frozenset[str], p: Placed) -> int:
    if axis in entered and axis in p.tiles.stream:
        return p.tiles.stream[axis]
    return p.tiles.group.get(axis, p.tiles.sizes[axis])
