"""One column of a panel: wires are brought to their slots, joined, worked on, contracted, and leave."""

from __future__ import annotations

from itertools import pairwise
from math import hypot

from ioweave.render.figure import glyphs
from ioweave.render.figure.names import math
from ioweave.render.figure.plan import ColumnPlan, Plan, Prelude, RegionPlan
from ioweave.render.figure.primitives import Rect, flatten
from ioweave.render.figure.sketch import Key, Label, Sketch, Zone, curve_width
from ioweave.render.figure.spec import ColumnSpec, PanelSpec, RegionSpec
from ioweave.render.figure.theme import Theme
from ioweave.render.figure.typeset import extent, width

CLEAR_OF_CUP = 4.5  # least distance between a wire that changes rows and a cup
LONG_NAME = 60.0  # a name of an array that is wider is set smaller
STAGGER = 8.0  # between the dots at which the wires of one array leave or join


class Drafter:
    """Draws columns into a `Sketch`; its state is the x reached and the rows of the strands."""

    def __init__(self, panel: PanelSpec, plan: Plan, theme: Theme) -> None:
        self.panel, self.plan, self.theme = panel, plan, theme
        self.sketch = Sketch(theme)
        self.rows = dict(enumerate(plan.rows))
        self.x = 0.0

    def _y(self, row: int) -> float:
        return self.plan.y[row]

    def _label_of(self, s: int) -> str:
        return self.panel.array(self.plan.array[s]).label

    def _name_size(self, s: int) -> float:
        """The size at which an array's name is set: a long one is smaller, down to that of the axes."""
        theme = self.theme
        natural = width(self._label_of(s), theme.text_array)
        return (
            theme.text_array if natural <= LONG_NAME else max(theme.text_axis, theme.text_array * LONG_NAME / natural)
        )

    def _name_width(self, s: int) -> float:
        return width(self._label_of(s), self._name_size(s))

    def _start(self, s: int, x: float, level: int) -> None:
        for k, row in enumerate(self.rows[s]):
            self.sketch.start((s, k), x, self._y(row), level)

    def _name(self, s: int, x: float, anchor: str) -> None:
        ys = [self._y(r) for r in self.rows[s]]
        if ys:
            size = self._name_size(s)
            middle = (ys[0] + ys[-1]) / 2 + 0.33 * size
            self.sketch.texts.append(Label(self._label_of(s), size, self.theme.ink, ((x, middle, anchor),)))

    def _label_wires(
        self,
        s: int,
        x0: float,
        x1: float,
        region: RegionSpec | None,
        axes: tuple[str, ...] = (),
        all_axes: bool = False,
    ) -> None:
        """Ask for a label on each wire of a strand between ``x0`` and ``x1``.

        In a plate the partition's symbol stands in place of the axis, in its colour; axes that
        are not partitioned are labelled there only with ``all_axes``.
        """
        theme = self.theme
        spec = self.panel.array(self.plan.array[s])
        symbols = {p.axis: p for p in region.partitions} if region else {}
        for k, row in enumerate(self.rows[s]):
            text, fill = spec.axes[k], theme.ink
            p = symbols.get(axes[k]) if k < len(axes) else None
            if p is not None:
                text, fill = p.symbol, theme.group if p.kind == "group" else theme.stream
            elif region is not None and not all_axes:
                continue
            if text:
                places = _places(text, theme.text_axis, x0, x1, self._y(row))
                self.sketch.texts.append(Label(text, theme.text_axis, fill, places))

    def _zone(self, x0: float, x1: float, order: tuple[int, ...], held: frozenset[int]) -> None:
        stack = tuple(
            (s, self._y(self.rows[s][0]), self._y(self.rows[s][-1]), s in held) for s in order if self.rows[s]
        )
        self.sketch.zones.append(Zone(x0, x1, stack))

    def _direct(self, plan: ColumnPlan) -> frozenset[int]:
        """Copies all of whose wires only join others: they run from the original to the joint."""
        sources = {a for a, _ in plan.operation.joins} - plan.operation.late
        shifted = self._reads(plan, self.panel.columns[plan.index])
        out = set()
        for fork in plan.prelude.forks:
            at = plan.operands.index(fork.child)
            mine = [w for w in plan.operation.wires if w.operand == at]
            plain = not any(shifted[at].values()) and len(mine) == len(self.rows[fork.child])
            if plain and all(w.slot in sources and not w.branch for w in mine):
                out.add(fork.child)
        return frozenset(out)

    def _prelude(self, prelude: Prelude, x: float, level: int, direct: frozenset[int] = frozenset()) -> float:
        """Copies and moves, from ``x`` on; returns where they end."""
        end = x
        offset = 0.0
        for fork in prelude.forks:
            n = len(self.rows[fork.parent])
            if fork.child in direct:
                for k, row in enumerate(self.rows[fork.parent]):
                    pen = self.sketch.pens[fork.parent, k]
                    self.sketch.start((fork.child, k), pen.x, self._y(row), pen.level)
                continue
            down = self._y(self.rows[fork.child][0]) > self._y(self.rows[fork.parent][0]) if n else True
            for k, (a, b) in enumerate(zip(self.rows[fork.parent], self.rows[fork.child], strict=True)):
                late = (n - 1 - k) if down else k
                at = x + 4 + offset + STAGGER * late
                pen = self.sketch.run((fork.parent, k), at)
                y0, y1 = self._y(a), self._y(b)
                stop = at + curve_width(y1 - y0)
                self.sketch.marks.append(glyphs.dot(at, y0, self.theme.level(pen.level)[0]))
                self.sketch.wires.append(self.sketch.curve(at, y0, stop, y1, pen.level))
                self.sketch.start((fork.child, k), stop, y1, pen.level)
                end = max(end, stop)
            offset += STAGGER * n + 4
        for shift in prelude.shifts:
            old = self.rows[shift.strand]
            n = len(old)
            for k, (a, b) in enumerate(zip(old, shift.rows, strict=True)):
                y0, y1 = self._y(a), self._y(b)
                at = x + 2 + offset + STAGGER * ((n - 1 - k) if y1 > y0 else k)
                stop = at + curve_width(y1 - y0)
                self.sketch.bend((shift.strand, k), at, stop, y1)
                end = max(end, stop)
            self.rows[shift.strand] = shift.rows
            offset += STAGGER * n
        return end + 4 if end > x else end

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
            self._state(spec.state, self.x + room / 2, max(self._y(r) for r in self.rows[plan.result]))
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

    def _to_slots(
        self, plan: ColumnPlan, spec: ColumnSpec, region: RegionSpec, direct: frozenset[int]
    ) -> dict[int, Key]:
        """Move every operand's wires to their slots, through nodes where an index is mapped.

        Returns the pen of each slot.
        """
        sketch, level = self.sketch, region.level
        mapped = {(k, p) for k, dims in enumerate(self._reads(plan, spec)) for p, shifted in dims.items() if shifted}
        mapped |= {(w.operand, w.source) for w in plan.operation.wires if w.branch}
        pens: dict[int, Key] = {}
        x = self.x + (10 if mapped else 0)
        stop = x
        named: list[tuple[str, float]] = []
        for w in plan.operation.wires:
            s = plan.operands[w.operand]
            if s in direct:
                pens[w.slot] = (s, w.source)
                continue
            y0, y1 = self._y(self.rows[s][w.source]), self._y(plan.slots[w.slot])
            at = x
            if (w.operand, w.source) in mapped:
                at += 5
                named.append((w.axis, y1))
                if not w.branch:
                    sketch.run((s, w.source), x)
                    sketch.marks.extend(glyphs.node(x, y0, self.theme))
                    sketch.blocks.append((x - 6, y0 - 6, x + 7, y0 + 6))
            finish = at + (curve_width(y1 - y0) if abs(y1 - y0) > 1e-9 else 0.0)
            stop = max(stop, finish)
            pens[w.slot] = (-1 - w.slot, plan.index) if w.branch else (s, w.source)
            if w.branch:
                sketch.wires.append(sketch.curve(at, y0, finish, y1, level))
                sketch.start(pens[w.slot], finish, y1, level)
            else:
                sketch.bend(pens[w.slot], at, finish, y1)
        for k, p in plan.operation.fixed:
            pen = sketch.run((plan.operands[k], p), x + 4)
            sketch.marks.append(glyphs.dot(pen.x, pen.y, self.theme.level(level)[0]))
        self.x = stop
        if named:
            self._label_axes(named, region)
        return pens

    def _label_axes(self, named: list[tuple[str, float]], region: RegionSpec) -> None:
        """Labels of the axes that leave an index map."""
        theme = self.theme
        symbols = {p.axis: p for p in region.partitions}
        for axis, y in named:
            p = symbols.get(axis)
            text = p.symbol if p else math(axis)
            fill = theme.ink if p is None else theme.group if p.kind == "group" else theme.stream
            places = _places(text, theme.text_axis, self.x, self.x + 20, y)
            self.sketch.texts.append(Label(text, theme.text_axis, fill, places))
        self.x += 20

    def _reads(self, plan: ColumnPlan, spec: ColumnSpec) -> list[dict[int, bool]]:
        out: list[dict[int, bool]] = []
        seen: dict[str, int] = {}
        for s in plan.operands:
            name = self.plan.array[s]
            mine = [o for o in spec.operands if o.array == name]
            read = mine[min(seen.get(name, 0), len(mine) - 1)]
            seen[name] = seen.get(name, 0) + 1
            out.append({p: p in read.shifted for p in range(len(read.axes))})
        return out

    def _joins(self, plan: ColumnPlan, level: int, pens: dict[int, Key], late: bool) -> None:
        """Shared axes run into the first operand's wire, at dots, one after another."""
        sketch = self.sketch
        colour = self.theme.level(level)[0]
        stop = self.x
        mine = [j for j in plan.operation.joins if (j[0] in plan.operation.late) == late]
        joins = sorted(mine, key=lambda j: (j[0] < j[1], j[0] if j[0] > j[1] else -j[0]))
        for n, (a, b) in enumerate(joins):
            at = self.x + 2 + STAGGER * n
            pen = sketch.pens[pens[a]]
            y0, y1 = pen.y, self._y(plan.slots[b])
            finish = at + curve_width(y1 - y0)
            if abs(y0 - self._y(plan.slots[a])) > 1e-9:  # straight from the original
                sketch.marks.append(glyphs.dot(at, y0, colour))
                pen.x = at
            pen = sketch.run(pens[a], at)
            sketch.wires.append(sketch.curve(at, y0, finish, y1, pen.level))
            sketch.end(pens[a])
            sketch.marks.append(glyphs.dot(finish, y1, colour))
            stop = max(stop, finish + 4)
        self.x = stop

    def _body(self, plan: ColumnPlan, spec: ColumnSpec, level: int, pens: dict[int, Key]) -> None:
        """The operation itself, from its first function to where the result leaves."""
        op = plan.operation
        kept = [have for have, _ in op.result if have >= 0]
        low = max(kept, key=lambda k: self._y(plan.slots[k])) if kept else op.result[0][1]
        if spec.before:
            at = op.ends[-1] if op.ends else op.cups[0][0] if op.cups else low
            self.x = self._named(spec.before, self.x + 2, self._y(plan.slots[at]))
        if spec.glyph in ("softmax", "norm"):
            self._pictograms(plan, spec)
            beside = [have for axis, (have, _) in zip(spec.axes, op.result, strict=True) if axis not in spec.works]
            if spec.state and beside and min(beside) >= 0:
                self._state(spec.state, self.x - 17, max(self._y(plan.slots[k]) for k in beside))
        elif spec.glyph in ("elementwise", "add", "max", "box") and not op.ends and not op.cups and spec.reduction:
            bold = spec.glyph in ("add", "max")
            self.x = self._named(spec.reduction, self.x + 4, self._y(plan.slots[low]), bold)
        self._boxes(plan, spec, pens)
        inner = self.x
        tip = self._cups(plan, spec, level, pens)
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
        start = self.x if late or spec.mask or spec.after else inner + self._clear(plan, inner, tip)
        self._leave(plan, level, pens, start, inner)

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
                self.sketch.marks.extend(glyphs.triangle(x, y, self.theme))
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

    def _cups(self, plan: ColumnPlan, spec: ColumnSpec, level: int, pens: dict[int, Key]) -> float:
        """Contracted wires meet; the factor stands on an arrow at the tip. Returns how far the cups reach."""
        sketch, theme = self.sketch, self.theme
        colour, weight = theme.level(level)
        start = self.x
        for slot in (slot for pair in plan.operation.cups for slot in pair):
            sketch.run(pens[slot], start)
            sketch.end(pens[slot])
        arcs, reach = glyphs.cups(start, self._spans(plan), colour, weight)
        sketch.wires.extend(arcs)
        self.x = start + reach
        if plan.operation.cups and spec.factor:
            x, size = self.x, theme.text_small + 0.5
            y = sum(self._y(plan.slots[s]) for s in plan.operation.cups[-1]) / 2
            shaft, head = glyphs.arrow(x, x + 16, y, colour, weight)
            sketch.wires.append(shaft)
            sketch.marks.append(head)
            places = ((x + 3, y - 4.5, "start"), (x + 3, y + 11, "start"))
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
                sketch.start((plan.result, k), inner, y1, level)
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


def _places(text: str, size: float, x0: float, x1: float, y: float) -> tuple[tuple[float, float, str], ...]:
    """Above the wire: in the middle first, then to the sides, then below it."""
    _, height, depth = extent(text, size)
    middle = (x0 + x1) / 2
    steps = (0.0, -4.0, 4.0, -8.0, 8.0, 12.0, 16.0)
    up, down = y - max(3.6, depth + 2.2), y + height + 3.0
    return tuple((middle + dx, v, "middle") for v in (up, down) for dx in steps)
