"""A lower bound on what a shape moves, found without expanding its program.

Loads are counted as the shape demands, less what masks may remove. Of memory only this is counted: while a box runs inside
a loop that accumulates a state from its result, its own tiles, that state, and the slabs of the
boxes on the way to the state are live together. What is loaded deeper than the box is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from bisect import bisect_right
from math import prod
from typing import Any

import numpy as np

from ioweave.derive.counting.tiles import Ints
from ioweave.derive.program.build import Shape
from ioweave.derive.program.held import held_dtypes
from ioweave.derive.search.density import Density
from ioweave.derive.search.shapes import Frame
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Read

Axes = int  # a set of axes, as bits in the order of the frame
Tile = tuple[int, Axes]  # bits per value, axes
Slab = tuple[str, int, Axes, Axes]  # array, bits, axes that index it, axes whose tiles it surely spans
Sum = Mapping[Axes, int]  # coefficients of products over sets of axes


@dataclass(frozen=True)
class Node:
    """A box as its bound sees it: its axes, the slabs that it reads, and the tiles that it holds itself."""

    name: str
    axes: Axes
    over: Axes
    slabs: tuple[Slab, ...]
    own: tuple[Tile, ...]
    result: Tile


@dataclass(frozen=True)
class Basis:
    """What the bounds of all shapes of a region share."""

    frame: Frame
    sizes: tuple[int, ...]
    chains: tuple[tuple[Node, Mapping[Axes, tuple[Node, ...]]], ...]
    loads: tuple[tuple[str, Axes, int], ...]
    stores: int
    density: Density | None
    _whole: dict[Axes, int] = field(default_factory=dict, compare=False, repr=False)

    def whole(self, axes: Axes) -> int:
        """The product of the sizes of some axes."""
        if axes not in self._whole:
            self._whole[axes] = prod(n for k, n in enumerate(self.sizes) if axes >> k & 1)
        return self._whole[axes]


@dataclass(frozen=True)
class Bound:
    """A shape's bound: loads as coefficients of products of numbers of tiles; columns, in bits, of products of tiles.

    A column's axes that are whole are multiplied into its coefficients. Under masks ``items``
    tell the loads apart: array, axes that index it, axes for whose tiles it is loaded again, size.
    """

    stores: int
    loads: Sum
    columns: tuple[Sum, ...]
    tiled: Axes
    items: tuple[tuple[str, Axes, Axes, int], ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for shapes with equal bounds."""
        return (tuple(sorted(self.loads.items())), self.items, frozenset(tuple(sorted(c.items())) for c in self.columns))


def basis(
    f: Frame,
    boxes: Sequence[Box],
    stored: frozenset[str],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
    sizes: Mapping[str, int],
    accumulate: str,
    density: Density | None,
) -> Basis:
    """Collect a region's basis. ``density`` is None where no mask removes a read."""
    made = {b.name for b in boxes}
    held = held_dtypes(boxes, accumulate)
    bit = {a: 1 << k for k, a in enumerate(f.axes)}

    def axes_of(names: Sequence[str]) -> Axes:
        return sum(bit[a] for a in dict.fromkeys(names))

    loads: dict[str, tuple[Axes, int]] = {}
    nodes, parents = [], {}
    for b in boxes:
        slabs: dict[Slab, None] = {}
        own: dict[Tile, None] = {}
        for r in b.reads():
            plain = not any(form.sizes or form.offset < 0 for form in r.index)
            axes = axes_of([a for form in r.index for a in form.names])
            tile = axes_of(_leading(r, sizes))
            if r.array in made:
                if b.reduction is not None and plain:
                    own.setdefault((DTYPES[held[r.array]].bits, tile))
            elif plain:
                slabs.setdefault((r.array, DTYPES[dtypes[r.array]].bits, axes, tile))
                loads.setdefault(r.array, (axes, prod(sizes[a] for a in _leading(r, sizes))))
        parents[b.name] = tuple(r.array for r in b.reads() if r.array in made)
        result = (DTYPES[held[b.name]].bits, axes_of(b.axes))
        nodes.append(Node(b.name, axes_of(b.all_axes), axes_of(b.over), tuple(slabs), tuple(own), result))
    stores = sum(prod(shapes[b.name]) for b in boxes if b.name in stored)
    sizes_of = tuple(sizes[a] for a in f.axes)
    chains = tuple((n, _chains(n, {m.name: m for m in nodes}, parents)) for n in nodes)
    return Basis(f, sizes_of, chains, tuple((a, x, n) for a, (x, n) in loads.items()), stores, density)


def _leading(r: Read, sizes: Mapping[str, int]) -> list[str]:
    """One axis for each position of a read, the longest: the tile of a window is no shorter than its axis'."""
    chosen: list[str] = []
    for form in r.index:
        free = [a for a, c in form.axes if a not in chosen]
        if free:
            chosen.append(max(free, key=lambda a: sizes[a]))
    return chosen


def _chains(
    state: Node, nodes: Mapping[str, Node], parents: Mapping[str, tuple[str, ...]]
) -> dict[Axes, tuple[Node, ...]]:
    """For each axis that a box reduces, the boxes on the way to it inside a loop over that axis, itself first."""
    result: dict[Axes, tuple[Node, ...]] = {}
    loop = 1
    while loop <= state.over:
        if state.over & loop:
            chain, frontier = {state.name: state}, [state.name]
            while frontier:
                for parent in parents[frontier.pop()]:
                    n = nodes[parent]
                    if parent not in chain and loop & n.axes and not loop & n.over:
                        chain[parent] = n
                        frontier.append(parent)
            result[loop] = tuple(chain.values())
        loop <<= 1
    return result


def relaxed(b: Basis, shape: Shape) -> Bound:
    """The bound of one shape."""
    bit = {a: 1 << k for k, a in enumerate(b.frame.axes)}
    hold = dict(shape.hold)
    loops = [bit[a] for a in shape.loops]
    group = sum(bit[a] for a in shape.group)
    inside = [0]
    for x in loops:
        inside.append(inside[-1] | x)
    every = inside[-1]
    tiled = group | every

    def depth(name: str, axes: Axes) -> int:
        if name in hold:
            return hold[name]
        return max((p + 1 for p, x in enumerate(loops) if x & axes), default=0)

    depths = {(name, axes): depth(name, axes) for n, _ in b.chains for name, _, axes, _ in n.slabs}
    loads: dict[Axes, int] = {}
    items: list[tuple[str, Axes, Axes, int]] = []
    for name, axes, size in b.loads:
        again = (group | inside[depth(name, axes)]) & ~axes
        loads[again] = loads.get(again, 0) + size
        if b.density is not None:
            items.append((name, axes, again, size))

    def add(live: dict[Axes, int], bits: int, axes: Axes, entered: Axes) -> None:
        cut = axes & (group | entered)
        live[cut] = live.get(cut, 0) + bits * b.whole(axes & ~cut)

    columns: list[Sum] = []

    def column(node: Node, chain: Sequence[Node], state: Node | None) -> None:
        live: dict[Axes, int] = {}
        seen: set[tuple[str, Axes]] = set()
        for n in chain:
            for name, bits, axes, tile in n.slabs:
                within = inside[depths[name, axes]]
                if (name, axes) not in seen and (n is node or not within & ~node.axes):
                    seen.add((name, axes))
                    add(live, bits, tile, within)
        for bits, axes in node.own:
            add(live, bits, axes, every)
        if state is not None:
            first = next(p for p, x in enumerate(loops) if x & state.over)
            add(live, *state.result, inside[first])
        if node is not state:
            add(live, *node.result, every)
        if live not in columns:
            columns.append(live)

    for state, chains in b.chains:
        for loop in loops:
            chain = chains.get(loop)
            if chain is not None:
                for node in chain:
                    if node.slabs or node.own or node is state:
                        column(node, chain, state)
        if not state.over & every:
            column(state, (state,), None)
    return Bound(b.stores, loads, tuple(columns), tiled, tuple(items))


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
    counts = _products([-(-n // t) for n, t in zip(b.sizes, tiles, strict=True)], set(bound.loads))
    if b.density is None:
        return bound.stores + sum(c * counts[a] for a, c in bound.loads.items())
    names = b.frame.axes
    hidden = sum(1 << k for k, a in enumerate(names) if a in b.density.axes)
    total: Any = bound.stores
    plain = _products([-(-n // t) for n, t in zip(b.sizes, tiles, strict=True)], {x[2] & ~hidden for x in bound.items})
    for name, axes, again, size in bound.items:
        index = [a for k, a in enumerate(names) if axes & hidden & 1 << k]
        repeated = {a: tiles[k] for k, a in enumerate(names) if again & hidden & 1 << k}
        total = total + size * b.density.moved(name, index, repeated) * plain[again & ~hidden]
    return total


def memory(bound: Bound, tiles: Sequence[Any]) -> Any:
    """Memory of a bound in bits, at tiles per axis (arrays that broadcast)."""
    extents = _products(tiles, {a for c in bound.columns for a in c})
    most: Any = 0
    for column in bound.columns:
        most = np.maximum(most, sum(c * extents[a] for a, c in column.items()))
    return most


def possible(
    bound: Bound, b: Basis, options: Mapping[str, Ints], capacity_bits: int, ceiling: float
) -> bool:
    """Whether some tiles keep the bound within the capacity and its transfers up to the ceiling.

    By bisection of the range of every axis on which transfers depend: the largest tiles of a
    cell move least, its smallest hold least.
    """
    axes = b.frame.axes
    moving = [k for k in range(len(axes)) if any(a >> k & 1 for a in bound.loads) and axes[k] not in b.frame.batch]
    smallest: list[Any] = [options[a][0] if bound.tiled >> k & 1 else b.sizes[k] for k, a in enumerate(axes)]

    def at(index: Ints) -> list[Any]:
        tiles = list(smallest)
        for k, row in zip(moving, index, strict=True):
            tiles[k] = options[axes[k]][row]
        return tiles

    top = _largest_alone(bound, moving, [int(t) for t in smallest], [options[a] for a in axes], capacity_bits)
    if top is None:
        return False
    tiles = list(smallest)
    for k, (last,) in zip(moving, top, strict=True):
        tiles[k] = int(options[axes[k]][last])
    if transfers(bound, b, tiles) > ceiling:
        return False
    lo = np.zeros((len(moving), 1), dtype=np.int64)
    hi = np.array(top, dtype=np.int64).reshape(len(moving), 1)
    while lo.shape[1]:
        within = np.broadcast_to(transfers(bound, b, at(hi)) <= ceiling, lo.shape[1:])
        lo, hi = lo[:, within], hi[:, within]
        if not lo.shape[1]:
            return False
        fits = np.broadcast_to(memory(bound, at(lo)) <= capacity_bits, lo.shape[1:])
        lo, hi = lo[:, fits], hi[:, fits]
        if np.any(np.broadcast_to(transfers(bound, b, at(lo)) <= ceiling, lo.shape[1:])):
            return bool(lo.shape[1])
        lo, hi = split_cells(lo, hi)
    return False


def _largest_alone(
    bound: Bound, moving: Sequence[int], smallest: Sequence[int], options: Sequence[Ints], capacity_bits: int
) -> list[list[int]] | None:
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
        last = bisect_right(options[k], largest) - 1
        top.append([last])
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


def split_cells(lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
    """Every cell halved along its longest range; cells of one point are dropped."""
    open_ = (hi > lo).any(axis=0)
    lo, hi = lo[:, open_], hi[:, open_]
    if not lo.shape[1]:
        return lo, hi
    widest = np.argmax(hi - lo, axis=0)
    cells = np.arange(lo.shape[1])
    middle = (lo[widest, cells] + hi[widest, cells]) // 2
    left_hi, right_lo = hi.copy(), lo.copy()
    left_hi[widest, cells] = middle
    right_lo[widest, cells] = middle + 1
    return np.concatenate([lo, right_lo], axis=1), np.concatenate([left_hi, hi], axis=1)
