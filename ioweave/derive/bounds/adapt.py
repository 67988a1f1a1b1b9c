"""From counts to the napkin formula: every region's terms as one posynomial shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ioweave.derive.bounds.napkin import Napkin, napkin
from ioweave.derive.bounds.posynomial import Monomial, Posynomial, Shape, Tile
from ioweave.derive.counting.formulas import BYTES, column_sums, load_pieces, memory_unit, store_pieces
from ioweave.derive.counting.levelled import Counts, Placed
from ioweave.derive.counting.masks import predicates
from ioweave.derive.counting.symbolic import Term, expand
from ioweave.derive.counting.symbols import Names, region_names


def napkin_of(
    counts: Counts,
    values: Mapping[str, int | float],
    capacity_bytes: int,
    rivals: Sequence[Counts] = (),
    level: str = "smem",
) -> Napkin | None:
    """The closed form of the least traffic of these regions at any tiles; None where there is none.

    The regions fix what is grouped, streamed and held; their tiles are left open. M is in values where one dtype rules
    everywhere, else in bytes (`Napkin.memory_unit`). ``rivals`` are the counts of other structures of the diagram.
    Masks are left out: where there are any the formula is at most (`Napkin.without_mask`).
    """
    sides = (counts, *rivals)
    units = {memory_unit(p) for side in sides for p in side.placed if p.program.variables}
    unit, bits = units.pop() if len(units) == 1 else BYTES
    structures = [_shapes(side, bits) for side in sides]
    used = {s for structure in structures for shape in structure for s in _symbols(shape)}
    sizes = {n: int(v) for n, v in values.items() if n in used}
    moved = counts.transfers
    found = napkin(
        structures[0],
        sizes,
        capacity_bytes * 8 / bits,
        others=structures[1:],
        level=level,
        bytes_per_value=moved.bytes / moved.values if moved.values else 1.0,
        bytes_per_unit=bits / 8,
    )
    if found is None:
        return None
    masked = any(predicates(b) for p in counts.placed for b in p.program.boxes)
    return replace(found, memory_unit=unit, without_mask=masked)


def _symbols(shape: Shape) -> frozenset[str]:
    """The sizes in a shape."""
    sums = (shape.traffic, *shape.columns, Posynomial(tuple(t.upper for t in shape.tiles)))
    return frozenset(s for p in sums for m in p.terms for s, _ in m.powers) - shape.symbols


def _shapes(counts: Counts, bits: int) -> list[Shape]:
    """One shape per region; a merge belongs to the region whose states it joins."""
    shapes: list[Shape] = []
    merges = {id(p.program.merge) for p in counts.placed if p.program.merge is not None}
    for p, names in zip(counts.placed, region_names(counts.placed), strict=True):
        if id(p.program) not in merges:
            shapes.append(_shape(p, names, bits))
        else:
            before, own = shapes[-1], _shape(p, names, bits)
            shapes[-1] = Shape(before.traffic + own.traffic, (*before.columns, *own.columns), before.tiles)
    return shapes


def _shape(p: Placed, names: Names, bits: int) -> Shape:
    moved = [t for _, x in load_pieces(p, names) for t in x.terms]
    moved += [t for _, x in store_pieces(p, names) for t in x.terms]
    columns = tuple(_posynomial(parts) for _, parts in column_sums(p, names, bits))
    tiles = [_tile(names, a, t, "group") for a, t in names.group.items() if a in p.tiles.group]
    tiles += [_tile(names, a, t, "stream") for a, t in names.step.items() if a in p.tiles.stream and t.powers]
    return Shape(_posynomial(moved), columns, tuple(tiles))


def _tile(names: Names, axis: str, tile: Term, kind: str) -> Tile:
    ((symbol, _),) = tile.powers
    return Tile(symbol, _monomial(names.size[axis]), "group" if kind == "group" else "stream")


def _posynomial(parts: Sequence[Term]) -> Posynomial:
    """The positive terms of a sum: a window of g + r - 1 counts as g + r."""
    return Posynomial.make(_monomial(t) for t in expand(parts)).positive()


def _monomial(t: Term) -> Monomial:
    return Monomial.make(t.coefficient, {s: Fraction(p) for s, p in t.powers})
