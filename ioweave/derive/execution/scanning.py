"""Scans in counted memory: the boxes of a recurrence run together, one element of its axis after another.

The value before a step is held in the scan's state until the next step begins, so that later boxes may read
it; where steps are single elements that take over its bytes, the one variable is overwritten in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from ioweave.derive.execution.frames import Frame
from ioweave.derive.execution.grid import Grid, Reader, Values, values_of
from ioweave.derive.execution.memory import CountedMemory, Held
from ioweave.derive.execution.trace import Before, Carry, Run
from ioweave.derive.program.program import Variable
from ioweave.diagrams.boxes import PREV, Box
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.scans import Walk, carried_axes

Place = tuple[slice, ...]


class Region(Protocol):
    """What a scanner asks of the region that runs."""

    memory: CountedMemory

    def compute(self, event: Run, box: Box, old: Held | None = None) -> Values:
        """The values of a box on the event's grid, its arithmetic counted."""

    def filled(self, event: Run, old: Held | None, part: Values) -> Held:
        """A result with the part that one trip gives it."""

    def room(self, variable: Variable, frame: Frame) -> Held:
        """Room for a variable, with nothing in it."""

    def slices(self, event: Run) -> Reader:
        """Reads from what is held."""

    def skip(self, event: Run) -> None:
        """A result that is not computed on this tile."""


class Scanner:
    """The scans of one region's run; ``table`` has the variables by name, ``box_of`` the box of every name."""

    def __init__(self, region: Region, table: dict[str, Variable], box_of: Callable[[str], Box]) -> None:
        self.region, self.memory, self.table, self.box_of = region, region.memory, table, box_of
        self.before: dict[str, Held] = {}  # by tile: the value before the element at hand
        self.pending: dict[str, list[tuple[Place, Values]]] = {}  # by state: what the next step starts from

    def start(self, carry: Carry, frame: Frame) -> None:
        """Room for a state, with the start in it where no column has set it."""
        walk, name = carry.walk, carry.variable
        self.pending.pop(name, None)
        if carry.start is not None and name in self.memory.held:
            return
        room = self.empty(walk, self.table[name], frame)
        if carry.start is None:
            box = self.box_of(walk.scan)
            at = {a: (lo, lo + n) for a, lo, n in zip(*self.carried(box, room), strict=True)}
            grid = Grid.over(at, frame.names)
            values = np.broadcast_to(values_of(walk.start, grid, _unread), [grid.extent(a) for a in at])
            room = replace(room, values=np.array(values, dtype=float).reshape(room.values.shape))
        self.memory.put(name, room)

    def empty(self, walk: Walk, variable: Variable, frame: Frame) -> Held:
        """Room for a state; one element of the scan's axis where the state is the array itself."""
        single = walk.carried == walk.tile
        inside = {**frame.inside, walk.axis: (0, 1)} if single else frame.inside
        return self.region.room(variable, replace(frame, inside=inside))

    def carried(self, box: Box, held: Held) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
        """The axes of a state, where what is held of them starts, and how long it is."""
        axes = carried_axes(box)
        if len(held.lows) == len(axes):
            return axes, held.lows, held.values.shape
        k = next(i for i, a in enumerate(box.axes) if a not in axes)
        return axes, _without(held.lows, k), _without(held.values.shape, k)

    def run(self, event: Run) -> None:
        """One column along a scan: the last of its line runs them all."""
        column, walk, box = event.column, event.column.walk, event.column.box
        assert walk is not None
        assert box is not None
        name = column.variable or ""
        taken = () if column.taken is None else (column.taken,)
        self.memory.keep_only({*column.live, *taken, name, walk.carried or name})
        if walk.begins:
            self.begin(event, box, name)
            return
        self.commit(walk)
        leader = event if event.leader is None else event.leader
        if leader.runs and walk.tile not in self.memory.held and walk.tile in column.live:
            self.memory.put(walk.tile, self.region.room(self.table[walk.tile], event.frame))
        if event.leader is not None:
            self.memory.held.pop(name, None)
            if event.runs:
                self.memory.put(name, self.region.room(self.table[name], event.frame))
                self.memory.measure(column.live, column.title)
        elif event.runs:
            self.steps(event, box, walk)
        else:
            self.known(event, box, walk)

    def begin(self, event: Run, box: Box, name: str) -> None:
        """Set a state before its loop."""
        walk = event.column.walk
        assert walk is not None
        held = self.empty(walk, self.table[name], event.frame)
        values: Values | float = np.nan if event.value is None else event.value
        if event.runs:
            values = self.region.compute(event, box).reshape(held.values.shape)
        self.memory.put(name, replace(held, values=np.array(np.broadcast_to(values, held.values.shape), dtype=float)))
        if event.runs:
            self.memory.measure(event.column.live, event.column.title)

    def commit(self, walk: Walk) -> None:
        """The last element of the step before becomes the value that this one starts from."""
        for place, values in self.pending.pop(walk.carried or "", ()):
            held = self.memory.held[walk.carried or ""]
            now = held.values.copy()
            now[place] = values
            self.memory.put(walk.carried or "", replace(held, values=now))

    def known(self, event: Run, box: Box, walk: Walk) -> None:
        """A step whose values predicates alone decide, or that nobody wants."""
        value = np.nan if event.value is None else event.value
        if walk.carried == walk.tile:
            self.overwrite(event, box, walk, np.full([event.grid.extent(a) for a in carried_axes(box)], value))
            return
        self.region.skip(event)
        if walk.carried is not None:
            self.keep(event, box, walk, np.full([event.grid.extent(a) for a in carried_axes(box)], value))

    def steps(self, event: Run, box: Box, walk: Walk) -> None:
        """Every element of a step in order, with all that is made along with it."""
        lo, hi = event.grid.bounds[walk.axis]
        k = box.axes.index(walk.axis)
        self.before[walk.tile] = self.first(event, box, walk)
        made: list[Values] = []
        for t in reversed(range(lo, hi)) if walk.backward else range(lo, hi):
            for other in event.along:
                if other.runs:
                    self.element(other, walk, t)
            one = self.region.compute(replace(event, grid=event.grid.narrowed(walk.axis, t, t + 1)), box)
            made.append(one)
            before = np.squeeze(one, axis=k)
            self.before[walk.tile] = replace(self.before[walk.tile], values=before, lows=self.lows(event, box))
            if walk.carried is None:  # later elements may read any of the earlier ones
                part = np.concatenate(made[::-1] if walk.backward else made, axis=k)
                whole = np.full([event.grid.extent(a) for a in box.axes], np.nan)
                where = slice(hi - len(made), hi) if walk.backward else slice(lo, lo + len(made))
                whole[(*[slice(None)] * k, slice(where.start - lo, where.stop - lo))] = part
                self.put(event, whole)
        result = np.concatenate(made[::-1] if walk.backward else made, axis=k)
        last = np.squeeze(made[-1], axis=k)
        if walk.carried == walk.tile:
            self.overwrite(event, box, walk, last)
            self.memory.measure(event.column.live, event.column.title)
            return
        if walk.carried is not None:
            self.keep(event, box, walk, last)
        if walk.tile in event.column.live:
            self.put(event, result)
            self.memory.measure(event.column.live, event.column.title)
        else:  # it takes over an operand's place
            self.memory.measure(event.column.live, event.column.title)
            self.put(event, result)

    def put(self, event: Run, part: Values) -> None:
        """Hold the elements made so far."""
        name = event.column.variable or ""
        self.memory.put(name, self.region.filled(event, self.memory.held.get(name), part))

    def lows(self, event: Run, box: Box) -> tuple[int, ...]:
        """Where the indices of a state start that a step makes."""
        return tuple(event.grid.bounds[a][0] for a in carried_axes(box))

    def element(self, event: Run, walk: Walk, t: int) -> None:
        """One element of a box that is made along with a scan."""
        box, name = event.column.box, event.column.variable or ""
        assert box is not None
        values = self.region.compute(replace(event, grid=event.grid.narrowed(walk.axis, t, t + 1)), box)
        lows = tuple(t if a == walk.axis else event.grid.bounds[a][0] for a in box.axes)
        self.memory.put(name, replace(self.region.room(self.table[name], event.frame), values=values, lows=lows))

    def first(self, event: Run, box: Box, walk: Walk) -> Held:
        """The value before the first element of a step."""
        if walk.carried is None:
            axes = carried_axes(box)
            grid = Grid.over({a: event.grid.bounds[a] for a in axes}, event.grid.names)
            values = values_of(walk.start, grid, self.region.slices(event))
            values = np.array(np.broadcast_to(values, [grid.extent(a) for a in axes]), dtype=float)
            return Held(values, self.lows(event, box), values.size, "fp64")
        held = self.memory.held[walk.carried]
        _, lows, shape = self.carried(box, held)
        return replace(held, values=held.values.reshape(shape), lows=lows)

    def keep(self, event: Run, box: Box, walk: Walk, last: Values) -> None:
        """Keep the last element of a step for the next, beside the state that later boxes may still read."""
        held = self.memory.held[walk.carried or ""]
        bounds = [event.grid.bounds[a] for a in carried_axes(box)]
        place = tuple(slice(lo - low, hi - low) for (lo, hi), low in zip(bounds, held.lows, strict=True))
        self.pending.setdefault(walk.carried or "", []).append((place, last))

    def overwrite(self, event: Run, box: Box, walk: Walk, last: Values) -> None:
        """Put an element in the place of the one before it."""
        held = self.memory.held[walk.tile]
        k = box.axes.index(walk.axis)
        bounds = [event.grid.bounds[a] for a in box.axes]
        lows = (*held.lows[:k], bounds[k][0], *held.lows[k + 1 :])
        values = held.values.copy()
        values[tuple(slice(lo - low, hi - low) for (lo, hi), low in zip(bounds, lows, strict=True))] = np.expand_dims(
            last, k
        )
        self.memory.put(walk.tile, replace(held, values=values, lows=lows))

    def seen(self, event: Run, read: Read, held: Held | None) -> Held | None:
        """What a read of a scan finds: the element before, or the elements of a step with the one before them."""
        walk = event.column.walk
        if read.array.endswith(PREV) and walk is not None:
            return self.before.get(walk.tile)
        state = next((v for r, v in event.column.sources if r.array == read.array + PREV), None)
        if walk is not None or state is None:
            return held
        box, before = self.box_of(read.array), self.memory.held[state]
        assert box.scan is not None
        k = box.axes.index(box.scan.axis)
        if held is None:  # no element of the step is made: predicates decide them, or nobody wants them
            lo, hi = event.grid.bounds[box.scan.axis]
            made = event.sources[read]
            assert isinstance(made, Before)
            known = {v.value for v in made.visits if v.grid.bounds[box.scan.axis] == (lo, hi)}
            value = next((v for v in known if v is not None), np.nan)
            values = np.repeat(np.full_like(np.expand_dims(before.values, k), value), hi - lo, axis=k)
            held = replace(before, values=values, lows=(*before.lows[:k], lo, *before.lows[k:]))
        part = _cover(before, _without(held.lows, k), _without(held.values.shape, k))
        pair = (held.values, np.expand_dims(part, k)) if box.scan.backward else (np.expand_dims(part, k), held.values)
        low = held.lows[k] - (0 if box.scan.backward else 1)
        lows = (*held.lows[:k], low, *held.lows[k + 1 :])
        return replace(held, values=np.concatenate(pair, axis=k), lows=lows)


def _cover(held: Held, lows: tuple[int, ...], shape: tuple[int, ...]) -> Values:
    """The part of what is held from ``lows`` on."""
    return held.values[tuple(slice(a - b, a - b + n) for a, b, n in zip(lows, held.lows, shape, strict=True))]


def _without(items: tuple[int, ...], k: int) -> tuple[int, ...]:
    return (*items[:k], *items[k + 1 :])


def _unread(r: Read, grid: Grid) -> Values:
    raise TypeError(f"{r.array} is read in a start that no box has made")
