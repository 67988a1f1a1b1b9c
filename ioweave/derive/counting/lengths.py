"""How many elements a span covers, for one tile or for a vector of tiles at once.

A footprint is a set of elements (counting.md 19): an index form with gaps counts what it
touches, and what lies outside the array is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ioweave.derive.program.spans import Span

Bounds = Mapping[str, tuple[Any, Any]]  # axis -> (lo, hi), half open; ints or arrays that broadcast


def interval(span: Span, bounds: Bounds) -> tuple[Any, Any]:
    """The hull of a span over bounds, cut to the array: half open."""
    if span.parts:
        return _hull(span, bounds)
    low: Any = span.low
    high: Any = span.high
    for axis, c in span.axes:
        lo, hi = bounds[axis]
        low = low + (c * lo if c > 0 else c * (hi - 1))
        high = high + (c * (hi - 1) if c > 0 else c * lo)
    low = np.maximum(low, 0)
    return low, np.maximum(np.minimum(high + 1, span.size), low)


def _hull(span: Span, bounds: Bounds) -> tuple[Any, Any]:
    """The hull of what the parts of a span need, those that need nothing left out."""
    first: Any = span.size
    after: Any = 0
    for part in span.parts:
        low: Any = part.low
        high: Any = part.high
        some: Any = True
        for c, inner in part.terms:
            lo, hi = interval(inner, bounds)
            some = some & (lo < hi)
            low = low + (c * lo if c > 0 else c * (hi - 1))
            high = high + (c * (hi - 1) if c > 0 else c * lo)
        low, high = np.maximum(low, 0), np.minimum(high + 1, span.size)
        some = some & (low < high)
        first, after = np.where(some, np.minimum(first, low), first), np.where(some, np.maximum(after, high), after)
    return np.minimum(first, after), after


def without_gaps(span: Span, bounds: Bounds) -> bool:
    """Whether the span is an interval at every tile of the bounds."""
    reach: Any = span.high - span.low + 1
    for axis, c in sorted(span.axes, key=lambda t: abs(t[1])):
        lo, hi = bounds[axis]
        n = hi - lo
        if np.any((abs(c) > reach) & (n > 1)):
            return False
        reach = reach + abs(c) * (n - 1)
    return True


def length(span: Span, bounds: Bounds) -> Any:
    """The number of elements of a span over bounds."""
    if without_gaps(span, bounds):
        lo, hi = interval(span, bounds)
        return hi - lo
    if len(span.axes) == 1 and span.low == span.high and not span.parts:
        ((axis, c),) = span.axes
        lo, hi = bounds[axis]
        if c < 0:  # reflect, so that the values ascend
            lo, hi, c, low = 1 - hi, 1 - lo, -c, span.low
        else:
            low = span.low
        first = np.maximum(lo, -(low // c))
        last = np.minimum(hi, -(-(span.size - low) // c))
        return np.maximum(last - first, 0)
    shape = np.broadcast_shapes(*(np.shape(x) for a, _ in span.axes for x in bounds[a]))
    out = np.empty(shape, dtype=np.int64)
    for at in np.ndindex(*shape):
        here = {a: (_pick(bounds[a][0], at, shape), _pick(bounds[a][1], at, shape)) for a, _ in span.axes}
        out[at] = len(_values(span, here))
    return out if shape else int(out)


def _pick(x: Any, at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.broadcast_to(x, shape)[at])


def _values(span: Span, bounds: Mapping[str, tuple[int, int]]) -> np.ndarray[Any, Any]:
    values = np.arange(span.low, span.high + 1)
    for axis, c in span.axes:
        lo, hi = bounds[axis]
        values = np.unique((values[:, None] + c * np.arange(lo, hi)[None, :]).ravel())
    first, after = interval(span, bounds)
    kept: np.ndarray[Any, Any] = values[(values >= first) & (values < after)]
    return kept


def points(piece: tuple[Span, ...], bounds: Bounds) -> Any:
    """The elements that a product of spans touches over bounds, one row each; some may stand more than once."""
    axes = sorted({a for s in piece for a, _ in s.axes})
    ranges = [np.arange(*bounds[a]) for a in axes]
    windows = [np.arange(s.low, s.high + 1) for s in piece]
    grids = np.meshgrid(*ranges, *windows, indexing="ij") if ranges or windows else []
    index = dict(zip(axes, grids, strict=False))
    columns = []
    for k, s in enumerate(piece):
        value = grids[len(axes) + k]
        for a, c in s.axes:
            value = value + c * index[a]
        columns.append(value.ravel())
    points = np.stack(columns, axis=1)
    limits = np.array([interval(s, bounds) for s in piece])
    return points[((points >= limits[:, 0]) & (points < limits[:, 1])).all(axis=1)]


def union_of_boxes(pieces: list[list[tuple[Any, Any]]], alive: list[Any] | None = None) -> Any:
    """The number of elements in a union of boxes, each a list of half-open intervals, by inclusion-exclusion.

    ``alive`` leaves pieces out where it is False. Intervals may be arrays that broadcast.
    """
    total: Any = 0
    n = len(pieces)
    for chosen in range(1, 1 << n):
        members = [k for k in range(n) if chosen >> k & 1]
        volume: Any = 1
        for d in range(len(pieces[0])):
            lo: Any = pieces[members[0]][d][0]
            hi: Any = pieces[members[0]][d][1]
            for k in members[1:]:
                lo = np.maximum(lo, pieces[k][d][0])
                hi = np.minimum(hi, pieces[k][d][1])
            volume = volume * np.maximum(hi - lo, 0)
        if alive is not None:
            for k in members:
                volume = volume * alive[k]
        total = total + (volume if len(members) % 2 else -volume)
    return total
