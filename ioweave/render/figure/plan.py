"""From a panel's lines to strands and rows: which wires live where, before any number is chosen.

A *strand* is one run of an array's wires; a *row* is a horizontal track that wires follow. At
every column the live strands have an order from top to bottom. The operands of a column are
brought together, wires that pass it stay outside, an operand that lives on is copied, and the
result takes over rows of its operands, so that wires stay straight as long as they can.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ioweave.render.figure.operation import Operation, plan_operation
from ioweave.render.figure.spec import OperandSpec, PanelSpec, RegionSpec
from ioweave.render.figure.theme import Theme

LOOSE = 100.0  # a result whose rows are apart by more than this is drawn together
BRACKET = 15.0  # the height of a bracket over or under a plate
EARLY = 2  # an input that is first read in a column up to this one enters at the left edge


@dataclass(frozen=True, slots=True)
class Fork:
    """``child`` is a copy of ``parent``: its wires leave the parent's at dots."""

    parent: int
    child: int


@dataclass(frozen=True, slots=True)
class Shift:
    """A strand that moves to new rows to lie beside the other operands."""

    strand: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prelude:
    """What happens before a plate or a column: strands that start, copies, moves."""

    starts: tuple[int, ...] = ()
    forks: tuple[Fork, ...] = ()
    shifts: tuple[Shift, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column: operands (strands, in drawing order), the rows of its slots, and its result.

    ``order`` lists the live strands from top to bottom, operands included, before the operation;
    ``reads`` says how each operand is read.
    """

    index: int
    prelude: Prelude
    operands: tuple[int, ...]
    operation: Operation
    slots: tuple[int, ...]
    result: int
    order: tuple[int, ...]
    reads: tuple[OperandSpec, ...]


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """A plate: what enters, its columns, what leaves. ``rows`` are all rows that it covers."""

    index: int
    prelude: Prelude
    loads: tuple[int, ...]
    columns: tuple[ColumnPlan, ...]
    stores: tuple[int, ...]
    order: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a panel. ``array`` and ``rows`` are by strand (its first rows), ``y`` by row."""

    array: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    regions: tuple[RegionPlan, ...]
    ends: tuple[int, ...]
    y: tuple[float, ...]


@dataclass(slots=True)
class _Builder:
    panel: PanelSpec
    theme: Theme
    over: float = 0.0  # from a wire that passes over the present plate to the plate's wires
    under: float = 0.0  # from the plate's wires to a wire that passes under it
    array: list[str] = field(default_factory=list)
    first_rows: list[tuple[int, ...]] = field(default_factory=list)
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    edges: dict[tuple[int, int], float] = field(default_factory=dict)
    alias: dict[int, tuple[int, float]] = field(default_factory=dict)  # row -> (anchor, offset)
    count: int = 0

    def new_rows(self, n: int) -> tuple[int, ...]:
        self.count += n
        return tuple(range(self.count - n, self.count))

    def strand(self, array: str, rows: tuple[int, ...] | None = None) -> int:
        got = self.new_rows(len(self.panel.array(array).axes)) if rows is None else rows
        self.array.append(array)
        self.first_rows.append(got)
        self.rows[len(self.array) - 1] = got
        return len(self.array) - 1

    def edge(self, above: int, below: int, gap: float) -> None:
        self.edges[above, below] = max(gap, self.edges.get((above, below), 0.0))

    def stack(self, blocks: Iterable[tuple[tuple[int, ...], bool]]) -> None:
        """Constrain blocks of rows from top to bottom; the flag says whether a plate holds it."""
        previous: tuple[int, bool] | None = None
        for rows, held in blocks:
            if not rows:
                continue
            for a, b in pairwise(rows):
                self.edge(a, b, self.theme.pitch)
            if previous is not None:
                gap = self.theme.array_gap
                if previous[1] != held:
                    gap = self.over if held else self.under
                self.edge(previous[0], rows[0], gap)
            previous = rows[-1], held


def brackets(panel: PanelSpec, region: RegionSpec) -> tuple[int, int]:
    """How many brackets stand over and under a plate: none where plates of one column follow each other."""
    if len(region.columns) == 1 and len(panel.regions) > 1:
        return 0, 0
    kinds = [p.kind for p in region.partitions if p.texts]
    return kinds.count("group"), kinds.count("stream")


def make_plan(panel: PanelSpec, theme: Theme) -> Plan:
    """Strands, order and rows of a panel."""
    b = _Builder(panel, theme)
    reads = [[o.array for o in c.operands] for c in panel.columns]
    region_of = {c: r for r, region in enumerate(panel.regions) for c in region.columns}
    made_in = {c.result: region_of[i] for i, c in enumerate(panel.columns)}
    first = {a: i for i in reversed(range(len(reads))) for a in reads[i]}
    at_start = sorted(
        (
            a.name
            for a in panel.arrays
            if a.is_input and a.name in first and (first[a.name] <= EARLY or region_of[first[a.name]] == 0)
        ),
        key=lambda a: (first[a], reads[first[a]].index(a)),
    )
    order = [b.strand(a) for a in at_start]
    starts = tuple(order)
    b.stack((b.rows[s], False) for s in order)
    regions: list[RegionPlan] = []
    for r, region in enumerate(panel.regions):
        later = {a for q in panel.regions[r + 1 :] for c in q.columns for a in reads[c]}
        outs = {a.name for a in panel.arrays if a.is_output}
        groups, streams = brackets(panel, region)
        b.over = theme.plate_gap + BRACKET * groups
        b.under = theme.under_gap + BRACKET * streams + (BRACKET if streams else 0.0)
        wanted = dict.fromkeys(a for c in region.columns for a in reads[c] if made_in.get(a) != r)
        live = {b.array[s]: s for s in order}
        partner = {a: _partner(a, region.columns, reads, live) for a in wanted}
        prelude, order, inside = _gather(b, order, list(wanted), live, later | outs, partner)
        loads = tuple(s for s in order if s in inside)
        top = order.index(loads[0]) if loads else len(order)
        above, below = order[:top], order[top + len(loads) :]
        entry = tuple(order)
        b.stack((b.rows[s], s in inside) for s in order)
        covered: set[int] = {row for s in inside for row in b.rows[s]}
        columns: list[ColumnPlan] = []
        held = list(loads)
        for at, c in enumerate(region.columns):
            needed = {a for d in region.columns[at + 1 :] for a in reads[d]}
            needed |= {a for a in made_in if made_in[a] == r and (a in later or a in outs)}
            plan, held = _column(b, c, held, needed, above, below)
            outside = {*above, *below}
            covered |= {row for s in (*plan.order, plan.result) if s not in outside for row in b.rows[s]}
            covered |= set(plan.slots)
            columns.append(plan)
        stores = tuple(held)
        order = [*above, *held, *below]
        for row in covered:
            for s in (s for s in above if b.rows[s]):
                b.edge(b.rows[s][-1], row, b.over)
            for s in (s for s in below if b.rows[s]):
                b.edge(row, b.rows[s][0], b.under)
        regions.append(RegionPlan(r, prelude, loads, tuple(columns), stores, entry, tuple(sorted(covered))))
    y = list(_solve(b.count, b.edges))
    for row, (anchor, offset) in b.alias.items():
        y[row] = y[anchor] + offset
    return Plan(tuple(b.array), tuple(b.first_rows), starts, tuple(regions), tuple(order), tuple(y))


def _partner(array: str, columns: tuple[int, ...], reads: list[list[str]], live: dict[str, int]) -> str | None:
    """The live array that ``array`` first meets: a new input is drawn beside it."""
    for c in columns:
        if array in reads[c]:
            return next((a for a in reads[c] if a in live), None)
    return None


def _gather(
    b: _Builder,
    order: list[int],
    wanted: list[str],
    live: dict[str, int],
    survive: Set[str],
    partner: dict[str, str | None],
) -> tuple[Prelude, list[int], set[int]]:
    """Bring the wanted arrays together: copies of those that live on, the others themselves."""
    place = {s: k for k, s in enumerate(order)}
    starts: list[int] = []
    forks: list[Fork] = []
    entries: list[tuple[tuple[float, int, int], int]] = []
    dying: set[int] = set()
    for n, a in enumerate(wanted):
        if a in live:
            key = (float(place[live[a]]), 0, n)
            if a in survive:
                child = b.strand(a)
                forks.append(Fork(live[a], child))
                entries.append((key, child))
            else:
                dying.add(live[a])
                entries.append((key, live[a]))
        else:
            mate = partner.get(a)
            child = b.strand(a)
            starts.append(child)
            entries.append(((float(place[live[mate]]) if mate in live and mate else float(len(order)), 1, n), child))
    group = [s for _, s in sorted(entries)]
    passing = [s for s in order if s not in dying]
    at = _position(order, passing, [(f.parent, len(b.rows[f.parent])) for f in forks], dying, b)
    new_order = [*passing[:at], *group, *passing[at:]]
    shifts: list[Shift] = []
    kept_rank = [s for s in group if s in dying]
    still = _unmoved(order, new_order, dying)
    for s in kept_rank:
        if s not in still:
            rows = b.new_rows(len(b.rows[s]))
            b.rows[s] = rows
            shifts.append(Shift(s, rows))
    return Prelude(tuple(starts), tuple(forks), tuple(shifts)), new_order, set(group)


def _position(
    order: list[int], passing: list[int], parents: list[tuple[int, int]], dying: set[int], b: _Builder
) -> int:
    """Where among the passing strands the group goes: the place with the fewest crossings."""
    best: tuple[float, int] | None = None
    for at in range(len(passing) + 1):
        cost = 0.0
        for d in dying:
            here = sum(1 for s in passing if order.index(s) < order.index(d))
            cost += len(b.rows[d]) * sum(len(b.rows[s]) for s in passing[min(here, at) : max(here, at)])
        for parent, wires in parents:
            here = passing.index(parent)
            between = passing[here + 1 : at] if at > here else passing[at:here]
            cost += wires * sum(len(b.rows[s]) for s in between)
        if best is None or cost < best[0] or (cost == best[0] and parents):
            best = cost, at
    return best[1] if best else 0


def _unmoved(order: list[int], new_order: list[int], dying: set[int]) -> set[int]:
    """The dying strands that keep their place relative to every passing one."""
    passing = [s for s in order if s not in dying]
    return {
        d
        for d in dying
        if {s for s in passing if order.index(s) < order.index(d)}
        == {s for s in passing if new_order.index(s) < new_order.index(d)}
    }


def _column(
    b: _Builder, c: int, held: list[int], needed: set[str], above: list[int], below: list[int]
) -> tuple[ColumnPlan, list[int]]:
    spec = b.panel.columns[c]
    live = {b.array[s]: s for s in held}
    wanted = list(dict.fromkeys(o.array for o in spec.operands))
    prelude, order, inside = _gather(b, held, wanted, live, needed, {})
    extra: list[Fork] = []  # a second read of one array is a copy of its strand
    group: list[int] = []
    reads = []
    for s in (s for s in order if s in inside):
        mine = [o for o in spec.operands if o.array == b.array[s]]
        for k, o in enumerate(mine):
            if k == 0:
                group.append(s)
            else:
                child = b.strand(o.array)
                extra.append(Fork(s, child))
                group.append(child)
            reads.append(o)
    at = next((k for k, s in enumerate(order) if s in inside), len(order))
    passing = [s for s in order if s not in inside]
    operation = plan_operation(spec, reads)
    slots: list[int] = []
    for s, n in zip(group, operation.counts, strict=True):
        slots.extend(b.rows[s])
        slots.extend(b.new_rows(n - len(b.rows[s])))
    top = max((leave for _, leave in operation.result), default=-1)
    slots.extend(b.new_rows(max(0, top + 1 - len(slots))))
    before, after = passing[:at], passing[at:]
    base = 0
    blocks: list[tuple[tuple[int, ...], bool]] = []
    for n in operation.counts:
        blocks.append((tuple(slots[base : base + n]), True))
        base += n
    blocks.append((tuple(slots[base:]), True))
    full = [
        *((b.rows[s], False) for s in above), *((b.rows[s], True) for s in before), *blocks,
        *((b.rows[s], True) for s in after), *((b.rows[s], False) for s in below),
    ]  # fmt: skip
    b.stack(full)
    rows = _packed(b, tuple(slots[leave] for _, leave in operation.result), c == len(b.panel.columns) - 1)
    leaves = []
    for (have, leave), row in zip(operation.result, rows, strict=True):
        if row != slots[leave]:
            leave = len(slots)
            slots.append(row)
        leaves.append((have, leave))
    operation = replace(operation, result=tuple(leaves))
    result = b.strand(spec.result, rows)
    full_order = (*above, *before, *group, *after, *below)
    prelude = Prelude(prelude.starts, (*prelude.forks, *extra), prelude.shifts)
    plan = ColumnPlan(c, prelude, tuple(group), operation, tuple(slots), result, full_order, tuple(reads))
    outs = [result] if spec.result in needed else []
    return plan, [*before, *outs, *after]


def _packed(b: _Builder, rows: tuple[int, ...], final: bool) -> tuple[int, ...]:
    """The rows of a result, brought together: at the end of a panel always, else where far apart.

    The longest run of neighbouring rows stays. In the middle of a panel the topmost run stays and
    new rows follow under it, since rows are laid as high as they can be.
    """
    if len(rows) < 2 or all(q == p + 1 for p, q in pairwise(rows)):
        return rows
    runs: list[list[int]] = [[0]]
    for k in range(1, len(rows)):
        if rows[k] == rows[k - 1] + 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    if final:
        stay = max(runs, key=lambda r: (len(r), r[0]))
        new = list(rows)
        for k in range(len(rows)):
            if k not in stay:
                anchor = stay[0] if k < stay[0] else stay[-1]
                (new[k],) = b.new_rows(1)
                b.alias[new[k]] = (rows[anchor], (k - anchor) * b.theme.pitch)
        return tuple(new)
    y = _solve(b.count, b.edges)
    if y[rows[-1]] - y[rows[0]] - (len(rows) - 1) * b.theme.pitch < LOOSE:
        return rows
    stay = runs[0]
    new = [rows[k] for k in stay]
    for _ in range(len(rows) - len(stay)):
        (row,) = b.new_rows(1)
        b.edge(new[-1], row, b.theme.pitch)
        new.append(row)
    return tuple(new)


def _solve(count: int, edges: dict[tuple[int, int], float]) -> tuple[float, ...]:
    """The least y of every row that keeps all gaps: longest paths from the top."""
    y = [0.0] * count
    for _ in range(count + 1):
        changed = False
        for (a, c), gap in edges.items():
            if y[c] < y[a] + gap - 1e-9:
                y[c] = y[a] + gap
                changed = True
        if not changed:
            return tuple(y)
    raise ValueError("rows of the figure are ordered in a circle")
