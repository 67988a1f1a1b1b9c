"""Scalar expressions on grids of indices: whole arrays of values at once, in float64 and int64.

An axis is one dimension of the grid; what does not depend on it has length 1 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.arithmetic import FUNCTIONS, REDUCERS
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size, is_predicate_of_indices

Values = NDArray[Any]
CELLS = 1 << 22  # of one dense intermediate


@dataclass(frozen=True)
class Grid:
    """The axes in scope: where each stands among ``rank`` dimensions, and its half-open interval."""

    place: Mapping[str, int]
    bounds: Mapping[str, tuple[int, int]]
    rank: int
    names: Mapping[str, int | float]

    @staticmethod
    def over(axes: Mapping[str, tuple[int, int]], names: Mapping[str, int | float]) -> Grid:
        """A grid of these axes in order; ``names`` are sizes and constants."""
        return Grid({a: k for k, a in enumerate(axes)}, dict(axes), len(axes), names)

    def bind(self, axes: Mapping[str, tuple[int, int]]) -> Grid:
        """The grid with further axes, in new last dimensions; a name in use is shadowed."""
        place = {**self.place, **{a: self.rank + k for k, a in enumerate(axes)}}
        return Grid(place, {**self.bounds, **axes}, self.rank + len(axes), self.names)

    def index(self, axis: str) -> Values:
        """The indices of an axis, along its own dimension."""
        lo, hi = self.bounds[axis]
        shape = [1] * self.rank
        shape[self.place[axis]] = hi - lo
        return np.arange(lo, hi, dtype=np.int64).reshape(shape)

    def extent(self, axis: str) -> int:
        """The length of an axis."""
        lo, hi = self.bounds[axis]
        return hi - lo

    def form(self, form: Affine, read: Reader | None = None) -> Values:
        """The values of an index form; ``read`` gives those of the index arrays that it is looked up in."""
        total: Any = np.full([1] * self.rank, form.offset, dtype=np.int64)
        for size, c in form.sizes:
            total = total + c * int(self.names[size])
        for axis, c in form.axes:
            total = total + c * self.index(axis)
        for lookup, c in form.lookups:
            total = total + c * whole(values_of(lookup.expr, self, read or _nothing))
        return np.asarray(total)

    def narrowed(self, axis: str, lo: int, hi: int) -> Grid:
        """The grid with one axis cut to ``lo .. hi``."""
        return replace(self, bounds={**self.bounds, axis: (lo, hi)})


Reader = Callable[[Read, Grid], Values]
Known = Callable[[Expr], float | None]
NOWHERE = -(1 << 40)  # a place in no array: what an index array that holds no number there names


def whole(values: Values) -> Values:
    """Values as whole numbers; what is not a number is nowhere."""
    if values.dtype.kind == "f":
        return np.where(np.isfinite(values), values, NOWHERE).astype(np.int64)
    return values.astype(np.int64)


def _nothing(r: Read, grid: Grid) -> Values:
    raise TypeError(f"{r.array} is read in an index, and nothing is known of it")


def block(array: Values, read: Read, grid: Grid, lows: tuple[int, ...]) -> Values | None:
    """A read of bare axes as a slice of what is held from ``lows`` on; None for any other read or out of range."""
    axes = [f.bare for f in read.index]
    if None in axes or len(set(axes)) < len(axes):
        return None
    cut = []
    for a, lo, n in zip(axes, lows, array.shape, strict=True):
        first, last = grid.bounds[str(a)]
        if first < lo or last - lo > n:
            return None
        cut.append(slice(first - lo, last - lo))
    places = [grid.place[str(a)] for a in axes]
    part = array[tuple(cut)].transpose([places.index(p) for p in sorted(places)])
    shape = [1] * grid.rank
    for p, n in zip(sorted(places), part.shape, strict=True):
        shape[p] = n
    return part.reshape(shape)


def gather(array: Values, index: tuple[Values, ...], lows: tuple[int, ...] | None = None, dead: Any = None) -> Values:
    """Elements at index grids; ``lows`` is where the held part of the array starts.

    Out of range gives some element of the array, or ``dead`` where it is given: a guard never selects it.
    """
    if not index:
        return array
    if not array.size:  # nothing is held: no element is in range
        return np.full(np.broadcast_shapes(*(i.shape for i in index)), np.nan if dead is None else dead)
    places = []
    outside: Any = False
    for k, raw in enumerate(index):
        i = raw - lows[k] if lows is not None else raw
        outside = outside | (i < 0) | (i >= array.shape[k])
        places.append(np.clip(i, 0, array.shape[k] - 1))
    found: Values = array[tuple(np.broadcast_arrays(*places))]
    if dead is None or not np.any(outside):
        return found
    return np.asarray(np.where(outside, dead, found))


def values_of(e: Expr, grid: Grid, read: Reader, known: Known | None = None) -> Values:
    """The values of an expression without reductions; ``known`` gives constants that stand for sub-expressions."""
    if known is not None and not isinstance(e, Number):
        fixed = known(e)
        if fixed is not None:
            return np.asarray(fixed).reshape([1] * grid.rank)
    match e:
        case Number(value=value):
            return np.asarray(value).reshape([1] * grid.rank)
        case Constant(name=name) | Size(axis=name):
            return np.asarray(grid.names[name]).reshape([1] * grid.rank)
        case Index(axis=axis):
            return grid.index(axis)
        case Read():
            return read(e, grid)
        case Apply(op=op, args=args):
            values = [values_of(a, grid, read, known) for a in args]
            result = np.asarray(FUNCTIONS[op](*values))
            if op == "mul":  # a predicate as a factor selects, as `where` does
                for factor, factor_values in zip(args, values, strict=True):
                    if is_predicate_of_indices(factor) and not np.all(factor_values):
                        result = np.where(factor_values == 0, 0, result)
            return result
    raise TypeError(f"{type(e).__name__} is no scalar expression")


def factors(e: Expr) -> list[Expr]:
    """The factors of a product, flattened."""
    if isinstance(e, Apply) and e.op == "mul":
        return [f for a in e.args for f in factors(a)]
    return [e]


def reduce(op: str, body: Expr, dims: tuple[int, ...], grid: Grid, read: Reader, known: Known | None = None) -> Values:
    """``op`` of ``body`` over dimensions of the grid; they are kept with length 1."""
    parts = factors(body)
    if op == "sum" and len(parts) > 1 and (known is None or known(body) is None):
        values = [values_of(p, grid, read, known) for p in parts]
        if all(np.all(np.isfinite(v)) for v in values):
            return _contract(values, dims, grid)
    full = _full_shape(grid)
    cells = int(np.prod(full)) if full else 1
    if cells > CELLS:
        free = (a for a in grid.place if grid.place[a] not in dims and grid.extent(a) > 1)
        axis = max(free, key=grid.extent, default=None)
        if axis is not None:
            lo, hi = grid.bounds[axis]
            step = max(1, (hi - lo) * CELLS // cells)
            pieces = []
            for a in range(lo, hi, step):
                part = grid.narrowed(axis, a, min(a + step, hi))
                pieces.append(np.broadcast_to(reduce(op, body, dims, part, read, known), _cut_shape(part, dims)))
            return np.concatenate(pieces, axis=grid.place[axis])
    value = values_of(body, grid, read, known)
    shape = [full[k] if k in dims else value.shape[k] for k in range(grid.rank)]
    return np.asarray(REDUCERS[op](np.broadcast_to(value, shape), axis=dims, keepdims=True))


def _full_shape(grid: Grid) -> list[int]:
    shape = [1] * grid.rank
    for a, k in grid.place.items():
        shape[k] = grid.extent(a)
    return shape


def _cut_shape(grid: Grid, dims: tuple[int, ...]) -> list[int]:
    return [1 if k in dims else n for k, n in enumerate(_full_shape(grid))]


def _contract(values: list[Values], dims: tuple[int, ...], grid: Grid) -> Values:
    """The sum over dimensions of a product, factor by factor as products of matrices."""
    full = _full_shape(grid)
    terms = []
    for v in values:
        own = tuple(k for k in range(grid.rank) if v.shape[k] != 1)
        terms.append((v.reshape([v.shape[k] for k in own]).astype(float), own))
    present = {k for _, own in terms for k in own}
    repeat = int(np.prod([full[d] for d in dims if d not in present], dtype=np.int64))
    out = present - set(dims)
    result = terms[0]
    for n, term in enumerate(terms[1:], start=2):
        later = {k for _, own in terms[n:] for k in own}
        result = _matrices(result, term, out | later)
    array, own = _summed(*result, out)
    shape = [1] * grid.rank
    for k, size in zip(own, array.shape, strict=True):
        shape[k] = size
    order = sorted(range(len(own)), key=lambda i: own[i])
    return array.transpose(order).reshape(shape) * repeat


Term = tuple[Values, tuple[int, ...]]  # an array and the dimension of the grid that each of its axes is


def _summed(array: Values, own: tuple[int, ...], keep: set[int]) -> Term:
    """A term summed over what need not be kept."""
    gone = tuple(i for i, k in enumerate(own) if k not in keep)
    return (array.sum(axis=gone), tuple(k for k in own if k in keep)) if gone else (array, own)


def _matrices(left: Term, right: Term, keep: set[int]) -> Term:
    """The product of two terms summed over the dimensions that are not kept, as a batch of matrix products."""
    a, of_a = _summed(*left, keep | set(right[1]))
    b, of_b = _summed(*right, keep | set(left[1]))
    batch = [k for k in of_a if k in of_b and k in keep]
    over = [k for k in of_a if k in of_b and k not in keep]
    rows = [k for k in of_a if k not in of_b]
    columns = [k for k in of_b if k not in of_a]
    a = a.transpose([of_a.index(k) for k in (*batch, *rows, *over)])
    b = b.transpose([of_b.index(k) for k in (*batch, *over, *columns)])
    size = dict(zip((*batch, *rows, *over), a.shape, strict=True)) | dict(
        zip((*batch, *over, *columns), b.shape, strict=True)
    )

    def volume(of: list[int]) -> int:
        return int(np.prod([size[k] for k in of], dtype=np.int64))

    product = np.matmul(
        np.ascontiguousarray(a).reshape(volume(batch), volume(rows), volume(over)),
        np.ascontiguousarray(b).reshape(volume(batch), volume(over), volume(columns)),
    )
    own = (*batch, *rows, *columns)
    return product.reshape([size[k] for k in own]), own
