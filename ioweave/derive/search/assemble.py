"""From the regions that a search chose to a levelled diagram, with the steps that lead there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ioweave.derive.counting.levelled import place
from ioweave.derive.rewrites.fuse import fuse
from ioweave.derive.rewrites.group import group
from ioweave.derive.rewrites.hold import hold
from ioweave.derive.rewrites.open_composite import open_composite
from ioweave.derive.rewrites.recompute import fresh_name, recompute
from ioweave.derive.rewrites.regions import Check, component_names, components
from ioweave.derive.rewrites.stream import stream
from ioweave.derive.rewrites.unfused import unfused
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.lists import leaders
from ioweave.diagrams.opening import can_open, open_diagram
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.steps import Step


@dataclass(frozen=True)
class Placement:
    """One region of a schedule: boxes of the opened diagram, the arrays it stores, its tiles and holds.

    Axes are components of the opened diagram; ``stream`` is in order, outermost first.
    """

    boxes: tuple[str, ...]
    stored: frozenset[str]
    group: Mapping[str, int] = field(default_factory=dict)
    stream: tuple[tuple[str, int], ...] = ()
    hold: tuple[tuple[str, int], ...] = ()


def assemble(
    diagram: Diagram,
    placements: Sequence[Placement],
    values: Mapping[str, int | float],
    accumulate: str = "fp32",
    levels: tuple[str, ...] = ("gmem", "smem"),
) -> tuple[Levelled, tuple[Step, ...]]:
    """The levelled diagram of a schedule, ``placements`` in order of execution, and its derivation.

    Lines that no region parts stay whole; composites that one parts are opened; what a later
    region computes again is a copy under a fresh name. Replaying the steps on `unfused` gives
    the same levelled diagram. ``values`` gives every name its number: a group tile of a whole
    axis is left out. Raises Refused where a region cannot be run as written, and for a schedule
    that does not store what it reads or what the diagram puts out.
    """
    kept = needed(open_diagram(diagram), placements)
    builder = _Builder(unfused(diagram, levels))
    builder.open(kept)
    builder.copy(kept)
    builder.fuse()
    builder.tile(kept, values)
    place(builder.levelled, values, accumulate)
    return builder.levelled, tuple(builder.steps)


def placing(values: Mapping[str, int | float], accumulate: str = "fp32") -> Check:
    """The check of a rewrite that expands the region into its program: what passes can be counted and run."""
    return lambda levelled: place(levelled, values, accumulate)


def needed(opened: Opened, placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """The placements with only the boxes and stores that something needs; an array is stored once, by the first."""
    known = {b.name: b for b in opened.boxes}
    by: dict[str, int] = {}
    for k, p in enumerate(placements):
        for name in p.stored:
            by.setdefault(name, k)
    missing = [n for n in opened.outputs if n not in by]
    if missing:
        raise Refused(f"no region stores {', '.join(missing)}, which the diagram puts out")
    wanted = set(opened.outputs)
    result: list[Placement] = []
    for k in reversed(range(len(placements))):
        p = placements[k]
        stored = frozenset(n for n in p.stored if by[n] == k and n in wanted)
        live: set[str] = set()
        frontier = list(stored)
        while frontier:
            name = frontier.pop()
            if name in live:
                continue
            if name not in p.boxes:
                raise Refused(f"a region stores {name} and does not compute it")
            live.add(name)
            frontier.extend(n for n in leaders(known[name]) if n in p.boxes)
            for r in known[name].reads():
                if r.array in p.boxes:
                    frontier.append(r.array)
                elif r.array in known:
                    if by.get(r.array, k) >= k:
                        raise Refused(f"{name} reads {r.array}, which no earlier region stores")
                    wanted.add(r.array)
        if live:
            result.append(_cut(p, tuple(b for b in opened.boxes if b.name in live), stored, known))
    return tuple(reversed(result))


def _cut(p: Placement, boxes: tuple[Box, ...], stored: frozenset[str], known: Mapping[str, Box]) -> Placement:
    """A placement with some of its boxes alone: without the tiles and holds that only the others had."""
    axes = {a for b in boxes for a in b.all_axes}
    every = dict.fromkeys(a for n in p.boxes for a in known[n].all_axes)
    for axis in (*p.group, *(a for a, _ in p.stream)):
        if axis not in every:
            raise Refused(f"no box of the region has an axis {axis}; its axes are {', '.join(every) or 'none'}")
    loaded = {r.array for b in boxes for r in b.reads()}
    return Placement(
        tuple(b.name for b in boxes),
        stored,
        {a: n for a, n in p.group.items() if a in axes},
        tuple((a, n) for a, n in p.stream if a in axes),
        tuple((a, sum(x in axes for x, _ in p.stream[:depth])) for a, depth in p.hold if a in loaded),
    )


class _Builder:
    """Applies rewrites one by one; used once. ``chosen[k]`` maps lines to their names in placement k."""

    def __init__(self, start: Levelled) -> None:
        self.start = start
        self.levelled = start
        self.steps: list[Step] = []
        self.chosen: list[dict[str, str]] = []

    def take(self, result: tuple[Levelled, Step]) -> None:
        self.levelled, step = result
        self.steps.append(step)

    def open(self, placements: Sequence[Placement]) -> None:
        """Open every composite line that some region computes or stores in part."""
        opened = open_diagram(self.start.diagram)
        for line in self.start.diagram.lines:
            if not can_open(line):
                continue
            boxes = {b.name for b in opened.boxes if b.line == line.name}
            if any(_parts(boxes, line.name, p) for p in placements):
                self.take(open_composite(self.levelled, line.name))

    def copy(self, placements: Sequence[Placement]) -> None:
        """A copy of every line for each region that computes it, but the one that keeps the line itself."""
        opened = open_diagram(self.levelled.diagram)
        line_of = {b.name: b.line for b in opened.boxes}
        order = [n.name for n in self.levelled.diagram.lines]
        self.chosen = [{n: n for n in order if any(line_of[b] == n for b in p.boxes)} for p in placements]
        keeper: dict[str, int] = {}
        for k, p in enumerate(placements):
            keeper.update({line_of[n]: k for n in p.stored})
        for k, names in enumerate(self.chosen):
            for line in names:
                keeper.setdefault(line, k)
        readers: dict[str, dict[str, None]] = {n: {} for n in order}
        for b in opened.boxes:
            for r in b.reads():
                if r.array in line_of and line_of[r.array] != b.line:
                    readers[line_of[r.array]].setdefault(b.line)
        # readers before what they read: a line never lacks a reader while copies are made
        for line in reversed(order):
            for k, names in enumerate(self.chosen):
                if line in names and keeper[line] != k:
                    copy = fresh_name(self.levelled.diagram, line)
                    mine = tuple(names[n] for n in readers[line] if n in names)
                    self.take(recompute(self.levelled, line, mine, copy))
                    names[line] = copy

    def fuse(self) -> None:
        """Join the lines of each placement."""
        for names in self.chosen:
            if len(names) > 1:
                self.take(fuse(self.levelled, tuple(names.values())))

    def tile(self, placements: Sequence[Placement], values: Mapping[str, int | float]) -> None:
        """Group, stream and hold, region by region; tiles of the start's axes go to what these are now."""
        before = open_diagram(self.start.diagram)
        after = open_diagram(self.levelled.diagram)
        base = dict(before.base)
        for p, names in zip(placements, self.chosen, strict=True):
            region = next(r.name for r in self.levelled.regions if set(r.lines()) == set(names.values()))
            now = components(component_names(_final(before.boxes, p, names)), after, region)
            for axis, size in p.group.items():
                if size < int(values[base[axis]]):
                    self.take(group(self.levelled, region, now[axis], size))
            for axis, size in p.stream:
                self.take(stream(self.levelled, region, now[axis], min(size, int(values[base[axis]]))))
            for array, depth in p.hold:
                self.take(hold(self.levelled, region, array, depth))


def _parts(boxes: set[str], line: str, p: Placement) -> bool:
    """Whether a region computes part of a line, or stores a part of it."""
    inside = boxes & set(p.boxes)
    return bool(inside) and (inside != boxes or bool((boxes - {line}) & p.stored))


def _final(boxes: Iterable[Box], p: Placement, names: Mapping[str, str]) -> list[tuple[Box, str]]:
    """The boxes of a placement, each with its name in the levelled diagram."""
    result = []
    for b in boxes:
        if b.name not in p.boxes:
            continue
        if b.name in names:  # a line, or a part that opening made one
            result.append((b, names[b.name]))
        else:
            result.append((b, names[b.line] + b.name.removeprefix(b.line)))
    return result
