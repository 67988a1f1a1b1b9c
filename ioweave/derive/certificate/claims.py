"""Whether a verdict says of a plan what the plan's boxes say."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ioweave.derive.certificate.structure import Layout, Unsound
from ioweave.derive.streaming.cascade_rows import cascade_rows, kept_between
from ioweave.derive.streaming.caution import cautions, safeguards
from ioweave.derive.streaming.equations import equations, head_equations, start_of
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.merge import merge_lines, merge_text
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box, Opened, base_name, source
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.dtypes import size_bytes
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Constant, Number, reads, walk
from ioweave.diagrams.groups import carried_axes
from ioweave.diagrams.lists import PAYLOAD, is_list, payload
from ioweave.diagrams.operators import CASTS
from ioweave.hierarchy.verdicts import Verdict

_UNTRIED = "the plan has not been executed"  # a note on the trials, not on the plan
_ROUNDING = CASTS | {"round", "floor"}
_LENGTHS = (2**6, 2**9, 2**12, 2**15)  # of an axis, where the sizes tied to it are compared


def check_claims(
    verdict: Verdict, plan: Plan, layout: Layout, opened: Opened, diagram: Diagram, accumulate: str
) -> None:
    """Raise `Unsound` naming the first claim that the plan does not bear out; sizes are those of the diagram."""
    passes = max(layout.passes, 1)
    sizes = {**diagram.values(), **dict(plan.lengths)}
    _say("passes", verdict.passes, passes)
    _check_growth(layout, opened)
    _say("lists", verdict.lists, tuple((a, int(sizes[base_name(a)])) for a in sorted(slot_axes(layout))))
    _say("verdict", verdict.verdict, _word(verdict, plan, layout, diagram))
    _say("axis", verdict.axis, layout.axis)
    if (verdict.refusal is None) != (passes == 1):
        raise Unsound("the verdict gives a reason for one pass, or none for several")
    _check_plan(plan, layout, opened)
    _check_state(verdict, plan, layout, sizes, accumulate)
    whole = {a for b in layout.boxes if b.reduction is not None for a in b.over} - {layout.axis, *dict(plan.lengths)}
    _say("whole", tuple(sorted(verdict.whole)), tuple(sorted(whole)))
    casts = "casts" if any(_rounds(b) for b in opened.boxes) else "reals"
    _say("exact", verdict.exact, casts)
    _say("assumes", verdict.assumes, plan.assumes)
    said = dict.fromkeys((*(r.identity for r in plan.repairs if r.identity), *plan.identities))
    _say("identities", verdict.identities, tuple(said))


def slot_axes(layout: Layout) -> frozenset[str]:
    """The axes of the lists in the state: a list is whole wherever it is."""
    return frozenset(b.into for b in layout.carried if b.into is not None)


def _word(verdict: Verdict, plan: Plan, layout: Layout, diagram: Diagram) -> str:
    """The verdict in a word, as the boxes have it."""
    if layout.passes > 1:
        return f"k-pass({layout.passes})"
    if any(
        _follows_log(diagram, base_name(layout.axis), base_name(a)) for b in layout.recurrences for a in carried_axes(b)
    ):
        return "one-pass-states(log)"
    if layout.recurrences and plan.segments is None:
        return "one-pass-directed"
    return f"one-pass-list({max(n for _, n in verdict.lists)})" if verdict.lists else "one-pass"


def _check_growth(layout: Layout, opened: Opened) -> None:
    """No list of the state is as long as a number that is worked out from the size of the axis."""
    ties, axis = dict(opened.ties), base_name(layout.axis)
    for a in sorted(slot_axes(layout)):
        name = base_name(a)
        if name == axis or axis in ties.get(name, ()) or set(ties.get(axis, ())) & {name, *ties.get(name, ())}:
            raise Unsound(f"the list axis {a} of the state follows the size of {layout.axis}: the state has no bound")


def _follows_log(diagram: Diagram, axis: str, name: str) -> bool:
    """Whether a size grows with that of an axis, and by no more from one doubling to the next."""
    table = {d.name: d.value for d in diagram.definitions}
    if axis not in table or name not in table or name == axis:
        return False
    roots, todo = set[str](), [axis]
    while todo:
        n = todo.pop()
        behind = [e.name for e in walk(table[n]) if isinstance(e, Constant) and e.name in table]
        todo += behind
        if not behind and isinstance(table[n], Number):
            roots.add(n)
    try:
        found = [float(diagram.values(dict.fromkeys(roots, n))[name]) for n in _LENGTHS]
    except WeaveError:
        return False
    return found[-1] > found[0] and found[3] - found[2] <= 2 * (found[1] - found[0])


def check_texts(verdict: Verdict, plan: Plan, opened: Opened, axis: str) -> None:
    """Raise `Unsound` where what people read and copy is not what the boxes say."""
    _say("head", verdict.head, head_equations(plan))
    _say("body", verdict.body, equations(plan, plan.body))
    _say("tail", verdict.tail, equations(plan, plan.tail))
    if plan.recurrences:
        _say("merge", verdict.merge, merge_lines(plan, plan.segments) if plan.segments is not None else None)
    elif plan.state:
        _say("merge", verdict.merge, merge_text(plan) if plan.passes == 1 else None)
    _say("commutative", verdict.commutative, not plan.recurrences)
    _say("cascade", verdict.cascade, cascade_rows(opened, plan, axis))
    _say("kept", verdict.kept, kept_between(plan))
    _say("safe", verdict.safe, safeguards(plan))
    _say("warnings", tuple(w for w in verdict.warnings if not w.startswith(_UNTRIED)), cautions(plan))
    if plan.passes == 1:
        _say("least", verdict.least, None)


def _rounds(b: Box) -> bool:
    """Whether a box rounds on purpose."""
    return any(isinstance(n, Apply) and n.op in _ROUNDING for n in walk(b.body))


def _say(what: str, claimed: object, found: object) -> None:
    if claimed != found:
        raise Unsound(f"the verdict's {what}: {_short(claimed)} is claimed, {_short(found)} is found")


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text[:60] or "none"


def _check_plan(plan: Plan, layout: Layout, opened: Opened) -> None:
    """The repairs and merges listed are those of the boxes."""
    merges = [(m.accumulator, m.op, m.factor) for m in plan.merges]
    wanted = [(b.name, b.reduction, b.rescale) for b in layout.state]
    for claimed, found in zip(merges, wanted, strict=False):
        if claimed != found:
            raise Unsound(f"the merge of {claimed[0]} is not that of its box, {found[0]}")
    if len(merges) != len(wanted):
        raise Unsound(f"there are {len(merges)} merges for {len(wanted)} accumulators")
    running = {b.name for b in layout.state}
    for r in plan.repairs:
        if r.accumulator not in layout.by_name or (r.accumulator not in running and layout.state):
            raise Unsound(f"a repair names {r.accumulator}, which is no accumulator of the plan")
        if r.reduction not in layout.by_name and all(r.reduction != b.name for b in opened.boxes):
            raise Unsound(f"a repair is of {r.reduction}, which is no box")
    if layout.passes < 2 and plan.refusals:
        raise Unsound("reductions are listed as left to a further pass, and the plan has one")


def _check_state(
    verdict: Verdict, plan: Plan, layout: Layout, sizes: Mapping[str, int | float], accumulate: str
) -> None:
    kinds = {r.accumulator: r.kind for r in plan.repairs}
    state = (*layout.recurrences, *layout.carried)
    _say("state", tuple(s.name for s in verdict.state), tuple(b.name for b in state))
    for claimed, box in zip(verdict.state, state, strict=True):
        scan = box.scan is not None
        _say(f"state {box.name}, its axes", claimed.axes, carried_axes(box) if scan else box.axes)
        _say(f"state {box.name}, its repair", claimed.repair, "recurrence" if scan else kinds.get(box.name, "none"))
        _say(f"state {box.name}, its identity", claimed.identity, start_of(box))
        _say(f"state {box.name}, its dtype", claimed.dtype, _held(box, layout, accumulate))
        if is_list(box) and claimed.repair != "list":
            raise Unsound(f"the state {box.name} is a list, and its repair is said to be {claimed.repair}")
    shared = set(verdict.state[0].axes) if verdict.state else set()
    for s in verdict.state:
        shared &= set(s.axes) - slot_axes(layout)
    counts = [prod(int(sizes[base_name(a)]) for a in s.axes if a not in shared) for s in verdict.state]
    _say("state_values", verdict.state_values, sum(counts))
    held = sum(size_bytes(n, s.dtype) for n, s in zip(counts, verdict.state, strict=True))
    _say("state_bytes", verdict.state_bytes, held)


def _held(box: Box, layout: Layout, accumulate: str) -> str:
    """The dtype that a part of the state is held in: a payload that nothing computed is moved as it is."""
    if box.reduction == PAYLOAD and not any(_computed(source(r.array), layout) for r in reads(payload(box))):
        return box.dtype
    return Given(accumulate=accumulate).held(box.dtype)


def _computed(name: str, layout: Layout) -> bool:
    """Whether a reduction or a scan stands behind an array."""
    box = layout.by_name.get(name)
    if box is None:
        return False
    return (
        box.reduction is not None
        or box.scan is not None
        or any(_computed(source(r.array), layout) for r in box.reads())
    )
