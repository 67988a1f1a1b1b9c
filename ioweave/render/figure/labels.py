"""Placing labels last, over the whole panel: the first candidate that meets nothing is taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ioweave.render.figure.primitives import (
    Circle,
    Cubic,
    Extent,
    Group,
    Line,
    Polygon,
    Primitive,
    Rect,
    Text,
    flatten,
    walk,
)
from ioweave.render.figure.sketch import Label
from ioweave.render.figure.typeset import typeset

CLEAR = 0.7  # least distance of a label from a stroke


def text_extent(t: Text) -> Extent:
    """The box of a text's ink."""
    s = typeset(t.markup, t.bold)
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[t.anchor] * s.width
    x0, y0, x1, y1 = s.ink
    return (
        t.x + (x0 - shift) * t.size,
        t.y - y1 * t.size,
        t.x + (x1 - shift) * t.size,
        t.y - y0 * t.size,
    )


def overlap(a: Extent, b: Extent) -> bool:
    """Whether two boxes share area."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def strokes(items: Iterable[Primitive]) -> list[Extent]:
    """Small boxes that together cover the ink of strokes and shapes (texts apart)."""
    out: list[Extent] = []
    for item in items:
        match item:
            case Line((x0, y0), (x1, y1), _, width):
                h = width / 2
                out.append((min(x0, x1) - h, min(y0, y1) - h, max(x0, x1) + h, max(y0, y1) + h))
            case Cubic(_, _, width):
                points, h = flatten(item, 24), width / 2
                out.extend(
                    (min(a, c) - h, min(b, d) - h, max(a, c) + h, max(b, d) + h) for (a, b), (c, d) in pairwise(points)
                )
            case Polygon(points):
                xs, ys = [p[0] for p in points], [p[1] for p in points]
                out.append((min(xs), min(ys), max(xs), max(ys)))
            case Rect(x, y, width, height):
                out.append((x, y, x + width, y + height))
            case Circle((x, y), r):
                out.append((x - r, y - r, x + r, y + r))
            case Group(_, inner):
                out.extend(strokes(inner))
            case Text():
                pass
    return out


def place(
    labels: Sequence[Label], obstacles: Sequence[Extent], fixed: Sequence[Extent]
) -> tuple[list[Text], list[str]]:
    """Texts for the labels, and those that found no free place.

    ``obstacles`` are strokes that labels keep clear of; ``fixed`` are boxes (of signs) with names
    inside, which only labels with several candidates avoid. A label that finds no place is left
    out, and reported if it was needed.
    """
    texts: list[Text] = []
    taken: list[Extent] = []
    dropped: list[str] = []
    single = [lab for lab in labels if lab.needed and len(lab.places) == 1]
    several = [lab for lab in labels if lab.needed and len(lab.places) > 1]
    optional = [lab for lab in labels if not lab.needed]
    for lab in (*single, *several, *optional):
        candidates = [Text(lab.markup, x, y, lab.size, lab.fill, anchor, lab.bold) for x, y, anchor in lab.places]
        chosen: Text | None = None
        for text in candidates:
            box = _grow(text_extent(text), CLEAR)
            if any(overlap(box, o) for o in taken):
                continue
            if lab.needed and len(lab.places) == 1:
                chosen = text
                break
            if not any(overlap(box, o) for o in (*obstacles, *fixed)):
                chosen = text
                break
        if chosen is None:
            if lab.needed:
                dropped.append(lab.markup)
            continue
        texts.append(chosen)
        taken.append(_grow(text_extent(chosen), CLEAR))
    return texts, dropped


def _grow(box: Extent, by: float) -> Extent:
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by


def bounds(items: tuple[Primitive, ...]) -> Extent:
    """The box of everything drawn."""
    boxes = strokes(items) + [text_extent(t) for t in walk(items) if isinstance(t, Text)]
    return (
        min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)
    )  # fmt: skip
