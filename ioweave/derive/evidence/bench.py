"""The bench: a diagram at small sizes, its axis cut into a prefix and a suffix, many draws of both at once.

A prefix has what the steps before a cut alone read of the inputs, a suffix what the steps after it
alone read. What both read, as the halo of a window, and what no step reads, as the queries of
attention, is given: it is no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ioweave.derive.execution.grid import Grid, Values
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.execution.trial_data import PLAIN, Subject, data
from ioweave.derive.execution.walked import begin, walk
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import PREV, Box, source
from ioweave.diagrams.diagram import Diagram, Input
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Expr, Index, Number, Read, reads, transform
from ioweave.diagrams.groups import Group, prev, units

DRAW = "draw~"  # the axis woven over the boxes: one index for each draw of the inputs


@dataclass(frozen=True)
class Bench:
    """A subject at small ``values``, its axis cut; ``backward`` walks it from its end.

    ``at`` are the indices at which the boxes of the subject have been `sliced`.
    """

    subject: Subject
    outputs: tuple[str, ...]
    axis: str
    values: Mapping[str, int | float]
    backward: bool = False
    at: tuple[tuple[str, int], ...] = ()

    @cached_property
    def sizes(self) -> dict[str, int | float]:
        """The values with the size of every component."""
        return self.subject.sizes_of(self.values)

    @cached_property
    def length(self) -> int:
        """The size of the streamed axis."""
        return int(self.sizes[self.axis])

    def subject_axes(self, name: str) -> tuple[str, ...]:
        """The axes of a box."""
        return next(b.axes for b in self.subject.boxes if b.name == name)

    def before(self, n: int) -> tuple[int, int]:
        """The positions of a prefix of ``n`` steps; it is the end of the axis where the walk is backward."""
        return (self.length - n, self.length) if self.backward else (0, n)

    def after(self, n: int) -> tuple[int, int]:
        """The positions of the suffix that follows a prefix of ``n`` steps."""
        return (0, self.length - n) if self.backward else (n, self.length)

    def drawn(self, scale: float, seed: int) -> dict[str, Values]:
        """Inputs as trials draw them, those of numbers without a bound times ``scale``.

        By the ``seed`` whole numbers are as drawn; 0 or 1, so that they name the first positions; one after
        another, so that pages are apart; or the largest, so that a length spans the axis.
        """
        arrays = data(self.subject, self.values, PLAIN, {}, seed)
        for i in self.subject.inputs:
            if self.scales(i.name):
                arrays[i.name] = arrays[i.name] * scale
            elif DTYPES[i.dtype].kind == "int" and seed % 4 == 1:
                arrays[i.name] = arrays[i.name] % 2
            elif DTYPES[i.dtype].kind == "int" and seed % 4 == 2:
                in_turn = np.arange(arrays[i.name].size).reshape(arrays[i.name].shape)
                arrays[i.name] = in_turn % (self._largest[i.name] + 1)
            elif DTYPES[i.dtype].kind == "int" and seed % 4 == 3 and arrays[i.name].size:
                arrays[i.name] = np.full_like(arrays[i.name], self._largest[i.name])
            elif DTYPES[i.dtype].kind == "bool" and seed % 4 == 3:
                arrays[i.name] = np.ones_like(arrays[i.name])
        return arrays

    def many(self, names: Sequence[str], count: int, seed: int) -> dict[str, Values]:
        """Inputs of numbers drawn ``count`` times at once, by draw first."""
        first = Affine(offset=count)
        inputs = tuple(Input(i.name, (first, *i.dims), i.dtype, i.fact) for i in self.subject.inputs if i.name in names)
        return draw_inputs(Diagram("", (), inputs, (), ()), self.values, seed)

    def free(self, name: str) -> bool:
        """Whether an input holds numbers of which nothing is declared."""
        return any(i.name == name and i.fact is None and DTYPES[i.dtype].kind == "float" for i in self.subject.inputs)

    def scales(self, name: str) -> bool:
        """Whether an input holds numbers that any factor above 0 leaves within what is declared of them."""
        known = next(i for i in self.subject.inputs if i.name == name)
        return DTYPES[known.dtype].kind == "float" and (known.fact is None or known.fact[1] == 0)

    @cached_property
    def _largest(self) -> dict[str, int]:
        """The largest whole number that a few draws give for each input of them."""
        draws = [data(self.subject, self.values, PLAIN, {}, seed) for seed in range(6)]
        whole = [i.name for i in self.subject.inputs if DTYPES[i.dtype].kind == "int"]
        return {n: max(int(d[n].max()) for d in draws) for n in whole}

    def split(self, arrays: Mapping[str, Values], n: int) -> Split:
        """Which elements of the inputs of numbers a cut after ``n`` steps leaves to each side."""
        machine = PlanMachine(self.sizes, arrays)
        if any(form.lookups for b in self.subject.boxes for r in b.reads() for form in r.index):
            machine.direct(self.subject.boxes)
        early, late = (self._touched(machine, *span) for span in (self.before(n), self.after(n)))
        real = [i.name for i in self.subject.inputs if DTYPES[i.dtype].kind == "float"]
        return Split({k: early[k] & ~late[k] for k in real}, {k: late[k] & ~early[k] for k in real})

    def _touched(self, machine: PlanMachine, lo: int, hi: int) -> dict[str, Values]:
        """The elements of the inputs that steps ``lo .. hi`` read, or boxes outside the loop."""
        boxes = {b.name: b for b in self.subject.boxes}
        inputs = {i.name for i in self.subject.inputs}
        needed = {n: np.zeros(self.length, dtype=bool) for n in boxes}
        for n, b in boxes.items():
            if self.axis in b.all_axes:
                needed[n][lo:hi] = True
        found = {n: np.zeros(machine.arrays[n].shape, dtype=bool) for n in inputs}
        for b in reversed(self.subject.boxes):
            grid = machine.grid(b.all_axes, {})
            for r in b.reads():
                if r.array in inputs:
                    self._mark(found[r.array], self._index(r, grid, machine, needed[b.name]))
                elif r.array in boxes and self.axis in b.all_axes and self.axis in boxes[r.array].axes:
                    place = boxes[r.array].axes.index(self.axis)
                    if boxes[r.array].scan is None:
                        index = self._index(r, grid, machine, needed[b.name])
                        self._mark(needed[r.array], (index[place],))
        return found

    def _index(self, r: Read, grid: Grid, machine: PlanMachine, needed: Values) -> tuple[Values, ...]:
        """The positions that a read takes in the steps that are needed."""
        shape = [1] * grid.rank
        for a, k in grid.place.items():
            shape[k] = grid.extent(a)
        found = []
        for form in r.index:
            at = np.asarray(grid.form(replace(form, lookups=())))
            for lookup, c in form.lookups:
                at = at + c * np.asarray(machine.value(lookup.expr, grid)).astype(np.int64)
            at = np.broadcast_to(at, shape)
            found.append(at.compress(needed, axis=grid.place[self.axis]) if self.axis in grid.place else at)
        return tuple(found)

    @staticmethod
    def _mark(mask: Values, index: tuple[Values, ...]) -> None:
        flat = [i.reshape(-1) for i in index]
        if not flat:
            mask[...] = True
            return
        inside = np.ones(flat[0].shape, dtype=bool)
        for i, n in zip(flat, mask.shape, strict=True):
            inside &= (i >= 0) & (i < n)
        mask[tuple(i[inside] for i in flat)] = True

    def run(self, arrays: Mapping[str, Values], stacks: Mapping[str, Values]) -> dict[str, Values]:
        """Every box for many draws at once: ``stacks`` hold those inputs that vary, by draw first."""
        boxes, _ = woven(self.subject.boxes, frozenset(stacks))
        count = len(next(iter(stacks.values())))
        machine = PlanMachine(self.sizes | {DRAW: count}, {**arrays, **stacks})
        return machine.direct(boxes)

    def on_prefix(self, arrays: Mapping[str, Values], stacks: Mapping[str, Values], n: int) -> dict[str, Values]:
        """The reductions and scans over the axis as they stand after a prefix of ``n`` steps, by draw first.

        Maps along the axis are computed on the prefix alone, what they need of it included.
        """
        boxes, varied = woven(self.subject.boxes, frozenset(stacks))
        count = len(next(iter(stacks.values())))
        lo, hi = self.before(n)
        machine = PlanMachine(self.sizes | {DRAW: count}, {**arrays, **stacks})
        found: dict[str, Values] = {}
        with np.errstate(all="ignore"):
            for b in units(boxes):
                if isinstance(b, Group):
                    begin(machine, b, {self.axis: (lo, hi)}, {})
                    walk(machine, b, {self.axis: (lo, hi)})
                    if b.axis == self.axis and b.scan.name in varied:  # what the walk carries on
                        found[b.scan.name] = machine.arrays[prev(b.scan.name)].copy()
                    continue
                made = np.asarray(machine.evaluate(b, {self.axis: (lo, hi)}))
                if self.axis in b.axes:  # what lies outside the prefix is no number
                    place = b.axes.index(self.axis)
                    whole = np.full([self.length if k == place else s for k, s in enumerate(made.shape)], np.nan)
                    whole[tuple(slice(lo, hi) if k == place else slice(None) for k in range(made.ndim))] = made
                    made = whole
                machine.arrays[b.name] = made
                if self.axis in b.over and b.name in varied:
                    found[b.name] = made
        return found


@dataclass(frozen=True)
class Split:
    """Masks over the inputs of numbers: what the prefix alone has, and what the suffix alone has."""

    prefix: Mapping[str, Values]
    suffix: Mapping[str, Values]

    @property
    def held(self) -> int:
        """The numbers of a prefix."""
        return sum(int(m.sum()) for m in self.prefix.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs that either side has a part of."""
        return tuple(n for n in self.prefix if self.prefix[n].any() or self.suffix[n].any())


def axes_of(box: Box, array: str) -> tuple[str, ...]:
    """The axes along which a box is read under a name: the value before, in a scan, has all but the scan's."""
    if box.scan is not None and array.endswith(PREV):
        return tuple(a for a in box.axes if a != box.scan.axis)
    return box.axes


def sliceable(boxes: Sequence[Box], axis: str) -> bool:
    """Whether one index of an axis can be computed by itself: no box joins several, or reads another one's."""
    made = {b.name: b for b in boxes}
    for b in boxes:
        if axis in b.over or axis == b.into or (b.scan is not None and b.scan.axis == axis):
            return False
        for r in b.reads():
            home = made.get(source(r.array))
            axes = () if home is None else axes_of(home, r.array)
            if axis in axes and (len(r.index) < len(axes) or r.index[axes.index(axis)].bare != axis):
                return False
    return True


def sliced(boxes: Sequence[Box], axis: str, k: int) -> tuple[Box, ...]:
    """The boxes at one index of a `sliceable` axis, without it."""
    homes = {b.name: b for b in boxes if axis in b.axes}

    def at(e: Expr) -> Expr:
        if isinstance(e, Index) and e.axis == axis:
            return Number(k)
        if not isinstance(e, Read):
            return e
        home = homes.get(source(e.array))
        gone = None if home is None else axes_of(home, e.array).index(axis)
        index = [f for i, f in enumerate(e.index) if i != gone]
        return Read(e.array, tuple(_fixed(f, axis, k) for f in index))

    made = []
    for b in boxes:
        scan = b.scan and replace(b.scan, start=transform(b.scan.start, at))
        axes = tuple(a for a in b.axes if a != axis)
        made.append(replace(b, axes=axes, body=transform(b.body, at), scan=scan))
    return tuple(made)


def _fixed(form: Affine, axis: str, k: int) -> Affine:
    axes = dict(form.axes)
    moved = axes.pop(axis, 0) * k
    return Affine.make(axes, dict(form.sizes), form.offset + moved, dict(form.lookups))


def woven(boxes: Sequence[Box], varied: frozenset[str]) -> tuple[tuple[Box, ...], frozenset[str]]:
    """The boxes woven over `DRAW` where they depend on the arrays in ``varied``, and the names of all these."""
    names = set(varied)
    while True:
        more = {b.name for b in boxes if b.name not in names and any(source(r) in names for r in _operands(b))}
        if not more:
            break
        names |= more

    def drawn(e: Expr) -> Expr:
        if isinstance(e, Read) and source(e.array) in names:
            return Read(e.array, (Affine.axis(DRAW), *e.index))
        return e

    made = []
    for b in boxes:
        if b.name in names:
            scan = b.scan and replace(b.scan, start=transform(b.scan.start, drawn))
            b = replace(b, axes=(DRAW, *b.axes), body=transform(b.body, drawn), scan=scan)
        made.append(b)
    return tuple(made), frozenset(names)


def _operands(b: Box) -> tuple[str, ...]:
    found = (*b.reads(), *(reads(b.scan.start) if b.scan else ()))
    return tuple(r.array for r in found)
