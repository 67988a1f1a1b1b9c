"""The best tiles where terms alone do not tell the transfers: masks, unions of reads, cut windows.

Candidates are counted exactly, in order of a lower bound, until it reaches the best. Tiles
of axes on which a mask, a union or a cut bears are tried at every size, for there more than the
number of tiles matters; steps that only a mask feels are as short as may be, for shorter steps
leave out no less.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ioweave.derive.counting.gathers import alike
from ioweave.derive.counting.masks import mask_axes
from ioweave.derive.counting.memory import count_memory
from ioweave.derive.counting.region import count_loads, count_stores, trace
from ioweave.derive.counting.terms import Ring, Terms, bits, numbers
from ioweave.derive.counting.tiles import Ints, Tiles
from ioweave.derive.program.build import Shape
from ioweave.derive.program.program import Program
from ioweave.derive.program.reach import Reach
from ioweave.derive.program.slots import corrections
from ioweave.derive.search.nests import Basis
from ioweave.derive.search.relaxed import Bound, memory, refined, split_cells, transfers
from ioweave.derive.search.tiling import EVERY, Tiling, Var, candidates, every_size, variables
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import Refused

CELLS = 1 << 18  # ranges of candidates open at once at most
OPENED = 1 << 8  # ranges halved at a time
COUNTED = 1 << 10  # candidates counted exactly at most
TRACED = 1 << 12  # tiles that are soon traced
TRIED = 16  # longer steps that are counted at most


@dataclass(frozen=True)
class _Task:
    """One shape, ready to be counted at any tiles; ``narrow`` where values of under a byte are rounded up."""

    program: Program
    terms: Terms
    bound: Bound
    basis: Basis
    capacity_bits: int
    align: Mapping[str, int]
    held_by_terms: bool
    narrow: bool

    def tiles(self, chosen: Mapping[Var, int]) -> Tiles:
        return Tiles(
            {a: n for (k, a), n in chosen.items() if k == "group"},
            {a: n for (k, a), n in chosen.items() if k == "stream"},
            self.basis.setting.sizes,
        )

    def fits(self, chosen: Mapping[Var, int]) -> bool:
        """Whether the program fits: its terms hold as much as it does, or more."""
        tiles = self.tiles(chosen)
        ring: Ring = numbers(self.basis.setting.sizes, tiles.group, tiles.stream)
        within = int(np.max(bits(self.terms, ring))) <= self.capacity_bits
        if not self.narrow and (within or self.held_by_terms):
            return within
        try:
            survive = None if self.anchored else trace(self.program, tiles, self.basis.setting)
            return count_memory(self.program, tiles, survive).bytes * 8 <= self.capacity_bits
        except Refused:
            return False

    @property
    def anchored(self) -> bool:
        """Whether some full tile has nothing removed in every tiling."""
        return self.basis.density is None or self.basis.density.anchored

    def is_quick(self, chosen: Mapping[Var, int]) -> bool:
        """Whether it takes no long trace to tell that a tiling does not fit."""
        tiles = self.tiles(chosen)
        return self.held_by_terms or self.anchored or prod(tiles.number(a, k == "stream") for k, a in chosen) <= TRACED

    def moved(self, chosen: Mapping[Var, int]) -> int | None:
        """Exact transfers in values, or None where they cannot be counted."""
        tiles = self.tiles(chosen)
        try:
            survive = trace(self.program, tiles, self.basis.setting)
            loads = sum(n for _, n in count_loads(self.program, tiles, survive))
        except Refused:
            return None
        return loads + sum(n for n, _ in count_stores(self.program, tiles).values())


def best_counted(
    program: Program,
    t: Terms,
    bound: Bound,
    b: Basis,
    shape: Shape,
    capacity_bits: int,
    ceiling: float,
    align: Mapping[str, int],
    deadline: float,
) -> tuple[Tiling | None, bool]:
    """The least exact transfers up to ``ceiling``; False where not every candidate was bounded or counted.

    ``deadline``, by ``time.monotonic``, ends the search once it has an answer.
    """
    narrow = any(DTYPES[v.dtype].bits % 8 for v in program.variables)
    task = _Task(program, t, bound, b, capacity_bits, align, _held_by_terms(program, b), narrow)
    sizes = b.setting.sizes
    free, still, uneven = _free(program, t, shape, b)
    fixed = {v: min(align.get(v[1], 1), sizes[v[1]]) for v in still}
    options = [(every_size if a in uneven else candidates)(sizes[a], align.get(a, 1)) for _, a in free]
    exact = b.density is None or b.density.anchored
    exact = exact and all(sizes[a] <= EVERY for _, a in free if a in uneven)
    cells = _Cells(task, fixed, free, options)
    cells.limit = ceiling
    best: Tiling | None = None
    for counted, (least, tiles) in enumerate(cells.points()):
        if least > ceiling or (best is not None and least >= best.values):
            break
        if counted == COUNTED or (best is not None and time.monotonic() > deadline):
            exact = False
            break
        if not task.fits(tiles):
            cells.exclude(tiles)
            continue
        h = task.moved(tiles)
        if h is None:
            tiles, h = _other_steps(task, tiles, still)
        if h is not None and h <= ceiling and (best is None or h < best.values):
            best = Tiling(h, tiles)
            cells.limit = h
    exact = exact and not cells.cut
    if best is None:
        return None, exact
    return Tiling(best.values, _longer_steps(task, best, still, b.frame.batch)), exact


class _Cells:
    """Ranges of candidates, opened best first: the largest tiles of a range bound what it moves."""

    def __init__(self, task: _Task, fixed: Mapping[Var, int], free: Sequence[Var], options: Sequence[Ints]) -> None:
        self.task, self.fixed, self.free, self.options = task, fixed, free, options
        self.cut = False
        self.large: list[Ints] = []  # the least of tilings that do not fit: no larger one does
        self.limit = float("inf")  # candidates above it are of no use

    def points(self) -> Iterator[tuple[float, dict[Var, int]]]:
        """Tilings that may fit with their lower bounds, rising."""
        lo = np.zeros((len(self.options), 1), dtype=np.int64)
        hi = np.array([[len(o) - 1] for o in self.options], dtype=np.int64).reshape(len(self.options), 1)
        lo, hi, least = self.bounded(lo, hi)
        ready: list[tuple[float, bool, tuple[int, ...]]] = []  # bound, whether it is the closer one, which
        while True:
            order = np.argsort(least, kind="stable")
            lo, hi, least = lo[:, order], hi[:, order], least[order]
            while ready and not (len(least) and least[0] < ready[0][0]):
                bound, close, index = heapq.heappop(ready)
                if close:
                    if not any((m <= index).all() for m in self.large):
                        yield bound, self.tiles(index)
                    continue
                tiles = self.by_axis(np.array(index, dtype=np.int64))
                closer = refined(self.task.bound, self.task.basis, tiles, self.limit)
                heapq.heappush(ready, (max(bound, closer), True, index))
            if not len(least):
                return
            if len(least) > CELLS:
                self.cut = True
                lo, hi, least = lo[:, :CELLS], hi[:, :CELLS], least[:CELLS]
            first, last = lo[:, :OPENED], hi[:, :OPENED]
            single = (first == last).all(axis=0)
            for index, bound in zip(first[:, single].T.tolist(), least[:OPENED][single], strict=True):
                heapq.heappush(ready, (float(bound), False, tuple(index)))
            new = self.bounded(*split_cells(first, last))
            lo, hi, least = (
                np.concatenate([old[..., OPENED:], x], axis=-1) for old, x in zip((lo, hi, least), new, strict=True)
            )

    def tiles(self, index: tuple[int, ...]) -> dict[Var, int]:
        """The tiles of one candidate."""
        return {**self.fixed, **{v: int(o[k]) for v, o, k in zip(self.free, self.options, index, strict=True)}}

    def exclude(self, tiles: Mapping[Var, int]) -> None:
        """Leave out all that is no smaller than a tiling that does not fit, made as small as may be."""
        least = [int(np.searchsorted(o, tiles[v])) for v, o in zip(self.free, self.options, strict=True)]
        for j in range(len(least)):

            def large(k: int, j: int = j) -> bool:
                smaller = self.tiles((*least[:j], k, *least[j + 1 :]))
                return self.task.is_quick(smaller) and not self.task.fits(smaller)

            least[j] = bisect_left(range(least[j]), True, key=large)
        self.large.append(np.array(least, dtype=np.int64))

    def bounded(self, lo: Ints, hi: Ints) -> tuple[Ints, Ints, Any]:
        """The cells that may fit, with their lower bounds."""
        task = self.task
        tiles = self.by_axis(lo)
        held = memory(task.bound, tiles)
        fits = np.broadcast_to(held <= task.capacity_bits, lo.shape[1:])
        for m in self.large:
            fits = fits & ~(lo >= m[:, None]).all(axis=0)
        lo, hi = lo[:, fits], hi[:, fits]
        least = np.broadcast_to(transfers(task.bound, task.basis, self.by_axis(hi)), lo.shape[1:])
        return lo, hi, least.astype(float)

    def by_axis(self, index: Ints) -> list[Any]:
        """Tiles per axis of the frame, whole where it is not tiled."""
        tiles: dict[str, Any] = {a: n for (_, a), n in self.fixed.items()}
        tiles.update({v[1]: o[i] for v, o, i in zip(self.free, self.options, index, strict=True)})
        return [tiles.get(a, self.task.basis.setting.sizes[a]) for a in self.task.basis.frame.axes]


def _other_steps(task: _Task, tiles: dict[Var, int], still: Sequence[Var]) -> tuple[dict[Var, int], int | None]:
    """Longer steps of one loop where the shortest cannot be counted: longer ones are fewer, and easier to count."""
    for v in still:
        if v[0] != "stream":
            continue
        steps = candidates(task.basis.setting.sizes[v[1]], task.align.get(v[1], 1)).tolist()
        room = bisect_left(steps, True, key=lambda step: not task.fits({**tiles, v: step}))
        if room and task.moved({**tiles, v: steps[room - 1]}) is not None:
            first = bisect_left(steps[: room - 1], True, key=lambda step: task.moved({**tiles, v: step}) is not None)
            other = {**tiles, v: steps[first]}
            return other, task.moved(other)
    return tiles, None


def _held_by_terms(program: Program, b: Basis) -> bool:
    """Whether terms tell exactly what is held: nothing is a union or cut at an edge, and some tile is complete."""
    pieces = [v.pieces for v in program.variables]
    return (b.density is None or b.density.anchored) and all(
        len(p) == 1 and all(span.bare is not None for span in p[0]) for p in pieces
    )


def _free(program: Program, t: Terms, shape: Shape, b: Basis) -> tuple[list[Var], list[Var], frozenset[str]]:
    """Tiles that transfers depend on, those that they do not, and axes whose tiles matter beyond their number."""
    moving, _ = variables(t, shape.group, shape.loops)
    masked = mask_axes(program)
    uneven = set(masked)
    batch = b.frame.batch
    free = {v for v in moving if v[1] not in batch} | {("group", a) for a in masked if a in shape.group}
    table = {v.name: v for v in program.variables}
    for load in program.loads():
        v = table[load.variable]
        tied = {a for piece in v.pieces for span in piece if span.bare is None for a, _ in span.axes}
        if len(v.pieces) > 1:
            reads = [read for _, read in load.reads]
            if len(v.pieces) > 2 or not b.twins(reads[0], next(r for r in reads if r.index != reads[0].index)):
                same = alike(v.pieces)
                for spans in zip(*v.pieces, strict=True) if same else [[s for p in v.pieces for s in p]]:
                    if len(set(spans)) > 1:
                        tied |= {a for span in spans for a, _ in span.axes}
            free |= {("group", a) for a in shape.group} | {("stream", a) for a in shape.loops if a in v.entered}
        uneven |= tied
    every: list[Var] = [*(("group", a) for a in shape.group), *(("stream", a) for a in shape.loops)]
    mine = [v for v in every if v in free and v[1] not in batch]
    return mine, [v for v in every if v not in mine], frozenset(uneven)


def _longer_steps(task: _Task, best: Tiling, still: Sequence[Var], batch: tuple[str, ...]) -> dict[Var, int]:
    """Steps that are longer at the same transfers, where a state is corrected in each: fewer FLOPs."""
    rescaled = {a for box in task.program.boxes if corrections(box) for a in box.over}
    tiles = dict(best.tiles)
    for v in still:
        if v[0] != "stream" or v[1] not in rescaled or v[1] in batch:
            continue
        steps = candidates(task.basis.setting.sizes[v[1]], task.align.get(v[1], 1))
        good, bad = 0, len(steps)  # longer steps hold more, and leave out less
        while bad - good > 1:
            middle = (good + bad) // 2
            longer = {**tiles, v: int(steps[middle])}
            if task.fits(longer) and task.moved(longer) == best.values:
                good = middle
            else:
                bad = middle
        tiles[v] = max(tiles[v], int(steps[good]))
    for v in (v for v in tiles if v[0] == "stream" and v not in still and v[1] in rescaled and v[1] not in batch):
        if v[1] in _looked_up(task.program):
            tiles[v] = _multiple(task, tiles, v, best.values)
    return tiles


def _looked_up(program: Program) -> frozenset[str]:
    """The axes along which what is looked up hangs on where a step begins."""
    reaches = (s for v in program.variables for piece in v.pieces for s in piece if isinstance(s, Reach))
    return frozenset(a for s in reaches if s.plain is None for a, _ in s.axes)


def _multiple(task: _Task, tiles: Mapping[Var, int], v: Var, values: int) -> int:
    """The longest step, a multiple of what it is, that fits and moves no more; few are counted."""
    step, size = tiles[v], task.basis.setting.sizes[v[1]]
    align = task.align.get(v[1], 1)
    steps = [k for k in range(step, size + 1, step) if k % align == 0]
    fitting = bisect_left(steps, True, key=lambda k: not task.fits({**tiles, v: k}))
    for k in steps[:fitting][: -TRIED - 1 : -1]:
        if task.moved({**tiles, v: k}) == values:
            return k
    return step
