"""Verdicts: of an axis of the whole diagram, and of each axis that a schedule streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ioweave.derive.changes.nearest import nearest_changes
from ioweave.derive.counting.levelled import stored_arrays
from ioweave.derive.evidence import Question, weigh
from ioweave.derive.execution.trial import try_plan
from ioweave.derive.reporting.approximated import approximate_verdict
from ioweave.derive.reporting.chunks import with_chunks
from ioweave.derive.reporting.directed import both_ways
from ioweave.derive.reporting.explained import explain_state
from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import Target
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams.boxes import Box, Opened, base_name
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.lists import leaders
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.report import Report
from ioweave.hierarchy.verdicts import Trial, Verdict


def stream_report(
    subject: Subject,
    axis: str,
    target: Target,
    explain: bool = False,
    lazy: float = 0.0,
    approximate: float | None = None,
) -> Report:
    """The verdict for streaming an axis through the whole diagram as one region.

    With ``lazy`` above 0 the references of exponents move in multiples of it. ``approximate`` is the
    error that results may have where no exact plan has one pass (`approximated`).

    A name that covers several axes of one size (``d`` and ``d'``) has a verdict for each.
    Raises WeaveError for an axis that no line has.
    """
    opened = open_diagram(subject.diagram)
    axes = tuple(dict.fromkeys(a for b in opened.boxes for a in b.all_axes))
    chosen = [a for a in axes if a == axis] if "'" in axis else [a for a in axes if base_name(a) == axis]
    if not chosen:
        raise WeaveError(f"no line has an axis `{axis}`{nearest(axis, axes)}; the axes are {listed(axes)}")
    values = subject.values
    definitions = subject.diagram.definitions
    found = tuple(_tried(opened, a, values, target.accumulate, definitions=definitions, lazy=lazy) for a in chosen)
    found = tuple(with_chunks(v, subject.diagram) for v in found)
    found = tuple(v if v.streams else _with_changes(v, subject, target.accumulate) for v in found)
    if approximate is not None:
        found = tuple(_within(v, opened, values, target.accumulate, approximate, definitions) for v in found)
    return Report(
        algorithm=subject.name,
        axes=subject.axes,
        levels=target.levels,
        accumulate=target.accumulate,
        streaming=found,
        warnings=subject.warnings,
        title=subject.title,
        explain=tuple(row for v in found for row in explain_state(v, subject.diagram, values)) if explain else None,
        values=values,
    )


def streamed_verdicts(levelled: Levelled, values: Mapping[str, int | float], accumulate: str) -> tuple[Verdict, ...]:
    """The verdict for every axis that a region streams, each for the boxes of that region alone."""
    opened = open_diagram(levelled.diagram)
    definitions = levelled.diagram.definitions
    found: dict[Verdict, Verdict] = {}  # by what was proved, so that nothing is tried twice
    for region in levelled.regions:
        if region.stream:
            part = _part(opened, region.lines())
            before = _before(opened, part)
            for axis in dict.fromkeys(a for a, _ in region.stream):
                proved, _ = _proved(part, axis, values, accumulate, definitions=definitions)
                if proved not in found:
                    found[proved] = _tried(part, axis, values, accumulate, BRIEF, definitions, before)
    return tuple(found.values())


def _with_changes(verdict: Verdict, subject: Subject, accumulate: str) -> Verdict:
    """The verdict with the edits of the diagram that were proved to stream."""
    found = nearest_changes(subject.diagram, verdict, subject.values, accumulate)
    return replace(verdict, changes=found, nearest=found[0].edit) if found else verdict


def _within(
    exact: Verdict,
    opened: Opened,
    values: Mapping[str, int | float],
    accumulate: str,
    error: float,
    definitions: Sequence[Definition],
) -> Verdict:
    """The verdict where an error is allowed: the exact one, with a note, where it needs none or none serves."""
    if exact.streams:
        note = f"nothing is approximated: the plan for {exact.axis} is exact"
    else:
        found = approximate_verdict(opened, exact.axis, values, accumulate, error, definitions)
        if isinstance(found, Verdict):
            return found
        note = f"no plan within {error:g}: {found}"
    return replace(exact, warnings=(*exact.warnings, note))


@dataclass(frozen=True, slots=True)
class Effort:
    """How often a plan is executed, and at sizes up to what; whether evidence is sought beside it."""

    draws: int
    largest: int
    weighs: bool


FULL, BRIEF = Effort(6, 9, True), Effort(2, 4, False)


def _proved(
    opened: Opened,
    axis: str,
    values: Mapping[str, int | float],
    accumulate: str,
    lazy: float = 0.0,
    definitions: Sequence[Definition] = (),
) -> tuple[Verdict, Plan]:
    """The verdict on an axis and the plan that it rests on."""
    plan = plan_axis(opened, axis, values, accumulate, lazy=lazy)
    return prove(opened, axis, values, accumulate, lazy, definitions), plan


def _tried(
    opened: Opened,
    axis: str,
    values: Mapping[str, int | float],
    accumulate: str,
    effort: Effort = FULL,
    definitions: Sequence[Definition] = (),
    before: Sequence[Box] = (),
    lazy: float = 0.0,
) -> Verdict:
    """The verdict on an axis with the trials that its plan has passed; `unproved` where it fails one.

    An effort that ``weighs`` sets numbers beside it: the least state, and witnesses of a refusal.
    """
    verdict, plan = _proved(opened, axis, values, accumulate, lazy, definitions)
    question = Question(opened, plan, verdict.state, axis, values, definitions, before, verdict.direction == "backward")
    if not verdict.passes:  # there is no plan to execute
        return weigh(verdict, question) if effort.weighs else verdict
    trials = try_plan(
        opened,
        plan,
        values,
        draws=effort.draws,
        definitions=definitions,
        before=before,
        largest=effort.largest,
    )
    if not trials:
        unseen = "the plan has not been executed: no small sizes are valid for this diagram"
        return replace(verdict, warnings=(*verdict.warnings, unseen))
    failed = next((t for t in trials if not t.passed), None)
    if failed is not None:
        return _withdrawn(verdict, failed, trials)
    tried = replace(verdict, trials=trials)
    tried = both_ways(tried, opened, values, accumulate, definitions, before, effort.draws // 2, effort.largest)
    return weigh(tried, question) if effort.weighs else tried


def _withdrawn(verdict: Verdict, failed: Trial, trials: tuple[Trial, ...]) -> Verdict:
    """The verdict on a plan that does not compute what the diagram says: nothing of the plan is kept."""
    sizes = ", ".join(f"{a}={n}" for a, n in failed.axes)
    steps = ", ".join(str(n) for n in failed.steps)
    parts = f", merged from {failed.parts} parts" if failed.parts > 1 else ""
    why = (
        f"the plan found fails its execution at {sizes} in steps of {steps}{parts} on inputs that are "
        f"{failed.data} (seed {failed.seed}): its error is {failed.error:.1e}"
    )
    return Verdict(verdict.axis, "unproved", verdict.passes, verdict.direction, refusal=why, trials=trials)


def _part(opened: Opened, lines: tuple[str, ...]) -> Opened:
    """The boxes of some lines as a diagram by themselves: its outputs are what leaves them."""
    boxes = tuple(b for b in opened.boxes if b.line in lines)
    stored = stored_arrays(opened, boxes)
    return replace(opened, boxes=boxes, outputs=tuple(b.name for b in boxes if b.name in stored))


def _before(opened: Opened, part: Opened) -> tuple[Box, ...]:
    """The boxes outside a part that its boxes need, in order."""
    own = {b.name for b in part.boxes}
    needed = {r.array for b in part.boxes for r in b.reads()}
    found: list[Box] = []
    for b in reversed(opened.boxes):
        if b.name in needed and b.name not in own:
            found.append(b)
            needed |= {*(r.array for r in b.reads()), *leaders(b)}
    return tuple(reversed(found))
