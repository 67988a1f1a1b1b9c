"""An interpreter of plans in float64: whole, step by step in passes, and merged from pieces streamed apart.

It knows boxes and stages alone, not the proof that made them: what it computes is what a plan says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ioweave.derive.execution.elsewhere import elsewhere
from ioweave.derive.execution.grid import Grid, Values, block, gather, values_of
from ioweave.derive.execution.lists import Joiner, empty, finished
from ioweave.derive.execution.walked import begin, enter, in_order, joined_pieces, walk
from ioweave.derive.streaming.merge import PART, merge_boxes, state_name
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.arithmetic import REDUCERS
from ioweave.diagrams.boxes import Box, base_name, old, running
from ioweave.diagrams.expressions import Expr, Read
from ioweave.diagrams.groups import Group, units
from ioweave.diagrams.lists import is_list, slots
from ioweave.diagrams.operators import REDUCTIONS

Step = Mapping[str, tuple[int, int]]  # the half-open interval of each streamed axis
NUDGE = 2.0**-42  # relative, a thousand times the rounding of float64
LEAST = 2.0**-1020  # absolute, where values lose digits to underflow


class PlanMachine:
    """Evaluates boxes on arrays by name; ``values`` are the sizes and constants of the diagram.

    With ``noise`` every value made is moved by about 1e-13 of itself, up or down at random: how far
    a result moves then tells the rounding of its computation from an error. Zeros stay zero.
    """

    def __init__(
        self,
        values: Mapping[str, int | float],
        arrays: Mapping[str, Values],
        noise: np.random.Generator | None = None,
    ) -> None:
        self.values = dict(values)
        self.arrays: dict[str, Values] = dict(arrays)
        self.noise = noise
        self.lists = Joiner(self.values)

    def size(self, axis: str) -> int:
        """The length of an axis component."""
        return int(self.values[axis if axis in self.values else base_name(axis)])

    def grid(self, axes: Sequence[str], step: Step) -> Grid:
        """The indices of these axes in a step, whole where it does not cut them."""
        bounds = {a: step[a] if a in step else (0, self.size(a)) for a in axes}
        for a in axes:
            self.values.setdefault(a, self.size(a))
        return Grid.over(bounds, self.values)

    def value(self, e: Expr, grid: Grid) -> Values:
        """An expression on a grid, broadcast where it does not vary."""
        return values_of(e, grid, self._read)

    def _read(self, r: Read, grid: Grid) -> Values:
        array = self.arrays[r.array]
        if not r.index:
            return array.reshape([1] * grid.rank)
        part = block(array, r, grid, (0,) * array.ndim)
        return gather(array, tuple(grid.form(f, self._read) for f in r.index)) if part is None else part

    def evaluate(self, box: Box, step: Step) -> Values:
        """The box in a step, reduced over its axes. Raises KeyError for an array that is not there yet."""
        grid = self.grid(box.all_axes, step)
        if is_list(box):
            return finished(box, self._joined(box, grid, None))
        made = np.broadcast_to(self.value(box.body, grid), [grid.extent(a) for a in box.all_axes])
        if box.reduction is not None:
            axes = tuple(range(len(box.axes), len(box.all_axes)))
            made = np.asarray(REDUCERS[box.reduction](made.astype(float), axis=axes), dtype=float)
        return self._nudged(made)

    def _joined(self, box: Box, grid: Grid, before: Values | None) -> Values:
        """The list of a box over a grid: its slots so far, if any, joined with the terms."""
        return self.lists.joined(box, grid, before, self._read, lambda e: None)

    def _nudged(self, made: Values) -> Values:
        if self.noise is None or made.dtype.kind != "f":
            return made
        up = self.noise.integers(0, 2, made.shape) * 2.0 - 1
        return np.asarray(made * (1 + NUDGE * up) + np.where(made == 0, 0, LEAST * up))

    def direct(self, boxes: Iterable[Box]) -> dict[str, Values]:
        """Every box whole, in order."""
        with np.errstate(all="ignore"):
            for unit in units(boxes):
                if isinstance(unit, Group):
                    begin(self, unit, {}, {})
                    walk(self, unit, {})
                else:
                    self.arrays[unit.name] = np.array(self.evaluate(unit, {}))
        return self.arrays

    def loop(
        self, plan: Plan, steps: Sequence[Step], run: int, starts: Mapping[str, Values] = MappingProxyType({})
    ) -> None:
        """One pass over the steps, its state from the identities; finished values stand in ``arrays``.

        Scans begin at their start, or at what ``starts`` has for them by name; the steps come in their order.
        """
        body = units(_stage(plan, "body", run))
        state = [b for b in body if isinstance(b, Box) and b.running]
        scans = [g for g in body if isinstance(g, Group) and g.axis in plan.streamed]
        steps = in_order(steps, scans)
        walked: set[tuple[str, tuple[tuple[int, int], ...]]] = set()
        self.direct(elsewhere(plan, run))
        for g in scans:
            begin(self, g, {}, starts)
            enter(self, g, steps)
        for b in state:
            identity = empty(b) if is_list(b) else REDUCTIONS[b.reduction or "sum"].identity
            self.arrays[running(b.name)] = np.full([self.size(a) for a in b.axes], identity)
        with np.errstate(all="ignore"):
            for step in steps:
                for b in state:  # a value read before this step has made it is no number
                    self.arrays[old(b.name)] = self.arrays[running(b.name)]
                    self.arrays[running(b.name)] = self._forgotten(b, step)
                for unit in body:
                    if isinstance(unit, Box):
                        self._advance(unit, _value(plan, unit.rescale), _value(plan, unit.recentre), step)
                        continue
                    at = {a: step[a] for a in sorted(unit.axes) if a in step}
                    if (unit.scan.name, tuple(at.values())) in walked:
                        continue  # a loop around this one has come round again: the elements are there
                    walked.add((unit.scan.name, tuple(at.values())))
                    if unit not in scans:
                        begin(self, unit, at, starts)
                    walk(self, unit, at)
        for b in state:
            self.arrays[b.name] = self.arrays[running(b.name)]

    def _forgotten(self, b: Box, step: Step) -> Values:
        kept = self.arrays[old(b.name)].copy()
        kept[self._place(b, step)] = np.nan
        return kept

    def _place(self, b: Box, step: Step) -> tuple[slice, ...]:
        return tuple(slice(*step[a]) if a in step else slice(None) for a in b.axes)

    def _advance(self, b: Box, rescale: Read | None, recentre: Read | None, step: Step) -> None:
        """A box in one step: a map writes its slice, an accumulator joins its terms to what it had."""
        place = self._place(b, step)
        if b.running and is_list(b):
            before = self.arrays[old(b.name)][place]
            self.arrays[running(b.name)][place] = self._joined(b, self.grid(b.all_axes, step), before)
            return
        terms = self.evaluate(b, step)
        if not b.running:
            if b.name not in self.arrays:
                self.arrays[b.name] = np.full([self.size(a) for a in b.axes], np.nan)
            self.arrays[b.name][place] = terms
            return
        before = self.arrays[old(b.name)][place]
        grid = self.grid(b.axes, step)
        if recentre is not None:
            before = before + self.value(recentre, grid)
        if rescale is not None:
            before = before * self.value(rescale, grid)
        self.arrays[running(b.name)][place] = joined(b.reduction or "sum", before, terms)

    def streamed(self, plan: Plan, steps: Sequence[Step]) -> dict[str, Values]:
        """The whole plan, step by step in as many passes as it needs."""
        self.values.update(plan.lengths)
        self.direct(plan.head)
        for run in range(1, plan.passes + 1):
            self.loop(plan, steps, run)
            for b in (b for b in _stage(plan, "body", run) if b.running):
                self.arrays[b.name] = finished(b, self.arrays[b.name])
            self.direct(_stage(plan, "tail", run))
        return self.arrays

    def merged(self, plan: Plan, pieces: Sequence[Sequence[Step]]) -> dict[str, Values]:
        """Every piece streamed by itself, the states merged, then the tail.

        The pieces of a plan with recurrences are in the order of its walk. Raises `Refused` for a plan of
        several passes, and for one whose recurrences have no merge.
        """
        self.values.update(plan.lengths)
        self.values.update({slots(b.into): self.size(b.into) for b in plan.state if b.into is not None})
        if plan.recurrences:
            return joined_pieces(self, plan, pieces)
        after = merge_boxes(plan)
        self.direct(plan.head)
        parts: dict[str, list[Values]] = {b.name: [] for b in plan.state}
        for steps in pieces:
            self.loop(plan, steps, 1)
            for name, states in parts.items():
                states.append(self.arrays.pop(name))
        for name, states in parts.items():
            self.arrays[state_name(name)] = np.stack(states)
        self.values[PART] = len(pieces)
        return self.direct(after)


def _stage(plan: Plan, stage: str, run: int) -> list[Box]:
    names = {n for n, p, s in plan.stages if s == stage and p == run}
    return [b for b in plan.boxes if b.name in names]


def _value(plan: Plan, name: str | None) -> Read | None:
    """The read of a box at its own axes."""
    return None if name is None else Read(name, tuple(Affine.axis(a) for a in plan.box(name).axes))


def joined(op: str, a: Values, b: Values) -> Values:
    """Two partial results of a reduction as one."""
    return np.asarray(_JOIN[op](a, b))


_JOIN = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "any": np.maximum,
    "min": np.minimum,
    "all": np.minimum,
}
