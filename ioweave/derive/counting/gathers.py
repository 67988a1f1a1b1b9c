"""How many elements a reach touches on a tile, and how many it may: lookups counted.

Where index arrays are known (`Look.arrays`), or an index is made of indices alone, the elements are
counted one by one or in closed form; else the count is the largest that the index arrays may give, or
with ``least`` the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ioweave.derive.counting.lengths import Bounds, interval, length, points, without_gaps
from ioweave.derive.program.arguments import written
from ioweave.derive.program.coordinates import Coordinate, Variable
from ioweave.derive.program.reach import Place, Reach
from ioweave.derive.program.spans import Span
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Apply, Expr, Index, Number, Read

MANY = 1 << 24  # elements that are counted one by one at most
NOWHERE = -(1 << 40)  # a place in no array

Piece = tuple[Place, ...]


@dataclass(frozen=True)
class Look:
    """What is known of index arrays: ``arrays`` of whole numbers by name.

    Of what is looked up in others the most is counted that may be touched, or the ``least``.
    """

    arrays: Mapping[str, Any] = field(default_factory=dict)
    least: bool = False

    def knows(self, reach: Reach) -> bool:
        """Whether the elements of a reach are known exactly."""
        return reach.exact is not None or all(a in self.arrays for a in reach.arrays)


def touched(reach: Reach, bounds: Bounds, look: Look | None) -> Any:
    """The elements of a reach over bounds: as many as there are, or may be; without a ``look`` what room they take."""
    if look is None:
        return room(reach, bounds)
    if reach.exact is not None:
        return _all(reach.exact, bounds)
    if look.knows(reach):
        exprs = tuple(written(f) for f in reach.forms)
        variables = tuple(Variable(a, span) for a, span in reach.inner)
        return _one_by_one(variables, exprs, reach.sizes, bounds, look.arrays)
    return least(reach, bounds) if look.least else room(reach, bounds)


def room(reach: Reach, bounds: Bounds) -> Any:
    """The most elements that a reach may touch, whatever index arrays hold."""
    return np.minimum(_all(reach.most, bounds), reach.cap)


def overflows(reach: Reach, bounds: Bounds) -> bool:
    """Whether more places may be named over bounds than there are, so that their number is the most."""
    return bool(np.any(_all(reach.most, bounds) > reach.cap))


def least(reach: Reach, bounds: Bounds) -> Any:
    """The fewest elements that a reach touches, whatever index arrays hold: one, or what other indices tell apart."""
    found: Any = 1
    for coordinates in reach.least:
        found = np.maximum(found, _all(coordinates, bounds))
    return np.minimum(found, room(reach, bounds))


def _all(coordinates: Sequence[Coordinate], bounds: Bounds) -> Any:
    result: Any = 1
    for c in coordinates:
        result = result * _coordinate(c, bounds)
    return result


def _coordinate(c: Coordinate, bounds: Bounds) -> Any:
    if c.kind == "value":
        return length(c.span, bounds)
    if c.apart is not None and not without_gaps(c.span, bounds):
        return _one_by_one(*c.apart, c.limits, bounds, {})
    if c.kind == "tuple":
        return _one_by_one(c.variables, c.exprs, c.limits, bounds, {})
    lo, hi = interval(c.span, bounds)
    if c.kind == "remainder":
        return np.minimum(hi - lo, c.by)
    return np.where(hi > lo, (hi - 1) // c.by - lo // c.by + 1, 0)


def _one_by_one(
    variables: tuple[Variable, ...],
    exprs: tuple[Expr, ...],
    limits: tuple[int, ...] | None,
    bounds: Bounds,
    arrays: Mapping[str, Any],
) -> Any:
    """How many different values expressions have over bounds, those outside ``limits`` left out."""
    ends = [x for v in variables for x in interval(v.span, bounds)]
    shape = np.broadcast_shapes(*(np.shape(x) for x in ends))
    rows = np.stack([np.broadcast_to(np.asarray(x, dtype=np.int64), shape).ravel() for x in ends], axis=1)
    different, back = np.unique(rows, axis=0, return_inverse=True)
    work = int(np.prod(np.maximum(different[:, 1::2] - different[:, ::2], 0), axis=1, dtype=object).sum())
    if work > MANY:
        names = ", ".join(v.name for v in variables)
        raise Refused(f"what is looked up along {names} is counted by element, and there are {work:,} of them")
    counts = np.array([len(_found(variables, exprs, limits, row, arrays)) for row in different], dtype=np.int64)
    result = counts[back.ravel()].reshape(shape)
    return result if shape else int(result)


def _found(
    variables: tuple[Variable, ...],
    exprs: tuple[Expr, ...],
    limits: tuple[int, ...] | None,
    row: Any,
    arrays: Mapping[str, Any],
) -> Any:
    """The different values of expressions while variables run over intervals, one row each."""
    ranges = [np.arange(lo, max(hi, lo)) for lo, hi in zip(row[::2].tolist(), row[1::2].tolist(), strict=True)]
    mesh = np.meshgrid(*ranges, indexing="ij", sparse=True)
    at = {v.name: m - v.shift for v, m in zip(variables, mesh, strict=True)}
    shape = tuple(len(r) for r in ranges)
    columns = [np.broadcast_to(_value(e, at, arrays), shape).ravel() for e in exprs]
    found = np.stack(columns, axis=1).astype(np.int64)
    if limits is not None:
        found = found[((found >= 0) & (found < np.array(limits))).all(axis=1)]
    return np.unique(found, axis=0)


def _value(e: Expr, at: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    match e:
        case Number(value=v):
            return np.asarray(v)
        case Index(axis=a):
            return at[a]
        case Apply(op=op, args=args):
            return FUNCTIONS[op](*(_value(x, at, arrays) for x in args))
        case Read(array=name, index=index):
            array = np.asarray(arrays[name])
            index_values = np.broadcast_arrays(*(_value(written(f), at, arrays) for f in index))
            inside: Any = True
            for i, n in zip(index_values, array.shape, strict=True):
                inside = inside & (i >= 0) & (i < n)
            where = tuple(np.where(inside, i, 0).astype(np.int64) for i in index_values)
            return np.where(inside, array[where], NOWHERE)
    raise TypeError(f"{type(e).__name__} stands in no index")


def whole(reach: Reach, sizes: Mapping[str, int], look: Look) -> int:
    """The elements of a reach while all axes run over the whole of themselves; no tiling touches fewer in all."""
    return int(touched(reach, {a: (0, sizes[a]) for a, _ in reach.axes}, look))


def least_over_all(reach: Reach, sizes: Mapping[str, int]) -> int:
    """No more than a reach is counted as in all tiles together: 1 where they are too many to count."""
    try:
        return max(1, whole(reach, sizes, Look()))
    except Refused:
        return 1


# -- unions


def is_gathered(pieces: Sequence[Piece]) -> bool:
    """Whether any position is looked up."""
    return any(isinstance(s, Reach) for p in pieces for s in p)


def alike(pieces: Sequence[Piece]) -> bool:
    """Whether pieces take the same positions together."""
    return len({tuple(s.places if isinstance(s, Reach) else () for s in p) for p in pieces}) == 1


def union(
    pieces: Sequence[Piece],
    bounds: Bounds,
    alive: list[Any] | None,
    look: Look | None,
    of_spans: Callable[[tuple[Span, ...]], Any],
) -> Any:
    """As many elements as pieces touch together over bounds, or may touch; ``of_spans`` counts those of spans alone.

    Where index arrays do not tell, they touch at most as much as each by itself, and no more than the array has.
    """
    if len(pieces) > 1 and look is not None and all(look.knows(s) for p in pieces for s in p if isinstance(s, Reach)):
        return _element_sets(pieces, bounds, alive, look)
    volumes = []
    for k, piece in enumerate(pieces):
        volume = of_spans(tuple(s for s in piece if isinstance(s, Span)))
        for s in piece:
            if isinstance(s, Reach):
                volume = volume * touched(s, bounds, look)
        volumes.append(volume * alive[k] if alive is not None else volume)
    if len(volumes) == 1:
        return volumes[0]
    if look is not None and look.least:
        most: Any = 0
        for v in volumes:
            most = np.maximum(most, v)
        return most
    return np.minimum(sum(volumes), _room_of_array(pieces[0]))


def _room_of_array(piece: Piece) -> int:
    result = 1
    for s in piece:
        for n in s.sizes if isinstance(s, Reach) else (s.size,):
            result *= n
    return result


def _element_sets(pieces: Sequence[Piece], bounds: Bounds, alive: list[Any] | None, look: Look) -> Any:
    axes = sorted({a for p in pieces for s in p for a, _ in s.axes})
    arrays = [x for a in axes for x in bounds[a]] + (alive or [])
    shape = np.broadcast_shapes(*(np.shape(x) for x in arrays))
    out = np.zeros(shape, dtype=np.int64)
    work = 0
    for at in np.ndindex(*shape):
        here = {a: tuple(int(np.broadcast_to(x, shape)[at]) for x in bounds[a]) for a in axes}
        found = []
        for k, piece in enumerate(pieces):
            if alive is None or bool(np.broadcast_to(alive[k], shape)[at]):
                found.append(elements(piece, {a: (lo, hi) for a, (lo, hi) in here.items()}, look))
                work += len(found[-1])
        if work > MANY:
            raise Refused("what several lookups of one array touch is counted by element, and there are too many")
        out[at] = len(np.unique(np.concatenate(found), axis=0)) if found else 0
    return out if shape else int(out)


def elements(piece: Piece, bounds: Mapping[str, tuple[int, int]], look: Look) -> Any:
    """The elements that a piece touches over bounds, one row of places each; all its index arrays are known."""
    spans = [(k, s) for k, s in zip(_firsts(piece), piece, strict=True) if isinstance(s, Span)]
    parts = [([k for k, _ in spans], np.unique(points(tuple(s for _, s in spans), bounds), axis=0))] if spans else []
    for s in piece:
        if isinstance(s, Reach):
            variables = tuple(Variable(a, span) for a, span in s.inner)
            row = np.array([x for v in variables for x in interval(v.span, bounds)])
            exprs = tuple(written(f) for f in s.forms)
            parts.append((list(s.places), _found(variables, exprs, s.sizes, row, look.arrays)))
    total = np.zeros((1, 0), dtype=np.int64)
    for _, rows in parts:
        total = np.concatenate([np.repeat(total, len(rows), axis=0), np.tile(rows, (len(total), 1))], axis=1)
    return total[:, np.argsort([k for at, _ in parts for k in at])]


def _firsts(piece: Piece) -> list[int]:
    """The position in its array of every part of a piece; the first of a reach's."""
    taken = {k for s in piece if isinstance(s, Reach) for k in s.places}
    free = iter(k for k in range(len(taken) + len(piece)) if k not in taken)
    return [s.places[0] if isinstance(s, Reach) else next(free) for s in piece]
