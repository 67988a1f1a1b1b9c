"""The continuous optimum: the geometric program solved by numbers, in log space, where it is convex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ioweave.derive.bounds.posynomial import Posynomial, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least traffic over real tiles, and tiles that attain it."""

    traffic: float
    tiles: tuple[tuple[str, float], ...]


def optimum(shape: Shape, sizes: Mapping[str, int], memory: float) -> Optimum | None:
    """Least traffic of ``shape`` with each column at most ``memory`` (in the columns' unit); None if nothing fits.

    Source: the barrier method for convex programs (Boyd and Vandenberghe, Convex Optimization, chapter 11), on
    log(traffic) and log(column) as functions of the logarithms of the tiles.
    """
    import numpy as np

    values = {s: float(n) for s, n in sizes.items()}
    uppers = {t.symbol: t.upper.evaluate(values) for t in shape.tiles}
    ones = {**values, **dict.fromkeys(uppers, 1.0)}
    if any(c.evaluate(ones) > memory * (1 + 1e-12) for c in shape.columns):
        return None
    free = [s for s, u in uppers.items() if u > 1 and _fits_above(shape, s, ones, memory)]
    if not free:
        return Optimum(shape.traffic.evaluate(ones), tuple((s, 1.0) for s in uppers))
    goal = _Form(shape.traffic, free, values)
    walls = [_Form(c, free, values) for c in shape.columns]
    top = np.log([uppers[s] for s in free])
    y = _inside(walls, top, np.log(memory))
    weight, gaps = 1.0, len(walls) + 2 * len(free)
    while gaps / weight > 1e-9:
        weight *= 20.0
        for _ in range(60):
            _, slope, bend = goal.at(y)
            slope, bend = weight * slope, weight * bend
            for wall in walls:
                f, g, h = wall.at(y)
                room = np.log(memory) - f
                slope = slope + g / room
                bend = bend + h / room + np.outer(g, g) / room**2
            slope = slope - 1 / y + 1 / (top - y)
            bend = bend + np.diag(1 / y**2 + 1 / (top - y) ** 2)
            bend = bend + np.diag(1e-14 * np.diag(bend) + 1e-30)  # tiles that stand only as a product
            step = -np.linalg.solve(bend, slope)
            decrement = -float(slope @ step)
            if decrement < 1e-10:
                break
            y = _line(goal, walls, y, step, top, float(np.log(memory)), weight, decrement)
    tiles = dict.fromkeys(uppers, 1.0) | {s: float(np.exp(v)) for s, v in zip(free, y, strict=True)}
    return Optimum(shape.traffic.evaluate({**values, **tiles}), tuple(tiles.items()))


def _fits_above(shape: Shape, symbol: str, ones: Mapping[str, float], memory: float) -> bool:
    return all(c.evaluate({**ones, symbol: 1 + 1e-9}) < memory for c in shape.columns)


class _Form:
    """The logarithm of a posynomial as a function of the logarithms of the free tiles."""

    def __init__(self, p: Posynomial, free: list[str], values: Mapping[str, float]) -> None:
        import numpy as np

        rest = {**values, **{s: 1.0 for m in p.terms for s, _ in m.powers if s not in values}}
        self.powers: Vector = np.array([[float(m.power(s)) for s in free] for m in p.terms])
        self.logs: Vector = np.log([m.evaluate(rest) for m in p.terms])

    def at(self, y: Vector) -> tuple[float, Vector, Vector]:
        """Value, gradient and Hessian."""
        import numpy as np

        z = self.powers @ y + self.logs
        high = z.max()
        w = np.exp(z - high)
        total = w.sum()
        w = w / total
        slope = self.powers.T @ w
        bend = self.powers.T @ (w[:, None] * self.powers) - np.outer(slope, slope)
        return float(high + np.log(total)), slope, bend


def _inside(walls: list[_Form], top: Vector, room: float) -> Vector:
    share = 0.5
    while any(w.at(share * top)[0] >= room for w in walls):
        share /= 2
    return share * top


def _barrier(goal: _Form, walls: list[_Form], y: Vector, top: Vector, room: float, weight: float) -> float:
    import numpy as np

    if (y <= 0).any() or (y >= top).any():
        return float("inf")
    gaps = [room - w.at(y)[0] for w in walls]
    if min(gaps, default=1.0) <= 0:
        return float("inf")
    return float(weight * goal.at(y)[0] - np.log(gaps).sum() - np.log(y).sum() - np.log(top - y).sum())


def _line(
    goal: _Form, walls: list[_Form], y: Vector, step: Vector, top: Vector, room: float, weight: float, decrement: float
) -> Vector:
    """Backtrack until the barrier falls enough (or the step is lost to rounding)."""
    here = _barrier(goal, walls, y, top, room, weight)
    length = 1.0
    while length > 1e-12:
        if _barrier(goal, walls, y + length * step, top, room, weight) <= here - 0.25 * length * decrement:
            return y + length * step
        length /= 2
    return y
