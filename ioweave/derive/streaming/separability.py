"""Separability: on numbers, whether terms ``f(x, r)`` could be a finite sum of products ``a_j(r) b_j(x)``.

Statement. If ``f(x, r) = sum_j a_j(r) b_j(x)`` with n products, every matrix ``f(x_i, r_k)`` has rank at
most n. A rank that fills the matrix, or grows with the range of the values, leaves no finite number
of accumulators for a sum. Of an extremum numbers prove nothing: a few others may serve in its place.
Source. The rank of a kernel, as for the degenerate kernels of Fredholm; used here as a screen: a small
rank without a plan is answered `unproved`, since a plan may exist that was not found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size, walk
from ioweave.diagrams.operators import CASTS

POINTS = 30
SPREADS = (1.0, 4.0)  # scales of the values tried
_SMALL = 10  # a rank up to here, at both scales, may be a finite sum
_TOLERANCE = 1e-11


@dataclass(frozen=True, slots=True)
class Screen:
    """``may_separate``: nothing on numbers speaks against a plan; ``said`` is the finding in words."""

    may_separate: bool
    said: str


def screen(
    reduction: str,
    term: Expr,
    waits: Callable[[Expr], bool],
    walks: Callable[[Expr], bool],
    nonnegative: Callable[[Expr], bool],
) -> Screen | None:
    """What numbers say of a reduction's term; None where it mixes both sides in one leaf, or cannot be evaluated.

    ``waits`` and ``walks`` say of a leaf whether it is an unfinished result and whether it changes along
    the axis.
    """
    leaves: list[Expr] = [n for n in dict.fromkeys(walk(term)) if not isinstance(n, Apply | Number)]
    if any(waits(n) and walks(n) for n in leaves):
        return None
    for n in walk(term):
        if isinstance(n, Apply) and n.op in CASTS and any(map(waits, walk(n))) and any(map(walks, walk(n))):
            return Screen(False, f"{n.op} rounds a value that depends on both, and rounding is part of the function")
    if reduction in ("max", "min"):
        return Screen(True, "an extremum of terms that change with the result may need others in its place")
    if reduction != "sum":
        return Screen(True, f"no repair is known for its {reduction}, which proves nothing")
    tables = [_table(term, leaves, waits, nonnegative, spread) for spread in SPREADS]
    if any(t is None for t in tables):
        return None
    ranks = [_rank(t) for t in tables]
    if max(ranks) == 0:
        return None
    if max(ranks) <= _SMALL and ranks[0] == ranks[1]:
        return Screen(True, f"on random values its terms have rank {ranks[0]}, so a plan may exist")
    wide = f"on {POINTS} random values its terms have rank {max(ranks)}"
    return Screen(False, f"{wide}, so fewer accumulators than that do not hold them")


def _table(
    term: Expr, leaves: list[Expr], waits: Callable[[Expr], bool], nonnegative: Callable[[Expr], bool], spread: float
) -> Any:
    """The values of a term: a row for each value along the axis, a column for each value of the results."""
    import numpy as np

    from ioweave.diagrams.arithmetic import FUNCTIONS

    rng = np.random.default_rng(7)
    values: dict[Expr, Any] = {}
    for n in leaves:
        row = rng.standard_normal(POINTS) * spread
        if isinstance(n, Index | Size):
            row = np.floor(np.abs(row * 3)) + (2 if isinstance(n, Size) else 0)
        elif isinstance(n, Constant) or nonnegative(n):
            row = np.abs(row) + 0.1
        if isinstance(n, Size | Constant) or (isinstance(n, Read) and not n.index):
            row = row[:1] if not waits(n) else row
        values[n] = row[None, :] if waits(n) else row[:, None]

    def of(e: Expr) -> Any:
        if isinstance(e, Number):
            return np.float64(e.value) if not isinstance(e.value, bool) else e.value
        return FUNCTIONS[e.op](*(of(a) for a in e.args)) if isinstance(e, Apply) else values[e]

    with np.errstate(all="ignore"):
        table = np.broadcast_to(np.asarray(of(term), dtype=float), (POINTS, POINTS))
    good = np.isfinite(table)
    rows = good.mean(axis=1) > 0.7
    table = table[rows]
    columns = np.isfinite(table).all(axis=0)
    table = table[:, columns]
    return table if min(table.shape, default=0) >= POINTS // 2 else None


def _rank(table: Any) -> int:
    import numpy as np

    size = np.abs(table).max(axis=0)
    scaled = table / np.where(size > 0, size, 1)
    values = np.linalg.svd(scaled, compute_uv=False)
    return int((values > _TOLERANCE * max(values[0], 1e-300)).sum())
