"""The best schedule of one region: every shape in order of its lower bound, tiles by branch and bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ioweave.derive.counting.region import count_region
from ioweave.derive.counting.terms import Terms, bits, numbers, terms, transfers
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.program import Program
from ioweave.derive.program.setting import Setting
from ioweave.derive.search.density import density
from ioweave.derive.search.masked import best_masked
from ioweave.derive.search.relaxed import Basis, Bound, basis, possible, relaxed
from ioweave.derive.search.shapes import frame, shapes
from ioweave.derive.search.tiling import Tiling, Var, best_tiles, candidates, enlarge, variables
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused
from ioweave.hierarchy.counts import RegionCount


@dataclass(frozen=True)
class Schedule:
    """A region with its shape and tiles: what it moves, and the program it runs."""

    boxes: tuple[Box, ...]
    stored: frozenset[str]
    shape: Shape
    group: Mapping[str, int]
    stream: Mapping[str, int]
    program: Program
    count: RegionCount
    exact: bool

    @property
    def values(self) -> int:
        """Transfers in values."""
        return self.count.transfers.values

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """The order of preference: transfers; a simpler shape; FLOPs, memory, and larger tiles."""
        tiles = sum(self.group.values()) + sum(self.stream.values())
        loops = len(self.shape.loops) + len(self.shape.hold)
        return (self.values, loops, self.count.flops.total, self.count.memory.bytes, -tiles)


@dataclass(frozen=True)
class Limits:
    """What a schedule must keep to: capacity in bytes, and tiles that are multiples."""

    capacity: int
    align: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Effort:
    """How much was looked at; and whether anything was passed over."""

    schedules: int = 0
    exact: bool = True


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
    f = frame(boxes, stored)
    dense = density(boxes, stored, setting)
    masked = dense is not None
    b = basis(f, boxes, stored, setting.shapes, setting.dtypes, setting.sizes, setting.accumulate, dense)
    capacity = limits.capacity * 8
    options = {a: candidates(setting.sizes[a], limits.align.get(a, 1)) for a in f.axes}
    best: Schedule | None = None
    tried: dict[tuple[object, ...], bool] = {}
    for shape in sorted(shapes(f), key=_complexity):
        effort.schedules += 1
        most = ceiling if best is None or _complexity(shape) <= _complexity(best.shape) else ceiling - 1
        bound = relaxed(b, shape)
        key = bound.key
        if tried.get(key) is False:
            continue
        tried[key] = possible(bound, b, options, capacity, most)
        if not tried[key]:
            continue
        candidate = _expand(name, boxes, stored, shape, b, bound, setting, limits, most, masked, effort)
        if candidate is not None and (best is None or candidate.rank < best.rank):
            best = candidate
            ceiling = min(ceiling, best.values)
    return best


def _complexity(shape: Shape) -> tuple[int, int]:
    """How much there is to a shape: its loops and holds, then its groups."""
    return len(shape.loops) + len(shape.hold), len(shape.group)


def _expand(
    name: str,
    boxes: tuple[Box, ...],
    stored: frozenset[str],
    shape: Shape,
    b: Basis,
    bound: Bound,
    setting: Setting,
    limits: Limits,
    ceiling: float,
    masked: bool,
    effort: Effort,
) -> Schedule | None:
    """The best tiles of one shape, with the full program and the exact count."""
    try:
        program = build(name, boxes, stored, shape, setting)
    except Refused:
        return None
    t = terms(program, setting)
    f = b.frame
    capacity = limits.capacity * 8
    if masked or not t.exact:
        tiling = best_masked(program, t, bound, b, shape, setting, capacity, ceiling, limits.align)
    else:
        tiling = best_tiles(t, shape.group, shape.loops, f.batch, setting.sizes, capacity, ceiling, limits.align)
        if tiling is not None:
            tiling = _break_ties(program, t, shape, f.batch, tiling, setting, capacity, limits)
    if tiling is None:
        return None
    effort.exact = effort.exact and tiling.exact
    group = {a: int(tiling.tiles["group", a]) for a in shape.group}
    stream = {a: int(tiling.tiles["stream", a]) for a in shape.loops}
    count = count_region(program, Tiles(group, stream, setting.sizes), setting)
    return Schedule(boxes, stored, shape, group, stream, program, count, tiling.exact)


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
    """Fewer FLOPs at the same transfers: longer steps where a state is rescaled in each."""
    _, still = variables(t, shape.group, shape.loops)
    rescaled: set[str] = {
        a for b in program.boxes if b.rescale is not None for a in b.over if a in program.loops
    }
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


__all__ = ["Effort", "Limits", "Schedule", "best_schedule", "least_memory", "transfers"]
