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
from ioweave.diagrams.boxes import OLD, RUNNING
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.operators import REDUCTIONS


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
    place: int = 0  # among the visits of its state, or the parts of its result
    wanted: bool = False
    runs: bool = False
    moves: bool = False

    @property
    def value(self) -> float | None:
        """The known result of a box that is no running state."""
        if self.column.box is not None and self.column.box.reduction is not None:
            return REDUCTIONS[self.column.box.reduction].identity if self.idle else None
        return self.fixed


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


@dataclass(eq=False)
class Open:
    """A variable that the loop to come fills part by part, and the visits that make its parts."""

    variable: str
    frame: Frame
    visits: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """The visits that made what is read of an array in the region; ``op`` joins them if it is a state.

    ``repeats`` made the same in earlier trips of a loop that their reader is not in: a member runs in every
    trip (counting.md 14), though the last is the one that is read.
    """

    visits: tuple[Run, ...]
    op: str | None = None
    repeats: tuple[Run, ...] = ()


Event = Fill | Run | Put | Start | Open
Source = Filled | Made


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
        self.reductions = {
            c.variable: c.box.reduction for c, _ in program.columns() if c.box is not None and c.variable is not None
        }
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
                states = [State(name, self.reductions[name] or "sum", frame) for name in node.starts]
                self.now.update({s.variable: s for s in states})
                for s in states:
                    self.states.setdefault(s.variable, []).append(s)
                    self.stand(s)
                yield Start(states, frame)
            lo, hi = frame.tile[node.axis]
            for trip in steps(lo, hi, self.stream[node.axis]):
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
        entered = frozenset(
            a for a, t in zip(self.program.loops, column.slot, strict=True) if t is not None and t % 2 == 0
        )
        grid = frame.grid(box, column.spans, entered)
        sources: dict[Read, Source] = {}
        for read, variable in column.sources:
            current = self.now[variable.removesuffix(OLD)]
            sources[read] = current if isinstance(current, Filled) else self.made(current, frame, _reach(read, grid))
        facts = Facts(grid, lambda r: _known_read(r, sources[r]))
        fixed = facts(box.body)
        idle = box.reduction is not None and fixed == REDUCTIONS[box.reduction].identity
        run = Run(column, frame, grid, facts, sources, fixed, idle, any(_changed(s, frame) for s in sources.values()))
        if name in self.opened:
            self.opened[name].visits.append(run)
        if self.table[name].role == "state":
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

    def made(self, current: Parts | State, frame: Frame, reach: tuple[Interval, ...] | None = None) -> Made:
        """The visits so far that made what lies within reach (None: all of it), for a reader in ``frame``."""
        if isinstance(current, Parts):
            visits, repeats, op = list(current.by_indices.values()), current.repeats, None
        else:
            standing = self.standing[current.variable].values()
            visits, op = [v for s in standing for v in s.visits], current.op
            repeats = [v for c in standing for s in self.repeats(c, frame) for v in s.visits]
        if reach is not None:
            visits = [v for v in visits if _meets(v, reach)]
            repeats = [v for v in repeats if _meets(v, reach)]
        return Made(tuple(visits), op, tuple(repeats))

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
    """The hull of what a read touches, per position."""
    forms = [grid.form(f) for f in read.index]
    return tuple((int(f.min()), int(f.max()) + 1) for f in forms)


def _meets(visit: Run, reach: tuple[Interval, ...]) -> bool:
    box = visit.column.box
    assert box is not None
    mine = (visit.grid.bounds[a] for a in box.axes)
    return all(lo < last and first < hi for (lo, hi), (first, last) in zip(mine, reach, strict=True))


def _known_read(read: Read, made: Source) -> float | None:
    if isinstance(made, Filled) or read.array.endswith((OLD, RUNNING)):
        return None
    if made.op is not None:
        return REDUCTIONS[made.op].identity if all(v.idle for v in made.visits) else None
    values = {part.value for part in made.visits}
    return values.pop() if len(values) == 1 else None


def _changed(made: Source, frame: Frame) -> bool:
    """Whether a source has moved in this trip: a state that received terms, or what follows from one."""
    if isinstance(made, Filled):
        return False
    if made.op is None:
        return any(part.changed for part in made.visits)
    return any(v.frame.inside == frame.inside and not v.idle for v in made.visits)
