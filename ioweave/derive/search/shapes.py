"""The shapes of a region: which axes are grouped, which are streamed in which order, what is held.

Tile sizes are left open. The space is every set of grouped axes among those that every stored
array has and no box reduces (a split reduction moves its states on top of what a streamed one
moves), every sequence of up to three other axes streamed, and for every array, holding it
outside loops that would load it again. Adjacent loops over axes that the same arrays and boxes
have come in one order, for the other moves the same. An axis that every array carries is
grouped in tiles of 1, by a lemma: no array is read again for it, and it multiplies what is live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

from ioweave.derive.program.reach import whole_reaches
from ioweave.derive.program.setting import Setting
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.scans import scan_axes, uncut

LOOPS = 3  # at most so many axes are streamed in one region


@dataclass(frozen=True)
class Frame:
    """What the shapes of a region are made from: its axes, and which of them may be grouped.

    ``kinds`` numbers axes that may be swapped alike; ``simple`` as for `groupings`; ``slots`` are the
    axes of lists that are made here and those that scans need whole, which no tile may cut.
    """

    axes: tuple[str, ...]
    batch: tuple[str, ...]
    groupable: frozenset[str]
    kinds: tuple[tuple[str, int], ...]
    simple: bool
    slots: frozenset[str] = frozenset()


def frame(boxes: Sequence[Box], stored: frozenset[str], setting: Setting) -> Frame:
    """The frame of a region. Axes are of one kind where the same arrays and boxes have them."""
    made = {b.name for b in boxes}
    outside = [r for b in boxes for r in b.operands() if r.array not in made]
    axes = tuple(dict.fromkeys(a for b in boxes for a in b.all_axes))
    reduced = frozenset(a for b in boxes for a in b.over)
    walked = scan_axes(boxes)
    slots = frozenset(b.into for b in boxes if b.into is not None) | uncut(boxes).keys()
    groupable = frozenset(
        a for a in axes if a not in reduced | slots | walked and all(a in b.axes for b in boxes if b.name in stored)
    )
    batch = tuple(a for a in axes if a in groupable and all(_carries(r, a, setting) for r in outside))
    reads: dict[tuple[str, frozenset[str]], None] = {}
    for r in outside:
        reads.setdefault((r.array, frozenset(a for f in r.index for a in f.names)))
    marks = {
        a: (
            frozenset(r for r in reads if a in r[1]),
            frozenset(b.name for b in boxes if a in b.axes),
            frozenset(b.name for b in boxes if a in b.over),
            a in walked,  # a state is as large as the loops inside its own are long
        )
        for a in axes
    }
    numbers = {mark: k for k, mark in enumerate(dict.fromkeys(marks.values()))}
    kinds = tuple((a, numbers[marks[a]]) for a in axes)
    return Frame(axes, batch, groupable, kinds, _simple(boxes, groupable), slots)


def _carries(r: Read, axis: str, setting: Setting) -> bool:
    return any(f.bare == axis for f in r.index) or any(axis in (s.plain or ()) for s in whole_reaches(r, setting))


def sequences(f: Frame) -> Iterator[tuple[str, ...]]:
    """Every sequence of streamed axes, shorter first; of adjacent loops that may be swapped one order."""
    free = [a for a in f.axes if a not in f.batch and a not in f.slots]
    kind = dict(f.kinds)
    order = {a: k for k, a in enumerate(f.axes)}
    for m in range(min(len(free), LOOPS) + 1):
        for loops in permutations(free, m):
            if not any(kind[a] == kind[b] and order[a] > order[b] for a, b in pairwise(loops)):
                yield loops


def groupings(f: Frame, loops: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Sets of grouped axes beside these loops.

    A group tile may be the whole axis, so grouping all that may be grouped covers the rest,
    unless grouping an axis may be refused or change how reads are counted.
    """
    rest = [a for a in f.axes if a in f.groupable and a not in loops and a not in f.batch]
    if f.simple:
        yield (*f.batch, *rest)
        return
    for n in range(len(rest) + 1):
        for group in combinations(rest, n):
            yield (*f.batch, *group)


def _simple(boxes: Sequence[Box], groupable: frozenset[str]) -> bool:
    """Whether every grouping counts as it would with tiles of whole axes: no windows of what is made, no strides."""
    made = {b.name: b for b in boxes}
    for b in boxes:
        for r in b.operands():
            if r.array in made:
                if r.index != tuple(Affine.axis(a) for a in made[r.array].axes):
                    return False
            elif not all(_one_grouped(form, groupable) for form in r.index):
                return False
    return True


def _one_grouped(form: Affine, groupable: frozenset[str]) -> bool:
    return sum(a in groupable for a in form.names) <= 1 or all(abs(c) == 1 for _, c in form.axes)
