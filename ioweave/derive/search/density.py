"""How dense a region's masks are: a lower bound on the share of reads that no tiling can remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from ioweave.derive.counting.entries import Column, Entries, list_entries
from ioweave.derive.counting.masks import Survival, decides, needed_somewhere, predicates, survival
from ioweave.derive.counting.region import trace
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.program import Program
from ioweave.derive.program.setting import Setting
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Read, free_axes
from ioweave.diagrams.scans import uncut

GRID = 256  # tiles along each of two masked axes; along one as many as those of both
ENOUGH = 0.5  # an array is looked at more closely where cells show less of it to be needed
PLACES = 1 << 16  # along an axis of more places it is not
TABLE = 1 << 16  # what is moved is kept for tiles up to this


@dataclass(frozen=True)
class Density:
    """On a grid of tiles of the masked axes, where every element of an array is surely needed.

    ``needed`` maps a read of an array to a grid of flags; ``weight`` is the share of each tile;
    ``once`` is the least share of an array that some element needs, for reads that such cells say little of.
    ``anchored`` tells that in every tiling some full tile has nothing removed, so that all that
    may be live at once is.
    """

    axes: tuple[str, ...]
    needed: Mapping[Read, Any]
    weight: tuple[Any, ...]
    sizes: tuple[int, ...]
    cells: tuple[int, ...]
    anchored: bool
    once: Mapping[Read, float] = field(default_factory=dict)
    _found: dict[Any, float] = field(default_factory=dict, compare=False, repr=False)
    _corners: dict[Read, Any] = field(default_factory=dict, compare=False, repr=False)
    _tables: dict[Any, tuple[Any, Any, Any]] = field(default_factory=dict, compare=False, repr=False)

    def moved(self, read: Read, axes: Sequence[str], again: Mapping[str, Any]) -> Any:
        """How often an array is moved at least for one of its reads, as a multiple of what the read touches.

        ``axes`` are the masked axes that index it; ``again`` gives the tile sizes (arrays) of
        masked axes for whose every tile it is loaded again. An element that r readers need is
        in ceil(r / tile) tiles of them at least, so this never rises with a tile.
        """
        if not again:
            return self.at(read, axes, {}, {})
        return np.maximum(self._again(read, axes, again), self.once.get(read, 0.0))

    def _again(self, read: Read, axes: Sequence[str], again: Mapping[str, Any]) -> Any:
        readers, share, by_tile = self._readers(read, tuple(axes), tuple(again))
        tile: Any = 1
        for t in again.values():
            tile = tile * t
        if not len(by_tile):
            return np.sum(np.ceil(readers / np.asarray(tile)[..., None]) * share, axis=-1)
        tile = np.minimum(tile, len(by_tile) - 1)  # no larger tile moves less
        found = by_tile[tile]
        if np.any(np.isnan(found)):
            new = np.unique(np.ravel(tile))
            by_tile[new] = np.sum(np.ceil(readers / new[:, None]) * share, axis=-1)
            found = by_tile[tile]
        return found

    def _readers(self, read: Read, axes: tuple[str, ...], again: tuple[str, ...]) -> tuple[Any, Any, Any]:
        """Numbers of readers along ``again`` that need an element, and the share of elements that so many need.

        Also room for what is moved at every tile that matters, not a number until it is asked for.
        """
        key = (read, axes, again)
        if key not in self._tables:
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
            shares = np.bincount(back.ravel(), weights=share.ravel(), minlength=len(readers))
            top = int(readers[-1])
            by_tile = np.full(top + 1 if top < TABLE else 0, np.nan)
            by_tile[:1] = 0.0
            self._tables[key] = readers, shares, by_tile
        return self._tables[key]

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
        below, least = self._below(read), self.once.get(read, 0.0)
        if below is None:
            return least
        shares = []
        for k, a in enumerate(self.axes):
            first, after, share = self._parts(k, again.get(a, tiled.get(a, 0)), a in again, a in tiled or a in axes)
            below = below.take(after, axis=k) - below.take(first, axis=k)
            shares.append(share)
        flags = (below > 0).astype(float)
        for share in reversed(shares):
            flags = flags @ share
        return max(float(flags), least)

    def _below(self, read: Read) -> Any:
        """At every corner of the grid, how many cells below it need an array; None where no cell does."""
        if read not in self._corners:
            flags = self.needed.get(read)
            if flags is not None:
                flags = (flags > 0).astype(np.int64)
                for k in range(flags.ndim):
                    edge = np.zeros_like(flags.take([0], axis=k))
                    flags = np.cumsum(np.concatenate([edge, flags], axis=k), axis=k)
            self._corners[read] = flags
        return self._corners[read]

    def _parts(self, k: int, tile: int, again: bool, apart: bool) -> tuple[Any, Any, Any]:
        """The parts of an axis that are loaded together: first cells, cells after the last, and their shares."""
        key = (k, tile, again, apart)
        if key not in self._tables:
            cell, size, number = self.cells[k], self.sizes[k], len(self.weight[k])
            first, after, share = np.arange(number), np.arange(1, number + 1), self.weight[k]
            if tile >= cell:
                lo = np.arange(0, size, tile)
                hi = np.minimum(lo + tile, size)
                first, after, share = lo // cell, -(-hi // cell), (hi - lo) / size
            if again:  # tiles within a cell need what the cell needs
                share = np.ones(len(first)) if tile >= cell else share * (size / tile)
            elif not apart:
                first, after, share = np.array([0]), np.array([number]), np.ones(1)
            self._tables[key] = first, after, share
        return self._tables[key]


def density(boxes: Sequence[Box], stored: frozenset[str], setting: Setting) -> Density | None:
    """The density of a region's masks; None where it has none. Where it cannot be found it is zero."""
    if not any(decides(b) for b in boxes):
        return None
    whole = {b.into for b in boxes} | uncut(boxes).keys()  # no tiling cuts these
    axes = tuple(dict.fromkeys(a for b in boxes for p in predicates(b) for a in free_axes(p) if a not in whole))
    grid = max(int(GRID ** (2 / max(len(axes), 1))), 2)
    tiles = {a: -(-setting.sizes[a] // grid) for a in axes}
    try:
        program = build("", boxes, stored, Shape((), axes), setting)
        setting = setting.with_lengths(program.lengths)
        t = Tiles({}, tiles, setting.sizes)
        survive = trace(program, t, setting, whole=True)
    except Refused:
        return Density((), {}, (), (), (), False)
    if survive is None or (not axes and _everything(survive)):
        return None
    axes = tuple(a for a in axes if a in survive.entries.columns)  # boxes that are one ask at the axes of one
    shape = tuple(t.number(a, True) for a in axes)
    needed: dict[Read, Any] = {}
    least = all(n == 1 for n in tiles.values())  # no tile is smaller than a cell, so none leaves out more
    order = [survive.entries.columns[a].cell for a in axes]
    for (_, read, _), alive in survive.reads.items():
        flags = np.zeros(shape)
        there = alive & (survive.definite | least) & _in_range(read, survive.entries, setting)
        flags[tuple(order)] = there.reshape(-1)[: flags.size] if axes else np.all(alive)
        needed[read] = np.maximum(needed.get(read, 0.0), flags)
    weight = []
    for a in axes:
        cells = t.intervals(a, True)
        weight.append((cells.hi - cells.lo) / setting.sizes[a])
    sizes = tuple(setting.sizes[a] for a in axes)
    once = _once(program, axes, setting, needed)
    anchored = _anchored(program, axes, setting)
    return Density(axes, needed, tuple(weight), sizes, tuple(tiles[a] for a in axes), anchored, once)


def _once(program: Program, axes: Sequence[str], setting: Setting, needed: Mapping[Read, Any]) -> dict[Read, float]:
    """For reads with one masked axis of which cells say little: at how many places along it some element needs them."""
    found: dict[Read, float] = {}
    for k, a in enumerate(axes):
        rest = tuple(j for j in range(len(axes)) if j != k)
        mine = [r for r in needed if {x for f in r.index for x in f.names} & set(axes) == {a}]
        weak = [r for r in mine if np.mean(np.max(needed[r], axis=rest)) < ENOUGH]
        if weak and setting.sizes[a] <= PLACES:
            tiles = Tiles({}, {x: 1 if x == a else setting.sizes[x] for x in axes}, setting.sizes)
            entries = list_entries(axes, tiles, None)
            flags: dict[Read, Any] = {}
            for (_, read, _), alive in needed_somewhere(program, entries, setting).items():
                flags[read] = flags.get(read, False) | (alive & _in_range(read, entries, setting))
            found.update({r: float(np.mean(flags[r])) for r in weak if r in flags})
    return found


def _in_range(read: Read, entries: Entries, setting: Setting) -> Any:
    """The entries in which every masked axis by itself keeps a position of a read in range."""
    found: Any = np.ones(entries.length, dtype=bool)
    for form, size in zip(read.index, setting.shapes.get(read.array, ()), strict=False):
        if len(form.axes) == 1 and not form.lookups and form.axes[0][0] in entries.columns:
            ((axis, c),) = form.axes
            c_lo, c_hi = entries.columns[axis].lo * c, (entries.columns[axis].hi - 1) * c
            first = form.fixed(setting.sizes)
            found = found & (np.minimum(c_lo, c_hi) + first >= 0) & (np.maximum(c_lo, c_hi) + first < size)
    return found


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
