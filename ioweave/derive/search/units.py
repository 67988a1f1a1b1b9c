"""The units that partitions are made of, and what reads of them touch at least."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ioweave.derive.counting.gathers import least_over_all
from ioweave.derive.counting.lengths import length
from ioweave.derive.counting.masks import predicates
from ioweave.derive.program.reach import whole_reaches
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.spans import bare, of_form
from ioweave.derive.search.partition import Unit
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.lists import leaders
from ioweave.diagrams.opening import can_open
from ioweave.diagrams.scans import members

PARTED = 9  # composites are parted in diagrams of at most so many units


MOST = 4  # units in one region, in diagrams of more units than that


def units_of(diagram: Diagram, opened: Opened) -> tuple[tuple[Unit, ...], int | None, str]:
    """The units, how many a region may have (None: any), and a sentence on the space they span.

    A plain line is one unit: what follows a reduction elementwise costs nothing where the
    reduction is, so parting them moves no less. A composite's parts are units each, while
    there are few.
    """
    parted: list[Unit] = []
    whole: list[Unit] = []
    for line in diagram.lines:
        boxes = tuple(b for b in opened.boxes if b.line == line.name)
        whole.append(Unit(boxes, line.name))
        parted.extend([Unit(part, line.name) for part in _parts(boxes)] if can_open(line) else [Unit(boxes, line.name)])
    if len(parted) <= PARTED:
        return tuple(parted), None, "every partition into regions of lines and of parts of composites"
    if len(whole) <= MOST + 2:
        return tuple(whole), None, "every partition into regions of lines, composites whole"
    return tuple(whole), MOST, f"every partition into regions of up to {MOST} lines, composites whole"


def _parts(boxes: Sequence[Box]) -> list[tuple[Box, ...]]:
    """The parts of a line, each by itself but for positions, made with their keys, and what goes along with a scan."""
    made = {b.name: b for b in boxes}
    along = {scan: names[:-1] for scan, names in members(boxes).items()}
    with_it = {b.name: (*leaders(b), *along.get(b.name, ())) for b in boxes}
    beside = {n for names in with_it.values() for n in names}
    return [(*(made[n] for n in with_it[b.name]), b) for b in boxes if b.name not in beside]


def least_touched(opened: Opened, setting: Setting) -> Callable[[str, Sequence[Read]], int]:
    """The least values that some reads of an array touch: one whole read, or nothing under masks."""
    masked = any(predicates(b) for b in opened.boxes)

    def touched(array: str, reads: Sequence[Read]) -> int:
        if masked:
            return 0
        most = 0
        for r in reads:
            seen: set[str] = set()
            n = 1
            for s in whole_reaches(r, setting):
                seen |= {a for a, _ in s.inner}
                n *= least_over_all(s, setting.sizes)
            for form, size in zip(r.index, setting.shapes[array], strict=True):
                if form.lookups or seen & set(form.names):
                    continue
                seen |= set(form.names)
                inner = {a: bare(a, setting.sizes[a]) for a in form.names}
                span = of_form(form, inner, size, setting.sizes)
                n *= int(length(span, {a: (0, setting.sizes[a]) for a in form.names}))
            most = max(most, n)
        return most

    return touched
