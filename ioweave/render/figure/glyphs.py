"""The papers' signs for operations, as primitives."""

from __future__ import annotations

from collections.abc import Sequence

from ioweave.render.figure.primitives import Circle, Cubic, Line, Polygon, Primitive, Rect
from ioweave.render.figure.theme import Theme

KAPPA = 0.5523
GATHER = 7.0  # half the height of a gather's pentagon
Interval = tuple[float, float]


def triangle(x: float, y: float, theme: Theme, half: float = 11.0) -> list[Primitive]:
    """Softmax: a hollow triangle with its apex to the left, 14 wide and ``2 * half`` high, starting at ``x``."""
    return [Polygon(((x, y), (x + 14, y - half), (x + 14, y + half)), theme.box, theme.ink, 1.3)]


def norm(x: float, y: float, theme: Theme, centred: bool) -> list[Primitive]:
    """A norm: a circle with a thin V, and a diameter if it subtracts the mean."""
    c = x + 8
    out: list[Primitive] = [Circle((c, y), 8, theme.box, theme.ink, 1.2)]
    out.append(Polygon(((c - 4.2, y - 3.4), (c + 4.2, y - 3.4), (c, y + 4.6)), "", theme.ink, 0.9))
    if centred:
        out.append(Line((c, y - 8), (c, y + 8), theme.ink, 0.9))
    return out


def mask(x: float, y: float, theme: Theme) -> list[Primitive]:
    """A mask: a square split on its diagonal, 13 wide."""
    h = 6.5
    return [
        Rect(x, y - h, 2 * h, 2 * h, theme.box, theme.ink, 1.1),
        Polygon(((x, y - h), (x, y + h), (x + 2 * h, y + h)), theme.faint),
        Rect(x, y - h, 2 * h, 2 * h, "", theme.ink, 1.1),
    ]


def node(x: float, y: float, theme: Theme) -> list[Primitive]:
    """An index map: a small pentagon, pointed to the right."""
    r = 4.4
    points = ((x - r, y - r), (x + 1, y - r), (x + r + 1, y), (x + 1, y + r), (x - r, y + r))
    return [Polygon(points, theme.box, theme.ink, 1.0)]


def gather(x: float, y: float, theme: Theme, r: float = GATHER) -> list[Primitive]:
    """A gather: a pentagon, pointed to the right, at which the wires of the positions end; from x - 7 to x + 9."""
    points = ((x - r, y - r), (x + 2, y - r), (x + r + 2, y), (x + 2, y + r), (x - r, y + r))
    return [Polygon(points, theme.box, theme.ink, 1.2)]


def loop(
    x0: float, x1: float, y: float, rows: Sequence[float], low: float, gap: Interval, colour: str, weight: float
) -> list[Primitive]:
    """A recurrence: a bracket over the rows from ``x0`` to ``x1``, along which a value returns from right to left.

    Its rule at ``y`` is broken at ``gap``; it leaves and enters each of ``rows`` at a dot, and ends at ``low``.
    """
    r = 6.0
    k = r * (1 - KAPPA)
    tip = x0 + r + 1
    return [
        Cubic(((x1, y + r), (x1, y + k), (x1 - k, y), (x1 - r, y)), colour, weight),
        Cubic(((x0 + r, y), (x0 + k, y), (x0, y + k), (x0, y + r)), colour, weight),
        Line((x1, y + r), (x1, low), colour, weight),
        Line((x0, y + r), (x0, low), colour, weight),
        Line((x0 + r, y), (gap[0], y), colour, weight),
        Line((gap[1], y), (x1 - r, y), colour, weight),
        Polygon(((tip, y), (tip + 6, y - 3.2), (tip + 4.6, y), (tip + 6, y + 3.2)), colour),
        *(dot(x, row, colour) for row in rows for x in (x0, x1)),
    ]


def dot(x: float, y: float, colour: str) -> Primitive:
    """A copy, or two wires joined."""
    return Circle((x, y), 2.4, colour)


def cups(x: float, spans: Sequence[tuple[float, float]], colour: str, weight: float) -> tuple[list[Cubic], float]:
    """Pairs of wires joined by right semicircles, inner ones first, and how far they reach.

    A tall cup is flattened; one round another keeps a distance from it.
    """
    out: list[Cubic] = []
    reach = 0.0
    k = KAPPA
    for y0, y1 in spans:
        r, m = (y1 - y0) / 2, (y0 + y1) / 2
        rx = max(min(r, 30.0), reach + 7.0 if reach else 0.0)
        out.append(Cubic(((x, y0), (x + k * rx, y0), (x + rx, m - k * r), (x + rx, m)), colour, weight))
        out.append(Cubic(((x + rx, m), (x + rx, m + k * r), (x + k * rx, y1), (x, y1)), colour, weight))
        reach = rx
    return out, reach


def arrow(x0: float, x1: float, y: float, colour: str, weight: float) -> tuple[Line, Polygon]:
    """A short arrow to the right."""
    head = Polygon(((x1, y), (x1 - 6, y - 3.2), (x1 - 4.6, y), (x1 - 6, y + 3.2)), colour)
    return Line((x0, y), (x1 - 4.6, y), colour, weight), head


def arrowhead(x: float, y: float, theme: Theme) -> Polygon:
    """One of the two arrowheads beside an elementwise function's name, 5 wide."""
    return Polygon(((x, y - 2.6), (x + 5, y), (x, y + 2.6), (x + 1.4, y)), theme.ink)


def state(x: float, y: float, theme: Theme) -> list[Primitive]:
    """What a stream keeps: a loop with an arrowhead, which breaks the wire that it stands on; 11 wide."""
    r, k, colour = 4.6, 4.6 * KAPPA, theme.stream
    arcs = (
        ((x + r, y - 1.2), (x + r, y - k), (x + k, y - r), (x, y - r)),
        ((x, y - r), (x - k, y - r), (x - r, y - k), (x - r, y)),
        ((x - r, y), (x - r, y + k), (x - k, y + r), (x, y + r)),
    )
    head = ((x + 4.4, y + r + 0.4), (x - 1.0, y + r - 3.2), (x - 1.0, y + r + 3.2))
    return [
        Circle((x, y), r + 1.2, theme.plate),
        *(Cubic(arc, colour, 1.5) for arc in arcs),
        Polygon(head, colour),
    ]


def port(x: float, y: float, filled: bool, theme: Theme) -> Rect:
    """A transfer: hollow once per group, filled in every step of a stream."""
    s = theme.port
    if filled:
        return Rect(x - s / 2, y - s / 2, s, s, theme.stream, theme.stream, 1.0)
    return Rect(x - s / 2, y - s / 2, s, s, theme.box, theme.group, 1.2)
