"""The counts of a whole levelled diagram: every region, and the merges after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ioweave.derive.counting.region import count_region, merge_tiles
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.held import held_dtypes
from ioweave.derive.program.program import Program
from ioweave.derive.program.setting import Setting
from ioweave.derive.streaming.merge import PART, state_name
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.scans import scan_axes
from ioweave.hierarchy.counts import Flops, RegionCount, Transfers
from ioweave.hierarchy.levelled import Levelled, Region


@dataclass(frozen=True)
class Placed:
    """A region with its program, tiles and setting: what counting and execution start from."""

    region: Region
    program: Program
    tiles: Tiles
    setting: Setting
    buffers: int = 1


@dataclass(frozen=True)
class Counts:
    """The counts of every region (merges among them) and their sums."""

    regions: tuple[RegionCount, ...]
    placed: tuple[Placed, ...]

    @property
    def transfers(self) -> Transfers:
        """All transfers together."""
        total = Transfers(0, 0, {}, {})
        for r in self.regions:
            total = total + r.transfers
        return total

    @property
    def flops(self) -> Flops:
        """All FLOPs together."""
        total = Flops()
        for r in self.regions:
            total = total + r.flops
        return total

    @property
    def memory(self) -> int:
        """The largest memory of a region, in bytes."""
        return max(r.memory.bytes for r in self.regions)


def region_boxes(opened: Opened, region: Region) -> tuple[Box, ...]:
    """The boxes of a region's lines, in order."""
    lines = set(region.lines())
    return tuple(b for b in opened.boxes if b.line in lines)


def stored_arrays(opened: Opened, boxes: tuple[Box, ...]) -> frozenset[str]:
    """The arrays made by these boxes that leave them: read by other boxes, or outputs."""
    names = {b.name for b in boxes}
    read = {r.array for b in opened.boxes if b.name not in names for r in b.reads()}
    return frozenset(n for n in names if n in read or n in opened.outputs)


def place(levelled: Levelled, values: Mapping[str, int | float], accumulate: str = "fp32") -> tuple[Placed, ...]:
    """Every region's program at these sizes, merges after the regions they belong to.

    Raises Refused where a region cannot be run as written.
    """
    opened = open_diagram(levelled.diagram)
    setting = Setting.make(opened, values, accumulate)
    result: list[Placed] = []
    for region in levelled.regions:
        if any(not isinstance(m, str) for m in region.members):
            raise Refused(f"region {region.name} holds regions of further levels; two levels are counted")
        lowest = levelled.levels[-1]
        for array, level in region.place:
            if level != lowest:
                raise Refused(
                    f"{array} is placed at {level}; with two levels an array inside a region stays at {lowest}"
                )
        boxes = region_boxes(opened, region)
        # A tile as large as its axis is the axis (counting.md 15).
        group = {a: g for a, g in region.group if g < setting.sizes[a]}
        stream = {a: min(s, setting.sizes[a]) for a, s in region.stream}
        reduced = {a for b in boxes for a in b.over}
        split = tuple(a for a, g in group.items() if a in reduced)
        single = frozenset(a for a, s in stream.items() if s == 1)
        shape = Shape(tuple(group), tuple(stream), split, region.hold, single & scan_axes(boxes))
        program = build(region.name, boxes, stored_arrays(opened, boxes), shape, setting)
        inside = setting.with_lengths(program.lengths)
        tiles = Tiles(group, stream, inside.sizes)
        result.append(Placed(region, program, tiles, inside, region.buffers))
        if program.merge is not None:
            after = merge_tiles(program, tiles)
            merge_setting = _bind_parts(inside, program, after)
            implicit = Region(program.merge.name, region.level, (), (), tuple(after.stream.items()))
            result.append(Placed(implicit, program.merge, after, merge_setting))
    return tuple(result)


def _bind_parts(setting: Setting, program: Program, tiles: Tiles) -> Setting:
    held = held_dtypes(program.boxes, setting.accumulate)
    shapes, dtypes = dict(setting.shapes), dict(setting.dtypes)
    for s in (*program.stores, *program.known):
        if s.state:
            box = next(b for b in program.boxes if state_name(b.name) == s.array)
            shapes[s.array] = (tiles.sizes[PART], *(setting.sizes[a] for a in box.axes))
            dtypes[s.array] = held[box.name]
    return replace(setting, sizes=dict(tiles.sizes), shapes=shapes, dtypes=dtypes)


def count(
    levelled: Levelled,
    values: Mapping[str, int | float],
    accumulate: str = "fp32",
    integers: Mapping[str, Any] | None = None,
) -> Counts:
    """Exact counts of a levelled diagram for concrete sizes.

    ``integers`` are index arrays whose numbers are known, by name; what is looked up in others is counted as the
    most that it may be. Raises Refused where a region cannot be run as written (counting.md 15 to 17, 24, 26).
    """
    placed = place(levelled, values, accumulate)
    if integers is not None:
        placed = tuple(replace(p, setting=replace(p.setting, integers=integers)) for p in placed)
    return Counts(tuple(count_region(p.program, p.tiles, p.setting, p.buffers) for p in placed), placed)
