"""The arithmetic of one element of a scalar expression, by class (counting.md 29).

The rules are a table shared by the analytic counter and by execution; how many elements there
are is found by each on its own. A cost is a pair: ``vector`` arithmetic, ``special`` functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ioweave.derive.program.contraction import operands
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Number, free_axes, is_predicate_of_indices
from ioweave.diagrams.operators import OPERATORS

Cost = tuple[int, int]  # vector, special

FREE: Cost = (0, 0)
VECTOR: Cost = (1, 0)
SPECIAL: Cost = (0, 1)


@lru_cache(maxsize=4096)
def operations(e: Expr) -> Cost:
    """The cost of one element of ``e``.

    Indices, sizes, constants and everything made of them alone cost nothing.
    """
    if not isinstance(e, Apply) or is_predicate_of_indices(e):
        return FREE
    vector, special = _own(e)
    for child in e.args:
        v, s = operations(child)
        vector, special = vector + v, special + s
    return vector, special


def product_operations(factors: Sequence[Expr]) -> Cost:
    """The cost of one element of the product of some factors, which is an operand of a contraction."""
    product = factors[0]
    for f in factors[1:]:
        product = Apply("mul", (product, f))
    return operations(product)


@lru_cache(maxsize=4096)
def operand_axes(box: Box) -> tuple[tuple[tuple[Expr, ...], tuple[str, ...]], ...]:
    """The two operands of a contraction, each as its factors and its axes; empty for any other box."""
    sides = operands(box)
    if sides is None:
        return ()
    result = []
    for factors in sides:
        present = {a for f in factors for a in free_axes(f)}
        result.append((factors, tuple(a for a in box.all_axes if a in present)))
    return tuple(result)


def _own(e: Apply) -> Cost:
    """The cost of the operator itself, its arguments aside."""
    if e.op == "pow":
        return _power(e.args[1])
    if e.op in ("div", "masked_div"):
        return VECTOR if is_predicate_of_indices(e.args[1]) else SPECIAL
    if e.op == "neg":
        return FREE if _has_constant(e.args[0]) else VECTOR
    return {"vector": VECTOR, "special": SPECIAL, "free": FREE}[OPERATORS[e.op].flops]


def _has_constant(e: Expr) -> bool:
    """Whether a product has a factor made of numbers and indices, which takes up a sign."""
    if is_predicate_of_indices(e):
        return True
    if isinstance(e, Apply) and e.op == "mul":
        return any(_has_constant(a) for a in e.args)
    if isinstance(e, Apply) and e.op in ("div", "masked_div"):
        return _has_constant(e.args[0]) or is_predicate_of_indices(e.args[1])
    return isinstance(e, Apply) and e.op == "neg" and _has_constant(e.args[0])


def _power(exponent: Expr) -> Cost:
    """Multiplications by repeated squaring for a whole exponent >= 0; one special operation else."""
    n = exponent.value if isinstance(exponent, Number) else -1
    if n < 0 or not float(n).is_integer():
        return SPECIAL
    whole = int(n)
    return max(whole.bit_length() - 1, 0) + max(whole.bit_count() - 1, 0), 0
