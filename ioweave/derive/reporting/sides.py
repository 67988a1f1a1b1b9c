"""One side of a report: a levelled diagram's counts with formulas and a first estimate of time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ioweave.derive.bounds.needed import compulsory
from ioweave.derive.counting.levelled import Counts, Placed
from ioweave.derive.program.arithmetic_cost import operand_axes
from ioweave.derive.reporting.formulas import written_formulas
from ioweave.derive.reporting.target import Target
from ioweave.diagrams.dtypes import DTYPES, widest
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.counts import Memory, RegionCount
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.quantities import Bytes, format_bytes
from ioweave.hierarchy.report import RegionRow, Side, Tally
from ioweave.hierarchy.time import TimeEstimate, estimate_time


def make_side(levelled: Levelled, counts: Counts, values: Mapping[str, int | float], target: Target) -> Side:
    """The side of a report for a levelled diagram and its counts at ``values``."""
    whole, formulas = written_formulas(counts)
    rows = tuple(
        _row(p, r, target.levels[-1], Tally(r.transfers, r.memory, r.flops, f))
        for p, r, f in zip(counts.placed, counts.regions, formulas, strict=True)
    )
    tally = Tally(counts.transfers, largest_memory(counts), counts.flops, whole)
    return Side(target.levels[-1], tally, rows, seconds(levelled, counts, values, target), levelled)


def largest_memory(counts: Counts) -> Memory:
    """The memory of the region that holds most."""
    return max((r.memory for r in counts.regions), key=lambda m: m.bytes)


def seconds(levelled: Levelled, counts: Counts, values: Mapping[str, int | float], target: Target) -> TimeEstimate:
    """Transfers over bandwidth against FLOPs over peaks; dtypes are those of most of the work."""
    upper, lower = target.levels
    moved = Bytes(counts.transfers.bytes)
    least = Bytes(compulsory(open_diagram(levelled.diagram), values).bytes)
    mma = _mma_dtype(counts)
    vector = widest(
        [d for d in {x for p in counts.placed for x in p.setting.dtypes.values()} if _is_float(d)] or ["fp32"]
    )
    vector = vector if DTYPES[vector].bits > 32 else "fp32"
    return estimate_time(
        target.machine, moved, least, counts.flops, levels=(upper, lower), mma_dtype=mma, vector_dtype=vector
    )


def over_capacity(counts: Counts, target: Target) -> tuple[str, ...]:
    """A sentence for each region that needs more memory than there is."""
    capacity = target.capacity.value
    return tuple(
        f"region {r.name} holds {format_bytes(r.memory.bytes)} at {r.memory.column}, more than the "
        f"{format_bytes(capacity)} of {target.levels[-1]}"
        for r in counts.regions
        if r.memory.bytes > capacity
    )


def _row(placed: Placed, counted: RegionCount, level: str, tally: Tally) -> RegionRow:
    region = placed.region
    lines = region.lines()
    boxes = lines or tuple(b.name for b in placed.program.boxes)
    tiles = placed.tiles
    return RegionRow(
        name=counted.name,
        level=region.level or level,
        group=tuple(tiles.group.items()),
        stream=tuple(tiles.stream.items()),
        hold=region.hold if lines else (),
        place=region.place,
        boxes=tuple(dict.fromkeys(boxes)),
        instances=counted.instances,
        passes=counted.passes,
        tally=tally,
    )


def _mma_dtype(counts: Counts) -> str:
    """The dtype of the factors in most of the matrix products."""
    work: dict[str, int] = {}
    for p in counts.placed:
        for box in p.program.boxes:
            if operand_axes(box):
                dtype = widest([p.setting.dtypes[r.array] for r in box.reads() if r.array in p.setting.dtypes])
                work[dtype] = work.get(dtype, 0) + prod(p.setting.sizes[a] for a in box.all_axes)
    return max(work, key=lambda d: work[d]) if work else "fp16"


def _is_float(dtype: str) -> bool:
    return DTYPES[dtype].kind == "float"
