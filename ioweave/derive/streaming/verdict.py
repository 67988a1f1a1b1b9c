"""The verdict of the prover on one axis of a whole diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ioweave.derive.streaming.alternatives import alternatives, measure, with_lengths
from ioweave.derive.streaming.cascade_rows import cascade_rows, kept_between
from ioweave.derive.streaming.caution import cautions, safeguards
from ioweave.derive.streaming.direction import opposite
from ioweave.derive.streaming.equations import equations, head_equations, start_of
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.history import without_histories
from ioweave.derive.streaming.lazy import check_lazy
from ioweave.derive.streaming.least import least_passes
from ioweave.derive.streaming.lists import growing, held_as, no_end
from ioweave.derive.streaming.merge import merge_text
from ioweave.derive.streaming.plan import Plan, slot_axes
from ioweave.derive.streaming.recurrence import blocked
from ioweave.derive.streaming.repair import repair
from ioweave.derive.streaming.scanned import least_of_scans, recurrent
from ioweave.diagrams.boxes import Box, Opened, base_name
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, walk
from ioweave.diagrams.groups import carried_axes
from ioweave.diagrams.operators import CASTS
from ioweave.hierarchy.verdicts import StateEntry, Verdict


def prove(
    opened: Opened,
    axis: str,
    sizes: Mapping[str, int | float] | None = None,
    accumulate: str = "fp32",
    lazy: float = 0.0,
    definitions: Sequence[Definition] = (),
) -> Verdict:
    """The verdict for streaming the component ``axis`` with the diagram as one region.

    ``sizes`` maps names of sizes and constants to numbers: the counts of the state need them, and
    the bounds of exponents; ``accumulate`` is ``"same"`` to hold results in their array's dtype
    (counting.md 8). ``definitions`` are the ties of sizes, by which a state that grows with the axis is
    told. Raises `WeaveError` for an axis that no box has.
    """
    opened = without_histories(opened)
    held = blocked(opened.boxes, axis)
    if held is not None:
        said = f"{held}: every element that it makes needs {axis} whole, and no plan is known that walks it"
        return Verdict(axis, "unproved", 0, refusal=said, nearest=f"leave {axis} whole and stream another axis")
    plan = plan_axis(opened, axis, sizes, accumulate, lazy=lazy)
    other = opposite(opened, axis, sizes, accumulate) if plan.passes == 1 and plan.recurrences else None
    return _verdict(opened, plan, axis, sizes, accumulate, definitions, other)


def prove_opposite(
    opened: Opened,
    axis: str,
    sizes: Mapping[str, int | float] | None = None,
    accumulate: str = "fp32",
    definitions: Sequence[Definition] = (),
) -> tuple[Verdict, Plan] | None:
    """The verdict, with its plan, for walking an axis against the direction of its scans; None where none does."""
    opened = without_histories(opened)
    plan = plan_axis(opened, axis, sizes, accumulate)
    other = opposite(opened, axis, sizes, accumulate) if plan.passes == 1 and plan.recurrences else None
    if not isinstance(other, Plan):
        return None
    return _verdict(opened, other, axis, sizes, accumulate, definitions, plan), other


def _verdict(
    opened: Opened,
    plan: Plan,
    axis: str,
    sizes: Mapping[str, int | float] | None,
    accumulate: str,
    definitions: Sequence[Definition],
    other: Plan | str | None,
) -> Verdict:
    state = _entries(plan, accumulate)
    passes = max(plan.passes, 1)
    refusal = None if passes == 1 else _refusal(plan, opened, axis)
    unproved = any(r.reason.startswith("unproved") for r in plan.refusals)
    least, open_question = least_of_scans(plan, axis), None
    if not plan.recurrences:  # a pass more that a scan takes is no nesting of reductions
        least, open_question = least_passes(opened, plan, axis, _given(opened, sizes, accumulate))
    if open_question and not unproved:
        unproved, refusal = True, f"{open_question}. The plan of {passes} passes stands meanwhile: {refusal}"
    values, size = measure(state, with_lengths(sizes, plan), slot_axes(plan))
    mapped = not state
    made = Verdict(
        axis=axis,
        verdict="unproved" if unproved else one_pass(plan, sizes) if passes == 1 else f"k-pass({passes})",
        passes=passes,
        whole=_whole(plan, axis),
        state=state,
        state_values=values,
        state_bytes=size,
        head=head_equations(plan),
        body=equations(plan, plan.body),
        tail=equations(plan, plan.tail),
        merge=_nothing(plan, axis) if mapped else _merge(plan),
        exact="casts" if has_casts(opened) else "reals",
        identities=tuple(dict.fromkeys((*(r.identity for r in plan.repairs if r.identity), *plan.identities))),
        assumes=plan.assumes,
        refusal=refusal,
        cascade=cascade_rows(opened, plan, axis),
        kept=kept_between(plan),
        least=None if unproved else least,
        safe=safeguards(plan),
        warnings=cautions(plan),
        lists=_lists(plan, sizes),
        plans=alternatives(opened, axis, plan, sizes, accumulate),
    )
    endless_lists = growing(plan, _given(opened, sizes, accumulate).tied(axis))
    if endless_lists:
        why, change = no_end(endless_lists, axis)
        waits = f"; {made.refusal}" if made.refusal else ""
        made = replace(made, verdict="unbounded", refusal=f"{why}{waits}", nearest=change)
    return recurrent(made, opened, plan, axis, definitions, other)


def plan_axis(
    opened: Opened,
    axis: str,
    sizes: Mapping[str, int | float] | None = None,
    accumulate: str = "fp32",
    frugal: bool = False,
    lazy: float = 0.0,
) -> Plan:
    """The plan that the verdict on an axis rests on.

    A ``frugal`` plan gives no reduction more than one accumulator: less state, further passes. In a
    ``lazy`` one the references of exponents move in multiples of that number, so that an accumulator
    is rescaled only where a maximum crosses one. Raises `WeaveError` for an axis that no box has, and
    for a lazy step whose exponential is out of range of an element type.
    """
    axes = dict.fromkeys(a for b in opened.boxes for a in b.all_axes)
    opened = without_histories(opened)
    if axis not in axes:
        raise WeaveError(f"no box has the axis {axis!r}; the axes are {', '.join(axes)}")
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    check_lazy(lazy, [b.dtype for b in opened.boxes])
    outputs = frozenset(opened.outputs)
    return repair(opened.boxes, frozenset({axis}), outputs, facts, sizes, accumulate, frugal, lazy, opened.ties)


def _given(opened: Opened, sizes: Mapping[str, int | float] | None, accumulate: str) -> Given:
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    return Given.of(facts, sizes, accumulate, ties=opened.ties)


def one_pass(plan: Plan, sizes: Mapping[str, int | float] | None) -> str:
    """The word for a plan of one pass: with a list in its state, how long the longest one is.

    Where the sizes are not known the name of its axis stands for the length.
    """
    found = _lists(plan, sizes)
    if found:
        return f"one-pass-list({max(n for _, n in found)})"
    unknown = sorted(slot_axes(plan))
    return f"one-pass-list({base_name(unknown[0])})" if unknown else "one-pass"


def _lists(plan: Plan, sizes: Mapping[str, int | float] | None) -> tuple[tuple[str, int], ...]:
    """The axes of the lists in the state, with their slots where those are known."""
    known = with_lengths(sizes, plan) or dict(plan.lengths)
    return tuple((a, int(known[base_name(a)])) for a in sorted(slot_axes(plan)) if base_name(a) in known)


def has_casts(opened: Opened) -> bool:
    """Whether a diagram rounds on purpose: casts and roundings are part of its function."""
    rounding = CASTS | {"round", "floor"}
    return any(isinstance(n, Apply) and n.op in rounding for b in opened.boxes for n in walk(b.body))


def _nothing(plan: Plan, axis: str) -> str:
    """Why there is nothing to merge."""
    if plan.body:
        return f"nothing to merge: {axis} is mapped, its steps are independent"
    return f"nothing to merge: no result needs what lies along {axis}"


def _merge(plan: Plan) -> str | None:
    return merge_text(plan) if plan.passes == 1 else None


def _entries(plan: Plan, accumulate: str) -> tuple[StateEntry, ...]:
    kinds = {r.accumulator: r.kind for r in plan.repairs}
    held = Given(accumulate=accumulate).held
    carried = (StateEntry(b.name, carried_axes(b), held(b.dtype), start_of(b), "recurrence") for b in plan.recurrences)
    return *carried, *(
        StateEntry(
            b.name, b.axes, held_as(b, plan, Given(accumulate=accumulate)), start_of(b), kinds.get(b.name, "none")
        )
        for b in plan.carried
    )


def _whole(plan: Plan, axis: str) -> tuple[str, ...]:
    """Axes that a step or the tail reduces over: an instance has them whole."""
    made = {axis, *(a for a, _ in plan.lengths)}
    inner = [a for b in plan.boxes if b.reduction is not None for a in b.over if a not in made]
    return tuple(dict.fromkeys(inner))


def _refusal(plan: Plan, opened: Opened, axis: str) -> str:
    """Why one pass is not enough: every reduction or output that has to wait for a finished result."""
    reasons: list[str] = []
    for r in plan.refusals:
        if not r.waits and any(b.name == r.reduction and b.scan is not None for b in plan.boxes):
            reasons.append(f"{r.reduction} waits for a pass of its own: {r.reason}")
            continue
        waits = " and ".join(dict.fromkeys(_present(n, plan) for n in r.waits)) or "an earlier result"
        reasons.append(f"{r.reduction} over {axis} needs the finished {waits} over {axis}: {r.reason}")
    for name in opened.outputs:
        box = plan.box(name)
        if axis not in box.axes or plan.pass_of(name) < 2:
            continue
        waits = _last(plan, box, axis)
        reasons.append(f"{name} is indexed by {axis} and needs the finished {waits} over {axis}")
    return "; ".join(reasons) or "a value inside the loop needs a finished result of it"


def _present(name: str, plan: Plan) -> str:
    """The name of an accumulator, or of the reduction that it stood for where another one took its place."""
    return name if any(b.name == name for b in plan.boxes) else name.split(".acc")[0]


def _last(plan: Plan, box: Box, axis: str) -> str:
    """The last accumulator of an earlier pass that a box depends on."""
    run = plan.pass_of(box.name)
    by_name = {b.name: b for b in plan.boxes}
    todo, seen = [box.name], set[str]()
    while todo:
        n = todo.pop()
        if n in seen or n not in by_name:
            continue
        seen.add(n)
        todo += [r.array for r in by_name[n].reads()]
    found = [b.name for b in plan.state if b.name in seen and plan.pass_of(b.name) < run]
    return found[-1] if found else "result of an earlier pass"
