"""Execution in counted memory: a region's program on NumPy, every move and every byte counted.

Loads are counted by marking the elements that they touch in an array of the loaded array's own
shape; FLOPs by the sizes of the arrays that are computed. Nothing here is shared with the
analytic counter but the cost of one element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ioweave.derive.counting.levelled import Placed
from ioweave.derive.execution.frames import Frame, frames
from ioweave.derive.execution.grid import Grid, Values, block, gather, reduce, values_of
from ioweave.derive.execution.lists import Joiner, empty, finished
from ioweave.derive.execution.memory import CountedMemory, Held
from ioweave.derive.execution.scanning import Scanner
from ioweave.derive.execution.touching import block_of, block_union, hull, mark, room_for
from ioweave.derive.execution.trace import Fill, Filled, Open, Put, Run, Start, trace
from ioweave.derive.program.arithmetic_cost import operand_axes, operations, product_operations
from ioweave.derive.program.program import Store, Variable
from ioweave.derive.program.reach import Reach
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.boxes import OLD, Box
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.lists import holds_positions, is_list, neutral_term
from ioweave.hierarchy.counts import Flops, Memory, RegionCount, Transfers

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


@dataclass(frozen=True)
class Execution:
    """What a levelled diagram did: every array that was stored, and the counts of every region as they were counted."""

    arrays: Mapping[str, Values]
    regions: tuple[RegionCount, ...]

    @property
    def loads(self) -> dict[str, int]:
        """Values loaded per array, over all regions."""
        return _sum(r.transfers.loads for r in self.regions)

    @property
    def stores(self) -> dict[str, int]:
        """Values stored per array, over all regions."""
        return _sum(r.transfers.stores for r in self.regions)


def execute(placed: Sequence[Placed], inputs: Mapping[str, Values], capacity: int | None = None) -> Execution:
    """Run placed regions in order on arrays of the inputs.

    Raises `DoesNotFit` where a column takes more than ``capacity`` bytes.
    """
    arrays: dict[str, Values] = {name: np.asarray(a) for name, a in inputs.items()}
    with np.errstate(all="ignore"):
        regions = tuple(_Region(p, arrays, capacity).count() for p in placed)
    return Execution(arrays, regions)


def _sum(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for table in tables:
        for name, n in table.items():
            total[name] = total.get(name, 0) + n
    return total


class _Region:
    """One region's run: its memory, its counts, the arrays outside."""

    def __init__(self, placed: Placed, arrays: dict[str, Values], capacity: int | None) -> None:
        self.program, self.setting, self.stream = placed.program, placed.setting, placed.tiles.stream
        self.arrays, self.buffers = arrays, placed.buffers
        free = frozenset(v.name for v in self.program.variables if v.array in self.program.free)
        self.memory = CountedMemory(capacity, free)
        self.mma = self.vector = self.special = 0
        self.table = {v.name: v for v in self.program.variables}
        self.stores = {s.variable: s for s in (*self.program.stores, *self.program.known)}
        self.boxes = {c.box.name: (c.box, c.spans) for c, _ in self.program.columns() if c.box is not None}
        sizes = self.setting.sizes
        names = {**self.setting.constants, **sizes}
        self.frames = list(frames(self.program.grouped, self.program.split, placed.tiles.group, sizes, names))
        self.parts = 1 + max(f.part for f in self.frames)
        self.bases: dict[str, tuple[tuple[object, ...], Held]] = {}
        self.lists = Joiner(self.setting.sizes)
        self.scans = Scanner(self, self.table, lambda name: self.boxes[name][0])
        self.written: dict[str, Values] = {}  # what the present instance has stored
        for s in self.stores.values():
            self.arrays[s.array] = np.full(self.shape(s), np.nan)

    def shape(self, s: Store) -> tuple[int, ...]:
        variable = self.table[s.variable]
        box = next(b for b in self.program.boxes if b.name == variable.array)
        own = tuple(self.setting.sizes[a] for a in box.axes)
        return (self.parts, *own) if s.state else own

    def count(self) -> RegionCount:
        """Run every instance and report."""
        for frame in self.frames:
            self.memory.held.clear()
            self.bases.clear()
            self.scans.pending.clear()
            self.written = {s.array: np.zeros(self.shape(s), dtype=bool) for s in self.stores.values()}
            for load in self.program.given:
                array = self.arrays[load.array]
                self.memory.put(load.variable, Held(array, (0,) * array.ndim, 0, "fp64"))
            for event in trace(self.program, frame, self.stream):
                match event:
                    case Fill():
                        self.fill(event)
                    case Open():
                        self.open(event)
                    case Start():
                        self.start(event)
                    case Run():
                        self.run(event)
                    case Put():
                        self.put(event)
        loads, stores = self.memory.loads, self.memory.stores
        bits = loads.bits + stores.bits
        moved = Transfers(
            sum(loads.values.values()) + sum(stores.values.values()), -(-bits // 8), loads.values, stores.values
        )
        flops = Flops(self.mma, self.vector, self.special)
        values = self.memory.most if len(self.program.dtypes) <= 1 else None
        held = Memory(self.memory.peak, values, self.memory.column)
        return RegionCount(self.program.name, moved, held, flops, len(self.frames), self.program.passes)

    # -- columns

    def fill(self, event: Fill) -> None:
        """Load every slab that some surviving read needs."""
        self.memory.keep_only(event.column.live)
        happened = False
        for filled in event.fills:
            self.memory.held.pop(filled.load.variable, None)  # what an earlier trip left
            if filled.survivors:
                self.load(filled)
                happened = True
        if happened:
            self.memory.measure(event.column.live, event.column.title)

    def load(self, filled: Filled) -> None:
        """Copy what the surviving reads touch into a slab that has room for all reads of the load."""
        load = filled.load
        source = self.arrays[load.array]
        variable = self.table[load.variable]
        wanted = [(read, self.reader(name, filled.frame, variable.entered)) for name, read in load.reads]
        copies = self.buffers if variable.entered else 1
        at = None if len(wanted) > 1 else block_of(*wanted[0], source.shape)
        if at is not None and block_union(filled.survivors, source.shape) == at:
            values = source[at].copy()
            count = room = values.size
        else:
            touched, place = np.zeros(source.shape, dtype=bool), np.zeros(source.shape, dtype=bool)
            for read, grid in filled.survivors:
                mark(touched, read, grid, self.outside)
            for read, grid in wanted:
                mark(place, read, grid, self.outside)
            at = hull(place)
            here = touched[at]
            values = source[at].copy() if here.all() else np.where(here, source[at], np.nan)
            count, room = int(np.count_nonzero(touched)), int(np.count_nonzero(place))
            if any(isinstance(s, Reach) for piece in load.pieces for s in piece):
                room = room_for(load, [grid for _, grid in wanted], source.shape)
        self.memory.loads.move(load.label, count, variable.dtype)
        lows = tuple(s.start for s in at)
        self.memory.put(load.variable, Held(values, lows, room, variable.dtype, copies))

    def outside(self, read: Read, grid: Grid) -> Values:
        """What an index array outside holds."""
        array = self.arrays[read.array]
        if not read.index:
            return array.reshape([1] * grid.rank)
        index = tuple(grid.form(f, self.outside) for f in read.index)
        return gather(array.astype(float), index, (0,) * array.ndim, np.nan)

    def reader(self, name: str, frame: Frame, entered: frozenset[str]) -> Grid:
        """The indices of a reading box over all that one filling serves."""
        box, spans = self.boxes[name]
        return frame.grid(box, spans, entered)

    def start(self, event: Start) -> None:
        """Set states to their identities, and those of scans to their starts."""
        for carry in event.carries:
            self.scans.start(carry, event.frame)
        for state in event.states:
            variable = self.table[state.variable]
            held, room = self.memory.held.get(state.variable), self.room(variable, event.frame)
            if held is None or (held.lows, held.values.shape) != (room.lows, room.values.shape):
                held = room
            values = held.values.copy()  # what other trips of the loops around have made stays
            inner = event.frame.lows(replace(variable, entered=frozenset(event.frame.inside)))
            part = tuple(slice(lo - low, hi - low) for (lo, hi), low in zip(inner, held.lows, strict=True))
            box = self.boxes[variable.array][0]
            values[part] = empty(box) if is_list(box) else neutral_term(box)
            self.memory.put(state.variable, replace(held, values=values))

    def room(self, variable: Variable, frame: Frame) -> Held:
        """Room for a variable, with nothing in it."""
        intervals = frame.lows(variable)
        values = np.full([hi - lo for lo, hi in intervals], np.nan)
        return Held(values, tuple(lo for lo, _ in intervals), values.size, variable.dtype)

    def open(self, event: Open) -> None:
        """Make room for a result that a loop fills part by part, if any part is wanted; what was there is dropped."""
        self.memory.held.pop(event.variable, None)
        if any(v.wanted for v in event.visits):
            self.memory.put(event.variable, self.room(self.table[event.variable], event.frame))

    def run(self, event: Run) -> None:
        """Run a box on real slices, accumulate into its state, and count its arithmetic."""
        column, box = event.column, event.column.box
        assert box is not None
        assert column.variable is not None
        if column.walk is not None:
            self.scans.run(event)
            return
        name = column.variable
        taken = () if column.taken is None else (column.taken,)
        self.memory.keep_only({*column.live, *taken, name})
        old = self.memory.held.get(name)
        if event.state is not None:
            assert old is not None
            old = self.before(event, old)
            if name + OLD in self.table:
                self.memory.put(name + OLD, self.cut(event, old, self.table[name + OLD]))
        if not event.runs and not event.moves:
            if event.state is None:
                self.skip(event)
            return
        result = self.compute(event, box, old if event.state is not None else None) if event.runs else None
        if event.state is not None:
            assert old is not None
            now = self.memory.held[name]
            held = replace(now, values=self.accumulate(event, box, old, now, result))
        else:
            assert result is not None
            held = self.filled(event, old, result)
        if name in column.live:
            self.memory.put(name, held)
            self.memory.measure(column.live, column.title)
        else:  # it takes over an operand's place
            self.memory.measure(column.live, column.title)
            self.memory.put(name, held)

    def skip(self, event: Run) -> None:
        """A result that is not computed on this tile: what an earlier trip left is dropped, a known part is written."""
        box, name = event.column.box, event.column.variable
        assert box is not None
        assert name is not None
        value = empty(box) if is_list(box) else event.value
        part = np.full([event.grid.extent(a) for a in box.axes], np.nan if value is None else value)
        held = self.filled(event, self.memory.held.get(name), part)
        if held.values.shape == part.shape:
            self.memory.held.pop(name, None)
        elif event.wanted:
            self.memory.put(name, held)

    def before(self, event: Run, now: Held) -> Held:
        """The state before the present step: where a loop inside the step repeats a box, it starts from it again."""
        assert event.state is not None
        assert event.column.box is not None
        step = (id(event.state), *(event.grid.bounds[a] for a in event.column.box.over))
        name = event.state.variable
        if name not in self.bases or self.bases[name][0] != step:
            self.bases[name] = (step, now)
        return self.bases[name][1]

    def cut(self, event: Run, held: Held, variable: Variable) -> Held:
        """The part of what is held that a variable covers in this trip."""
        intervals = event.frame.lows(variable)
        at = tuple(slice(lo - low, hi - low) for (lo, hi), low in zip(intervals, held.lows, strict=True))
        values = held.values[at]
        return Held(values, tuple(lo for lo, _ in intervals), values.size, variable.dtype)

    def filled(self, event: Run, old: Held | None, part: Values) -> Held:
        """A result with the part that one trip gives it; the parts of other trips stay."""
        variable = self.table[event.column.variable or ""]
        intervals = event.frame.lows(variable)
        lows, shape = tuple(lo for lo, _ in intervals), tuple(hi - lo for lo, hi in intervals)
        if shape == part.shape:
            return Held(part, lows, part.size, variable.dtype)
        values = np.full(shape, np.nan) if old is None or event.place == 0 else old.values.copy()
        values[_within(event.grid, event.column.box, lows)] = part
        return Held(values, lows, values.size, variable.dtype)

    def compute(self, event: Run, box: Box, old: Held | None = None) -> Values:
        """The values of a box, the sum of a step's terms, or a list so far with a step's terms among it."""
        grid = event.grid
        read = self.slices(event)
        shape = [grid.extent(a) for a in box.axes]
        if is_list(box):
            so_far = None if old is None else old.values[_within(grid, box, old.lows)]
            result = self.lists.joined(box, grid, so_far, read, event.facts)
        elif box.reduction is None:
            result = np.array(np.broadcast_to(values_of(box.body, grid, read, event.facts), shape))
        else:
            dims = tuple(grid.place[a] for a in box.over)
            value = reduce(box.reduction, box.body, dims, grid, read, event.facts)
            full = [*shape, *[1] * len(dims)]
            result = np.array(np.broadcast_to(value, full).reshape(shape))
        assert event.column.cost is not None
        self.count_arithmetic(event.column.cost, grid)
        return result

    def slices(self, event: Run) -> _Slices:
        variables = dict(event.column.sources)
        return _Slices({r: self.seen(event, r, v) for r, v in variables.items()})

    def seen(self, event: Run, read: Read, variable: str) -> Held | None:
        """What a read finds: what is held, and of a finished list of positions also those that nothing decided."""
        held = self.scans.seen(event, read, self.memory.held.get(variable))
        box, _ = self.boxes.get(read.array, (None, ()))
        if box is None or not holds_positions(box):
            return held
        if held is None:
            held = self.room(self.table[variable], event.frame)
            held = replace(held, values=np.full_like(held.values, empty(box)))
        return replace(held, values=finished(box, held.values))

    def accumulate(self, event: Run, box: Box, old: Held, now: Held, terms: Values | None) -> Values:
        """The state, corrected if its references moved, joined with the terms of a step, on the slice at hand."""
        assert box.reduction is not None
        here = _within(event.grid, box, now.lows)
        result = old.values[here]
        if event.moves and box.recentre is not None:
            result = np.asarray(FUNCTIONS["add"](result, self.correction(event, box, box.recentre)))
            self.vector += result.size
        if event.moves and box.rescale is not None:
            factor = self.correction(event, box, box.rescale)
            result = np.asarray(FUNCTIONS["mul" if box.reduction in ("sum", "prod") else "add"](result, factor))
            self.vector += result.size
        if terms is not None and is_list(box):
            result = terms
        elif terms is not None:
            result = np.asarray(FUNCTIONS[_JOIN[box.reduction]](result, terms), dtype=float)
        values = now.values.copy()
        values[here] = result
        return values

    def correction(self, event: Run, box: Box, name: str) -> Values:
        read = next(r for r in event.sources if r.array == name)
        grid = Grid.over({a: event.grid.bounds[a] for a in box.axes}, event.grid.names)
        return self.slices(event)(read, grid)

    def count_arithmetic(self, box: Box, grid: Grid) -> None:
        def elements(axes: Iterable[str]) -> int:
            return int(np.prod([grid.extent(a) for a in axes], dtype=np.int64))

        groups = operand_axes(box)
        if groups:
            self.mma += 2 * elements(box.all_axes)
            for factors, axes in groups:
                vector, special = product_operations(factors)
                self.vector += vector * elements(axes)
                self.special += special * elements(axes)
            return
        vector, special = operations(box.body)
        n = elements(box.all_axes)
        self.vector += (vector + (box.reduction is not None)) * n
        self.special += special * n

    def put(self, event: Put) -> None:
        """Store what leaves; a value known from predicates alone is written all the same."""
        self.memory.keep_only(event.column.live)
        for name, made in event.made.items():
            store = self.stores[name]
            variable = self.table[name]
            at = event.frame.bounds(variable.entered)
            box = self.boxes[variable.array][0]
            axes = box.axes
            target = tuple(slice(*at[a]) for a in axes)
            held = self.memory.held.get(name)
            if held is not None:
                values: Values = held.values[
                    tuple(slice(t.start - lo, t.stop - lo) for t, lo in zip(target, held.lows, strict=True))
                ]
            else:
                fixed = empty(box) if is_list(box) else made.visits[0].value
                assert fixed is not None, f"{name} is stored but was never computed"
                values = np.full([t.stop - t.start for t in target], fixed)
            if is_list(box) and not store.state:
                values = finished(box, values)
            place: tuple[int | slice, ...] = (event.frame.part, *target) if store.state else target
            self.arrays[store.array][place] = values
            written = self.written[store.array]
            count = values.size - int(np.count_nonzero(written[place]))  # once per instance, whatever the trips
            written[place] = True
            dtype = variable.dtype if store.state else self.setting.dtypes[store.array]
            if store not in self.program.known:
                self.memory.stores.move(store.label, count, dtype)
        self.memory.measure(event.column.live, event.column.title)


class _Slices:
    """Reads from what is held; an element that is not there is not a number."""

    def __init__(self, held: Mapping[Read, Held | None]) -> None:
        self.held = held

    def __call__(self, read: Read, grid: Grid) -> Values:
        held = self.held[read]
        if held is None:
            return np.full([1] * grid.rank, np.nan)
        if not read.index:
            return held.values.reshape([1] * grid.rank)
        part = block(held.values, read, grid, held.lows)
        if part is not None:
            return part
        return gather(held.values, tuple(grid.form(f, self) for f in read.index), held.lows, np.nan)


def _within(grid: Grid, box: Box | None, lows: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a box's own indices lie in an array that starts at ``lows``."""
    assert box is not None
    return tuple(slice(grid.bounds[a][0] - lo, grid.bounds[a][1] - lo) for a, lo in zip(box.axes, lows, strict=True))
