"""Leading terms: what is left of traffic and memory when sizes and tiles are large.

A size counts as large from `LARGE` on, a free tile always; smaller sizes (windows, heads of a group) count as
constants. A term is dominated where another of the same sum is a multiple of it by large symbols: ``3*g_q`` beside
``2*g_q*d``, ``2*d`` beside ``2*g_q*d``, ``g_y*r`` beside ``g_y*g_x`` for a window r.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from ioweave.derive.bounds.posynomial import Monomial, Posynomial, Shape, Tile

LARGE = 8


def keep_leading(sum_: Posynomial, sizes: Mapping[str, float]) -> tuple[Posynomial, tuple[Monomial, ...]]:
    """Drop dominated terms; also give, for each dropped one, the least multiple that dominates it.

    ``sizes`` are the numbers of the symbols, infinite for a free tile; a symbol that is absent may not help.
    """
    kept: list[Monomial] = []
    ratios: list[Monomial] = []
    floats = [(t, float(t.coefficient), {s: float(p) for s, p in t.powers}) for t in sum_.terms]
    for term, c, powers in floats:
        above = [t for t, k, more in floats if t is not term and _dominates(k / c, more, powers, sizes)]
        if above:
            ratios.append(min(above, key=lambda t: len(set(t.powers) ^ set(term.powers))) * term.inverse())
        else:
            kept.append(term)
    return Posynomial(tuple(kept)), tuple(ratios)


def _dominates(ratio: float, more: Mapping[str, float], less: Mapping[str, float], sizes: Mapping[str, float]) -> bool:
    """Whether the first term is a multiple of the second by large symbols; ``ratio`` is that of their numbers."""
    grows = False
    for s in {**more, **less}:
        p = more.get(s, 0.0) - less.get(s, 0.0)
        if p:
            if s not in sizes or (p < 0 and sizes[s] >= LARGE):
                return False
            grows = grows or sizes[s] >= LARGE
            ratio *= sizes[s] ** p
    return grows and ratio >= LARGE / 2


def fix_idle_tiles(shape: Shape) -> Shape:
    """Set to 1 the tiles that no traffic falls with (streams, batch axes): the least memory is best."""
    idle = {
        t.symbol: Monomial.make(1)
        for t in shape.tiles
        if not any(m.power(t.symbol) < 0 for m in shape.traffic.terms)
        and not any(m.power(t.symbol) < 0 for c in shape.columns for m in c.terms)
    }
    return fix_tiles(shape, idle)


def fix_tiles(shape: Shape, values: Mapping[str, Monomial]) -> Shape:
    """The shape with some tiles replaced by monomials."""
    if not values:
        return shape
    return Shape(
        shape.traffic.substitute(values),
        tuple(c.substitute(values) for c in shape.columns),
        tuple(t for t in shape.tiles if t.symbol not in values),
    )


def held_variants(shape: Shape, most: int) -> tuple[Shape, ...]:
    """The shape, and those that walk some grouped axes in one instance and hold whatever lacks them.

    An array that lacks the axis a is loaded ``a/g_a`` times while a is grouped. With a streamed
    instead it can be held: once loaded, at the price of its footprint in every column, which is its
    traffic times ``g/upper`` over the grouped axes. At most ``most`` axes are turned at once.
    """
    turned = [t for t in shape.tiles if any(m.power(t.symbol) == -1 for m in shape.traffic.terms)]
    out = [shape]
    for count in range(1, most + 1):
        out += [hold(shape, axes) for axes in combinations(turned, count)]
    return tuple(out)


def hold(shape: Shape, streamed: Iterable[Tile]) -> Shape:
    """Walk the axes ``streamed`` in one instance and hold the arrays that lack one of them."""
    symbols = {t.symbol: t.upper for t in streamed}
    footprint = Monomial.make(1)
    for t in shape.tiles:
        if t.kind == "group":
            footprint = footprint * Monomial.make(1, {t.symbol: 1}) * t.upper.inverse()
    traffic: list[Monomial] = []
    held: list[Monomial] = []
    whole = dict(symbols)  # the held array is whole along the walked axes
    for m in shape.traffic.terms:
        lacking = {s: u for s, u in whole.items() if m.power(s) < 0}
        traffic.append(m.substitute(lacking))
        if lacking:
            held.append((m * footprint).substitute(whole))
    one = {s: Monomial.make(1) for s in symbols}
    columns = tuple(Posynomial.make((*c.substitute(one).terms, *held)) for c in shape.columns)
    tiles = tuple(t for t in shape.tiles if t.symbol not in symbols)
    return Shape(Posynomial.make(traffic).substitute(one), columns, tiles)


def merge_tiles(shape: Shape) -> Shape:
    """Make one tile of those that always stand together with equal powers (heads and queries of one tile)."""

    def profile(t: Tile) -> tuple[object, ...]:
        sums = (shape.traffic, *shape.columns)
        return tuple(m.power(t.symbol) for s in sums for m in s.terms)

    seen: dict[tuple[object, ...], Tile] = {}
    gone: dict[str, Monomial] = {}
    for t in shape.tiles:
        p = profile(t)
        if p in seen:
            first = seen[p]
            seen[p] = Tile(first.symbol, first.upper * t.upper, first.kind)
            gone[t.symbol] = Monomial.make(1)
        else:
            seen[p] = t
    merged = fix_tiles(shape, gone)
    return Shape(merged.traffic, merged.columns, tuple(seen.values()))
