"""Changes of a diagram that would let an axis be walked in one pass, each proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """An edit: what it does, the changed lines in the notation, and the verdict of the changed diagram.

    ``axis`` is the axis that the changed diagram is streamed along. ``same_function`` says that the
    outputs are what they were; ``note`` what differs, or what it costs.
    """

    edit: str
    lines: tuple[str, ...]
    axis: str
    verdict: str
    state_values: int | None
    same_function: bool
    note: str

    def to_json(self) -> dict[str, Any]:
        """The change as a record."""
        return {
            "edit": self.edit,
            "lines": list(self.lines),
            "axis": self.axis,
            "verdict": self.verdict,
            "state_values": self.state_values,
            "same_function": self.same_function,
            "note": self.note,
        }
