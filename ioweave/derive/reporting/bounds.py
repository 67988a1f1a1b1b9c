"""The lower bound and the napkin formula, as the report keeps them."""

from __future__ import annotations

from ioweave.derive.bounds.adapt import napkin_of
from ioweave.derive.bounds.lower import Bound, bound
from ioweave.derive.counting.levelled import Counts
from ioweave.derive.reporting.explained import explain_bound
from ioweave.derive.reporting.found import run_search
from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import Target
from ioweave.derive.search.found import Found
from ioweave.diagrams.errors import DoesNotFit
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.report import BoundRow, NapkinRow, Report, Searched


def bound_row(subject: Subject, target: Target, after: int | None = None) -> BoundRow:
    """What no schedule can beat; ``after`` (values moved by a schedule) adds its ratio."""
    found = bound(open_diagram(subject.diagram), subject.values, target.capacity.value)
    return _row(found, after)


def napkin_row(counts: Counts, subject: Subject, target: Target) -> NapkinRow | None:
    """The closed form for a schedule's shapes, or None where there is none."""
    found = napkin_of(counts, subject.values, target.capacity.value, level=target.levels[-1])
    if found is None:
        return None
    return NapkinRow(
        formula=found.formula,
        pretty=found.pretty,
        latex=found.latex,
        exponents=tuple(found.exponents.items()),
        holds_where=found.holds_where,
        other_regimes=tuple(found.other_regimes),
        worth_of_a_byte=tuple(found.worth_of_a_byte.items()),
        values=found.values,
        memory_unit=found.memory_unit,
        without_mask=found.without_mask,
    )


def bound_report(subject: Subject, target: Target, explain: bool = False) -> Report:
    """The lower bound, how near the best schedule found comes to it, and the napkin formula."""
    found: Found | None = None
    notes = subject.warnings
    try:
        found = run_search(subject, target)
    except DoesNotFit as error:
        notes = (*notes, str(error))
    return Report(
        algorithm=subject.name,
        axes=subject.axes,
        machine=target.machine.name,
        levels=target.levels,
        capacity=target.capacity.value,
        accumulate=target.accumulate,
        napkin=napkin_row(found.after_counts, subject, target) if found else None,
        bound=bound_row(subject, target, found.after_counts.transfers.values if found else None),
        searched=searched(found) if found else None,
        warnings=notes,
        explain=explain_bound(subject.diagram, subject.values) if explain else None,
        title=subject.title,
        values=subject.values,
    )


def searched(found: Found) -> Searched:
    """What was looked at."""
    return Searched(found.exact, found.space, found.schedules, found.seconds, found.interrupted)


def _row(found: Bound, after: int | None) -> BoundRow:
    record = found.to_json(after)
    return BoundRow(
        values=record["values"],
        because=found.because,
        assumes=found.assumes,
        candidates=tuple((c["values"], c["because"]) for c in record["candidates"]),
        ratio=record.get("ratio"),
    )
