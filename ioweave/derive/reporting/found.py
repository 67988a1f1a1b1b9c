"""Derive: the search run for a subject, and its report."""

from __future__ import annotations

from collections.abc import Callable

from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import Target, check_axes
from ioweave.derive.search.derive import PATIENCE, derive
from ioweave.derive.search.found import Found

Watch = Callable[[str], None]


def silent(_: str) -> None:
    """Tell nobody."""


def run_search(subject: Subject, target: Target, watch: Watch = silent, partial: bool = False) -> Found:
    """The cheapest schedule of a subject; ``watch`` is told what is looked at.

    Raises DoesNotFit where none fits. A search that a key stops gives its best so far where
    ``partial`` is asked for, and else raises KeyboardInterrupt.
    """
    check_axes(target.align, [a for a, _ in subject.axes], "tiles are to be aligned along")
    found = derive(
        subject.diagram,
        subject.values,
        target.machine,
        capacity=target.capacity.value,
        accumulate=target.accumulate,
        align=target.align,
        levels=target.levels,
        watch=watch,
    )
    if found.interrupted and not partial and found.seconds < PATIENCE:
        raise KeyboardInterrupt
    return found
