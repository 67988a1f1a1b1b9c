"""The levelled diagram: a diagram whose lines are placed in regions of memory levels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ioweave.diagrams import display
from ioweave.diagrams.diagram import Diagram


@dataclass(frozen=True, slots=True)
class Region:
    """Boxes that run together at one level; their intermediates never leave it.

    ``members`` are names of lines, or regions at lower levels, in order. ``group`` maps axis
    components to tile sizes; ``stream`` lists the loops, outermost first, with their steps.
    ``hold`` gives arrays loaded at a stated depth, ``place`` arrays kept at a level above.
    ``implicit`` marks a line written outside any block (counting.md 13).
    """

    name: str
    level: str
    members: tuple[str | Region, ...]
    group: tuple[tuple[str, int], ...] = ()
    stream: tuple[tuple[str, int], ...] = ()
    hold: tuple[tuple[str, int], ...] = ()
    place: tuple[tuple[str, str], ...] = ()
    buffers: int = 1
    implicit: bool = False

    def lines(self) -> tuple[str, ...]:
        """Every line of the region, those of inner regions included."""
        out: list[str] = []
        for m in self.members:
            out.extend([m] if isinstance(m, str) else m.lines())
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Levelled:
    """A diagram and the regions that cover its lines in order; ``levels`` from the highest down."""

    diagram: Diagram
    regions: tuple[Region, ...]
    levels: tuple[str, ...] = field(default=("gmem", "smem"))

    _repr_svg_ = display.svg
    _repr_html_ = display.html

    def with_region(self, index: int, region: Region) -> Levelled:
        """The same levelled diagram with one region replaced."""
        regions = list(self.regions)
        regions[index] = region
        return replace(self, regions=tuple(regions))
