"""What a command answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """The text for standard output, and the exit status."""

    text: str = ""
    status: int = 0
