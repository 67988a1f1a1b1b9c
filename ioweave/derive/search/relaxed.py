"""A lower bound on what a shape moves and holds, found without building its program.

Loads are counted as the shape demands, less what masks may remove. Of memory, what is surely
live while each box runs: its operands and result, the states of the loops around it, and the
slabs loaded around it (`ioweave.derive.search.nests`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ioweave.derive.counting.tiles import Ints
from ioweave.derive.program.slots import Slot
from ioweave.derive.search.nests import Axes, Basis, Nest, Reading
from ioweave.diagrams.expressions import Read

FEW = 64  # cells that NumPy takes as long for as for one

Sum = Mapping[Axes, int]  # coefficients of products over sets of axes


@dataclass(frozen=True, slots=True)
class Item:
    """A load under masks: the axes that index it, those of which it takes a tile, those for whose tiles it recurs."""

    read: Read
    axes: Axes
    tiled: Axes
    again: Axes
    size: int


@dataclass(frozen=True)
class Bound:
    """A shape's bound: loads as coefficients of products of numbers of tiles; columns, in bits, of products of tiles.

    A column's axes that are whole are multiplied into its coefficients. Under masks ``items``
    tell the loads apart.
    """

    stores: int
    loads: Sum
    columns: tuple[Sum, ...]
    tiled: Axes
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Slab:
    """A load: the slot in which it is made, and the readings that it covers for sure."""

    key: Slot
    readings: tuple[Reading, ...]


def slabs(nest: Nest, hold: Mapping[str, int]) -> list[Slab]:
    """The loads of a nest under these holds."""
    found: dict[tuple[str, int, Slot], list[Reading]] = {}
    for r in nest.readings:
        depth = _depth(r, hold.get(r.array, r.natural))
        if r.sure:
            found.setdefault((r.array, depth, r.slot[:depth]), []).append(r)
    return [Slab(key, tuple(readings)) for (_, _, key), readings in found.items()]


def relaxed(b: Basis, nest: Nest, group: Axes, hold: Mapping[str, int], free: Mapping[str, int] | None = None) -> Bound:
    """The bound of a nest, some axes grouped, some arrays held.

    Arrays in ``free`` may yet be held as far out as the depth given there: they move as little
    as where they are, and take as little memory as where they are not. Of several readings in
    one load that counts which surely moves, or holds, most.
    """
    here = slabs(nest, hold)
    moved = slabs(nest, {**hold, **free}) if free else here
    loads: dict[Axes, int] = {}
    items: list[Item] = []
    for s in moved:
        inside = group | nest.entered(s.key)
        r = max(s.readings, key=lambda r: (r.size, b.whole(inside & ~r.axes)))
        again = inside & ~r.axes
        loads[again] = loads.get(again, 0) + r.size
        other = next((x for x in s.readings if b.twins(r.read, x.read)), None)
        if other is not None:  # two tiles of one axis of the array: both, less what they share
            for axes, sign in ((other.axes, 1), (r.axes | other.axes, -1)):
                loads[inside & ~axes] = loads.get(inside & ~axes, 0) + sign * r.size
        if b.density is not None:
            items.append(Item(r.read, r.axes, inside & r.axes, again, r.size))

    def add(live: dict[Axes, int], bits: int, axes: Axes, entered: Axes) -> None:
        cut = axes & (group | entered)
        live[cut] = live.get(cut, 0) + bits * b.whole(axes & ~cut)

    slab: list[tuple[Slot, Reading, Axes]] = []
    for s in here:
        entered = nest.entered(s.key)
        r = max(s.readings, key=lambda r: b.whole(r.tile & ~(group | entered)))
        slab.append((s.key, r, entered))
    columns: list[dict[Axes, int]] = []
    for m in nest.moments:
        live: dict[Axes, int] = {}
        for t in m.live:
            add(live, t.bits, t.axes, t.entered)
        once: set[str] = set()  # held, several loads of one array may become one
        for key, r, entered in slab:
            if m.slot[: len(key)] == key and r.array not in once:
                add(live, r.bits, r.tile, entered)
                if free and r.array in free:
                    once.add(r.array)
        columns.append(live)
    return Bound(b.stores, loads, tuple(_largest(columns)), group | sum(nest.bits), tuple(items))


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
        for k, x in enumerate(factors):
            if axes >> k & 1:
                value = value * x
        result[axes] = value
    return result


def transfers(bound: Bound, b: Basis, tiles: Sequence[Any]) -> Any:
    """Transfers of a bound in values, at tiles per axis (arrays that broadcast)."""
    trips = [-(-n // t) for n, t in zip(b.sizes, tiles, strict=True)]
    if b.density is None:
        counts = _products(trips, set(bound.loads))
        return bound.stores + sum(c * counts[a] for a, c in bound.loads.items())
    hidden = b.axes(b.density.axes)
    plain = _products(trips, {x.again & ~hidden for x in bound.items})
    total: Any = bound.stores
    for x in bound.items:
        moved = b.density.moved(x.read, b.names(x.axes & hidden), _of(b, x.again & hidden, tiles))
        total = total + x.size * moved * plain[x.again & ~hidden]
    return total


def refined(bound: Bound, b: Basis, tiles: Sequence[Any]) -> float:
    """Under masks a closer bound of the transfers at one tiling."""
    if b.density is None:
        return float(transfers(bound, b, tiles))
    hidden = b.axes(b.density.axes)
    trips = [-(-n // int(t)) for n, t in zip(b.sizes, tiles, strict=True)]
    plain = _products(trips, {x.again & ~hidden for x in bound.items})
    total = float(bound.stores)
    for x in bound.items:
        again = _of(b, x.again & hidden, tiles)
        moved = b.density.at(x.read, b.names(x.axes & hidden), again, _of(b, x.tiled & hidden, tiles))
        total += x.size * moved * plain[x.again & ~hidden]
    return total


def _of(b: Basis, axes: Axes, tiles: Sequence[Any]) -> dict[str, Any]:
    """The tiles of some axes, by name."""
    return {a: tiles[k] for k, a in enumerate(b.frame.axes) if axes >> k & 1}


def memory(bound: Bound, tiles: Sequence[Any]) -> Any:
    """Memory of a bound in bits, at tiles per axis (arrays that broadcast)."""
    extents = _products(tiles, {a for c in bound.columns for a in c})
    most: Any = 0
    for column in bound.columns:
        most = np.maximum(most, sum(c * extents[a] for a, c in column.items()))
    return most


def possible(
    bound: Bound,
    b: Basis,
    options: Mapping[str, Ints],
    capacity_bits: int,
    ceiling: float,
    hint: Sequence[int] | None = None,
) -> list[int] | None:
    """Tiles per axis that keep the bound within the capacity and its transfers up to the ceiling, or None.

    By bisection of the range of every axis on which transfers depend: the largest tiles of a
    cell move least, its smallest hold least. ``hint`` is tried first.
    """
    axes = b.frame.axes
    smallest: list[int] = [int(options[a][0]) if bound.tiled >> k & 1 else b.sizes[k] for k, a in enumerate(axes)]
    if hint is not None:
        tiles = [int(t) if bound.tiled >> k & 1 else b.sizes[k] for k, t in enumerate(hint)]
        if transfers(bound, b, tiles) <= ceiling and memory(bound, tiles) <= capacity_bits:
            return tiles
    moving = [k for k in range(len(axes)) if any(a >> k & 1 for a in bound.loads) and axes[k] not in b.frame.batch]
    top = _largest_alone(bound, moving, smallest, [options[a] for a in axes], capacity_bits)
    if top is None:
        return None
    largest = list(smallest)
    for k, last in zip(moving, top, strict=True):
        largest[k] = int(options[axes[k]][last])
    if transfers(bound, b, largest) > ceiling:
        return None

    def at(index: Ints) -> list[Any]:
        tiles: list[Any] = list(smallest)
        for k, row in zip(moving, index, strict=True):
            tiles[k] = options[axes[k]][row]
        return tiles

    lo = np.zeros((len(moving), 1), dtype=np.int64)
    hi = np.array(top, dtype=np.int64).reshape(len(moving), 1)
    while lo.shape[1]:
        within = np.broadcast_to(transfers(bound, b, at(hi)) <= ceiling, lo.shape[1:])
        lo, hi = lo[:, within], hi[:, within]
        if not lo.shape[1]:
            return None
        fits = np.broadcast_to(memory(bound, at(lo)) <= capacity_bits, lo.shape[1:])
        lo, hi = lo[:, fits], hi[:, fits]
        good = np.flatnonzero(np.broadcast_to(transfers(bound, b, at(lo)) <= ceiling, lo.shape[1:]))
        if len(good):
            return [int(t) for t in at(lo[:, good[0]])]
        lo, hi = split_cells(lo, hi)
        if lo.shape[1] < FEW:  # so few cost as much as twice as many
            lo, hi = split_cells(lo, hi, points=True)
    return None


def _largest_alone(
    bound: Bound, moving: Sequence[int], smallest: Sequence[int], options: Sequence[Ints], capacity_bits: int
) -> list[int] | None:
    """For each axis the last of its tiles that fits while all others are at their smallest; None where none does."""
    room = [capacity_bits - sum(_times(c, a, smallest, -1) for a, c in column.items()) for column in bound.columns]
    if min(room, default=0) < 0:
        return None
    top = []
    for k in moving:
        largest: float = float("inf")
        for column, left in zip(bound.columns, room, strict=True):
            slope = sum(_times(c, a, smallest, k) for a, c in column.items() if a >> k & 1)
            if slope:
                largest = min(largest, smallest[k] + left // slope)
        top.append(bisect_right(options[k], largest) - 1)
    return top


def _times(coefficient: int, axes: Axes, tiles: Sequence[int], leave_out: int) -> int:
    """A coefficient times the tiles of its axes, but for one."""
    k = 0
    while axes:
        if axes & 1 and k != leave_out:
            coefficient *= tiles[k]
        axes >>= 1
        k += 1
    return coefficient


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
