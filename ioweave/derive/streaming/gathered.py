"""Gathered: rows of an array made along the streamed axis, chosen by a list, ride beside the list's keys.

Statement. ``A[I_j]``, for the positions ``I`` of a list over x and an array A whose element at x is known when x
is seen, is a list itself: each slot carries ``A[x]`` of the term that fills it. Of the key itself that is the
list of keys.
Source. `lists`: a merge moves whole slots, whatever they hold.
Reach. A is read at the list's own place. Of keys that may be minus infinity the slots hold no rows, so that what is
masked may be skipped. A map is worked out again at those places, after the loop; a reduction that cannot ride along
is left to a second pass.
"""

from __future__ import annotations

from dataclasses import replace

from ioweave.derive.streaming.cascade import at_index, inline, on_reads
from ioweave.derive.streaming.recurrence import passes_of
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, walk
from ioweave.diagrams.groups import lockstep
from ioweave.diagrams.lists import KEYED, PAYLOAD, POSITIONS

MOST = 16  # maps written out one inside the other


def gathered(boxes: tuple[Box, ...], axis: str) -> tuple[Box, ...]:
    """The boxes with such reads as reads of lists; the same tuple where there is none."""
    found = _Gathering(boxes, axis)
    made: list[Box] = []
    for b in boxes:
        body = b.body if axis in b.all_axes else on_reads(b.body, lambda r: found.taken(r, MOST))
        made += found.take_new()
        made.append(b if body is b.body else replace(b, body=body))
    return tuple(made) if len(made) > len(boxes) or any(a is not b for a, b in zip(made, boxes, strict=True)) else boxes


class _Gathering:
    """Finds the lists behind reads, and makes those that ride along."""

    def __init__(self, boxes: tuple[Box, ...], axis: str) -> None:
        self.boxes = {b.name: b for b in boxes}
        self.axis = axis
        self.scans = lockstep(boxes)
        self.passes = passes_of(boxes, frozenset({axis}))
        for b in boxes:
            self.passes.place(b)
        self.made: dict[tuple[str, str], Box] = {}
        self.new: list[Box] = []

    def take_new(self) -> list[Box]:
        """The lists made since this was asked last."""
        new, self.new = self.new, []
        return new

    def taken(self, r: Read, depth: int) -> Expr:
        """The read of a list in place of the read of an array at a list's positions; the read itself otherwise."""
        box = self.boxes.get(r.array)
        if box is None or self.axis not in box.axes or depth == 0:
            return r
        place = r.index[box.axes.index(self.axis)]
        if not place.lookups:
            return r
        rides = self.rides(box, r, _looked_up(place))
        if rides is not None or box.reduction is not None or box.name in self.scans:
            return r if rides is None else rides
        return on_reads(at_index(box, r.index), lambda inner: self.taken(inner, depth - 1))

    def rides(self, box: Box, r: Read, chosen: Read | None) -> Read | None:
        """The read of a list that carries the rows of ``box``, where its positions choose them and it can."""
        order = self.boxes.get(chosen.array) if chosen is not None else None
        if chosen is None or order is None or order.reduction != POSITIONS or order.over != (self.axis,):
            return None
        at = dict(zip(order.axes, chosen.index, strict=True))
        rest = [(a, f) for a, f in zip(box.axes, r.index, strict=True) if a != self.axis]
        late = self.passes.when[box.name].run > 1
        if order.keys is None or late or any(f != at[a] for a, f in rest if a in at):
            return None
        own = Read(box.name, tuple(Affine.axis(a) for a in box.axes))
        if order.body == own:
            return Read(order.keys[0], chosen.index)
        if (box.reduction is None and box.name not in self.scans) or self.may_hide(order.body):
            return None
        others = [(a, f) for a, f in rest if a not in at]
        pick = self.pick(box, order, own, tuple(a for a, _ in others))
        return Read(pick.name, (*chosen.index, *(f for _, f in others)))

    def may_hide(self, key: Expr) -> bool:
        """Whether a key may be minus infinity: what rides beside such a one is not kept."""
        for n in walk(inline(key, self.boxes, lambda r: True)):
            if isinstance(n, Number) and n.value in (float("inf"), float("-inf")):
                return True
            if isinstance(n, Apply) and n.op in ("log", "log2"):
                return True
            if isinstance(n, Read) and n.array in self.boxes and self.may_hide(self.boxes[n.array].body):
                return True
        return False

    def pick(self, box: Box, order: Box, own: Read, others: tuple[str, ...]) -> Box:
        """The list of rows of ``box`` in the order of another list."""
        key = box.name, order.name
        if key not in self.made:
            assert order.keys is not None
            name, n = f"{box.name}.pick", 1
            while name in self.boxes:
                n += 1
                name = f"{box.name}.pick{n}"
            made = replace(
                order,
                name=name,
                axes=(*order.axes, *others),
                body=Apply(KEYED, (order.body, own)),
                reduction=PAYLOAD,
                dtype=box.dtype,
                keys=(order.keys[0], order.name),
            )
            self.boxes[name] = self.made[key] = made
            self.passes.place(made)
            self.new.append(made)
        return self.made[key]


def _looked_up(f: Affine) -> Read | None:
    """The read that an index form is, where it is nothing else."""
    if f.axes or f.sizes or f.offset or len(f.lookups) != 1 or f.lookups[0][1] != 1:
        return None
    inner = f.lookups[0][0].expr
    return inner if isinstance(inner, Read) else None
