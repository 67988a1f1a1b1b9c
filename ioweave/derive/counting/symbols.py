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
from ioweave.derive.counting.symbolic import ONE, Term, add, gather
from ioweave.derive.counting.terms import At, Factor, Product
from ioweave.derive.program.spans import Span
from ioweave.derive.streaming.merge import PART
from ioweave.diagrams.boxes import base_name

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
        {a: Term.symbol(base.get(a, a)) for a in p.setting.sizes},
        {a: Term.symbol(s) for a, s in tiles["g"].items()},
        {a: Term.symbol(s) for a, s in tiles["s"].items()},
        tuple(order),
        {**values, **numbers},
        divides,
    )


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
        result = result * _factor(f, names)
    return result


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


def swept_term(spans: Iterable[Span], entered: frozenset[str], p: Placed, names: Names) -> Term:
    """The hull of spans on one tile, times the tiles of every axis that is tiled here."""
    result = extent_term(spans, entered, p, names)
    for axis in dict.fromkeys((*p.program.grouped, *p.program.loops)):
        at = _place(axis, entered, p)
        if at != "whole":
            result = result * names.size[axis] / names.tile(axis, at)
    return result


def extent_term(spans: Iterable[Span], entered: frozenset[str], p: Placed, names: Names) -> Term:
    """The hull of spans on one tile."""
    result = ONE
    for span in spans:
        more = span.high - span.low
        if not span.axes:
            more = min(span.high, span.size - 1) - max(span.low, 0)
        tiled_first = sorted(span.axes, key=lambda t: _place(t[0], entered, p) == "whole")
        length = _window(((names.tile(a, _place(a, entered, p)), abs(c)) for a, c in tiled_first), more)
        if length.evaluate(names.values) > span.size:
            length = _limit(span, names)
        result = result * length
    return result


def _limit(span: Span, names: Names) -> Term:
    """The length of a span's array axis: the size of its own axis where that is as long."""
    sizes = (names.size[a] for a, _ in span.axes)
    return next((n for n in sizes if n.evaluate(names.values) == span.size), Term.number(span.size))


def _place(axis: str, entered: frozenset[str], p: Placed) -> At:
    if axis in entered and axis in p.tiles.stream:
        return "step"
    return "tile" if axis in p.tiles.group else "whole"


def is_exact(spans: Sequence[Span], entered: frozenset[str], p: Placed) -> bool:
    """Whether the hull of spans is what they touch at every tile: uncut, without gaps, no diagonal."""
    sizes, seen = p.tiles.sizes, set[str]()
    for span in spans:
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
