"""The verdict of the prover on one axis of a whole diagram."""

from __future__ import annotations

from collections.abc import Mapping

from ioweave.derive.streaming.alternatives import alternatives, measure
from ioweave.derive.streaming.cascade_rows import cascade_rows, kept_between
from ioweave.derive.streaming.caution import cautions, safeguards
from ioweave.derive.streaming.equations import equations, head_equations, start_of
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.lazy import check_lazy
from ioweave.derive.streaming.least import least_passes
from ioweave.derive.streaming.merge import merge_text
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, walk
from ioweave.diagrams.operators import CASTS
from ioweave.hierarchy.verdicts import StateEntry, Verdict


def prove(
    opened: Opened,
    axis: str,
    sizes: Mapping[str, int | float] | None = None,
    accumulate: str = "fp32",
    lazy: float = 0.0,
) -> Verdict:
    """The verdict for streaming the component ``axis`` with the diagram as one region.

    ``sizes`` maps names of sizes and constants to numbers: the counts of the state need them, and
    the bounds of exponents; ``accumulate`` is ``"same"`` to hold results in their array's dtype
    (counting.md 8). Raises `WeaveError` for an axis that no box has.
    """
    plan = plan_axis(opened, axis, sizes, accumulate, lazy=lazy)
    state = _entries(plan, accumulate)
    passes = max(plan.passes, 1)
    refusal, nearest = (None, None) if passes == 1 else _refusal(plan, opened, axis)
    unproved = any(r.reason.startswith("unproved") for r in plan.refusals)
    least, open_question = least_passes(opened, plan, axis, _given(opened, sizes, accumulate))
    if open_question and not unproved:
        unproved, refusal = True, f"{open_question}. The plan of {passes} passes stands meanwhile: {refusal}"
    values, size = measure(state, sizes)
    mapped = not state
    return Verdict(
        axis=axis,
        verdict="unproved" if unproved else "one-pass" if passes == 1 else f"k-pass({passes})",
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
        nearest=nearest,
        cascade=cascade_rows(opened, plan, axis),
        kept=kept_between(plan),
        least=None if unproved else least,
        safe=safeguards(plan),
        warnings=cautions(plan),
        plans=alternatives(opened, axis, plan, sizes, accumulate),
    )


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
    if axis not in axes:
        raise WeaveError(f"no box has the axis {axis!r}; the axes are {', '.join(axes)}")
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    check_lazy(lazy, [b.dtype for b in opened.boxes])
    return repair(opened.boxes, frozenset({axis}), frozenset(opened.outputs), facts, sizes, accumulate, frugal, lazy)


def _given(opened: Opened, sizes: Mapping[str, int | float] | None, accumulate: str) -> Given:
    return Given.of({i.name: i.fact for i in opened.inputs if i.fact is not None}, sizes, accumulate)


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
    return tuple(
        StateEntry(b.name, b.axes, Given(accumulate=accumulate).held(b.dtype), start_of(b), kinds.get(b.name, "none"))
        for b in plan.carried
    )


def _whole(plan: Plan, axis: str) -> tuple[str, ...]:
    """Axes that a step or the tail reduces over: an instance has them whole."""
    inner = [a for b in plan.boxes if b.reduction is not None for a in b.over if a != axis]
    return tuple(dict.fromkeys(inner))


def _refusal(plan: Plan, opened: Opened, axis: str) -> tuple[str, str | None]:
    """Why one pass is not enough: every reduction or output that has to wait for a finished result."""
    reasons: list[str] = []
    nearest: str | None = None
    for r in plan.refusals:
        waits = " and ".join(dict.fromkeys(_present(n, plan) for n in r.waits)) or "an earlier result"
        reasons.append(f"{r.reduction} over {axis} needs the finished {waits} over {axis}: {r.reason}")
        nearest = nearest or r.nearest or f"keep {waits}: walk {axis} once for it and once more for {r.reduction}"
    for name in opened.outputs:
        box = plan.box(name)
        if axis not in box.axes or plan.pass_of(name) < 2:
            continue
        waits = _last(plan, box, axis)
        reasons.append(f"{name} is indexed by {axis} and needs the finished {waits} over {axis}")
        nearest = nearest or f"return {waits} and leave {name} to what reads it: one pass"
    return "; ".join(reasons) or "a value inside the loop needs a finished result of it", nearest


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
