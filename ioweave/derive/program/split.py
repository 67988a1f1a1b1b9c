"""Split reductions: a reduced axis grouped into more than one tile (counting.md 24).

Every instance stores the state of its plan; a merge, a region of its own, loads all states,
joins them over a further axis of parts, and runs the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ioweave.derive.program.held import held_dtypes
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.slots import times
from ioweave.derive.streaming.merge import PART, state_name
from ioweave.diagrams.boxes import OLD, RUNNING, Box, source
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Expr, Read, transform

ANY = 1 << 40  # more parts than any region has: a program of a merge does not depend on how many there are


def split_boxes(
    boxes: Sequence[Box], split: Sequence[str], stored: frozenset[str]
) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Boxes that run in the instances, and those that must wait for the merge.

    Raises Refused where a box walks a split axis and needs a reduction finished over it.
    """
    if not split:
        return tuple(boxes), ()
    when = times(boxes, split)
    for b in boxes:
        for axis, t in zip(split, when[b.name], strict=True):
            if t >= 2:
                raise Refused(
                    f"{b.name} walks {axis} and needs a reduction over all of {axis}, "
                    f"which is grouped: no instance has it; "
                    f"stream {axis} or leave it whole"
                )
    outer = tuple(b for b in boxes if any(when[b.name]))
    late = {b.name for b in outer}
    return tuple(b for b in boxes if b.name not in late), outer


def with_operands(inner: Sequence[Box], outer: Sequence[Box], at_hand: frozenset[str]) -> tuple[Box, ...]:
    """The tail with the boxes that it needs and that are neither states nor stored: it makes them itself."""
    made = {b.name: b for b in inner if b.name not in at_hand}
    wanted: set[str] = set()
    frontier = list(outer)
    while frontier:
        for r in frontier.pop().operands():
            name = source(r.array)
            if name in made and name not in wanted:
                wanted.add(name)
                frontier.append(made[name])
    return (*(b for b in inner if b.name in wanted), *outer)


def without_steps(boxes: Sequence[Box], loops: Sequence[str]) -> tuple[Box, ...]:
    """The boxes of an instance, where reductions that no loop walks are whole: nothing to correct or to carry on."""
    whole = {b.name for b in boxes if b.running and not any(a in loops for a in b.over)}
    if not whole:
        return tuple(boxes)

    def finished(e: Expr) -> Expr:
        if isinstance(e, Read) and e.array.endswith(RUNNING) and source(e.array) in whole:
            return Read(source(e.array), e.index)
        return e

    result = []
    for b in boxes:
        if any(r.array.endswith(OLD) and source(r.array) in whole for r in b.reads()):
            continue
        b = replace(b, body=transform(b.body, finished))
        result.append(replace(b, running=False, rescale=None, recentre=None) if b.name in whole else b)
    return tuple(result)


def merge_setting(setting: Setting, inner: Sequence[Box], kept: frozenset[str]) -> Setting:
    """The setting of the merge: shapes of the states with their axis of parts.

    The number of parts is that of the instances along the split axes; it is bound when the
    tiles are (`ioweave.derive.counting.levelled`).
    """
    sizes = {**setting.sizes, PART: ANY}
    shapes = dict(setting.shapes)
    dtypes = dict(setting.dtypes)
    held = held_dtypes(inner, setting.accumulate)
    for b in inner:
        if b.name in kept:
            shapes[state_name(b.name)] = (ANY, *(setting.sizes[a] for a in b.axes))
            dtypes[state_name(b.name)] = held[b.name]
    return replace(setting, sizes=sizes, shapes=shapes, dtypes=dtypes)
