"""A lower bound on what a shape moves and holds, found without building its program.

Loads are counted as the shape demands, less what masks may remove. Of memory, what is surely
live while each box runs: its operands and result, the states of the loops around it, and the
slabs loaded around it (`ioweave.derive.search.nests`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ioweave.derive.counting.tiles import Ints
from ioweave.derive.program.slots import Slot
from ioweave.derive.search.nests import Axes, Basis, Gather, Nest, Reading, members
from ioweave.diagrams.expressions import Read, reads

Sum = Mapping[Axes, int]  # coefficients of products over sets of axes


Masked = tuple[tuple[int, str], ...]  # masked axes, with their numbers

ROUNDED = 1 - 1e-12  # what fractions add is rounded down


@dataclass(frozen=True, slots=True)
class Item:
    """A load under masks, of ``size`` values at once.

    Of the masked axes, ``axes`` index it, of those in ``tiled`` it takes a tile, for the tiles of
    those in ``again`` it recurs; ``plain`` are the other axes for whose tiles it does.
    """

    read: Read
    axes: tuple[str, ...]
    tiled: Masked
    again: Masked
    plain: Axes
    size: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """What lookups add to ``size`` values that are moved for every tile of ``again``.

    Each pair is the product of the whole axes of a `Gather` and the gather itself, with the tiled ones alone.
    """

    size: int
    again: Axes
    gathers: tuple[tuple[int, Gather], ...]


@dataclass(frozen=True)
class Bound:
    """A shape's bound: loads as coefficients of products of numbers of tiles; columns, in bits, of products of tiles.

    A column's axes that are whole are multiplied into its coefficients. Under masks ``items``
    tell the loads apart, each by one or several of which the largest counts; else ``gathered`` is added to them.
    """

    stores: int
    loads: Sum
    columns: tuple[Sum, ...]
    tiled: Axes
    items: tuple[tuple[Item, ...], ...]
    gathered: tuple[Gathered, ...]


@dataclass(frozen=True, slots=True)
class Slab:
    """A load: the slot in which it is made, what it holds, and what it moves (as items too under masks).

    ``held`` are coefficients of products of tiles, each alone a bound, ``moved`` of products of numbers of tiles.
    """

    key: Slot
    held: tuple[tuple[Axes, int], ...]
    moved: tuple[tuple[Axes, int], ...]
    items: tuple[Item, ...]
    gathered: Gathered | None


def relaxed(b: Basis, nest: Nest, group: Axes, hold: Mapping[str, int], free: Mapping[str, int] | None = None) -> Bound:
    """The bound of a nest, some axes grouped, some arrays held.

    Arrays in ``free`` may yet be held as far out as the depth given there: they move as little
    as where they are, and take as little memory as where they are not. Of several readings in
    one load that counts which surely moves, or holds, most.
    """
    free = free or {}
    loads: dict[Axes, int] = {}
    items: list[tuple[Item, ...]] = []
    gathered: list[Gathered] = []
    for array in nest.arrays:
        for s in _slabs(b, nest, group, array, free.get(array, hold.get(array))):
            for axes, n in s.moved:
                loads[axes] = loads.get(axes, 0) + n
            if s.items:
                items.append(s.items)
            if s.gathered is not None:
                gathered.append(s.gathered)
    slabs = [(a, s) for a in nest.arrays for s in _slabs(b, nest, group, a, hold.get(a))]
    columns: list[dict[Axes, int]] = []
    ways = range(max((len(s.held) for _, s in slabs), default=1))
    for (slot, moments), way in product(_live(b, nest, group).items(), ways):
        around: dict[Axes, int] = {}
        once: set[str] = set()  # held, several loads of one array may become one
        for array, s in slabs:
            if array not in once and slot[: len(s.key)] == s.key:
                axes, n = s.held[way % len(s.held)]
                around[axes] = around.get(axes, 0) + n
                if array in free:
                    once.add(array)
        for own in moments:
            live = dict(around)
            for axes, n in own.items():
                live[axes] = live.get(axes, 0) + n
            columns.append(live)
    items.sort(key=lambda x: -x[0].size)
    tiled = group | sum(nest.bits)
    return Bound(b.stores, loads, tuple(_largest(columns)), tiled, tuple(items), tuple(gathered))


def _slabs(b: Basis, nest: Nest, group: Axes, array: str, hold: int | None) -> tuple[Slab, ...]:
    """The loads of an array, held at a depth or not."""
    known: tuple[Slab, ...] | None = nest.slabs.get((group, array, hold))
    if known is not None:
        return known
    found: dict[tuple[int, Slot], list[Reading]] = {}
    for r in nest.readings:
        if r.array == array and r.sure:
            depth = _depth(r, r.natural if hold is None else hold)
            found.setdefault((depth, r.slot[:depth]), []).append(r)
    result = []
    for (_, key), readings in found.items():
        inside = group | nest.entered(key)
        r = max(readings, key=lambda r: (r.size, b.whole(inside & ~r.axes)))
        again = inside & ~r.axes
        moved = [(again, r.size)]
        other = next((x for x in readings if x.axes != r.axes and b.twins(r.read, x.read)), None)
        if other is not None:  # two tiles of one axis of the array: both, less what they share
            moved += [(inside & ~other.axes, r.size), (inside & ~(r.axes | other.axes), -r.size)]
        items = tuple(dict.fromkeys(_item(b, x, inside) for x in readings)) if b.density is not None else ()
        more = _gathered(b, r, inside) if b.density is None and other is None else None
        most = max(readings, key=lambda r: b.whole(r.tile & ~inside))
        result.append(Slab(key, _held(b, most, inside), tuple(moved), items, more))
    slabs = tuple(result)
    nest.slabs[group, array, hold] = slabs
    return slabs


def _held(b: Basis, r: Reading, inside: Axes) -> tuple[tuple[Axes, int], ...]:
    """What a slab holds in bits: a lookup's elements are no fewer than the tiles of axes that it has room for."""
    ways = [(r.tile & inside, r.bits * b.whole(r.tile & ~inside))]
    for g in r.gathers:
        if g.limit:
            rest = min(b.whole(g.axes & ~inside), g.limit)
            cut = [1 << k for k in members(g.axes & inside)]
            found = [(x, min(rest, g.limit // b.whole(x))) for x in cut if b.whole(x) <= g.limit]
            if all(n < rest for _, n in found):
                found.append((0, rest))
            ways = [(axes | x, size * n) for axes, size in ways for x, n in found]
    return tuple(ways)


def _item(b: Basis, r: Reading, inside: Axes) -> Item:
    """A reading that is loaded in the loops and groups ``inside``, under masks."""
    assert b.density is not None
    again = inside & ~r.axes
    names = tuple(a for _, a in b.masked(r.axes))
    plain = again & ~b.axes(b.density.axes)
    tiled = inside & r.axes if r.bits else 0  # a tile that an edge cuts does not take all that is in its cells
    return Item(r.read, names, b.masked(tiled), b.masked(again), plain, r.size)


def _gathered(b: Basis, r: Reading, inside: Axes) -> Gathered | None:
    """What the lookups of a reading that is loaded in the loops and groups ``inside`` add."""
    found = [(b.whole(g.axes & ~inside), replace(g, axes=g.axes & inside)) for g in r.gathers if g.axes & inside]
    return Gathered(r.size, inside & ~r.axes, tuple(found)) if found else None


def _live(b: Basis, nest: Nest, group: Axes) -> Mapping[Slot, list[dict[Axes, int]]]:
    """What is live besides slabs, by slot: coefficients of products of tiles for the moments that may hold most."""
    known: dict[Slot, list[dict[Axes, int]]] | None = nest.live.get(group)
    if known is None:
        found: dict[Slot, list[dict[Axes, int]]] = {}
        for m in nest.moments:
            live: dict[Axes, int] = {}
            for t in m.live:
                cut = t.axes & (group | t.entered)
                live[cut] = live.get(cut, 0) + t.bits * b.whole(t.axes & ~cut)
            found.setdefault(m.slot, []).append(live)
        known = {slot: _largest(moments) for slot, moments in found.items()}
        nest.live[group] = known
    return known


def holdable(nest: Nest) -> dict[str, tuple[int, ...]]:
    """For each array the depths, no further in than any of its reads', at which holding it may move less."""
    result: dict[str, tuple[int, ...]] = {}
    for array in dict.fromkeys(r.array for r in nest.readings):
        mine = [r for r in nest.readings if r.array == array]
        shallow = min(r.natural for r in mine)
        moves = [_moves(nest, mine, depth) for depth in range(shallow + 1)]
        moves.append(_moves(nest, mine, None))
        depths = tuple(p for p in range(shallow + 1) if moves[p] != moves[p + 1])
        if depths:
            result[array] = depths
    return result


def _moves(nest: Nest, readings: Sequence[Reading], held: int | None) -> list[list[Axes]]:
    """For each load of an array, the loops for whose trips it is loaded again, or partly again."""
    found: dict[Slot, set[Axes]] = {}
    for r in readings:
        key = r.slot[: _depth(r, r.natural if held is None else held)]
        found.setdefault(key, set()).add(nest.entered(key) & ~r.apart)
    return sorted(sorted(x) for x in found.values())


def late(nest: Nest, hold: Mapping[str, int]) -> bool:
    """Whether an index array is loaded further in than what it is looked up for, which no program can be."""
    depths = {(r.read, r.slot): _depth(r, min(r.natural, hold.get(r.array, r.natural))) for r in nest.readings}
    return any(
        depths.get((index, slot), 0) > depth
        for (read, slot), depth in depths.items()
        for form in read.index
        for lookup, _ in form.lookups
        for index in reads(lookup.expr)
    )


def _depth(r: Reading, depth: int) -> int:
    """The depth at which a reading held at ``depth`` is loaded: not in a loop that its reader is not in."""
    while depth and (r.slot[depth - 1] is None or (r.slot[depth - 1] or 0) % 2):
        depth -= 1
    return depth


def _largest(columns: list[dict[Axes, int]]) -> list[dict[Axes, int]]:
    """The columns that no other holds as much as, term by term."""
    kept: list[dict[Axes, int]] = []
    for live in sorted(columns, key=len, reverse=True):
        if not any(all(other.get(a, 0) >= c for a, c in live.items()) for other in kept):
            kept.append(live)
    return kept


def _products(factors: Sequence[Any], wanted: set[Axes]) -> dict[Axes, Any]:
    """The product of the factors of each set of axes."""
    result: dict[Axes, Any] = {0: 1}
    for axes in wanted:
        value: Any = 1
        for k in members(axes):
            value = value * factors[k]
        result[axes] = value
    return result


def transfers(bound: Bound, b: Basis, tiles: Sequence[Any]) -> Any:
    """Transfers of a bound in values, at tiles per axis (arrays that broadcast)."""
    trips = [-(-n // t) for n, t in zip(b.sizes, tiles, strict=True)]
    if b.density is None:
        counts = _products(trips, set(bound.loads))
        return sum((c * counts[a] for a, c in bound.loads.items()), bound.stores + _more(bound, trips, tiles))
    total: Any = bound.stores
    for load in bound.items:
        most: Any = 0
        for x in load:
            moved: Any = x.size * b.density.moved(x.read, x.axes, {a: tiles[k] for k, a in x.again})
            for k in members(x.plain):
                moved = moved * trips[k]
            most = np.maximum(most, moved) if len(load) > 1 else moved
        total = total + most
    return total


def _more(bound: Bound, trips: Sequence[Any], tiles: Sequence[Any]) -> Any:
    """What lookups add to the transfers of a bound."""
    total: Any = 0
    for x in bound.gathered:
        factor: Any = 1.0
        for whole, g in x.gathers:
            tile: Any = whole
            for k in members(g.axes):
                tile = tile * tiles[k]
            factor = factor * np.minimum(np.maximum(g.scale / tile, 1.0), g.most)
        more = x.size * (factor * ROUNDED - 1)
        for k in members(x.again):
            more = more * trips[k]
        total = total + more
    return total


def refined(bound: Bound, b: Basis, tiles: Sequence[Any], limit: float = float("inf")) -> float:
    """Under masks a closer bound of the transfers at one tiling; above ``limit`` any that is too."""
    if b.density is None:
        return float(transfers(bound, b, tiles))
    total = float(bound.stores)
    for load in bound.items:
        most = 0.0
        for x in load:
            again = {a: int(tiles[k]) for k, a in x.again}
            moved = x.size * b.density.at(x.read, x.axes, again, {a: int(tiles[k]) for k, a in x.tiled})
            for k in members(x.plain):
                moved *= -(-b.sizes[k] // int(tiles[k]))
            most = max(most, moved)
        total += most
        if total > limit:
            break
    return total


def memory(bound: Bound, tiles: Sequence[Any]) -> Any:
    """Memory of a bound in bits, at tiles per axis (arrays that broadcast)."""
    extents = _products(tiles, {a for c in bound.columns for a in c})
    most: Any = 0
    for column in bound.columns:
        most = np.maximum(most, sum(c * extents[a] for a, c in column.items()))
    return most


def split_cells(lo: Ints, hi: Ints, points: bool = False) -> tuple[Ints, Ints]:
    """Every cell halved along its longest range; cells of one point are dropped, unless ``points`` are kept."""
    open_ = (hi > lo).any(axis=0)
    single = lo[:, ~open_] if points else lo[:, :0]
    lo, hi = lo[:, open_], hi[:, open_]
    if not lo.shape[1]:
        return single, single
    widest = np.argmax(hi - lo, axis=0)
    cells = np.arange(lo.shape[1])
    middle = (lo[widest, cells] + hi[widest, cells]) // 2
    left_hi, right_lo = hi.copy(), lo.copy()
    left_hi[widest, cells] = middle
    right_lo[widest, cells] = middle + 1
    return np.concatenate([lo, right_lo, single], axis=1), np.concatenate([left_hi, hi, single], axis=1)
