"""One column of a panel: wires are brought to their slots, joined, worked on, contracted, and leave."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import hypot

from ioweave.render.figure import glyphs
from ioweave.render.figure.names import maths_name
from ioweave.render.figure.plan import ColumnPlan, RegionPlan
from ioweave.render.figure.primitives import Rect, flatten
from ioweave.render.figure.routing import Router
from ioweave.render.figure.sketch import Key, Label, curve_width
from ioweave.render.figure.spec import ColumnSpec, LoopSpec, RegionSpec
from ioweave.render.figure.typeset import width

CLEAR_OF_CUP = 4.5  # least distance between a wire that changes rows and a cup


class Drafter(Router):
    """Draws columns: what a `Router` brings together is worked on."""

    def _column(self, plan: ColumnPlan, region: RegionSpec, regions: RegionPlan, last: bool) -> None:
        """One operation: bring wires to their slots, join, apply, contract, leave."""
        spec = self.panel.columns[plan.index]
        level = region.level
        held = frozenset(s for s in plan.order if s in regions.loads or s not in regions.order)
        start = self.x
        direct = self._direct(plan)
        self.x = self._prelude(plan.prelude, self.x, level, direct)
        body = self.x
        slots = self._to_slots(plan, spec, region, direct)
        if not any(w.branch for w in plan.operation.wires):
            body = self.x  # operands keep apart until here
        self._joins(plan, level, slots, late=False)
        self._body(plan, spec, level, slots)
        self._operand_zones(plan, start, body, self.x, held, direct)
        if spec.state and not self._state_within(plan, spec):
            room = self._state_room(spec)
            self._zone(self.x, self.x + room, self._after(plan), held | {plan.result})
            rows = dict(zip(spec.axes, self.rows[plan.result], strict=True))
            if spec.loop is not None and len(rows) > 1:  # what is kept has no axis of the recurrence
                del rows[spec.loop.axis]
            self._state(spec.state, self.x + room / 2, max(self._y(r) for r in rows.values()))
            self.x += room
        produced = plan.result
        symbols = tuple(spec.axes)
        if not last:
            self._label_wires(produced, self.x, self.x + 22, region, symbols, all_axes=True)
            self._zone(self.x, self.x + 22, self._after(plan), held | {produced})
            self.x += 22

    def _after(self, plan: ColumnPlan) -> tuple[int, ...]:
        gone = set(plan.operands)
        out: list[int] = []
        for s in plan.order:
            if s in gone:
                if plan.result not in out:
                    out.append(plan.result)
            else:
                out.append(s)
        return tuple(out)

    def _operand_zones(
        self,
        plan: ColumnPlan,
        start: float,
        body: float,
        end: float,
        held: frozenset[int],
        direct: frozenset[int],
    ) -> None:
        """Separators: between operands up to the operation, between the others all along."""
        order = tuple(s for s in plan.order if s not in direct)
        self._zone(start, body, order, held)
        group = set(plan.operands)
        edges = [s for s in order if s in group]
        for pair in pairwise(order):
            if not (pair[0] in group and pair[1] in group) and edges:
                self._zone(body, end, pair, held)

    def _body(self, plan: ColumnPlan, spec: ColumnSpec, level: int, pens: dict[int, Key]) -> None:
        """The operation itself, from its first function to where the result leaves."""
        op = plan.operation
        kept = [have for have, _ in op.result if have >= 0]
        low = max(kept, key=lambda k: self._y(plan.slots[k])) if kept else op.result[0][1]
        if spec.first:
            self._cups(plan, replace(spec, factor=""), level, pens, frozenset(spec.first))
            self.x += 2
        if spec.before:
            at = op.ends[-1] if op.ends else op.cups[0][0] if op.cups else low
            self.x = self._named(spec.before, self.x + 2, self._y(plan.slots[at]))
        if spec.glyph in ("softmax", "norm"):
            self._pictograms(plan, spec)
            beside = [have for axis, (have, _) in zip(spec.axes, op.result, strict=True) if axis not in spec.works]
            if spec.state and beside and min(beside) >= 0:
                self._state(spec.state, self.x - 17, max(self._y(plan.slots[k]) for k in beside))
        elif spec.loop is not None:
            self._loop(plan, spec, spec.loop, level, pens, low)
        elif spec.glyph in ("elementwise", "add", "max", "box") and not op.ends and not op.cups and spec.reduction:
            bold = spec.glyph in ("add", "max")
            self.x = self._named(spec.reduction, self.x + 4, self._y(plan.slots[low]), bold)
        if spec.loop is None:
            self._boxes(plan, spec, pens)
        inner = self.x
        tip = self._cups(plan, spec, level, pens, frozenset(spec.over) - frozenset(spec.first))
        late = any(a in op.late for a, _ in op.joins)
        if spec.state and spec.glyph not in ("softmax", "norm") and self._state_within(plan, spec):
            room = self._state_room(spec)
            self._state(spec.state, self.x + room / 2, self._y(plan.slots[low]))
            self.x += room
        if late:
            self.x += 4
            self._joins(plan, level, pens, late=True)
        if spec.mask and op.result:
            have, leave = op.result[-1]
            y = self._y(plan.slots[have if have >= 0 else leave])
            self.sketch.marks.extend(glyphs.mask(self.x + 6, y, self.theme))
            self.sketch.blocks.append((self.x + 5, y - 8, self.x + 20, y + 8))
            self.x += 25
        if spec.after:
            self.x = self._named(spec.after, self.x + 4, self._y(plan.slots[low]))
        pointed = bool(spec.factor and op.cups)
        start = self.x if late or spec.mask or spec.after or pointed else inner + self._clear(plan, inner, tip)
        self._leave(plan, level, pens, start, inner)

    def _loop(
        self, plan: ColumnPlan, spec: ColumnSpec, loop: LoopSpec, level: int, pens: dict[int, Key], low: int
    ) -> None:
        """A recurrence: its operation in a bracket, back along which the value before each element runs."""
        theme, size = self.theme, self.theme.text_block
        arrow = rf"${{}}\gets {maths_name(loop.axis)}$" if loop.backward else rf"${maths_name(loop.axis)}\to {{}}$"
        room = width(arrow, size)
        start = self.x + 6
        self.x = start + 4
        inside = self.x
        self._boxes(plan, replace(spec, reduction=loop.inner), pens)
        if spec.reduction:
            self.x = max(self.x, self._named(spec.reduction, inside + 4, self._y(plan.slots[low])))
        stop = max(self.x + 4, start + room + 44)
        at = dict(zip(spec.axes, (have if have >= 0 else leave for have, leave in plan.operation.result), strict=True))
        rows = sorted(self._y(plan.slots[slot]) for slot in at.values())
        here = {axis for axis, (have, _) in zip(spec.axes, plan.operation.result, strict=True) if have >= 0}
        kept = sorted(self._y(plan.slots[at[axis]]) for axis in here - {loop.axis}) or rows
        y = rows[0] - 15.0
        middle = (start + stop) / 2 + 4
        gap = middle - room / 2 - 4, middle + room / 2 + 4
        colour, weight = theme.level(level)
        low_end = max([*kept, *(self._y(plan.slots[slot]) for slot in plan.operation.ends)])
        self.sketch.marks.extend(glyphs.loop(start, stop, y, kept, low_end, gap, colour, weight))
        self.sketch.texts.append(Label(arrow, size, theme.ink, ((middle, y + 0.3 * size, "middle"),)))
        self.sketch.blocks.append((start - 1, y - 5, stop + 1, y + 5))
        self.sketch.gaps.append((start, y - 7, stop, y + 5))
        self.x = stop + 6

    def _clear(self, plan: ColumnPlan, start: float, tip: float) -> float:
        """How far after the start of the cups the wires that change rows must begin, to keep off the cups."""
        op = plan.operation
        moves = [(self._y(plan.slots[a]), self._y(plan.slots[b])) for a, b in op.result if a >= 0 and a != b]
        ink = [point for arc in glyphs.cups(start, self._spans(plan), "", 1.0)[0] for point in flatten(arc, 8)]
        for offset in range(0, int(tip) + 8, 3):
            at = start + offset
            stop = at + self._travel(plan, at)
            points = [p for y0, y1 in moves for p in flatten(self.sketch.curve(at, y0, stop, y1, 0))]
            if all(hypot(x - u, y - v) > CLEAR_OF_CUP for x, y in points for u, v in ink):
                return float(offset)
        return tip + 8

    def _spans(self, plan: ColumnPlan) -> list[tuple[float, float]]:
        return [(self._y(plan.slots[a]), self._y(plan.slots[b])) for a, b in plan.operation.cups]

    def _travel(self, plan: ColumnPlan, at: float) -> float:
        """How wide the S-curves are in which the wires of a result change rows from ``at`` on."""
        moves = [(plan.slots[a], plan.slots[b]) for a, b in plan.operation.result if a >= 0 and a != b]
        widest = max((curve_width(self._y(b) - self._y(a)) for a, b in moves), default=0.0)
        return max(widest, self.x - at + 14) if moves else self.x - at

    def _pictograms(self, plan: ColumnPlan, spec: ColumnSpec) -> None:
        """A sign on each axis that is worked on and kept."""
        read = {w.axis for w in plan.operation.wires}  # an axis that is a mere index has no wire yet
        for axis in (a for a in spec.works if a in read):
            x, y = self.x + 8, self._y(plan.slots[plan.operation.slot(axis)])
            if spec.glyph == "softmax":
                self.sketch.marks.extend(glyphs.triangle(x, y, self.theme, 11.0 if len(spec.works) == 1 else 9.0))
            else:
                self.sketch.marks.extend(glyphs.norm(x, y, self.theme, spec.reduction == "centred"))
            self.sketch.blocks.append((x - 1, y - 12, x + 17, y + 12))
        self.x += 32

    def _state_room(self, spec: ColumnSpec) -> float:
        """How much of a wire a state's sign and name take."""
        return max(12.0, width(spec.state, self.theme.text_axis - 1.5)) + 8

    def _state_within(self, plan: ColumnPlan, spec: ColumnSpec) -> bool:
        """Whether the state is kept before the end of the operation: what follows is done once, or is a pictogram's."""
        late = any(a in plan.operation.late for a, _ in plan.operation.joins)
        return late or spec.mask or bool(spec.after) or spec.glyph in ("softmax", "norm")

    def _state(self, name: str, x: float, y: float) -> None:
        """The sign of a kept state on a wire, with the state's name."""
        self.sketch.marks.extend(glyphs.state(x, y, self.theme))
        size = self.theme.text_axis - 1.5
        places = ((x, y - 9, "middle"), (x, y + 15.5, "middle"), (x + 8, y - 5, "start"), (x - 8, y - 5, "end"))
        self.sketch.texts.append(Label(name, size, self.theme.stream, places))

    def _boxes(self, plan: ColumnPlan, spec: ColumnSpec, pens: dict[int, Key]) -> None:
        """A removed axis with one carrier ends in a box."""
        theme, size = self.theme, self.theme.text_block
        end = self.x
        for slot in plan.operation.ends:
            x, y = self.x + 6, self._y(plan.slots[slot])
            w = max(16.0, width(spec.reduction, size) + 8)
            self.sketch.run(pens[slot], x)
            self.sketch.end(pens[slot])
            self.sketch.marks.append(Rect(x, y - 8, w, 16, theme.box, theme.ink, 1.1))
            self.sketch.blocks.append((x - 1, y - 9, x + w + 1, y + 9))
            place = (x + w / 2, y + 0.33 * size, "middle")
            self.sketch.texts.append(Label(spec.reduction, size, theme.ink, (place,)))
            end = x + w + 2
        self.x = end

    def _cups(
        self, plan: ColumnPlan, spec: ColumnSpec, level: int, pens: dict[int, Key], axes: frozenset[str]
    ) -> float:
        """Contracted ``axes`` meet; the factor stands on an arrow at the tip. Returns how far the cups reach."""
        sketch, theme = self.sketch, self.theme
        colour, weight = theme.level(level)
        start = self.x
        axis = {w.slot: w.axis for w in plan.operation.wires}
        cups = [pair for pair in plan.operation.cups if axis[pair[0]] in axes]
        for slot in (slot for pair in cups for slot in pair):
            sketch.run(pens[slot], start)
            sketch.end(pens[slot])
        spans = [(self._y(plan.slots[a]), self._y(plan.slots[b])) for a, b in cups]
        arcs, reach = glyphs.cups(start, spans, colour, weight)
        sketch.wires.extend(arcs)
        self.x = start + reach
        if cups and spec.factor:
            x, size = self.x, theme.text_small + 0.5
            y = sum(spans[-1]) / 2
            shaft, head = glyphs.arrow(x, x + 16, y, colour, weight)
            sketch.wires.append(shaft)
            sketch.marks.append(head)
            places = ((x + 3, y - 4.5, "start"), (x + 3, y + 11, "start"), (x + 19, y + 3, "start"))
            sketch.texts.append(Label(spec.factor, size, theme.ink, places))
            self.x += max(16.0, width(spec.factor, size) + 2) + 2
        return reach

    def _leave(self, plan: ColumnPlan, level: int, pens: dict[int, Key], at: float, inner: float) -> None:
        """Kept wires go to the rows of the result; an axis made here starts here."""
        sketch, op = self.sketch, plan.operation
        stop = at + self._travel(plan, at)
        rows = tuple(plan.slots[leave] for _, leave in op.result)
        for k, (have, leave) in enumerate(op.result):
            y1 = self._y(plan.slots[leave])
            if have < 0:
                taken = any(h == leave != moved for h, moved in op.result)  # by a wire that leaves this row
                sketch.start((plan.result, k), stop if taken else inner, y1, level)
                if taken:
                    sketch.marks.append(glyphs.dot(stop, y1, self.theme.level(level)[0]))
                continue
            key = pens[have]
            if have != leave:
                sketch.bend(key, at, stop, y1)
            pen = sketch.pens.pop(key)
            sketch.pens[plan.result, k] = pen
        for key in [key for key in sketch.pens if key[0] in plan.operands or key[0] < 0]:
            sketch.end(key)
        self.rows[plan.result] = rows
        self.x = stop + 4

    def _named(self, name: str, x: float, y: float, bold: bool = False) -> float:
        """A function's name between two arrowheads above a wire; returns where it ends."""
        theme = self.theme
        size = theme.text_block + (2 if bold else 0)
        w = width(name, size, bold)
        middle = y - 7.0
        self.sketch.marks.append(glyphs.arrowhead(x, middle, theme))
        self.sketch.marks.append(glyphs.arrowhead(x + 5 + 3 + w + 3, middle, theme))
        self.sketch.texts.append(Label(name, size, theme.ink, ((x + 8 + w / 2, y - 4.2, "middle"),), bold=bold))
        self.sketch.blocks.append((x, middle - 4, x + 16 + w, middle + 3))
        return x + 16 + w + 4
