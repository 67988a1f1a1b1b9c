"""Whether a verdict says of a plan what the plan's boxes say."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ioweave.derive.certificate.structure import Layout, Unsound
from ioweave.derive.streaming.cascade_rows import cascade_rows, kept_between
from ioweave.derive.streaming.caution import cautions, safeguards
from ioweave.derive.streaming.equations import equations, head_equations, start_of
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.merge import merge_text
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box, Opened, base_name
from ioweave.diagrams.dtypes import size_bytes
from ioweave.diagrams.expressions import Apply, walk
from ioweave.diagrams.operators import CASTS
from ioweave.hierarchy.verdicts import Verdict

_UNTRIED = "the plan has not been executed"  # a note on the trials, not on the plan
_ROUNDING = CASTS | {"round", "floor"}


def check_claims(
    verdict: Verdict, plan: Plan, layout: Layout, opened: Opened, sizes: Mapping[str, int | float], accumulate: str
) -> None:
    """Raise `Unsound` naming the first claim that the plan does not bear out."""
    passes = max(layout.passes, 1)
    _say("passes", verdict.passes, passes)
    _say("verdict", verdict.verdict, "one-pass" if passes == 1 else f"k-pass({passes})")
    _say("axis", verdict.axis, layout.axis)
    if (verdict.refusal is None) != (passes == 1):
        raise Unsound("the verdict gives a reason for one pass, or none for several")
    _check_plan(plan, layout, opened)
    _check_state(verdict, plan, layout, sizes, accumulate)
    whole = {a for b in layout.boxes if b.reduction is not None for a in b.over} - {layout.axis}
    _say("whole", tuple(sorted(verdict.whole)), tuple(sorted(whole)))
    casts = "casts" if any(_rounds(b) for b in opened.boxes) else "reals"
    _say("exact", verdict.exact, casts)
    _say("assumes", verdict.assumes, plan.assumes)
    said = dict.fromkeys((*(r.identity for r in plan.repairs if r.identity), *plan.identities))
    _say("identities", verdict.identities, tuple(said))


def check_texts(verdict: Verdict, plan: Plan, opened: Opened, axis: str) -> None:
    """Raise `Unsound` where what people read and copy is not what the boxes say."""
    _say("head", verdict.head, head_equations(plan))
    _say("body", verdict.body, equations(plan, plan.body))
    _say("tail", verdict.tail, equations(plan, plan.tail))
    if plan.passes == 1 and plan.state:
        _say("merge", verdict.merge, merge_text(plan))
    _say("commutative", verdict.commutative, True)
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
    state = layout.carried
    _say("state", tuple(s.name for s in verdict.state), tuple(b.name for b in state))
    for claimed, box in zip(verdict.state, state, strict=True):
        _say(f"state {box.name}, its axes", claimed.axes, box.axes)
        _say(f"state {box.name}, its repair", claimed.repair, kinds.get(box.name, "none"))
        _say(f"state {box.name}, its identity", claimed.identity, start_of(box))
        _say(f"state {box.name}, its dtype", claimed.dtype, Given(accumulate=accumulate).held(box.dtype))
    shared = set(verdict.state[0].axes) if verdict.state else set()
    for s in verdict.state:
        shared &= set(s.axes)
    counts = [prod(int(sizes[base_name(a)]) for a in s.axes if a not in shared) for s in verdict.state]
    _say("state_values", verdict.state_values, sum(counts))
    held = sum(size_bytes(n, s.dtype) for n, s in zip(counts, verdict.state, strict=True))
    _say("state_bytes", verdict.state_bytes, held)
