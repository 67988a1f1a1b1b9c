"""The reference: every line of a diagram on whole arrays in float64, as it is written.

Nothing here knows boxes, tiles or plans: it is what execution is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ioweave.derive.execution.grid import Grid, Values, block, gather, reduce, values_of
from ioweave.diagrams.arithmetic import FUNCTIONS, REDUCERS
from ioweave.diagrams.composites import Definition, definition
from ioweave.diagrams.diagram import Diagram, Line
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Constant,
    Expr,
    Number,
    Read,
    Reduce,
    Scan,
    Size,
    children,
    free_axes,
    rebuild,
)
from ioweave.diagrams.lists import EMPTY, POSITIONS, top
from ioweave.diagrams.operators import COMPOSITES_THAT_REDUCE, REDUCTIONS, REVERSED


def evaluate(diagram: Diagram, values: Mapping[str, int | float], inputs: Mapping[str, Values]) -> dict[str, Values]:
    """Every line's array by name, from arrays of the inputs.

    ``values`` gives every size and constant (`Diagram.values`). Raises KeyError for a missing
    input; an element that a guard never selects may be read anywhere in its array.
    """
    arrays: dict[str, Values] = {i.name: np.asarray(inputs[i.name]) for i in diagram.inputs}
    with np.errstate(all="ignore"):
        for line in diagram.lines:
            arrays[line.name] = _line(line, values, arrays)
    return {line.name: arrays[line.name] for line in diagram.lines}


def _line(line: Line, values: Mapping[str, int | float], arrays: Mapping[str, Values]) -> Values:
    axes = {a: (0, int(values[a])) for a in line.axes}
    grid = Grid.over(axes, values)
    if isinstance(line.expr, Scan):
        return _scan(line, line.expr, grid, arrays)
    result = _Line(arrays).value(line.expr, grid)
    return np.array(np.broadcast_to(result, [grid.extent(a) for a in line.axes]))


def _scan(line: Line, e: Scan, grid: Grid, arrays: Mapping[str, Values]) -> Values:
    """A recurrence, one element of its axis after another; all other axes at once."""
    place = grid.place[e.axis]
    shape = [grid.extent(a) for a in line.axes]
    first = np.broadcast_to(_Line(arrays).value(e.start, grid.narrowed(e.axis, 0, 1)), _one(shape, place))
    n = shape[place]
    made: Values | None = None
    for t in reversed(range(n)) if e.backward else range(n):
        before = np.concatenate([np.zeros(_one(shape, place)) if made is None else made, first], axis=place)
        walked = _Line(arrays, _Walk(line.name, before, place, n if made is not None else 0))
        step = np.broadcast_to(walked.value(e.body, grid.narrowed(e.axis, t, t + 1)), _one(shape, place))
        if made is None:
            made = np.zeros(shape, dtype=np.result_type(step, first))
        elif np.result_type(made, step) != made.dtype:
            made = made.astype(np.result_type(made, step))
        made[(*[slice(None)] * place, slice(t, t + 1))] = step
    assert made is not None
    return made


def _one(shape: list[int], place: int) -> list[int]:
    return [1 if k == place else n for k, n in enumerate(shape)]


@dataclass(frozen=True)
class _Walk:
    """What a recurrence has made so far: ``values`` along its axis ``place``, ``made`` places and then the start."""

    name: str
    values: Values
    place: int
    made: int

    def read(self, index: tuple[Values, ...]) -> Values:
        """Elements made before; places before the first step give the start."""
        at = index[self.place]
        inside = (at >= 0) & (at < self.made)
        last = self.values.shape[self.place] - 1
        here = np.where(inside, at, last)
        return gather(self.values, (*index[: self.place], here, *index[self.place + 1 :]))


class _Line:
    """Evaluates nested reductions and composites; the arrays made so far stand in ``arrays``, its own in ``walk``."""

    def __init__(self, arrays: Mapping[str, Values], walk: _Walk | None = None) -> None:
        self.arrays = arrays
        self.walk = walk

    def value(self, e: Expr, grid: Grid) -> Values:
        """An expression on a grid, with reductions and composites computed first, each on its own."""
        parts: dict[str, Values] = {}
        flat = self.flatten(e, grid, parts)
        return values_of(flat, grid, self.reader(parts))

    def reader(self, parts: Mapping[str, Values]) -> Callable[[Read, Grid], Values]:
        def read(r: Read, grid: Grid) -> Values:
            if r.array in parts:  # a part is on the grid already, perhaps on a smaller one
                made = parts[r.array]
                return _cut(made.reshape([*made.shape, *[1] * (grid.rank - made.ndim)]), grid)
            if self.walk is not None and r.array == self.walk.name:
                return self.walk.read(tuple(grid.form(f, read) for f in r.index))
            array = self.arrays[r.array]
            if not r.index:
                return array.reshape([1] * grid.rank)
            part = block(array, r, grid, (0,) * array.ndim)
            if part is not None:
                return part
            return gather(array, tuple(grid.form(f, read) for f in r.index))

        return read

    def flatten(self, e: Expr, grid: Grid, parts: dict[str, Values]) -> Expr:
        """The expression with reductions and composites replaced by reads of their values."""
        match e:
            case Reduce(into=str()):
                value = self.list_of(e, grid)
            case Reduce(op=op, axes=axes, body=body, where=where):
                value = self.reduce(op, axes, body, where, grid)
            case Composite():
                value = self.composite(e, grid)
            case _:
                kids = children(e)
                return rebuild(e, tuple(self.flatten(c, grid, parts) for c in kids)) if kids else e
        name = f"#{len(parts)}"
        parts[name] = value
        return Read(name)

    def reduce(self, op: str, axes: tuple[str, ...], body: Expr, where: Expr | None, grid: Grid) -> Values:
        inner = grid.bind({a: (0, int(grid.names[a])) for a in axes})
        dims = tuple(range(grid.rank, inner.rank))
        base = "sum" if op == "mean" else op
        parts: dict[str, Values] = {}
        flat = self.flatten(body, inner, parts)
        if where is not None:
            keep = self.flatten(where, inner, parts)
            flat = Apply("where", (keep, flat, Number(REDUCTIONS[base].identity)))
        total = reduce(base, flat, dims, inner, self.reader(parts))
        if op == "mean":
            if where is None:
                total = total / np.prod([inner.extent(a) for a in axes])
            else:
                ones = Apply("where", (keep, Number(1), Number(0)))
                total = total / reduce("sum", ones, dims, inner, self.reader(parts))
        return np.asarray(total).reshape(total.shape[: grid.rank])

    def list_of(self, e: Reduce, grid: Grid) -> Values:
        """The largest values in descending order, or their positions, along the dimension of the list's axis."""
        assert e.into is not None
        inner = grid.bind({a: (0, int(grid.names[a])) for a in e.axes})
        parts: dict[str, Values] = {}
        flat = self.flatten(e.body, inner, parts)
        if e.where is not None:
            keep = self.flatten(e.where, inner, parts)
            flat = Apply("where", (keep, flat, Number(EMPTY)))
        value = values_of(flat, inner, self.reader(parts))
        row = [inner.extent(a) for a in e.axes]
        rows = np.broadcast_to(value, [*value.shape[: grid.rank], *row]).reshape([*value.shape[: grid.rank], -1])
        best = top(rows, int(grid.names[e.into]))[e.op == POSITIONS]
        place = grid.place[e.into]
        lo, hi = grid.bounds[e.into]
        return np.moveaxis(np.squeeze(best, axis=place), -1, place)[(*[slice(None)] * place, slice(lo, hi))]

    def composite(self, e: Composite, grid: Grid) -> Values:
        inner = grid
        if e.op in COMPOSITES_THAT_REDUCE:
            inner = grid.bind({a: (0, int(grid.names[a])) for a in e.axes})
        dims = tuple(inner.place[a] for a in e.axes)
        argument = self.value(e.args[0], inner)
        present = {inner.place[a] for a in (*free_axes(e.args[0]), *e.axes) if a in inner.place}
        shape = [1] * inner.rank
        for a, k in inner.place.items():
            if k in present:
                shape[k] = inner.extent(a)
        options = {name: self.value(v, grid) for name, v in e.options}
        result = _composite(definition(e.op), np.broadcast_to(argument, shape), dims, options)
        return np.asarray(result).reshape(result.shape[: grid.rank])


def _composite(d: Definition, argument: Values, dims: tuple[int, ...], options: Mapping[str, Values]) -> Values:
    """A definition's lines on one array whose dimensions ``dims`` are the row."""
    count = int(np.prod([argument.shape[k] for k in dims]))
    values: dict[str, Values] = {d.argument: argument}

    def value(e: Expr) -> Any:
        match e:
            case Read(array=array):
                return values[array]
            case Size():
                return count
            case Number(value=number):
                return number
            case Constant(name=name):
                option = options.get(name)
                return d.options[name] if option is None else option.reshape([1] * argument.ndim)
            case Reduce(op="mean", body=body):
                return np.sum(value(body), axis=dims, keepdims=True) / count
            case Reduce(op=op, body=body):
                return REDUCERS[op](value(body), axis=dims, keepdims=True)
            case Apply(op=op, args=args):
                return FUNCTIONS[op](*(value(a) for a in args))
        raise TypeError(f"{type(e).__name__} stands in no definition")

    for line in d.lines:
        if isinstance(line.expr, Scan):
            values[line.name] = _prefix(line.expr, argument, dims[0], value, values, line.name, REVERSED in options)
        else:
            values[line.name] = np.asarray(value(line.expr))
    return values[d.lines[-1].name]


def _prefix(
    e: Scan,
    argument: Values,
    dim: int,
    value: Callable[[Expr], Any],
    values: dict[str, Values],
    name: str,
    backward: bool,
) -> Values:
    """A definition's recurrence along one dimension; its body reads the step before and the same place of the rest."""
    whole = dict(values)
    steps: list[Values] = []
    before = np.asarray(value(e.start), dtype=float)
    n = argument.shape[dim]
    for k in reversed(range(n)) if backward else range(n):
        values.update({a: np.take(v, [k], axis=dim) if v.shape[dim] == n else v for a, v in whole.items()})
        values[name] = before
        before = np.asarray(value(e.body))
        steps.append(before)
    values.update(whole)
    return np.concatenate(steps[::-1] if backward else steps, axis=dim)


def _cut(part: Values, grid: Grid) -> Values:
    """A value on the whole grid cut to where the grid has been narrowed."""
    index = [slice(None)] * grid.rank
    for a, k in grid.place.items():
        lo, hi = grid.bounds[a]
        if part.shape[k] > hi - lo:
            index[k] = slice(lo, hi)
    return part[tuple(index)]
