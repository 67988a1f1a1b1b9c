"""Which reads survive in which tiles (counting.md 25, 26).

Values that predicates of indices fix (-inf, 0, identities) are followed forwards through the
boxes of a region, then what is wanted is followed backwards, both for all tiles at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ioweave.derive.counting.entries import Column, Entries
from ioweave.derive.counting.lengths import Bounds, interval
from ioweave.derive.counting.predicates import FALSE, MIXED, TRUE, decide
from ioweave.derive.counting.succession import first_tiles, handed_back, several
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.program import Load, Program
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.slots import Nests, Slot, corrections, references
from ioweave.derive.program.spans import bare
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.boxes import OLD, PAST, PREV, RUNNING, Box, source
from ioweave.diagrams.expressions import (
    Apply,
    Constant,
    Expr,
    Index,
    Number,
    Read,
    Size,
    children,
    free_axes,
    is_predicate_of_indices,
    walk,
)
from ioweave.diagrams.lists import EMPTY, leaders, neutral_term, of_nothing
from ioweave.diagrams.operators import PREDICATES
from ioweave.diagrams.scans import looks_back, members

UNKNOWN = np.nan
CASES = 8  # predicates that are tried in all combinations at most
_CASE = "*"  # an axis whose tiles are combinations
_ABSORBING = frozenset({"mul", "div", "masked_div", "add", "sub", "masked_sub", "and", "or"})  # one operand may do


def predicates(box: Box) -> tuple[Expr, ...]:
    """The predicates of indices in a box that depend on an axis: conditions of `where`, factors 0 or 1."""
    found: dict[Expr, None] = {}
    for node in walk(box.body):
        if isinstance(node, Apply) and node.op in PREDICATES and is_predicate_of_indices(node) and free_axes(node):
            found.setdefault(node)
    return tuple(found)


def decides(box: Box) -> bool:
    """Whether a box holds anything that may fix a value whatever is loaded: a predicate, a zero, an infinity."""
    for node in walk(box.body):
        if isinstance(node, Number) and (node.value == 0 or math.isinf(node.value)):
            return True
        if isinstance(node, Apply) and node.op in PREDICATES and is_predicate_of_indices(node):
            return True
    return False


def mask_axes(program: Program) -> frozenset[str]:
    """The tiled axes that predicates of the region's boxes bear on, directly or through spans."""
    tiled = {*program.grouped, *program.loops}
    axes: set[str] = set()
    spans = {c.box.name: c.spans for c, _ in program.columns() if c.box is not None}
    for b in program.boxes:
        if b.name not in spans:
            continue
        of_axis = dict(zip(b.axes, spans[b.name], strict=True))
        for p in predicates(b):
            for a in free_axes(p):
                axes |= {x for x, _ in of_axis[a].axes} if a in of_axis else {a}
    return frozenset(axes & tiled)


@dataclass(frozen=True)
class Survival:
    """For every entry (a tile of the mask axes): which reads survive and which boxes run.

    A box that runs in several passes may be wanted in some tiles of one and not of another, so
    ``reads`` is keyed by (box, read, slot); ``runs`` by (box, slot): whether a map is computed,
    or a reduction receives terms; ``moves`` likewise: whether a running box's state is corrected.
    ``definite`` tells the entries in which no predicate is mixed; ``taken`` names the variable that a read takes.
    """

    entries: Entries
    reads: Mapping[tuple[str, Read, Slot], Any]
    runs: Mapping[tuple[str, Slot], Any]
    moves: Mapping[tuple[str, Slot], Any]
    definite: Any
    taken: Mapping[tuple[str, Read, Slot], str]

    def loaded(self, load: Load) -> dict[tuple[str, Read], Any]:
        """Per read of a load the entries in which it survives."""
        found = {key: np.zeros(self.entries.length, dtype=bool) for key in load.reads}
        for key, alive in self.reads.items():
            if self.taken[key] == load.variable:
                found[key[:2]] = found[key[:2]] | alive
        return found

    def pieces(self, load: Load) -> list[Any]:
        """For each of the pieces of a load's slab the entries in which some read of it survives."""
        loaded = self.loaded(load)
        slab = dict.fromkeys(load.pieces)
        return [
            np.logical_or.reduce([loaded[r] for r, p in zip(load.reads, load.pieces, strict=True) if p == piece])
            for piece in slab
        ]


def survival(program: Program, entries: Entries, setting: Setting) -> Survival:
    """Follow fixed values forwards and wants backwards over all entries."""
    with np.errstate(all="ignore"):
        return _Tracer(program, entries, setting).trace()


def always_loaded(program: Program, setting: Setting) -> bool:
    """Whether every load survives in every tile, whatever its predicates are there.

    Each predicate of each box is taken as true and as false, in all combinations, the same in
    every trip; where it is mixed, or differs from trip to trip, no less survives.
    """
    asked = [(b.name, p) for b in program.boxes for p in predicates(b)]
    if len(asked) > CASES:
        return False
    number = 1 << len(asked)
    case = np.arange(number, dtype=np.int64)
    zero = np.zeros(number, dtype=np.int64)
    tiles = Tiles({}, {_CASE: 1}, {**setting.sizes, _CASE: number})
    entries = Entries((_CASE,), {_CASE: Column(case, case + 1, zero, zero + number, case, zero)}, zero + 1, tiles)
    with np.errstate(all="ignore"):
        tracer = _Tracer(program, entries, setting)
        tracer.states = {key: np.where(case >> k & 1, TRUE, FALSE) for k, key in enumerate(asked)}
        survive = tracer.trace()
    return all(np.all(flags) for load in program.loads() for flags in survive.pieces(load))


def needed_somewhere(program: Program, entries: Entries, setting: Setting) -> Mapping[tuple[str, Read, Slot], Any]:
    """The entries in which some element by itself surely needs a read.

    Where one predicate is mixed, elements make it true and others false: either case may need the read.
    """
    if any(span.bare is None for v in program.variables for piece in v.pieces for span in piece):
        return {}  # boxes meet one predicate at different elements
    with np.errstate(all="ignore"):
        true, false = (_Tracer(program, entries, setting, mixed) for mixed in (TRUE, FALSE))
        one, other = true.trace(), false.trace()
    mixed: dict[Expr, Any] = {}
    for (_, e), flags in true.mixed.items():
        mixed[e] = mixed.get(e, False) | flags
    single = sum((np.asarray(flags, dtype=int) for flags in mixed.values()), np.zeros(entries.length, dtype=int)) <= 1
    return {key: (alive | other.reads[key]) & single for key, alive in one.reads.items()}


class _Tracer:
    """Carries the tables of one trace; used once. Mixed predicates are taken for what ``assume`` says."""

    def __init__(self, program: Program, entries: Entries, setting: Setting, assume: int = MIXED) -> None:
        self.assume = assume
        self.mixed: dict[tuple[str, Expr], Any] = {}
        self.program, self.entries, self.setting = program, entries, setting
        self.made = {b.name: b for b in program.boxes}
        self.slots: dict[str, tuple[Slot, ...]] = dict(program.slots)
        self.nests = Nests(program.boxes, program.loops)
        self.known: dict[str, Any] = {}
        self.term: dict[str, Any] = {}
        self.finished: dict[str, Any] = {}
        self.states: dict[tuple[str, Expr], Any] = {}
        self.values: dict[tuple[str, int], Any] = {}  # by the identity of an expression, which a box keeps
        self.spans = {c.box.name: c.spans for c, _ in program.columns() if c.box is not None}
        self.together = members(program.boxes)
        self.looked: dict[tuple[str, Slot], Any] = {}  # where the element before a tile of a scan is read
        self.none = np.zeros(entries.length, dtype=bool)
        self.carried: Any = self.none
        self.all = np.ones(entries.length, dtype=bool)

    def bounds(self, b: Box) -> Bounds:
        """The interval of every axis of a box, per entry, as deep as its loops go."""
        slot = self.slots[b.name][0]
        entered = {a for a, t in zip(self.program.loops, slot, strict=True) if t is not None and t % 2 == 0}
        inner = self.entries.bounds(entered)
        out: dict[str, tuple[Any, Any]] = {}
        for a, span in zip(b.axes, self.spans[b.name], strict=True):
            out[a] = interval(span, inner)
        for a in b.over:
            out[a] = interval(bare(a, self.setting.sizes[a]), inner)
        return out

    def decision(self, b: Box, e: Expr) -> Any:
        key = (b.name, e)
        if key not in self.states:
            state = decide(e, self.bounds(b), {**self.setting.constants, **self.setting.sizes}, self.setting.sizes)
            self.mixed[key] = state == MIXED
            self.states[key] = np.where(self.mixed[key], self.assume, state)
        return self.states[key]

    # -- forwards: values that are known whatever the arrays hold

    def value(self, b: Box, e: Expr) -> Any:
        """The known value per entry, nan where it depends on data."""
        key = b.name, id(e)
        if key not in self.values:
            self.values[key] = self._value(b, e)
        return self.values[key]

    def _value(self, b: Box, e: Expr) -> Any:
        match e:
            case Number(value=v):
                return float(v)
            case Constant(name=n) | Size(axis=n):
                return float(self.setting.constants.get(n, self.setting.sizes.get(n, 0)))
            case Index():
                return UNKNOWN
            case Read(array=array):
                return UNKNOWN if self.behind(e) is not None else self.read_value(array)
            case Apply(op=op) if op in PREDICATES and is_predicate_of_indices(e):
                state = self.decision(b, e)
                return np.where(state == TRUE, 1.0, np.where(state == FALSE, 0.0, UNKNOWN))
            case Apply(op="where", args=(c, x, y)):
                vc, vx, vy = self.value(b, c), self.value(b, x), self.value(b, y)
                either = np.where(vx == vy, vx, UNKNOWN)
                return np.where(np.isnan(vc), either, np.where(vc != 0, vx, vy))
            case Apply(op="keyed", args=(k, _)):
                key = self.value(b, k)
                return np.where(key == EMPTY, key, UNKNOWN)
            case Apply(op=op, args=args):
                return _apply(op, [self.value(b, a) for a in args])
        return UNKNOWN

    def read_value(self, array: str) -> Any:
        name = source(array)
        if name not in self.made:
            return UNKNOWN
        if array.endswith((OLD, RUNNING, PREV, PAST)):
            return UNKNOWN
        return self.finished[name]

    def forwards(self) -> None:
        with np.errstate(all="ignore"):
            for b in self.program.boxes:
                v = np.broadcast_to(self.value(b, b.body), (self.entries.length,))
                self.term[b.name] = v
                if b.reduction is None:
                    self.finished[b.name] = v
                    continue
                idle = v == neutral_term(b)
                loops = [a for a in b.over if a in self.program.loops]
                if loops:
                    idle = ~self.entries.any_over(~idle, loops)
                empty = of_nothing(b)
                self.finished[b.name] = np.where(idle, UNKNOWN if empty is None else empty, UNKNOWN)

    # -- backwards: what is wanted where

    def trace(self) -> Survival:
        self.forwards()
        want = {(b.name, slot): self.none.copy() for b in self.program.boxes for slot in self.slots[b.name]}
        alive: dict[tuple[str, Read, Slot], Any] = {}
        runs: dict[tuple[str, Slot], Any] = {}
        moves: dict[tuple[str, Slot], Any] = {}
        for s in self.program.stores:
            name = self.program.variable(s.variable).array
            want[name, self.slots[name][0]] |= self.all
        for b in reversed(self.program.boxes):
            for slot in self.slots[b.name]:
                key = b.name, slot
                begins = self.walk(b, slot, want)
                wanted = want[key]
                if b.reduction is None:
                    run = wanted & np.isnan(self.finished[b.name])
                else:
                    run = wanted & ~self.idle(b)
                moves[key] = self.none
                by = corrections(self.nests.corrected(b, slot))
                if by:
                    moved = run.copy()
                    for reference in (o for name in by for o in references(name, self.made)):
                        moved |= wanted & ~self.idle(reference)
                    moves[key] = moved
                    for name in by:
                        want[name, self.nests.context(name, True, slot)] |= moved
                for name in leaders(b):
                    if name in self.made:
                        want[name, self.nests.context(name, False, slot)] |= run
                runs[key] = run
                for r in b.reads():
                    if source(r.array) not in self.made:
                        alive[b.name, r, slot] = self.none
                if b.scan is not None:
                    self.begin(b, slot, begins, want, alive)
                self.visit(b, slot, b.body, run, want, alive)
        definite = self.all
        for state in self.states.values():
            definite = definite & (state != MIXED)
        columns = [c for c, _ in self.program.columns() if c.box is not None]
        taken = {(c.box.name, r, c.slot): v for c in columns if c.box is not None for r, v in c.sources}
        return Survival(self.entries, alive, runs, moves, definite, taken)

    # -- scans

    def behind(self, e: Read) -> Box | None:
        """The streamed scan that another box reads at another element than its own, if it does."""
        scan = self.made.get(e.array)
        if scan is None or scan.scan is None or scan.scan.axis not in self.program.loops or not looks_back(scan, e):
            return None
        return scan

    def walk(self, b: Box, slot: Slot, want: dict[tuple[str, Slot], Any]) -> Any:
        """Hand the wants of a scan's tiles from each to the one before; returns where its start is wanted."""
        if b.scan is None:
            return self.none
        back, axis = b.scan.backward, b.scan.axis
        runs = np.isnan(self.finished[b.name])
        depends = runs & self.depends(b, slot, runs, want)
        behind = self.looked.get((b.name, slot), self.none)
        want[b.name, slot] = handed_back(self.entries, axis, want[b.name, slot], behind, depends, back)
        first = first_tiles(self.entries, axis, back) if axis in self.program.loops else self.all
        return want[b.name, slot] & depends & first

    def depends(self, b: Box, slot: Slot, runs: Any, want: Mapping[tuple[str, Slot], Any]) -> Any:
        """Where a scan needs its previous value if it runs: by itself, or by what is made along with it."""
        trial = {key: self.none.copy() for key in want}
        alive: dict[tuple[str, Read, Slot], Any] = defaultdict(lambda: self.none)
        trial[b.name, slot] = runs
        self.carried = self.none
        looked, self.looked = self.looked, dict(self.looked)
        for name in reversed(self.together[b.name]):
            m = self.made[name]
            where = trial[name, slot] & (np.isnan(self.finished[name]) if m.reduction is None else ~self.idle(m))
            self.visit(m, slot, m.body, where, trial, alive)
        self.looked = looked
        return self.carried

    def begin(
        self,
        b: Box,
        slot: Slot,
        where: Any,
        want: dict[tuple[str, Slot], Any],
        alive: dict[tuple[str, Read, Slot], Any],
    ) -> None:
        """Want the start of a scan where its first tile needs it."""
        assert b.scan is not None
        loops = self.program.loops
        if b.scan.axis in loops:
            where = self.entries.any_over(where, loops[loops.index(b.scan.axis) :])
        self.visit(b, slot, b.scan.start, where, want, alive)

    def idle(self, b: Box) -> Any:
        """Whether a reduction receives its identity alone."""
        return self.term[b.name] == neutral_term(b)

    def visit(
        self,
        b: Box,
        slot: Slot,
        e: Expr,
        where: Any,
        want: dict[tuple[str, Slot], Any],
        alive: dict[tuple[str, Read, Slot], Any],
    ) -> None:
        if not np.any(where):
            return
        match e:
            case Read(array=array):
                name = source(array)
                for inner in children(e):  # a lookup needs its index arrays
                    self.visit(b, slot, inner, where, want, alive)
                if name not in self.made:
                    alive[b.name, e, slot] = alive[b.name, e, slot] | where
                    return
                if array.endswith((PREV, PAST)):
                    self.carried = self.carried | where if array.endswith(PREV) else self.carried
                    return
                operand = self.made[name]
                scan = self.behind(e)
                if scan is not None and scan.scan is not None:
                    at = name, self.nests.context(name, True, slot)
                    self.looked[at] = self.looked.get(at, self.none) | where
                    where = where & several(self.entries, scan.scan.axis)
                # what a reduction has gathered, it has gathered in every trip
                loops = [a for a in operand.over if a in self.program.loops]
                wanted = self.entries.any_over(where, loops) if loops else where
                want[name, self.nests.context(name, name == array, slot)] |= wanted
            case Apply(op="where", args=(c, x, y)):
                vc = np.asarray(self.value(b, c))
                self.visit(b, slot, c, where, want, alive)
                self.visit(b, slot, x, where & ~(vc == 0), want, alive)
                self.visit(b, slot, y, where & ~(vc == 1), want, alive)
            case Apply(args=args):
                depends = where & np.isnan(self.value(b, e))
                for a in args:
                    self.visit(b, slot, a, depends, want, alive)


def _apply(op: str, args: list[Any]) -> Any:
    """A known result from known arguments; some results need one argument alone."""
    if op not in _ABSORBING and any(a is UNKNOWN for a in args):
        return UNKNOWN
    unknown: Any = False
    for a in args:
        unknown = unknown | np.isnan(a)
    if not np.any(unknown):
        result = FUNCTIONS[op](*args)
        return np.asarray(result, dtype=float)
    filled = [np.where(np.isnan(a), 1.0, a) for a in args]  # any finite value stands for data
    exact = np.where(unknown, UNKNOWN, np.asarray(FUNCTIONS[op](*filled), dtype=float))
    if op == "mul":
        return np.where((args[0] == 0) | (args[1] == 0), 0.0, exact)
    if op in ("div", "masked_div"):
        return np.where(args[0] == 0, 0.0, exact)
    if op in ("add", "sub", "masked_sub"):
        exact = np.where(np.isinf(args[0]), args[0], exact)
        if op == "masked_sub":
            return exact
        other = args[1] if op == "add" else -args[1]
        return np.where(np.isinf(other), other, exact)
    if op == "and":
        return np.where((args[0] == 0) | (args[1] == 0), 0.0, exact)
    if op == "or":
        return np.where((args[0] == 1) | (args[1] == 1), 1.0, exact)
    return exact
