"""Lists in execution: the terms of a step joined with the slots so far; positions and payloads ride along.

The keys of a step are seen once, by the list of keys; what follows it takes the same order. Until a list is
finished, a slot whose key is -inf has the position `NOWHERE`, filled or not: `finished` gives it its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ioweave.derive.execution.grid import Grid, Known, Reader, Values, values_of
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Expr
from ioweave.diagrams.lists import (
    EMPTY,
    KEYS,
    NOWHERE,
    PAYLOAD,
    POSITIONS,
    Order,
    best,
    holds_positions,
    key,
    payload,
    settled,
    start,
)


@dataclass(frozen=True)
class _Seen:
    """What one step offered: an array over the axes of its list and then the candidates, and where it stands."""

    axes: tuple[str, ...]
    lows: Mapping[str, int]
    array: Values

    def at(self, axes: Sequence[str], grid: Grid) -> Values:
        """The part over a grid, with dimensions for ``axes`` in their order: 1 for those that it lacks."""
        cut = tuple(slice(grid.bounds[a][0] - self.lows[a], grid.bounds[a][1] - self.lows[a]) for a in self.axes)
        order = sorted(range(len(self.axes)), key=lambda k: axes.index(self.axes[k]))
        part = self.array[cut].transpose([*order, len(self.axes)])
        shape = [grid.extent(a) if a in self.axes else 1 for a in axes]
        return part.reshape([*shape, part.shape[-1]])


class Joiner:
    """Joins the lists of one region; keeps what the present step showed of each list of keys."""

    def __init__(self, sizes: Mapping[str, int | float]) -> None:
        self.sizes = sizes
        self.keys: dict[str, _Seen] = {}
        self.orders: dict[tuple[str, str], _Seen] = {}

    def joined(self, box: Box, grid: Grid, old: Values | None, read: Reader, known: Known) -> Values:
        """The list of a box over a grid: its slots so far (None: none yet) joined with the terms of the grid."""
        assert box.into is not None
        lead = tuple(a for a in box.axes if a != box.into)
        place = box.axes.index(box.into)
        length = grid.extent(box.into)
        shape = [grid.extent(a) for a in lead]
        empty = start(box, int(NOWHERE))
        slots = np.full([*shape, length], empty) if old is None else np.moveaxis(old, place, -1)
        if box.reduction == POSITIONS:
            terms = self.positions(box, grid)
        else:
            terms = self.terms(payload(box) if box.reduction == PAYLOAD else key(box), box, lead, grid, read, known)
        candidates = np.concatenate([slots, np.broadcast_to(terms, [*shape, terms.shape[-1]])], axis=-1)
        result = self.order(box, lead, grid, candidates, length).take(candidates)
        return np.moveaxis(result.reshape([*shape, length]), -1, place)

    def order(self, box: Box, lead: tuple[str, ...], grid: Grid, candidates: Values, length: int) -> Order:
        """The order of a list's candidates, by the keys of the list that it follows."""
        lows = {a: grid.bounds[a][0] for a in lead}
        if box.reduction == KEYS:
            self.keys[box.name] = _Seen(lead, lows, candidates)
            return best(candidates, None, length)
        assert box.keys is not None
        keys = self.keys[box.keys[0]].at(lead, grid)
        if not holds_positions(box):
            return Order(self.orders[box.keys].at(lead, grid).astype(np.int64))
        candidates[np.broadcast_to(np.isneginf(keys), candidates.shape)] = NOWHERE
        order = best(keys, candidates, length)
        self.orders[box.keys] = _Seen(lead, lows, order.index)
        return order

    def terms(self, e: Expr, box: Box, lead: tuple[str, ...], grid: Grid, read: Reader, known: Known) -> Values:
        """The values of an expression for every term: over the axes of the list, then the terms in order."""
        value = np.asarray(values_of(e, grid, read, known), dtype=float)
        inner = [grid.place[a] for a in (*lead, *box.over)]
        rest = [k for k in range(grid.rank) if k not in inner]
        value = value.transpose([*inner, *rest]).reshape([value.shape[k] for k in inner])
        shape = [grid.extent(a) for a in (*lead, *box.over)]
        return np.broadcast_to(value, shape).reshape([*shape[: len(lead)], prod(shape[len(lead) :])])

    def positions(self, box: Box, grid: Grid) -> Values:
        """The positions of the terms of a grid, counted in the order of the reduced axes."""
        flat = np.zeros([1] * len(box.over), dtype=np.int64)
        for k, a in enumerate(box.over):
            lo, hi = grid.bounds[a]
            shape = [1] * len(box.over)
            shape[k] = hi - lo
            flat = flat * int(self.sizes[a]) + np.arange(lo, hi).reshape(shape)
        return flat.reshape(-1)


def empty(box: Box) -> float:
    """What a slot of a list holds before any term."""
    return start(box, int(NOWHERE))


def finished(box: Box, values: Values) -> Values:
    """A finished list as its readers see it: positions of slots without a larger key are the lowest ones left."""
    if not holds_positions(box):
        return values
    assert box.into is not None
    place = box.axes.index(box.into)
    slots = np.moveaxis(values, place, -1)
    keys = np.where(slots >= NOWHERE, EMPTY, 0.0)
    return np.moveaxis(np.asarray(settled(keys, slots), dtype=float), -1, place)
