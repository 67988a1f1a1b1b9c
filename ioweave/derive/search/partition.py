"""Partitions of a diagram into regions, recomputation included, as a shortest path.

A state is the set of arrays stored so far. A step runs one region: boxes whose outside operands
are inputs or stored arrays, and the arrays that it stores. Every region starts with a lower
bound; the regions on the best path are costed exactly until the best path has no bound left.
So the answer is exact on the space while only promising regions are ever searched.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from ioweave.derive.program.setting import Setting
from ioweave.derive.search.regions import Effort, Limits, Schedule, best_schedule, runs_once
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.errors import DoesNotFit
from ioweave.diagrams.expressions import Read, reads

REGIONS = 6000  # candidate regions at most; more are cut to the smaller ones, and the answer says so


@dataclass(frozen=True)
class Unit:
    """Boxes that no partition parts: the boxes of a plain line, or one part of a composite."""

    boxes: tuple[Box, ...]
    line: str


@dataclass(frozen=True)
class Candidate:
    """A region of units (a bit set), the arrays it needs from others and those that it stores."""

    units: int
    needs: int
    stores: int


@dataclass(frozen=True)
class Partition:
    """The regions in order, whether the whole space was covered, and what is known of every candidate region.

    ``least`` are costs or lower bounds of them, ``solved`` the best schedules of some.
    """

    schedules: tuple[Schedule, ...]
    exact: bool
    interrupted: bool
    least: Mapping[Candidate, float] = field(default_factory=dict, repr=False)
    solved: Mapping[Candidate, Schedule] = field(default_factory=dict, repr=False)


class Space:
    """The units of a diagram and the candidate regions over them, of at most ``most`` units each."""

    def __init__(
        self, opened: Opened, units: Sequence[Unit], setting: Setting, limits: Limits, most: int | None = None
    ) -> None:
        self.most = most
        self.opened, self.units, self.setting, self.limits = opened, tuple(units), setting, limits
        self.made = {b.name: k for k, u in enumerate(units) for b in u.boxes}
        n = len(units)
        self.operands = [0] * n
        self.reads: list[dict[str, list[Read]]] = [{} for _ in units]
        for k, u in enumerate(units):
            for b in u.boxes:
                for r in b.operands():
                    at = self.made.get(r.array)
                    if at is None:
                        self.reads[k].setdefault(r.array, []).append(r)
                    elif at != k:
                        self.operands[k] |= 1 << at
                        self.reads[k].setdefault(r.array, []).append(r)
        self.readers = [0] * n
        for k in range(n):
            for j in range(n):
                if self.operands[k] >> j & 1:
                    self.readers[j] |= 1 << k
        self.outputs = 0
        for name in opened.outputs:
            self.outputs |= 1 << self.made[name]
        self.linked = [
            sum(
                1 << j
                for j in range(n)
                if j != k
                and (self.operands[k] >> j & 1 or self.operands[j] >> k & 1 or set(self.reads[k]) & set(self.reads[j]))
            )
            for k in range(n)
        ]

    def members(self, mask: int) -> list[int]:
        """The numbers of the units in a bit set, ascending."""
        return [k for k in range(len(self.units)) if mask >> k & 1]

    def connected(self) -> tuple[list[int], bool]:
        """Every connected set of units, smaller first; False where there are too many to list."""
        found = {1 << k for k in range(len(self.units))}
        frontier = list(found)
        while frontier:
            grown: list[int] = []
            for s in frontier:
                if self.most is not None and s.bit_count() >= self.most:
                    continue
                around = 0
                for k in self.members(s):
                    around |= self.linked[k]
                for k in self.members(around & ~s):
                    t = s | 1 << k
                    if t not in found:
                        found.add(t)
                        grown.append(t)
            if len(found) > REGIONS:
                return sorted(found, key=lambda m: (m.bit_count(), m))[:REGIONS], False
            frontier = grown
        return sorted(found, key=lambda m: (m.bit_count(), m)), True

    def candidates(self) -> tuple[list[Candidate], bool]:
        """Every region with every choice of what it stores; sinks are always stored."""
        sets, exact = self.connected()
        result = []
        for s in sets:
            needs = useful = must = 0
            for k in self.members(s):
                needs |= self.operands[k] & ~s
                if self.readers[k] & ~s or self.outputs >> k & 1:
                    useful |= 1 << k
                if not self.readers[k] & s:
                    must |= 1 << k
            if must & ~useful or self.parted(s):
                continue
            optional = self.members(useful & ~must)
            for n in range(len(optional) + 1):
                for chosen in combinations(optional, n):
                    stores = must
                    for k in chosen:
                        stores |= 1 << k
                    result.append(Candidate(s, needs, stores))
        return result, exact

    def parted(self, s: int) -> bool:
        """Whether a set of units makes an index array and looks it up in what it loads, which no region does."""
        names = {b.name for k in self.members(s) for b in self.units[k].boxes}
        every = [r for k in self.members(s) for b in self.units[k].boxes for r in b.operands() if r.array not in names]
        return any(x.array in names for r in every for f in r.index for k, _ in f.lookups for x in reads(k.expr))

    def boxes(self, c: Candidate) -> tuple[Box, ...]:
        """The boxes of a candidate, in the diagram's order."""
        inside = {b.name for k in self.members(c.units) for b in self.units[k].boxes}
        return tuple(b for b in self.opened.boxes if b.name in inside)

    def stored(self, c: Candidate) -> frozenset[str]:
        """The arrays that a candidate stores: the results of its stored units that are used outside."""
        return frozenset(self.result(k) for k in self.members(c.stores))

    def result(self, unit: int) -> str:
        """The array that leaves a unit: its last box's."""
        return self.units[unit].boxes[-1].name

    def name(self, c: Candidate) -> str:
        """The name of a candidate's region: the line of its last unit."""
        return self.units[self.members(c.units)[-1]].line

    def bound(self, c: Candidate, size: Callable[[str, Sequence[Read]], int]) -> int:
        """A lower bound: what it must read at least once, and what it stores."""
        arrays: dict[str, list[Read]] = {}
        inside = {b.name for k in self.members(c.units) for b in self.units[k].boxes}
        for k in self.members(c.units):
            for array, found in self.reads[k].items():
                if array not in inside:
                    arrays.setdefault(array, []).extend(found)
        total = sum(size(a, r) for a, r in arrays.items())
        for name in self.stored(c):
            n = 1
            for x in self.setting.shapes[name]:
                n *= x
            total += n
        return total


def shortest(
    space: Space,
    effort: Effort,
    touched: Callable[[str, Sequence[Read]], int],
    watch: Callable[[str], None],
    alone: Mapping[str, Schedule],
    wider: Partition | None = None,
) -> Partition:
    """The cheapest sequence of regions that stores every output.

    ``touched`` gives the least values that reads of an array touch; after the deadline of
    ``effort`` the best found so far is returned, labelled so; ``watch`` is told what is being
    searched; ``alone`` has the best schedule of every line by itself, which
    is a first answer; ``wider`` is what was found without the limit that no contraction runs
    again. Raises DoesNotFit where no partition fits the capacity.
    """
    every, exact = space.candidates()
    cost: dict[Candidate, float] = {c: space.bound(c, touched) for c in every}
    solved: dict[Candidate, Schedule] = {}
    for c in every:
        schedule = alone.get(space.name(c))
        if schedule is not None and space.stored(c) == schedule.stored and set(space.boxes(c)) == set(schedule.boxes):
            solved[c] = schedule
            cost[c] = schedule.values
    if wider is not None:  # with a limit more no region moves less
        cost.update({c: max(cost[c], n) for c, n in wider.least.items() if c not in solved})
        solved.update({c: s for c, s in wider.solved.items() if runs_once(s)})
    interrupted = False
    try:
        while True:
            path = _path(space, cost)
            if path is None:
                raise DoesNotFit("no schedule fits", 0)
            total, steps = path
            open_ = [c for c in steps if c not in solved]
            if not open_:
                break
            if time.monotonic() > effort.deadline:
                interrupted = True
                break
            known = _path(space, {c: cost[c] for c in solved})
            most = known[0] if known is not None else float("inf")
            c = min(open_, key=lambda c: c.units.bit_count())
            watch(", ".join(sorted(space.stored(c))))
            ceiling = most - (total - cost[c])
            found = best_schedule(
                space.name(c), space.boxes(c), space.stored(c), space.setting, space.limits, effort, ceiling
            )
            if found is not None:
                solved[c] = found
                cost[c] = found.values
            else:  # nothing up to the ceiling: one more is a bound
                cost[c] = ceiling + 1
            if effort.late:
                interrupted = True
                break
    except KeyboardInterrupt:
        interrupted = True
    best = _path(space, {c: cost[c] for c in solved})
    if best is None:
        raise KeyboardInterrupt
    interrupted = interrupted or effort.late
    exact = exact and effort.exact and not interrupted
    return Partition(tuple(solved[c] for c in best[1]), exact, interrupted, cost, solved)


def _path(space: Space, cost: dict[Candidate, float]) -> tuple[float, list[Candidate]] | None:
    """Dijkstra over sets of stored arrays; ties go to fewer regions."""
    useful = [c for c in cost if cost[c] < float("inf")]
    start = 0
    heap: list[tuple[float, int, int, int]] = [(0, 0, 0, start)]
    done: set[int] = set()
    back: dict[int, tuple[int, Candidate]] = {}
    reached: dict[int, tuple[float, int]] = {start: (0, 0)}
    count = 0
    while heap:
        total, steps, _, state = heapq.heappop(heap)
        if state in done:
            continue
        done.add(state)
        if space.outputs & ~state == 0:
            path: list[Candidate] = []
            while state != start:
                state, c = back[state]
                path.append(c)
            return total, path[::-1]
        for c in useful:
            if c.needs & ~state or not c.stores & ~state:
                continue
            after = state | c.stores
            value = (total + cost[c], steps + 1)
            if after not in done and value < reached.get(after, (float("inf"), 0)):
                reached[after] = value
                back[after] = (state, c)
                count += 1
                heapq.heappush(heap, (*value, count, after))
    return None
