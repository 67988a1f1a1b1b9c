"""Sums of footprints over instances and trips: what loads cost, and how often boxes run.

An axis on its own is summed in closed form (a whole, unshifted axis in tiles adds up to its
size; an axis that an array lacks multiplies by the number of its tiles). Axes that a window, a
union of reads or a mask ties together are summed over the grid of their tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ioweave.derive.counting.entries import Entries
from ioweave.derive.counting.gathers import Look, Piece, alike, elements, is_gathered, union
from ioweave.derive.counting.lengths import Bounds, interval, length, points, union_of_boxes, without_gaps
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.reach import Place, Reach
from ioweave.derive.program.spans import Span
from ioweave.diagrams.errors import Refused

GRID = 1 << 24


@dataclass(frozen=True)
class Mask:
    """Which pieces survive in which entries; ``flags`` has one array of bools per piece."""

    entries: Entries
    flags: tuple[Any, ...]


def total(
    pieces: Sequence[Piece], entered: frozenset[str], tiles: Tiles, mask: Mask | None = None, look: Look | None = None
) -> int:
    """The sum, over instances and trips of the entered loops, of the size of the pieces' union.

    ``entered`` are the loops run at this depth; ``look`` tells what is known of index arrays. Raises Refused
    where the grid is too large to sum.
    """
    if mask is not None and all(bool(np.all(f)) for f in mask.flags):
        mask = None
    used = {a for piece in pieces for span in piece for a, _ in span.axes}
    masked = set(mask.entries.axes) if mask is not None else set[str]()
    result = 1
    for axis in {*tiles.group, *entered} - used - masked:
        result *= tiles.number(axis, axis in entered)
    loose, tied = _components(pieces, masked)
    for span in loose:
        result *= _loose(span, entered, tiles, look)
    if tied or mask is not None:
        some = pieces if tied == list(range(len(pieces[0]))) else [tuple(p[k] for k in tied) for p in pieces]
        result *= _tied(some, entered, tiles, mask, look)
    return result


def _components(pieces: Sequence[Piece], masked: set[str]) -> tuple[list[Place], list[int]]:
    """Positions that stand alone (their span), and positions to be summed together."""
    rank = len(pieces[0])
    if not alike(pieces):
        return [], list(range(rank))
    tied: set[int] = set()
    for k in range(rank):
        mine = {a for p in pieces for a, _ in p[k].axes}
        others = {a for p in pieces for j in range(rank) if j != k for a, _ in p[j].axes}
        if mine & others or mine & masked or any(p[k] != pieces[0][k] for p in pieces):
            tied.add(k)
    return [pieces[0][k] for k in range(rank) if k not in tied], sorted(tied)


def _loose(span: Place, entered: frozenset[str], tiles: Tiles, look: Look | None) -> int:
    if isinstance(span, Span) and span.bare is not None and span.size == tiles.sizes[span.bare]:
        return span.size
    return _tied([(span,)], entered, tiles, None, look)


def _tied(pieces: Sequence[Piece], entered: frozenset[str], tiles: Tiles, mask: Mask | None, look: Look | None) -> int:
    """The sum over the grid of tiles of every axis of these pieces (and of the mask)."""
    if mask is not None and (held := _windows_held(pieces, entered, mask.entries)):
        return _held(pieces, entered, tiles, mask, held, look)
    axes = sorted({a for piece in pieces for span in piece for a, _ in span.axes})
    bounds: dict[str, tuple[Any, Any]] = {}
    weight: Any = np.ones((), dtype=object)
    free = [a for a in axes if mask is None or a not in mask.entries.axes]
    grid = [a for a in free if tiles.tiled(a, a in entered)]
    rank = len(grid) + 1
    cells = 1
    for k, a in enumerate(grid):
        t = tiles.intervals(a, a in entered)
        shape = [1] * rank
        shape[k + 1] = len(t.lo)
        cells *= len(t.lo)
        bounds[a] = (t.lo.reshape(shape), t.hi.reshape(shape))
        if t.count != len(t.lo):
            _check_even(pieces, a, t.count)
            weight = weight * t.weight.astype(object).reshape(shape)
    for a in free:
        bounds.setdefault(a, (0, tiles.sizes[a]))
    alive: list[Any] | None = None
    if mask is not None:
        cells *= mask.entries.length
        alive, row_bounds, row_weight = _rows(pieces, entered, mask, rank)
        bounds.update(row_bounds)
        weight = weight * row_weight
    if cells > GRID:
        raise Refused(
            f"the tiles of {', '.join(axes)} are tied together and there are {cells:,} of them, too many to sum"
        )
    return _weighted(_union(pieces, bounds, alive, look), weight)


def _check_even(pieces: Sequence[Piece], axis: str, count: int) -> None:
    """Refuse to let one tile stand for many where lookups may tell them apart."""
    for span in (s for p in pieces for s in p):
        if isinstance(span, Reach) and span.plain is None and any(a == axis for a, _ in span.axes):
            raise Refused(
                f"what is looked up differs from tile to tile of {axis}, and there are {count:,} of them, too many"
            )


def _windows_held(pieces: Sequence[Piece], entered: frozenset[str], entries: Entries) -> str | None:
    """A masked loop outside of which an array is held whose steps overlap: in windows of it, or in several reads."""
    for a in entries.axes:
        if a not in entered and a in entries.tiles.stream:
            spans = [s for p in pieces for s in p if any(x == a for x, _ in s.axes)]
            if spans and (len(pieces) > 1 or not all(s.bare == a for s in spans)):
                return a
    return None


def _held(
    pieces: Sequence[Piece], entered: frozenset[str], tiles: Tiles, mask: Mask, axis: str, look: Look | None
) -> int:
    """The union, over the trips inside the depth at which an array is held, of what survives in them, by element."""
    entries = mask.entries
    if entries.runs is not None or entries.length > GRID >> 8:
        raise Refused(
            f"an array that is read through windows of {axis}, or in several places, cannot be held outside a masked "
            "loop of so many tiles"
        )
    outer, _ = entries.keys(entered)
    at = entries.bounds({*entered, *tiles.stream})
    gathered = _unknown(pieces, look)
    whole = {a: np.broadcast_arrays(*x, outer)[:2] for a, x in entries.bounds(entered).items() if a in entries.axes}
    free = sorted({a for p in pieces for s in p for a, _ in s.axes} - set(entries.axes))
    cells = [tiles.intervals(a, a in entered) for a in free]
    total = work = 0
    for chosen in product(*(range(len(c.lo)) for c in cells)):
        bounds: dict[str, tuple[Any, Any]] = {}
        weight = 1
        for a, c, k in zip(free, cells, chosen, strict=True):
            bounds[a] = (int(c.lo[k]), int(c.hi[k]))
            weight *= int(c.weight[k])
        boxes = _boxes(pieces, {**{a: at[a] for a in entries.axes}, **bounds}, outer)
        if boxes is not None:
            total += weight * _covered(boxes, mask.flags, outer, pieces[0])
            continue
        found: dict[int, list[Any]] = {}
        unknown: dict[int, list[int]] = {}
        for row, key in enumerate(outer):
            bounds.update({a: (int(at[a][0][row]), int(at[a][1][row])) for a in entries.axes})
            flags = [bool(np.broadcast_to(flag, outer.shape)[row]) for flag in mask.flags]
            if gathered and any(flags):
                unknown.setdefault(int(key), []).append(int(_union(pieces, bounds, list(flags), look)))
                continue
            for piece in (p for p, flag in zip(pieces, flags, strict=True) if flag):
                found.setdefault(int(key), []).append(elements(piece, bounds, look or Look()))
                work += len(found[int(key)][-1])
            if work > GRID:
                raise Refused(f"what survives of the steps of {axis} is counted by element, and there are too many")
        total += weight * sum(len(np.unique(np.concatenate(p), axis=0)) for p in found.values())
        for key, steps in unknown.items():
            if look is not None and look.least:
                total += weight * max(steps)
                continue
            row = int(np.flatnonzero(outer == key)[0])
            bounds.update({a: (int(whole[a][0][row]), int(whole[a][1][row])) for a in entries.axes})
            total += weight * min(sum(steps), int(_union(pieces, bounds, None, look)))
    return total


def _boxes(pieces: Sequence[Piece], bounds: Bounds, outer: Any) -> list[list[tuple[Any, Any]]] | None:
    """Per piece and position the interval touched in each entry, where pieces are no more than boxes, in few places."""
    if (int(outer.max(initial=0)) + 1) * _room(pieces[0]) > GRID:
        return None
    if any(isinstance(s, Reach) or not without_gaps(s, bounds) for p in pieces for s in p):
        return None
    spans = [tuple(s for s in p if isinstance(s, Span)) for p in pieces]
    if any(_shares(p) for p in spans):
        return None
    ends = [[interval(s, bounds) for s in p] for p in spans]
    return [[(np.broadcast_to(lo, outer.shape), np.broadcast_to(hi, outer.shape)) for lo, hi in p] for p in ends]


def _room(piece: Piece) -> int:
    return prod(s.size + 1 for s in piece if isinstance(s, Span))


def _covered(boxes: list[list[tuple[Any, Any]]], flags: Sequence[Any], outer: Any, piece: Piece) -> int:
    """How many elements the boxes of all entries of one key cover together, over all keys: corners summed up."""
    cells = [s.size + 1 for s in piece if isinstance(s, Span)]
    total = 0
    for key in range(int(outer.max(initial=-1)) + 1):
        corners = np.zeros(cells, dtype=np.int64)
        for ends, flag in zip(boxes, flags, strict=True):
            here = (outer == key) & flag & np.logical_and.reduce([hi > lo for lo, hi in ends])
            for corner in product((0, 1), repeat=len(ends)):
                where = tuple(e[k][here] for e, k in zip(ends, corner, strict=True))
                np.add.at(corners, where, -1 if sum(corner) % 2 else 1)
        for k in range(corners.ndim):
            np.cumsum(corners, axis=k, out=corners)
        total += int(np.count_nonzero(corners))
    return total


def _unknown(pieces: Sequence[Piece], look: Look | None) -> bool:
    """Whether what pieces touch is not known element by element."""
    return any(isinstance(s, Reach) and not (look or Look()).knows(s) for p in pieces for s in p)


def _rows(
    pieces: Sequence[Piece], entered: frozenset[str], mask: Mask, rank: int
) -> tuple[list[Any], dict[str, tuple[Any, Any]], Any]:
    """The entries at this depth: which pieces survive in each, their intervals and weights."""
    entries = mask.entries
    inside = set(entered)
    for a in entries.axes:  # held further out: what is loaded is made of the steps that survive
        if a in entries.tiles.stream and any(x == a for p in pieces for s in p for x, _ in s.axes):
            inside.add(a)
    if not entries.exact_at(inside):
        raise Refused("masked tiles of this shape are not counted by intervals; use larger tiles or smaller sizes")
    shape = (-1, *([1] * (rank - 1)))
    alive = []
    first: Any = None
    for flag in mask.flags:
        found, first = entries.any_at(flag, inside)
        alive.append(found.reshape(shape))
    at = entries.bounds(inside)
    bounds: dict[str, tuple[Any, Any]] = {}
    for a in entries.axes:
        lo, hi = (np.broadcast_to(x, (entries.length,))[first].reshape(shape) for x in at[a])
        bounds[a] = (lo, hi)
    weight: Any = np.ones((), dtype=object)
    if entries.runs is not None and (entries.runs in inside or entries.runs in entries.tiles.group):
        weight = entries.weight[first].astype(object).reshape(shape)
    return alive, bounds, weight


def _weighted(values: Any, weight: Any) -> int:
    if isinstance(weight, np.ndarray) and weight.ndim == 0 and weight == 1:
        return int(np.sum(values, dtype=object) if np.size(values) < 64 else np.sum(values, dtype=np.int64))
    return int(np.sum(np.asarray(values).astype(object) * weight))


def _union(pieces: Sequence[Piece], bounds: Bounds, alive: list[Any] | None, look: Look | None = None) -> Any:
    if is_gathered(pieces):
        return union(pieces, bounds, alive, look, lambda spans: _union_of_spans([spans], bounds, None))
    return _union_of_spans([tuple(s for s in p if isinstance(s, Span)) for p in pieces], bounds, alive)


def _union_of_spans(pieces: Sequence[tuple[Span, ...]], bounds: Bounds, alive: list[Any] | None) -> Any:
    if not pieces[0]:
        hit: Any = 1
        if alive is not None:
            hit = np.logical_or.reduce(alive).astype(np.int64)
        return hit
    entangled = any(_shares(p) for p in pieces)
    if not entangled and len(pieces) == 1:
        volume: Any = 1
        for span in pieces[0]:
            volume = volume * length(span, bounds)
        return volume * alive[0] if alive is not None else volume
    if not entangled and len(pieces) <= 8 and all(without_gaps(s, bounds) for p in pieces for s in p):
        boxes = [[interval(s, bounds) for s in p] for p in pieces]
        return union_of_boxes(boxes, alive)
    return _element_sets(pieces, bounds, alive)


def _shares(piece: tuple[Span, ...]) -> bool:
    seen: set[str] = set()
    for span in piece:
        axes = {a for a, _ in span.axes}
        if axes & seen:
            return True
        seen |= axes
    return False


def _element_sets(pieces: Sequence[tuple[Span, ...]], bounds: Bounds, alive: list[Any] | None) -> Any:
    """The union of exact sets of elements, tile by tile: diagonals, gaps, and unions of those."""
    axes = sorted({a for p in pieces for s in p for a, _ in s.axes})
    arrays = [x for a in axes for x in bounds[a]] + (alive or [])
    shape = np.broadcast_shapes(*(np.shape(x) for x in arrays))
    out = np.zeros(shape, dtype=np.int64)
    work = 0
    for at in np.ndindex(*shape):
        here: dict[str, tuple[Any, Any]] = {}
        for a in axes:
            lo, hi = (int(np.broadcast_to(x, shape)[at]) for x in bounds[a])
            here[a] = (lo, hi)
        found: Any = np.zeros((0, len(pieces[0])), dtype=np.int64)
        for k, piece in enumerate(pieces):
            if alive is None or bool(np.broadcast_to(alive[k], shape)[at]):
                mine = points(piece, here)
                work += len(mine)
                if work > GRID:
                    raise Refused("a diagonal or strided read is counted by element, and there are too many elements")
                found = np.concatenate([found, mine])
        out[at] = len(np.unique(found, axis=0))
    return out
