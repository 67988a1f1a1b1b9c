"""What a search found: the baseline, the chosen schedule, their counts, and how the one became the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from ioweave.derive.counting.levelled import Counts
from ioweave.diagrams import display
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.steps import Step


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    ``before`` has every line in a region of its own with its own best tiles, ``after`` is the
    schedule chosen. ``steps`` lead from the unfused diagram to it. ``schedules`` counts what was
    looked at; ``exact`` says whether ``after`` is the best of the ``space``. ``interrupted`` marks
    the best found until a deadline or a key stopped the search, after ``seconds``. Where ``after``
    runs a contraction more often than ``before``, ``rivals`` holds the best that does not.
    """

    before: Levelled
    after: Levelled
    before_counts: Counts = field(repr=False)
    after_counts: Counts = field(repr=False)
    steps: tuple[Step, ...]
    schedules: int
    exact: bool
    space: str
    seconds: float
    interrupted: bool = False
    rivals: tuple[tuple[Levelled, Counts], ...] = field(default=(), repr=False)

    _repr_svg_ = display.svg
    _repr_html_ = display.html
