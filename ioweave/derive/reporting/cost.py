"""Cost: a levelled diagram as written, counted."""

from __future__ import annotations

from ioweave.derive.counting.levelled import count
from ioweave.derive.reporting.explained import explain_counts
from ioweave.derive.reporting.sides import make_side, over_capacity
from ioweave.derive.reporting.subject import Subject, as_written
from ioweave.derive.reporting.target import Target
from ioweave.diagrams.errors import WeaveError
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import print_levelled
from ioweave.hierarchy.report import Report


def check_levels(levelled: Levelled, target: Target) -> None:
    """Raises WeaveError where blocks name another level than the two that are counted."""
    if levelled.levels != target.levels:
        further = ", ".join(n for n in levelled.levels if n not in target.levels)
        named = f"{levelled.levels[0]},{levelled.levels[-1]}"
        raise WeaveError(
            f"blocks are at {further} and the levels counted are {','.join(target.levels)}; "
            f"write one level in all blocks, and count it with --levels {named}"
        )


def cost_report(subject: Subject, target: Target, explain: bool = False) -> Report:
    """The counts of the levels as written, under ``after``. Raises Refused where it cannot run as written."""
    levelled = as_written(subject, target.levels)
    check_levels(levelled, target)
    values = subject.values
    counts = count(levelled, values, target.accumulate)
    return Report(
        algorithm=subject.name,
        axes=subject.axes,
        machine=target.machine.name,
        levels=target.levels,
        capacity=target.capacity.value,
        accumulate=target.accumulate,
        after=make_side(levelled, counts, values, target),
        notation=print_levelled(levelled),
        warnings=(*subject.warnings, *over_capacity(counts, target)),
        title=subject.title,
        explain=explain_counts("after", counts, levelled.diagram) if explain else None,
        values=values,
    )
