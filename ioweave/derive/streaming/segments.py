"""Segments: what sums up a piece of a scanned axis, so that pieces can be walked apart and joined in order.

Statement. Where every scan is affine in the carry, a piece takes ``s`` to ``S + S.map s``: ``S`` is walked
from 0 and ``S.map`` from the identity, by the same loop. Two pieces join by
``(A2, b2) after (A1, b1) = (A2 A1, A2 b1 + b2)``, which is associative and not commutative. An accumulator
that is affine in what is carried is lifted by its own map: ``o + o.map s``. What is indexed by the axis, or
follows the carry in another way, is made when the state that enters its piece is known: the piece is walked
again from it. A scan that is an extremum of what it carries joins as ``max(S.scale s + S.shift, S)``.
An axis along which a scan carries every element by itself stays out of the map: the decay of a row is one
number, and the map of a delta rule has the key's axis twice and the value's not at all.
Source. Blelloch (1990), section 1.4; Martin and Cundy, arXiv 1709.04057.
Check. The trial of a plan walks its pieces apart and joins them by these boxes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from ioweave.derive.streaming.carry import ZERO, Carry, Extremal, Linear, Term, carry, product_of
from ioweave.derive.streaming.cascade import affine_expr
from ioweave.derive.streaming.plan import BOTH, LEFT, RIGHT, Plan, Segments
from ioweave.derive.streaming.signs import Signs
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import PREV, Box, Recurrence, base_name
from ioweave.diagrams.expressions import Apply, Expr, Index, Number, Read, free_axes, rename_axes
from ioweave.diagrams.groups import carried_axes, prev

ONE = Number(1)
Pair = tuple[str, str]  # a box, and the scan whose carry enters it


@lru_cache(maxsize=256)
def carry_of(plan: Plan, facts: tuple[tuple[str, tuple[str, float]], ...] = ()) -> Carry:
    """How the boxes of a plan's one loop depend on what its scans carry."""
    (axis,) = plan.streamed
    signs = Signs({b.name: b for b in plan.boxes}, dict(facts))
    return carry(plan.body, axis, signs.expression)


@lru_cache(maxsize=256)
def summed_up(plan: Plan, facts: tuple[tuple[str, tuple[str, float]], ...] = ()) -> Segments | None:
    """How a plan of one pass over one axis with recurrences is merged; None where its states have no merge."""
    if plan.passes != 1 or len(plan.streamed) != 1 or not plan.recurrences:
        return None
    held = carry_of(plan, facts)
    if held.why is not None:
        return None
    return Maps(plan, held).segments()


class Maps:
    """Builds the maps: for every box and every scan that enters it, how it changes with what the scan carries."""

    def __init__(self, plan: Plan, held: Carry) -> None:
        (self.axis,) = plan.streamed
        self.plan = plan
        self.carry = held
        self.boxes = {b.name: b for b in plan.body}
        self.scans = [self.boxes[n] for n in held.scans]
        self.linear = [self.boxes[n] for n in held.linear]
        self.names = {b.name for b in plan.boxes}
        taken = {a for b in plan.boxes for a in b.all_axes}
        self.fresh: dict[str, str] = {}
        for a in dict.fromkeys(a for s in self.scans for a in carried_axes(s)):
            name = a
            while name in taken:
                name += "'"
            taken.add(name)
            self.fresh[a] = name
        self.mixed: dict[Pair, set[str]] = {}  # axes of the scan along which its elements mix in the box
        self.used: dict[Pair, set[str]] = {}  # axes of the box along which the map varies
        self._settle()

    def _terms(self, b: Box, j: str) -> list[tuple[Term, str, tuple[str, ...]]]:
        """The terms of a box that hold the carry of a scan, each with the box that it reads and its axes there."""
        made = self.carry.of.get(b.name)
        found: list[tuple[Term, str, tuple[str, ...]]] = []
        for t in made.terms if isinstance(made, Linear) else ():
            name = next((s.name for s in self.linear if t.read.array == prev(s.name)), t.read.array)
            axes = carried_axes(self.boxes[name]) if name != t.read.array else self.boxes[name].axes
            if (name, j) in self.mixed:
                found.append((t, name, axes))
        return found

    def _settle(self) -> None:
        """The least sets of mixed and used axes that hold for every box."""
        for s in self.linear:
            self.mixed[s.name, s.name] = set()
            self.used[s.name, s.name] = set()
        while True:
            before = sum(1 + len(v) for v in self.mixed.values()) + sum(len(v) for v in self.used.values())
            for b in self.boxes.values():
                for s in self.linear:
                    self._spread(b, s)
            after = sum(1 + len(v) for v in self.mixed.values()) + sum(len(v) for v in self.used.values())
            if after == before:
                return

    def _spread(self, b: Box, s: Box) -> None:
        terms = self._terms(b, s.name)
        if not terms:
            return
        mixed = self.mixed.setdefault((b.name, s.name), set())
        used = self.used.setdefault((b.name, s.name), set())
        own = set(b.axes) - {self.axis}
        for t, name, axes in terms:
            inner = self.mixed[name, s.name]
            mixed |= inner
            for e in carried_axes(s):
                if e not in inner:
                    form = t.read.index[axes.index(e)]
                    if form.bare != e or e not in own:
                        mixed.add(e)
                    if e in mixed:
                        used |= own & set(form.names)
            used |= own & set(free_axes(t.factor))
            for a, form in zip(axes, t.read.index, strict=True):
                if a in self.used[name, s.name]:
                    used |= own & set(form.names)
        if b.name == s.name:
            used |= mixed

    def name(self, b: str, j: str) -> str:
        """The name of a map."""
        name = f"{b}.map" if len(self.linear) == 1 else f"{b}.map.{j}"
        while name in self.names:
            name += "2"
        return name

    def map_axes(self, b: str, j: str) -> tuple[str, ...]:
        """The axes of a map but the walked one: those of the box along which it varies, then those it mixes."""
        of = self.boxes[b].axes
        return (*(a for a in of if a in self.used[b, j]), *self.mixes(b, j))

    def mixes(self, b: str, j: str) -> tuple[str, ...]:
        """The fresh axes of a map, one for each along which elements mix."""
        return tuple(self.fresh[e] for e in carried_axes(self.boxes[j]) if e in self.mixed[b, j])

    def box(self, b: Box, s: Box) -> Box:
        """The map of a box from a scan, as a box of the loop."""
        j = s.name
        terms = self._terms(b, j)
        over = list(b.over)
        tests: list[list[tuple[str, Affine]]] = []
        for t, name, axes in terms:
            loose = [e for e in carried_axes(s) if e in self.mixed[b.name, j] and e not in self.mixed[name, j]]
            tests.append([(self.fresh[e], t.read.index[axes.index(e)]) for e in loose])
        swap: dict[str, str] = {}
        for a in b.over:  # a sum of what is not 0 at one place alone is the value at that place
            found = {z for test in tests for z, form in test if form.bare == a}
            if len(found) == 1 and all(any(form.bare == a for _, form in test) for test in tests):
                swap[a] = found.pop()
                over.remove(a)
        total: Expr | None = None
        for (t, name, axes), test in zip(terms, tests, strict=True):
            places = [f for a, f in zip(axes, t.read.index, strict=True) if a in self.used[name, j] or a == self.axis]
            array = self.name(name, j)
            array = prev(array) if t.read.array == prev(name) else array
            read = Read(array, (*places, *(Affine.axis(z) for z in self.mixes(name, j))))
            value = product_of(t.factor, read)
            for z, form in test:
                if form.bare not in swap:
                    value = Apply("where", (Apply("eq", (affine_expr(form), Index(z))), value, ZERO))
            total = value if total is None else Apply("add", (total, value))
        assert total is not None
        own = (a for a in b.axes if a == self.axis or a in self.used[b.name, j])
        scan = None if b.scan is None else replace(b.scan, start=self._identity(b, s))
        return replace(
            b,
            name=self.name(b.name, j),
            axes=(*own, *self.mixes(b.name, j)),
            body=rename_axes(total, swap),
            reduction="sum" if over else None,
            over=tuple(over),
            line=f"{self.boxes[b.name].line}.map.{j}",
            scan=scan,
        )

    def _identity(self, b: Box, s: Box) -> Expr:
        """What the map of a scan starts from: 1 where its own element is meant, else 0."""
        if b is not s:
            return ZERO
        value: Expr = ONE
        for e in reversed([e for e in carried_axes(s) if e in self.mixed[s.name, s.name]]):
            value = Apply("where", (Apply("eq", (Index(e), Index(self.fresh[e]))), value, ZERO))
        return value

    def applied(self, b: str, j: str, side: str, name: str) -> Box:
        """What the carry of a scan adds to a box of a later piece: its map times the state that enters."""
        mixes = self.mixes(b, j)
        value = Read(
            self.name(b, j) + RIGHT,
            tuple(Affine.axis(a) for a in self.map_axes(b, j)),
        )
        place = {e: self.fresh[e] if e in self.mixed[b, j] else e for e in carried_axes(self.boxes[j])}
        state = Read(j + side, tuple(Affine.axis(place[e]) for e in carried_axes(self.boxes[j])))
        axes = tuple(a for a in self.boxes[b].axes if a != self.axis and (a in self.used[b, j] or a in place.values()))
        model = self.boxes[b]
        return Box(name, axes, Apply("mul", (value, state)), "sum" if mixes else None, mixes, model.dtype, model.line)

    def changed(self, b: str, name: str, axes: tuple[str, ...]) -> list[Box]:
        """The box ``name`` of a later piece corrected by the states that enter it, the sums that it needs first."""
        found: list[Box] = []
        total: Expr = Read(b + RIGHT, tuple(Affine.axis(a) for a in axes))
        for s in self.linear:
            if (b, s.name) not in self.mixed:
                continue
            part = self.applied(b, s.name, LEFT, f"{b}.of.{s.name}")
            found.append(part)
            total = Apply("add", (total, Read(part.name, tuple(Affine.axis(a) for a in part.axes))))
        model = self.boxes[b]
        return [*found, Box(name, axes, total, None, (), model.dtype, model.line)]

    def composed(self, b: str, j: str) -> list[Box]:
        """The map of two pieces: that of the later one times that of the earlier one, over every scan between."""
        found: list[Box] = []
        total: Expr | None = None
        out = self.map_axes(b, j)
        for k in (s.name for s in self.linear):
            if (b, k) not in self.mixed or (k, j) not in self.mixed:
                continue
            middle = {e: self.fresh[e] + "'" * 9 if e in self.mixed[b, k] else e for e in carried_axes(self.boxes[k])}
            second = Read(
                self.name(b, k) + RIGHT,
                (
                    *(Affine.axis(a) for a in self.boxes[b].axes if a in self.used[b, k]),
                    *(Affine.axis(middle[e]) for e in carried_axes(self.boxes[k]) if e in self.mixed[b, k]),
                ),
            )
            own = (middle.get(a, a) for a in self.boxes[k].axes if a in self.used[k, j])
            first = Read(self.name(k, j) + LEFT, tuple(Affine.axis(a) for a in (*own, *self.mixes(k, j))))
            value: Expr = Apply("mul", (second, first))
            for e in carried_axes(self.boxes[j]):
                if e in self.mixed[b, j] and e not in self.mixed[k, j]:
                    test = Apply("eq", (Index(middle.get(e, e)), Index(self.fresh[e])))
                    value = Apply("where", (test, value, ZERO))
            over = tuple(m for e, m in middle.items() if m != e)
            axes = tuple(a for a in out if a in free_axes(value))
            if over:
                part = Box(f"{b}.of.{k}.{j}", axes, value, "sum", over, self.boxes[b].dtype, self.boxes[b].line)
                found.append(part)
                value = Read(part.name, tuple(Affine.axis(a) for a in axes))
            total = value if total is None else Apply("add", (total, value))
        assert total is not None
        model = self.boxes[b]
        return [*found, Box(self.name(b, j) + BOTH, out, total, None, (), model.dtype, model.line)]

    def extremal(self, s: Box, made: Extremal) -> tuple[list[Box], list[Box]]:
        """The loop's boxes that sum up a scan which is an extremum of what it carries, and those that join two."""
        assert s.scan is not None
        axes = carried_axes(s)
        index = tuple(Affine.axis(a) for a in axes)
        shift, scale = f"{s.name}.shift", f"{s.name}.scale"
        here = Read(prev(shift), index)
        moved: Expr = here if made.scale is None else Apply("mul", (made.scale, here))
        moved = moved if made.shift == ZERO else Apply("add", (moved, made.shift))
        maps = [self._beside(s, shift, moved, ZERO)]
        entering: Expr = Read(s.name + LEFT, index)
        joined: list[Box] = []
        before: Expr = Read(shift + LEFT, index)
        if made.scale is not None:
            maps.append(self._beside(s, scale, Apply("mul", (made.scale, Read(prev(scale), index))), ONE))
            factor = Read(scale + RIGHT, index)
            entering, before = (Apply("mul", (factor, x)) for x in (entering, before))
            joined.append(self._plain(s, scale + BOTH, Apply("mul", (factor, Read(scale + LEFT, index)))))
        joined.append(self._plain(s, shift + BOTH, Apply("add", (before, Read(shift + RIGHT, index)))))
        lifted = Apply("add", (entering, Read(shift + RIGHT, index)))
        joined.insert(0, self._plain(s, s.name + BOTH, Apply(made.op, (lifted, Read(s.name + RIGHT, index)))))
        return maps, joined

    def _beside(self, s: Box, name: str, body: Expr, start: Expr) -> Box:
        assert s.scan is not None
        return replace(s, name=name, body=body, scan=Recurrence(self.axis, start, s.scan.backward), line=name)

    def _plain(self, s: Box, name: str, body: Expr) -> Box:
        return Box(name, carried_axes(s), body, None, (), s.dtype, s.line)

    def segments(self) -> Segments:
        """The whole."""
        again = self._again()
        accumulators = [] if again else [b for b in self.plan.state if b.name in self.carry.of]
        pairs = [(b, s) for b in self.needed(accumulators) for s in self.linear if (b.name, s.name) in self.mixed]
        maps = [self.box(b, s) for b, s in pairs]
        joined: list[Box] = []
        for s in self.linear:
            joined += self.changed(s.name, s.name + BOTH, carried_axes(s))
        for i in self.linear:
            for j in self.linear:
                if (i.name, j.name) in self.mixed:
                    joined += self.composed(i.name, j.name)
        neutral = {s.name: 0.0 for s in self.linear}
        for s in self.scans:
            made = self.carry.of.get(s.name)
            if isinstance(made, Extremal):
                more, joins = self.extremal(s, made)
                maps += more
                joined += joins
                neutral[s.name] = float("-inf") if made.op == "max" else float("inf")
        lifts = [x for b in accumulators for x in self.changed(b.name, b.name, b.axes)]
        ones = {m.name for m in maps if m.scan is not None and m.axes == (self.axis,) and m.body == Read(prev(m.name))}
        maps, joined, lifts = (_without_ones(x, ones) for x in (maps, joined, lifts))
        return Segments(tuple(self.scans), tuple(maps), tuple(joined), tuple(lifts), again, tuple(neutral.items()))

    def _again(self) -> tuple[str, ...]:
        """What has to be made in a second walk: outputs along the axis, and accumulators that are not affine."""
        state = {b.name: b for b in self.plan.state}
        kept = self._outputs()
        bent = [n for n in state if n in self.carry.of and not isinstance(self.carry.of[n], Linear)]
        follows = [n for n, b in state.items() if b.recentre is not None and n in self.carry.of]
        along = [n for n in kept if n in self.carry.of or n in self.carry.scans]
        return tuple(dict.fromkeys((*along, *bent, *follows)))

    def _outputs(self) -> list[str]:
        """Boxes of the loop along the axis that are needed after it."""
        after = {r.array for b in self.plan.tail for r in b.reads() if not self._is_last(r)}
        return [b.name for b in self.plan.body if self.axis in b.axes and (b.name in self.plan.kept or b.name in after)]

    def _is_last(self, r: Read) -> bool:
        """Whether a read is of the last value that a scan carries, which the states joined give."""
        box = self.boxes.get(r.array)
        if box is None or box.scan is None or self.axis not in box.axes:
            return False
        form = r.index[box.axes.index(self.axis)]
        return form == (Affine() if box.scan.backward else Affine.make({}, {base_name(self.axis): 1}, -1))

    def needed(self, accumulators: Iterable[Box]) -> list[Box]:
        """The boxes whose maps the scans and the accumulators need, in order."""
        wanted = {s.name for s in self.linear} | {b.name for b in accumulators}
        todo = list(wanted)
        while todo:
            name = todo.pop()
            for s in self.linear:
                for _, inner, _ in self._terms(self.boxes[name], s.name):
                    if inner not in wanted:
                        wanted.add(inner)
                        todo.append(inner)
        return [b for b in self.plan.body if b.name in wanted]


def _without_ones(boxes: Iterable[Box], ones: set[str]) -> list[Box]:
    """The boxes without maps that stay 1, and without those that join them."""
    gone = {n + end for n in ones for end in ("", LEFT, RIGHT, BOTH, PREV)}

    def simple(e: Expr) -> Expr:
        if isinstance(e, Read):
            return ONE if e.array in gone else e
        if not isinstance(e, Apply):
            return e
        args = tuple(simple(a) for a in e.args)
        return product_of(*args) if e.op == "mul" else replace(e, args=args)

    return [replace(b, body=simple(b.body)) for b in boxes if b.name not in gone]
