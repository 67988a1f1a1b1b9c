"""Regimes: exact closed forms of one region's least traffic, each with the conditions under which it holds.

Every choice of bounds (a tile at 1, at its axis, or free) leaves a geometric program in the free tiles. Where its
degree of difficulty is 0 the dual weights follow from the exponents alone (Duffin, Peterson and Zener 1967):
sum(delta_i) = 1 over the traffic and sum(delta_p * a_p) = 0 over all terms; then a term of the traffic is delta_i of
the whole and a term of a full column delta_m/sum(delta_m) of M, which gives the tiles as products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations, product

from ioweave.derive.bounds.leading import LARGE, fix_tiles, keep_leading, merge_tiles
from ioweave.derive.bounds.posynomial import Monomial, Posynomial, Shape
from ioweave.derive.bounds.product import Product, add

PATTERNS = 32  # choices of bounds up to which short axes are tried in tiles of 1 too
SMALL = 1 / 8  # of M: the most that terms left out of a closed form may take where it is used


@dataclass(frozen=True, slots=True)
class Condition:
    """``sum(parts) <= bound``."""

    parts: tuple[Product, ...]
    bound: Product

    def holds(self, values: Mapping[str, float]) -> bool:
        """Whether it holds at ``values``, up to rounding."""
        total = sum(p.evaluate(values) for p in self.parts)
        return total <= self.bound.evaluate(values) * (1 + 1e-9)

    def normal(self) -> Condition:
        """The same condition with bound 1."""
        return Condition(tuple(p / self.bound for p in self.parts), Product.number(1))


@dataclass(frozen=True)
class Regime:
    """The least traffic as a sum of products, where ``conditions`` hold.

    ``dropped`` are sums that the closed form leaves out of M; it is used where they are small.
    ``large`` are the products that must be large for the terms left out to be small. Regimes of one ``variant`` are
    those of one convex problem: where one is feasible strictly between its bounds, it is the optimum of its variant.
    """

    terms: tuple[Product, ...]
    conditions: tuple[Condition, ...]
    tiles: tuple[tuple[str, Product], ...]
    dropped: tuple[Product, ...] = ()
    large: tuple[Product, ...] = ()
    variant: int = 0

    def cost(self, values: Mapping[str, float]) -> float:
        """The traffic at ``values``."""
        return sum(t(values) for t in self._floats)

    @cached_property
    def _floats(self) -> tuple[Callable[[Mapping[str, float]], float], ...]:
        return tuple(t.compiled() for t in self.terms)

    def feasible(self, values: Mapping[str, float], memory: str) -> bool:
        """Whether every condition holds and what is left out is small."""
        if not all(c.holds(values) for c in self.conditions):
            return False
        return sum(d.evaluate(values) for d in self.dropped) <= SMALL * values[memory]


def regimes(shape: Shape, sizes: Mapping[str, float], memory: str, variant: int = 0) -> Iterator[Regime]:
    """Every closed form of the shape, those with more free tiles first.

    ``sizes`` say which terms count as small. Tiles that no traffic needs must be fixed before.
    """
    symbols = [t.symbol for t in shape.tiles]
    choices = "ful" if len(symbols) <= 3 else "fu"  # of many tiles, those at 1 are left to the merged ones
    # An axis too short to count as large is whole or in tiles of 1: a tile between says nothing in closed form.
    short = [t.upper.evaluate(sizes) < LARGE for t in shape.tiles]
    few = "ul" if len(choices) ** short.count(False) << short.count(True) <= PATTERNS else "u"
    each = [few if s else choices for s in short]
    patterns = sorted(product(*each), key=lambda p: -p.count("f"))
    for pattern in patterns:
        fixed: dict[str, Monomial] = {}
        for tile, choice in zip(shape.tiles, pattern, strict=True):
            if choice != "f":
                fixed[tile.symbol] = tile.upper if choice == "u" else Monomial.make(1)
        part = fix_tiles(shape, fixed)
        if all(any(m.power(t.symbol) < 0 for m in part.traffic.terms) for t in part.tiles):
            for regime in _solve(part, sizes, memory):
                yield replace(regime, variant=variant)


def _solve(shape: Shape, sizes: Mapping[str, float], memory: str) -> Iterator[Regime]:
    """The closed forms with every tile of ``shape`` strictly between its bounds."""
    sizes = {**sizes, **dict.fromkeys(shape.symbols, math.inf)}
    traffic, gone = keep_leading(shape.traffic, sizes)
    ratios = list(gone)
    columns: list[Posynomial] = []
    for column in shape.columns:
        kept, gone = keep_leading(column, sizes)
        ratios.extend(gone)
        if not any(set(kept.terms) <= set(c.terms) for c in columns):
            columns = [c for c in columns if not set(c.terms) <= set(kept.terms)] + [kept]
    reduced = merge_tiles(Shape(traffic, tuple(columns), shape.tiles))
    left = reduced.symbols  # a merged tile's share of the product is not determined
    ratios = [r for r in ratios if not any(s in shape.symbols - left for s, _ in r.powers)]
    if not reduced.tiles:
        yield _regime(reduced, {}, memory, ratios)
        return
    flow = _parts(reduced.traffic.terms, reduced)
    flow.pop((), None)
    rooms = [_parts(c.terms, reduced) for c in reduced.columns]
    budgets = [_budget(r.pop((), ()), memory) for r in rooms]
    for count in (1, 2):
        for active in combinations(range(len(rooms)), count):
            if count <= len(reduced.tiles):
                full = tuple((i, rooms[i], budgets[i]) for i in active)
                yield from _Program(reduced, flow, full, memory, tuple(ratios)).regimes()


Parts = dict[tuple[tuple[str, Fraction], ...], tuple[Monomial, ...]]


def _parts(terms: Iterable[Monomial], shape: Shape) -> Parts:
    """Terms collected by their powers of the tiles; the values are their factors in sizes."""
    out: Parts = {}
    for m in terms:
        coefficient, powers = m.split(shape.symbols)
        out[powers] = (*out.get(powers, ()), coefficient)
    return out


def _budget(constant: Sequence[Monomial], memory: str) -> Product:
    """M less what a column takes whatever the tiles."""
    return Product.total([Monomial.make(1, {memory: 1}), *(c * Monomial.make(-1) for c in constant)])


Row = tuple[tuple[tuple[str, Fraction], ...], int | None, Product]
"""Powers of the tiles, the full column (None for traffic), the factor in sizes."""


@dataclass(frozen=True, slots=True)
class _Program:
    """A geometric program: traffic by powers of the tiles, and the columns that are full with their budgets."""

    shape: Shape
    flow: Parts
    full: tuple[tuple[int, Parts, Product], ...]
    memory: str
    ratios: tuple[Monomial, ...]

    def regimes(self) -> Iterator[Regime]:
        """Solve for the tiles exactly, or with the subsets of terms that have degree of difficulty 0."""
        tiles = [t.symbol for t in self.shape.tiles]
        rows: list[Row] = [(powers, None, Product.total(c)) for powers, c in self.flow.items()]
        rows += [(powers, i, Product.total(c)) for i, room, _ in self.full for powers, c in room.items()]
        budgets = {i: budget for i, _, budget in self.full}
        want = len(tiles) + 1
        if len(rows) < want or math.comb(len(rows), want) > 60:
            return
        for chosen in combinations(rows, want):
            if {None, *budgets} != {r[1] for r in chosen}:
                continue
            sizes = _tiles(chosen, tiles, budgets)
            if sizes is not None:
                left = [r for r in rows if r[1] is not None and r not in chosen]
                dropped = tuple(_at(r[2], r[0], sizes) for r in left)
                yield _regime(self.shape, sizes, self.memory, self.ratios, dropped, frozenset(budgets))


def _tiles(chosen: Sequence[Row], tiles: list[str], budgets: Mapping[int, Product]) -> dict[str, Product] | None:
    """The tiles at which the chosen terms balance; None where no positive weights do."""
    matrix = [[Fraction(1 if r[1] is None else 0) for r in chosen]]
    matrix += [[dict(r[0]).get(t, Fraction(0)) for r in chosen] for t in tiles]
    inverse = invert(tuple(map(tuple, matrix)))
    if inverse is None:
        return None
    delta = [row[0] for row in inverse]
    columns = [r[1] for r in chosen]
    # A column of one term may weigh nothing: then it alone bounds a tile that the chosen traffic lacks.
    if any(d < 0 or (d == 0 and (c is None or columns.count(c) > 1)) for d, c in zip(delta, columns, strict=True)):
        return None
    rows: list[list[Fraction]] = []
    right: list[Product] = []
    first = next(i for i, r in enumerate(chosen) if r[1] is None)
    for i, (powers, column, factor) in enumerate(chosen):
        exponents = [dict(powers).get(t, Fraction(0)) for t in tiles]
        if column is not None:
            whole = sum(d for d, c in zip(delta, columns, strict=True) if c == column)
            share = delta[i] / whole if whole else Fraction(1)
            rows.append(exponents)
            right.append(budgets[column] * Product.number(share) / factor)
        elif i != first:
            base = [dict(chosen[first][0]).get(t, Fraction(0)) for t in tiles]
            rows.append([e - b for e, b in zip(exponents, base, strict=True)])
            right.append(chosen[first][2] * Product.number(delta[i] / delta[first]) / factor)
    solved = invert(tuple(map(tuple, rows)))
    if solved is None:
        return None
    out: dict[str, Product] = {}
    for tile, weights in zip(tiles, solved, strict=True):
        value = Product.number(1)
        for w, r in zip(weights, right, strict=True):
            if w:
                value = value * r**w
        out[tile] = value
    return out


def _at(factor: Product, powers: Iterable[tuple[str, Fraction]], tiles: Mapping[str, Product]) -> Product:
    for symbol, p in powers:
        factor = factor * tiles[symbol] ** p
    return factor


def _regime(
    shape: Shape,
    tiles: Mapping[str, Product],
    memory: str,
    ratios: Sequence[Monomial],
    dropped: tuple[Product, ...] = (),
    full: frozenset[int] = frozenset(),
) -> Regime:
    terms: list[Product] = []
    seen: set[tuple[tuple[str, Fraction], ...]] = set()
    parts = _parts(shape.traffic.terms, shape)
    for m in shape.traffic.terms:
        factor, powers = m.split(shape.symbols)
        if not powers:
            terms.append(Product.of(factor))
        elif powers not in seen:
            seen.add(powers)
            terms.append(_at(Product.total(parts[powers]), powers, tiles))
    conditions: list[Condition] = []
    for t in shape.tiles:
        size = tiles[t.symbol]
        conditions += [Condition((Product.number(1),), size), Condition((size,), Product.of(t.upper))]
    room = Product.symbol(memory)
    for i, column in enumerate(shape.columns):
        if i not in full:
            filled = add(_at(Product.total(c), powers, tiles) for powers, c in _parts(column.terms, shape).items())
            conditions.append(Condition(filled, room))
    values = [_at(Product.of(f), p, tiles) for f, p in (r.split(frozenset(tiles)) for r in ratios)]
    large = tuple(dict.fromkeys(values))
    return Regime(add(terms), tuple(dict.fromkeys(conditions)), tuple(tiles.items()), dropped, large)


Matrix = tuple[tuple[Fraction, ...], ...]


@lru_cache(maxsize=4096)
def invert(matrix: Matrix) -> Matrix | None:
    """The exact inverse of a square matrix; None where there is none."""
    n = len(matrix)
    work = [[*row, *(Fraction(int(i == j)) for j in range(n))] for i, row in enumerate(matrix)]
    for k in range(n):
        pivot = next((i for i in range(k, n) if work[i][k]), None)
        if pivot is None:
            return None
        work[k], work[pivot] = work[pivot], work[k]
        scale = work[k][k]
        work[k] = [v / scale if v else v for v in work[k]]
        for i in range(n):
            f = work[i][k]
            if i != k and f:
                work[i] = [a - f * b if b else a for a, b in zip(work[i], work[k], strict=True)]
    return tuple(tuple(row[n:]) for row in work)
