"""How dense a region's masks are: a lower bound on the share of reads that no tiling can remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from ioweave.derive.counting.entries import Column, Entries
from ioweave.derive.counting.masks import Survival, decides, predicates, survival
from ioweave.derive.counting.region import trace
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.program import Program
from ioweave.derive.program.setting import Setting
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import free_axes

GRID = 128  # tiles along each masked axis


@dataclass(frozen=True)
class Density:
    """On a grid of tiles of the masked axes, where every element of an array is surely needed.

    ``needed`` maps an array to a grid of flags; ``weight`` is the share of each tile;
    ``anchored`` tells that in every tiling some full tile has nothing removed, so that all that
    may be live at once is.
    """

    axes: tuple[str, ...]
    needed: Mapping[str, Any]
    weight: tuple[Any, ...]
    sizes: tuple[int, ...]
    cells: tuple[int, ...]
    anchored: bool
    _moved: dict[tuple[str, tuple[str, ...], str, int], float] = field(default_factory=dict, compare=False, repr=False)

    def share(self, array: str, axes: Sequence[str]) -> float:
        """The least share of (element, reader) pairs over ``axes`` that must be moved.

        Along masked axes outside ``axes`` one reader that needs the element is enough.
        """
        flags = self.needed.get(array)
        if flags is None:
            return 0.0
        for k in reversed(range(len(self.axes))):
            if self.axes[k] in axes:
                flags = np.tensordot(flags, self.weight[k], axes=(k, 0))
            else:
                flags = flags.max(axis=k)
        return float(flags)

    def moved(self, array: str, axes: Sequence[str], again: Mapping[str, Any]) -> Any:
        """How often an array is moved at least, as a multiple of its size.

        ``axes`` are the masked axes that index it; ``again`` gives the tile sizes (arrays) of
        masked axes for whose every tile it is loaded again.
        """
        if not again:
            return self.share(array, axes)
        even: Any = self.share(array, [*axes, *again])
        for a, t in again.items():
            even = even * (self.sizes[self.axes.index(a)] / t)
        if len(again) > 1:
            return even
        ((axis, tiles),) = again.items()
        distinct, back = np.unique(tiles, return_inverse=True)
        table = np.array([self._of_tile(array, tuple(axes), axis, int(t)) for t in distinct])
        return np.maximum(even, table[back].reshape(np.shape(tiles)))

    def _of_tile(self, array: str, axes: tuple[str, ...], axis: str, tile: int) -> float:
        """The same for one tile size of one axis: a tile needs what the whole cells inside it need."""
        key = (array, axes, axis, tile)
        if key not in self._moved:
            self._moved[key] = self._union_of_cells(*key)
        return self._moved[key]

    def _union_of_cells(self, array: str, axes: tuple[str, ...], axis: str, tile: int) -> float:
        flags = self.needed.get(array)
        at = self.axes.index(axis)
        size, cell = self.sizes[at], self.cells[at]
        if flags is None or tile < cell:
            return 0.0
        order = [at, *(k for k in range(len(self.axes)) if k != at)]
        flags = np.transpose(flags, order)
        for place in reversed(range(1, len(order))):
            if self.axes[order[place]] not in axes:
                flags = flags.max(axis=place)
        rest = [k for k in order[1:] if self.axes[k] in axes]
        lo = np.arange(0, size, tile)
        hi = np.minimum(lo + tile, size)
        first, after = -(-lo // cell), np.where(hi == size, len(flags), hi // cell)
        some = after > first
        if not some.any():
            return 0.0
        edges = np.stack([first[some], after[some]], axis=1).ravel()
        padded = np.concatenate([flags, np.zeros_like(flags[:1])])
        unions = np.maximum.reduceat(padded, edges, axis=0)[::2]
        for k in reversed(rest):
            unions = unions @ self.weight[k]
        return float(unions.sum())


def density(boxes: Sequence[Box], stored: frozenset[str], setting: Setting) -> Density | None:
    """The density of a region's masks; None where it has none. Where it cannot be found it is zero."""
    if not any(decides(b) for b in boxes):
        return None
    axes = tuple(dict.fromkeys(a for b in boxes for p in predicates(b) for a in free_axes(p)))
    grid = GRID if len(axes) <= 2 else max(int(GRID ** (2 / len(axes))), 2)
    tiles = {a: -(-setting.sizes[a] // grid) for a in axes}
    try:
        program = build("", boxes, stored, Shape((), axes), setting)
        t = Tiles({}, tiles, setting.sizes)
        survive = trace(program, t, setting, whole=True)
    except Refused:
        return Density((), {}, (), (), (), False)
    if survive is None or (not axes and _everything(survive)):
        return None
    shape = tuple(t.number(a, True) for a in axes)
    needed: dict[str, Any] = {}
    order = [survive.entries.columns[a].cell for a in axes]
    for (_, read, _), alive in survive.reads.items():
        flags = np.zeros(shape)
        flags[tuple(order)] = (alive & survive.definite).reshape(-1)[: flags.size] if axes else np.all(alive)
        needed[read.array] = np.maximum(needed.get(read.array, 0.0), flags)
    weight = []
    for a in axes:
        cells = t.intervals(a, True)
        weight.append((cells.hi - cells.lo) / setting.sizes[a])
    sizes = tuple(setting.sizes[a] for a in axes)
    return Density(axes, needed, tuple(weight), sizes, tuple(tiles[a] for a in axes), _anchored(program, axes, setting))


def _anchored(program: Program, axes: Sequence[str], setting: Setting) -> bool:
    """Whether nothing is removed at some element of the first halves of the masked axes.

    In every tiling such an element is in a full tile: no ragged last tile reaches it.
    """
    places = [sorted({min(k, (setting.sizes[a] - 1) // 2) for k in (0, 1, 2, setting.sizes[a])}) for a in axes]
    index = np.array(list(product(*places)), dtype=np.int64).T.reshape(len(axes), -1)
    columns = {}
    for a, lo in zip(axes, index, strict=True):
        zero = np.zeros_like(lo)
        columns[a] = Column(lo, lo + 1, zero, zero + setting.sizes[a], lo, zero)
    tiles = Tiles({}, dict.fromkeys(axes, 1), setting.sizes)
    survive = survival(program, Entries(tuple(axes), columns, np.ones(max(index.shape[1], 1), dtype=np.int64), tiles), setting)
    every: Any = True
    for flags in (*survive.reads.values(), *survive.runs.values()):
        every = every & flags
    return bool(np.any(every))


def _everything(survive: Survival) -> bool:
    """Whether every read survives and every box runs, in every entry."""
    return all(np.all(x) for x in (*survive.reads.values(), *survive.runs.values()))
