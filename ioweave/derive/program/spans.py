"""Spans: the interval of an array's axis that a tile needs, as a function of the tile.

A span is the hull of an affine form over a tile, widened by fixed offsets. A box is computed,
per tile, on the hull of what its readers and its store need (counting.md 17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ioweave.derive.program.lists import alongside
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.scans import coupled, lag

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Span:
    """From the least value of ``sum(c * axis)`` over the tile plus ``low`` to the greatest plus ``high``, inclusive.

    ``size`` is the length of the array's axis; what lies outside 0 .. size - 1 is cut. Where readers
    are cut themselves, or may reach nothing at all, ``parts`` says what each needs, and the span is the
    hull of those that need something: never more than the one given by ``axes``, ``low`` and ``high``.
    """

    axes: tuple[tuple[str, int], ...]
    low: int
    high: int
    size: int
    parts: tuple[Part, ...] = ()

    @property
    def bare(self) -> str | None:
        """The axis, where the span is just the tile of one axis."""
        if len(self.axes) == 1 and self.axes[0][1] == 1 and self.low == 0 and self.high == 0:
            return None if self.parts else self.axes[0][0]
        return None


@dataclass(frozen=True, slots=True)
class Part:
    """What one reader needs: ``sum(c * span)`` over its own spans, from plus ``low`` to plus ``high``, then cut."""

    terms: tuple[tuple[int, Span], ...]
    low: int
    high: int


def bare(axis: str, size: int) -> Span:
    """The tile of an axis itself."""
    return Span(((axis, 1),), 0, 0, size)


def of_form(form: Affine, inner: Mapping[str, Span], size: int, sizes: Mapping[str, int]) -> Span:
    """The span that an index form without lookups reaches while its axes run over ``inner`` spans."""
    assert not form.lookups, "a lookup reaches no interval (`ioweave.derive.program.reach`)"
    axes: dict[str, int] = {}
    low = high = fixed = form.fixed(sizes)
    for axis, c in form.axes:
        span = inner[axis]
        for a, k in span.axes:
            axes[a] = axes.get(a, 0) + c * k
        low += c * (span.low if c > 0 else span.high)
        high += c * (span.high if c > 0 else span.low)
    terms = tuple((c, inner[axis]) for axis, c in form.axes)
    parts = (Part(terms, fixed, fixed),) if any(_cut(span, sizes) for _, span in terms) else ()
    return Span(tuple(sorted((a, c) for a, c in axes.items() if c)), low, high, size, parts)


def alike(
    pieces: Sequence[tuple[T, ...]], tiled: frozenset[str], sizes: Mapping[str, int]
) -> tuple[tuple[T, ...], ...]:
    """What several reads touch, written alike where they touch all of a dimension by different whole axes."""

    def whole(place: T) -> bool:
        axis = place.bare if isinstance(place, Span) else None
        return isinstance(place, Span) and axis is not None and axis not in tiled and sizes[axis] == place.size

    if len({tuple(getattr(place, "places", ()) for place in piece) for piece in pieces}) > 1:
        return tuple(pieces)  # lookups take different positions together
    columns: list[list[T]] = [list(column) for column in zip(*pieces, strict=True)]
    for column in columns:
        every = [k for k, place in enumerate(column) if whole(place)]
        for k in every:
            column[k] = column[every[0]]
    return tuple(zip(*columns, strict=True)) if columns else tuple(pieces)


def _cut(span: Span, sizes: Mapping[str, int]) -> bool:
    """Whether some of a span lies outside its array, at some tile."""
    first = span.low + sum(c * (sizes[a] - 1) for a, c in span.axes if c < 0)
    last = span.high + sum(c * (sizes[a] - 1) for a, c in span.axes if c > 0)
    return bool(span.parts) or first < 0 or last >= span.size


def _parts(span: Span, sizes: Mapping[str, int]) -> tuple[Part, ...]:
    return span.parts or (Part(tuple((c, bare(a, sizes[a])) for a, c in span.axes), span.low, span.high),)


def hull(array: str, spans: list[Span], moving: frozenset[str], sizes: Mapping[str, int]) -> Span:
    """The hull of several spans of one axis; refused where they do not move together.

    ``moving`` are the tiled axes: forms must agree on those, so that the hull is one interval
    at every tile. Raises Refused otherwise.
    """
    first = spans[0]
    if all(s == first for s in spans):
        return first

    def split(s: Span) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
        return tuple(t for t in s.axes if t[0] in moving), tuple(t for t in s.axes if t[0] not in moving)

    keys = {split(s)[0] for s in spans}
    if len(keys) > 1:
        raise Refused(
            f"{array} is read at places that do not move together from tile to tile; "
            "what it needs is no single interval, so it cannot be computed inside this region"
        )
    rests = {split(s)[1] for s in spans}
    if len(rests) == 1:
        parts: tuple[Part, ...] = ()
        if any(_cut(s, sizes) for s in spans):
            parts = tuple(dict.fromkeys(p for s in spans for p in _parts(s, sizes)))
        return Span(first.axes, min(s.low for s in spans), max(s.high for s in spans), first.size, parts)
    whole = next((s for s in spans if s.bare is not None and s.bare not in moving), None)
    if whole is not None:  # one reader wants it whole
        return whole
    raise Refused(f"{array} is read through windows of different shapes inside one region")


def demands(
    boxes: tuple[Box, ...], stored: frozenset[str], tiled: frozenset[str], sizes: Mapping[str, int]
) -> dict[str, tuple[Span, ...]]:
    """For every box the span of each output axis, in terms of tiles of axes.

    ``sizes`` holds every component's size. Raises Refused for shapes other than an interval per axis.
    """
    made = {b.name: b for b in boxes}
    wanted: dict[str, list[list[Span]]] = {b.name: [[] for _ in b.axes] for b in boxes}
    for name in stored:
        if name in made:
            for k, a in enumerate(made[name].axes):
                wanted[name][k].append(bare(a, sizes[a]))
    result: dict[str, tuple[Span, ...]] = {}
    kept = {b.name: {b.scan.axis, *coupled(b, boxes)} for b in boxes if b.scan is not None}
    for b in reversed(boxes):
        spans = []
        for k, a in enumerate(b.axes):
            own = wanted[b.name][k] or [bare(a, sizes[a])]
            if a == b.into:
                own = [bare(a, sizes[a])]  # a list is made with all its slots, whichever are read
            elif a in kept.get(b.name, ()):
                own = _walked(b, a, own, tiled, sizes)
            span = own[0] if len(own) == 1 else hull(b.name, own, tiled, sizes)
            _check_interval(b.name, a, span, tiled, sizes)
            spans.append(span)
        result[b.name] = tuple(spans)
        inner = dict(zip(b.axes, spans, strict=True))
        inner.update({a: bare(a, sizes[a]) for a in b.over})
        for read in (*b.operands(), *alongside(b, made)):
            for name in _targets(read, made):
                for k, form in enumerate(read.index):
                    axis = made[name].axes[k]
                    if form.lookups:
                        wanted[name][k].append(_looked_up(name, axis, tiled, sizes))
                    else:
                        wanted[name][k].append(of_form(form, inner, sizes[axis], sizes))
    return result


def _walked(b: Box, axis: str, own: list[Span], tiled: frozenset[str], sizes: Mapping[str, int]) -> list[Span]:
    """What is made of a scan along an axis that its elements tie together: the step of a streamed one, or all of it.

    In a step readers may want the element before it as well, which the state holds.
    """
    assert b.scan is not None
    if axis in tiled:
        for span in own:
            moves = span.axes == ((axis, 1),) and span.low == span.high
            if not moves or span.low not in (0, lag(b)):
                raise Refused(
                    f"{b.name} is read at another element than the present and the one before, and a step of {axis} "
                    f"keeps no others; leave {axis} whole, or put {b.name} in a region of its own"
                )
    return [bare(axis, sizes[axis])]


def _looked_up(array: str, axis: str, tiled: frozenset[str], sizes: Mapping[str, int]) -> Span:
    """What a lookup needs of an array that is made in the region: all of it, at every tile."""
    if axis in tiled:
        raise Refused(
            f"{array} is looked up along {axis}, so all of it is needed at once, and {axis} is tiled; "
            f"leave {axis} whole, or put {array} in a region of its own"
        )
    return bare(axis, sizes[axis])


def _check_interval(array: str, axis: str, span: Span, tiled: frozenset[str], sizes: Mapping[str, int]) -> None:
    """Refuse what a tile of a made array cannot be: a set with gaps, or one that its own tiled axis does not move."""
    if axis in tiled and all(a != axis for a, _ in span.axes):
        raise Refused(
            f"{array} has the axis {axis}, which is tiled, but what is read of it does not move with {axis}; "
            f"leave {axis} whole, or put {array} in a region of its own"
        )
    reach = span.high - span.low + 1
    for a, c in sorted(span.axes, key=lambda t: abs(t[1])):
        if abs(c) > reach:
            raise Refused(
                f"{array} is read in strides of {abs(c)}; what a tile needs of it is no interval; "
                f"put {array} in a region of its own"
            )
        reach += abs(c) * ((1 if a in tiled else sizes[a]) - 1)


def _targets(read: Read, made: Mapping[str, Box]) -> tuple[str, ...]:
    from ioweave.diagrams.boxes import source

    name = source(read.array)
    return (name,) if name in made else ()
