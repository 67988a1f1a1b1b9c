"""Budget: how much algebra one plan may cost before the answer is `unproved`.

The work is counted in terms of normal forms multiplied or added, so that equal questions get equal
answers on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ioweave.derive.streaming.plan import Unrepairable

TERMS = 60_000  # a few seconds; an ordinary plan takes some hundreds
MOMENT_TERMS = 8_000  # of them, what recentring second moments may take

_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


class OverBudget(Unrepairable):
    """The work allowed for one plan is spent."""

    def __init__(self) -> None:
        super().__init__(f"unproved: its normal form costs more than the {TERMS:,} terms that a plan may cost")


@contextmanager
def budget(terms: int | None = None) -> Iterator[None]:
    """Within it, `spend` raises `OverBudget` once ``terms`` (`TERMS` unless given) are spent, and ever after."""
    token = _left.set([TERMS if terms is None else terms])
    try:
        yield
    finally:
        _left.reset(token)


def spend(terms: int) -> None:
    """Count work against the budget, where there is one. Raises `OverBudget`."""
    left = _left.get()
    if left is not None:
        left[0] -= terms
        if left[0] < 0:
            raise OverBudget


def spent() -> bool:
    """Whether a budget is in force and nothing is left of it."""
    left = _left.get()
    return left is not None and left[0] < 0
