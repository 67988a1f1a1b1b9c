"""Tiles of axes: the intervals that instances and trips cover, ragged last ones included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Beyond this many tiles, equal ones in the middle are one class with a weight.
ENUMERATED = 1 << 20
EDGE = 1 << 12


@dataclass(frozen=True)
class Intervals:
    """Half-open intervals ``lo .. hi`` of one axis, each standing for ``weight`` tiles of its length."""

    lo: Ints
    hi: Ints
    weight: Ints

    @property
    def count(self) -> int:
        """How many tiles there are."""
        return int(self.weight.sum())


def ceil_div(a: int, b: int) -> int:
    """The least integer at or above a / b."""
    return -(-a // b)


def cut(size: int, tile: int) -> Intervals:
    """An axis of ``size`` in tiles of ``tile``, the last one ragged."""
    tile = min(tile, size)
    n = ceil_div(size, tile)
    if n <= ENUMERATED:
        lo = np.arange(n, dtype=np.int64) * tile
        return Intervals(lo, np.minimum(lo + tile, size), np.ones(n, dtype=np.int64))
    first = np.arange(EDGE, dtype=np.int64)
    last = np.arange(n - EDGE, n, dtype=np.int64)
    index = np.concatenate([first, [EDGE], last])
    weight = np.ones(len(index), dtype=np.int64)
    weight[EDGE] = n - 2 * EDGE
    lo = index * tile
    return Intervals(lo, np.minimum(lo + tile, size), weight)


def cut_twice(size: int, group: int, step: int) -> Intervals:
    """Steps that restart in each group tile (counting.md 15)."""
    group = min(group, size)
    outer = ceil_div(size, group)
    inner = cut(group, step)
    if outer * len(inner.lo) <= ENUMERATED:
        tiles = cut(size, group)
        lo = (tiles.lo[:, None] + inner.lo[None, :]).ravel()
        hi = np.minimum((tiles.lo[:, None] + inner.hi[None, :]).ravel(), size)
        keep = lo < size
        weight = np.tile(inner.weight, len(tiles.lo))
        return Intervals(lo[keep], hi[keep], weight[keep])
    last = (outer - 1) * group
    end = cut(size - last, step)
    return Intervals(
        np.concatenate([inner.lo, end.lo + last]),
        np.concatenate([inner.hi, end.hi + last]),
        np.concatenate([inner.weight * (outer - 1), end.weight]),
    )


@dataclass(frozen=True)
class Tiles:
    """Concrete tile sizes: ``group`` and ``stream`` by axis component, over ``sizes``."""

    group: Mapping[str, int]
    stream: Mapping[str, int]
    sizes: Mapping[str, int]
    _cache: dict[tuple[str, bool], Intervals] = field(default_factory=dict, compare=False, repr=False)

    def intervals(self, axis: str, entered: bool) -> Intervals:
        """The tiles of an axis: its steps if its loop is entered, else its group tiles, else all of it."""
        key = (axis, entered and axis in self.stream)
        if key not in self._cache:
            self._cache[key] = self._intervals(*key)
        return self._cache[key]

    def _intervals(self, axis: str, entered: bool) -> Intervals:
        size = self.sizes[axis]
        if entered and axis in self.group:
            return cut_twice(size, self.group[axis], self.stream[axis])
        if entered:
            return cut(size, self.stream[axis])
        return cut(size, self.group.get(axis, size))

    def tiled(self, axis: str, entered: bool) -> bool:
        """Whether the axis comes in tiles at this point."""
        return axis in self.group or (entered and axis in self.stream)

    def number(self, axis: str, entered: bool) -> int:
        """How many tiles the axis has at this point, over all instances."""
        return self.intervals(axis, entered).count

    @cached_property
    def instances(self) -> int:
        """How many instances of the region there are."""
        n = 1
        for axis in self.group:
            n *= self.number(axis, False)
        return n
