"""Which elements of an array a load touches, and what room its slab has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from ioweave.derive.execution.grid import Grid, Reader, Values, values_of
from ioweave.derive.program.arguments import arguments
from ioweave.derive.program.program import Load
from ioweave.derive.program.reach import Reach
from ioweave.diagrams.expressions import Read


def room_for(load: Load, grids: Sequence[Grid], shape: tuple[int, ...]) -> int:
    """The elements that a slab with lookups has room for: the most that its index arrays may name.

    ``grids`` are those of its reads. What is looked up is no more than the different places at which index
    arrays are read, beside what is made of indices alone.
    """
    rooms: dict[object, int] = {}
    for (_, read), piece, grid in zip(load.reads, load.pieces, grids, strict=True):
        if piece in rooms:
            continue
        looked_up = [s for s in piece if isinstance(s, Reach)]
        taken = {k for s in looked_up for k in s.places}
        rest = [k for k in range(len(shape)) if k not in taken]
        touched = np.zeros([shape[k] for k in rest], dtype=bool)
        mark(touched, Read(read.array, tuple(read.index[k] for k in rest)), grid)
        rooms[piece] = int(np.count_nonzero(touched)) * prod(_different(s, grid) for s in looked_up)
    return min(sum(rooms.values()), prod(shape))


def _different(reach: Reach, grid: Grid) -> int:
    """How many different arguments a reach has over a grid, and no more than it has elements."""
    names = [a for a, _ in reach.inner]
    inner = Grid.over({a: grid.bounds[a] for a in names}, grid.names)
    exprs = [e for form in reach.forms for e in arguments(form)]
    columns = np.broadcast_arrays(*(values_of(e, inner, _none) for e in exprs), np.zeros([1] * len(names)))
    shape = [inner.extent(a) for a in names]
    rows = np.stack([np.broadcast_to(c, shape).ravel() for c in columns], axis=1)
    return min(len(np.unique(rows, axis=0)), reach.cap)


def _none(r: Read, grid: Grid) -> Values:
    raise TypeError(f"{r.array} is no argument of a lookup")


def mark(touched: Values, read: Read, grid: Grid, index_arrays: Reader | None = None) -> None:
    """Mark the elements of an array that a read touches over a grid; what lies outside is touched by none.

    ``index_arrays`` reads those that it is looked up in.
    """
    if not read.index:
        touched[...] = True
        return
    index = [grid.form(f, index_arrays) for f in read.index]
    axes = [a for f in read.index for a in f.names]
    if len(axes) == len(set(axes)):  # no axis ties two positions: a product of the places of each
        places = [np.unique(i) for i in index]
        touched[np.ix_(*(i[(i >= 0) & (i < n)] for i, n in zip(places, touched.shape, strict=True)))] = True
        return
    full = np.broadcast_arrays(*index)
    inside = np.ones(full[0].shape, dtype=bool)
    for i, n in zip(full, touched.shape, strict=True):
        inside &= (i >= 0) & (i < n)
    touched[tuple(i[inside] for i in full)] = True


def block_of(read: Read, grid: Grid, shape: tuple[int, ...]) -> tuple[slice, ...] | None:
    """What a read of bare axes touches, as a block; None for any other read."""
    axes = [f.bare for f in read.index]
    if len(set(axes)) < len(axes):
        return None
    block = []
    for a, n in zip(axes, shape, strict=True):
        if a is None:
            return None
        lo, hi = grid.bounds[a]
        block.append(slice(lo, min(hi, n)))
    return tuple(block)


def block_union(reads: Sequence[tuple[Read, Grid]], shape: tuple[int, ...]) -> tuple[slice, ...] | None:
    """The one block that reads fill together, where their blocks follow one another along one axis at most."""
    blocks = list(dict.fromkeys(_span_key(block_of(read, grid, shape)) for read, grid in reads))
    if any(b is None for b in blocks):
        return None
    whole = [b for b in blocks if b is not None]
    for k in range(len(shape)):
        rest = {b[:k] + b[k + 1 :] for b in whole}
        pieces = sorted({b[k] for b in whole})
        if len(rest) == 1 and all(x[1] == y[0] for x, y in pairwise(pieces)):
            joined = [*whole[0]]
            joined[k] = (pieces[0][0], pieces[-1][1])
            return tuple(slice(*i) for i in joined)
    return () if not shape else None


def _span_key(block: tuple[slice, ...] | None) -> tuple[tuple[int, int], ...] | None:
    return None if block is None else tuple((s.start, s.stop) for s in block)


def hull(marked: Values) -> tuple[slice, ...]:
    """The smallest block that holds all marked elements."""
    block = []
    for k in range(marked.ndim):
        others = tuple(j for j in range(marked.ndim) if j != k)
        places = np.flatnonzero(marked.any(axis=others))
        block.append(slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0))
    return tuple(block)
