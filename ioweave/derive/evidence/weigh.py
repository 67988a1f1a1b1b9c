"""Weighing: a verdict beside the evidence of numbers, which confirm it, withdraw it or leave it open.

Both ways: a plan with less state than the rank is wrong and withdrawn; a refusal is left open where
a flat rank says that a small state may exist, and `unbounded` needs a growing one.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ioweave.derive.evidence.bench import Bench
from ioweave.derive.evidence.least import Finding, Question, find, grows, keeps_growing, short_benches
from ioweave.derive.evidence.witness import find_late, find_pair, record
from ioweave.diagrams.boxes import source
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import reads
from ioweave.hierarchy.verdicts import Verdict


def weigh(verdict: Verdict, q: Question) -> Verdict:
    """The verdict with its least state, the ranks it rests on and a witness, or what numbers make of it."""
    if verdict.verdict == "unproved" and not verdict.body:  # there is nothing to confirm or to settle
        return verdict
    found = find(q)
    q = replace(q, long=found.long)
    if verdict.verdict.startswith("approximate"):  # its state is that of another function
        return replace(verdict, ranks=found.ranks)
    if verdict.streams:
        return _streams(verdict, q, found)
    if verdict.verdict.startswith("k-pass") or verdict.verdict == "unbounded":
        return _refused(verdict, q, found)
    open_question = verdict.verdict == "unproved" and verdict.passes == 2 and bool(verdict.body)
    if open_question and found.trend == "growing" and keeps_growing(q, found):
        settled = f"2 passes are least: {_said(found)}"
        return _refused(replace(verdict, verdict="k-pass(2)", least=settled), q, found)
    if verdict.verdict == "unproved" and found.trend == "flat" and not q.selects:
        return _may_exist(verdict, found)
    return replace(verdict, ranks=found.ranks)


def _streams(verdict: Verdict, q: Question, found: Finding) -> Verdict:
    if found.rises > 1 and grows(q):
        return _unbounded(verdict, q, found)
    if found.over:
        return _contradicted(verdict, found)
    if found.trend != "flat" or found.state is None:
        return replace(verdict, ranks=found.ranks)
    if verdict.state_values is not None and found.state > verdict.state_values:
        return replace(verdict, ranks=found.ranks)  # the fit overshoots: it is no count
    note = _note(verdict, q, found)
    if q.selects and "could be combined" in note:  # keys choose what a list holds, and no rank sees that
        return replace(verdict, ranks=found.ranks)
    return replace(verdict, least_state=found.state, ranks=found.ranks, least_note=note)


def _contradicted(verdict: Verdict, found: Finding) -> Verdict:
    """A plan whose state is smaller than the rank cannot be right: nothing of it is kept."""
    sizes = ", ".join(f"{a}={n}" for a, n in found.axes)
    why = (
        f"the plan found keeps {found.held} values at {sizes}, but its answers depend on {found.most} numbers of a "
        f"prefix of {found.ranks[-1][0]} steps"
    )
    withdrawn = Verdict(verdict.axis, "unproved", verdict.passes, verdict.direction, refusal=why)
    return replace(withdrawn, trials=verdict.trials, ranks=found.ranks)


def _note(verdict: Verdict, q: Question, found: Finding) -> str:
    """The least state in the names of sizes, and what the plan keeps beyond it."""
    kept, least = verdict.state_values, found.state
    if kept is None or least is None or kept == 0:
        return ""
    said = _values(least)
    if not found.formula.isdigit() and "/" not in found.formula:
        said = f"{found.formula} = {said}"
    if verdict.exact == "casts":
        said = f"{said} of the function without its casts"
    whole = sum(prod(q.extent(a, q.values) for a in e.axes if a not in q.shared) for e in q.state if _whole(e.dtype))
    beside = f", and {_values(whole)} of whole numbers" if whole else ""
    kept -= whole
    if kept <= least:
        return f"{said}, which this plan keeps{beside}"
    safety = _for_safety(q)
    surplus = kept - least
    shared = set(q.shared)
    spare = sum(prod(q.extent(a, q.values) for a in q.plan.box(n).axes if a not in shared) for n in safety)
    if safety and spare <= surplus:
        names = " and ".join(safety)
        rest = surplus - spare
        more = f"; {rest:,} more could be combined" if rest else ""
        return (
            f"{said}; this plan keeps {kept:,}{beside}: {names} {'is' if len(safety) == 1 else 'are'} for safety{more}"
        )
    return f"{said}; this plan keeps {kept:,}{beside}: {surplus:,} more could be combined"


def _whole(dtype: str) -> bool:
    """Whether a part of the state holds positions: the rank of what numbers depend on does not see them."""
    return DTYPES[dtype].kind == "int"


def _for_safety(q: Question) -> tuple[str, ...]:
    """Extrema that serve as references alone: accumulators are rescaled by their change, no output needs them."""
    plan = q.plan
    referred = {source(r.array) for b in plan.state if b.rescale for r in reads(plan.box(b.rescale).body)}
    names = {b.name for b in plan.state}
    found = [b.name for b in plan.carried if b.reduction in ("max", "min") and b.name in referred & names]
    return tuple(n for n in found if n not in q.opened.outputs)


def _refused(verdict: Verdict, q: Question, found: Finding) -> Verdict:
    if found.rises > 1 and (verdict.verdict == "unbounded" or grows(q)):
        return _unbounded(verdict, q, found)
    if verdict.verdict == "unbounded":
        why = f"{verdict.refusal or 'no plan with a bounded state was found'}; {_said(found)}"
        return replace(verdict, verdict="unproved", refusal=why, ranks=found.ranks)
    witness = _witness(q, found)
    if found.trend == "flat" and witness is None and not q.selects:
        return _may_exist(verdict, found)
    return replace(verdict, ranks=found.ranks, witness=witness)


def _may_exist(verdict: Verdict, found: Finding) -> Verdict:
    """A refusal beside a flat rank: some state that was not found may serve one pass."""
    sizes = ", ".join(f"{a}={n}" for a, n in found.axes)
    warning = f"a smooth state of {_values(found.most)} at {sizes} may serve one pass: the rank does not grow"
    return replace(verdict, ranks=found.ranks, least=None, warnings=(*verdict.warnings, warning))


def _unbounded(verdict: Verdict, q: Question, found: Finding) -> Verdict:
    """No plan has a bounded state, and the rank grows: the plan found is no plan of constant state."""
    witness: dict[str, Any] = {
        "kind": "growing-rank",
        "axis": q.axis,
        "sizes": dict(found.axes),
        "prefix": [n for n, _ in found.ranks],
        "rank": [r for _, r in found.ranks],
    }
    why = verdict.refusal or f"the state that was found is as long as {q.axis}"
    return replace(
        verdict,
        verdict="unbounded",
        refusal=f"{why}; {_said(found)}",
        least=None,
        least_state=None,
        witness=witness,
        ranks=found.ranks,
    )


def _said(found: Finding) -> str:
    ranks = ", ".join(str(r) for _, r in found.ranks)
    steps = ", ".join(str(n) for n, _ in found.ranks)
    if found.trend == "none":
        return found.why
    return f"answers depend on {ranks} numbers of prefixes of {steps} steps"


def _values(n: int) -> str:
    return f"{n:,} value{'' if n == 1 else 's'}"


def _witness(q: Question, found: Finding) -> dict[str, Any] | None:
    """A late output where there is one, else a pair of prefixes; None if the search finds neither.

    Where the rank is flat no pair is sought: some state may well serve. A rank does not see positions
    that a list chooses, so that there it says nothing.
    """
    for bench in short_benches(q):
        late = find_late(bench, max(1, bench.length // 2))
        if late is not None:
            return late
        pair = None if found.trend == "flat" and not q.selects else _pair(bench, found.trend != "none")
        if pair is not None:
            return pair
    return None


def _pair(bench: Bench, smooth: bool) -> dict[str, Any] | None:
    pair = find_pair(bench, smooth)
    return None if pair is None else record(bench, pair)
