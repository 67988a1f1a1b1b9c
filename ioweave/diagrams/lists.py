"""Lists: the largest keys of a row, with their positions and payloads, as values on arrays.

The list is the last dimension of an array, in descending order of keys; of equal keys the lower position
comes first. A slot that nothing has filled has the key -inf, a position beyond every row, and the payload 0:
it comes after every term. Joining two lists is associative and commutative: the order of keys and positions is total.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Apply, Expr
from ioweave.diagrams.operators import REDUCTIONS

Array = NDArray[Any]

KEYS, POSITIONS, PAYLOAD = "topk", "argtopk", "pick"
LISTS = frozenset({KEYS, POSITIONS, PAYLOAD})
KEYED = "keyed"  # keyed(key, payload): a term of a payload, beside its key
NOWHERE = float(2**31 - 1)  # a position beyond every row
EMPTY = -np.inf  # the key of a slot that nothing has filled, and of a term that leaves a list as it is


def is_list(box: Box) -> bool:
    """Whether a box makes a list."""
    return box.reduction in LISTS


def follows(box: Box) -> bool:
    """Whether a box orders its list by the keys of another: positions and payloads ride along."""
    return box.keys is not None and box.reduction in (POSITIONS, PAYLOAD)


def leaders(box: Box) -> tuple[str, ...]:
    """The lists that order this one: its keys, and for a payload also their positions."""
    if box.keys is None or not follows(box):
        return ()
    return tuple(dict.fromkeys(n for n in box.keys[: 1 if box.reduction == POSITIONS else 2] if n != box.name))


def check_whole(boxes: Iterable[Box], tiled: Collection[str]) -> None:
    """Refuse tiles of the axis of a list that the region makes: which slot a term takes depends on all of them.

    Raises Refused with the axis and what would do instead.
    """
    for b in boxes:
        if b.into is not None and b.into in tiled:
            raise Refused(
                f"{b.into} is the axis of the list {b.name}, which is made here as a whole; leave {b.into} whole, "
                f"or tile it in a region that reads {b.name}"
            )


def slots(into: str) -> str:
    """The axis over which a merge walks the slots of partial lists: of the size of ``into``, and another axis."""
    return f"slot({into})"


def key(box: Box) -> Expr:
    """The expression of a list's keys, one for each term."""
    body = box.body
    return body.args[0] if isinstance(body, Apply) and body.op == KEYED else body


def payload(box: Box) -> Expr:
    """What a ``pick`` takes along with a key."""
    assert isinstance(box.body, Apply)
    assert box.body.op == KEYED
    return box.body.args[1]


def holds_positions(box: Box) -> bool:
    """Whether the list of a box is one of positions: an ``argtopk``, or the merge of partial ones."""
    return box.reduction == POSITIONS or (box.reduction == PAYLOAD and box.keys is not None and box.keys[1] == box.name)


def neutral_term(box: Box) -> float:
    """The term that leaves a reduction as it is: a list's has the key -inf."""
    return EMPTY if is_list(box) else REDUCTIONS[box.reduction or "sum"].identity


def of_nothing(box: Box) -> float | None:
    """What a reduction gives that receives neutral terms alone; None where that is no one number."""
    return idle_value(box) if is_list(box) else REDUCTIONS[box.reduction or "sum"].identity


def idle_value(box: Box) -> float | None:
    """The result of a list whose every key is -inf, where it is one number: positions are not."""
    if holds_positions(box):
        return None
    return EMPTY if box.reduction == KEYS else 0.0


def start(box: Box, size: int) -> float:
    """What a slot holds that nothing has filled; ``size`` is the number of terms of the whole row."""
    if box.reduction == KEYS:
        return EMPTY
    return float(size) if holds_positions(box) else 0.0


@dataclass(frozen=True)
class Order:
    """Which of the candidates fill a list: ``index`` into their last dimension, best first."""

    index: Array

    def take(self, candidates: Array) -> Array:
        """The chosen ones of an array with the candidates last; other dimensions broadcast."""
        lead = np.broadcast_shapes(self.index.shape[:-1], candidates.shape[:-1])
        index = np.broadcast_to(self.index, (*lead, self.index.shape[-1]))
        return np.take_along_axis(np.broadcast_to(candidates, (*lead, candidates.shape[-1])), index, axis=-1)


def best(keys: Array, positions: Array | None, length: int) -> Order:
    """The order that takes the ``length`` largest of the candidates along the last dimension.

    Equal keys are ordered by ``positions`` (the order at hand without them). There must be at least
    ``length`` candidates: `padded` adds slots that nothing fills.
    """
    keys = np.asarray(keys, dtype=float)
    if positions is None:
        index = np.argsort(-keys, axis=-1, kind="stable")
    else:
        lead = np.broadcast_shapes(keys.shape, np.shape(positions))
        index = np.lexsort((np.broadcast_to(positions, lead), np.broadcast_to(-keys, lead)), axis=-1)
    return Order(index[..., :length])


def padded(candidates: Array, length: int, value: float) -> Array:
    """The candidates with as many further ones of ``value`` as a list of ``length`` slots could want."""
    pad = np.full((*candidates.shape[:-1], length), value)
    return np.concatenate([candidates, pad], axis=-1)


def top(keys: Array, length: int) -> tuple[Array, Array]:
    """The ``length`` largest keys along the last dimension, and their places there.

    A row that is shorter leaves slots of -inf, at the place after its last.
    """
    n = keys.shape[-1]
    places = padded(np.broadcast_to(np.arange(n), keys.shape), length, n)
    wide = padded(np.asarray(keys, dtype=float), length, EMPTY)
    order = best(wide, places, length)
    return order.take(wide), order.take(places).astype(np.int64)


def joined(
    first: tuple[Array, Array, Sequence[Array]], second: tuple[Array, Array, Sequence[Array]], length: int
) -> tuple[Array, Array, tuple[Array, ...]]:
    """Two lists (keys, positions, payloads), slots last, as one of ``length`` slots.

    The keys and positions of both together have at least ``length`` slots. A payload may have
    dimensions before the slots that broadcast with those of the keys.
    """
    keys = _beside(first[0], second[0])
    positions = _beside(first[1], second[1])
    order = best(keys, positions, length)
    rows = tuple(order.take(_beside(a, b)) for a, b in zip(first[2], second[2], strict=True))
    return order.take(keys), order.take(positions), rows


def _beside(a: Array, b: Array) -> Array:
    """Two arrays one after the other along the last dimension, the others broadcast."""
    lead = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    return np.concatenate([np.broadcast_to(x, (*lead, x.shape[-1])) for x in (a, b)], axis=-1)


def settled(keys: Array, positions: Array) -> Array:
    """The positions of a finished list, those of its -inf keys included.

    A list that has a key of -inf holds every larger key of its row, so its other slots belong to the
    lowest positions that are not among those: what a sort of the whole row would give, whichever terms
    were left out because their keys are -inf.
    """
    shape = np.broadcast_shapes(keys.shape, positions.shape)
    keys, result = np.broadcast_to(keys, shape), np.array(np.broadcast_to(positions, shape), dtype=np.int64)
    rows, empty = result.reshape(-1, shape[-1]), np.isneginf(keys).reshape(-1, shape[-1])
    for at in np.flatnonzero(empty.any(axis=-1)):
        row, free = rows[at], empty[at]
        taken = set(row[~free].tolist())
        left = (p for p in range(len(row) + len(taken)) if p not in taken)
        row[free] = [next(left) for _ in range(int(free.sum()))]
    return result
