"""The scalar operators and reductions: arity, class of arithmetic, identity, NumPy meaning.

`masked_sub` and `masked_div` are subtraction and division that keep a masked entry masked
(``-inf - anything`` is ``-inf`` and ``0 / anything`` is ``0``); composites are defined with
them, so that a fully masked row gives 0, not NaN (counting.md 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ioweave.diagrams.dtypes import DTYPES

FlopClass = Literal["vector", "special", "free"]


@dataclass(frozen=True, slots=True)
class Operator:
    """A scalar operator.

    ``symbol`` is its infix sign, if any; ``precedence`` is Python's own order, higher binds tighter.
    """

    name: str
    arity: int
    flops: FlopClass
    symbol: str | None = None
    precedence: int = 100


SPECIAL = (
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh"),
    *("sigmoid", "silu", "gelu", "erf", "sin", "cos"),
)


KEEP = "keep"  # a dropout mask: keep(p, index, ...) is 0 with probability p, whatever is computed around it


def _table() -> dict[str, Operator]:
    rows = [
        Operator("add", 2, "vector", "+", 60),
        Operator("sub", 2, "vector", "-", 60),
        Operator("mul", 2, "vector", "*", 70),
        Operator("div", 2, "special", "/", 70),
        Operator("floordiv", 2, "vector", "//", 70),
        Operator("mod", 2, "vector", "%", 70),
        Operator("pow", 2, "special", "**", 90),
        Operator("neg", 1, "vector", "-", 80),
        Operator("lt", 2, "vector", "<", 40),
        Operator("le", 2, "vector", "<=", 40),
        Operator("gt", 2, "vector", ">", 40),
        Operator("ge", 2, "vector", ">=", 40),
        Operator("eq", 2, "vector", "==", 40),
        Operator("ne", 2, "vector", "!=", 40),
        Operator("and", 2, "vector", "and", 20),
        Operator("or", 2, "vector", "or", 10),
        Operator("not", 1, "vector", "not", 30),
        Operator("min", 2, "vector"),
        Operator("max", 2, "vector"),
        Operator("abs", 1, "vector"),
        Operator("relu", 1, "vector"),
        Operator("floor", 1, "vector"),
        Operator("round", 1, "vector"),
        Operator("where", 3, "vector"),
        Operator("masked_sub", 2, "vector"),
        Operator("masked_div", 2, "special"),
        *(Operator(n, 1, "special") for n in SPECIAL),
        *(Operator(n, 1, "free") for n in DTYPES),  # casts
        Operator(KEEP, 2, "free"),  # a probability, then any number of indices
    ]
    return {o.name: o for o in rows}


OPERATORS: dict[str, Operator] = _table()
CASTS = frozenset(DTYPES)
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
PREDICATES = COMPARISONS | {"and", "or", "not"}


@dataclass(frozen=True, slots=True)
class Reduction:
    """An associative, commutative reduction with its identity."""

    name: str
    identity: float


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction("sum", 0.0),
    "prod": Reduction("prod", 1.0),
    "max": Reduction("max", float("-inf")),
    "min": Reduction("min", float("inf")),
    "any": Reduction("any", 0.0),
    "all": Reduction("all", 1.0),
    "topk": Reduction("topk", float("-inf")),  # the identity of a list is that of its keys
    "argtopk": Reduction("argtopk", float("-inf")),
    "pick": Reduction("pick", float("-inf")),
}
LIST_NAMES = frozenset({"topk", "argtopk"})  # reductions that make a list along an axis of their own
# mean opens to a sum divided by a size or a count; only provers make a pick
REDUCE_NAMES = (frozenset(REDUCTIONS) | {"mean"}) - {"pick"}

COMPOSITES_THAT_KEEP = frozenset({"softmax", "layernorm", "rmsnorm", "l2norm", "cumsum"})
COMPOSITES_THAT_REDUCE = frozenset({"logsumexp"})
COMPOSITES = COMPOSITES_THAT_KEEP | COMPOSITES_THAT_REDUCE
SCAN = "scan"
REVERSED = "reversed"  # the option of what walks along an axis: from the last element to the first
REVERSIBLE = frozenset({SCAN, "cumsum"})
