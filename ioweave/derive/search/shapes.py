"""The shapes of a region: which axes are grouped, which are streamed in which order, what is held.

Tile sizes are left open. The space is every set of grouped axes among those that every stored
array has and no box reduces (a split reduction moves its states on top of what a streamed one
moves), every sequence of up to three other axes streamed, and for every array that a loop
reloads without need, holding it outside that loop. Adjacent loops over axes that the same
arrays and boxes have come in one order, for the other moves the same. An axis that every array carries is
grouped in tiles of 1, by a lemma: no array is read again for it, and it multiplies what is live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product

from ioweave.derive.program.build import Shape
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Read

LOOPS = 3  # at most so many axes are streamed in one region
HELD = 3  # at most so many arrays are held further out than their index demands, in one shape


@dataclass(frozen=True)
class Frame:
    """What the shapes of a region are made from: its axes, its outside reads, what it stores."""

    axes: tuple[str, ...]
    batch: tuple[str, ...]
    groupable: frozenset[str]
    reads: tuple[tuple[str, frozenset[str]], ...]
    kinds: tuple[tuple[str, int], ...]


def frame(boxes: Sequence[Box], stored: frozenset[str]) -> Frame:
    """The frame of a region."""
    made = {b.name for b in boxes}
    outside = [r for b in boxes for r in b.reads() if r.array not in made]
    axes = tuple(dict.fromkeys(a for b in boxes for a in b.all_axes))
    reduced = frozenset(a for b in boxes for a in b.over)
    groupable = frozenset(a for a in axes if a not in reduced and all(a in b.axes for b in boxes if b.name in stored))
    batch = tuple(a for a in axes if a in groupable and all(_carries(r, a) for r in outside))
    reads: dict[tuple[str, frozenset[str]], None] = {}
    for r in outside:
        reads.setdefault((r.array, frozenset(a for f in r.index for a in f.names)))
    marks = {
        a: (
            frozenset(r for r in reads if a in r[1]),
            frozenset(b.name for b in boxes if a in b.axes),
            frozenset(b.name for b in boxes if a in b.over),
        )
        for a in axes
    }
    numbers = {mark: k for k, mark in enumerate(dict.fromkeys(marks.values()))}
    return Frame(axes, batch, groupable, tuple(reads), tuple((a, numbers[marks[a]]) for a in axes))


def _carries(r: Read, axis: str) -> bool:
    return any(f.bare == axis for f in r.index)


def shapes(f: Frame) -> Iterator[Shape]:
    """Every shape of the space that no other of it dominates outright."""
    free = [a for a in f.axes if a not in f.batch]
    kind = dict(f.kinds)
    order = {a: k for k, a in enumerate(f.axes)}
    for n in range(len(free) + 1):
        for group in combinations([a for a in free if a in f.groupable], n):
            walked = [a for a in free if a not in group]
            for m in range(min(len(walked), LOOPS) + 1):
                for loops in permutations(walked, m):
                    if any(kind[a] == kind[b] and order[a] > order[b] for a, b in pairwise(loops)):
                        continue
                    for hold in _holds(f, loops):
                        if _dominated(f, loops, hold):
                            continue
                        yield Shape((*f.batch, *group), loops, (), hold)


def _dominated(f: Frame, loops: tuple[str, ...], hold: tuple[tuple[str, int], ...]) -> bool:
    """Whether the outermost loop could as well be grouped.

    If every array that lacks the outermost loop's axis is loaded further in, that loop reuses
    nothing between its trips; grouping its axis moves the same values and holds no more.
    """
    if not loops or loops[0] not in f.groupable or any(depth == 0 for _, depth in hold):
        return False
    first = loops[0]
    return all(first in axes or any(a in axes for a in loops[1:]) for _, axes in f.reads)


def _holds(f: Frame, loops: tuple[str, ...]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Ways to hold arrays outside loops that do not index them."""
    options: list[list[tuple[str, int] | None]] = []
    several = [name for name, _ in f.reads]
    for name, axes in f.reads:
        if several.count(name) > 1:
            continue
        depth = max((p + 1 for p, a in enumerate(loops) if a in axes), default=0)
        idle = [p for p in range(depth) if loops[p] not in axes]
        if idle:
            options.append([None, *((name, p) for p in idle)])
    options = options[:HELD]
    for choice in product(*options):
        yield tuple(c for c in choice if c is not None)
