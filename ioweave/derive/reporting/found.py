"""Derive: the search run for a subject, and its report."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import Target, check_axes
from ioweave.derive.search.derive import PATIENCE, derive
from ioweave.derive.search.found import Found
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.opening import open_diagram

LARGEST_WORK = 2**57  # leaves room in 64 bits for the arrays of a region and an axis that some of them lack
Watch = Callable[[str], None]


def silent(_: str) -> None:
    """Tell nobody."""


def run_search(subject: Subject, target: Target, watch: Watch = silent, partial: bool = False) -> Found:
    """The cheapest schedule of a subject; ``watch`` is told what is looked at.

    Raises DoesNotFit where none fits. A search that a key stops gives its best so far where
    ``partial`` is asked for, and else raises KeyboardInterrupt.
    Raises WeaveError for sizes whose counts would not fit in the search's 64-bit integers.
    """
    check_range(subject)
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


def check_range(subject: Subject) -> None:
    """Raises WeaveError where a line has so many elements to work through that counts could wrap around."""
    sizes = {a: int(subject.values[base_name(a)]) for b in open_diagram(subject.diagram).boxes for a in b.all_axes}
    for b in open_diagram(subject.diagram).boxes:
        work = prod(sizes[a] for a in b.all_axes)
        if work >= LARGEST_WORK:
            raise WeaveError(
                f"{b.name} has {work:.3g} elements to work through, and the search counts exactly up to "
                f"{LARGEST_WORK:.3g} a line; give smaller sizes for {', '.join(b.all_axes)}"
            )
