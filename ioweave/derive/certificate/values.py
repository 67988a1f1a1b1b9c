"""Scalar expressions and reductions on whole arrays, for the check alone: it asks no other interpreter.

An axis is one dimension of a space; what does not depend on it has length 1 there. A read out of range is
no number, which a guard never selects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.arithmetic import FUNCTIONS, REDUCERS
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size, is_predicate_of_indices
from ioweave.diagrams.operators import KEEP

Values = NDArray[Any]
Arrays = Mapping[str, Values]
Step = tuple[int, int]  # half open
Names = Mapping[str, int | float]
NOWHERE = -(1 << 40)  # a place in no array

# of the counter-based draw that `keep` is defined by: the increment of splitmix64, and the steps of its finaliser
_INCREMENT = np.uint64(11400714819323198485)
_FIRST, _SECOND = np.uint64(13787848793156543929), np.uint64(10723151780598845931)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


@dataclass(frozen=True)
class Space:
    """Axes in order, each with its half-open interval; ``names`` are sizes and constants."""

    spans: Mapping[str, Step]
    names: Names

    @staticmethod
    def of(axes: Iterable[str], names: Names, cut: Mapping[str, Step]) -> Space:
        """These axes whole, but for those that are cut."""
        return Space({a: cut[a] if a in cut else (0, length(a, names)) for a in axes}, names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of every axis."""
        return tuple(hi - lo for lo, hi in self.spans.values())

    def along(self, axis: str) -> Values:
        """The indices of an axis in its own dimension."""
        shape = [1] * len(self.spans)
        shape[list(self.spans).index(axis)] = -1
        return np.arange(*self.spans[axis], dtype=np.int64).reshape(shape)


def length(axis: str, names: Names) -> int:
    """The length of an axis component."""
    return int(names[axis if axis in names else base_name(axis)])


def value(e: Expr, space: Space, arrays: Arrays) -> Values:
    """An expression at every index of a space; dimensions that it does not vary along have length 1."""
    match e:
        case Number(value=number):
            return np.asarray(number)
        case Constant(name=name) | Size(axis=name):
            return np.asarray(space.names[name])
        case Index(axis=axis):
            return space.along(axis)
        case Read():
            return _read(e, space, arrays)
        case Apply(op=op, args=args):
            values = [value(a, space, arrays) for a in args]
            if op == KEEP:
                return kept(values[0], values[1:])
            result = np.asarray(FUNCTIONS[op](*values))
            if op == "mul":  # a predicate as a factor selects, as `where` does
                for factor, mask in zip(args, values, strict=True):
                    if is_predicate_of_indices(factor) and not np.all(mask):
                        result = np.where(mask == 0, 0, result)
            return result
    raise TypeError(f"{type(e).__name__} is no scalar expression")


def kept(drop: Values, indices: Iterable[Values]) -> Values:
    """Dropout by counters: true where the hash of the indices, a number in [0, 1), is at least ``drop``."""
    state = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for index in indices:
            state = state + (index.astype(np.int64) + 1).astype(np.uint64) * _INCREMENT
            state = (state ^ (state >> _SHIFTS[0])) * _FIRST
            state = (state ^ (state >> _SHIFTS[1])) * _SECOND
            state = state ^ (state >> _SHIFTS[2])
    return np.asarray(np.ldexp((state >> np.uint64(11)).astype(float), -53) >= drop)


def places(form: Affine, space: Space, arrays: Arrays) -> Values:
    """The positions that an index form names."""
    total: Any = np.asarray(form.offset + sum(c * int(space.names[s]) for s, c in form.sizes), dtype=np.int64)
    for axis, c in form.axes:
        total = total + c * space.along(axis)
    for lookup, c in form.lookups:
        found = np.asarray(value(lookup.expr, space, arrays), dtype=float)
        total = total + c * np.where(np.isfinite(found), found, NOWHERE).astype(np.int64)
    return np.asarray(total)


def _read(r: Read, space: Space, arrays: Arrays) -> Values:
    array = arrays[r.array]
    if not r.index:
        return array
    part = _slice(array, r, space)
    if part is not None:
        return part
    outside: Any = False
    where = []
    for form, size in zip(r.index, array.shape, strict=True):
        at = places(form, space, arrays)
        outside = outside | (at < 0) | (at >= size)
        where.append(np.clip(at, 0, max(size - 1, 0)))
    shape = np.broadcast_shapes(*(at.shape for at in where))
    if not array.size:
        return np.full(shape, np.nan)
    found = array[tuple(np.broadcast_arrays(*where))]
    return np.where(outside, np.nan, found) if np.any(outside) else found


def _slice(array: Values, r: Read, space: Space) -> Values | None:
    """A read in range at bare axes, each once, as a part of the array; None for any other."""
    axes = [f.bare for f in r.index]
    if None in axes or len(set(axes)) < len(axes):
        return None
    spans = [space.spans[str(a)] for a in axes]
    if any(lo < 0 or hi > n for (lo, hi), n in zip(spans, array.shape, strict=True)):
        return None
    order = list(space.spans)
    rank = [order.index(str(a)) for a in axes]
    part = array[tuple(slice(lo, hi) for lo, hi in spans)].transpose(np.argsort(rank))
    shape = [1] * len(order)
    for k, n in zip(sorted(rank), part.shape, strict=True):
        shape[k] = n
    return part.reshape(shape)


def reduced(op: str, e: Expr, count: int, space: Space, arrays: Arrays) -> Values:
    """A reduction of an expression over the last ``count`` axes of a space."""
    terms = np.broadcast_to(value(e, space, arrays), space.shape)
    axes = tuple(range(len(space.spans) - count, len(space.spans)))
    return np.asarray(REDUCERS[op](terms, axis=axes))


def full(e: Expr, space: Space, arrays: Arrays) -> Values:
    """An expression at every index of a space, every dimension at its length."""
    return np.array(np.broadcast_to(value(e, space, arrays), space.shape))


def flat(positions: tuple[str, ...], space: Space) -> Values:
    """The position of every term of a space over these axes, counted over their whole lengths, the last fastest."""
    total: Any = np.zeros(1, dtype=np.int64)
    for a in positions:
        total = (total[:, None] * length(a, space.names) + np.arange(*space.spans[a])).reshape(-1)
    return np.asarray(total)


def volume(axes: Iterable[str], names: Names) -> int:
    """The number of indices over these axes."""
    return prod(length(a, names) for a in axes)
