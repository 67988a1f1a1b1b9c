"""Lists in the check: terms with their keys and positions, joined by sorting all of them.

The larger key comes first, of equal keys the lower position. A slot that nothing has filled has the key -inf,
a position beyond every row and the payload 0: it comes after every term. Joining sorts what two lists hold, so it is
associative and commutative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ioweave.derive.certificate.values import Arrays, Names, Space, Step, Values, flat, length, value, volume
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.lists import KEYS, POSITIONS, holds_positions, key, payload

BEYOND = float(1 << 52)  # the position of a slot that nothing has filled, while the list is being made


@dataclass(frozen=True)
class Entries:
    """Keys, positions and what is held, over the axes of a list without its slots, and then the entries."""

    keys: Values
    positions: Values
    held: Values


def lead_of(box: Box) -> tuple[str, ...]:
    """The axes of a list without that of its slots."""
    return tuple(a for a in box.axes if a != box.into)


def empty_of(box: Box) -> float:
    """What a list of one kind holds in a slot that nothing has filled."""
    if box.reduction == KEYS:
        return -np.inf
    return BEYOND if holds_positions(box) else 0.0


def terms(box: Box, arrays: Arrays, names: Names, cut: Mapping[str, Step]) -> Entries:
    """The terms of a list in a part of its axes."""
    lead = lead_of(box)
    space = Space.of((*lead, *box.over), names, cut)
    shape = (*space.shape[: len(lead)], -1)

    def rows(values: Values) -> Values:
        return np.asarray(np.broadcast_to(values, space.shape), dtype=float).reshape(shape)

    keys = rows(value(key(box), space, arrays))
    positions = np.broadcast_to(flat(box.over, space).astype(float), keys.shape)
    if box.reduction == KEYS:
        return Entries(keys, positions, keys)
    held = positions if box.reduction == POSITIONS else rows(value(payload(box), space, arrays))
    return Entries(keys, positions, held)


def slots(box: Box, values: Arrays, boxes: Mapping[str, Box]) -> Entries:
    """What lists hold, ``values`` by name, as entries of one of them."""
    held = _last(box, values[box.name])
    if box.keys is None:
        return Entries(held, np.zeros_like(held), held)
    keys, positions = (_beside(box, boxes[n], values[n]) for n in box.keys)
    return Entries(np.broadcast_to(keys, held.shape), np.broadcast_to(positions, held.shape), held)


def _last(box: Box, values: Values) -> Values:
    return np.moveaxis(values, box.axes.index(box.into or ""), -1)


def _beside(box: Box, other: Box, values: Values) -> Values:
    """Another list on the axes of this one, slots last."""
    axes, lead = lead_of(other), lead_of(box)
    rows = _last(other, values)
    order = sorted(range(len(axes)), key=lambda k: lead.index(axes[k]))
    rows = rows.transpose([*order, len(axes)])
    sizes = iter(rows.shape)
    return rows.reshape([*(next(sizes) if a in axes else 1 for a in lead), rows.shape[-1]])


def joined(box: Box, parts: Sequence[Entries], names: Names) -> Values:
    """The list of what several hold; as many empty slots as it is long stand behind them."""
    size = length(box.into or "", names)
    lead = parts[0].keys.shape[:-1]
    empty = Entries(*(np.full((*lead, size), x) for x in (-np.inf, BEYOND, empty_of(box))))
    keys, positions, held = (
        np.concatenate([getattr(p, what) for p in (*parts, empty)], axis=-1) for what in ("keys", "positions", "held")
    )
    order = np.lexsort((positions, -keys), axis=-1)[..., :size]
    return np.moveaxis(np.take_along_axis(held, order, axis=-1), -1, box.axes.index(box.into or ""))


def closed(box: Box, values: Values, names: Names) -> Values:
    """A finished list as others read it: an empty slot is at the position after the last one."""
    if not holds_positions(box):
        return values
    return np.where(values >= BEYOND, float(volume(box.over, names)), values)
