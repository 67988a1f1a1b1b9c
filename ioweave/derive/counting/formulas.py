"""The counts of regions as formulas in sizes and tile sizes, where tiles divide.

They come from the terms that give integers (`ioweave.derive.counting.terms`), written in the symbols of
`ioweave.derive.counting.symbols`. At tiles that divide, a formula is equal to the count, unless it is marked as
a bound: where masks remove reads, or windows are cut or joined, it says what is moved at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from ioweave.derive.counting import symbolic
from ioweave.derive.counting.levelled import Counts, Placed
from ioweave.derive.counting.masks import predicates
from ioweave.derive.counting.symbolic import Term, gather
from ioweave.derive.counting.symbols import Formula, Names, Sum, is_exact, product_term, region_names, swept_term
from ioweave.derive.counting.terms import terms
from ioweave.derive.program.arithmetic_cost import operand_axes, operations, product_operations
from ioweave.derive.program.program import Column, Load
from ioweave.derive.program.reach import Place, Reach
from ioweave.derive.program.slots import corrections
from ioweave.derive.program.spans import Span, bare
from ioweave.diagrams.dtypes import DTYPES
from ioweave.hierarchy.counts import RegionCount

Unit = Literal["values", "bytes"]
BYTES: tuple[Unit, int] = ("bytes", 8)
CLASSES = ("mma", "vector", "special")


@dataclass(frozen=True, slots=True)
class ArrayFormulas:
    """Loads and stores by array, in the order of the diagram's lines."""

    loads: tuple[tuple[str, Formula], ...]
    stores: tuple[tuple[str, Formula], ...]


@dataclass(frozen=True, slots=True)
class FlopsFormula:
    """FLOPs by class, and all together."""

    mma: Formula
    vector: Formula
    special: Formula
    total: Formula


@dataclass(frozen=True, slots=True)
class SideFormulas:
    """The formulas of one region, or of all regions together.

    ``memory`` is of the column that is largest, in ``memory_unit``: values where one dtype rules, else bytes; None
    where values of less than a byte are rounded up. ``divides`` says whether the tiles divide at their numbers.
    """

    transfers: Formula
    arrays: ArrayFormulas
    memory: Formula | None
    memory_unit: Unit
    flops: FlopsFormula
    divides: bool


# -- loads, stores


@dataclass(frozen=True, slots=True)
class Piece:
    """One load or store: its array or label, its sum, and whether the sum is what it moves."""

    label: str
    terms: Sum
    exact: bool


def load_pieces(p: Placed, names: Names) -> list[tuple[Load, Piece]]:
    """Every load of a region, in order of time."""
    masked = any(predicates(b) for b in p.program.boxes)
    result = []
    for load, (_, product) in zip(p.program.loads(), terms(p.program, p.setting).loads, strict=True):
        v = p.program.variable(load.variable)
        if len(v.pieces) == 1 and is_exact(v.pieces[0], v.entered, p):
            result.append((load, Piece(load.label, (product_term(product, names),), not masked)))
        else:
            result.append((load, Piece(load.label, _joined(v.pieces, v.entered, p, names), False)))
    return result


def _joined(pieces: Sequence[tuple[Place, ...]], entered: frozenset[str], p: Placed, names: Names) -> Sum:
    """A sum that is at least the union of pieces: their hull, or all of them, whichever is less."""
    every = gather(swept_term(piece, entered, p, names) for piece in pieces)
    if any(isinstance(s, Reach) for piece in pieces for s in piece) or any(
        s.axes != t.axes for piece in pieces for s, t in zip(piece, pieces[0], strict=True)
    ):
        return every
    hull = [
        replace(spans[0], low=min(s.low for s in spans), high=max(s.high for s in spans), parts=())
        for spans in zip(*([s for s in piece if isinstance(s, Span)] for piece in pieces), strict=True)
    ]
    one = (swept_term(hull, entered, p, names),)
    return one if symbolic.evaluate(one, names.values) <= symbolic.evaluate(every, names.values) else every


def store_pieces(p: Placed, names: Names) -> list[tuple[str, Piece]]:
    """Every store of a region with its array."""
    stores = terms(p.program, p.setting).stores
    return [
        (s.array, Piece(label, (product_term(product, names),), True))
        for s, (label, product) in zip(p.program.stores, stores, strict=True)
    ]


def array_order(p: Placed) -> Callable[[str], int]:
    """The place of an array or label: inputs, then lines, then states."""
    opened = p.setting.opened
    names = [*(i.name for i in opened.inputs), *(b.name for b in opened.boxes)]
    rank = {n: k for k, n in enumerate(names)}
    return lambda label: rank.get(label, len(rank))


def _by_label(
    pieces: Iterable[Piece], names: Names, rank: Callable[[str], int], counted: Mapping[str, int] | None
) -> tuple[tuple[str, Formula], ...]:
    gathered: dict[str, list[Piece]] = {}
    for piece in pieces:
        gathered.setdefault(piece.label, []).append(piece)
    return tuple(
        (label, _settled(gathered[label], names, None if counted is None else counted.get(label)))
        for label in sorted(gathered, key=rank)
    )


def _settled(pieces: Sequence[Piece], names: Names, count: int | None) -> Formula:
    """A formula; one that might be a bound is none if the count says so."""
    f = names.formula(t for piece in pieces for t in piece.terms)
    if all(piece.exact for piece in pieces) or f.value == count:
        return f
    return replace(f, bound=True)


def _total(formulas: Sequence[tuple[str, Formula]], names: Names) -> Formula:
    return names.formula((t for _, f in formulas for t in f.terms), any(f.bound for _, f in formulas))


# -- memory


def memory_unit(p: Placed) -> tuple[Unit, int]:
    """``values`` with their bits where one dtype rules in a region, else ``bytes`` with 8."""
    dtypes = p.program.dtypes
    return ("values", DTYPES[next(iter(dtypes))].bits) if len(dtypes) == 1 else BYTES


def column_sums(p: Placed, names: Names, bits: int) -> list[tuple[str, Sum]]:
    """What is live at every column that may be the largest, in units of so many bits."""
    return [
        (title, gather(Term(Fraction(width, bits)) * product_term(product, names) for width, product in parts))
        for title, parts in terms(p.program, p.setting, p.buffers).columns
    ]


def _memory(p: Placed, names: Names, count: RegionCount | None) -> tuple[Formula | None, Unit]:
    unit, bits = memory_unit(p)
    sums = column_sums(p, names, bits)
    if not sums:
        return names.formula(()), unit
    title = "" if count is None else count.memory.column
    best = names.formula(max(sums, key=lambda c: (symbolic.evaluate(c[1], names.values), c[0] == title))[1])
    if count is None:
        whole = all(len(v.pieces) == 1 and is_exact(v.pieces[0], v.entered, p) for v in p.program.variables)
        masked = any(predicates(b) for b in p.program.boxes)
        return replace(best, bound=masked or not whole), unit
    counted = count.memory.bytes if unit == "bytes" else count.memory.values
    if counted is not None and best.value < counted:
        return None, unit
    return replace(best, bound=best.value != counted), unit


# -- FLOPs


@dataclass(frozen=True, slots=True)
class Work:
    """The FLOPs of one column by class; ``exact`` unless masks or cut windows leave some of it out."""

    column: Column
    mma: Sum
    vector: Sum
    special: Sum
    exact: bool


def works(p: Placed, names: Names) -> list[Work]:
    """The FLOPs of every column that runs a box (counting.md 29, 30)."""
    masked = any(predicates(b) for b in p.program.boxes)
    return [_work(c, p, names, masked) for c, _ in p.program.columns() if c.box is not None]


def _work(column: Column, p: Placed, names: Names, masked: bool) -> Work:
    box, cost = column.box, column.cost
    assert box is not None
    assert cost is not None
    entered = frozenset(a for a, t in zip(p.program.loops, column.slot, strict=True) if t is not None and t % 2 == 0)
    spans: dict[str, Span] = dict(zip(box.axes, column.spans, strict=True))
    spans.update({a: bare(a, p.tiles.sizes[a]) for a in box.over})
    exact = not masked

    def elements(axes: tuple[str, ...]) -> Term:
        nonlocal exact
        chosen = [spans[a] for a in axes]
        exact = exact and is_exact(chosen, entered, p)
        return swept_term(chosen, entered, p, names)

    mma: list[Term] = []
    vector: list[Term] = []
    special: list[Term] = []
    groups = operand_axes(cost)
    if groups:
        mma.append(Term.number(2) * elements(box.all_axes))
        costs = [(product_operations(factors), axes) for factors, axes in groups]
    else:
        v, s = operations(cost.body)
        costs = [((v + (cost.reduction is not None), s), cost.all_axes)]
    for (v, s), axes in costs:
        if v:
            vector.append(Term.number(v) * elements(axes))
        if s:
            special.append(Term.number(s) * elements(axes))
    for _ in corrections(box):
        vector.append(elements(box.axes))
    return Work(column, gather(mma), gather(vector), gather(special), exact)


def _flops(p: Placed, names: Names, count: RegionCount | None) -> FlopsFormula:
    work = works(p, names)

    def of(kind: str, counted: int | None) -> Formula:
        pieces = [Piece(kind, getattr(w, kind), w.exact) for w in work]
        return _settled([x for x in pieces if x.terms], names, counted)

    if count is None:
        parts = [of(kind, None) for kind in CLASSES]
    else:
        parts = [of(kind, getattr(count.flops, kind)) for kind in CLASSES]
    return _flops_of(parts, names)


def _flops_of(classes: Sequence[Formula], names: Names) -> FlopsFormula:
    mma, vector, special = classes
    return FlopsFormula(mma, vector, special, _total([("", f) for f in classes], names))


# -- regions and sides


def region_formulas(p: Placed, names: Names | None = None, count: RegionCount | None = None) -> SideFormulas:
    """All formulas of one region; its ``count`` tells bounds from equalities where the terms alone cannot."""
    names = names or region_names([p])[0]
    rank = array_order(p)
    moved = None if count is None else count.transfers
    loads = _by_label((x for _, x in load_pieces(p, names)), names, rank, None if moved is None else moved.loads)
    stores = _by_label((x for _, x in store_pieces(p, names)), names, rank, None if moved is None else moved.stores)
    memory, unit = _memory(p, names, count)
    flops = _flops(p, names, count)
    arrays = ArrayFormulas(loads, stores)
    return SideFormulas(_total((*loads, *stores), names), arrays, memory, unit, flops, names.divides)


def formulas(counts: Counts) -> tuple[SideFormulas, tuple[SideFormulas, ...]]:
    """The formulas of all regions together, and of each (merges among them).

    In the formulas of all together a tile that differs between regions carries its region's name.
    """
    alone = region_names(counts.placed)
    regions = tuple(region_formulas(p, n, c) for p, n, c in zip(counts.placed, alone, counts.regions, strict=True))
    names = region_names(counts.placed, apart=True)
    each = regions
    if any(a.values != b.values for a, b in zip(alone, names, strict=True)):
        each = tuple(region_formulas(p, n, c) for p, n, c in zip(counts.placed, names, counts.regions, strict=True))
    whole = _whole(names)
    largest = max(range(len(each)), key=lambda k: counts.regions[k].memory.bytes)
    rank = array_order(counts.placed[0])

    def together(rows: Iterable[tuple[tuple[str, Formula], ...]]) -> tuple[tuple[str, Formula], ...]:
        gathered: dict[str, list[tuple[str, Formula]]] = {}
        for row in rows:
            for label, f in row:
                gathered.setdefault(label, []).append((label, f))
        return tuple((label, _total(gathered[label], whole)) for label in sorted(gathered, key=rank))

    flops = [_total([("", getattr(r.flops, kind)) for r in each], whole) for kind in CLASSES]
    return (
        SideFormulas(
            _total([("", r.transfers) for r in each], whole),
            ArrayFormulas(together(r.arrays.loads for r in each), together(r.arrays.stores for r in each)),
            regions[largest].memory,
            regions[largest].memory_unit,
            _flops_of(flops, whole),
            whole.divides,
        ),
        regions,
    )


def _whole(names: Sequence[Names]) -> Names:
    """The symbols of all regions in one order."""
    values: dict[str, int] = {}
    for n in names:
        values.update(n.values)
    sizes = list(dict.fromkeys(s for n in names for s in n.order if Term.symbol(s) in n.size.values()))
    order: list[str] = []
    for size in sizes:
        order.append(size)
        for n in names:
            start = n.order.index(size) + 1
            for s in n.order[start:]:
                if s in sizes:
                    break
                order.append(s)
    return replace(names[0], order=tuple(dict.fromkeys(order)), values=values, divides=all(n.divides for n in names))


def transfer_formula(of: Placed | Counts) -> Formula:
    """Loads and stores in values, of a region or of all."""
    return _side(of).transfers


def array_formulas(of: Placed | Counts) -> ArrayFormulas:
    """Loads and stores by array, in values."""
    return _side(of).arrays


def memory_formula(of: Placed | Counts) -> Formula | None:
    """The largest column at these tiles: in values where one dtype rules, else in bytes (`memory_unit`)."""
    return _side(of).memory


def flops_formula(of: Placed | Counts) -> FlopsFormula:
    """FLOPs by class and all together."""
    return _side(of).flops


def _side(of: Placed | Counts) -> SideFormulas:
    return formulas(of)[0] if isinstance(of, Counts) else region_formulas(of)
