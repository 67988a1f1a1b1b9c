"""The start of every derivation: each line, as written, in a region by itself."""

from __future__ import annotations

from ioweave.diagrams.diagram import Diagram
from ioweave.hierarchy.levelled import Levelled, Region


def unfused(diagram: Diagram, levels: tuple[str, ...] = ("gmem", "smem")) -> Levelled:
    """Every line a region at the lowest level, without tiles (counting.md 13)."""
    regions = tuple(Region(n.name, levels[-1], (n.name,), implicit=True) for n in diagram.lines)
    return Levelled(diagram, regions, levels)
