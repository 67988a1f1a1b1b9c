"""Alternatives: the plans for one axis that nothing else on the list beats in passes, state and traffic.

A plan of one pass may keep several accumulators for one reduction (`separate`, moments, an
interchanged sum); walking the axis again instead keeps fewer. Both stand on the list where each is
better in something.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.lists import held_as
from ioweave.derive.streaming.plan import Plan, slot_axes
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Opened, base_name, source
from ioweave.diagrams.dtypes import size_bytes
from ioweave.hierarchy.verdicts import Alternative, StateEntry


def measure(
    state: tuple[StateEntry, ...], sizes: Mapping[str, int | float] | None, slots: frozenset[str] = frozenset()
) -> tuple[int | None, int | None]:
    """Values and bytes of the state, tile 1 on the axes that all its parts share; ``slots``, those of lists, whole."""
    if sizes is None:
        return None, None
    shared = set(state[0].axes) if state else set()
    for s in state:
        shared &= set(s.axes) - slots
    counts = [prod(int(sizes[base_name(a)]) for a in s.axes if a not in shared) for s in state]
    return sum(counts), sum(size_bytes(n, s.dtype) for n, s in zip(counts, state, strict=True))


def with_lengths(sizes: Mapping[str, int | float] | None, plan: Plan) -> Mapping[str, int | float] | None:
    """The sizes with those of the lists that a plan makes."""
    return sizes if sizes is None or not plan.lengths else {**sizes, **dict(plan.lengths)}


def alternatives(
    opened: Opened, axis: str, plan: Plan, sizes: Mapping[str, int | float] | None, accumulate: str
) -> tuple[Alternative, ...]:
    """The Pareto list, the fewest passes first; empty without sizes, or where one plan is best in everything."""
    if sizes is None or not plan.state:
        return ()
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    outputs = frozenset(opened.outputs)
    frugal = repair(opened.boxes, frozenset({axis}), outputs, facts, sizes, accumulate, True, ties=opened.ties)
    found = [_record(opened, axis, p, sizes, accumulate) for p in (plan, frugal)]
    first, second = found
    if second.state_values >= first.state_values and second.loads >= first.loads:
        return ()
    if second.passes <= first.passes and second.loads <= first.loads:
        return ()
    return tuple(sorted(found, key=lambda p: p.passes))


def _record(opened: Opened, axis: str, plan: Plan, sizes: Mapping[str, int | float], accumulate: str) -> Alternative:
    given = Given(accumulate=accumulate)
    state = tuple(StateEntry(b.name, b.axes, held_as(b, plan, given), "", "") for b in plan.carried)
    values, size = measure(state, with_lengths(sizes, plan), slot_axes(plan))
    several = len({r.reduction for r in plan.repairs}) < len([r for r in plan.repairs if r.kind != "none"])
    passes = max(plan.passes, 1)
    how = "every reduction beside the ones that it needs" if passes == 1 else "one accumulator for each reduction"
    if passes > 1 and several:
        how = "as few passes as the reductions allow"
    if plan.lengths:
        how = "a list of the terms that count, in place of a second walk"
    held = tuple(f"{b.name}[{', '.join(b.axes)}]" for b in plan.carried)
    return Alternative(passes, values or 0, size or 0, loads(opened, axis, plan, sizes), held, how)


def loads(opened: Opened, axis: str, plan: Plan, sizes: Mapping[str, int | float]) -> int:
    """Values read along the axis in all passes: each input once in every pass that reads it."""
    made = {b.name for b in plan.boxes}
    found: set[tuple[int, str]] = set()
    for b in plan.boxes:
        for r in b.reads():
            walks = any(axis in f.names for f in r.index)
            if source(r.array) not in made and walks:
                found.add((plan.pass_of(b.name), r.array))
    shapes = {i.name: i.dims for i in opened.inputs}
    whole = {n: int(v) for n, v in sizes.items() if isinstance(v, int)}
    return sum(prod(f.fixed(whole) for f in shapes[n]) for _, n in found if n in shapes)
