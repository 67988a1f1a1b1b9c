"""Loops over an axis with recurrences: in steps, and in pieces that are walked apart and joined in their order.

What a step sees of a scan is the value that enters it and its own elements; nothing else of what was made
before is there. Two summaries of pieces join as `Segments` says, the earlier one first: the order counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from ioweave.derive.certificate.machine import Machine, direct, elements, start
from ioweave.derive.certificate.structure import Layout, Unsound, check_expression, lay_out
from ioweave.derive.certificate.values import Arrays, Step, Values
from ioweave.derive.streaming.plan import BOTH, LEFT, RIGHT, Plan, Segments
from ioweave.diagrams.boxes import Box, Opened, base_name, old, running
from ioweave.diagrams.groups import Group, carried_axes, units
from ioweave.diagrams.lists import is_list
from ioweave.diagrams.operators import REDUCTIONS


@dataclass(frozen=True)
class Walked:
    """What a walk leaves: the value that each scan carries, the accumulators, and the arrays along the axis."""

    carries: Mapping[str, Values]
    states: Mapping[str, Values]
    made: Mapping[str, Values]


def walk(
    machine: Machine, arrays: Arrays, run: int, steps: Iterable[Step], entering: Mapping[str, Values] | None = None
) -> Walked:
    """Pass ``run`` over steps in the direction of its scans, from their starts or what enters them by name."""
    layout, axis = machine.layout, machine.layout.axis
    boxes = layout.walked(run)
    backward = layout.directions.get(run) == "backward"
    carries = {
        g.scan.name: start(g, arrays, machine.values)
        if entering is None or g.scan.name not in entering
        else entering[g.scan.name]
        for g in layout.scans(run)
    }
    states = {b.name: machine.identity(b) for b in boxes if b.running}
    made = {b.name: np.full([machine.size(a) for a in b.axes], np.nan) for b in boxes if axis in b.axes}
    for step in sorted(steps, reverse=backward):
        if step[0] == step[1]:
            continue
        held = {n: v for n, v in arrays.items() if n not in made}
        held.update({old(n): v for n, v in states.items()})
        for unit in units(boxes):
            if isinstance(unit, Group):
                name, before = unit.scan.name, carries.get(unit.scan.name)
                if before is None:  # a scan along another axis, of what this one carries
                    before = start(unit, held, machine.values)
                    elements(unit, held, machine.values, (0, machine.size(unit.axis)), before)
                    continue
                _, carries[name] = elements(unit, held, machine.values, step, before)
                _enter(machine, unit, held, step, before)
            elif unit.running:
                states[unit.name] = held[running(unit.name)] = machine.advanced(unit, held, step)
            else:
                held[unit.name] = machine.placed(unit, machine.evaluate(unit, held, step), step)
        for name, whole in made.items():
            part = tuple(slice(*step) if a == axis else slice(None) for a in layout.by_name[name].axes)
            whole[part] = held[name][part]
    return Walked(carries, states, made)


def _enter(machine: Machine, group: Group, held: Mapping[str, Values], step: Step, before: Values) -> None:
    """The value before a step stands where others may read it: at the element next to the step."""
    edge = step[1] if group.backward else step[0] - 1
    if 0 <= edge < machine.size(group.axis):
        place = tuple(edge if a == group.axis else slice(None) for a in group.scan.axes)
        held[group.scan.name][place] = before


def check_segments(plan: Plan, layout: Layout, opened: Opened, known: Iterable[str]) -> Layout | None:
    """The layout of a plan's loop with the maps of its segments beside it; None for a plan that joins no pieces.

    Raises `Unsound` for segments that are not of this plan, or that read what a summary does not hold.
    """
    found = plan.segments
    if found is None:
        return None
    if layout.passes != 1 or found.scans != layout.recurrences or not found.scans:
        raise Unsound("the segments are not of the plan's scans")
    if tuple(n for n, _ in found.neutral) != tuple(s.name for s in found.scans):
        raise Unsound("the segments do not say what each scan's piece starts from")
    sizes = tuple(known)
    beside = replace(
        plan,
        boxes=(*plan.boxes, *found.maps),
        stages=(*plan.stages, *((b.name, 1, "body") for b in found.maps)),
    )
    wide = lay_out(beside, opened, layout.axis, sizes)
    if len(wide.state) > len(layout.state) and found.again:
        raise Unsound("the segments map accumulators that they make again")
    if any(b.reduction is None and b.scan is None and layout.axis not in b.axes for b in found.maps):
        raise Unsound("the maps of the segments are not made along the axis")
    scans = {b.name for b in wide.recurrences}
    if set(found.carried) != scans or len(found.carried) != len(scans):
        raise Unsound(f"the segments join {', '.join(found.carried)}, and the loop carries {', '.join(sorted(scans))}")
    summaries = scans | {b.name for b in wide.state}
    _check_joins(found.joined, {n + side for n in scans for side in (LEFT, RIGHT)}, layout.axis, sizes)
    _check_joins(found.lifts, {n + LEFT for n in scans} | {n + RIGHT for n in summaries}, layout.axis, sizes)
    made = {b.name for b in found.lifts}
    if made & {b.name for b in layout.boxes} - {b.name for b in layout.state}:
        raise Unsound("the segments lift what is no accumulator")
    needed = plan.kept | set(opened.outputs)
    along = {n for n in layout.following if n in needed and layout.axis in layout.by_name[n].axes}
    if not along <= set(found.again):
        missing = sorted(along - set(found.again))
        raise Unsound(f"{missing[0]} follows what is carried, and the segments do not make it again")
    return wide


def _check_joins(boxes: Iterable[Box], known: set[str], axis: str, sizes: Iterable[str]) -> None:
    """Boxes without the axis that read summaries and each other alone."""
    names = set(sizes)
    seen = set(known)
    for b in boxes:
        if b.running or b.scan is not None or is_list(b) or b.rescale or b.recentre or axis in b.all_axes:
            raise Unsound(f"box {b.name} of the segments is no map of summaries")
        if b.name in seen or (b.reduction is not None and b.reduction not in REDUCTIONS):
            raise Unsound(f"box {b.name} of the segments is made twice, or reduces by what is no reduction")
        if any(base_name(a) not in names for a in b.all_axes):
            raise Unsound(f"box {b.name} of the segments has an axis without a size")
        check_expression(b, b.body, frozenset(b.all_axes), frozenset(names))
        for r in b.reads():
            if r.array not in seen or any(not set(f.names) <= set(b.all_axes) for f in r.index):
                raise Unsound(f"box {b.name} of the segments reads {r.array}, which is in no summary")
        seen.add(b.name)


def joined(
    machine: Machine, wide: Machine, arrays: Arrays, found: Segments, parts: Sequence[Sequence[Step]]
) -> Iterable[tuple[str, Walked]]:
    """A pass walked in pieces, in its order, and joined: from the left and from the right, and what comes of each.

    ``wide`` runs the loop with the maps beside it. The first piece starts where the scans do, the others from nothing.
    """
    layout = machine.layout
    (run,) = {layout.places[s.name][0] for s in found.scans}
    held = dict(arrays)
    wide.prepare(held, run)
    nothing = dict(found.neutral)
    neutral = {
        s.name: np.full([machine.size(a) for a in carried_axes(s)], nothing[s.name], dtype=float) for s in found.scans
    }
    walks = [walk(wide, held, run, steps, neutral if k else None) for k, steps in enumerate(parts)]
    sums = [{**w.carries, **w.states} for w in walks]
    for how, fold in (("earlier pieces first", _from_left), ("later pieces first", _from_right)):
        entering = [fold(machine, found, sums[:k]) for k in range(1, len(parts))]
        pieces = [_piece(machine, arrays, found, run, parts[0], sums[0], None)]
        pieces += [
            _piece(machine, arrays, found, run, steps, s, e)
            for steps, s, e in zip(parts[1:], sums[1:], entering, strict=True)
        ]
        total = fold(machine, found, sums)
        states = machine.merged(arrays, run, [p.states for p in pieces])
        made: dict[str, Values] = {}
        for p in pieces:
            for n, v in p.made.items():
                made[n] = v if n not in made else np.where(np.isnan(v), made[n], v)
        yield how, Walked({s.name: total[s.name] for s in found.scans}, states, made)


def _from_left(machine: Machine, found: Segments, sums: Sequence[Arrays]) -> Arrays:
    return reduce(lambda a, b: _two(machine, found, a, b), sums)


def _from_right(machine: Machine, found: Segments, sums: Sequence[Arrays]) -> Arrays:
    return reduce(lambda b, a: _two(machine, found, a, b), reversed(sums))


def _two(machine: Machine, found: Segments, first: Arrays, second: Arrays) -> Arrays:
    """The summary of two pieces, one after the other."""
    sides = {n + LEFT: v for n, v in first.items()} | {n + RIGHT: v for n, v in second.items()}
    made = direct(found.joined, sides, machine.values)
    return {n: made[n + BOTH] for n in found.carried}


def _piece(
    machine: Machine,
    arrays: Arrays,
    found: Segments,
    run: int,
    steps: Sequence[Step],
    sums: Arrays,
    entering: Arrays | None,
) -> Walked:
    """The accumulators of a piece as the state that enters it makes them: lifted, or from a second walk."""
    if found.again:
        return walk(machine, arrays, run, steps, entering)
    states = {b.name: sums[b.name] for b in machine.layout.state}
    if entering is not None:
        sides = {n + LEFT: v for n, v in entering.items()} | {n + RIGHT: v for n, v in sums.items()}
        lifted = direct(found.lifts, sides, machine.values)
        states = {n: lifted.get(n, v) for n, v in states.items()}
    return Walked({}, states, {})
