"""Where a column stands: the interval of every axis in one instance and one trip of the loops around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ioweave.derive.execution.grid import Grid
from ioweave.derive.program.program import Variable
from ioweave.derive.program.spans import Span
from ioweave.diagrams.boxes import Box

Interval = tuple[int, int]  # half open


def steps(lo: int, hi: int, step: int) -> list[Interval]:
    """``lo .. hi`` in steps, the last one ragged."""
    return [(a, min(a + step, hi)) for a in range(lo, hi, step)]


@dataclass(frozen=True)
class Frame:
    """``tile`` is every axis's interval in the instance; ``inside`` that of the loops run at this point.

    ``part`` numbers the instance among those that share a split reduction.
    """

    tile: Mapping[str, Interval]
    inside: Mapping[str, Interval]
    names: Mapping[str, int | float]
    part: int = 0

    def within(self, axis: str, interval: Interval) -> Frame:
        """The frame inside one trip of a loop."""
        return replace(self, inside={**self.inside, axis: interval})

    def bounds(self, entered: frozenset[str]) -> dict[str, Interval]:
        """The interval of every axis where only these loops are entered."""
        return {**self.tile, **{a: i for a, i in self.inside.items() if a in entered}}

    def span(self, span: Span, entered: frozenset[str]) -> Interval:
        """The interval that a span covers here, cut to its array."""
        low, high = span.low, span.high
        at = self.bounds(entered)
        for axis, c in span.axes:
            first, last = at[axis][0], at[axis][1] - 1
            low += min(c * first, c * last)
            high += max(c * first, c * last)
        low = max(low, span.least)
        return low, max(min(high, span.last) + 1, low)

    def grid(self, box: Box, spans: Sequence[Span], entered: frozenset[str]) -> Grid:
        """The indices that a box works over: its own axes by their spans, reduced ones by their tile."""
        axes = {a: self.span(s, entered) for a, s in zip(box.axes, spans, strict=True)}
        at = self.bounds(entered)
        axes.update({a: at[a] for a in box.over})
        return Grid.over(axes, self.names)

    def lows(self, variable: Variable) -> tuple[Interval, ...]:
        """The intervals that a variable of one piece covers."""
        return tuple(self.span(s, variable.entered) for s in variable.pieces[0])


def frames(
    grouped: Sequence[str],
    split: Sequence[str],
    group: Mapping[str, int],
    sizes: Mapping[str, int],
    names: Mapping[str, int | float],
) -> Iterator[Frame]:
    """One frame per instance: every tuple of group tiles."""
    cuts = {a: steps(0, sizes[a], min(group[a], sizes[a])) for a in grouped}
    for tiles in product(*(range(len(cuts[a])) for a in grouped)):
        at = dict(zip(grouped, tiles, strict=True))
        part = 0
        for a in split:
            part = part * len(cuts[a]) + at[a]
        tile = {a: (0, n) for a, n in sizes.items()} | {a: cuts[a][k] for a, k in at.items()}
        yield Frame(tile, {}, names, part)
