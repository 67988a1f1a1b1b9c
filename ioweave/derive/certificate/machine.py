"""Runs a plan on arrays and shows its state: steps in any order, and parts merged.

The laws are those of `ioweave.diagrams.boxes.Box`: in each step the old value of a sum is recentred and
rescaled and the step's terms join it; a product is multiplied by its factor, a maximum moved by it; a list keeps
the best of its slots and the terms. A merge does the same to each part, with the part's references as the old
ones and the merged ones as the new. A scan is made element by element; over its own axis in steps see `walks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ioweave.derive.certificate import listing
from ioweave.derive.certificate.structure import Layout
from ioweave.derive.certificate.values import Arrays, Names, Space, Step, Values, full, length, reduced
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.boxes import Box, old, running
from ioweave.diagrams.expressions import Expr
from ioweave.diagrams.groups import Group, carried_axes, past, prev, units
from ioweave.diagrams.lists import is_list
from ioweave.diagrams.operators import REDUCTIONS

JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


@dataclass(frozen=True)
class Machine:
    """A plan at sizes and constants ``values``; ``layout`` says where each of its boxes runs."""

    layout: Layout
    values: Names

    def size(self, axis: str) -> int:
        """The length of an axis."""
        return length(axis, self.values)

    def evaluate(self, box: Box, arrays: Arrays, step: Step | None = None) -> Values:
        """A box on whole arrays, the streamed axis cut to ``step``; the terms of an accumulator reduced."""
        return evaluate(box, arrays, self.values, {self.layout.axis: step} if step is not None else {})

    def terms(self, body: Expr, axes: tuple[str, ...], arrays: Arrays, step: Step | None = None) -> Values:
        """An expression at every index of ``axes``, the streamed one cut to ``step``."""
        return self.evaluate(Box("", axes, body, None, (), "fp64", ""), arrays, step)

    def identity(self, box: Box) -> Values:
        """The state of an accumulator before any step."""
        empty = listing.empty_of(box) if is_list(box) else REDUCTIONS[box.reduction or "sum"].identity
        return np.full([self.size(a) for a in box.axes], empty)

    def prepare(self, arrays: dict[str, Values], run: int) -> None:
        """Add the arrays of a pass that wait for nothing in it: each is one function of its index in every step."""
        arrays.update(direct(self.layout.still(run), arrays, self.values))

    def walk(self, arrays: Arrays, run: int, steps: Iterable[Step]) -> dict[str, Values]:
        """The state of pass ``run`` after these steps, from its identities; ``arrays`` are prepared for the pass."""
        held = dict(arrays)
        moving = self.layout.moving(run)
        states = {b.name: self.identity(b) for b in moving if b.running}
        held.update({old(n): v for n, v in states.items()})
        for step in steps:
            for b in moving:
                if not b.running:
                    held[b.name] = self.placed(b, self.evaluate(b, held, step), step)
                    continue
                states[b.name] = held[running(b.name)] = self.advanced(b, held, step)
            # the next step finds this step's values as the old ones
            held.update({old(n): v for n, v in states.items()})
        return states

    def advanced(self, box: Box, held: Arrays, step: Step) -> Values:
        """The value of an accumulator after a step; its own before it, and those of other lists, are in ``held``."""
        if is_list(box):
            before = {n: held[old(n)] for n in (box.name, *(box.keys or ()))}
            slots = listing.slots(box, before, self.layout.by_name)
            terms = listing.terms(box, held, self.values, {self.layout.axis: step})
            return listing.joined(box, (slots, terms), self.values)
        return joined(box, [self.moved(box, held[old(box.name)], held), self.evaluate(box, held, step)])

    def placed(self, box: Box, part: Values, step: Step) -> Values:
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
                if is_list(b):
                    slots = [listing.slots(b, p, self.layout.by_name) for p in parts]
                    whole[b.name] = listing.joined(b, slots, self.values)
                else:
                    whole[b.name] = joined(b, [self.moved(b, p[b.name], s) for p, s in zip(parts, sides, strict=True)])
                for side in sides:
                    side[running(b.name)] = whole[b.name]
            elif self.layout.axis not in b.axes:
                for side in sides:
                    side[b.name] = self.evaluate(b, side)
        return whole

    def finish(self, arrays: dict[str, Values], run: int) -> None:
        """Add the results of the tail of a pass (0: the head)."""
        arrays.update(direct(self.layout.outside(run), arrays, self.values))

    def closed(self, states: Arrays) -> dict[str, Values]:
        """A finished state as what comes after the loop reads it."""
        boxes = self.layout.by_name
        return {n: listing.closed(boxes[n], v, self.values) if is_list(boxes[n]) else v for n, v in states.items()}


def joined(box: Box, parts: Sequence[Values]) -> Values:
    """Partial results of an accumulator's own reduction as one."""
    join = FUNCTIONS[JOIN[box.reduction or "sum"]]
    result = parts[0]
    for part in parts[1:]:
        result = np.asarray(join(result, part), dtype=float)
    return np.asarray(result, dtype=float)


def evaluate(box: Box, arrays: Arrays, values: Names, bounds: Mapping[str, Step] | None = None) -> Values:
    """A box on whole arrays; axes in ``bounds`` are cut."""
    cut = bounds or {}
    with np.errstate(all="ignore"):
        if is_list(box):
            made = listing.joined(box, [listing.terms(box, arrays, values, cut)], values)
            part = tuple(slice(*cut[a]) if a in cut else slice(None) for a in box.axes)
            return listing.closed(box, made, values)[part] if box.into in cut else listing.closed(box, made, values)
        space = Space.of(box.all_axes, values, cut)
        if box.reduction is None:
            return full(box.body, space, arrays)
        return reduced(box.reduction, box.body, len(box.over), space, arrays)


def elements(
    group: Group, held: dict[str, Values], values: Names, step: Step, carry: Values
) -> tuple[dict[str, Values], Values]:
    """The elements of a scan's group in a step, and what is carried after them; ``carry`` enters the first.

    ``held`` has what the boxes read, and takes what they make. Arrays are whole, no number outside of the step.
    """
    scan, axis = group.scan, group.axis
    made = {b.name: np.full([length(a, values) for a in b.axes], np.nan) for b in group.members}
    held.update(made)
    held[past(scan.name)] = made[scan.name]
    order = range(*step)[:: -1 if group.backward else 1]
    for t in order:
        held[prev(scan.name)] = carry
        for b in group.members:
            place = tuple(slice(t, t + 1) if a == axis else slice(None) for a in b.axes)
            made[b.name][place] = evaluate(b, held, values, {axis: (t, t + 1)})
        carry = np.take(made[scan.name], t, axis=scan.axes.index(axis))
    return made, carry


def start(group: Group, arrays: Arrays, values: Names) -> Values:
    """What a scan carries before its first element."""
    assert group.scan.scan is not None
    with np.errstate(all="ignore"):
        return full(group.scan.scan.start, Space.of(carried_axes(group.scan), values, {}), arrays).astype(float)


def direct(boxes: Iterable[Box], inputs: Arrays, values: Names) -> dict[str, Values]:
    """Every box on whole arrays, in order; scans element by element."""
    arrays = dict(inputs)
    for unit in units(boxes):
        if isinstance(unit, Group):
            elements(unit, arrays, values, (0, length(unit.axis, values)), start(unit, arrays, values))
        else:
            arrays[unit.name] = evaluate(unit, arrays, values)
    return arrays
