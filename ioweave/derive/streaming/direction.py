"""The other direction: a plan that walks an axis with recurrences from its other end, where there is one.

Statement. Let every accumulator be affine in what the scans carry. A segment then changes it by
``o + o.seen s``, with ``s`` the state that enters; joining a segment to the elements already seen on
its other side is ``o.seen' = e + o.seen A`` for an element with map ``s -> A s + b`` and readout ``e``: the
transposed recurrence, walked the other way, with ``o' = o + r + o.seen b``. At the end the start enters.
A scan that only adds is also its total less a sum from the other end, and what depends on the unfinished
total is repaired as any reduction is: exponents follow it (`repair`).
Source. The adjoint of a linear recurrence; Kalman's duality. For stick-breaking attention it is
``o <- (1 - b) o + b v``.
Check. The plan is made by `repair` from boxes that are executed beside the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ioweave.derive.streaming.carry import ZERO, Linear, product_of
from ioweave.derive.streaming.cascade import affine_expr, live, on_reads
from ioweave.derive.streaming.plan import LEFT, RIGHT, Plan
from ioweave.derive.streaming.recurrence import passes_of
from ioweave.derive.streaming.repair import repair
from ioweave.derive.streaming.segments import ONE, Maps, carry_of
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, Opened, Recurrence, base_name
from ioweave.diagrams.expressions import Apply, Expr, Index, Number, Read, Size, free_axes, rename_axes
from ioweave.diagrams.groups import carried_axes, lockstep, prev

SEEN, ELEMENT, REST = "seen", "each", "rest"
Facts = Mapping[str, tuple[str, float]]


def opposite(
    opened: Opened, axis: str, sizes: Mapping[str, int | float] | None = None, accumulate: str = "fp32"
) -> Plan | str:
    """A plan of one pass that walks ``axis`` against its scans, or why there is none."""
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    kept = frozenset(opened.outputs)
    plain = _unrepaired(opened, axis)
    held = carry_of(plain)
    along = [n for n in opened.outputs if axis in opened.box(n).axes and (n in held.of or n in held.scans)]
    if along:
        return f"{along[0]} is indexed by {axis} and needs what is carried to each of its elements"
    if held.why is not None:
        return held.why
    for boxes in (_transposed(plain), _from_totals(plain)):
        if boxes is None:
            continue
        plan = repair(tuple(live(boxes, kept)), frozenset({axis}), kept, facts, sizes, accumulate)
        if plan.passes == 1:
            return plan
    bent = next((d.why for n, d in held.of.items() if not isinstance(d, Linear) and hasattr(d, "why")), None)
    return bent or "no plan of one pass was found that starts at the other end"


def _unrepaired(opened: Opened, axis: str) -> Plan:
    """The boxes as they are, every reduction over the axis an accumulator, as a plan of one pass."""
    axes = frozenset({axis})
    boxes = live(list(opened.boxes), frozenset(opened.outputs))
    held = lockstep(boxes)
    current = [replace(b, running=axis in b.over and b.name not in held) for b in boxes]
    passes = passes_of(current, axes)
    for b in current:
        passes.place(b)
    stages = tuple((b.name, *passes.stage(b.name)) for b in current)
    first = tuple((n, min(run, 1), stage if run < 2 else "body") for n, run, stage in stages)
    return Plan(tuple(current), axes, first, (), (), (), (), (), kept=frozenset(opened.outputs))


def _from_totals(plan: Plan) -> list[Box] | None:
    """The boxes with every scan that only adds as its total less what comes after it; None where one does not."""
    held = carry_of(plan)
    found: list[Box] = []
    for b in plan.boxes:
        if b.scan is None or b.name not in held.scans:
            found.append(replace(b, running=False))
            continue
        made = held.of.get(b.name)
        index = tuple(Affine.axis(a) for a in carried_axes(b))
        if not isinstance(made, Linear) or [(t.factor, t.read) for t in made.terms] != [
            (ONE, Read(prev(b.name), index))
        ]:
            return None
        total, before = f"{b.name}.total", f"{b.name}.{SEEN}"
        here = tuple(Affine.axis(a) for a in b.axes)
        found.append(Box(total, carried_axes(b), made.rest, "sum", (b.scan.axis,), b.dtype, total))
        scan = Recurrence(b.scan.axis, ZERO, not b.scan.backward)
        found.append(replace(b, name=before, line=before, scan=scan, body=_plus(Read(prev(before), index), made.rest)))
        left = Apply("sub", (Read(before, here), made.rest))
        value = Apply("sub", (_plus(b.scan.start, Read(total, index)), left))
        found.append(replace(b, scan=None, body=value))
    return found


def _transposed(plan: Plan) -> list[Box] | None:
    """The boxes of the transposed recurrence; None where an accumulator is not affine in what is carried."""
    held = carry_of(plan)
    state = [b for b in plan.state if b.name in held.of]
    if any(not isinstance(d, Linear) for d in held.of.values()) or not state:
        return None
    return _Transposed(plan, Maps(plan, held)).boxes()


def _plus(a: Expr, b: Expr) -> Expr:
    return b if a == ZERO else a if b == ZERO else Apply("add", (a, b))


class _Transposed:
    def __init__(self, plan: Plan, maps: Maps) -> None:
        self.plan = plan
        self.maps = maps
        self.axis = maps.axis
        self.out: list[Box] = []
        self.rests: dict[str, bool] = {}  # boxes that hold the carry -> whether they are 0 where nothing is carried
        self.backward = not any(s.scan is not None and s.scan.backward for s in maps.linear)

    def boxes(self) -> list[Box]:
        """All boxes, in order of evaluation."""
        moving = self.maps.carry.of
        state = [b for b in self.plan.state if b.name in moving]
        needed = self.maps.needed(state)
        for b in self.plan.boxes:
            if b.name not in moving:
                self.out.append(replace(b, running=False))
        after = [b for b in self.out if self._reads_of(b, {s.name for s in state})]
        self.out = [b for b in self.out if b not in after]
        for b in needed:
            self._rest(b)
            for s in self.maps.linear:
                if (b.name, s.name) in self.maps.mixed:
                    self.out.append(self._element(b, s))
        for o in state:
            for s in reversed(self.maps.linear):
                if (o.name, s.name) in self.maps.mixed:
                    self._seen(o, s)
            self._whole(o)
        return [*self.out, *after]

    def _reads_of(self, b: Box, names: set[str]) -> bool:
        """Whether a box reads one of these, directly or not."""
        if any(r.array in names for r in b.reads()):
            names.add(b.name)
            return True
        return False

    def _rest(self, b: Box) -> None:
        """What a box is at an element where nothing is carried; written where it is not 0."""
        made = self.maps.carry.of[b.name]
        assert isinstance(made, Linear)
        value = made.rest
        for t in made.terms:
            if self.rests.get(t.read.array) is False and not self._shifted(t.read):
                value = _plus(value, product_of(t.factor, Read(f"{t.read.array}.{REST}", t.read.index)))
        self.rests[b.name] = value == ZERO
        if value != ZERO:
            self.out.append(self._at_element(replace(b, body=value), f"{b.name}.{REST}"))

    def _at_element(self, b: Box, name: str) -> Box:
        """A box for every element of the axis by itself: a reduction over the axis is left to others."""
        over = tuple(a for a in b.over if a != self.axis)
        axes = b.axes if self.axis in b.axes else (self.axis, *b.axes)
        reduction = b.reduction if over else None
        return replace(b, name=name, line=name, axes=axes, over=over, reduction=reduction, running=False, scan=None)

    def _step(self, b: str, j: str) -> str:
        return f"{self.maps.name(b, j)}.{ELEMENT}"

    def _element(self, b: Box, s: Box) -> Box:
        """How a box at one element changes with what is carried into it."""
        made = self.maps.box(b, s)
        names = {self.maps.name(k, s.name): k for k, j in self.maps.mixed if j == s.name}

        def entered(r: Read) -> Expr:
            scan = next((k for n, k in names.items() if r.array == prev(n)), None)
            if scan is not None:
                return self._identity(scan, s, r)
            if r.array in names and self._shifted(r):
                inner = tuple(f for f in r.index if dict(f.axes).get(self.axis) != 1)
                return self._identity(names[r.array], s, Read(r.array, inner))
            return Read(f"{r.array}.{ELEMENT}", r.index) if r.array in names else r

        body = _multiplied(on_reads(made.body, entered))
        return self._at_element(replace(made, body=body), self._step(b.name, s.name))

    def _shifted(self, r: Read) -> bool:
        """Whether a read along the axis is of the element before: what is carried into the present one."""
        return any(self.axis in f.names and f.bare != self.axis for f in r.index)

    def _identity(self, scan: str, s: Box, r: Read) -> Expr:
        if scan != s.name:
            return ZERO
        axes = self.maps.map_axes(scan, scan)
        value: Expr = ONE
        for e, z in self.maps.fresh.items():
            if e in self.maps.mixed[scan, scan] and e in carried_axes(s):
                here, there = (affine_expr(r.index[axes.index(a)]) for a in (e, z))
                value = Apply("where", (Apply("eq", (here, there)), value, ZERO))
        return value

    def _name(self, o: str, j: str) -> str:
        return f"{o}.{SEEN}" if len(self.maps.linear) == 1 else f"{o}.{SEEN}.{j}"

    def _before(self, name: str, index: tuple[Affine, ...], at: int) -> Expr:
        """What another scan of the other direction has seen before the present element; 0 before the first."""
        one = 1 if self.backward else -1
        place = Affine.make({self.axis: 1}, {}, one)
        read = Read(name, (*index[:at], place, *index[at:]))
        last = Apply("sub", (Size(base_name(self.axis)), Number(1)))
        t = Index(self.axis)
        inside = Apply("lt", (t, last)) if self.backward else Apply("gt", (t, Number(0)))
        return Apply("where", (inside, read, ZERO))

    def _seen(self, o: Box, s: Box) -> None:
        """The scan of what a change of a carry does to an accumulator, over the elements seen."""
        name = self._name(o.name, s.name)
        axes = (self.axis, *self.maps.map_axes(o.name, s.name))
        parts = self.maps.composed(o.name, s.name)
        total = parts[-1].body
        made = [self._placed(part, o, s) for part in parts[:-1]]
        body = self._readout(total, o, s)
        own = Read(self._step(o.name, s.name), tuple(Affine.axis(a) for a in axes))
        scan = Recurrence(self.axis, ZERO, self.backward)
        for b in made:
            self.out.append(replace(b, line=name))
        self.out.append(Box(name, axes, _plus(body, own), None, (), o.dtype, name, scan=scan))

    def _placed(self, part: Box, o: Box, s: Box) -> Box:
        body = self._readout(part.body, o, s)
        return replace(part, name=f"{part.name}.{SEEN}", axes=(self.axis, *part.axes), body=body)

    def _readout(self, e: Expr, o: Box, s: Box) -> Expr:
        """Maps of two pieces read as what was seen before, and as the step of the present element."""
        seen = {self.maps.name(o.name, k.name) + RIGHT: k.name for k in self.maps.linear}
        steps = {self.maps.name(k, s.name) + LEFT: k for k, j in self.maps.mixed if j == s.name}

        def placed(r: Read) -> Expr:
            if r.array in seen:
                k = seen[r.array]
                name = self._name(o.name, k)
                return Read(prev(name), r.index) if k == s.name else self._before(name, r.index, 0)
            if r.array in steps:
                return Read(self._step(steps[r.array], s.name), self._with_axis(steps[r.array], r.index))
            return Read(f"{r.array}.{SEEN}", (Affine.axis(self.axis), *r.index))

        return _multiplied(on_reads(e, placed))

    def _with_axis(self, b: str, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """An index of a map with the walked axis where the box has it."""
        model = self.maps.boxes[b].axes
        if self.axis not in model:
            return (Affine.axis(self.axis), *index)
        used = [a for a in model if a == self.axis or any(a in u for (n, _), u in self.maps.used.items() if n == b)]
        at = used.index(self.axis)
        return (*index[:at], Affine.axis(self.axis), *index[at:])

    def _whole(self, o: Box) -> None:
        """The accumulator: what is read out of nothing carried, what the elements add to the carry, and the start."""
        body: Expr = ZERO
        here = tuple(Affine.axis(a) for a in o.axes)
        if self.rests[o.name] is False:
            body = Read(f"{o.name}.{REST}", (Affine.axis(self.axis), *here))
        parts: list[Expr] = []
        for s in self.maps.linear:
            if (o.name, s.name) not in self.maps.mixed:
                continue
            name = self._name(o.name, s.name)
            mixes = self.maps.mixes(o.name, s.name)
            place = {e: self.maps.fresh[e] if e in self.maps.mixed[o.name, s.name] else e for e in carried_axes(s)}
            index = tuple(Affine.axis(a) for a in self.maps.map_axes(o.name, s.name))
            if self.rests[s.name] is False:
                at = tuple(Affine.axis(place.get(a, a)) for a in s.axes)
                value = product_of(self._before(name, index, 0), Read(f"{s.name}.{REST}", at))
                body = _plus(body, self._summed(f"{o.name}.{s.name}", value, mixes, o, (self.axis,)))
            assert s.scan is not None
            if s.scan.start != ZERO:
                end = Affine() if self.backward else Affine.make({}, {base_name(self.axis): 1}, -1)
                start = _moved(s.scan.start, place)
                value = product_of(Read(name, (end, *index)), start)
                parts.append(self._summed(f"{o.name}.{s.name}.start", value, mixes, o, ()))
        summed = f"{o.name}.part"
        alone = body == ZERO and bool(parts)
        if alone:
            value = parts[0]
        else:
            self.out.append(Box(summed if parts else o.name, o.axes, body, "sum", (self.axis,), o.dtype, o.line))
            value = Read(summed, here)
        for p in parts[1:] if alone else parts:
            value = _plus(value, p)
        if parts:
            self.out.append(Box(o.name, o.axes, value, None, (), o.dtype, o.line))

    def _summed(self, name: str, value: Expr, over: tuple[str, ...], o: Box, along: tuple[str, ...]) -> Expr:
        if not over:
            return value
        axes = (*along, *(a for a in o.axes if a in free_axes(value)))
        self.out.append(Box(f"{name}.sum", axes, value, "sum", over, o.dtype, f"{name}.sum"))
        return Read(f"{name}.sum", tuple(Affine.axis(a) for a in axes))


def _moved(e: Expr, places: Mapping[str, str]) -> Expr:
    return rename_axes(e, {a: b for a, b in places.items() if a != b})


def _multiplied(e: Expr) -> Expr:
    """The expression without factors of 1 and summands of 0."""
    if not isinstance(e, Apply):
        return e
    args = tuple(_multiplied(a) for a in e.args)
    if e.op == "mul":
        return ZERO if ZERO in args else product_of(*args)
    if e.op == "add":
        return _plus(*args)
    if e.op == "where" and args[1] == args[2]:
        return args[1]
    if e.op == "neg" and args[0] == ZERO:
        return ZERO
    return Apply(e.op, args)
