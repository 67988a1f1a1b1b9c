"""Verdicts: of an axis of the whole diagram, and of each axis that a schedule streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ioweave.derive.counting.levelled import stored_arrays
from ioweave.derive.reporting.explained import explain_state
from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import Target
from ioweave.derive.streaming.verdict import prove
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.report import Report
from ioweave.hierarchy.verdicts import Verdict


def stream_report(subject: Subject, axis: str, target: Target, explain: bool = False) -> Report:
    """The verdict for streaming an axis through the whole diagram as one region.

    A name that covers several axes of one size (``d`` and ``d'``) has a verdict for each.
    Raises WeaveError for an axis that no line has.
    """
    opened = open_diagram(subject.diagram)
    axes = tuple(dict.fromkeys(a for b in opened.boxes for a in b.all_axes))
    chosen = [a for a in axes if a == axis] if "'" in axis else [a for a in axes if base_name(a) == axis]
    if not chosen:
        raise WeaveError(f"no line has an axis `{axis}`{nearest(axis, axes)}; the axes are {listed(axes)}")
    values = subject.values
    found = tuple(prove(opened, a, values, target.accumulate) for a in chosen)
    return Report(
        algorithm=subject.name,
        axes=subject.axes,
        levels=target.levels,
        accumulate=target.accumulate,
        streaming=found,
        warnings=subject.warnings,
        title=subject.title,
        explain=tuple(row for v in found for row in explain_state(v, subject.diagram, values)) if explain else None,
        values=values,
    )


def streamed_verdicts(levelled: Levelled, values: Mapping[str, int | float], accumulate: str) -> tuple[Verdict, ...]:
    """The verdict for every axis that a region streams, each for the boxes of that region alone."""
    opened = open_diagram(levelled.diagram)
    found: list[Verdict] = []
    for region in levelled.regions:
        if region.stream:
            part = _part(opened, region.lines())
            for axis in dict.fromkeys(a for a, _ in region.stream):
                verdict = prove(part, axis, values, accumulate)
                if verdict not in found:
                    found.append(verdict)
    return tuple(found)


def _part(opened: Opened, lines: tuple[str, ...]) -> Opened:
    """The boxes of some lines as a diagram by themselves: its outputs are what leaves them."""
    boxes = tuple(b for b in opened.boxes if b.line in lines)
    stored = stored_arrays(opened, boxes)
    return replace(opened, boxes=boxes, outputs=tuple(b.name for b in boxes if b.name in stored))
