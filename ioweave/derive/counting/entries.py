"""Tiles of several axes as one list of entries, each standing for ``weight`` equal tiles.

Few tiles are listed one by one. Many tiles of two axes are listed as intervals: for each tile
of one axis, runs of tiles of the other between the places where a predicate may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ioweave.derive.counting.lengths import Bounds
from ioweave.derive.counting.predicates import Atom
from ioweave.derive.counting.tiles import ENUMERATED, Ints, Tiles
from ioweave.diagrams.errors import Refused

LISTED = ENUMERATED  # more entries than this are never listed; up to it every axis has each tile by itself
FEW = 1 << 12  # so many are listed without a thought; above, intervals are tried first


@dataclass(frozen=True)
class Column:
    """One axis of the entries: its finest interval and its group tile, with numbers to tell them apart."""

    lo: Ints
    hi: Ints
    group_lo: Ints
    group_hi: Ints
    cell: Ints
    group: Ints


@dataclass(frozen=True)
class Entries:
    """``length`` entries over ``axes``; ``runs`` is the axis whose entries are runs, if any."""

    axes: tuple[str, ...]
    columns: Mapping[str, Column]
    weight: Ints
    tiles: Tiles
    runs: str | None = None
    _keys: dict[frozenset[str], tuple[Ints, Ints]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def length(self) -> int:
        """How many entries there are."""
        return len(self.weight)

    def bounds(self, entered: Iterable[str]) -> Bounds:
        """Per entry the interval of every axis: steps where entered, else group tiles, else whole.

        Axes that are not among the entries have one representative tile, their first.
        """
        inside = set(entered)
        out: dict[str, tuple[Any, Any]] = {}
        for a, n in self.tiles.sizes.items():
            c = self.columns.get(a)
            if c is None:
                out[a] = (0, n)
            elif a in inside:
                out[a] = (c.lo, c.hi)
            elif a in self.tiles.group:
                out[a] = (c.group_lo, c.group_hi)
            else:
                out[a] = (0, n)
        return out

    def keys(self, entered: Iterable[str]) -> tuple[Ints, Ints]:
        """Entries told apart by their tiles at this depth: (key per entry, first entry of each key)."""
        inside = frozenset(entered) & frozenset(self.axes)
        if inside not in self._keys:
            self._keys[inside] = self._told_apart(inside)
        return self._keys[inside]

    def _told_apart(self, inside: frozenset[str]) -> tuple[Ints, Ints]:
        key = np.zeros(self.length, dtype=np.int64)
        for a in self.axes:
            c = self.columns[a]
            if a in inside:
                part = c.cell
            elif a in self.tiles.group:
                part = c.group
            else:
                continue
            key = key * (int(part.max(initial=0)) + 1) + part
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return inverse, first

    def any_at(self, flags: Any, entered: Iterable[str]) -> tuple[Any, Ints]:
        """For each tile at this depth whether any of its entries is flagged, and its first entry."""
        inverse, first = self.keys(entered)
        found = np.bincount(inverse, weights=np.broadcast_to(flags, inverse.shape), minlength=len(first)) > 0
        return found, first

    def any_over(self, flags: Any, loops: Sequence[str]) -> Any:
        """Per entry, whether any entry that differs in these loops alone is flagged."""
        rest = [a for a in self.axes if a in self.tiles.stream and a not in loops]
        inverse, first = self.keys(rest)
        found = np.bincount(inverse, weights=np.broadcast_to(flags, inverse.shape), minlength=len(first)) > 0
        return found[inverse]

    def exact_at(self, entered: Iterable[str]) -> bool:
        """Whether tiles at this depth are told apart rightly: runs may be merged, not compared across rows."""
        if self.runs is None:
            return True
        inside = set(entered)
        others = [a for a in self.axes if a != self.runs]
        return self.runs not in inside or all(a in inside or a in self.tiles.group for a in others)


def list_entries(axes: Sequence[str], tiles: Tiles, atoms: Sequence[Atom] | None) -> Entries:
    """Entries over the axes' finest tiles.

    ``atoms`` are the comparisons in which predicates may change (None where some are unknown).
    Raises Refused where there are too many tiles to list and they cannot be taken by intervals.
    """
    axes = tuple(axes)
    counts = {a: tiles.number(a, a in tiles.stream) for a in axes}
    total = 1
    for n in counts.values():
        total *= n
    if total <= FEW:
        return _listed(axes, tiles)
    if len(axes) == 2 and atoms is not None:
        for row, run in sorted((axes, axes[::-1]), key=lambda rr: counts[rr[0]]):
            if counts[row] * 40 <= min(total, 8 * LISTED) and not (run in tiles.group and run in tiles.stream):
                return _by_runs(row, run, tiles, atoms)
    if total <= LISTED:
        return _listed(axes, tiles)
    raise Refused(
        f"{total:,} tiles of {', '.join(axes)} are tied by a mask; that is too many to count one by one, and "
        "predicates that tie three tiled axes, or tile both of two axes very finely, are not counted by intervals"
    )


def _axis(axis: str, tiles: Tiles) -> tuple[Column, Ints]:
    """The finest tiles of one axis as a column, with their weights."""
    fine = tiles.intervals(axis, axis in tiles.stream)
    size = tiles.sizes[axis]
    if axis in tiles.group:
        g = min(tiles.group[axis], size)
        number = fine.lo // g
        glo = number * g
        return Column(fine.lo, fine.hi, glo, np.minimum(glo + g, size), np.arange(len(fine.lo)), number), fine.weight
    zero = np.zeros(len(fine.lo), dtype=np.int64)
    return Column(fine.lo, fine.hi, zero, zero + size, np.arange(len(fine.lo)), zero), fine.weight


def _take(c: Column, index: Ints) -> Column:
    return Column(*(x[index] for x in (c.lo, c.hi, c.group_lo, c.group_hi, c.cell, c.group)))


def _listed(axes: tuple[str, ...], tiles: Tiles) -> Entries:
    if not axes:
        return Entries((), {}, np.ones(1, dtype=np.int64), tiles)
    parts = [_axis(a, tiles)[0] for a in axes]
    index = np.indices([len(p.lo) for p in parts]).reshape(len(axes), -1)
    columns = {a: _take(p, i) for a, p, i in zip(axes, parts, index, strict=True)}
    return Entries(axes, columns, np.ones(index.shape[1], dtype=np.int64), tiles)


def _by_runs(row: str, run: str, tiles: Tiles, atoms: Sequence[Atom]) -> Entries:
    size = tiles.sizes[run]
    step = min(tiles.stream.get(run, tiles.group.get(run, size)), size)
    number = -(-size // step)
    rows, _ = _axis(row, tiles)
    cuts = [np.zeros(len(rows.lo), dtype=np.int64), np.full(len(rows.lo), number - 1), np.full(len(rows.lo), number)]
    positions: dict[bytes, Ints] = {}  # atoms and ends of rows have many of them in common
    for atom in atoms:
        for x in _thresholds(atom, row, run, rows):
            positions.setdefault(x.tobytes(), x)
    reach = 1 << 6  # windows of spans move a threshold by their width
    near: dict[bytes, Ints] = {}
    for x in positions.values():
        for away in (-reach, -1, 0, 1, 2, reach, 2 * reach):
            near.setdefault((x + away).tobytes(), x + away)
        for k in (-1, 1, 2):
            near.setdefault((x + k * step).tobytes(), x + k * step)
    found = np.clip(np.stack(list(near.values())) // step, 0, number) if near else np.zeros((0, len(rows.lo)))
    cuts.extend(found)
    edges = np.sort(np.stack(cuts, axis=1), axis=1)
    if len(rows.lo) == 1:
        edges = np.unique(edges)[None, :]
    first, after = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    index = np.repeat(np.arange(len(rows.lo)), edges.shape[1] - 1)
    keep = after > first
    first, after, index = first[keep], after[keep], index[keep]
    lo = first * step
    hi = np.minimum(lo + step, size)
    group = np.zeros_like(lo) if run not in tiles.group else first
    glo, ghi = (lo, hi) if run in tiles.group else (np.zeros_like(lo), np.full_like(lo, size))
    columns = {row: _take(rows, index), run: Column(lo, hi, glo, ghi, first, group)}
    return Entries((row, run), columns, after - first, tiles, run)


def _thresholds(atom: Atom, row: str, run: str, rows: Column) -> list[Ints]:
    """Positions along ``run`` where the comparison may change, for every tile of ``row``."""
    mine = [(t, c) for t, c in atom.form if t[0] == run]
    if not mine:
        return []
    others = [(t, c) for t, c in atom.form if t[0] == row]
    out = []
    for (_, add, divisor), c in mine:
        for end in (rows.lo, rows.hi - 1, rows.hi):
            rest = np.full(len(rows.lo), atom.constant, dtype=np.int64)
            for (_, a, d), k in others:
                rest = rest + k * ((end + a) // d)
            value = -rest // c  # floor((x + add) / divisor) crosses this value
            out.append(value * divisor - add)
            out.append((value + 1) * divisor - add)
    return out
