"""The variables of scans in a region's program: the elements of a step, and the value that they start from.

Streamed, a scan has the elements of its step and, through the whole loop, the state: the value before them.
Where steps are single elements the new value may take over the bytes of the old one, and one variable is
both. Boxes made along with a scan hold one element of its axis at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ioweave.derive.program.program import Column, Role, Variable
from ioweave.derive.program.slots import Slot, start_slot
from ioweave.derive.program.spans import Span
from ioweave.diagrams.boxes import PAST, PREV, Box, source
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Read, reads
from ioweave.diagrams.scans import (
    Walk,
    before_index,
    in_place,
    lockstep,
    looks_back,
    starts,
)

ELEMENT = Span((), 0, 0, 1)  # one element of an axis, whichever it is


class Walks:
    """The scans of one program; ``unit`` are the streamed axes whose steps are single elements."""

    def __init__(
        self,
        boxes: Sequence[Box],
        loops: Sequence[str],
        unit: frozenset[str],
        slots: Mapping[str, tuple[Slot, ...]],
        name: Callable[[str, Slot], str],
    ) -> None:
        self.loops, self.slots, self.name = tuple(loops), slots, name
        self.made = {b.name: b for b in boxes}
        self.scans = {b.name: b for b in boxes if b.scan is not None}
        self.together = lockstep(boxes)
        self.begun = {n: s for n, s in starts(boxes).items() if self.position(s) is not None}
        self.single = {
            n for n, s in self.scans.items() if s.scan is not None and s.scan.axis in unit and in_place(s, boxes)
        }

    def position(self, scan: Box) -> int | None:
        """The loop that a scan walks, or None where its axis is whole."""
        assert scan.scan is not None
        return self.loops.index(scan.scan.axis) if scan.scan.axis in self.loops else None

    def carried(self, scan: Box, slot: Slot) -> str | None:
        """The variable of the value before the present elements; None where the axis is whole."""
        tile = self.name(scan.name, slot)
        if self.position(scan) is None:
            return None
        return tile if scan.name in self.single else scan.name + PREV + tile.removeprefix(scan.name)

    def of(self, box: Box, slot: Slot) -> Walk | None:
        """How a box goes along a scan in a slot; None for a box that does not."""
        scan = self.begun.get(box.name) or self.scans.get(self.together.get(box.name, ""))
        if scan is None or scan.scan is None:
            return None
        begins = box.name in self.begun
        mine = [s for s in self.slots[scan.name] if start_slot(scan, s, self.loops) == slot] if begins else [slot]
        if len(mine) != 1:
            raise Refused(
                f"{scan.name} is made in several loops that start from one value; leave {scan.scan.axis} whole"
            )
        self.check_repeats(scan, mine[0])
        tile, carried = self.name(scan.name, mine[0]), self.carried(scan, mine[0])
        return Walk(scan.name, scan.scan.axis, scan.scan.backward, scan.scan.start, tile, carried, begins)

    def check_repeats(self, scan: Box, slot: Slot) -> None:
        """Raises Refused where a loop inside that over the scan's axis repeats it, its old value gone."""
        assert scan.scan is not None
        p = self.position(scan)
        inner = () if p is None else zip(self.loops[p + 1 :], slot[p + 1 :], strict=True)
        again = [a for a, t in inner if t is not None and t % 2 == 0 and a not in scan.axes]
        if again:
            raise Refused(
                f"{scan.name} goes on along {scan.scan.axis} from the value before, and the loop over {again[0]} would "
                f"make it again in every step; put {again[0]} outside of {scan.scan.axis} or innermost"
            )

    def variables(
        self,
        box: Box,
        walk: Walk,
        dtype: str,
        spans: tuple[Span, ...],
        inside: frozenset[str],
        outside: frozenset[str],
        name: str,
    ) -> tuple[Variable, ...]:
        """What a column along a scan adds; ``inside`` are the loops it is in, ``outside`` those around its axis."""
        if walk.begins:
            return ()

        def made(name: str, role: Role, held: tuple[Span, ...], entered: frozenset[str]) -> Variable:
            return Variable(name, box.name, role, dtype, (held,), entered)

        if box.name != walk.scan:
            one = tuple(ELEMENT if a == walk.axis else s for a, s in zip(box.axes, spans, strict=True))
            return (made(name, "value", one, inside),)
        if walk.carried == walk.tile:
            return (made(name, "state", spans, outside | {walk.axis}),)
        tile = made(name, "value", spans, inside)
        if walk.carried is None:
            return (tile,)
        rest = tuple(s for a, s in zip(box.axes, spans, strict=True) if a != walk.axis)
        return made(walk.carried, "state", rest, outside), tile

    def further_reads(self, box: Box) -> tuple[Read, ...]:
        """What a box reads besides its body: a start where no box has made it, the state beside an element before."""
        found: list[Read] = []
        if box.scan is not None and self.position(box) is None:
            found.extend(reads(box.scan.start))
        for r in box.operands():
            scan = self.scans.get(r.array)
            if scan is None or box.scan is scan.scan or self.position(scan) is None:
                continue
            if looks_back(scan, r):
                found.append(Read(scan.name + PREV, before_index(scan, r.index)))
        return tuple(dict.fromkeys(found))

    def source(self, read: Read, at: Slot) -> str | None:
        """The variable behind a read of earlier elements, by a reader of those made at ``at``; None for any other."""
        scan = self.scans.get(source(read.array))
        if scan is None:
            return None
        if read.array.endswith(PREV):
            return self.carried(scan, at) or self.name(scan.name, at)
        return self.name(scan.name, at) if read.array.endswith(PAST) else None

    def check_reader(self, box: Box, slot: Slot, read: Read, at: Slot) -> None:
        """Raises Refused where the element before is gone when a box comes to read it."""
        scan = self.scans[source(read.array)]
        assert scan.scan is not None
        if box.name not in self.together and any(t is not None and t != u for t, u in zip(at, slot, strict=True)):
            raise Refused(
                f"{box.name} reads an earlier element of {scan.name} outside of a loop in which {scan.name} is made; "
                f"put {scan.scan.axis} innermost, or {box.name} in a region of its own"
            )

    def check_start(self, box: Box, slot: Slot, operand: str, at: Slot) -> None:
        """Raises Refused where what a start is made of is itself made inside the loop that it starts."""
        scan = self.begun[box.name]
        p = self.position(scan)
        assert p is not None
        assert scan.scan is not None
        done = at[p] is not None and slot[p] is not None and (at[p] or 0) <= (slot[p] or 0)
        if not done and any(t is not None for t in at[p:]):
            raise Refused(
                f"{scan.name} starts from {operand}, which is made inside the loop over {scan.scan.axis}; "
                f"put {operand} in a region of its own"
            )

    def began(self, column: Column) -> int | None:
        """The loop before which a scan's state is set, for the column of the scan itself."""
        if column.walk is None or column.box is None or column.box.name != column.walk.scan:
            return None
        return self.position(column.box)

    def checked(self, variables: Mapping[str, Variable], columns: Sequence[Column]) -> None:
        """Raises Refused where an element must outlast its step though the next takes over its bytes."""
        for c in columns:
            w = c.walk
            if w is not None and w.carried == w.tile and w.axis not in variables[w.tile].entered:
                raise Refused(f"{w.scan} is read outside the loop over {w.axis} that makes it; leave {w.axis} whole")
