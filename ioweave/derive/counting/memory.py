"""Memory: the largest sum of what is live, over the columns of the program and all tiles (counting.md 28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ioweave.derive.counting.entries import Entries
from ioweave.derive.counting.footprints import _union
from ioweave.derive.counting.masks import Survival
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.program import Column, Load, Program, Variable
from ioweave.derive.program.reach import Reach
from ioweave.diagrams.dtypes import DTYPES
from ioweave.hierarchy.counts import Memory

EVERY = 256  # up to so many tiles of a shifted axis are all looked at


def count_memory(program: Program, tiles: Tiles, survive: Survival | None, buffers: int = 1) -> Memory:
    """The memory of a region at its lower level."""
    title, live = largest_column(program, tiles, survive, buffers)
    most = sum(live.values())
    if len(program.dtypes) > 1:
        return Memory(most, None, title)
    return Memory(most, sum(most * 8 // DTYPES[d].bits for d in program.dtypes), title)


def largest_column(
    program: Program, tiles: Tiles, survive: Survival | None, buffers: int = 1
) -> tuple[str, dict[str, int]]:
    """The column that holds most, at the tile where it does: its title, and the bytes of each variable live there."""
    table = {v.name: v for v in program.variables}
    present = _presence(program, survive) if survive is not None else {}
    grid = _Grid(program, tiles, survive.entries if survive is not None else None)
    held: dict[str, Any] = {}
    for name, v in table.items():
        times = buffers if v.role == "slab" and v.entered else 1
        held[name] = _bytes(grid.size(v) * grid.rows(present.get((name, None), 1)), v.dtype) * times
    best, at = -1, ""
    live: dict[str, int] = {}
    for column, _ in program.columns():
        total: Any = sum((held[name] for name in column.live), 0)
        if survive is not None:
            total = np.where(grid.rows(_happens(column, survive)), total, -1)
        where = int(np.argmax(total))
        most = int(np.ravel(total)[where])
        if most > best:
            best, at = most, column.title
            shape = np.shape(total)
            live = {name: int(np.ravel(np.broadcast_to(held[name], shape))[where]) for name in column.live}
    return at, live


def _bytes(n: Any, dtype: str) -> Any:
    bits = DTYPES[dtype].bits
    return -(-(n * bits) // 8)


def _happens(column: Column, survive: Survival) -> Any:
    """Per entry whether the column is visited."""
    if column.kind == "load":
        flags: Any = False
        for load in column.loads:
            flags = flags | _deep(survive, load)
        return flags
    if column.kind == "run" and column.box is not None:
        return _computed(column, column.box.name, survive)
    return True


def _computed(column: Column, box: str, survive: Survival) -> Any:
    return survive.runs[box, column.slot] | survive.moves[box, column.slot]


def _deep(survive: Survival, load: Load) -> Any:
    loops = [a for a in survive.entries.axes if a in survive.entries.tiles.stream]
    alive = _alive(survive, load)
    return survive.entries.any_over(alive, loops) if load.depth == 0 and loops else alive


def _alive(survive: Survival, load: Load) -> Any:
    return np.logical_or.reduce(list(survive.loaded(load).values()))


def _presence(program: Program, survive: Survival) -> Mapping[tuple[str, None], Any]:
    """Per variable and entry whether it is there: a slab that is loaded, a result that is computed."""
    result: dict[tuple[str, None], Any] = {}
    loops = [a for a in survive.entries.axes if a in survive.entries.tiles.stream]
    for column, _ in program.columns():
        for load in column.loads:
            flags = _alive(survive, load)
            outside = [a for a in loops if a not in program.variable(load.variable).entered]
            result[load.variable, None] = survive.entries.any_over(flags, outside) if outside else flags
        if column.box is not None and column.variable is not None:
            role = program.variable(column.variable).role
            if role == "value":
                flags = _computed(column, column.box.name, survive)
                outside = [a for a in loops if a not in program.variable(column.variable).entered]
                result[column.variable, None] = survive.entries.any_over(flags, outside) if outside else flags
    return result


class _Grid:
    """A grid of representative tiles on which sizes of variables are evaluated."""

    def __init__(self, program: Program, tiles: Tiles, entries: Entries | None) -> None:
        self.tiles, self.entries = tiles, entries
        shifted: set[str] = set()
        for v in program.variables:
            for piece in v.pieces:
                for span in piece:
                    plain = span.plain is not None if isinstance(span, Reach) else span.bare is not None
                    if not plain or len(v.pieces) > 1:  # unions differ from tile to tile
                        shifted |= {a for a, _ in span.axes}
        masked = set(entries.axes) if entries is not None else set()
        axes = [a for a in dict.fromkeys((*program.grouped, *program.loops)) if a not in masked]
        self.fine: dict[str, tuple[Any, Any]] = {}
        self.coarse: dict[str, tuple[Any, Any]] = {}
        rank = len(axes) + (1 if masked else 0)
        for k, a in enumerate(axes):
            t = tiles.intervals(a, a in tiles.stream)
            n = len(t.lo)
            if a not in shifted:
                pick = np.array([0])
            elif n <= EVERY:
                pick = np.arange(n)
            else:
                half = EVERY // 4
                pick = np.r_[0:half, n // 2, n - half : n]
            shape = [1] * rank
            shape[k + (1 if masked else 0)] = len(pick)
            lo, hi = t.lo[pick], t.hi[pick]
            size = tiles.sizes[a]
            g = min(tiles.group.get(a, size), size)
            glo = lo // g * g
            ghi = np.minimum(glo + g, size)
            self.fine[a] = (lo.reshape(shape), hi.reshape(shape))
            self.coarse[a] = (glo.reshape(shape), ghi.reshape(shape))
        self.rank = rank

    def rows(self, flags: Any) -> Any:
        """A value per entry, along the dimension of the entries."""
        return np.reshape(flags, (-1, *([1] * (self.rank - 1)))) if np.ndim(flags) == 1 else flags

    def size(self, v: Variable) -> Any:
        bounds: dict[str, tuple[Any, Any]] = {a: (0, n) for a, n in self.tiles.sizes.items()}
        for a in self.fine:
            bounds[a] = self.fine[a] if a in v.entered else self.coarse[a]
        if self.entries is not None:
            at = self.entries.bounds(v.entered)
            shape = (-1, *([1] * (self.rank - 1)))
            for a in self.entries.axes:
                lo, hi = (np.broadcast_to(x, (self.entries.length,)).reshape(shape) for x in at[a])
                bounds[a] = (lo, hi)
        return _union(v.pieces, bounds, None)
