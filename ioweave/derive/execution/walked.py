"""Scans in an interpreter of plans: boxes made element by element, the value before each element at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ioweave.derive.execution.grid import Values
from ioweave.derive.streaming.merge import PART, merge_boxes, state_name
from ioweave.derive.streaming.plan import BOTH, LEFT, RIGHT, Plan, Segments
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.groups import Group, carried_axes, past, prev

if TYPE_CHECKING:
    from ioweave.derive.execution.plan_machine import PlanMachine, Step


def place_of(box: Box, step: Step) -> tuple[slice, ...]:
    """Where a step lies in a box's array."""
    return tuple(slice(*step[a]) if a in step else slice(None) for a in box.axes)


def begin(machine: PlanMachine, group: Group, step: Step, starts: Mapping[str, Values]) -> None:
    """What a scan carries before its first element: its start, or the value given for it by name."""
    scan = group.scan
    assert scan.scan is not None
    axes = carried_axes(scan)
    shape = [machine.size(a) for a in axes]
    if prev(scan.name) not in machine.arrays:
        machine.arrays[prev(scan.name)] = np.full(shape, np.nan)
    grid = machine.grid(axes, step)
    value = starts.get(scan.name)
    place = tuple(slice(*step[a]) if a in step else slice(None) for a in axes)
    start = machine.value(scan.scan.start, grid) if value is None else value[place]
    machine.arrays[prev(scan.name)][place] = start
    for b in group.members:
        if b.name not in machine.arrays:
            machine.arrays[b.name] = np.full([machine.size(a) for a in b.axes], np.nan)
    machine.arrays[past(scan.name)] = machine.arrays[scan.name]


def in_order(steps: Sequence[Step], scans: Sequence[Group]) -> Sequence[Step]:
    """The steps in the direction of the scans along their axes; as they are where there is none."""
    for g in scans:
        steps = _sorted(steps, g.axis, -1 if g.backward else 1)
    return steps


def _sorted(steps: Sequence[Step], axis: str, sign: int) -> Sequence[Step]:
    return sorted(steps, key=lambda step: sign * step[axis][0])


def enter(machine: PlanMachine, group: Group, steps: Sequence[Step]) -> None:
    """The value before the first element of the steps, where the array has a place for it: others may read it there."""
    scan, axis = group.scan, group.axis
    edge = max(s[axis][1] for s in steps) if group.backward else min(s[axis][0] for s in steps) - 1
    if 0 <= edge < machine.size(axis):
        place = place_of(scan, {axis: (edge, edge + 1)})
        machine.arrays[scan.name][place] = np.expand_dims(machine.arrays[prev(scan.name)], scan.axes.index(axis))


def walk(machine: PlanMachine, group: Group, step: Step) -> None:
    """The elements of a step one after another, in the direction of the scan."""
    scan, axis = group.scan, group.axis
    first, last = step[axis] if axis in step else (0, machine.size(axis))
    carried = carried_axes(scan)
    elements = range(last - 1, first - 1, -1) if group.backward else range(first, last)
    for t in elements:
        at = {**step, axis: (t, t + 1)}
        for b in group.members:
            machine.arrays[b.name][place_of(b, at)] = machine.evaluate(b, at)
        now = machine.arrays[scan.name][place_of(scan, at)]
        place = tuple(slice(*step[a]) if a in step else slice(None) for a in carried)
        machine.arrays[prev(scan.name)][place] = np.squeeze(now, axis=scan.axes.index(axis))


def joined_pieces(machine: PlanMachine, plan: Plan, pieces: Sequence[Sequence[Step]]) -> dict[str, Values]:
    """A plan with recurrences on pieces walked apart, the first from the start and the others from nothing.

    The summaries of the pieces before each one are joined to the state that enters it, the last two first;
    accumulators are lifted by it, or made again from it. Raises `Refused` where the states have no merge.
    """
    found = plan.segments
    if found is None:
        raise Refused("the recurrences of the plan have no merge")
    machine.direct(plan.head)
    beside = replace(
        plan,
        boxes=(*plan.boxes, *found.maps),
        stages=(*plan.stages, *((b.name, 1, "body") for b in found.maps)),
    )
    neutral = dict(found.neutral)
    nothing = {s.name: np.full([machine.size(a) for a in carried_axes(s)], neutral[s.name]) for s in found.scans}
    sums: list[dict[str, Values]] = []
    for k, steps in enumerate(pieces):
        machine.loop(beside, steps, 1, nothing if k else {})
        held = {n: prev(n) if prev(n) in machine.arrays else n for n in _summed(beside)}
        sums.append({n: machine.arrays[array].copy() for n, array in held.items()})
    entering = [_entering(machine, found, sums[:k]) for k in range(len(pieces))]
    parts: dict[str, list[Values]] = {b.name: [] for b in plan.state}
    for k, steps in enumerate(pieces):
        if found.again:
            machine.loop(plan, steps, 1, entering[k])
            made = {b.name: machine.arrays[b.name] for b in plan.state}
        else:
            made = {b.name: sums[k][b.name] for b in plan.state}
            if k:
                _enter(machine, entering[k], LEFT)
                _enter(machine, sums[k], RIGHT)
                machine.direct(found.lifts)
                made |= {b.name: machine.arrays[b.name] for b in found.lifts if b.name in made}
        for name, states in parts.items():
            states.append(made[name])
    for name, states in parts.items():
        machine.arrays[state_name(name)] = np.stack(states)
    last = _entering(machine, found, sums)
    for s in found.scans:  # what is read after the loop of the last value carried
        assert s.scan is not None
        edge = 0 if s.scan.backward else machine.size(s.scan.axis) - 1
        place = place_of(s, {s.scan.axis: (edge, edge + 1)})
        machine.arrays[s.name][place] = np.expand_dims(last[s.name], s.axes.index(s.scan.axis))
    machine.values[PART] = len(pieces)
    return machine.direct(merge_boxes(plan))


def _summed(plan: Plan) -> tuple[str, ...]:
    """The names of what sums up a piece."""
    scans = (b.name for b in plan.body if b.scan is not None and b.scan.axis in plan.streamed)
    return (*scans, *(b.name for b in plan.state))


def _entering(machine: PlanMachine, found: Segments, sums: Sequence[Mapping[str, Values]]) -> dict[str, Values]:
    """The state of every scan after the pieces summed up, joined from the last to the first; none for no piece."""
    if not sums:
        return {}
    total = dict(sums[-1])
    for earlier in reversed(sums[:-1]):
        _enter(machine, earlier, LEFT)
        _enter(machine, total, RIGHT)
        machine.direct(found.joined)
        total = {n: machine.arrays[n + BOTH] for n in found.carried}
    return {s.name: total[s.name] for s in found.scans}


def _enter(machine: PlanMachine, values: Mapping[str, Values], side: str) -> None:
    machine.arrays |= {n + side: v for n, v in values.items()}
