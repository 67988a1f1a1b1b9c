"""The counts of a program as terms in its tile sizes, evaluated in three arithmetics.

A `Product` is an integer times factors: the number of tiles of an axis, the sum of a window
over its tiles, the extent of a tile. The same terms give integers, NumPy vectors (for the
search) and sympy expressions (for formulas): only the ring differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from ioweave.derive.counting.masks import predicates
from ioweave.derive.program.program import Program
from ioweave.derive.program.reach import Place, Reach
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.spans import Span
from ioweave.diagrams.dtypes import DTYPES

At = Literal["whole", "tile", "step"]


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor over one axis.

    ``size``: the size of the axis; ``tiles``: how many tiles (or steps over all tiles) it has;
    ``swept``: a window's lengths summed over those tiles; ``extent``: a window's length on one
    full tile. A window of ``scale``, ``more`` and ``spread`` (whole axes with their
    coefficients) on a tile of t has ``scale * (t - 1) + 1 + more + sum(c * (n - 1))`` elements,
    ``limit`` at most (0: no limit). ``also`` are further tiled axes of the window, with their
    coefficients and places; it is then swept over the tiles of all of them.
    """

    kind: Literal["size", "tiles", "swept", "extent"]
    axis: str
    at: At = "whole"
    scale: int = 1
    more: int = 0
    spread: tuple[tuple[str, int], ...] = ()
    limit: int = 0
    also: tuple[tuple[str, int, At], ...] = ()

    @property
    def places(self) -> tuple[tuple[str, At], ...]:
        """Its axes, each with where it stands."""
        return ((self.axis, self.at), *((a, at) for a, _, at in self.also))


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a lookup may touch on one full tile (``extent``), or on all tiles together (``swept``).

    That is the product of its ``parts``, ``limit`` at most: an extent, how a coordinate takes it (a ``value``, a
    ``quotient`` or a ``remainder``), and what it is divided by. ``places`` are the tiled axes; ``dims`` the
    dimensions that ``limit`` is the product of.
    """

    kind: Literal["swept", "extent"]
    parts: tuple[tuple[Factor, str, int], ...]
    limit: int
    places: tuple[tuple[str, At], ...]
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """``coefficient`` times its factors."""

    coefficient: int
    factors: tuple[Factor | Gathered, ...]


@dataclass(frozen=True)
class Ring:
    """An arithmetic: the size, group tile and step of an axis, and division upwards."""

    size: Callable[[str], Any]
    group: Callable[[str], Any]
    step: Callable[[str], Any]
    ceil_div: Callable[[Any, Any], Any]
    whole_steps: Callable[[Any, Any, Any], Any]
    least: Callable[[Any, Any], Any]
    restarts: bool = True  # of steps, in each group tile


def numbers(sizes: Mapping[str, int], group: Mapping[str, Any], stream: Mapping[str, Any]) -> Ring:
    """Integers or NumPy vectors of tile sizes."""

    def whole_steps(n: Any, g: Any, s: Any) -> Any:
        return (n // g) * (-(-g // s)) + -(-(n % g) // s)

    return Ring(
        lambda a: sizes[a],
        lambda a: group[a],
        lambda a: stream[a],
        lambda a, b: -(-a // b),
        whole_steps,
        np.minimum,
    )


def value(p: Product, ring: Ring, grouped: frozenset[str]) -> Any:
    """The value of a product in an arithmetic."""
    result: Any = p.coefficient
    for f in p.factors:
        result = result * (_gathered(f, ring, grouped) if isinstance(f, Gathered) else _factor(f, ring, grouped))
    return result


def _gathered(f: Gathered, ring: Ring, grouped: frozenset[str]) -> Any:
    """On one tile, or tile by tile: full and ragged ones, for the limit bears on each by itself."""
    if f.kind == "extent":
        return _touched(f, lambda axis, at: _tile(axis, at, ring), ring)
    result: Any = 0
    for chosen in product(*(_lengths(axis, at, ring, grouped) for axis, at in f.places)):
        length = dict(zip((axis for axis, _ in f.places), (n for _, n in chosen), strict=True))
        count: Any = 1
        for number, _ in chosen:
            count = count * number
        result = result + count * _touched(f, partial(_chosen, length, ring), ring)
    return result


def _chosen(length: Mapping[str, Any], ring: Ring, axis: str, at: At) -> Any:
    return length[axis] if axis in length else ring.size(axis)


def _touched(f: Gathered, tile: Callable[[str, At], Any], ring: Ring) -> Any:
    result: Any = 1
    for extent, kind, by in f.parts:
        n = _extent(extent, tile, ring)
        if kind == "quotient":  # wherever the tile begins
            n = (n + by - 2) // by + 1
        result = result * (ring.least(n, by) if kind == "remainder" else n)
    return ring.least(result, f.limit)


def _lengths(axis: str, at: At, ring: Ring, grouped: frozenset[str]) -> list[tuple[Any, Any]]:
    """The lengths that the tiles of an axis have, each with how many tiles have it."""
    n, tile = ring.size(axis), _tile(axis, at, ring)
    if at == "step" and axis in grouped and ring.restarts:  # steps restart in each group tile
        g = ring.group(axis)
        s = ring.least(tile, g)
        whole, rest = n // g, n % g
        return [(whole * (g // s), s), (whole * (g % s > 0), g % s), (rest // s, s), (rest % s > 0, rest % s)]
    return [(n // tile, tile), (n % tile > 0, n % tile)]


def total(terms: Iterable[Product], ring: Ring, grouped: frozenset[str]) -> Any:
    """The sum of products in an arithmetic."""
    result: Any = 0
    for p in terms:
        result = result + value(p, ring, grouped)
    return result


def _tile(axis: str, at: At, ring: Ring) -> Any:
    if at == "step":
        return ring.step(axis)
    if at == "tile":
        return ring.group(axis)
    return ring.size(axis)


def _tiles(axis: str, at: At, ring: Ring, grouped: frozenset[str]) -> Any:
    if at == "whole":
        return 1
    n = ring.size(axis)
    if at == "step" and axis in grouped:
        return ring.whole_steps(n, ring.group(axis), ring.step(axis))
    return ring.ceil_div(n, _tile(axis, at, ring))


def _factor(f: Factor, ring: Ring, grouped: frozenset[str]) -> Any:
    if f.kind == "size":
        return ring.size(f.axis)
    if f.kind == "extent":
        return _extent(f, lambda axis, at: _tile(axis, at, ring), ring)
    more: Any = f.more
    for a, c in f.spread:
        more = more + c * (ring.size(a) - 1)
    tiles = _tiles(f.axis, f.at, ring, grouped)
    if f.kind == "tiles":
        return tiles
    result = f.scale * ring.size(f.axis) + tiles * (1 + more - f.scale)
    for a, c, at in f.also:  # summed over the tiles of a further axis: its own lengths, and the rest once per tile
        others = _tiles(a, at, ring, grouped)
        result = result * others + tiles * c * (ring.size(a) - others)
        tiles = tiles * others
    return result


def _extent(f: Factor, tile: Callable[[str, At], Any], ring: Ring) -> Any:
    """The length of a window on one tile."""
    more: Any = f.more
    for a, c in f.spread:
        more = more + c * (ring.size(a) - 1)
    t = tile(f.axis, f.at)
    for a, c, at in f.also:
        more = more + c * (tile(a, at) - 1)
    e = t if f.scale == 1 and not f.spread and not f.more and not f.also else f.scale * (t - 1) + 1 + more
    return ring.least(e, f.limit) if f.limit else e


@dataclass(frozen=True)
class Terms:
    """A program's transfers and memory as terms.

    ``loads`` and ``stores`` pair an array (or label) with its products, in values; ``columns``
    pairs a column's title with (bits, product) of what is live there. ``exact`` is False where
    masks, unions or cut windows make the terms of loads an upper bound.
    """

    loads: tuple[tuple[str, Product], ...]
    stores: tuple[tuple[str, Product], ...]
    columns: tuple[tuple[str, tuple[tuple[int, Product], ...]], ...]
    grouped: frozenset[str]
    exact: bool


def terms(program: Program, setting: Setting, buffers: int = 1) -> Terms:
    """The terms of a program."""
    grouped, loops = frozenset(program.grouped), frozenset(program.loops)
    sizes = setting.sizes
    exact = not any(predicates(b) for b in program.boxes)

    def at(axis: str, entered: frozenset[str]) -> At:
        return "step" if axis in entered and axis in loops else "tile" if axis in grouped else "whole"

    def factor(kind: Literal["swept", "extent"], span: Span, entered: frozenset[str]) -> Factor:
        """The factor of one span: its tiled axis, its window, and the whole axes that spread it."""
        axis, scale = span.axes[0]
        where: At = "whole"
        tiled = [(a, c) for a, c in span.axes if at(a, entered) != "whole"]
        if tiled:
            axis, scale = tiled[0]
            where = at(axis, entered)
        spread = tuple((a, abs(c)) for a, c in span.axes if at(a, entered) == "whole" and a != axis)
        also = tuple((a, abs(c), at(a, entered)) for a, c in tiled[1:])
        limit = 0 if span.bare is not None else span.size
        limit = limit if kind == "extent" else 0
        return Factor(kind, axis, where, abs(scale), span.high - span.low, spread, limit, also)

    def gathered(kind: Literal["swept", "extent"], reach: Reach, entered: frozenset[str]) -> Gathered:
        """The factor of what is looked up."""
        parts = []
        for c in reach.most:
            kept = "value" if c.kind == "tuple" else c.kind
            parts += [(one_extent(v.span, entered), kept, c.by) for v in c.variables if v.span.axes]
        tiled = tuple((a, at(a, entered)) for a, _ in reach.axes if at(a, entered) != "whole")
        return Gathered(kind, tuple(parts), reach.cap, tiled, reach.sizes)

    def even(reach: Reach, entered: frozenset[str]) -> bool:
        """Whether what is looked up on a tile hangs on its lengths alone: not on where it begins, or on indices."""
        if reach.exact is not None and reach.exact != reach.most:
            return False
        for c in reach.most:
            f = one_extent(c.span, entered)
            gapless = f.scale <= 1 + f.more + sum(k * (sizes[a] - 1) for a, k in f.spread)
            if c.kind != "value" or c.span.parts or not gapless or any(abs(k) != 1 for _, k, _ in f.also):
                return False
        return True

    def swept(pieces: tuple[tuple[Place, ...], ...], entered: frozenset[str]) -> Product:
        nonlocal exact
        exact = exact and len(pieces) == 1
        used: set[str] = set()
        coefficient = 1
        factors: list[Factor | Gathered] = []
        for span in pieces[0]:
            if isinstance(span, Reach):
                used |= {a for a, _ in span.axes}
                if span.plain is not None:
                    factors += (Factor("size", a) for a in span.plain)
                else:
                    exact = exact and even(span, entered)
                    factors.append(gathered("swept", span, entered))
                continue
            exact = exact and not any(a in used for a, _ in span.axes)
            used |= {a for a, _ in span.axes}
            if span.bare is not None and span.size == sizes[span.bare]:
                factors.append(Factor("size", span.bare))
            elif not span.axes:
                coefficient *= min(span.high, span.size - 1) - max(span.low, 0) + 1
            else:
                f = factor("swept", span, entered)
                more = f.more + sum(c * (sizes[a] - 1) for a, c in f.spread)
                uncut = span.low >= 0 and _reach(span, sizes) < span.size and not span.parts
                exact = exact and uncut and f.scale <= more + 1
                one = sum(at(a, entered) != "whole" for a, _ in span.axes) <= 1
                exact = exact and (one or all(abs(c) == 1 for _, c in span.axes))  # else gaps depend on the tiles
                factors.append(f)
        for axis in (*program.grouped, *program.loops):
            if axis not in used and (axis in grouped or axis in entered):
                tiles = Factor("tiles", axis, at(axis, entered))
                if tiles not in factors:
                    factors.append(tiles)
        return Product(coefficient, tuple(factors))

    known: dict[tuple[Span, frozenset[str]], Factor] = {}

    def one_extent(span: Span, entered: frozenset[str]) -> Factor:
        key = (span, entered)
        if key not in known:
            known[key] = factor("extent", span, entered)
        return known[key]

    def extent(pieces: tuple[tuple[Place, ...], ...], entered: frozenset[str]) -> list[Product]:
        result = []
        for piece in pieces:
            coefficient = 1
            factors: list[Factor | Gathered] = []
            for span in piece:
                if isinstance(span, Reach):
                    if span.plain is not None:
                        factors += (one_extent(c.span, entered) for c in span.most)
                    else:
                        factors.append(gathered("extent", span, entered))
                elif not span.axes:
                    coefficient *= min(span.high, span.size - 1) - max(span.low, 0) + 1
                else:
                    factors.append(one_extent(span, entered))
            result.append(Product(coefficient, tuple(factors)))
        return result

    table = {v.name: v for v in program.variables}
    loads = tuple((x.array, swept(table[x.variable].pieces, table[x.variable].entered)) for x in program.loads())
    made = {b.name: b for b in program.boxes}
    stores = []
    for s in program.stores:
        box = made[table[s.variable].array]
        whole = tuple(Factor("size", a) for a in box.axes)
        lacking = tuple(Factor("tiles", a, "tile") for a in program.grouped if a not in box.axes)
        stores.append((s.label, Product(1, (*whole, *lacking))))
    numbered: dict[Product, int] = {}
    of_variable = {
        v.name: [(numbered.setdefault(p, len(numbered)), DTYPES[v.dtype].bits) for p in extent(v.pieces, v.entered)]
        for v in program.variables
    }
    columns: list[tuple[str, dict[int, int]]] = []
    for column, _ in program.columns():
        live: dict[int, int] = {}
        for name in column.live:
            v = table[name]
            times = buffers if v.role == "slab" and v.entered else 1
            for p, width in of_variable[name]:
                live[p] = live.get(p, 0) + width * times
        columns.append((column.title, live))
    products = list(numbered)
    kept = tuple((t, tuple((w, products[p]) for p, w in c.items())) for t, c in _largest(columns))
    return Terms(loads, tuple(stores), kept, grouped, exact)


def _largest(columns: list[tuple[str, dict[int, int]]]) -> list[tuple[str, dict[int, int]]]:
    """The columns that no other holds as much as, term by term; the first of equal ones."""
    kept: list[tuple[str, dict[int, int]]] = []
    for title, live in sorted(columns, key=lambda c: -len(c[1])):
        if not any(all(other.get(p, 0) >= w for p, w in live.items()) for _, other in kept):
            kept = [(t, o) for t, o in kept if not all(live.get(p, 0) >= w for p, w in o.items())]
            kept.append((title, live))
    return kept


def _reach(span: Span, sizes: Mapping[str, int]) -> int:
    return span.high + sum(c * (sizes[a] - 1) for a, c in span.axes if c > 0)


def bits(t: Terms, ring: Ring) -> Any:
    """The largest sum of live bits over the columns."""
    most: Any = 0
    for _, parts in t.columns:
        live: Any = 0
        for width, p in parts:
            live = live + width * value(p, ring, t.grouped)
        most = np.maximum(most, live)
    return most


def transfers(t: Terms, ring: Ring) -> Any:
    """All loads and stores, in values."""
    return total((p for _, p in (*t.loads, *t.stores)), ring, t.grouped)
