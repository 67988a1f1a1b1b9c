"""Scans inside a region: what walks an axis element by element, what it carries, and what that forbids.

A box with a scan, and the boxes of its line that read its previous value, are made in *lockstep*: all of
them for one element of the scan's axis, then for the next. Streamed, the axis leaves the value of the last
element in a state that the next step starts from. So the axis may be streamed or whole, never grouped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import PAST, PREV, Box, source
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Expr, Read, reads


@dataclass(frozen=True, slots=True)
class Walk:
    """How a column goes along a scan: box, axis and direction, and the variables of its array and of its state.

    ``tile`` holds the elements of a step. ``carried`` holds the value before them: it is the tile itself
    where steps of one element take over its bytes, and None where the axis is whole. ``begins`` marks
    the column that sets the state before the loop.
    """

    scan: str
    axis: str
    backward: bool
    start: Expr
    tile: str
    carried: str | None
    begins: bool = False


def lockstep(boxes: Sequence[Box]) -> dict[str, str]:
    """Every scan, and every box made element by element along with one, with the name of that scan."""
    found: dict[str, str] = {}
    for b in boxes:
        if b.scan is not None:
            found[b.name] = b.name
            continue
        for r in b.reads():
            base = source(r.array)
            if r.array.endswith((PREV, PAST)):
                found[b.name] = base
            elif base in found and found[base] != base:
                found[b.name] = found[base]
    return found


def members(boxes: Sequence[Box]) -> dict[str, tuple[str, ...]]:
    """For every scan the boxes made along with it, in order, itself last."""
    found: dict[str, list[str]] = {b.name: [] for b in boxes if b.scan is not None}
    for name, scan in lockstep(boxes).items():
        if scan in found and name != scan:
            found[scan].append(name)
    return {scan: (*names, scan) for scan, names in found.items()}


def before_index(scan: Box, index: Sequence[Affine]) -> tuple[Affine, ...]:
    """The positions of a read of a scan's array, without that of the scan's axis."""
    assert scan.scan is not None
    return tuple(f for a, f in zip(scan.axes, index, strict=True) if a != scan.scan.axis)


def carried_axes(scan: Box) -> tuple[str, ...]:
    """The axes of the value that a scan carries from element to element."""
    assert scan.scan is not None
    return tuple(a for a in scan.axes if a != scan.scan.axis)


def looks_back(scan: Box, r: Read) -> bool:
    """Whether a read of a scan's array by another box is at another element than the box's own."""
    assert scan.scan is not None
    return r.array == scan.name and r.index[scan.axes.index(scan.scan.axis)].bare != scan.scan.axis


def start_name(scan: str) -> str:
    """The name of the box that makes the value before the first element."""
    return f"{scan}.start"


def starts(boxes: Sequence[Box]) -> dict[str, Box]:
    """The boxes that make a start, each with its scan."""
    return {
        start_name(b.name): b
        for b in boxes
        if b.scan is not None and any(r.array == start_name(b.name) for r in reads(b.scan.start))
    }


def with_starts(boxes: Sequence[Box], loops: Sequence[str]) -> tuple[Box, ...]:
    """The boxes with one for every start that is computed from arrays, before all that is made along with its scan.

    A start that is read as it is, by a scan whose axis is whole, needs none.
    """
    result: list[Box] = list(boxes)
    known = {b.name for b in boxes}
    for name, together in members(boxes).items():
        at, b = next((k, b) for k, b in enumerate(result) if b.name == name)
        assert b.scan is not None
        needed = b.scan.axis in loops or not isinstance(b.scan.start, Read)
        if reads(b.scan.start) and needed and start_name(name) not in known:
            axes = carried_axes(b)
            start = Read(start_name(name), tuple(Affine.axis(a) for a in axes))
            result[at] = replace(b, scan=replace(b.scan, start=start))
            first = next(k for k, x in enumerate(result) if x.name in together)
            result.insert(first, Box(start_name(name), axes, b.scan.start, None, (), b.dtype, b.line))
    return tuple(result)


def scan_axes(boxes: Sequence[Box]) -> frozenset[str]:
    """The axes that scans walk: they may be streamed or whole, not grouped."""
    return frozenset(b.scan.axis for b in boxes if b.scan is not None)


def coupled(scan: Box, boxes: Sequence[Box]) -> frozenset[str]:
    """The axes of a scan along which an element needs the previous value at other places than its own."""
    found: set[str] = set()
    carried = carried_axes(scan)
    for b in boxes:
        for r in b.reads():
            if source(r.array) == scan.name and r.array.endswith((PREV, PAST)):
                index = r.index if r.array.endswith(PREV) else before_index(scan, r.index)
                found |= {a for a, f in zip(carried, index, strict=True) if f.bare != a}
    return frozenset(found)


def uncut(boxes: Sequence[Box]) -> dict[str, str]:
    """The axes that no tile may cut for a scan's sake, each with the reason as a sentence."""
    found: dict[str, str] = {}
    table = {b.name: b for b in boxes}
    together = lockstep(boxes)
    for b in boxes:
        if b.scan is not None:
            for a in sorted(coupled(b, boxes)):
                found.setdefault(
                    a, f"every element of {b.name} needs the one before at other places of {a}; leave {a} whole"
                )
        for r in b.reads():
            scan = table.get(source(r.array))
            if r.array.endswith(PAST) and scan is not None and scan.scan is not None:
                a = scan.scan.axis
                found.setdefault(a, f"{scan.name} reads all of its earlier elements along {a}; leave {a} whole")
        if b.name in together and b.scan is None:
            for a in b.over:
                found.setdefault(
                    a, f"{b.name} is summed up over {a} for every element of {together[b.name]}; leave {a} whole"
                )
    ways: dict[str, Box] = {}
    for b in boxes:
        if b.scan is not None:
            other = ways.setdefault(b.scan.axis, b)
            assert other.scan is not None
            if other.scan.backward != b.scan.backward:
                forward, backward = (b, other) if other.scan.backward else (other, b)
                found.setdefault(
                    b.scan.axis,
                    f"{forward.name} runs forwards along {b.scan.axis} and {backward.name} backwards, and a loop has "
                    f"one direction; leave {b.scan.axis} whole, or put one of them in a region of its own",
                )
    return found


def check_scans(boxes: Sequence[Box], group: Sequence[str], loops: Sequence[str]) -> None:
    """Raises Refused where tiles cut what a scan needs in order, or whole."""
    for b in boxes:
        if b.scan is not None and b.scan.axis in group:
            a = b.scan.axis
            raise Refused(
                f"scan along {a} is sequential: {b.name} cannot be grouped by {a}; stream {a} or leave it whole"
            )
    together = lockstep(boxes)
    for b in boxes:
        if b.scan is not None and any(r.array.endswith((PREV, PAST)) and source(r.array) != b.name for r in b.reads()):
            raise Refused(f"{b.name} is a scan made anew for every element of another one, which is not counted")
        outer = next((together[source(r.array)] for r in b.operands() if _member(together, source(r.array))), b.name)
        if b.scan is not None and outer != b.name:
            raise Refused(f"{b.name} is a scan made anew for every element of {outer}, which is not counted")
    for a, why in uncut(boxes).items():
        if a in (*group, *loops):
            raise Refused(why)


def _member(together: Mapping[str, str], name: str) -> bool:
    """Whether a box goes along with a scan and is not the scan itself."""
    return together.get(name, name) != name


def backward_axes(boxes: Sequence[Box]) -> frozenset[str]:
    """The axes whose loops run from the last step to the first."""
    return frozenset(b.scan.axis for b in boxes if b.scan is not None and b.scan.backward)


def in_place(scan: Box, boxes: Sequence[Box]) -> bool:
    """Whether an element may take over the bytes of the one before it.

    It may if the scan reads that one at its own place alone, and nothing that runs after it reads it.
    """
    own = tuple(Affine.axis(a) for a in carried_axes(scan))
    if any(r.array == scan.name + PREV and r.index != own for r in scan.reads()):
        return False
    together = members(boxes)[scan.name]
    return not any(b.name not in together and any(looks_back(scan, r) for r in b.operands()) for b in boxes)


def lag(scan: Box) -> int:
    """Where the previous element lies: one lower, or one higher where the scan runs backwards."""
    assert scan.scan is not None
    return 1 if scan.scan.backward else -1
