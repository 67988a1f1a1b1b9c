"""Groups: a scan with the boxes of its line that are made with it, element by element, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import PAST, PREV, Box
from ioweave.diagrams.expressions import Read

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class Group:
    """One scan: the boxes made element by element together, in order; the scan's own box is the last."""

    members: tuple[Box, ...]

    @property
    def scan(self) -> Box:
        """The box whose values are carried."""
        return self.members[-1]

    @property
    def axes(self) -> frozenset[str]:
        """The axes of all that is made."""
        return frozenset(a for b in self.members for a in b.axes)

    @property
    def axis(self) -> str:
        """The axis that is walked."""
        assert self.scan.scan is not None
        return self.scan.scan.axis

    @property
    def backward(self) -> bool:
        """Whether it is walked from the last element to the first."""
        assert self.scan.scan is not None
        return self.scan.scan.backward

    @property
    def direction(self) -> str:
        """The direction in words."""
        return BACKWARD if self.backward else FORWARD

    @property
    def past(self) -> bool:
        """Whether elements before the last one are read."""
        return any(r.array.endswith(PAST) for b in self.members for r in b.reads())


def prev(name: str) -> str:
    """The name under which a scan's value before the present element is read."""
    return name + PREV


def past(name: str) -> str:
    """The name under which a scan's earlier elements are read."""
    return name + PAST


def carried_axes(scan: Box) -> tuple[str, ...]:
    """The axes of what a scan carries: its own without the one that it walks."""
    assert scan.scan is not None
    return tuple(a for a in scan.axes if a != scan.scan.axis)


def before_body(scan: Box, places: Mapping[str, Affine] | None = None) -> Read:
    """The read of a scan's value before the present element, at its own axes."""
    return Read(prev(scan.name), tuple((places or {}).get(a, Affine.axis(a)) for a in carried_axes(scan)))


def groups(boxes: Iterable[Box]) -> tuple[Group, ...]:
    """The scans among boxes, in order, each with the boxes of its line in lockstep with it."""
    own = tuple(boxes)
    return _groups(own) if any(b.scan is not None for b in own) else ()


@lru_cache(maxsize=1024)
def _groups(boxes: tuple[Box, ...]) -> tuple[Group, ...]:
    found: list[Group] = []
    for scan in boxes:
        if scan.scan is None:
            continue
        moving = {prev(scan.name), past(scan.name)}
        members: list[Box] = []
        for b in boxes:
            if b.line == scan.line and b is not scan and any(r.array in moving for r in b.reads()):
                moving.add(b.name)
                members.append(b)
        found.append(Group((*members, scan)))
    return tuple(found)


def lockstep(boxes: Iterable[Box]) -> frozenset[str]:
    """The names of all boxes that are made element by element."""
    return frozenset(b.name for g in groups(boxes) for b in g.members)


def units(boxes: Iterable[Box]) -> tuple[Box | Group, ...]:
    """Boxes in order, those of one scan together at the place of the scan."""
    own = tuple(boxes)
    if all(b.scan is None for b in own):
        return own
    of_scan = {g.scan.name: g for g in groups(own)}
    held = lockstep(own)
    return tuple(of_scan.get(b.name, b) for b in own if b.name not in held or b.name in of_scan)
