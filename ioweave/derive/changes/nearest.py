"""The nearest changes: edits of a diagram that does not stream, each proved and tried, the nearest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from ioweave.derive.changes.expressions import capped, dropped, moved_roundings
from ioweave.derive.changes.shortlist import shortlisted
from ioweave.derive.changes.statistics import given, returned
from ioweave.derive.changes.view import Edit, View
from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming.approximate import Unapproximable, approximate
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation import parse
from ioweave.diagrams.notation.printer import footer, print_diagram, print_input, print_line
from ioweave.diagrams.opening import as_line, open_diagram
from ioweave.hierarchy.approximation import above
from ioweave.hierarchy.changes import Change
from ioweave.hierarchy.verdicts import Verdict

MOST = 6  # changes that are listed
_PER_KIND = 3  # edits of one kind that are tried
ERROR = 1e-6  # of polynomials
_DRAWS = 2
_NONE = 99  # passes of a diagram that has no plan
_LARGEST = 4


def nearest_changes(
    diagram: Diagram, verdict: Verdict, values: Mapping[str, int | float], accumulate: str
) -> tuple[Change, ...]:
    """The edits of a diagram whose axis does not stream that were proved to, the nearest first.

    An edit is listed if its text reads back, the prover gives its axis one pass, and the plan passes
    trials beside the edited diagram. Nothing is raised.
    """
    view = View(diagram, base_name(verdict.axis))
    found: list[tuple[int, Change]] = []
    seen: set[Diagram] = set()
    for kind in _kinds(view, verdict, values, accumulate):
        kept = 0
        for tried, edit in enumerate(kind):
            if tried >= 2 * _PER_KIND or kept >= _PER_KIND:
                break
            change = None if edit.diagram in seen else _proved(diagram, edit, values, accumulate)
            seen.add(edit.diagram)
            if change is not None:
                found.append((edit.rank, change))
                kept += 1
    found += [(1, c) for c in _polynomials(diagram, verdict, values, accumulate)]
    found += [(5, c) for c in _other_axes(diagram, verdict, values, accumulate)]
    found.sort(key=lambda pair: pair[0])
    return tuple(c for _, c in found[:MOST])


def _kinds(
    view: View, verdict: Verdict, values: Mapping[str, int | float], accumulate: str
) -> Iterator[Iterator[Edit]]:
    def passes(d: Diagram) -> int:
        with suppress(WeaveError):
            opened = open_diagram(d)
            return plan_axis(opened, _component(d, view.axis), _values(d, values), accumulate).passes
        return _NONE

    yield moved_roundings(view)
    yield given(view, passes)
    yield returned(view)
    yield dropped(view)
    yield shortlisted(view)
    if verdict.verdict == "unproved":
        yield capped(view)


def _values(d: Diagram, values: Mapping[str, int | float]) -> dict[str, int | float]:
    """The numbers of a changed diagram: those given for what it still has."""
    own = d.values()
    return {**own, **{n: v for n, v in values.items() if n in own}}


def _component(d: Diagram, axis: str) -> str:
    """An axis of a diagram by the name that its boxes have for it."""
    axes = dict.fromkeys(a for b in open_diagram(d).boxes for a in b.all_axes)
    return next((a for a in axes if base_name(a) == axis), axis)


def _proved(before: Diagram, edit: Edit, values: Mapping[str, int | float], accumulate: str) -> Change | None:
    try:
        if parse(print_diagram(edit.diagram)) != edit.diagram:
            return None
        verdict = _verdict(edit.diagram, edit.axis, _values(edit.diagram, values), accumulate)
    except WeaveError:
        return None
    if verdict is None:
        return None
    lines = _new_lines(before, edit.diagram)
    return Change(edit.text, lines, verdict.axis, verdict.verdict, verdict.state_values, edit.same, edit.note)


def _verdict(d: Diagram, axis: str, values: Mapping[str, int | float], accumulate: str) -> Verdict | None:
    """The verdict on a changed diagram, if it takes one pass and its plan passes every trial."""
    opened = open_diagram(d)
    name = _component(d, axis)
    plan = plan_axis(opened, name, values, accumulate)
    if plan.passes > 1:
        return None
    verdict = prove(opened, name, values, accumulate, definitions=d.definitions)
    if not verdict.verdict.startswith("one-pass"):
        return None
    trials = try_plan(opened, plan, values, draws=_DRAWS, definitions=d.definitions, largest=_LARGEST)
    return verdict if trials and all(t.passed for t in trials) else None


def _new_lines(before: Diagram, after: Diagram) -> tuple[str, ...]:
    """The inputs and lines of a changed diagram that the first one lacks, in the notation."""
    old = {*(print_input(i) for i in before.inputs), *(print_line(x) for x in before.lines)}
    new = [
        f"{d.name} = {d.value.value}"
        for d in after.definitions
        if d not in before.definitions and hasattr(d.value, "value")
    ]
    new += [t for t in (*(print_input(i) for i in after.inputs), *(print_line(x) for x in after.lines)) if t not in old]
    return (*new, *(t for t in footer(after) if t not in footer(before)))


def _polynomials(d: Diagram, verdict: Verdict, values: Mapping[str, int | float], accumulate: str) -> Iterator[Change]:
    """Polynomials in place of functions of a weight, for an error of `ERROR`."""
    opened = open_diagram(d)
    try:
        found = approximate(opened, verdict.axis, values, ERROR)
    except Unapproximable:
        return
    plan = plan_axis(found.opened, verdict.axis, values, accumulate)
    if plan.passes > 1:
        return
    made = prove(found.opened, verdict.axis, values, accumulate)
    trials = try_plan(found.opened, plan, values, draws=_DRAWS, definitions=d.definitions, largest=_LARGEST)
    if made.verdict != "one-pass" or not trials or not all(t.passed for t in trials):
        return
    shown = " and ".join(dict.fromkeys(f"one of degree {f.degree} for {s.shown}" for s, f in found.sites))
    before = set(found.exact.boxes)
    yield Change(
        edit=f"allow an error with --approximate {ERROR:g}, for polynomials: {shown}",
        lines=tuple(print_line(as_line(b)) for b in found.opened.boxes if b not in before),
        axis=verdict.axis,
        verdict=f"approximate({ERROR:g})",
        state_values=made.state_values,
        same_function=False,
        note=f"off by at most {above(found.error)} of the sums of absolute values, proved",
    )


def _other_axes(d: Diagram, verdict: Verdict, values: Mapping[str, int | float], accumulate: str) -> Iterator[Change]:
    """Axes of the diagram as it is that stream with a state."""
    axes = dict.fromkeys(a for b in open_diagram(d).boxes for a in b.all_axes)
    for a in axes:
        if a == verdict.axis:
            continue
        other = _verdict(d, a, values, accumulate)
        if other is None:
            continue
        whole = f"; {', '.join(other.whole)} whole in every instance" if other.whole else ""
        yield Change(
            edit=f"stream {a} in place of {verdict.axis}",
            lines=(),
            axis=a,
            verdict=other.verdict,
            state_values=other.state_values,
            same_function=True,
            note=f"the same results{whole}",
        )
