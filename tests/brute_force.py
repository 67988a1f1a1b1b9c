"""Loads and stores of a levelled file by brute force: every instance, trip, tile and element is enumerated.

Written from counting.md alone, as the arbiter of the analytic counter: it shares the notation, the opening
of lines into boxes, and the prover's list of reductions that need a further pass, and nothing else.
Every box has a *place*: one number for each loop, 2t inside the t-th run of that loop, 2t + 1 after it.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ioweave.derive.streaming import repair
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.boxes import Box, base_name, source
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size, reads
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.operators import REDUCTIONS
from ioweave.hierarchy.levelled import Levelled, Region

Place = tuple[int, ...]
Trips = tuple[int | None, ...]
Element = tuple[int, ...]
Row = tuple[Any, frozenset[Read]]  # a known value or None, and the reads that an unknown one depends on


class Unrunnable(Exception):
    """The region cannot run as written: the rules refuse it."""


@dataclass
class Moved:
    """Values loaded and stored, by array; state of split reductions under ``state``."""

    loads: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    stores: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def values(self) -> int:
        return sum(self.loads.values()) + sum(self.stores.values())


def brute_force(levelled: Levelled, arrays: Mapping[str, Any] | None = None) -> Moved:
    """What the whole file moves; raises `Unrunnable` where the rules refuse a region.

    ``arrays`` are the index arrays that are looked up.
    """
    moved = Moved()
    for region in levelled.regions:
        _Region(levelled, region, arrays or {}).count(moved)
    moved.loads = {k: v for k, v in moved.loads.items() if v}
    moved.stores = {k: v for k, v in moved.stores.items() if v}
    return moved


class _Region:
    """One region: its boxes, their places, and the values that the indices alone decide."""

    def __init__(self, levelled: Levelled, region: Region, arrays: Mapping[str, Any]) -> None:
        diagram = levelled.diagram
        self.arrays = arrays
        self.values = diagram.values()
        opened = open_diagram(diagram)
        lines = set(region.lines())
        self.boxes = {b.name: b for b in opened.boxes if b.line in lines}
        outside = [b for b in opened.boxes if b.line not in lines]
        read = {r.array for b in outside for r in b.reads()}
        self.kept = [n for n in self.boxes if n in read or n in diagram.outputs]
        self.shape = {i.name: tuple(int(d.fixed(self.values)) for d in i.dims) for i in opened.inputs}
        self.shape |= {b.name: tuple(self.size(a) for a in b.axes) for b in opened.boxes}
        self.group = {a: min(g, self.size(a)) for a, g in region.group}
        self.hold = dict(region.hold)
        self.split = [a for a, g in self.group.items() if g < self.size(a) and self._reduced(a)]
        self.steps: list[int | None] = [None] * len(self.split) + [s for _, s in region.stream]
        self.loops = [*self.split, *(a for a, _ in region.stream)]
        facts = {i.name: i.fact for i in diagram.inputs if i.fact is not None}
        plan = repair(tuple(self.boxes.values()), frozenset(self.loops), frozenset(self.kept), facts)
        self.refused = {r.reduction for r in plan.refusals}
        self.state = self._partial(plan.boxes)
        self._check(region)

    def size(self, axis: str) -> int:
        return int(self.values[base_name(axis)])

    def _reduced(self, axis: str) -> bool:
        """Whether a member reduces over a grouped axis (24); each stored one must do so or have it (16)."""
        for box in (self.boxes[k] for k in self.kept):
            if axis not in box.axes and not self._upstream_reduces(box, axis):
                raise Unrunnable(f"{box.name} lacks the grouped axis {axis}")
        return any(axis in b.over for b in self.boxes.values())

    def _upstream_reduces(self, box: Box, axis: str) -> bool:
        if axis in box.over:
            return True
        return any(self._upstream_reduces(self.boxes[r.array], axis) for r in box.reads() if r.array in self.boxes)

    def _partial(self, boxes: tuple[Box, ...]) -> list[Box]:
        """The accumulators that an instance leaves unfinished; not those that need a merged result first."""
        partial: dict[str, Box] = {}
        late: set[str] = set()
        for b in boxes:
            if any(r.array in partial or source(r.array) in late for r in b.reads()):
                late.add(b.name)
            elif set(b.over) & set(self.split):
                partial[b.name] = b
        return list(partial.values())

    def _check(self, region: Region) -> None:
        have = {a for b in self.boxes.values() for a in b.all_axes}
        for axis, _ in (*region.group, *region.stream):
            if axis not in have:
                raise Unrunnable(f"no member has {axis}")
        tiled = {a for a, _ in (*region.group, *region.stream)}
        for r in (r for b in self.boxes.values() for r in b.reads() if r.array in self.boxes):
            for axis, form in zip(self.boxes[r.array].axes, r.index, strict=True):
                if axis in tiled and (form.names != (axis,) or form.lookups):
                    raise Unrunnable(f"what is read of {r.array} does not move with {axis}")
        for r in (r for b in self.boxes.values() for r in b.reads() if r.array not in self.boxes):
            for inner in _index_reads(r):
                if inner.array in self.boxes:
                    raise Unrunnable(f"{r.array} is loaded before {inner.array} is made")
                if self.hold.get(inner.array, self._natural(inner)) > self.hold.get(r.array, self._natural(r)):
                    raise Unrunnable(f"{r.array} is loaded before {inner.array}")

    def _natural(self, r: Read) -> int:
        names = {a for form in r.index for a in form.names}
        first = len(self.split)
        return max((j + 1 - first for j, a in enumerate(self.loops) if a in names and j >= first), default=0)

    # places of boxes among the runs of the loops (14, 18)

    def reduced(self, box: Box) -> frozenset[str]:
        return frozenset(box.over) & frozenset(self.loops)

    def outermost(self, box: Box) -> int:
        """The outermost loop that a reduction reduces over; past the end if there is none."""
        return min((j for j, a in enumerate(self.loops) if a in box.over), default=len(self.loops))

    def span(self, box: Box) -> int:
        """Within how many loops, from outside, the value has its own tile."""
        return max((j + 1 for j, a in enumerate(self.loops) if a in box.axes and j < self.outermost(box)), default=0)

    def follows(self, box: Box, among: frozenset[str]) -> frozenset[str]:
        """The reduced axes whose unfinished results ``box`` may read: its own, if the prover repairs it."""
        if not self.reduced(box):
            return among
        return frozenset() if box.name in self.refused else self.reduced(box)

    @cached_property
    def _places(self) -> dict[tuple[str, frozenset[str], Place], Place]:
        return {}

    def place(self, box: Box, among: frozenset[str], at: Place = ()) -> Place:
        """The earliest place that the operands allow; ``at`` is the place of a reader that it is made for."""
        key = (box.name, among, at)
        if key not in self._places:
            place: list[int] = list(at)
            for j in range(len(at), len(self.loops)):
                place.append(self._number(box, j, tuple(place), among))
            self._places[key] = tuple(place)
        return self._places[key]

    def _number(self, box: Box, j: int, before: Place, among: frozenset[str]) -> int:
        need = 1
        for r in box.reads():
            if r.array not in self.boxes:
                continue
            operand = self.boxes[r.array]
            at = self.operand_place(operand, among, before)
            if at[:j] != before:
                continue  # finished in an earlier run of an outer loop
            first = self.outermost(operand)
            finished = self.reduced(operand) and self.reduced(operand) != among
            if not finished or j < first:
                need = max(need, at[j])
            elif j == first:
                need = max(need, at[j] + 1)
        walks = self.loops[j] in box.all_axes
        further = any(a in box.all_axes for a in self.loops[j + 1 :])
        repeated = need == 1 and further and not any(n > 1 and n % 2 for n in before)  # in a tail, only loops it walks
        return need + 1 if need % 2 and (walks or repeated) else need

    def merged(self, box: Box) -> bool:
        """Whether a stored member is complete only after the merge of a split reduction (24)."""
        at = self.place(box, self.follows(box, frozenset()))
        return bool(set(self.split) & set(box.over)) or 3 in at[: len(self.split)]

    def operand_place(self, operand: Box, among: frozenset[str], reader: Place) -> Place:
        """Where the value that a reader uses is made: where it is first, or again beside its reader.

        What is made after a loop runs there once (14), unless it changes with a reduction that is unfinished there.
        """
        among = self.follows(operand, among)
        at = self.place(operand, among)
        span = min(self.span(operand), len(reader))
        apart = next((j for j in range(span) if at[j] != reader[j]), None)
        if apart is None or (at[apart] > 1 and at[apart] % 2 and not self.changes(operand, among)):
            return at
        return self.place(operand, among, reader[:span])

    def changes(self, box: Box, among: frozenset[str]) -> bool:
        """Whether a map reads an unfinished reduction over ``among``, directly or not."""
        operands = [self.boxes[r.array] for r in box.reads() if r.array in self.boxes]
        if self.reduced(box) or not among:
            return False
        return any(self.reduced(o) == among or self.changes(o, among) for o in operands)

    def runs(self) -> dict[str, set[tuple[Place, frozenset[str]]]]:
        """Every box with the places at which it runs, from the stored ones back."""
        found: dict[str, set[tuple[Place, frozenset[str]]]] = defaultdict(set)
        todo = [(self.boxes[k], None) for k in self.kept]
        pending: list[tuple[Box, Place, frozenset[str]]] = []
        for box, _ in todo:
            among = self.follows(box, frozenset())
            pending.append((box, self.place(box, among), among))
        while pending:
            box, at, among = pending.pop()
            if (at, among) in found[box.name]:
                continue
            found[box.name].add((at, among))
            for r in box.reads():
                if r.array in self.boxes:
                    operand = self.boxes[r.array]
                    pending.append((operand, self.operand_place(operand, among, at), self.follows(operand, among)))
        return found

    # values that predicates of indices decide (25)

    @cached_property
    def _known(self) -> dict[tuple[str, Element], Any]:
        return {}

    def known(self, name: str, element: Element) -> Any:
        """The value of one element of a box if it depends on no load, else None."""
        key = (name, element)
        if key not in self._known:
            box = self.boxes[name]
            env = dict(zip(box.axes, element, strict=True))
            if box.reduction is None:
                self._known[key] = self.row(box.body, env)[0]
            else:
                terms = []
                for more in itertools.product(*(range(self.size(a)) for a in box.over)):
                    terms.append(self.row(box.body, env | dict(zip(box.over, more, strict=True)))[0])
                    if terms[-1] is None:
                        break
                self._known[key] = None if terms[-1] is None else _reduce(box.reduction, terms)
        return self._known[key]

    def row(self, e: Expr, env: dict[str, int]) -> Row:
        """A known value, or the reads that the value at these indices depends on."""
        match e:
            case Number(value=value):
                return value, frozenset()
            case Constant(name=name):
                return self.values[name], frozenset()
            case Index(axis=axis):
                return env[axis], frozenset()
            case Size(axis=axis):
                return self.size(axis), frozenset()
            case Read(array=array) if array in self.boxes:
                value = self.known(array, self.at(e, env))
                return value, frozenset() if value is not None else frozenset({e, *_index_reads(e)})
            case Read():
                return None, frozenset({e, *_index_reads(e)})
            case Apply("where", (condition, yes, no)):
                value, needs = self.row(condition, env)
                if value is not None:
                    return self.row(yes if value else no, env)
                rows = self.row(yes, env), self.row(no, env)
                if rows[0][0] is not None and rows[0][0] == rows[1][0]:
                    return rows[0]
                return None, needs | rows[0][1] | rows[1][1]
            case Apply(op=op, args=args):
                rows = [self.row(a, env) for a in args]
                value = _decided(op, [v for v, _ in rows])
                return value, frozenset() if value is not None else frozenset().union(*(n for _, n in rows))
        raise AssertionError(e)

    def at(self, read: Read, env: dict[str, int]) -> Element:
        return tuple(self.index(form, env) for form in read.index)

    def index(self, form: Affine, env: dict[str, int]) -> int:
        looked_up = sum(c * int(self.looked_up(lookup.expr, env)) for lookup, c in form.lookups)
        return form.fixed(self.values) + sum(c * env[a] for a, c in form.axes) + looked_up

    def looked_up(self, e: Expr, env: dict[str, int]) -> Any:
        """A number inside an index; what lies out of range is nowhere."""
        match e:
            case Number(value=value):
                return value
            case Constant(name=name):
                return self.values[name]
            case Index(axis=axis):
                return env[axis]
            case Size(axis=axis):
                return self.size(axis)
            case Read(array=array):
                at = self.at(e, env)
                inside = all(0 <= i < n for i, n in zip(at, self.shape[array], strict=True))
                return self.arrays[array][at] if inside else -(1 << 40)
            case Apply(op=op, args=args):
                return FUNCTIONS[op](*(self.looked_up(a, env) for a in args))
        raise AssertionError(e)

    # counting

    def count(self, moved: Moved) -> None:
        runs = self.runs()
        for places in runs.values():
            for at, _ in places:
                if any(n > 3 for n in at[: len(self.split)]):
                    raise Unrunnable("a grouped reduction is needed before it is merged")
        tiles = [[range(o, min(o + g, self.size(a))) for o in range(0, self.size(a), g)] for a, g in self.group.items()]
        for chosen in itertools.product(*tiles):
            _Instance(self, dict(zip(self.group, chosen, strict=True)), runs).count(moved)
        if self.split:
            self._merge(moved, runs)

    def _merge(self, moved: Moved, runs: dict[str, set[tuple[Place, frozenset[str]]]]) -> None:
        """The region that loads every state, runs the tail and stores the result (24)."""
        tiles = {a: -(-self.size(a) // g) for a, g in self.group.items()}
        for box in self.state:  # a tile of the state from each instance
            n = math.prod(self.size(a) for a in box.axes) * math.prod(n for a, n in tiles.items() if a not in box.axes)
            moved.stores["state"] += n
            moved.loads["state"] += n
        loaded: dict[str, set[Element]] = defaultdict(set)
        for name, places in runs.items():
            if any(3 in at[: len(self.split)] for at, _ in places):
                for r in self.boxes[name].reads():
                    if r.array not in self.boxes:
                        whole = {a: range(self.size(a)) for a in self.boxes[name].all_axes}
                        loaded[r.array] |= self.footprint(r, whole)
        for array, elements in loaded.items():
            moved.loads[array] += len(elements)
        for k in self.kept:
            if self.merged(self.boxes[k]):
                moved.stores[k] += math.prod(self.shape[k])

    def footprint(self, read: Read, tile: dict[str, range]) -> set[Element]:
        """The elements of a read over a tile, those out of range left out (6)."""
        axes = sorted({a for form in read.index for a in form.names})
        found = set()
        for place in itertools.product(*(tile[a] for a in axes)):
            element = self.at(read, dict(zip(axes, place, strict=True)))
            if all(0 <= i < n for i, n in zip(element, self.shape[read.array], strict=True)):
                found.add(element)
        return found


class _Instance:
    """One tuple of group tiles."""

    def __init__(self, region: _Region, tile: dict[str, range], runs: dict[str, Any]) -> None:
        self.region = region
        self.tile = tile
        self.runs = runs
        self.trips = [self._trips(a, s) for a, s in zip(region.loops, region.steps, strict=True)]
        self.loaded: dict[tuple[Any, ...], set[Element]] = defaultdict(set)
        # elements asked of a value, and the box of indices that its readers' tiles cover
        self.asked: dict[tuple[str, Place, Trips], set[Element]] = defaultdict(set)
        self.cover: dict[tuple[str, Place, Trips], list[range]] = {}

    def whole(self, axis: str) -> range:
        return self.tile.get(axis, range(self.region.size(axis)))

    def _trips(self, axis: str, step: int | None) -> list[range]:
        whole = self.whole(axis)
        if step is None:
            return [whole]
        return [range(o, min(o + step, whole.stop)) for o in range(whole.start, whole.stop, step)]

    def count(self, moved: Moved) -> None:
        region = self.region
        for k in region.kept:
            if not region.merged(region.boxes[k]):
                moved.stores[k] += math.prod(len(self.whole(a)) for a in region.boxes[k].axes)
        for box in reversed(region.boxes.values()):
            for at, among in sorted(self.runs.get(box.name, ()), key=str):
                if not any(n == 3 for n in at[: len(region.split)]):
                    self.run(box, at, among)
        for (array, *_), elements in self.loaded.items():
            moved.loads[array] += len(elements)

    def every(self, at: Place) -> Iterator[Trips]:
        """The trips of the loops that a place is inside of."""
        return itertools.product(
            *(range(len(t)) if n % 2 == 0 else (None,) for t, n in zip(self.trips, at, strict=True))
        )

    def value_key(self, box: Box, trips: Trips) -> Trips:
        return trips[: self.region.outermost(box)]

    def run(self, box: Box, at: Place, among: frozenset[str]) -> None:
        region = self.region
        stored = box.name in region.kept and (at, among) == self._first(box)
        stored = stored or bool(region.reduced(box) & set(region.split))
        for trips in self.every(at):
            tile = {a: self.whole(a) for a in box.all_axes}
            for j, a in enumerate(region.loops):
                if a in tile and trips[j] is not None:
                    tile[a] = self.trips[j][trips[j]]
            key = (box.name, at, self.value_key(box, trips))
            base = tuple(tile[a] for a in box.axes)
            if not stored and key not in self.cover:
                continue
            for position, a in enumerate(box.axes):
                tile[a] = self._range(box, a, base[position], self.cover.get(key), position, stored, key)
            wanted = None if stored and key not in self.cover else self.asked[key]
            self._tile(box, at, among, trips, tile, wanted, base if stored else None)

    def _first(self, box: Box) -> tuple[Place, frozenset[str]]:
        among = self.region.follows(box, frozenset())
        return self.region.place(box, among), among

    def _range(
        self, box: Box, a: str, base: range, cover: list[range] | None, position: int, stored: bool, key: Any
    ) -> range:
        """What a tile computes along one axis: an interval over what its readers and its store need (17)."""
        if cover is None:
            return base
        asked = cover[position]
        whole_life = [j for j, loop in enumerate(self.region.loops) if loop == a and j >= len(key[2])]
        if any(key[1][j] % 2 == 0 for j in whole_life):  # the value outlives the loop: a trip makes its own part
            return base if stored else range(max(base.start, asked.start), min(base.stop, asked.stop))
        return _hull(base, asked) if stored else asked

    def _tile(
        self,
        box: Box,
        at: Place,
        among: frozenset[str],
        trips: Trips,
        tile: dict[str, range],
        wanted: set[Element] | None,
        base: tuple[range, ...] | None,
    ) -> None:
        """Find the reads that survive in one tile; load their footprints, or ask their makers."""
        region = self.region
        surviving: set[Read] = set()
        for element in itertools.product(*(tile[a] for a in box.axes)):
            own = base is not None and all(i in r for i, r in zip(element, base, strict=True))
            if not own and wanted is not None and element not in wanted:
                continue
            if region.known(box.name, element) is not None:
                continue
            env = dict(zip(box.axes, element, strict=True))
            for more in itertools.product(*(tile[a] for a in box.over)):
                here = env | dict(zip(box.over, more, strict=True))
                for r in region.row(box.body, here)[1]:
                    surviving.add(r)
                    if r.array in region.boxes:
                        element = region.at(r, here)
                        for key, clip in self._keys(r, at, among, trips):
                            if all(element[k] in t for k, t in clip.items()):
                                self.asked[key].add(element)
        for r in surviving:
            if r.array in region.boxes:
                self._cover(r, at, among, trips, tile)
            else:
                depth = self._depth(r)
                where = tuple((n, t) for n, t in zip(at[:depth], trips[:depth], strict=True))
                self.loaded[r.array, depth, where] |= region.footprint(r, tile)

    def _depth(self, r: Read) -> int:
        """The innermost loop whose axis indexes the read, or further out where it is held."""
        region = self.region
        indexed = {a for form in r.index for a in form.names}
        first = len(region.split)
        depth = max((j + 1 for j, a in enumerate(region.loops) if a in indexed and j >= first), default=0)
        if r.array in region.hold:
            held = region.hold[r.array]
            depth = min(depth, held + first if held else 0)
        return depth

    def _keys(
        self, r: Read, at: Place, among: frozenset[str], trips: Trips
    ) -> list[tuple[tuple[str, Place, Trips], dict[int, range]]]:
        """The values that a read uses: beside it in loops that both are in, else of every trip.

        Each with the part of it that was made in its trips of loops that the reader is not in, by position.
        """
        operand = self.region.boxes[r.array]
        made = self.region.operand_place(operand, among, at)
        choices: list[list[int | None]] = []
        for j in range(min(self.region.outermost(operand), len(made))):
            if made[j] % 2:
                choices.append([None])
            elif made[: j + 1] == at[: j + 1]:
                choices.append([trips[j]])
            else:
                choices.append(list(range(len(self.trips[j]))))
        positions = {a: k for k, a in enumerate(operand.axes)}
        apart = [j for j in range(len(choices)) if made[j] % 2 == 0 and made[: j + 1] != at[: j + 1]]
        found = []
        for key in itertools.product(*choices):
            clip = {positions[a]: self.trips[j][key[j] or 0] for j in apart if (a := self.region.loops[j]) in positions}
            found.append(((r.array, made, key), clip))
        return found

    def _cover(self, r: Read, at: Place, among: frozenset[str], trips: Trips, tile: dict[str, range]) -> None:
        needs = []
        for form, n in zip(r.index, self.region.shape[r.array], strict=True):
            if form.lookups:  # all of it may be asked for
                needs.append(range(n))
                continue
            ends = itertools.product(*((tile[a][0], tile[a][-1]) for a in form.names))
            at_ends = [self.region.index(form, dict(zip(form.names, e, strict=True))) for e in ends]
            needs.append(range(max(0, min(at_ends)), min(n, max(at_ends) + 1)))
        for key, clip in self._keys(r, at, among, trips):
            mine = [_meet(n, clip.get(k, n)) for k, n in enumerate(needs)]
            if all(mine):
                old = self.cover.get(key)
                self.cover[key] = mine if old is None else [_hull(a, b) for a, b in zip(old, mine, strict=True)]


def _index_reads(r: Read) -> set[Read]:
    """The reads inside the index of a read, and inside theirs."""
    return {inner for form in r.index for lookup, _ in form.lookups for inner in reads(lookup.expr)}


def _meet(a: range, b: range) -> range:
    return range(max(a.start, b.start), min(a.stop, b.stop))


def _hull(a: range, b: range) -> range:
    return range(min(a.start, b.start), max(a.stop, b.stop))


def _reduce(op: str, terms: list[Any]) -> Any:
    if all(t == REDUCTIONS[op].identity for t in terms):
        return REDUCTIONS[op].identity
    combine = {"sum": sum, "max": max, "min": min, "prod": math.prod, "any": any, "all": all}[op]
    return combine(terms)


def _decided(op: str, args: list[Any]) -> Any:
    """The value of an operator on values known (or None), loaded ones taken as finite; None if undecided."""
    if all(a is not None for a in args):
        with np.errstate(all="ignore"):
            return FUNCTIONS[op](*(np.float64(a) if isinstance(a, float) else a for a in args))
    zero = [a is not None and a == 0 for a in args]
    endless = [a is not None and not isinstance(a, bool) and math.isinf(a) for a in args]
    match op:
        case "mul" if any(zero):
            return 0
        case "and" if any(zero):
            return False
        case "or" if any(a is not None and bool(a) for a in args):
            return True
        case "add" if any(endless):
            return args[endless.index(True)]
        case "sub" | "masked_sub" if any(endless):
            return args[0] if endless[0] else -args[1]
        case "div" | "masked_div" if zero[0] or endless[1]:
            return 0
        case "max" if any(a == math.inf for a in args):
            return math.inf
        case "min" if any(a == -math.inf for a in args):
            return -math.inf
    return None
