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
        at = self.bounds(entered)
        return self.hull(span, at) if span.parts else self.cut(span, at)

    def hull(self, span: Span, at: Mapping[str, Interval]) -> Interval:
        """The hull of what each reader needs, where that is something."""
        found: list[Interval] = []
        for part in span.parts:
            inner = [(c, self.hull(s, at) if s.parts else self.cut(s, at)) for c, s in part.terms]
            if any(lo >= hi for _, (lo, hi) in inner):
                continue
            low = part.low + sum(min(c * lo, c * (hi - 1)) for c, (lo, hi) in inner)
            high = part.high + sum(max(c * lo, c * (hi - 1)) for c, (lo, hi) in inner)
            if max(low, 0) <= min(high, span.size - 1):
                found.append((max(low, 0), min(high, span.size - 1) + 1))
        return (min(lo for lo, _ in found), max(hi for _, hi in found)) if found else (0, 0)

    def cut(self, span: Span, at: Mapping[str, Interval]) -> Interval:
        """The interval of a span of one form, cut to its array."""
        low, high = span.low, span.high
        for axis, c in span.axes:
            first, last = at[axis][0], at[axis][1] - 1
            low += min(c * first, c * last)
            high += max(c * first, c * last)
        return max(low, 0), max(min(high + 1, span.size), max(low, 0))

    def grid(self, box: Box, spans: Sequence[Span], entered: frozenset[str]) -> Grid:
        """The indices that a box works over: its own axes by their spans, reduced ones by their tile."""
        axes = {a: self.span(s, entered) for a, s in zip(box.axes, spans, strict=True)}
        at = self.bounds(entered)
        axes.update({a: at[a] for a in box.over})
        return Grid.over(axes, self.names)

    def lows(self, variable: Variable) -> tuple[Interval, ...]:
        """The intervals that a variable of one piece covers, a result or a state: all spans."""
        return tuple(self.span(s, variable.entered) for s in variable.pieces[0] if isinstance(s, Span))


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
