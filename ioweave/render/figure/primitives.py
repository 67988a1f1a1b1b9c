"""The seven primitives that every writer must know, and the scene that holds them.

Lengths are in units of 1/96 inch (CSS pixels), x to the right and y downwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

Point = tuple[float, float]
Extent = tuple[float, float, float, float]  # x0, y0, x1, y1


@dataclass(frozen=True, slots=True)
class Line:
    """A straight stroke; ``dash`` is (on, off), empty for a solid one with round caps."""

    start: Point
    end: Point
    stroke: str
    width: float
    dash: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Cubic:
    """One cubic Bezier stroke through four control points, with round caps."""

    points: tuple[Point, Point, Point, Point]
    stroke: str
    width: float


@dataclass(frozen=True, slots=True)
class Polygon:
    """A closed polygon; ``fill`` or ``stroke`` may be empty for none."""

    points: tuple[Point, ...]
    fill: str
    stroke: str = ""
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Rect:
    """An axis-parallel rectangle with corner radius ``radius``."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    stroke_width: float = 0.0
    radius: float = 0.0


@dataclass(frozen=True, slots=True)
class Circle:
    """A circle."""

    center: Point
    radius: float
    fill: str
    stroke: str = ""
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Text:
    """One line of markup (`ioweave.render.figure.typeset`) with its baseline at ``y``.

    ``anchor`` is where ``x`` lies in the text: start, middle or end.
    """

    markup: str
    x: float
    y: float
    size: float
    fill: str
    anchor: str = "start"
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Items under one id; ``title`` says what they are, for a reader who cannot see them."""

    id: str
    items: tuple[Primitive, ...]
    title: str = ""


Primitive = Line | Cubic | Polygon | Rect | Circle | Text | Group


@dataclass(frozen=True, slots=True)
class Scene:
    """A finished drawing. ``dropped`` lists the labels for which no free place was found."""

    width: float
    height: float
    items: tuple[Primitive, ...]
    title: str
    description: str
    dropped: tuple[str, ...] = field(default=())


def walk(items: tuple[Primitive, ...]) -> Iterator[Primitive]:
    """Every primitive in drawing order, groups before what they hold."""
    for item in items:
        yield item
        if isinstance(item, Group):
            yield from walk(item.items)


def flatten(curve: Cubic, pieces: int = 16) -> tuple[Point, ...]:
    """Points on a curve, ends included, for tests of overlap."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = curve.points
    out: list[Point] = []
    for k in range(pieces + 1):
        t = k / pieces
        u = 1 - t
        a, b, c, d = u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t
        out.append((a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3))
    return tuple(out)
