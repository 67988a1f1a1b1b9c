"""Derive: the report of a search, before and after."""

from __future__ import annotations

from ioweave.derive.counting.levelled import count
from ioweave.derive.reporting.bounds import bound_row, napkin_row, searched
from ioweave.derive.reporting.cost import check_levels
from ioweave.derive.reporting.explained import explain_counts
from ioweave.derive.reporting.found import Watch, run_search, silent
from ioweave.derive.reporting.sides import make_side
from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import Target
from ioweave.derive.reporting.verdicts import streamed_verdicts
from ioweave.derive.search.found import Found
from ioweave.hierarchy.notation import print_levelled
from ioweave.hierarchy.report import ExplainRow, Report


def derive_report(subject: Subject, target: Target, explain: bool = False, watch: Watch = silent) -> Report:
    """The cheapest schedule with everything that is known of it. Raises DoesNotFit where none fits."""
    return found_report(run_search(subject, target, watch, partial=True), subject, target, explain)


def left_out(subject: Subject) -> tuple[str, ...]:
    """A sentence where levels were written, which a search does without."""
    if subject.levelled is None:
        return ()
    return ("the levels as written are left out; `ioweave cost` counts them",)


def drawn_report(subject: Subject, target: Target) -> Report:
    """What a figure needs: the sides alone; levels as written, where there are any, are ``after``."""
    found = run_search(subject, target)
    values = subject.values
    after, counts = found.after, found.after_counts
    if subject.levelled is not None:
        check_levels(subject.levelled, target)
        after, counts = subject.levelled, count(subject.levelled, values, target.accumulate)
    return Report(
        algorithm=subject.name,
        axes=subject.axes,
        machine=target.machine.name,
        levels=target.levels,
        capacity=target.capacity.value,
        objective=None if subject.levelled is not None else target.objective,
        accumulate=target.accumulate,
        before=make_side(found.before, found.before_counts, values, target),
        after=make_side(after, counts, values, target),
        title=subject.title,
        values=values,
    )


def found_report(found: Found, subject: Subject, target: Target, explain: bool = False) -> Report:
    """The report of what a search found."""
    values = subject.values
    notes = [*subject.warnings, *left_out(subject)]
    if found.interrupted:
        notes.append("the search was interrupted: this is the best that was found until then")
    return Report(
        algorithm=subject.name,
        axes=subject.axes,
        machine=target.machine.name,
        levels=target.levels,
        capacity=target.capacity.value,
        objective=target.objective,
        accumulate=target.accumulate,
        before=make_side(found.before, found.before_counts, values, target),
        after=make_side(found.after, found.after_counts, values, target),
        streaming=streamed_verdicts(found.after, values, target.accumulate),
        derivation=found.steps,
        napkin=napkin_row(found.after_counts, subject, target),
        bound=bound_row(subject, target, found.after_counts.transfers.values),
        rivals=tuple(make_side(levelled, counts, values, target) for levelled, counts in found.rivals),
        searched=searched(found),
        notation=print_levelled(found.after),
        warnings=tuple(notes),
        explain=_explained(found) if explain else None,
        title=subject.title,
        values=values,
    )


def _explained(found: Found) -> tuple[ExplainRow, ...]:
    return (
        *explain_counts("before", found.before_counts, found.before.diagram),
        *explain_counts("after", found.after_counts, found.after.diagram),
    )
