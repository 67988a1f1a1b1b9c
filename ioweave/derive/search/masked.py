"""Tile sizes where the terms are not the whole story: masks, unions of reads, cut windows.

The terms give what is held; transfers are counted exactly, candidate by candidate, in order of
a lower bound, until the bound passes the best. Steps that only a mask feels are as short as
may be: shorter steps leave out no less.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from ioweave.derive.counting.region import count_loads, count_stores, trace
from ioweave.derive.counting.terms import Terms, bits, numbers
from ioweave.derive.counting.tiles import Ints, Tiles
from ioweave.derive.program.build import Shape
from ioweave.derive.program.program import Program
from ioweave.derive.program.setting import Setting
from ioweave.derive.search.relaxed import Basis, Bound, transfers
from ioweave.derive.search.tiling import Tiling, Var, candidates, variables
from ioweave.diagrams.errors import Refused

EVERY = 1 << 13  # one axis of so many tiles or fewer is tried at every size
GRID = 1 << 18  # candidates ranked at most
COUNTED = 256  # candidates counted exactly at most


def best_masked(
    program: Program,
    t: Terms,
    bound: Bound,
    b: Basis,
    shape: Shape,
    setting: Setting,
    capacity_bits: int,
    ceiling: float,
    align: Mapping[str, int],
) -> Tiling | None:
    """The least exact transfers up to ``ceiling``; ``exact`` tells whether every candidate was bounded or counted."""
    batch = b.frame.batch
    moving, still = variables(t, shape.group, shape.loops)
    free = [v for v in moving if v[1] not in batch]
    fixed = {v: min(align.get(v[1], 1), setting.sizes[v[1]]) for v in (*moving, *still) if v not in free}
    options = [_sizes(setting.sizes[a], align.get(a, 1), len(free) == 1) for _, a in free]
    exact = True
    while options and np.prod([float(len(o)) for o in options]) > GRID:
        exact = False
        longest = max(range(len(options)), key=lambda k: len(options[k]))
        options[longest] = options[longest][::2]
    grid = np.array(list(product(*options)), dtype=np.int64).T.reshape(len(free), -1)
    chosen = {**fixed, **dict(zip(free, grid, strict=True))}
    ring = numbers(
        setting.sizes, {a: chosen["group", a] for a in shape.group}, {a: chosen["stream", a] for a in shape.loops}
    )
    grid = grid[:, np.broadcast_to(bits(t, ring) <= capacity_bits, grid.shape[1:])]
    tiles_of = {a: n for (_, a), n in (*fixed.items(), *zip(free, grid, strict=True))}
    least = transfers(bound, b, [tiles_of.get(a, setting.sizes[a]) for a in b.frame.axes])
    least = np.broadcast_to(least, grid.shape[1:])
    best: Tiling | None = None
    for count, k in enumerate(np.argsort(least, kind="stable")):
        if least[k] > min(ceiling, best.values if best else np.inf):
            break
        if count >= COUNTED:
            exact = False
            break
        tiles = {**fixed, **{v: int(x) for v, x in zip(free, grid[:, k], strict=True)}}
        h = exact_transfers(program, tiles, setting)
        if h is not None and h <= ceiling and (best is None or h < best.values):
            best = Tiling(h, tiles, True)
    if best is None:
        return None
    tiles = _longer_steps(program, t, best, still, batch, setting, capacity_bits, align)
    return Tiling(best.values, tiles, exact)


def _sizes(size: int, align: int, every: bool) -> Ints:
    """Tile sizes to try: all where that is few, for under a mask more than the number of tiles matters."""
    if every and size <= EVERY and align == 1:
        return np.arange(1, size + 1, dtype=np.int64)
    return candidates(size, align)


def _longer_steps(
    program: Program,
    t: Terms,
    best: Tiling,
    still: list[Var],
    batch: tuple[str, ...],
    setting: Setting,
    capacity_bits: int,
    align: Mapping[str, int],
) -> dict[Var, int]:
    """Steps that are longer at the same transfers, where a state is rescaled in each: fewer FLOPs."""
    rescaled = {a for box in program.boxes if box.rescale is not None for a in box.over}
    tiles = dict(best.tiles)
    for v in still:
        if v[0] != "stream" or v[1] not in rescaled or v[1] in batch:
            continue
        for step in candidates(setting.sizes[v[1]], align.get(v[1], 1))[::-1]:
            longer = {**tiles, v: int(step)}
            ring = numbers(
                setting.sizes,
                {a: n for (k, a), n in longer.items() if k == "group"},
                {a: n for (k, a), n in longer.items() if k == "stream"},
            )
            if int(np.max(bits(t, ring))) <= capacity_bits and exact_transfers(program, longer, setting) == best.values:
                tiles = longer
                break
    return tiles


def exact_transfers(program: Program, tiles: Mapping[Var, int], setting: Setting) -> int | None:
    """Exact transfers in values at concrete tiles, or None where they cannot be counted."""
    t = Tiles(
        {a: n for (k, a), n in tiles.items() if k == "group"},
        {a: n for (k, a), n in tiles.items() if k == "stream"},
        setting.sizes,
    )
    try:
        survive = trace(program, t, setting)
        loads = sum(n for _, n in count_loads(program, t, survive))
    except Refused:
        return None
    return loads + sum(n for n, _ in count_stores(program, t).values())
