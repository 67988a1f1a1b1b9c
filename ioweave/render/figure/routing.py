"""Bringing the wires of a column to its operation: copies, moves, index maps, gathers, joins, and their labels."""

from __future__ import annotations

from ioweave.render.figure import glyphs
from ioweave.render.figure.names import math
from ioweave.render.figure.plan import ColumnPlan, Plan, Prelude
from ioweave.render.figure.sketch import Key, Label, Sketch, Zone, curve_width
from ioweave.render.figure.spec import ColumnSpec, PanelSpec, RegionSpec
from ioweave.render.figure.theme import Theme
from ioweave.render.figure.typeset import extent, width

LONG_NAME = 60.0  # a name of an array that is wider is set smaller
STAGGER = 8.0  # between the dots at which the wires of one array leave or join


class Router:
    """Draws wires into a `Sketch`; its state is the x reached and the rows of the strands."""

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
        out = set()
        for fork in plan.prelude.forks:
            at = plan.operands.index(fork.child)
            mine = [w for w in plan.operation.wires if w.operand == at]
            plain = not plan.reads[at].shifted and len(mine) == len(self.rows[fork.child])
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
            begun = max((self.sketch.pens[fork.parent, k].x for k in range(n)), default=x)
            offset = max(offset, begun - x)  # a copy of a copy leaves where that one has arrived
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

    def _to_slots(
        self, plan: ColumnPlan, spec: ColumnSpec, region: RegionSpec, direct: frozenset[int]
    ) -> dict[int, Key]:
        """Move every operand's wires to their slots, through nodes where an index is mapped.

        Returns the pen of each slot.
        """
        sketch, level = self.sketch, region.level
        shifted = {(k, p) for k, read in enumerate(plan.reads) for p in read.shifted}
        mapped = shifted | {(w.operand, w.source) for w in plan.operation.wires if w.branch}
        looked = {(k, p) for _, k, p in plan.operation.feeds}
        depth = _depths(plan)
        pens: dict[int, Key] = {}
        x = self.x + (10 if mapped or looked else 0)
        for level_of in range(max(depth, default=0), 0, -1):
            x = self._feeds(plan, {k for k, n in enumerate(depth) if n == level_of}, x, mapped, looked)
        stop = x
        named: list[tuple[str, float]] = []
        for w in plan.operation.wires:
            s = plan.operands[w.operand]
            if depth[w.operand]:
                continue
            if s in direct:
                pens[w.slot] = (s, w.source)
                continue
            y0, y1 = self._y(self.rows[s][w.source]), self._y(plan.slots[w.slot])
            at = x
            if (w.operand, w.source) in mapped:
                at += 8 if (w.operand, w.source) in looked else 5
                named.append((w.axis, y1))
                if not w.branch:
                    self._node(plan, w.operand, w.source, x, (w.operand, w.source) in looked)
            finish = at + (curve_width(y1 - y0) if abs(y1 - y0) > 1e-9 else 0.0)
            stop = max(stop, finish)
            pens[w.slot] = (-1 - w.slot, plan.index) if w.branch else (s, w.source)
            if w.branch:
                sketch.wires.append(sketch.curve(at, y0, finish, y1, level))
                sketch.start(pens[w.slot], finish, y1, level)
            else:
                sketch.bend(pens[w.slot], at, finish, y1)
        for k, p in plan.operation.fixed:
            if (k, p) in looked:
                self._node(plan, k, p, x, True)
                stop = max(stop, x + glyphs.GATHER + 4)
                continue
            pen = sketch.run((plan.operands[k], p), x + 4)
            sketch.marks.append(glyphs.dot(pen.x, pen.y, self.theme.level(level)[0]))
        self.x = stop
        if named:
            self._label_axes(named, region)
        return pens

    def _node(self, plan: ColumnPlan, k: int, p: int, x: float, looked: bool) -> None:
        """The sign of an index map on a wire, or of a gather, with the map's formula where it has one."""
        s = plan.operands[k]
        y = self._y(self.rows[s][p])
        self.sketch.run((s, p), x)
        self.sketch.marks.extend((glyphs.gather if looked else glyphs.node)(x, y, self.theme))
        r = glyphs.GATHER if looked else 5.0
        self.sketch.blocks.append((x - r - 1, y - r - 1, x + r + 2, y + r + 1))
        size = self.theme.text_small
        for text in (text for at, text in plan.reads[k].maps if at == p):
            places = tuple((x + dx, v, "middle") for v in (y - 8, y + 14) for dx in (0, 6, 12, 18, -6))
            self.sketch.texts.append(Label(text, size, self.theme.ink, places, needed=False))

    def _feeds(
        self, plan: ColumnPlan, mine: set[int], x: float, mapped: set[tuple[int, int]], looked: set[tuple[int, int]]
    ) -> float:
        """The wires of the operands ``mine``, which say where others are read, end at the gathers of those.

        Their own index maps and gathers stand at ``x``; returns where the gathers stand at which they end.
        """
        sketch = self.sketch
        aims: dict[tuple[int, int], list[tuple[float, Key]]] = {}
        slots = {w.slot: w for w in plan.operation.wires if w.operand in mine}
        for slot, k, p in plan.operation.feeds:
            if slot in slots:
                w = slots[slot]
                at = w.operand, w.source
                if at in mapped or at in looked:
                    self._node(plan, *at, x, at in looked)
                key = plan.operands[w.operand], w.source
                aims.setdefault((k, p), []).append((sketch.pens[key].y, key))
        start = x + (glyphs.GATHER + 3 if mapped & {(w.operand, w.source) for w in slots.values()} else 2)
        goal = {at: self._y(self.rows[plan.operands[at[0]]][at[1]]) for at in aims}
        spread = (curve_width(y - goal[at]) for at, ends in aims.items() for y, _ in ends)
        stop = start + max(spread, default=0.0) + glyphs.GATHER
        for at, ends in aims.items():
            for side in (-1, 1):
                here = sorted(((y, key) for y, key in ends if (y > goal[at]) == (side > 0)), reverse=side > 0)
                for n, (y, key) in enumerate(here):
                    # the nearest wire ends nearest to the middle of the edge
                    aim = goal[at] + side * (5.5 - 3.5 * n / max(1, len(here) - 1) if len(here) > 1 else 4.0)
                    pen = sketch.run(key, start)
                    sketch.wires.append(sketch.curve(start, y, stop - glyphs.GATHER, aim, pen.level))
                    sketch.end(key)
        return stop

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


def _depths(plan: ColumnPlan) -> list[int]:
    """For each operand, how many gathers lie between it and the operation: 0 for one whose values enter."""
    target = {slot: k for slot, k, _ in plan.operation.feeds}
    next_one = {w.operand: target[w.slot] for w in plan.operation.wires if w.slot in target}

    def depth(k: int) -> int:
        return 1 + depth(next_one[k]) if k in next_one else 0

    return [depth(k) for k in range(len(plan.operands))]


def _places(text: str, size: float, x0: float, x1: float, y: float) -> tuple[tuple[float, float, str], ...]:
    """Above the wire: in the middle first, then to the sides, then below it."""
    _, height, depth = extent(text, size)
    middle = (x0 + x1) / 2
    steps = (0.0, -4.0, 4.0, -8.0, 8.0, 12.0, 16.0)
    up, down = y - max(3.6, depth + 2.2), y + height + 3.0
    return tuple((middle + dx, v, "middle") for v in (up, down) for dx in steps)
