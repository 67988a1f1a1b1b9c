"""Recurrences: how a scan's line and its boxes name the elements that came before.

A line reads its own array. In boxes the element of the step before is ``name~prev``, without the
scan's axis, and elements at other places are ``name~past``, with it (`ioweave.diagrams.boxes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import PAST, PREV, Box, source
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, Size, substitute, transform, value_of


@dataclass(frozen=True, slots=True)
class Walk:
    """A scan: the array it makes, that array's axes, the axis walked, and what stands before the first step."""

    name: str
    axes: tuple[str, ...]
    axis: str
    backward: bool
    start: Expr

    @property
    def previous(self) -> str:
        """The name of the element of the step before."""
        return self.name + PREV

    @property
    def past(self) -> str:
        """The name of elements of any earlier step."""
        return self.name + PAST

    def is_own(self, r: Read) -> bool:
        """Whether a read is of what the scan has made so far."""
        return r.array in (self.previous, self.past)

    def own(self, r: Expr, guards: Iterable[Expr]) -> Expr:
        """The line's read of itself as a box has it; a place that may lie before the first step gives the start.

        ``guards`` are the predicates that hold where it is read.
        """
        assert isinstance(r, Read)
        place = self.axes.index(self.axis)
        form = r.index[place]
        if form == Affine.make({self.axis: 1}, {}, 1 if self.backward else -1):
            return Read(self.previous, (*r.index[:place], *r.index[place + 1 :]))
        read = Read(self.past, r.index)
        inside = self._inside(form)
        if inside is None or inside in guards:
            return read
        others = {a: f for a, f in zip(self.axes, r.index, strict=True) if a != self.axis}
        return Apply("where", (inside, read, substitute(self.start, others)))

    def _inside(self, form: Affine) -> Expr | None:
        """The predicate that a place is no earlier than the first step; None where it always holds."""
        if form.bare is not None:
            return None
        if self.backward:
            return Apply("lt", (value_of(form), Size(self.axis)))
        signs = [c for _, c in (*form.axes, *form.sizes)] + [form.offset]
        if not form.lookups and min(signs) >= 0:
            return None
        return Apply("ge", (value_of(form), Number(0)))


def as_own(box: Box) -> Expr:
    """The body of a scan's box as its line has it: ``A~prev[d]`` is ``A[t - 1, d]``."""
    assert box.scan is not None
    place = box.axes.index(box.scan.axis)
    before = Affine.make({box.scan.axis: 1}, {}, 1 if box.scan.backward else -1)

    def step(e: Expr) -> Expr:
        if isinstance(e, Read) and e.array == box.name + PREV:
            return Read(box.name, (*e.index[:place], before, *e.index[place:]))
        if isinstance(e, Read) and e.array == box.name + PAST:
            return Read(box.name, e.index)
        return e

    return transform(box.body, step)


def in_lockstep(boxes: Iterable[Box]) -> bool:
    """Whether a part reads what another box of its line has made so far, so that neither is a line of its own."""
    return any(r.array != source(r.array) and source(r.array) != b.name for b in boxes for r in b.reads())
