"""The columns of one instance in order of time, and which of them run (counting.md 25 to 27).

First every visit of every column is listed with what is known on its tile; then, backwards, what
each visit that runs reads is wanted. A load gathers the reads that survive in the tiles it serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ioweave.derive.execution.frames import Frame, Interval, steps
from ioweave.derive.execution.grid import Grid
from ioweave.derive.execution.known import Facts
from ioweave.derive.program.life import filled_over
from ioweave.derive.program.program import Column, Load, Loop, Program
from ioweave.derive.program.slots import corrections
from ioweave.diagrams.boxes import OLD, PAST, PREV, RUNNING, source
from ioweave.diagrams.expressions import Read, reads
from ioweave.diagrams.lists import leaders, neutral_term, of_nothing
from ioweave.diagrams.scans import Walk

ANYWHERE = 1 << 60  # beyond the end of any axis


@dataclass(eq=False)
class Filled:
    """One filling of a slab: the reads that survive in the tiles it serves, with their indices."""

    load: Load
    frame: Frame
    survivors: list[tuple[Read, Grid]] = field(default_factory=list)


@dataclass(eq=False)
class State:
    """One running state, where it was started, and the visits that add to it."""

    variable: str
    op: str
    nothing: float | None
    frame: Frame
    visits: list[Run] = field(default_factory=list)


@dataclass(eq=False)
class Parts:
    """One result: the visit that made each part of it, by its own indices; several where a loop fills it.

    ``repeats`` are visits that made a part before, in an earlier trip of a loop that does not index it.
    """

    trip: Mapping[str, Interval]
    by_indices: dict[tuple[Interval, ...], Run] = field(default_factory=dict)
    repeats: list[Run] = field(default_factory=list)


@dataclass(eq=False)
class Run:
    """One visit of a box.

    ``fixed`` is the value (of the term, for a reduction) known on the tile; ``idle`` whether a
    reduction receives only its identity; ``changed`` whether a state that it depends on has
    received terms in this very trip. ``runs`` and ``moves`` (the state is corrected) are found backwards.
    """

    column: Column
    frame: Frame
    grid: Grid
    facts: Facts
    sources: Mapping[Read, Source]
    fixed: float | None
    idle: bool
    changed: bool
    state: State | None = None
    along: tuple[Run, ...] = ()  # for a scan the visits that are made with it, element by element
    leader: Run | None = None  # for those the visit of the scan
    place: int = 0  # among the visits of its state, or the parts of its result
    wanted: bool = False
    runs: bool = False
    moves: bool = False

    @property
    def value(self) -> float | None:
        """The known result of a box that is no running state."""
        if self.column.box is not None and self.column.box.reduction is not None:
            return of_nothing(self.column.box) if self.idle else None
        return self.fixed


@dataclass(eq=False)
class Carry:
    """A scan's value before the present step: the visit that set it, and those of the scan since, by their indices."""

    variable: str
    walk: Walk
    start: Run | None
    visits: dict[tuple[Interval, ...], list[Run]] = field(default_factory=dict)


@dataclass(frozen=True)
class Before:
    """What an element before is made by: visits of the scan, or else what its start reads, with the indices."""

    visits: tuple[Run, ...]
    starts: tuple[tuple[Read, Source, Grid], ...] = ()


@dataclass(eq=False)
class Fill:
    """A column of loads."""

    column: Column
    fills: list[Filled]


@dataclass(eq=False)
class Put:
    """A column of stores: for each variable what it holds, and where."""

    column: Column
    frame: Frame
    made: Mapping[str, Made]


@dataclass(eq=False)
class Start:
    """States set to their identities before a loop."""

    states: list[State]
    frame: Frame
    carries: tuple[Carry, ...] = ()


@dataclass(eq=False)
class Open:
    """A variable that the loop to come fills part by part, and the visits that make its parts."""

    variable: str
    frame: Frame
    visits: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """The visits that made what is read of an array in the region; ``op`` joins them if it is a state.

    ``nothing`` is what a state gives that no visit adds to, where that is one number.
    ``repeats`` made the same in earlier trips of a loop that their reader is not in: a member runs in every
    trip (counting.md 14), though the last is the one that is read.
    """

    visits: tuple[Run, ...]
    op: str | None = None
    repeats: tuple[Run, ...] = ()
    nothing: float | None = None


Event = Fill | Run | Put | Start | Open
Source = Filled | Made | Before


def trace(program: Program, frame: Frame, stream: Mapping[str, int]) -> list[Event]:
    """Every visit of one instance in order, with what runs decided; ``stream`` gives the steps."""
    events = list(_Tracer(program, stream).events(frame))
    for event in reversed(events):
        if isinstance(event, Put):
            for made in event.made.values():
                _want(made)
        elif isinstance(event, Run):
            _decide(event)
    return events


def _want(source: Source) -> None:
    if isinstance(source, Made):
        for visit in (*source.visits, *source.repeats):
            visit.wanted = True
    if isinstance(source, Before):
        for visit in source.visits:
            visit.wanted = True
        for read, start, grid in source.starts:
            if isinstance(start, Filled):
                start.survivors.append((read, grid))
            else:
                _want(start)


def _decide(run: Run) -> None:
    """Whether a visit runs, given who wants it; what it reads is then wanted."""
    box = run.column.box
    assert box is not None
    wanted = run.wanted
    run.runs = wanted and (run.value is None if box.reduction is None else not run.idle)
    by = corrections(box)
    if by:
        corrected_by = [s for r, s in run.sources.items() if r.array in by]
        run.moves = wanted and (run.runs or any(_changed(s, run.frame) for s in corrected_by))
        if run.moves:
            for s in corrected_by:
                _want(s)
    if run.runs:
        for read, made in run.sources.items():
            if source(read.array) in leaders(box):
                _want(made)
        for read in run.facts.surviving(box.body):
            made = run.sources[read]
            if isinstance(made, Filled):
                made.survivors.append((read, run.grid))
            else:
                _want(made)


class _Tracer:
    """Walks a program's nodes, keeping what every variable holds."""

    def __init__(self, program: Program, stream: Mapping[str, int]) -> None:
        self.program, self.stream = program, stream
        self.table = {v.name: v for v in program.variables}
        self.boxes = {c.variable: c.box for c, _ in program.columns() if c.box is not None and c.variable is not None}
        self.now: dict[str, Filled | Parts | State] = {}
        self.states: dict[str, list[State]] = {}
        self.opens: dict[int, list[str]] = {}
        self.opened: dict[str, Open] = {}
        for c, path in program.columns():
            if c.variable is not None:
                v = self.table[c.variable]
                start = next((k for k, loop in enumerate(path) if v.name in loop.starts), len(path))
                for loop in filled_over(v, path[:start])[:1]:
                    self.opens.setdefault(id(loop), []).append(v.name)
        self.standing: dict[str, dict[tuple[tuple[str, Interval], ...], State]] = {}
        walks = [(c, c.walk) for c, _ in program.columns() if c.walk is not None and not c.walk.begins]
        self.walks = {w.carried: w for _, w in walks if w.carried is not None}
        self.scans = {w.tile: c for c, w in walks if c.box is not None and c.box.name == w.scan}
        self.carries: dict[str, Carry] = {}
        self.begun: dict[str, Run] = {}
        self.along: dict[str, list[Run]] = {}

    def events(self, frame: Frame) -> Iterator[Event]:
        """Every visit of one instance."""
        self.now.update({load.variable: Filled(load, frame) for load in self.program.given})
        yield from self.visit(self.program.body, frame)

    def visit(self, body: tuple[Column | Loop, ...], frame: Frame) -> Iterator[Event]:
        for node in body:
            if isinstance(node, Column):
                yield self.column(node, frame)
                continue
            for name in self.opens.get(id(node), ()):
                self.opened[name] = Open(name, frame)
                yield self.opened[name]
            if node.starts:
                states = [
                    State(name, self.boxes[name].reduction or "sum", of_nothing(self.boxes[name]), frame)
                    for name in node.starts
                    if name not in self.walks
                ]
                carries = [Carry(n, self.walks[n], self.begun.get(n)) for n in node.starts if n in self.walks]
                self.carries.update({c.variable: c for c in carries})
                self.now.update({s.variable: s for s in states})
                for s in states:
                    self.states.setdefault(s.variable, []).append(s)
                    self.stand(s)
                yield Start(states, frame, tuple(carries))
            lo, hi = frame.tile[node.axis]
            trips = steps(lo, hi, self.stream[node.axis])
            for trip in reversed(trips) if node.backward else trips:
                yield from self.visit(node.body, frame.within(node.axis, trip))

    def stand(self, state: State) -> None:
        """Enter a state that is started, beside those of other parts where all of it is held over the loops around."""
        v, inside = self.table[state.variable], state.frame.inside
        own = {a for span in v.pieces[0] for a, _ in span.axes}
        others = self.standing.setdefault(state.variable, {})
        for key, s in tuple(others.items()):
            if any(s.frame.inside.get(a) != inside.get(a) for a in v.entered):
                del others[key]
        others[tuple((a, i) for a, i in inside.items() if a in own and a not in v.entered)] = state

    def column(self, column: Column, frame: Frame) -> Event:
        if column.kind == "load":
            fills = [Filled(load, frame) for load in column.loads]
            self.now.update({f.load.variable: f for f in fills})
            return Fill(column, fills)
        if column.kind == "store":
            made: dict[str, Made] = {}
            for name in column.stores:
                current = self.now[name]
                assert not isinstance(current, Filled)
                made[name] = self.made(current, frame)
            return Put(column, frame, made)
        return self.run(column, frame)

    def run(self, column: Column, frame: Frame) -> Run:
        box, name = column.box, column.variable
        assert box is not None
        assert name is not None
        grid = frame.grid(box, column.spans, self.entered(column))
        sources: dict[Read, Source] = {}
        for read, variable in column.sources:
            if read.array.endswith((PREV, PAST)):
                sources[read] = self.before(column, frame, read, grid, variable)
                continue
            current = self.now[variable.removesuffix(OLD)]
            sources[read] = current if isinstance(current, Filled) else self.made(current, frame, _reach(read, grid))
        self.look_back(column, grid, sources)
        facts = Facts(grid, lambda r: _known_read(r, sources[r]))
        fixed = facts(box.body)
        idle = box.reduction is not None and fixed == neutral_term(box)
        run = Run(column, frame, grid, facts, sources, fixed, idle, any(_changed(s, frame) for s in sources.values()))
        if name in self.opened:
            self.opened[name].visits.append(run)
        if column.walk is not None and column.walk.begins:
            self.begun[name] = run
            return run
        if column.walk is not None:
            self.walk(column.walk, run)
        elif self.table[name].role == "state":
            state = self.now[name]
            assert isinstance(state, State)
            run.state, run.place = state, len(state.visits)
            state.visits.append(run)
            return run
        trip = {a: i for a, i in frame.inside.items() if a in self.table[name].entered}
        parts = self.now.get(name)
        if not isinstance(parts, Parts) or parts.trip != trip:
            parts = self.now[name] = Parts(trip)
        run.place = len(parts.by_indices)
        indices = tuple(grid.bounds[a] for a in box.axes)
        if indices in parts.by_indices:
            parts.repeats.append(parts.by_indices[indices])
        parts.by_indices[indices] = run
        return run

    def entered(self, column: Column) -> frozenset[str]:
        """The loops that a column is inside of."""
        slots = zip(self.program.loops, column.slot, strict=True)
        return frozenset(a for a, t in slots if t is not None and t % 2 == 0)

    def walk(self, walk: Walk, run: Run) -> None:
        """Enter a visit along a scan: what is made with it waits for the scan itself."""
        box = run.column.box
        assert box is not None
        if box.name != walk.scan:
            self.along.setdefault(walk.tile, []).append(run)
            return
        run.along = tuple(self.along.pop(walk.tile, ()))
        for other in run.along:
            other.leader = run
        if walk.carried is not None:
            indices = tuple(i for a, i in run.grid.bounds.items() if a in box.axes and a != walk.axis)
            self.carries[walk.carried].visits.setdefault(indices, []).append(run)

    def before(self, column: Column, frame: Frame, read: Read, grid: Grid, variable: str) -> Before:
        """What makes the element before those of a step."""
        walk = column.walk
        if walk is None or read.array.endswith(PAST):
            return Before(())
        scan = self.scans[walk.tile]
        assert scan.box is not None
        if walk.carried is None:
            own = frame.grid(scan.box, scan.spans, self.entered(scan))
            variables = dict(scan.sources)
            starts = []
            for r in reads(walk.start):
                current = self.now[variables[r]]
                source = current if isinstance(current, Filled) else self.made(current, frame, _reach(r, own))
                starts.append((r, source, own))
            return Before((), tuple(starts))
        carry = self.carries[variable]
        reach = _reach(read, grid)
        axes = [a for a in scan.box.axes if a != walk.axis]
        last = [visits[-1] for visits in carry.visits.values()]
        last = [v for v in last if all(_overlap(v.grid.bounds[a], i) for a, i in zip(axes, reach, strict=True))]
        if not last and carry.start is not None:
            last = [carry.start]
        return Before(tuple(last))

    def look_back(self, column: Column, grid: Grid, sources: dict[Read, Source]) -> None:
        """A read of another element of a scan than the box's own: of this step's visits and the one before."""
        if column.walk is not None:
            return
        for read, variable in column.sources:
            if read.array.endswith(PREV):
                visits = [v for of in self.carries[variable].visits.values() for v in of[-2:]]
                for r in [r for r in sources if r.array + PREV == read.array]:
                    if any(f.bare is None for f in r.index):
                        sources[r] = Before(tuple(v for v in visits if _meets(v, _reach(r, grid))))

    def made(self, current: Parts | State, frame: Frame, reach: tuple[Interval, ...] | None = None) -> Made:
        """The visits so far that made what lies within reach (None: all of it), for a reader in ``frame``."""
        if isinstance(current, Parts):
            visits, repeats, op = list(current.by_indices.values()), current.repeats, None
            nothing = None
        else:
            standing = self.standing[current.variable].values()
            visits, op, nothing = [v for s in standing for v in s.visits], current.op, current.nothing
            repeats = [v for c in standing for s in self.repeats(c, frame) for v in s.visits]
        if reach is not None:
            visits = [v for v in visits if _meets(v, reach)]
            repeats = [v for v in repeats if _meets(v, reach)]
        return Made(tuple(visits), op, tuple(repeats), nothing)

    def repeats(self, current: State, frame: Frame) -> list[State]:
        """The same state in the other trips of loops that ended before its reader in ``frame``."""
        inside = frame.inside
        if all(a in inside for a in current.frame.inside):
            return []
        return [
            s
            for s in self.states[current.variable]
            if s is not current and all(i == inside[a] for a, i in s.frame.inside.items() if a in inside)
        ]


def _reach(read: Read, grid: Grid) -> tuple[Interval, ...]:
    """The hull of what a read touches, per position; what is looked up may be anywhere, and no element is nowhere."""
    forms = [None if f.lookups else grid.form(f) for f in read.index]
    hulls = [(0, ANYWHERE) if f is None else (int(f.min()), int(f.max()) + 1) if f.size else (0, 0) for f in forms]
    return tuple(hulls)


def _meets(visit: Run, reach: tuple[Interval, ...]) -> bool:
    box = visit.column.box
    assert box is not None
    mine = (visit.grid.bounds[a] for a in box.axes)
    return all(_overlap(one, other) for one, other in zip(mine, reach, strict=True))


def _overlap(one: Interval, other: Interval) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _known_read(read: Read, made: Source) -> float | None:
    if isinstance(made, Filled | Before) or read.array.endswith((OLD, RUNNING)):
        return None
    if made.op is not None:
        return made.nothing if all(v.idle for v in made.visits) else None
    values = {part.value for part in made.visits}
    return values.pop() if len(values) == 1 else None


def _changed(made: Source, frame: Frame) -> bool:
    """Whether a source has moved in this trip: a state that received terms, or what follows from one."""
    if isinstance(made, Filled | Before):
        return False
    if made.op is None:
        return any(part.changed for part in made.visits)
    return any(v.frame.inside == frame.inside and not v.idle for v in made.visits)
