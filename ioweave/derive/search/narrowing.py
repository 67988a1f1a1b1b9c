"""Whether any tiles keep a bound within a capacity and its transfers up to a ceiling.

The largest tiles of a range move least, its smallest hold least. So tiles too large to fit
beside the smallest of all other axes, and tiles too small beside the largest, are cut off the
range of every axis until nothing changes; what is left is halved.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ioweave.derive.counting.tiles import Ints
from ioweave.derive.search.nests import Basis, members
from ioweave.derive.search.relaxed import Bound, memory, split_cells, transfers

ALONE = 24  # ranges looked at one by one; where more are needed they are taken together
FEW = 64  # cells that NumPy takes as long for as for one

Terms = list[tuple[int, tuple[int, ...]]]  # coefficients of products over axes


def possible(
    bound: Bound,
    b: Basis,
    options: Mapping[str, Sequence[int]],
    capacity_bits: int,
    ceiling: float,
    hint: Sequence[int] | None = None,
) -> list[int] | None:
    """Tiles per axis that keep the bound within the capacity and its transfers up to the ceiling, or None.

    ``options`` are the tiles of every axis, ascending; ``hint`` is tried first.
    """
    axes = b.frame.axes
    smallest = [options[a][0] if bound.tiled >> k & 1 else b.sizes[k] for k, a in enumerate(axes)]
    columns: list[Terms] = [[(c, members(a)) for a, c in column.items()] for column in bound.columns]
    if hint is not None:
        tiles = [t if bound.tiled >> k & 1 else b.sizes[k] for k, t in enumerate(hint)]
        if transfers(bound, b, tiles) <= ceiling and _held(columns, tiles) <= capacity_bits:
            return tiles
    felt = [*bound.loads, *(g.axes for x in bound.gathered for _, g in x.gathers)]
    moving = [k for k in range(len(axes)) if any(a >> k & 1 for a in felt) and axes[k] not in b.frame.batch]
    space = _Space(bound, b, columns, moving, [options[axes[k]] for k in moving], smallest, capacity_bits, ceiling)
    return space.search()


def _held(columns: Sequence[Terms], tiles: Sequence[int]) -> int:
    most = 0
    for column in columns:
        live = 0
        for c, axes in column:
            for k in axes:
                c *= tiles[k]
            live += c
        most = max(most, live)
    return most


class _Space:
    """Ranges of the tiles of ``moving`` axes, by number; all others are at their ``smallest``."""

    def __init__(
        self,
        bound: Bound,
        b: Basis,
        columns: list[Terms],
        moving: list[int],
        options: list[Sequence[int]],
        smallest: list[int],
        capacity_bits: int,
        ceiling: float,
    ) -> None:
        self.bound, self.basis, self.columns, self.moving, self.options = bound, b, columns, moving, options
        self.smallest, self.capacity_bits, self.ceiling = smallest, capacity_bits, ceiling
        self.loads: Terms = [(c, members(a)) for a, c in bound.loads.items()]

    def tiles(self, index: Sequence[int]) -> list[int]:
        """The tiles per axis at these places of the options."""
        tiles = list(self.smallest)
        for k, o, i in zip(self.moving, self.options, index, strict=True):
            tiles[k] = o[i]
        return tiles

    def search(self) -> list[int] | None:
        """Tiles within both limits."""
        ranges = [([0] * len(self.moving), [len(o) - 1 for o in self.options])]
        for _ in range(ALONE):
            if not ranges:
                return None
            lo, hi = ranges.pop()
            if not self._narrow(lo, hi):
                continue
            large = self.tiles(hi)
            if _held(self.columns, large) <= self.capacity_bits:
                return large
            small = self.tiles(lo)
            if transfers(self.bound, self.basis, small) <= self.ceiling:
                return small
            widest = max(range(len(lo)), key=lambda k: hi[k] - lo[k])
            middle = (lo[widest] + hi[widest]) // 2
            below, above = list(hi), list(lo)
            below[widest], above[widest] = middle, middle + 1
            ranges += ((lo, below), (above, hi))
        return self._together(ranges)

    def _narrow(self, lo: list[int], hi: list[int]) -> bool:
        """Cut a range at both ends, in place; False where nothing of it is within both limits."""
        while True:
            if not self._cut_above(lo, hi):
                return False
            before = list(lo)
            linear = self.basis.density is None and not self.bound.gathered
            if not (self._cut_below(lo, hi) if linear else self._cut_below_curved(lo, hi)):
                return False
            if lo == before:
                return True

    def _cut_above(self, lo: list[int], hi: list[int]) -> bool:
        small = self.tiles(lo)
        room: list[int] = []
        slopes: list[dict[int, int]] = []
        for column in self.columns:
            left, slope = self.capacity_bits, dict[int, int]()
            for c, axes in column:
                for k in axes:
                    c *= small[k]
                left -= c
                for k in axes:
                    slope[k] = slope.get(k, 0) + c // small[k]
            if left < 0:
                return False
            room.append(left)
            slopes.append(slope)
        for j, k in enumerate(self.moving):
            if hi[j] > lo[j]:
                more = min((left // s[k] for left, s in zip(room, slopes, strict=True) if s.get(k)), default=None)
                if more is not None:
                    hi[j] = min(hi[j], bisect_right(self.options[j], small[k] + more) - 1)
        return True

    def _cut_below(self, lo: list[int], hi: list[int]) -> bool:
        sizes = self.basis.sizes
        trips = [-(-n // t) for n, t in zip(sizes, self.tiles(hi), strict=True)]
        left = self.ceiling - self.bound.stores
        slope: dict[int, int] = {}
        for c, axes in self.loads:
            for k in axes:
                c *= trips[k]
            left -= c
            for k in axes:
                slope[k] = slope.get(k, 0) + c // trips[k]
        if left < 0:
            return False
        if left < float("inf"):
            for j, k in enumerate(self.moving):
                if hi[j] > lo[j] and slope.get(k):
                    most = trips[k] + int(left // slope[k])
                    lo[j] = max(lo[j], bisect_left(self.options[j], -(-sizes[k] // most)))
        return True

    def _cut_below_curved(self, lo: list[int], hi: list[int]) -> bool:
        large: list[Any] = list(self.tiles(hi))
        if transfers(self.bound, self.basis, large) > self.ceiling:
            return False
        if self.ceiling < float("inf"):
            for j, k in enumerate(self.moving):
                if hi[j] > lo[j]:
                    some = np.array(self.options[j][lo[j] : hi[j] + 1])
                    within = transfers(self.bound, self.basis, [*large[:k], some, *large[k + 1 :]]) <= self.ceiling
                    lo[j] += int(np.argmax(np.broadcast_to(within, some.shape)))
        return True

    def _together(self, ranges: list[tuple[list[int], list[int]]]) -> list[int] | None:
        """The same for many ranges at once."""
        lo, hi = (np.array(x, dtype=np.int64).T for x in zip(*ranges, strict=True))
        options = [np.array(o, dtype=np.int64) for o in self.options]

        def at(index: Ints) -> list[Any]:
            tiles: list[Any] = list(self.smallest)
            for k, o, row in zip(self.moving, options, index, strict=True):
                tiles[k] = o[row]
            return tiles

        while lo.shape[1]:
            within = np.broadcast_to(transfers(self.bound, self.basis, at(hi)) <= self.ceiling, lo.shape[1:])
            lo, hi = lo[:, within], hi[:, within]
            fits = np.broadcast_to(memory(self.bound, at(lo)) <= self.capacity_bits, lo.shape[1:])
            lo, hi = lo[:, fits], hi[:, fits]
            small = np.broadcast_to(transfers(self.bound, self.basis, at(lo)) <= self.ceiling, lo.shape[1:])
            good = np.flatnonzero(small)
            if len(good):
                return [int(t) for t in at(lo[:, good[0]])]
            lo, hi = split_cells(lo, hi)
            if lo.shape[1] < FEW:  # so few cost as much as twice as many
                lo, hi = split_cells(lo, hi, points=True)
        return None
