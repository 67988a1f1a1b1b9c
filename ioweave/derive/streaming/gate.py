"""The prover's own gate: every identity is tried on numbers before a plan may use it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size

POINTS = 24
_TOLERANCE = 1e-7


@lru_cache(maxsize=1)
def _pool() -> Any:
    """Fixed random draws, one row per leaf: normal, small integers and positive, by thirds."""
    import numpy as np

    rng = np.random.default_rng(20241203)
    rows = rng.standard_normal((64, POINTS))
    rows[:, POINTS // 3 : 2 * POINTS // 3] = rng.integers(-2, 3, (64, POINTS // 3))
    rows[:, 2 * POINTS // 3 :] = np.abs(rows[:, 2 * POINTS // 3 :]) + 0.1
    return rows


class Sample:
    """Values for the leaves of expressions: the same leaf has the same values throughout."""

    def __init__(self, nonnegative: Callable[[str], bool]) -> None:
        self._nonnegative = nonnegative
        self._values: dict[Expr, Any] = {}

    def leaf(self, e: Expr) -> Any:
        """The values of a leaf, one for each point."""
        if e not in self._values:
            import numpy as np

            row = _pool()[len(self._values) % 64]
            if isinstance(e, Index):
                row = np.floor(np.abs(row * 3))
            elif isinstance(e, Size):
                row = np.floor(np.abs(row * 3)) + 2
            elif isinstance(e, Constant) or (isinstance(e, Read) and self._nonnegative(e.array)):
                row = np.abs(row) + 0.1
            self._values[e] = row
        return self._values[e]

    def fix(self, e: Expr, value: float) -> None:
        """Give a leaf one value at every point."""
        import numpy as np

        self._values[e] = np.full(POINTS, value)

    def value(self, e: Expr) -> Any:
        """The values of an expression."""
        import numpy as np

        from ioweave.diagrams.arithmetic import FUNCTIONS

        def of(node: Expr) -> Any:
            if isinstance(node, Number):
                return np.float64(node.value) if not isinstance(node.value, bool) else node.value
            if isinstance(node, Apply):
                return FUNCTIONS[node.op](*(of(a) for a in node.args))
            return self.leaf(node)

        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(of(e), dtype=float), (POINTS,))


def agree(a: Expr, b: Expr, sample: Sample) -> bool:
    """Whether two expressions have equal values wherever both are finite, at some points at least."""
    import numpy as np

    left, right = sample.value(a), sample.value(b)
    both = np.isfinite(left) & np.isfinite(right)
    if int(both.sum()) < 4:
        return False
    size = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1e-3)
    with np.errstate(invalid="ignore"):
        return bool(np.all(np.abs(left - right)[both] <= _TOLERANCE * size[both]))
