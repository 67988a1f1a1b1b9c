"""Caution: how a plan keeps overflow away, and where rounding may cost more than in the reference.

Sources. Running references of exponents: Milakov and Gimelshein (arXiv 1805.02867). Cancellation in
raw moments: Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983).
"""

from __future__ import annotations

from collections.abc import Mapping

from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import Plan, positional
from ioweave.diagrams.boxes import Box, source
from ioweave.diagrams.expressions import Apply, Expr, reads, walk


def safeguards(plan: Plan) -> tuple[str, ...]:
    """Why no prefix of the axis overflows where the whole does not."""
    said: dict[str, None] = {}
    for b in plan.state:
        if b.rescale is not None:
            factor = plan.box(b.rescale).body
            tops = " and ".join(dict.fromkeys(source(r.array) for r in plan.box(b.rescale).reads()))
            if any(isinstance(n, Apply) and n.op == "floor" for n in walk(factor)):
                said[f"exponentials run under multiples of the lazy step below {tops}; they move only with one"] = None
            elif any(isinstance(n, Apply) and n.op in ("exp", "exp2") for n in walk(factor)):
                said[f"exponentials run under {tops}, so none exceeds 1 while the loop runs"] = None
    for b in plan.state:
        if b.recentre is not None:
            said[f"{b.name} is taken about the running mean (Chan, Golub and LeVeque), so nothing cancels"] = None
    for b in plan.state:
        if positional(b):
            said[f"{b.name} is known from positions alone: it is no state and costs nothing"] = None
    if any(isinstance(n, Apply) and n.op in ("masked_sub", "masked_div") for b in plan.boxes for n in walk(b.body)):
        said["where all is masked, -inf - -inf stands for -inf and 0 / 0 for 0 in these formulas"] = None
    return (*said, *plan.safe)


def cautions(plan: Plan) -> tuple[str, ...]:
    """Differences of accumulated sums in the tail: they may cancel, which the reference does not do."""
    sums = {b.name: b for b in plan.state if b.reduction == "sum" and b.recentre is None}
    said: dict[str, None] = {}
    for b in plan.boxes:
        if b.running or b.reduction is not None:
            continue
        for n in walk(b.body):
            if isinstance(n, Apply) and n.op == "sub" and _sums(n.args[0], sums) and _sums(n.args[1], sums):
                said[f"{b.name} subtracts accumulated sums, {text(n)}: where they nearly agree, digits are lost"] = None
    return tuple(said)


def _sums(e: Expr, sums: Mapping[str, Box]) -> bool:
    return any(r.array in sums for r in reads(e))
