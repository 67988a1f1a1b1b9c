"""From levelled diagrams and their counts to the specification of a figure.

Each array's transfers across a plate are one port and one term of H; the values are those of
`ioweave.derive.counting`. A formula stands as it is where it comes to exactly the counted
number, and after a ``≤`` where masks or ragged tiles make it a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ioweave.derive.counting.flops import column_flops
from ioweave.derive.counting.levelled import Counts, Placed, count
from ioweave.derive.counting.region import count_loads, count_stores, trace
from ioweave.derive.counting.terms import Factor, Product, Ring, Terms, numbers, terms, value
from ioweave.derive.program.arithmetic_cost import operand_axes, operations, product_operations
from ioweave.derive.program.program import Column
from ioweave.derive.program.slots import corrections
from ioweave.derive.streaming.merge import PART, state_name
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.dtypes import size_bytes
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.counts import RegionCount
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.quantities import format_bytes, format_count
from ioweave.render.figure import formulas
from ioweave.render.figure.describe import SIGNS, Described, describe_diagram
from ioweave.render.figure.formulas import Symbols
from ioweave.render.figure.names import math, maths_name
from ioweave.render.figure.spec import (
    ArraySpec,
    CellSpec,
    ColumnSpec,
    Direction,
    FigureSpec,
    OperandSpec,
    PanelSpec,
    PortSpec,
    RegionSpec,
    RowSpec,
)
from ioweave.render.figure.tiles import TileNames, partitions, tile_symbols, whole
from ioweave.render.figure.titles import enumerated, summary, tiling

MANY_TERMS = 5  # a sum of more terms is shown by its value alone


@dataclass(frozen=True)
class Side:
    """A levelled diagram to draw, with its title (markup; empty for a title made from its regions).

    ``searched`` says that a search chose its tiles, so that the figure can say what its H is.
    """

    levelled: Levelled
    title: str = ""
    searched: bool = False


@dataclass(frozen=True)
class _Tally:
    """What one panel comes to."""

    transfers: int
    fewest: int
    memory: int
    flops: int


def figure_spec(
    name: str,
    sides: Sequence[Side],
    values: Mapping[str, int | float],
    accumulate: str = "fp32",
    notes: Sequence[str] = (),
) -> FigureSpec:
    """The figure of one levelled diagram or of several, side by side, counted at ``values``.

    ``notes`` are sentences (markup) added to the last line. Raises Refused where a region
    cannot be run as written.
    """
    counted = [count(side.levelled, values, accumulate) for side in sides]
    names = TileNames()
    for counts in reversed(counted):  # the last panel, the derived one, has the plain symbols
        for placed in counts.placed:
            partitions(placed, names)
    panels: list[PanelSpec] = []
    tallies: list[_Tally] = []
    for k, (side, counts) in enumerate(zip(sides, counted, strict=True)):
        same = k > 0 and side == sides[0]
        panel, tally = _panel(side, counts, names, tallies[0] if k else None, same)
        panels.append(panel)
        tallies.append(tally)
    first = sides[0].levelled
    footer = _footer(first, values, accumulate, names, (*notes, *_found(tallies)))
    title = first.diagram.doc.strip().splitlines()[0] if first.diagram.doc.strip() else name
    return FigureSpec(name, title, tuple(panels), first.levels, footer)


def _panel(side: Side, counts: Counts, names: TileNames, before: _Tally | None, same: bool) -> tuple[PanelSpec, _Tally]:
    levelled = side.levelled
    described = _in_order(levelled, describe_diagram(levelled.diagram))
    sketch = _Sketch(levelled, described, names)
    for placed, counted in zip(counts.placed, counts.regions, strict=True):
        sketch.add(placed, counted)
    in_bytes = any(c.memory.values is None for c in counts.regions)
    tally = _Tally(counts.transfers.bytes, counts.transfers.fewest[1], counts.memory, counts.flops.total)
    upper, lower = levelled.levels[0], levelled.levels[-1]
    most = _at_most if tally.fewest < tally.transfers else _bytes
    rows = (
        _row("$H$", f"{upper}–{lower} bytes", sketch.h, tally.transfers, before.transfers if before else None, most),
        _row("$M$", f"{'bytes' if in_bytes else 'live'} in {lower}", sketch.m, tally.memory, None, _bytes, "peak"),
        _row("$F$", "FLOPs", sketch.f, tally.flops, before.flops if before else None, format_count),
    )
    title = side.title or summary(levelled, len(counts.regions) - len(levelled.regions), same and side.searched)
    arrays, columns, regions = tuple(sketch.arrays), tuple(sketch.columns), tuple(sketch.regions)
    return PanelSpec(title, arrays, columns, regions, rows, tiling(levelled, side.searched)), tally


def _found(tallies: Sequence[_Tally]) -> tuple[str, ...]:
    """Between what H lies where arrays of positions say what is read; nothing where that is known."""
    if all(t.fewest == t.transfers for t in tallies):
        return ()
    ranges = [" to ".join(dict.fromkeys((_bytes(t.fewest), _bytes(t.transfers)))) for t in tallies]
    if len(set(ranges)) > 1:
        ranges = [f"{text} in ({'abcdefgh'[k]})" for k, text in enumerate(ranges)]
    ranges = list(dict.fromkeys(ranges))
    return (f"by what gathers find, $H$ is {' and '.join(ranges)}",)


def pair_spec(
    name: str,
    before: Levelled,
    after: Levelled,
    values: Mapping[str, int | float],
    accumulate: str = "fp32",
    notes: Sequence[str] = (),
) -> FigureSpec:
    """The figure of the unfused diagram, each line at its best tiles, beside the derived one."""
    return figure_spec(name, [Side(before, searched=True), Side(after, searched=True)], values, accumulate, notes)


def _row(
    symbol: str,
    note: str,
    cells: Sequence[CellSpec],
    total: int,
    before: int | None,
    write: Callable[[int], str],
    plain: str = "total",
) -> RowSpec:
    remark, accent = (plain, False) if before is None else _change(before, total, plain)
    return RowSpec(symbol, note, tuple(cells), write(total), remark, accent)


def _bytes(n: int) -> str:
    return format_bytes(n).replace(".0 ", " ")


def _at_most(n: int) -> str:
    """What is moved where it is not known which elements are the same."""
    return f"≤ {_bytes(n)}"


def _change(before: int, after: int, plain: str) -> tuple[str, bool]:
    if before == after:
        return "unchanged", False
    if not before or not after:
        return plain, False
    ratio = before / after
    if ratio >= 1.1:
        return f"{_times(ratio)}× less", True
    if ratio <= 1 / 1.1:
        return f"{_times(1 / ratio)}× more", False
    percent = 100 * (after - before) / before
    text = f"{abs(percent):.2g}" if abs(percent) >= 0.1 else "under 0.1"
    return (f"{text}% less", True) if percent < 0 else (f"{text}% more", False)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def _in_order(levelled: Levelled, d: Described) -> Described:
    """Columns in the order of the regions' lines."""
    made = {c.result: c for c in d.columns}
    return replace(d, columns=tuple(made[n] for r in levelled.regions for n in r.lines()))


class _Sketch:
    """Arrays, columns, plates and cells of one panel, region by region."""

    def __init__(self, levelled: Levelled, described: Described, names: TileNames) -> None:
        self.levelled, self.described, self.names = levelled, described, names
        self.arrays = list(described.arrays)
        self.columns: list[ColumnSpec] = []
        self.regions: list[RegionSpec] = []
        self.h: list[CellSpec] = []
        self.m: list[CellSpec] = []
        self.f: list[CellSpec] = []
        self.made = {c.result: c for c in described.columns}
        self.boxes = tuple(b.name for b in open_diagram(levelled.diagram).boxes)
        self.partial: ColumnSpec | None = None  # the column whose result a merge makes
        self.order = tuple(d.name for d in levelled.diagram.definitions)

    def add(self, placed: Placed, counted: RegionCount) -> None:
        """One region, or the merge after one."""
        first = len(self.columns)
        lines = placed.region.lines()
        if lines:
            new = [replace(self.made[n], state=_states(placed, n, self.boxes)) for n in lines]
            if placed.program.merge is not None:
                new[-1] = self._partial(new[-1])
        else:
            new = [self._merge()]
        self.columns.extend(new)
        span = tuple(range(first, len(self.columns)))
        symbols = Symbols(self.order, tile_symbols(placed, self.names))
        ring = numbers(placed.tiles.sizes, placed.tiles.group, placed.tiles.stream)
        formula = terms(placed.program, placed.setting, placed.buffers)
        ports = _ports(placed, formula, symbols, ring, bool(lines))
        level = self.levelled.levels.index(placed.region.level)
        parts = partitions(placed, self.names)
        self.regions.append(RegionSpec(counted.name, placed.region.level, level, span, parts, ports))
        self.h.extend(self._transfers(span, new, ports))
        live = _memory(placed, formula, symbols, ring, counted)
        self.m.append(CellSpec(span[0], span[-1], live, _bytes(counted.memory.bytes)))
        self.f.extend(self._flops(placed, span, lines, symbols))

    def _partial(self, column: ColumnSpec) -> ColumnSpec:
        """The last column of a split region makes partial states; a merge will make its array."""
        self.partial = column
        name = state_name(column.result)
        labels = tuple(f"${maths_name(a)}$" for a in column.axes)
        self.arrays.append(ArraySpec(name, r"$\text{state}$", (r"$\text{part}$", *labels)))
        return replace(column, result=name, axes=(PART, *column.axes))

    def _merge(self) -> ColumnSpec:
        assert self.partial is not None
        column = self.partial
        state = OperandSpec(state_name(column.result), ((PART,), *((a,) for a in column.axes)))
        return ColumnSpec(column.result, column.axes, (state,), "merge", "reduce", over=(PART,), reduction="merge")

    def _transfers(
        self, span: tuple[int, ...], columns: Sequence[ColumnSpec], ports: Sequence[PortSpec]
    ) -> list[CellSpec]:
        """H under each column: what it is the first to read, and what leaves from it."""
        where: list[list[PortSpec]] = [[] for _ in span]
        for p in ports:
            at = len(span) - 1
            for k, column in enumerate(columns):
                read = any(o.array == p.array for o in column.operands)
                if read if p.direction == "load" else column.result == p.array:
                    at = k
                    break
            where[at].append(p)
        cells = []
        for c, mine in zip(span, where, strict=True):
            gathered: dict[str, int] = {}
            bound = any(p.term.startswith(r"$\le") for p in mine)
            told = all(p.term != f"${p.values}$" or p.values == 1 for p in mine)
            for p in mine:
                for term in p.term.strip("$").removeprefix(r"\le ").split(" + "):
                    gathered[term] = gathered.get(term, 0) + 1
            parts = tuple(_multiplied(k, t) for t, k in gathered.items()) or ("0",)
            shown = parts if told and len(parts) <= MANY_TERMS else ()
            if bound and shown:
                shown = (rf"{{}}\le {shown[0]}", *shown[1:])
            cells.append(CellSpec(c, c, shown, _bytes(sum(p.size for p in mine)) if mine else ""))
        return cells

    def _flops(self, placed: Placed, span: tuple[int, ...], lines: tuple[str, ...], symbols: Symbols) -> list[CellSpec]:
        survive = trace(placed.program, placed.tiles, placed.setting)
        names = lines or (placed.program.name,)
        worth = dict.fromkeys(names, 0)
        written: dict[str, dict[str, int]] = {n: {} for n in names}
        exact = dict.fromkeys(names, 0)
        ring = numbers(placed.tiles.sizes, placed.tiles.group, placed.tiles.stream)
        for column, _ in placed.program.columns():
            if column.box is None:
                continue
            line = column.box.line if column.box.line in worth else names[-1]
            worth[line] += column_flops(column, placed.program, placed.tiles, placed.setting, survive).total
            for p in _work(column, placed):
                coefficient, text = formulas.product(p, symbols)
                written[line][text] = written[line].get(text, 0) + coefficient
                exact[line] += int(value(p, ring, frozenset(placed.program.grouped)))
        cells = []
        for c, n in zip(span, names, strict=True):
            parts = formulas.written(written[n])
            if len(parts) > MANY_TERMS:
                parts = ()
            elif exact[n] != worth[n]:
                parts = (rf"{{}}\le {parts[0]}", *parts[1:]) if exact[n] > worth[n] else ()
            cells.append(CellSpec(c, c, parts, format_count(worth[n]) if worth[n] else ""))
        return cells


def _multiplied(k: int, term: str) -> str:
    if k == 1:
        return term
    digits = len(term) - len(term.lstrip("0123456789"))
    number, rest = k * int(term[:digits] or "1"), term[digits:]
    return f"{number}" + (r"\," if rest.startswith(r"\text") else "") + rest


def _states(placed: Placed, line: str, boxes: Sequence[str]) -> str:
    """What a line keeps from step to step of a stream, as markup: its own running sum, or its parts' by their names.

    ``boxes`` are those of the diagram in order.
    """
    if all(whole(placed.tiles, a, "step") for a in placed.tiles.stream):
        return ""
    kept = {v.array for v in placed.program.variables if v.role == "state"}
    mine = [b.name for b in placed.program.boxes if b.name in kept and b.line == line]
    mine.sort(key=lambda n: boxes.index(n) if n in boxes else len(boxes))
    parts = dict.fromkeys(n.removeprefix(f"{line}.") for n in mine)
    if set(parts) <= {line, "acc"}:
        return math(line) if parts else ""
    return ", ".join(math(p) if p == line else _sign(p) for p in parts)


def _sign(part: str) -> str:
    """``sum2`` as a sign with its number."""
    stem = part.rstrip("0123456789")
    number = part.removeprefix(stem)
    return SIGNS.get(stem, stem) + (f"$_{{{number}}}$" if number else "")


def _ports(placed: Placed, formula: Terms, symbols: Symbols, ring: Ring, lines: bool) -> tuple[PortSpec, ...]:
    """One port per array, direction and rhythm; states of a split reduction are one array."""
    survive = trace(placed.program, placed.tiles, placed.setting)
    variables = {v.name: v for v in placed.program.variables}
    state = f"state({placed.region.lines()[-1]})" if lines else ""
    found: dict[tuple[str, Direction, bool], tuple[int, int, list[Product]]] = {}

    def put(array: str, direction: Direction, stepped: bool, n: int, dtype: str, term: Product | None) -> None:
        key = array, direction, stepped
        values, size, products = found.get(key, (0, 0, []))
        found[key] = values + n, size + size_bytes(n, dtype), [*products, *([term] if term else [])]

    loads = count_loads(placed.program, placed.tiles, survive)
    for (load, n), (_, term) in zip(loads, formula.loads, strict=True):
        stepped = any(not whole(placed.tiles, a, "step") for a in variables[load.variable].entered)
        name = load.label if load.label == load.array else _state_of(placed.program.name)
        put(name, "load", stepped, n, placed.setting.dtypes[load.array], term)
    stores = count_stores(placed.program, placed.tiles)
    of_store = {s.array: s for s in placed.program.stores}
    for (array, (n, label)), (_, term) in zip(stores.items(), formula.stores, strict=True):
        partial = of_store[array].state
        dtype = variables[of_store[array].variable].dtype if partial else placed.setting.dtypes[array]
        put(state if partial else label, "store", False, n, dtype, term)
    out = []
    for (array, direction, stepped), (n, size, products) in found.items():
        text = " + ".join(formulas.total(products, symbols))
        worth = sum(int(value(p, ring, formula.grouped)) for p in products)
        bound = "" if worth == n else r"\le "
        # where pieces of an array are loaded together the products tell of one: the number itself is true
        told = f"{bound}{text}" if worth >= n else str(n)
        out.append(PortSpec(array, direction, stepped, f"${told}$", n, size))
    return tuple(out)


def _state_of(program: str) -> str:
    """``merge(LINE)`` loads what is drawn as ``state(LINE)``."""
    return f"state({program.removeprefix('merge(').removesuffix(')')})"


def _memory(placed: Placed, formula: Terms, symbols: Symbols, ring: Ring, counted: RegionCount) -> tuple[str, ...]:
    """M as a formula: in values where one dtype rules, else in bytes; nothing where none is short or exact."""

    def live(parts: Iterable[tuple[int, Product]]) -> int:
        return sum(bits * int(value(p, ring, formula.grouped)) for bits, p in parts)

    if not formula.columns:
        return ()
    _, parts = max(formula.columns, key=lambda c: live(c[1]))
    if live(parts) != 8 * counted.memory.bytes:
        return ()
    unit = 8
    if counted.memory.values:
        unit = 8 * counted.memory.bytes // counted.memory.values
    gathered: dict[str, int] = {}
    for bits, p in parts:
        if bits % unit:
            return ()
        coefficient, text = formulas.product(p, symbols)
        gathered[text] = gathered.get(text, 0) + coefficient * bits // unit
    written = formulas.written(gathered)
    return written if len(written) <= MANY_TERMS + 2 else ()


def _work(column: Column, placed: Placed) -> list[Product]:
    """The FLOPs of a column as products, masks and ragged tiles left out."""
    box, cost = column.box, column.cost
    assert box is not None
    assert cost is not None
    program = placed.program
    entered = {a for a, t in zip(program.loops, column.slot, strict=True) if t is not None and t % 2 == 0}

    def elements(axes: tuple[str, ...], n: int) -> list[Product]:
        if not n:
            return []
        factors = [Factor("size", a) for a in axes]
        for a in dict.fromkeys((*program.grouped, *program.loops)):
            if a not in axes and (a in program.grouped or a in entered):
                factors.append(Factor("tiles", a, "step" if a in entered else "tile"))
        return [Product(n, tuple(factors))]

    out: list[Product] = []
    groups = operand_axes(cost)
    if groups:
        out.extend(elements(box.all_axes, 2))
        for factors, axes in groups:
            out.extend(elements(axes, sum(product_operations(factors))))
    else:
        out.extend(elements(cost.all_axes, sum(operations(cost.body)) + (cost.reduction is not None)))
    out.extend(elements(box.axes, len(corrections(box))))
    return out


def _footer(
    levelled: Levelled, values: Mapping[str, int | float], accumulate: str, names: TileNames, notes: Sequence[str]
) -> str:
    opened = open_diagram(levelled.diagram)
    used = {base_name(a) for b in opened.boxes for a in b.all_axes}
    axes = [d.name for d in levelled.diagram.definitions if d.name in used]
    by_size: dict[int, list[str]] = {}
    for a in axes:
        if a in values:
            by_size.setdefault(int(values[a]), []).append(a)
    parts = [f"${' = '.join(maths_name(a) for a in group)} = {size}$" for size, group in by_size.items()]
    parts.extend(names.listing([d.name for d in levelled.diagram.definitions] + [PART]))
    dtypes = dict.fromkeys(i.dtype for i in levelled.diagram.inputs)
    kinds = enumerated(tuple(dtypes)) + " inputs" + (", sums held in fp32" if accumulate == "fp32" else "")
    tail = [kinds, *notes, "formulas where tiles divide", "the ports of one array are one term of $H$"]
    return ", ".join(parts) + "; " + "; ".join(tail) + "."
