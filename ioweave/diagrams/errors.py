"""Errors that teach: one line with the place, what is wrong and what would be right."""

from __future__ import annotations

from ioweave.diagrams.diagram import Position


class WeaveError(Exception):
    """Bad input. ``str(error)`` is one line: ``file:line:column: what is wrong; what would be right``."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        self.message = message
        self.position = position
        super().__init__(f"{position}: {message}" if position else message)


class DoesNotFit(Exception):
    """No schedule fits the capacity; ``least`` is the least memory in bytes that would do."""

    def __init__(self, message: str, least: int) -> None:
        self.least = least
        super().__init__(message)


class Refused(Exception):
    """A rewrite, plan or count that does not hold, with its reason; not bad input by itself."""
