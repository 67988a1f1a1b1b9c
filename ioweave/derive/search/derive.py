"""Derive: the honest baseline, the cheapest schedule, and the steps from the one to the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ioweave.derive.counting.levelled import Counts, count
from ioweave.derive.counting.terms import terms
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.setting import Setting
from ioweave.derive.search.assemble import Placement, assemble
from ioweave.derive.search.found import Found
from ioweave.derive.search.partition import Space, Unit, shortest
from ioweave.derive.search.regions import Effort, Limits, Schedule, best_schedule, least_memory
from ioweave.derive.search.shapes import frame, groupings, sequences
from ioweave.derive.search.units import least_touched, units_of
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import DoesNotFit, Refused, WeaveError
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.scans import scan_axes
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.machines import Machine
from ioweave.hierarchy.quantities import format_bytes

PATIENCE = 40.0  # seconds after which a search gives its best so far


def _silent(_: str) -> None:
    return None


def derive(
    diagram: Diagram,
    values: Mapping[str, int | float],
    machine: Machine,
    *,
    capacity: int | None = None,
    accumulate: str = "fp32",
    align: Mapping[str, int] | None = None,
    levels: Sequence[str] = ("gmem", "smem"),
    patience: float = PATIENCE,
    watch: Callable[[str], None] = _silent,
) -> Found:
    """The schedule of ``diagram`` that moves fewest values between two levels of a machine.

    ``values`` gives every name of the diagram its number; ``capacity`` is in bytes and replaces
    the machine's; ``align`` maps axes to what their tiles must be multiples of; ``patience`` is
    in seconds. Raises DoesNotFit where nothing fits, with the least memory that would do.
    """
    start = time.monotonic()
    upper, lower = levels[0], levels[-1]
    room = machine.level(lower).capacity
    limit = capacity if capacity is not None else room.value if room is not None else None
    if limit is None:
        raise WeaveError(f"{lower} of {machine.name} has no capacity; say one, such as --capacity {lower}=128KiB")
    opened = open_diagram(diagram)
    setting = Setting.make(opened, values, accumulate)
    limits = Limits(limit, _component_aligns(opened, align or {}))
    units, most, space_of = units_of(diagram, opened)
    effort = Effort(deadline=start + patience)
    fitting = _fits(units, opened, setting, limits, lower, effort)
    before = baseline(diagram, opened, setting, limits, fitting, (upper, lower))
    space = Space(opened, units, setting, limits, most)
    touched = least_touched(opened, setting)
    found = shortest(space, effort, touched, watch, fitting)
    after, steps = assemble(diagram, [_placement(s) for s in found.schedules], values, accumulate, (upper, lower))
    after_counts = count(after, values, accumulate)
    before_counts = count(before, values, accumulate)
    rivals: tuple[tuple[Levelled, Counts], ...] = ()
    stopped = found.interrupted
    if after_counts.flops.mma > before_counts.flops.mma and not stopped:  # a product is taken twice: what if not?
        once = Space(opened, units, setting, replace(limits, repeats=False), most)
        other = shortest(once, Effort(deadline=effort.deadline), touched, watch, fitting, found)
        placed, _ = assemble(diagram, [_placement(s) for s in other.schedules], values, accumulate, (upper, lower))
        counts = count(placed, values, accumulate)
        stopped = other.interrupted
        if counts.flops.mma < after_counts.flops.mma:
            rivals = ((placed, counts),)
    sentence = (
        f"{space_of}; up to three streamed axes each in every order, every grouping, an axis grouped or streamed "
        "but not both, what is held; every tile size"
    )
    return Found(
        before,
        after,
        before_counts,
        after_counts,
        steps,
        effort.schedules,
        found.exact,
        sentence,
        time.monotonic() - start,
        stopped,
        rivals,
    )


def _component_aligns(opened: Opened, align: Mapping[str, int]) -> dict[str, int]:
    """Alignments of names as alignments of every component of the name."""
    base = dict(opened.base)
    for name in align:
        if name not in base.values():
            known = ", ".join(dict.fromkeys(base.values()))
            raise WeaveError(f"--align {name}: there is no axis {name}; the axes are {known}")
    return {a: align[n] for a, n in base.items() if n in align}


def _placement(s: Schedule) -> Placement:
    return Placement(
        tuple(b.name for b in s.boxes),
        s.stored,
        s.group,
        tuple((a, s.stream[a]) for a in s.shape.loops),
        s.shape.hold,
    )


def _whole_line(opened: Opened, line: str) -> tuple[Unit, frozenset[str]]:
    boxes = tuple(b for b in opened.boxes if b.line == line)
    return Unit(boxes, line), frozenset({boxes[-1].name})


def _fits(
    units: Sequence[Unit], opened: Opened, setting: Setting, limits: Limits, level: str, effort: Effort
) -> Mapping[str, Schedule]:
    """The best schedule of every line by itself; raises DoesNotFit where a unit fits in no way."""
    lines = list(dict.fromkeys(u.line for u in units))
    result: dict[str, Schedule] = {}
    short: dict[str, int] = {}
    for line in lines:
        unit, stored = _whole_line(opened, line)
        found = best_schedule(line, unit.boxes, stored, setting, limits, effort)
        if found is not None:
            result[line] = found
        else:
            short[line] = _least(unit, stored, setting, limits)
    if short:
        line = max(short, key=lambda k: short[k])
        least = dict.fromkeys((format_bytes(short[line]), f"{short[line]:,} B"))  # both, where one is rounded
        raise DoesNotFit(
            f"nothing fits {format_bytes(limits.capacity)} of {level}: {line} needs at least "
            f"{' ('.join(least)}{')' if len(least) > 1 else ''} with its smallest tiles",
            short[line],
        )
    return result


def _least(unit: Unit, stored: frozenset[str], setting: Setting, limits: Limits) -> int:
    """The least bytes in which a line can run at all."""
    least: int | None = None
    f = frame(unit.boxes, stored, setting)
    for loops in sequences(f):
        for group in groupings(f, loops):
            single = frozenset(a for a in scan_axes(unit.boxes) & set(loops) if limits.align.get(a, 1) == 1)
            shape = Shape(group, loops, unit=single)
            try:
                program = build(unit.line, unit.boxes, stored, shape, setting)
            except Refused:
                continue
            need = least_memory(terms(program, setting), shape, setting, limits.align)
            least = need if least is None else min(least, need)
    assert least is not None
    return least


def baseline(
    diagram: Diagram,
    opened: Opened,
    setting: Setting,
    limits: Limits,
    schedules: Mapping[str, Schedule],
    levels: tuple[str, str],
) -> Levelled:
    """Every line as written in a region of its own, with its own best tiles, in as many passes as it needs."""
    regions = []
    for line in diagram.lines:
        s = schedules[line.name]
        group = tuple((a, g) for a, g in s.group.items() if g < setting.sizes[a])
        stream = tuple((a, s.stream[a]) for a in s.shape.loops)
        regions.append(
            Region(line.name, levels[-1], (line.name,), group, stream, s.shape.hold, implicit=not (group or stream))
        )
    return Levelled(diagram, tuple(regions), levels)
