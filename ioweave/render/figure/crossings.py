"""How often wires cross: what the layout is to keep low, counted in the finished drawing."""

from __future__ import annotations

from itertools import pairwise

from ioweave.render.figure.primitives import Cubic, Group, Line, Point, Scene, flatten, walk

ODD = 15  # pieces of a curve: two mirrored curves then meet inside a piece, not at a corner
Segment = tuple[Point, Point]


def crossings(scene: Scene, panel: str) -> int:
    """The number of points at which two wires of a panel (``a``, ``b``, ...) cross; touching does not count."""
    wires: list[tuple[Segment, ...]] = []
    for group in walk(scene.items):
        if isinstance(group, Group) and group.id.startswith(f"{panel}-") and group.id.endswith("-wires"):
            for item in group.items:
                if isinstance(item, Line):
                    wires.append(((item.start, item.end),))
                elif isinstance(item, Cubic):
                    wires.append(tuple(pairwise(flatten(item, ODD))))
    count = 0
    for i, a in enumerate(wires):
        for b in wires[i + 1 :]:
            count += sum(_cross(s, t) for s in a for t in b)
    return count


def _cross(s: Segment, t: Segment) -> bool:
    (ax, ay), (bx, by) = s
    (cx, cy), (dx, dy) = t
    if max(ax, bx) < min(cx, dx) or max(cx, dx) < min(ax, bx):
        return False

    def side(px: float, py: float, qx: float, qy: float, rx: float, ry: float) -> float:
        return (qx - px) * (ry - py) - (qy - py) * (rx - px)

    least = 1e-6
    one, two = side(ax, ay, bx, by, cx, cy), side(ax, ay, bx, by, dx, dy)
    three, four = side(cx, cy, dx, dy, ax, ay), side(cx, cy, dx, dy, bx, by)
    return min(abs(one), abs(two), abs(three), abs(four)) > least and one * two < 0 and three * four < 0
