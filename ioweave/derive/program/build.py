"""Expanding a region into its program: loops with passes, loads at their depths, boxes in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ioweave.derive.program.free import free_boxes, priced
from ioweave.derive.program.held import held_dtypes
from ioweave.derive.program.life import with_lives
from ioweave.derive.program.lists import leader_reads, slot_axes, with_leaders
from ioweave.derive.program.order import within_lines
from ioweave.derive.program.program import Column, Load, Loop, Program, Role, Store, Variable
from ioweave.derive.program.reach import Place, places, refuse_inner, refuse_late
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.slots import Nests, Slot, corrections, occurrences, references
from ioweave.derive.program.spans import Span, alike, bare, demands
from ioweave.derive.program.split import (
    merge_setting,
    split_boxes,
    with_operands,
    without_steps,
)
from ioweave.derive.program.walks import Walks
from ioweave.derive.streaming.merge import merge_states, state_name
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import OLD, Box, source
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Read, reads
from ioweave.diagrams.lists import check_whole
from ioweave.diagrams.scans import Walk, backward_axes, check_scans, scan_axes, uncut, with_starts


@dataclass(frozen=True, slots=True)
class Shape:
    """A region without its tile sizes: which axes are grouped, streamed (in order), split, held.

    ``unit`` are the streamed axes whose steps are known to be single elements: there a scan needs no tile
    beside its state.
    """

    group: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    hold: tuple[tuple[str, int], ...] = ()
    unit: frozenset[str] = frozenset()


def build(name: str, boxes: Sequence[Box], stored: frozenset[str], shape: Shape, setting: Setting) -> Program:
    """The program of a region with these boxes, of which ``stored`` leave it.

    Raises Refused where counting.md 14 to 18 refuse: a stored member that lacks a grouped axis,
    a split reduction without a merge, a shifted read that is no interval per tile.
    """
    boxes = tuple(boxes)
    check_scans(boxes, shape.group, shape.loops)
    walked = {a for b in boxes for a in b.over} | scan_axes(boxes)
    streamed = frozenset((*shape.loops, *shape.split)) & walked
    plan = setting.plan(boxes, streamed, stored)
    check_whole(plan.boxes, (*shape.group, *shape.loops))
    setting = setting.with_lengths(plan.lengths)
    planned = with_starts(plan.boxes, shape.loops)
    inner, outer = split_boxes(planned, shape.split, stored)
    _check_stored(inner, outer, stored, shape)
    if not shape.split:
        whole = _instance(name, inner, stored, shape, setting, free_boxes(inner, stored))
        return replace(whole, lengths=plan.lengths)
    kept = frozenset(b.name for b in inner if any(a in shape.split for a in b.over)) & _wanted(outer, stored, planned)
    kept = with_leaders(kept, {b.name: b for b in inner})
    parted = {frozenset(b.over) & frozenset(shape.split) for b in inner if b.name in kept}
    if len(parted) > 1:
        raise Refused(
            f"partial results of {name} lack different ones of the grouped axes {', '.join(shape.split)}; "
            "group the axes of one reduction, or put the others in a region of their own"
        )
    # an axis that the states keep is reduced in the merge, and only grouped here
    shape = replace(shape, split=tuple(a for a in shape.split if any(a in axes for axes in parted)))
    label = state_label(outer, inner, stored)
    leaving = kept | (stored & {b.name for b in inner} - _outer(outer))
    free = free_boxes(inner, stored)
    program = _instance(name, without_steps(inner, shape.loops), leaving, shape, setting, free, label)
    outer = with_operands(inner, outer, kept | stored)
    states = merge_states([b for b in inner if b.name in kept], {b.name: b for b in inner})
    merge = without_steps((*states, *outer), ())
    outputs = frozenset(stored & ({b.name for b in outer} | kept))
    merged = merge_setting(setting, inner, kept)
    shared = tuple(a for a in setting.sizes if all(a in b.axes for b in inner if b.name in kept - free))
    shared = tuple(a for a in shared if all(a in b.axes for b in merge if b.name in outputs))
    shared = tuple(a for a in shared if not any(a in b.over for b in merge))  # each state is loaded once
    shared = tuple(a for a in shared if a not in slot_axes(merge) and a not in uncut(merge))
    free = free_boxes(merge, outputs, frozenset(state_name(n) for n in kept & free))
    merge = with_starts(merge, shared)
    once = Shape((), shared, (), _once(merge, shared), frozenset(shared))
    tail = _instance(f"merge({label})", merge, outputs, once, merged, free, line=label)
    return replace(program, merge=tail, lengths=plan.lengths)


def _once(boxes: Sequence[Box], loops: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Holds with which a merge loads every array once: as deep as all the loops so far index it."""
    made = {b.name for b in boxes}
    hold: dict[str, int] = {}
    for r in (r for b in boxes for r in b.operands()):
        if source(r.array) not in made:
            axes = {a for form in r.index for a in form.names}
            depth = next((p for p, a in enumerate(loops) if a not in axes), len(loops))
            hold[r.array] = min(depth, hold.get(r.array, depth))
    return tuple(hold.items())


def state_label(outer: Sequence[Box], inner: Sequence[Box], stored: frozenset[str]) -> str:
    """The line whose state a split region stores: the last stored one that needs the merge."""
    lines = [b.line for b in (*inner, *outer) if b.name in stored]
    return lines[-1]


def _outer(outer: Sequence[Box]) -> set[str]:
    return {b.name for b in outer}


def _wanted(outer: Sequence[Box], stored: frozenset[str], boxes: Sequence[Box]) -> frozenset[str]:
    """Split reductions that the merge needs: read by its boxes, stored, or what a correction of one follows."""
    made = {b.name: b for b in boxes}
    wanted = set(stored) | {source(r.array) for b in outer for r in b.operands()}
    frontier = list(wanted)
    while frontier:
        b = made.get(frontier.pop())
        if b is None:
            continue
        for r in (o.name for name in corrections(b) for o in references(name, made)):
            if r not in wanted:
                wanted.add(r)
                frontier.append(r)
    return frozenset(wanted)


def _check_stored(inner: Sequence[Box], outer: Sequence[Box], stored: frozenset[str], shape: Shape) -> None:
    for b in inner:
        if b.name not in stored:
            continue
        for a in shape.group:
            if a not in b.axes and a not in b.over:
                raise Refused(
                    f"{b.name} is stored but has no axis {a}, which is grouped: two instances would write one place; "
                    f"leave {a} whole or stream it, or put {b.name} in a region of its own"
                )


def _instance(
    name: str,
    boxes: tuple[Box, ...],
    stored: frozenset[str],
    shape: Shape,
    setting: Setting,
    free: frozenset[str],
    label: str | None = None,
    line: str | None = None,
) -> Program:
    """``label`` is the line whose state is stored, ``line`` the one whose states a merge joins."""
    return _Builder(name, within_lines(boxes), stored, shape, setting, free, label, line).program()


def correction_reads(box: Box, made: Mapping[str, Box]) -> tuple[Read, ...]:
    """The reads of what recentres and rescales a running box, if anything does."""
    return tuple(Read(n, tuple(Affine.axis(a) for a in made[n].axes)) for n in corrections(box))


class _Builder:
    """Holds what the steps of one expansion share; used once."""

    def __init__(
        self,
        name: str,
        boxes: tuple[Box, ...],
        stored: frozenset[str],
        shape: Shape,
        setting: Setting,
        free: frozenset[str],
        label: str | None,
        line: str | None,
    ) -> None:
        self.name, self.boxes, self.stored, self.shape = name, boxes, stored, shape
        self.setting, self.free, self.label, self.line = setting, free, label, line
        self.made = {b.name: b for b in boxes}
        self.loops = shape.loops
        self.nests = Nests(boxes, self.loops)
        self.slots = occurrences(self.nests, stored)
        self.boxes = tuple(b for b in boxes if self.slots[b.name])  # a merge may make alone what an instance could
        tiled = frozenset((*shape.group, *shape.loops))
        self.spans = demands(boxes, stored, tiled, setting.sizes)
        self.held = held_dtypes(boxes, setting.accumulate)
        self.hold = dict(shape.hold)
        self.order = {b.name: k for k, b in enumerate(boxes)}
        self.variables: dict[str, Variable] = {}
        self.walks = Walks(boxes, self.loops, shape.unit, self.slots, self.variable_name)

    # -- names and extents

    def variable_name(self, box: str, slot: Slot) -> str:
        index = self.slots[box].index(slot)
        return box if index == 0 else f"{box}@{index + 1}"

    def entered(self, slot: Slot, depth: int | None = None) -> frozenset[str]:
        part = slot if depth is None else slot[:depth]
        return frozenset(a for a, t in zip(self.loops, part, strict=False) if t is not None and t % 2 == 0)

    def state_depth(self, box: Box, slot: Slot) -> int | None:
        """The position of the outermost loop over which the box accumulates, or None."""
        for p, axis in enumerate(self.loops):
            t = slot[p]
            if axis in box.over and t is not None and t % 2 == 0:
                return p
        return None

    def define(
        self, name: str, array: str, role: Role, dtype: str, spans: tuple[Span, ...], entered: frozenset[str]
    ) -> None:
        self.variables[name] = Variable(name, array, role, dtype, (spans,), entered)

    # -- loads

    def depth_of(self, read: Read) -> int:
        axes = {a for form in read.index for a in form.names}
        depth = max((p + 1 for p, a in enumerate(self.loops) if a in axes), default=0)
        return min(depth, self.hold.get(read.array, depth))

    def collect_loads(self) -> tuple[list[Load], dict[tuple[str, Read, Slot], str]]:
        """The loads, and the variable that each read of each box takes in each of its slots."""
        found: dict[tuple[str, int, Slot], list[tuple[str, Read]]] = {}
        by_reader: dict[tuple[str, Read, Slot], tuple[str, int, Slot]] = {}
        for b in self.boxes:
            for read in b.operands():
                if source(read.array) in self.made:
                    continue
                for slot in self.slots[b.name]:
                    depth = self.depth_of(read)
                    while depth and (slot[depth - 1] is None or (slot[depth - 1] or 0) % 2):
                        depth -= 1  # held at a loop that this reader is not in: loaded with the next one out
                    load = by_reader[b.name, read, slot] = read.array, depth, tuple(slot[:depth])
                    refuse_inner(read, self.made)
                    entries = found.setdefault(load, [])
                    if (b.name, read) not in entries:
                        entries.append((b.name, read))
        refuse_late(by_reader)
        loads = []
        names: dict[tuple[str, int, Slot], str] = {}
        count: dict[str, int] = {}
        for (array, depth, key), entries in found.items():
            count[array] = count.get(array, 0) + 1
            name = f"{array}.in" if count[array] == 1 else f"{array}.in{count[array]}"
            names[array, depth, key] = name
            tiled = frozenset((*self.shape.group, *self.loops))
            pieces = alike([self.piece(box, read) for box, read in entries], tiled, self.setting.sizes)
            self.variables[name] = Variable(
                name, array, "slab", self.setting.dtypes[array], tuple(dict.fromkeys(pieces)), self.entered(key, depth)
            )
            label = f"state({self.line})" if self.line and array.startswith(state_name("")[:-1]) else array
            loads.append(Load(array, name, depth, key, tuple(entries), pieces, label))
        return loads, {reader: names[load] for reader, load in by_reader.items()}

    def piece(self, box: str, read: Read) -> tuple[Place, ...]:
        b = self.made[box]
        inner = dict(zip(b.axes, self.spans[box], strict=True))
        inner.update({a: bare(a, self.setting.sizes[a]) for a in b.over})
        return places(read, inner, self.setting)

    # -- columns

    def column(self, box: Box, slot: Slot, loads: Mapping[tuple[str, Read, Slot], str]) -> Column:
        box = self.nests.corrected(box, slot)
        name = self.variable_name(box.name, slot)
        state = self.state_depth(box, slot)
        entered = self.entered(slot) if state is None else self.entered(slot, state)
        walk = self.walks.of(box, slot)
        if walk is not None:
            name = self.walked(box, slot, walk, name)
        else:
            role: Role = "value" if state is None else "state"
            self.define(name, box.name, role, self.held[box.name], self.spans[box.name], entered)
        sources: list[tuple[Read, str]] = []
        for read in (
            *reads(box.body),
            *correction_reads(box, self.made),
            *leader_reads(box, self.made),
            *self.walks.further_reads(box),
        ):
            base = source(read.array)
            if base not in self.made:
                sources.append((read, loads[box.name, read, slot]))
                continue
            earlier = self.earlier(box, slot, read)
            if earlier is not None:
                sources.append((read, earlier))
                continue
            variable = self.variable_name(base, self.nests.context(base, base == read.array, slot))
            before = read.array.endswith(OLD) and self.nests.unfinished(base, slot)
            sources.append((read, variable + OLD if before else variable))
        return Column(
            "run",
            box.name,
            box=box,
            slot=slot,
            variable=name,
            spans=self.spans[box.name],
            sources=tuple(dict.fromkeys(sources)),
            cost=priced(box, self.free),
            walk=walk,
        )

    def walked(self, box: Box, slot: Slot, walk: Walk, name: str) -> str:
        """The variable that a column along a scan writes; what it adds is entered."""
        around = self.entered(slot, self.loops.index(walk.axis)) if walk.axis in self.loops else self.entered(slot)
        inside, spans = self.entered(slot), self.spans[box.name]
        for v in self.walks.variables(box, walk, self.held[box.name], spans, inside, around, name):
            self.variables[v.name] = v
        if walk.begins:
            for r in box.reads():
                if source(r.array) in self.made:
                    at = self.nests.context(source(r.array), source(r.array) == r.array, slot)
                    self.walks.check_start(box, slot, r.array, at)
        return walk.carried if walk.begins and walk.carried is not None else name

    def earlier(self, box: Box, slot: Slot, read: Read) -> str | None:
        """The variable of earlier elements of a scan that a box reads, if it reads such."""
        base = source(read.array)
        at = slot if box.name in self.walks.together else self.nests.context(base, True, slot)
        found = self.walks.source(read, at)
        if found is not None:
            self.walks.check_reader(box, slot, read, at)
        return found

    def widen(self, columns: list[tuple[Slot, Column]]) -> None:
        """A result that another nest of loops reads is held whole over the loops that the two do not share."""
        for made, column in columns:
            if column.walk is not None and column.walk.begins:
                continue
            v = self.variables[column.variable or ""]
            readers = [slot for slot, c in columns if any(s == v.name for _, s in c.sources)]
            shared = [p for p in range(len(self.loops)) if all(r[: p + 1] == made[: p + 1] for r in readers)]
            self.variables[v.name] = replace(v, entered=v.entered & {self.loops[p] for p in shared})

    def program(self) -> Program:
        every, by_reader = self.collect_loads()
        loads = [load for load in every if load.array not in self.free]
        columns = [(slot, self.column(b, slot, by_reader)) for b in self.boxes for slot in self.slots[b.name]]
        self.widen(columns)
        self.walks.checked(self.variables, [c for _, c in columns])
        for name in [s for c in columns for _, s in c[1].sources if s.endswith(OLD)]:
            state = self.variables[name.removesuffix(OLD)]
            slot, column = next(c for c in columns if c[1].variable == state.name)
            assert column.box is not None
            step = self.entered(slot, self.state_depth(column.box, slot))
            self.variables[name] = replace(state, name=name, role="old", entered=step)
        stores = self.stores()
        body = self.section(0, (), columns, loads, stores)
        head = [load for load in loads if load.depth == 0]
        tail = [s.variable for s in stores if not self.variables[s.variable].entered]
        nodes: list[Column | Loop] = []
        if head:
            nodes.append(Column("load", "load", loads=tuple(head)))
        nodes.extend(body)
        if tail:
            nodes.append(Column("store", "store", stores=tuple(tail)))
        passes = max(
            (t // 2 + 1 for s in self.slots.values() for x in s for t in x if t is not None and t % 2 == 0), default=1
        )
        program = Program(
            self.name,
            self.shape.group,
            self.loops,
            self.shape.split,
            self.boxes,
            tuple(self.slots.items()),
            tuple(self.variables.values()),
            tuple(nodes),
            tuple(s for s in stores if self.variables[s.variable].array not in self.free),
            passes,
            free=self.free,
            known=tuple(s for s in stores if self.variables[s.variable].array in self.free),
            given=tuple(load for load in every if load.array in self.free),
        )
        return with_lives(program)

    def stores(self) -> tuple[Store, ...]:
        stores = []
        for b in self.boxes:
            if b.name not in self.stored:
                continue
            split = self.label is not None and any(a in self.shape.split for a in b.over)
            variable = self.variable_name(b.name, self.slots[b.name][0])
            array = state_name(b.name) if split else b.name
            label = f"state({self.label})" if split else b.name
            stores.append(Store(array, variable, label, split))
        return tuple(stores)

    def section(
        self,
        p: int,
        prefix: Slot,
        columns: list[tuple[Slot, Column]],
        loads: list[Load],
        stores: tuple[Store, ...],
    ) -> list[Column | Loop]:
        """The nodes of columns that share ``prefix``, from loop ``p`` inwards."""
        if not columns:
            return []
        if p == len(self.loops):
            return [c for _, c in sorted(columns, key=lambda sc: self.order[sc[1].title])]
        nodes: list[Column | Loop] = []
        outside = [(s, c) for s, c in columns if s[p] is None]
        nodes.extend(self.section(p + 1, (*prefix, None), outside, loads, stores))
        for t in sorted({t for s, _ in columns if (t := s[p]) is not None}):  # passes, and what follows each
            here = [(s, c) for s, c in columns if s[p] == t]
            path = (*prefix, t)
            inner = self.section(p + 1, path, here, loads, stores)
            if t % 2:
                nodes.extend(inner)
                continue
            mine = tuple(load for load in loads if load.depth == p + 1 and load.key == path)
            body: list[Column | Loop] = [Column("load", "load", loads=mine)] if mine else []
            body.extend(inner)
            entered = self.entered(path)
            names = {c.variable for _, c in here}
            out = tuple(
                s.variable for s in stores if s.variable in names and self.variables[s.variable].entered == entered
            )
            if out:
                body.append(Column("store", "store", stores=out))
            starts = tuple(
                c.variable
                for s, c in here
                if c.box is not None and c.variable is not None and self.state_depth(c.box, s) == p
            )
            starts += tuple(c.walk.carried for _, c in here if c.walk and c.walk.carried and self.walks.began(c) == p)
            backward = self.loops[p] in backward_axes(self.boxes)
            nodes.append(Loop(p, self.loops[p], t, starts, tuple(body), backward))
        return nodes
