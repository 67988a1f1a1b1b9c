"""Recurrences in a region: the boxes that walk an axis together, and the pass and direction in which they can.

Statement. A scan box is made element by element; the boxes of its line that read its value before (in
lockstep) are made with it, element by element too. In a loop over the scan's axis the carry is the value
before the present element and nothing else, so the scan runs in one pass once its operands can be read
inside the loop. It is never repaired: a scan that needs a finished reduction over the axis waits for it.
A loop has one direction: scans of the other one wait for a pass of their own, in which what was made
along the axis before is read back.
Source. Definition 1 of arXiv 2505.09326 with the carry as the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ioweave.derive.streaming.cascade import Passes, When
from ioweave.derive.streaming.plan import Stage
from ioweave.derive.streaming.signs import Signs
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.groups import Group, carried_axes, groups, past, prev

EITHER = "both"  # the direction of a pass without scans


def reaches(group: Group, read: Read, boxes: Mapping[str, Box]) -> bool:
    """Whether an element read of a scan is made by the time that the present element is, in the scan's direction."""
    box = boxes[read.array]
    form = read.index[box.axes.index(group.axis)]
    if dict(form.axes) != {group.axis: 1}:
        return group.axis not in form.names  # another axis reads the whole array, after the loop
    if form.sizes or form.lookups:
        return False
    return form.offset >= 0 if group.backward else form.offset <= 0


class Walk(Passes):
    """Passes of boxes with scans among them; ``directions`` has those of the passes, as far as scans fix them."""

    def __init__(self, boxes: Iterable[Box], axes: frozenset[str]) -> None:
        super().__init__(axes)
        own = tuple(boxes)
        self.directions: dict[int, str] = {}
        self.boxes = own
        self._boxes = {b.name: b for b in own}
        self._of = {b.name: g for g in groups(own) for b in g.members}
        self._runs: dict[str, int] = {}

    def earliest(self, box: Box) -> int:
        """The first pass in which a box can run: where its operands can be read, in the direction of its scan."""
        group = self._of.get(box.name)
        if group is None:
            return self._operands(box)
        name = group.scan.name
        if name not in self._runs:
            first = max(self._operands(b) for b in group.members)
            along = group.axis in self.axes
            while along and self.directions.get(first, group.direction) != group.direction:
                first += 1
            if along:
                self.directions[first] = group.direction
            self._runs[name] = first
        return self._runs[name]

    def _operands(self, box: Box) -> int:
        first = super().earliest(box)
        for r in box.reads():
            at, group = self.when.get(r.array), self._of.get(r.array)
            if at is None or group is None or group.axis not in self.axes or self._of.get(box.name) == group:
                continue
            if not reaches(group, r, self._boxes):
                first = max(first, at.run + 1)
        return first

    def place(self, box: Box, run: int | None = None) -> When:
        """Enter a box; ``run`` overrides the pass of a repaired reduction."""
        group = self._of.get(box.name)
        if group is None:
            return super().place(box, run)
        at = super().place(box, self.earliest(box))
        if not at.inside:  # all of a scan runs where its last operand is finished
            known = (self.when[r.array] for b in group.members for r in b.reads() if r.array in self.when)
            at = When(max((w.run for w in known), default=0), False)
            self.when[box.name] = at
        return at

    def walks(self, passes: int) -> tuple[str, ...]:
        """The direction of every pass."""
        return tuple(self.directions.get(run, EITHER) for run in range(1, passes + 1))


def passes_of(boxes: Iterable[Box], axes: frozenset[str]) -> Passes:
    """The passes of boxes relative to streamed axes, scans among them or not."""
    own = tuple(boxes)
    return Walk(own, axes) if any(b.scan for b in own) else Passes(axes)


def walks_of(boxes: Iterable[Box], axes: frozenset[str], stages: tuple[tuple[str, int, Stage], ...]) -> tuple[str, ...]:
    """The direction of every pass of a plan with these boxes and stages."""
    walk = Walk(boxes, axes)
    for b in walk.boxes:
        walk.place(b)
    return walk.walks(max((run for _, run, _ in stages), default=0))


def signs_of_scans(boxes: Iterable[Box], facts: Mapping[str, tuple[str, float]]) -> dict[str, tuple[str, float]]:
    """The fact of every scan whose values are proved to be >= 0, element after element from its start."""
    own = {b.name: b for b in boxes}
    if not any(b.scan for b in own.values()):
        return {}
    signs = Signs(own, facts)
    return {b.name: (">=", 0.0) for b in own.values() if b.scan is not None and signs.array(b.name)}


def blocked(boxes: Iterable[Box], axis: str) -> str | None:
    """Why an axis cannot be walked in steps although no scan runs along it; None where it can.

    A scan that mixes what it carries along the axis has to have it whole at every element that it makes.
    """
    for group in groups(boxes):
        if group.axis == axis:
            continue
        moving = {prev(group.scan.name): carried_axes(group.scan), past(group.scan.name): group.scan.axes}
        moving |= {b.name: b.axes for b in group.members[:-1]}
        carries = f"{group.scan.name} carries along {group.axis} what"
        for b in group.members:
            for r in b.reads():
                if r.array not in moving:
                    continue
                if axis in b.over and any(axis in f.names for f in r.index):
                    return f"{carries} {b.name} takes the {b.reduction} of over {axis}"
                for own, form in zip(moving[r.array], r.index, strict=True):
                    if own == axis and form.bare != axis:
                        return f"{carries} {b.name} reads at other places of {axis}"
    return None
