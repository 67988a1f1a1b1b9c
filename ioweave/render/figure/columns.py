"""Walking a plan from left to right: every wire, sign, port and label of a panel gets its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ioweave.render.figure import glyphs
from ioweave.render.figure.drafter import Drafter
from ioweave.render.figure.plan import BRACKET, Plan, RegionPlan, brackets
from ioweave.render.figure.primitives import Group, Line, Rect
from ioweave.render.figure.sketch import Label
from ioweave.render.figure.spec import PanelSpec, RegionSpec
from ioweave.render.figure.theme import Theme
from ioweave.render.figure.typeset import strip, width

STUB = 28.0  # room for the labels of wires between plates


@dataclass(frozen=True, slots=True)
class Demand:
    """What the cost table and titles ask of the layout: width per column, and at both margins."""

    columns: tuple[float, ...]
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Walked:
    """The result: centre and extent of each column, width of the panel."""

    centres: tuple[float, ...]
    spans: tuple[tuple[float, float], ...]
    width: float


class Walker(Drafter):
    """Draws one panel: plates from left to right, with what enters and leaves them."""

    def __init__(
        self, panel: PanelSpec, plan: Plan, demand: Demand, theme: Theme, prefix: str, plates: dict[int, float]
    ) -> None:
        super().__init__(panel, plan, theme)
        self.demand, self.prefix = demand, prefix
        self.known = plates  # widths of plates, from an earlier walk
        self.plates: dict[int, float] = {}
        self.centres: dict[int, float] = {}
        self.spans: dict[int, tuple[float, float]] = {}
        self.fresh = set(plan.starts)  # strands whose wires have yet to be labelled
        labels = [t for a in panel.arrays for t in a.axes]
        self.stub = max(STUB, *(width(t, theme.text_axis) + 12 for t in labels))

    def walk(self) -> Walked:
        """Lay the panel out."""
        plan = self.plan
        room = max((self._name_width(s) for s in plan.starts), default=0.0)
        self.x = room + 10.0
        for s in plan.starts:
            self._start(s, self.x, 0)
            self._name(s, self.x - 8.0, "end")
        for region in plan.regions:
            self._region(region)
        end = self.x + self.stub
        self._zone(self.x, end + 4, plan.ends, frozenset())
        for s in plan.ends:
            if s in self.fresh:
                self._label_wires(s, self.x, end, None)
            for k in range(len(self.rows[s])):
                self.sketch.run((s, k), end)
            if self.rows[s]:
                self._name(s, end + 7.0, "start")
        last = max((self._name_width(s) for s in plan.ends), default=0.0)
        last_centre = max(self.centres.values(), default=0.0)
        right = max(end + 9 + last, last_centre + self.demand.columns[-1] / 2 + self.demand.right)
        n = len(self.panel.columns)
        return Walked(tuple(self.centres[c] for c in range(n)), tuple(self.spans[c] for c in range(n)), right)

    def _region(self, plan: RegionPlan) -> None:
        theme = self.theme
        spec = self.panel.regions[plan.index]
        single = len(plan.columns) == 1
        live = tuple(s for s in plan.order if s not in plan.prelude.starts)
        forked = {f.child: f.parent for f in plan.prelude.forks}
        before = tuple(s for s in live if s not in forked)
        start = self.x
        stub = max(self.stub, *(self._between_width(s) for s in before if s in self.fresh), 0.0)
        room = stub
        if plan.prelude.starts:
            room += max(self._name_width(s) for s in plan.prelude.starts) + 18
        spare = 0.0
        if single and plan.index in self.known:
            spare = max(0.0, (self.demand.columns[plan.columns[0].index] - self.known[plan.index]) / 2)
            room = max(room, room - stub / 2 + spare)
        if plan.index == 0:
            room = max(room, self.demand.left + spare - start)
        for s in before:
            if s in self.fresh:
                self._label_wires(s, start, start + stub, None)
        held = frozenset(plan.loads)
        self.x = start + room
        self._between_names(tuple(s for s in before if s in self.fresh), start, start + stub)
        after = self._prelude(plan.prelude, self.x, 0)
        mixed = self._sorted(before) if after > self.x else self._sorted(plan.order)
        self._zone(start, max(after, self.x), mixed, held | {forked[f] for f in forked if f in held})
        left = after if after > self.x else self.x
        for s in plan.prelude.starts:
            self._start(s, left - stub, 0)
            self._label_wires(s, left - stub, left, None)
            self._name(s, left - stub - 8, "end")
        self.x = left
        for s in plan.loads:
            for k in range(len(self.rows[s])):
                self.sketch.run((s, k), left).level = spec.level
        self._ports(plan.loads, left, spec, "load")
        first_reads = self._first_reads(plan)
        pad = 8.0
        if any(a in {p.axis for p in spec.partitions} for axes in first_reads.values() for a in axes):
            widest = max((width(p.symbol, theme.text_axis) for p in spec.partitions), default=0.0)
            pad = max(24.0, widest + 9)
            for s in plan.loads:
                self._label_wires(s, left + 3, left + pad, spec, first_reads.get(s, ()))
        self._zone(left, left + pad, plan.order, held)
        self.x = left + pad
        titles: list[tuple[float, str]] = []
        for n, column in enumerate(plan.columns):
            c0 = self.x
            want = self.demand.columns[column.index]
            self._column(column, spec, plan, last=n == len(plan.columns) - 1)
            if not single and self.x - c0 < want:
                self._zone(self.x, c0 + want, self._live_after(plan, n), self._held_after(plan, n))
                self.x = c0 + want
            lo = left if n == 0 else c0
            titles.append(((lo + self.x) / 2, self.panel.columns[column.index].title))
            self.centres[column.index] = (lo + self.x) / 2
            self.spans[column.index] = (lo, self.x)
        right = self.x + 6.0
        if self.panel.columns[plan.columns[-1].index].loop is not None:  # the plate's tag stands beside the loop
            right += width(spec.tag, theme.text_small, True)
        right = max(right, left + self._bracket_width(spec), left + width(spec.tag, theme.text_small, True) + 14.0)
        if single:
            right = max(right, left + width(titles[0][1], theme.text_block) - 8.0)
        self._zone(self.x, right, self._live_after(plan, len(plan.columns) - 1), frozenset(plan.stores))
        if single:
            self.centres[plan.columns[0].index] = (left + right) / 2
            self.spans[plan.columns[0].index] = (left, right)
            titles = [((left + right) / 2, titles[0][1])]
        self.x = right
        self.fresh = set(plan.stores)
        for s in plan.stores:
            for k in range(len(self.rows[s])):
                self.sketch.run((s, k), right).level = 0
        self._ports(plan.stores, right, spec, "store")
        self._plate(plan, spec, left, right, titles)
        self.plates[plan.index] = right - left
        if spare > stub / 2:
            outside = (s for s in plan.order if s not in plan.loads)
            self._zone(self.x, self.x + spare - stub / 2, self._sorted((*outside, *plan.stores)), frozenset())
            self.x += spare - stub / 2

    def _sorted(self, strands: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted((s for s in strands if self.rows[s]), key=lambda s: self._y(self.rows[s][0])))

    def _between_size(self, s: int) -> float:
        """The size of an intermediate array's name between plates: a long one is no larger than a block's title."""
        size = self._name_size(s) - 3
        return size if width(self._label_of(s), size) + 8 <= self.stub else self.theme.text_block

    def _between_width(self, s: int) -> float:
        """How far apart two plates must be for the name of an intermediate array between them."""
        if self.panel.array(self.plan.array[s]).is_input:
            return 0.0
        return width(self._label_of(s), self._between_size(s)) + 10

    def _between_names(self, strands: tuple[int, ...], x0: float, x1: float) -> None:
        """Names of intermediate arrays between plates, where there is room for them."""
        for s in strands:
            spec = self.panel.array(self.plan.array[s])
            if spec.is_input or s in self.plan.starts:
                continue
            ys = [self._y(r) for r in self.rows[s]]
            size = self._between_size(s)
            middle = (x0 + x1) / 2
            places = []
            for a, b in pairwise(ys):
                if b - a > 36:
                    places.append((middle, (a + b) / 2 + 0.3 * size, "middle"))
            places.append((middle, ys[0] - 15, "middle"))
            places.append((middle, ys[-1] + 12, "middle"))
            self.sketch.texts.append(Label(spec.label, size, self.theme.ink, tuple(places), needed=False))

    def _first_reads(self, plan: RegionPlan) -> dict[int, tuple[str, ...]]:
        """For each loaded strand, the axis that each of its wires is in the first column that reads it."""
        out: dict[int, tuple[str, ...]] = {}
        for s in plan.loads:
            for column in plan.columns:
                spec = self.panel.columns[column.index]
                read = next((o for o in spec.operands if o.array == self.plan.array[s]), None)
                if read is not None:
                    out[s] = tuple(dim[0] if len(dim) == 1 else "" for dim in read.axes)
                    break
        return out

    def _live_after(self, plan: RegionPlan, n: int) -> tuple[int, ...]:
        column = plan.columns[n]
        gone = set(column.operands)
        kept = [s for s in column.order if s not in gone]
        at = next((k for k, s in enumerate(column.order) if s in gone), len(kept))
        used = n + 1 < len(plan.columns) or column.result in plan.stores
        return (*kept[:at], *((column.result,) if used else ()), *kept[at:])

    def _held_after(self, plan: RegionPlan, n: int) -> frozenset[int]:
        outside = {s for s in plan.order if s not in plan.loads}
        return frozenset(s for s in self._live_after(plan, n) if s not in outside)

    def _bracket_width(self, spec: RegionSpec) -> float:
        if not any(brackets(self.panel, spec)):
            return 0.0
        texts = [p.texts[max(0, len(p.texts) - 2)] for p in spec.partitions if p.texts]
        return max((width(t, self.theme.text_block) for t in texts), default=0.0) + 30.0

    def _ports(self, strands: tuple[int, ...], x: float, spec: RegionSpec, direction: str) -> None:
        for s in strands:
            name = self.plan.array[s]
            found = [p for p in spec.ports if p.array == name and p.direction == direction]
            filled = any(p.every_step for p in found)
            squares = tuple(glyphs.port(x, self._y(r), filled, self.theme) for r in self.rows[s])
            title = "; ".join(f"{direction} {name}: {strip(p.term)} = {p.values} values, {p.size} bytes" for p in found)
            ident = f"{self.prefix}-{spec.name}-{direction}-{name}"
            self.sketch.ports.append(Group(ident, squares, title))

    def _plate(
        self, plan: RegionPlan, spec: RegionSpec, left: float, right: float, titles: list[tuple[float, str]]
    ) -> None:
        theme, sketch = self.theme, self.sketch
        ys = [self._y(r) for r in plan.rows] or [0.0]
        top, bottom = min(ys) - theme.plate_top, max(ys) + theme.plate_bottom
        sketch.plates.append(Rect(left, top, right - left, bottom - top, theme.plate, radius=4.0))
        tag = width(spec.tag, theme.text_small, True) + 7
        colour = theme.level(spec.level)[0]
        sketch.marks.append(Rect(right - tag, top, tag, 11.0, colour, radius=2.5))
        sketch.texts.append(
            Label(spec.tag, theme.text_small, theme.paper, ((right - tag / 2, top + 8.2, "middle"),), bold=True)
        )
        for x, title in titles:
            sketch.texts.append(Label(title, theme.text_block, theme.ink, ((x, top - 5.5, "middle"),)))
        if not any(brackets(self.panel, spec)):
            return
        up, down = top - 24.0, bottom + 15.0
        for p in reversed([p for p in spec.partitions if p.kind == "group" and p.texts]):
            self._bracket(p.texts, left, right, up, 1, theme.group)
            up -= BRACKET
        for p in (p for p in spec.partitions if p.kind == "stream" and p.texts):
            self._bracket(p.texts, left, right, down, -1, theme.stream)
            down += BRACKET

    def _bracket(self, texts: tuple[str, ...], left: float, right: float, y: float, hook: int, colour: str) -> None:
        """A bracket over or under a plate, its rule broken round the text."""
        size = self.theme.text_block
        text = next((t for t in texts if width(t, size) + 20 <= right - left), texts[-1])
        half = width(text, size) / 2 + 6
        middle = (left + right) / 2
        for a, b in ((left, middle - half), (middle + half, right)):
            if b > a:
                self.sketch.marks.append(Line((a, y), (b, y), colour, 1.1))
        for x in (left, right):
            self.sketch.marks.append(Line((x, y), (x, y + 5 * hook), colour, 1.1))
        self.sketch.texts.append(Label(text, size, colour, ((middle, y + 0.32 * size, "middle"),)))
