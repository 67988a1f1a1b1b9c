"""Formulas of counts, as the report keeps them."""

from __future__ import annotations

from ioweave.derive.counting.formulas import SideFormulas, formulas
from ioweave.derive.counting.levelled import Counts
from ioweave.derive.counting.symbols import Formula
from ioweave.hierarchy.report import Formulas, Written

LONGEST = 400  # characters; a longer sum says less than its value


def written_formulas(counts: Counts) -> tuple[Formulas, tuple[Formulas, ...]]:
    """The formulas of all regions together, and of each."""
    whole, regions = formulas(counts)
    return _side(whole), tuple(_side(r) for r in regions)


def _side(f: SideFormulas) -> Formulas:
    return Formulas(_written(f.transfers), _written(f.memory), _written(f.flops.total), f.memory_unit, f.divides)


def _written(f: Formula | None) -> Written:
    if f is None or len(f.text) > LONGEST:
        return Written()
    return Written(f.text, f.latex, f.bound, f.symbols)
