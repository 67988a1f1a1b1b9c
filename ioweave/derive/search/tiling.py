"""The best tile sizes of one shape, exactly, by branch and bound over vectors of cells.

Only tiles that change a ceiling are tried: of all tiles with the same number of tiles the
smallest holds least. A cell is a range of such tiles for every axis: its least transfers are
those of its largest tiles, and it is feasible only if its smallest tiles are. All cells of a
round are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ioweave.derive.counting.terms import Gathered, Terms, bits, numbers, transfers
from ioweave.derive.counting.tiles import Ints
from ioweave.derive.search.relaxed import split_cells

EVERY = 1 << 13  # an axis of so many tiles or fewer may be tried at every size
CELLS = 1 << 18  # more cells at once than this are cut to the most promising, and the answer says so

Var = tuple[str, str]  # ("group" | "stream", axis)


@dataclass(frozen=True)
class Tiling:
    """The least transfers of a shape with tile sizes that attain them."""

    values: int
    tiles: Mapping[Var, int]


@lru_cache(maxsize=1024)
def candidates(size: int, align: int = 1) -> Ints:
    """Tile sizes that change the number of tiles, ascending: multiples of ``align``, and the whole axis."""
    if size <= align:
        return np.array([size], dtype=np.int64)
    root = int(size**0.5) + 1
    counts = np.arange(1, root + 1, dtype=np.int64)
    tiles = np.unique(np.concatenate([-(-size // counts), np.arange(1, min(root, size) + 1)]))
    if align > 1:
        tiles = np.unique(np.minimum(-(-tiles // align) * align, size))
    return tiles.astype(np.int64)


@lru_cache(maxsize=1024)
def every_size(size: int, align: int = 1) -> Ints:
    """Every tile size, ascending: multiples of ``align``, and the whole axis; of a long axis as `candidates`."""
    if size > EVERY:
        return candidates(size, align)
    tiles = np.arange(min(align, size), size + 1, align, dtype=np.int64)
    return tiles if tiles[-1] == size else np.append(tiles, size)


def variables(terms: Terms, group: tuple[str, ...], loops: tuple[str, ...]) -> tuple[list[Var], list[Var]]:
    """Tile sizes that transfers depend on, and those that they do not."""
    moving: set[Var] = set()
    for _, p in (*terms.loads, *terms.stores):
        for f in p.factors:
            if f.kind not in ("tiles", "swept"):
                continue
            for axis, at in f.places:
                if at == "whole":
                    continue
                moving.add(("stream" if at == "step" else "group", axis))
                if at == "step" and axis in terms.grouped:
                    moving.add(("group", axis))
    every: list[Var] = [*(("group", a) for a in group), *(("stream", a) for a in loops)]
    return [v for v in every if v in moving], [v for v in every if v not in moving]


def _ring(chosen: Mapping[Var, Any], sizes: Mapping[str, int], lower: bool = False) -> Any:
    ring = numbers(
        sizes,
        {a: t for (k, a), t in chosen.items() if k == "group"},
        {a: t for (k, a), t in chosen.items() if k == "stream"},
    )
    if lower:  # steps restart in every group tile; without the restarts there are no more of them
        return replace(ring, whole_steps=lambda n, g, s: -(-n // s), restarts=False)
    return ring


def best_tiles(
    terms: Terms,
    group: tuple[str, ...],
    loops: tuple[str, ...],
    batch: tuple[str, ...],
    sizes: Mapping[str, int],
    capacity_bits: int,
    ceiling: float,
    align: Mapping[str, int],
) -> tuple[Tiling | None, bool]:
    """The least transfers of a shape up to ``ceiling``, or None where there are none; False if any was passed over."""
    moving, still = variables(terms, group, loops)
    still += [v for v in moving if v[1] in batch]
    moving = [v for v in moving if v[1] not in batch]
    fixed: dict[Var, Any] = {v: min(align.get(v[1], 1), sizes[v[1]]) for v in still}
    uneven = {a for _, p in terms.loads for f in p.factors if isinstance(f, Gathered) for a, _ in f.places}
    options = [(every_size if a in uneven else candidates)(sizes[a], align.get(a, 1)) for _, a in moving]
    if not moving:
        ring = _ring(fixed, sizes)
        if int(bits(terms, ring)) > capacity_bits:
            return None, True
        h = int(transfers(terms, ring))
        return Tiling(h, fixed) if h <= ceiling else None, True
    tiling, exact = _branch(terms, moving, options, fixed, sizes, capacity_bits, ceiling)
    return tiling, exact and all(sizes[a] <= EVERY for _, a in moving if a in uneven)


def _branch(
    terms: Terms,
    moving: list[Var],
    options: list[Ints],
    fixed: dict[Var, Any],
    sizes: Mapping[str, int],
    capacity_bits: int,
    ceiling: float,
) -> tuple[Tiling | None, bool]:
    lo = np.zeros((len(moving), 1), dtype=np.int64)
    hi = np.array([[len(o) - 1] for o in options], dtype=np.int64)
    best: Tiling | None = None
    exact = True

    def chosen(index: Ints) -> dict[Var, Any]:
        return {**fixed, **{v: o[i] for v, o, i in zip(moving, options, index, strict=True)}}

    while lo.shape[1]:
        small, large = chosen(lo), chosen(hi)
        fits = np.broadcast_to(bits(terms, _ring(small, sizes)) <= capacity_bits, lo.shape[1:])
        least = np.broadcast_to(transfers(terms, _ring(large, sizes, True)), lo.shape[1:])
        keep = fits & (least <= ceiling)
        lo, hi, least = lo[:, keep], hi[:, keep], least[keep]
        if not lo.shape[1]:
            break
        at_low = np.broadcast_to(transfers(terms, _ring(chosen(lo), sizes)), lo.shape[1:])
        k = int(np.argmin(at_low))
        if at_low[k] <= ceiling and (best is None or at_low[k] < best.values):
            tiles = {**fixed, **{v: int(o[i]) for v, o, i in zip(moving, options, lo[:, k], strict=True)}}
            best = Tiling(int(at_low[k]), tiles)
            ceiling = best.values
        open_ = (hi > lo).any(axis=0) & (least < (best.values if best else np.inf))
        lo, hi, least = lo[:, open_], hi[:, open_], least[open_]
        if lo.shape[1] > CELLS:
            exact = False
            order = np.argsort(least, kind="stable")[:CELLS]
            lo, hi = lo[:, order], hi[:, order]
        if not lo.shape[1]:
            break
        lo, hi = split_cells(lo, hi)
    return best, exact


def enlarge(
    terms: Terms,
    tiling: Tiling,
    which: list[Var],
    sizes: Mapping[str, int],
    capacity_bits: int,
    align: Mapping[str, int],
) -> Tiling:
    """The same transfers with larger tiles of ``which``, each as few trips as fit, none larger than its trips need."""
    tiles = dict(tiling.tiles)
    for v in which:
        options = candidates(sizes[v[1]], align.get(v[1], 1))
        ring = _ring({**tiles, v: options}, sizes)
        fits = np.broadcast_to(bits(terms, ring) <= capacity_bits, options.shape)
        same = np.broadcast_to(transfers(terms, ring) <= tiling.values, options.shape)
        good = options[fits & same]
        if len(good):
            tiles[v] = int(good[-1])
    return replace(tiling, tiles=tiles)
