"""FLOPs by class (counting.md 29, 30): of the tiles that run, whole, ragged parts cut."""

from __future__ import annotations

from ioweave.derive.counting.footprints import Mask, total
from ioweave.derive.counting.masks import Survival
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.arithmetic_cost import operand_axes, operations, product_operations
from ioweave.derive.program.program import Column, Program
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.slots import corrections
from ioweave.derive.program.spans import Span, bare
from ioweave.hierarchy.counts import Flops


def count_flops(program: Program, tiles: Tiles, setting: Setting, survive: Survival | None) -> Flops:
    """The FLOPs of all instances of a region."""
    result = Flops(0, 0, 0)
    for column, _ in program.columns():
        if column.box is not None:
            result = result + column_flops(column, program, tiles, setting, survive)
    return result


def column_flops(column: Column, program: Program, tiles: Tiles, setting: Setting, survive: Survival | None) -> Flops:
    """The FLOPs of one column, over all instances and trips."""
    box, cost = column.box, column.cost
    assert box is not None
    assert cost is not None
    entered = frozenset(a for a, t in zip(program.loops, column.slot, strict=True) if t is not None and t % 2 == 0)
    run = None if survive is None else Mask(survive.entries, (survive.runs[box.name, column.slot],))
    spans: dict[str, Span] = dict(zip(box.axes, column.spans, strict=True))
    spans.update({a: bare(a, setting.sizes[a]) for a in box.over})

    def elements(axes: tuple[str, ...], mask: Mask | None) -> int:
        return total([tuple(spans[a] for a in axes)], entered, tiles, mask)

    mma = vector = special = 0
    groups = operand_axes(cost)
    if groups:
        mma = 2 * elements(box.all_axes, run)
        for factors, axes in groups:
            v, s = product_operations(factors)
            n = elements(axes, run) if v or s else 0
            vector, special = vector + v * n, special + s * n
    else:
        v, s = operations(cost.body)
        n = elements(cost.all_axes, run)
        vector, special = (v + (cost.reduction is not None)) * n, s * n
    corrected = len(corrections(box))
    if corrected:
        moves = None if survive is None else Mask(survive.entries, (survive.moves[box.name, column.slot],))
        vector += corrected * elements(box.axes, moves)
    return Flops(mma, vector, special)
