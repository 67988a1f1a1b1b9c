"""What one tile of a scan wants of the tile before it: wants handed from tile to tile against the loop.

A scan's tile is wanted by its readers, and by the next tile wherever that one depends on its previous value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ioweave.derive.counting.entries import Entries
from ioweave.diagrams.errors import Refused


def handed_back(entries: Entries, axis: str, wanted: Any, behind: Any, depends: Any, backward: bool) -> Any:
    """The tiles that are wanted in the end.

    ``wanted`` are those with readers of their own, ``behind`` those with readers of the tile before them, and
    ``depends`` those that need the tile before them where they are wanted. Raises Refused where a run of equal
    tiles is wanted in part.
    """
    if axis not in entries.axes:
        return wanted | behind
    wanted, behind, depends = (np.broadcast_to(x, (entries.length,)) for x in (wanted, behind, depends))
    many = np.broadcast_to(entries.weight, (entries.length,)) > 1
    if np.any(behind & many & ~wanted):
        raise _parted(axis)
    order, last = _against(entries, axis, backward)
    w, b, d = wanted[order], behind[order], depends[order] & ~last
    w[1:] |= b[:-1] & ~last[:-1]
    place = np.arange(entries.length)
    begun = np.maximum.accumulate(np.where(w, place, -1))  # the last tile wanted for itself, up to here
    ended = np.maximum.accumulate(np.where(d, -1, place))  # the last that hands nothing on
    w[1:] |= begun[1:] > ended[:-1]
    result = np.empty(entries.length, dtype=bool)
    result[order] = w
    if np.any(result & ~wanted & many & ~depends):
        raise _parted(axis)
    return result


def _parted(axis: str) -> Refused:
    return Refused(
        f"of many equal tiles of {axis} some are wanted by a scan and some are not; use larger tiles or smaller sizes"
    )


def _against(entries: Entries, axis: str, backward: bool) -> tuple[Any, Any]:
    """The entries in the order that wants are handed on, row by row, and which of these end their row."""
    keys, _ = entries.keys([a for a in entries.axes if a != axis])
    cell = entries.columns[axis].cell
    order = np.lexsort((cell if backward else -cell, keys))
    last = np.ones(entries.length, dtype=bool)
    last[:-1] = keys[order][1:] != keys[order][:-1]
    return order, last


def first_tiles(entries: Entries, axis: str, backward: bool) -> Any:
    """The entries that come first along the axis; all of them where it is not among theirs."""
    c = entries.columns.get(axis)
    if c is None:
        return np.ones(entries.length, dtype=bool)
    return c.hi == entries.tiles.sizes[axis] if backward else c.lo == 0


def several(entries: Entries, axis: str) -> Any:
    """The entries whose tile has more than one element of the axis."""
    c = entries.columns.get(axis)
    if c is None:
        return np.full(entries.length, entries.tiles.stream.get(axis, entries.tiles.sizes[axis]) > 1)
    return c.hi - c.lo > 1
