"""The best schedule of one region: every shape in order of its lower bound, tiles by branch and bound."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from ioweave.derive.counting.masks import always_loaded
from ioweave.derive.counting.region import count_region
from ioweave.derive.counting.terms import Terms, bits, numbers, terms
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.contraction import is_contraction
from ioweave.derive.program.program import Program
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.slots import corrections
from ioweave.derive.search.by_count import best_counted
from ioweave.derive.search.density import density
from ioweave.derive.search.narrowing import possible
from ioweave.derive.search.nests import Basis, Nest, basis
from ioweave.derive.search.relaxed import Bound, holdable, late, relaxed
from ioweave.derive.search.shapes import frame, groupings, sequences
from ioweave.derive.search.tiling import Tiling, Var, best_tiles, candidates, enlarge, every_size, variables
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.scans import scan_axes
from ioweave.hierarchy.counts import RegionCount


@dataclass(frozen=True)
class Schedule:
    """A region with its shape and tiles, the program it runs, and its transfers in values."""

    boxes: tuple[Box, ...]
    stored: frozenset[str]
    shape: Shape
    group: Mapping[str, int]
    stream: Mapping[str, int]
    program: Program
    values: int
    setting: Setting

    @cached_property
    def count(self) -> RegionCount:
        """All that it moves, holds and computes."""
        return count_region(self.program, Tiles(self.group, self.stream, self.setting.sizes), self.setting)

    @property
    def complexity(self) -> int:
        """How much there is to its shape: loops and holds."""
        return len(self.shape.loops) + len(self.shape.hold)

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """The order of preference: transfers; a simpler shape; FLOPs, memory, and larger tiles."""
        tiles = sum(self.group.values()) + sum(self.stream.values())
        return (self.values, self.complexity, self.count.flops.total, self.count.memory.bytes, -tiles)

    def better(self, other: Schedule | None) -> bool:
        """Whether it is preferred; all is counted only where the first two do not tell."""
        if other is None or (self.values, self.complexity) != (other.values, other.complexity):
            return other is None or (self.values, self.complexity) < (other.values, other.complexity)
        return self.rank < other.rank


@dataclass(frozen=True)
class Limits:
    """What a schedule must keep to: capacity in bytes, and tiles that are multiples.

    Without ``repeats`` no contraction may run again for a tile of an axis that it lacks.
    """

    capacity: int
    align: Mapping[str, int] = field(default_factory=dict)
    repeats: bool = True


@dataclass
class Effort:
    """How much was looked at; whether anything was passed over; when to stop, by ``time.monotonic``."""

    schedules: int = 0
    exact: bool = True
    deadline: float = float("inf")
    late: bool = False


def best_schedule(
    name: str,
    boxes: Sequence[Box],
    stored: frozenset[str],
    setting: Setting,
    limits: Limits,
    effort: Effort,
    ceiling: float = float("inf"),
) -> Schedule | None:
    """The schedule of a region that moves least, or None where none fits or none is below ``ceiling``.

    Exact on the space of `ioweave.derive.search.shapes`, ties by `Schedule.rank`.
    """
    boxes = tuple(boxes)
    b = _basis(boxes, stored, setting)
    f = b.frame
    search = _Search(name, b, limits, effort, ceiling)
    products = [] if limits.repeats else _products(boxes)
    for loops in sequences(f):
        if any(_repeats(axes, loops) for axes in products):
            continue
        for group in groupings(f, loops):
            group = tuple(a for a in group if all(a in axes for axes in products))
            if search.worthwhile(loops, group):
                search.visit(b.nest(loops), group, {})
    return search.best


@lru_cache(maxsize=128)
def _basis(boxes: tuple[Box, ...], stored: frozenset[str], setting: Setting) -> Basis:
    """The basis of a region, kept for searches with other limits."""
    return basis(frame(boxes, stored, setting), boxes, stored, setting, density(boxes, stored, setting))


class _Search:
    """Branch and bound over what is held in one nest after another; used once per region."""

    def __init__(self, name: str, b: Basis, limits: Limits, effort: Effort, ceiling: float) -> None:
        self.name, self.basis, self.limits, self.effort, self.ceiling = name, b, limits, effort, ceiling
        masked = b.density.axes if b.density is not None else ()
        self.options = {
            a: (every_size if a in masked else candidates)(b.setting.sizes[a], limits.align.get(a, 1)).tolist()
            for a in b.frame.axes
        }
        self.hint: list[int] | None = None
        self.orders: dict[tuple[frozenset[str], tuple[str, ...]], bool] = {}
        self.best: Schedule | None = None

    def _late(self) -> bool:
        """Whether time is up and there is an answer without looking on."""
        answered = self.best is not None or self.ceiling < float("inf")
        late = answered and time.monotonic() > self.effort.deadline
        self.effort.late = self.effort.late or late
        return late

    def worthwhile(self, loops: tuple[str, ...], group: tuple[str, ...]) -> bool:
        """Whether these loops in any order, whatever is held, may be as good as the best so far; asked once."""
        if len(loops) < 2 or self._late():
            return True
        key = frozenset(loops), group
        if key not in self.orders:
            nest = self.basis.unordered(key[0])
            early = dict.fromkeys(nest.arrays, 0)
            self.orders[key] = self._possible(nest, relaxed(self.basis, nest, self.basis.axes(group), {}, early), {})
        if not self.orders[key]:
            self.effort.schedules += 1
        return self.orders[key]

    def _possible(self, nest: Nest, bound: Bound, hold: Mapping[str, int]) -> bool:
        hint = possible(bound, self.basis, self.options, self.limits.capacity * 8, self._most(nest, hold), self.hint)
        self.hint = hint or self.hint
        return hint is not None

    def _most(self, nest: Nest, hold: Mapping[str, int]) -> float:
        """What a shape may move at most: no more than the best, and less if it is no simpler."""
        simpler = self.best is None or len(nest.loops) + len(hold) <= self.best.complexity
        return self.ceiling if simpler else self.ceiling - 1

    def visit(
        self,
        nest: Nest,
        group: tuple[str, ...],
        hold: Mapping[str, int],
        free: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Every way to hold the arrays in ``free`` (None: any) beside those in ``hold``."""
        b = self.basis
        if self._late():
            return
        self.effort.schedules += 1
        early = dict.fromkeys(nest.arrays, 0) if free is None else {a: depths[0] for a, depths in free.items()}
        bound = relaxed(b, nest, b.axes(group), hold, early)
        if not self._possible(nest, bound, hold):
            return
        if free is None:
            self.visit(nest, group, hold, holdable(nest))
        elif free:
            array, *rest = free
            others = {a: free[a] for a in rest}
            self.visit(nest, group, hold, others)
            for depth in free[array]:
                self.visit(nest, group, {**hold, array: depth}, others)
        elif not (self.limits.repeats and _dominated(b, nest, hold)) and not late(nest, hold):
            shape = Shape(group, nest.loops, (), tuple(hold.items()))
            found = _expand(self.name, shape, b, bound, self.limits, self._most(nest, hold), self.effort)
            if found is not None and found.better(self.best):
                self.best = found
                self.ceiling = min(self.ceiling, found.values)


def _products(boxes: Sequence[Box]) -> list[frozenset[str]]:
    """The axes of every contraction."""
    return [frozenset(b.all_axes) for b in boxes if is_contraction(b)]


def runs_once(s: Schedule) -> bool:
    """Whether no contraction of a schedule runs again for a tile of an axis that it lacks."""
    return not any(
        _repeats(axes, s.shape.loops) or any(a not in axes for a in s.shape.group) for axes in _products(s.boxes)
    )


def _repeats(axes: frozenset[str], loops: Sequence[str]) -> bool:
    """Whether a box with these axes runs again for a loop around those that it walks."""
    walked = max((p + 1 for p, a in enumerate(loops) if a in axes), default=0)
    return any(a not in axes for a in loops[:walked])


def _dominated(b: Basis, nest: Nest, hold: Mapping[str, int]) -> bool:
    """Whether the outermost loop could as well be grouped.

    If all is loaded inside it, that loop reuses nothing between its trips; grouping its axis
    moves the same values and holds no more.
    """
    if not nest.loops or nest.loops[0] not in b.frame.groupable:
        return False
    return all(hold.get(r.array, r.natural) > 0 for r in nest.readings)


def _expand(
    name: str, shape: Shape, b: Basis, bound: Bound, limits: Limits, ceiling: float, effort: Effort
) -> Schedule | None:
    """The best tiles of one shape.

    The steps of a scan are tried as single elements first, for those need no room beside the state, and longer
    ones where they may pay.
    """
    walked = scan_axes(b.boxes) & set(shape.loops)
    if not walked:
        return _tiled(name, shape, b, bound, limits, ceiling, effort)
    best: Schedule | None = None
    longer = True
    if all(limits.align.get(a, 1) == 1 for a in walked):
        best = _tiled(name, replace(shape, unit=walked), b, bound, limits, ceiling, effort)
        longer = best is not None and _longer_pay(best, b, walked)
        ceiling = ceiling if best is None else min(ceiling, best.values)
    if longer:
        other = _tiled(name, shape, b, bound, limits, ceiling, effort)
        single = frozenset(a for a in walked if other is not None and other.stream[a] == 1)
        if other is not None and single:
            other = replace(other, program=build(name, b.boxes, b.stored, replace(shape, unit=single), other.setting))
        best = other if other is not None and other.better(best) else best
    return best


def _longer_pay(best: Schedule, b: Basis, walked: frozenset[str]) -> bool:
    """Whether longer steps of a scan may move less, or correct states less often."""
    t = terms(best.program, best.setting)
    moving = {a for kind, a in variables(t, best.shape.group, best.shape.loops)[0] if kind == "stream"}
    corrected = {a for box in best.program.boxes if corrections(box) for a in box.over}
    return b.density is not None or not t.exact or bool((moving | corrected) & walked)


def _tiled(
    name: str, shape: Shape, b: Basis, bound: Bound, limits: Limits, ceiling: float, effort: Effort
) -> Schedule | None:
    """The best tiles of one shape, with the full program and the exact count."""
    setting = b.setting
    if shape.unit:
        b = replace(b, frame=replace(b.frame, batch=(*b.frame.batch, *sorted(shape.unit))))
    try:
        program = build(name, b.boxes, b.stored, shape, setting)
    except Refused:
        return None
    if program.lengths:
        setting = setting.with_lengths(program.lengths)
        b = replace(b, setting=setting)
    t = terms(program, setting)
    capacity = limits.capacity * 8
    batch = b.frame.batch
    felt = b.density is not None and not (b.density.anchored and always_loaded(program, setting))
    if felt or not t.exact or any(DTYPES[v.dtype].bits % 8 for v in program.variables):
        tiling, exact = best_counted(program, t, bound, b, shape, capacity, ceiling, limits.align, effort.deadline)
    else:
        tiling, exact = best_tiles(t, shape.group, shape.loops, batch, setting.sizes, capacity, ceiling, limits.align)
        if tiling is not None:
            tiling = _break_ties(program, t, shape, batch, tiling, setting, capacity, limits)
    effort.exact = effort.exact and exact
    if tiling is None:
        return None
    group = {a: int(tiling.tiles["group", a]) for a in shape.group}
    stream = {a: int(tiling.tiles["stream", a]) for a in shape.loops}
    return Schedule(b.boxes, b.stored, shape, group, stream, program, tiling.values, setting)


def _break_ties(
    program: Program,
    t: Terms,
    shape: Shape,
    batch: tuple[str, ...],
    tiling: Tiling,
    setting: Setting,
    capacity: int,
    limits: Limits,
) -> Tiling:
    """Fewer FLOPs at the same transfers: longer steps where a state is corrected in each."""
    _, still = variables(t, shape.group, shape.loops)
    rescaled: set[str] = {a for b in program.boxes if corrections(b) for a in b.over if a in program.loops}
    which: list[Var] = [v for v in still if v[0] == "stream" and v[1] in rescaled and v[1] not in batch]
    return enlarge(t, tiling, which, setting.sizes, capacity, limits.align)


def least_memory(t: Terms, shape: Shape, setting: Setting, align: Mapping[str, int]) -> int:
    """The bytes that a shape needs with its smallest tiles."""
    ring = numbers(
        setting.sizes,
        {a: min(align.get(a, 1), setting.sizes[a]) for a in shape.group},
        {a: min(align.get(a, 1), setting.sizes[a]) for a in shape.loops},
    )
    return -(-int(np.max(bits(t, ring))) // 8)
