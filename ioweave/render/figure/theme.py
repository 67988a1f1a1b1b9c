"""Colours, weights and sizes: one frozen record, so that another theme is another record.

Lengths are CSS pixels (0.75 pt); ``text_small``, the least size used, is then 6 pt.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Theme:
    """What a figure looks like. The colours keep their order of lightness in greyscale."""

    ink: str = "#1a1a1a"
    paper: str = "#ffffff"
    faint: str = "#5f5f5f"
    rule: str = "#c8c8c8"
    plate: str = "#fdeee4"
    group: str = "#0b5c8c"
    stream: str = "#6a2c7d"
    accent: str = "#b93a08"
    box: str = "#ffffff"
    levels: tuple[tuple[str, float], ...] = (("#1a1a1a", 1.07), ("#c2410c", 1.53), ("#0b5c8c", 2.0))

    text_title: float = 13.0
    text_array: float = 15.0
    text_axis: float = 11.0
    text_block: float = 9.5
    text_cell: float = 10.0
    text_small: float = 8.0

    pitch: float = 20.0  # between the axes of one array
    array_gap: float = 32.0  # between arrays
    plate_gap: float = 56.0  # between a wire that passes over a plate and the plate's wires
    under_gap: float = 32.0  # between a plate's wires and a wire that passes under it
    plate_top: float = 24.0
    plate_bottom: float = 9.0
    port: float = 5.6
    wrap: float = 1040.0  # a figure wider than this is set in rows

    def level(self, depth: int) -> tuple[str, float]:
        """Colour and weight of the wires ``depth`` levels below the highest."""
        return self.levels[min(depth, len(self.levels) - 1)]


PAPER = Theme()
