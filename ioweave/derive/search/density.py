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
from ioweave.diagrams.expressions import Read, free_axes

GRID = 128  # tiles along each masked axis


@dataclass(frozen=True)
class Density:
    """On a grid of tiles of the masked axes, where every element of an array is surely needed.

    ``needed`` maps a read of an array to a grid of flags; ``weight`` is the share of each tile;
    ``anchored`` tells that in every tiling some full tile has nothing removed, so that all that
    may be live at once is.
    """

    axes: tuple[str, ...]
    needed: Mapping[Read, Any]
    weight: tuple[Any, ...]
    sizes: tuple[int, ...]
    cells: tuple[int, ...]
    anchored: bool
    _found: dict[Any, float] = field(default_factory=dict, compare=False, repr=False)
    _known: dict[Any, tuple[Any, Any]] = field(default_factory=dict, compare=False, repr=False)

    def moved(self, read: Read, axes: Sequence[str], again: Mapping[str, Any]) -> Any:
        """How often an array is moved at least for one of its reads, as a multiple of what the read touches.

        ``axes`` are the masked axes that index it; ``again`` gives the tile sizes (arrays) of
        masked axes for whose every tile it is loaded again. An element that r readers need is
        in ceil(r / tile) tiles of them at least, so this never rises with a tile.
        """
        if not again:
            return self.at(read, axes, {}, {})
        readers, share = self._readers(read, tuple(axes), tuple(again))
        tile: Any = 1
        for t in again.values():
            tile = tile * t
        return np.sum(np.ceil(readers / np.asarray(tile)[..., None]) * share, axis=-1)

    def _readers(self, read: Read, axes: tuple[str, ...], again: tuple[str, ...]) -> tuple[Any, Any]:
        """Numbers of readers along ``again`` that need an element, and the share of elements that so many need."""
        key = (read, axes, again)
        if key not in self._known:
            flags = self.needed.get(read, np.zeros(tuple(len(w) for w in self.weight)))
            share = np.ones(())
            for k, a in enumerate(self.axes):
                if a not in axes and a not in again:
                    flags = flags.max(axis=k, keepdims=True)
            for k, a in reversed(list(enumerate(self.axes))):
                if a in again:
                    flags = np.rint(np.tensordot(flags, self.weight[k] * self.sizes[k], axes=(k, 0)))
                elif a in axes:
                    share = self.weight[k][(..., *[None] * share.ndim)] * share
                else:
                    flags = flags.squeeze(axis=k)
            readers, back = np.unique(flags, return_inverse=True)
            self._known[key] = readers, np.bincount(back.ravel(), weights=share.ravel(), minlength=len(readers))
        return self._known[key]

    def at(self, read: Read, axes: Sequence[str], again: Mapping[str, int], tiled: Mapping[str, int]) -> float:
        """The same at one tile size per axis, where the axes in ``tiled`` are loaded in whole tiles.

        A tile needs what any element in it needs: all that is in the cells that it touches.
        Along masked axes in none of these one reader that needs the element is enough.
        """
        tiled = {a: t for a, t in tiled.items() if t >= self.cells[self.axes.index(a)]}  # others join nothing
        key = (read, tuple(axes), tuple(again.items()), tuple(tiled.items()))
        if key not in self._found:
            self._found[key] = self._at(read, axes, again, tiled)
        return self._found[key]

    def _at(self, read: Read, axes: Sequence[str], again: Mapping[str, int], tiled: Mapping[str, int]) -> float:
        flags = self.needed.get(read)
        if flags is None:
            return 0.0
        shares = list(self.weight)
        for k, a in enumerate(self.axes):
            tile = again.get(a, tiled.get(a, 0))
            if tile >= self.cells[k]:
                flags, shares[k] = self._joined(flags, k, tile)
            if a in again:  # tiles within a cell need what the cell needs
                shares[k] = np.ones(len(shares[k])) if tile >= self.cells[k] else shares[k] * (self.sizes[k] / tile)
            elif a not in tiled and a not in axes:
                flags, shares[k] = flags.max(axis=k, keepdims=True), np.ones(1)
        for share in reversed(shares):
            flags = flags @ share
        return float(flags)

    def _joined(self, flags: Any, k: int, tile: int) -> tuple[Any, Any]:
        """Flags with the cells of each tile of one axis joined, and the share of each tile."""
        cell, size = self.cells[k], self.sizes[k]
        lo = np.arange(0, size, tile)
        hi = np.minimum(lo + tile, size)
        edges = np.stack([lo // cell, -(-hi // cell)], axis=1).ravel()
        edge = np.zeros((*flags.shape[:k], 1, *flags.shape[k + 1 :]))
        unions = np.maximum.reduceat(np.concatenate([flags, edge], axis=k), edges, axis=k)
        return unions.take(np.arange(0, len(edges), 2), axis=k), (hi - lo) / size


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
    needed: dict[Read, Any] = {}
    order = [survive.entries.columns[a].cell for a in axes]
    for (_, read, _), alive in survive.reads.items():
        flags = np.zeros(shape)
        flags[tuple(order)] = (alive & survive.definite).reshape(-1)[: flags.size] if axes else np.all(alive)
        needed[read] = np.maximum(needed.get(read, 0.0), flags)
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
    if not axes:
        return False
    places = [sorted({min(k, (setting.sizes[a] - 1) // 2) for k in (0, 1, 2, setting.sizes[a])}) for a in axes]
    index = np.array(list(product(*places)), dtype=np.int64).T
    columns = {}
    for a, lo in zip(axes, index, strict=True):
        zero = np.zeros_like(lo)
        columns[a] = Column(lo, lo + 1, zero, zero + setting.sizes[a], lo, zero)
    tiles = Tiles({}, dict.fromkeys(axes, 1), setting.sizes)
    ones = np.ones(index.shape[1], dtype=np.int64)
    survive = survival(program, Entries(tuple(axes), columns, ones, tiles), setting)
    every: Any = True
    for flags in (*survive.reads.values(), *survive.runs.values()):
        every = every & flags
    return bool(np.any(every))


def _everything(survive: Survival) -> bool:
    """Whether every read survives and every box runs, in every entry."""
    return all(np.all(x) for x in (*survive.reads.values(), *survive.runs.values()))
