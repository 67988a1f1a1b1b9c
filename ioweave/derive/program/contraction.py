"""Which sums the matrix units take (counting.md 29).

A contraction is a sum of products of two factors, each with an output axis that the other
lacks. Batch axes that both carry are fine; a matrix times a vector is not one.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from ioweave.diagrams.boxes import PAST, PREV, Box
from ioweave.diagrams.expressions import Apply, Expr, free_axes, is_predicate_of_indices


def factors(e: Expr) -> tuple[Expr, ...]:
    """The multiplicative factors of an expression, casts on products looked through."""
    if isinstance(e, Apply) and e.op == "mul":
        return (*factors(e.args[0]), *factors(e.args[1]))
    if isinstance(e, Apply) and e.op == "neg":
        return factors(e.args[0])
    if isinstance(e, Apply) and e.op == "div" and is_predicate_of_indices(e.args[1]) and not free_axes(e.args[1]):
        return (*factors(e.args[0]), e.args[1])
    return (e,)


@lru_cache(maxsize=4096)
def operands(box: Box) -> tuple[tuple[Expr, ...], tuple[Expr, ...]] | None:
    """The two groups of factors that a matrix unit multiplies, or None where none takes the box."""
    if box.reduction != "sum" or any(r.array.endswith((PREV, PAST)) for r in box.reads()):
        return None  # what a scan has made so far comes element by element, and fills no matrix
    parts = factors(box.body)
    if not 2 <= len(parts) <= 8:
        return None
    own = [frozenset(free_axes(p)) & frozenset(box.axes) for p in parts]
    inner = [frozenset(free_axes(p)) & frozenset(box.over) for p in parts]
    for sides in product((0, 1), repeat=len(parts) - 1):
        side = (0, *sides)
        left = frozenset().union(*(o for o, s in zip(own, side, strict=True) if s == 0))
        right = frozenset().union(*(o for o, s in zip(own, side, strict=True) if s == 1))
        contracted = [frozenset().union(*(i for i, s in zip(inner, side, strict=True) if s == k)) for k in (0, 1)]
        if left - right and right - left and all(contracted):
            return (
                tuple(p for p, s in zip(parts, side, strict=True) if s == 0),
                tuple(p for p, s in zip(parts, side, strict=True) if s == 1),
            )
    return None


def is_contraction(box: Box) -> bool:
    """Whether the matrix units take this box."""
    return operands(box) is not None
