"""What a command answers, and the statuses it ends with."""

from __future__ import annotations

from dataclasses import dataclass

DONE, FAILED, BAD_INPUT, BROKEN, INTERRUPTED, PIPE = 0, 1, 2, 70, 130, 141


@dataclass(frozen=True, slots=True)
class Answer:
    """The text for standard output, and the exit status."""

    text: str = ""
    status: int = 0
