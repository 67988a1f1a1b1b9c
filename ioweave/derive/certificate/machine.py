"""Runs a plan on arrays and shows its state: steps in any order, and parts merged.

The laws are those of `ioweave.diagrams.boxes.Box`: in each step the old value of a sum is recentred and
rescaled and the step's terms join it; a product is multiplied by its factor, a maximum moved by it. A merge
does the same to each part, with the part's references as the old ones and the merged ones as the new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ioweave.derive.certificate.structure import Layout
from ioweave.derive.execution.grid import Grid, Values, block, gather, reduce, values_of
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.boxes import Box, base_name, old, running
from ioweave.diagrams.expressions import Expr, Read
from ioweave.diagrams.operators import REDUCTIONS

JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
Arrays = Mapping[str, Values]
Step = tuple[int, int]  # half open


@dataclass(frozen=True)
class Machine:
    """A plan at sizes and constants ``values``; ``layout`` says where each of its boxes runs."""

    layout: Layout
    values: Mapping[str, int | float]

    def size(self, axis: str) -> int:
        """The length of an axis."""
        return int(self.values[base_name(axis)])

    def evaluate(self, box: Box, arrays: Arrays, step: Step | None = None) -> Values:
        """A box on whole arrays, the streamed axis cut to ``step``; the terms of an accumulator reduced."""
        return evaluate(box, arrays, self.values, {self.layout.axis: step} if step is not None else {})

    def terms(self, body: Expr, axes: tuple[str, ...], arrays: Arrays, step: Step | None = None) -> Values:
        """An expression at every index of ``axes``, the streamed one cut to ``step``."""
        return self.evaluate(Box("", axes, body, None, (), "fp64", ""), arrays, step)

    def identity(self, box: Box) -> Values:
        """The state of an accumulator before any step."""
        return np.full([self.size(a) for a in box.axes], REDUCTIONS[box.reduction or "sum"].identity)

    def prepare(self, arrays: dict[str, Values], run: int) -> None:
        """Add the arrays of a pass that wait for nothing in it: each is one function of its index in every step."""
        for b in self.layout.still(run):
            arrays[b.name] = self.evaluate(b, arrays)

    def walk(self, arrays: Arrays, run: int, steps: Iterable[Step]) -> dict[str, Values]:
        """The state of pass ``run`` after these steps, from its identities; ``arrays`` are prepared for the pass."""
        held = dict(arrays)
        moving = self.layout.moving(run)
        states = {b.name: self.identity(b) for b in moving if b.running}
        held.update({old(n): v for n, v in states.items()})
        for step in steps:
            for b in moving:
                if not b.running:
                    held[b.name] = self._placed(b, self.evaluate(b, held, step), step)
                    continue
                held[old(b.name)] = states[b.name]
                terms = self.evaluate(b, held, step)
                states[b.name] = joined(b, [self.moved(b, states[b.name], held), terms])
                held[running(b.name)] = states[b.name]
            # the next step finds this step's values as the old ones
            held.update({old(n): v for n, v in states.items()})
        return states

    def _placed(self, box: Box, part: Values, step: Step) -> Values:
        """A step's part of an array of the loop at its place, the rest not a number."""
        if self.layout.axis not in box.axes:
            return part
        whole = np.full([self.size(a) for a in box.axes], np.nan)
        whole[tuple(slice(*step) if a == self.layout.axis else slice(None) for a in box.axes)] = part
        return whole

    def moved(self, box: Box, state: Values, held: Arrays) -> Values:
        """The old value of an accumulator, recentred and rescaled."""
        if box.recentre is not None:
            state = state + self._spread(box.recentre, box, held)
        if box.rescale is not None:
            factor = self._spread(box.rescale, box, held)
            state = state * factor if box.reduction in ("sum", "prod") else state + factor
        return state

    def _spread(self, name: str, box: Box, held: Arrays) -> Values:
        """A factor or summand on the axes of its accumulator."""
        return self.terms(self.layout.read(name), box.axes, held)

    def merged(self, arrays: Arrays, run: int, parts: Sequence[Arrays]) -> dict[str, Values]:
        """The state of the whole from the states of parts."""
        moving = self.layout.moving(run)
        whole: dict[str, Values] = {}
        sides = [{**arrays, **{old(n): v for n, v in part.items()}} for part in parts]
        for b in moving:
            if b.running:
                whole[b.name] = joined(b, [self.moved(b, p[b.name], s) for p, s in zip(parts, sides, strict=True)])
                for side in sides:
                    side[running(b.name)] = whole[b.name]
            elif self.layout.axis not in b.axes:
                for side in sides:
                    side[b.name] = self.evaluate(b, side)
        return whole

    def finish(self, arrays: dict[str, Values], run: int) -> None:
        """Add the results of the tail of a pass (0: the head)."""
        for b in self.layout.outside(run):
            arrays[b.name] = self.evaluate(b, arrays)


def joined(box: Box, parts: Sequence[Values]) -> Values:
    """Partial results of an accumulator's own reduction as one."""
    join = FUNCTIONS[JOIN[box.reduction or "sum"]]
    result = parts[0]
    for part in parts[1:]:
        result = np.asarray(join(result, part), dtype=float)
    return np.asarray(result, dtype=float)


def evaluate(
    box: Box, arrays: Arrays, values: Mapping[str, int | float], bounds: Mapping[str, Step] | None = None
) -> Values:
    """A box on whole arrays; axes in ``bounds`` are cut."""
    cut = bounds or {}
    axes = {a: cut.get(a, (0, int(values[base_name(a)]))) for a in box.all_axes}
    grid = Grid.over(axes, values)

    def read(r: Read, at: Grid) -> Values:
        array = arrays[r.array]
        if not r.index:
            return array.reshape([1] * at.rank)
        part = block(array, r, at, (0,) * array.ndim)
        if part is not None:
            return part
        # what lies out of range is no number, which a guard never selects
        return gather(array, tuple(at.form(f) for f in r.index), (0,) * array.ndim, np.nan)

    shape = [grid.extent(a) for a in box.axes]
    with np.errstate(all="ignore"):
        if box.reduction is None:
            return np.array(np.broadcast_to(values_of(box.body, grid, read), shape))
        value = reduce(box.reduction, box.body, tuple(grid.place[a] for a in box.over), grid, read)
        return np.array(np.broadcast_to(value, [*shape, *[1] * len(box.over)]).reshape(shape))


def direct(boxes: Iterable[Box], inputs: Arrays, values: Mapping[str, int | float]) -> dict[str, Values]:
    """Every box of a diagram on whole arrays, in order."""
    arrays = dict(inputs)
    for b in boxes:
        arrays[b.name] = evaluate(b, arrays, values)
    return arrays
