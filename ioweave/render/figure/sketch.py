"""The collector of a panel's drawing: pens that follow wires, layers, and requests for labels."""

from __future__ import annotations

from dataclasses import dataclass, field

from ioweave.render.figure.primitives import Cubic, Extent, Line, Primitive
from ioweave.render.figure.theme import Theme

Key = tuple[int, int]  # strand, wire


@dataclass(slots=True)
class Pen:
    """Where a wire has been drawn to, and at which level (0 is the highest)."""

    x: float
    y: float
    level: int


@dataclass(frozen=True, slots=True)
class Label:
    """A wanted text: candidate places (x, baseline, anchor), best first."""

    markup: str
    size: float
    fill: str
    places: tuple[tuple[float, float, str], ...]
    bold: bool = False
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Zone:
    """An interval of x in which strands lie under each other: (strand, first y, last y, held)."""

    x0: float
    x1: float
    stack: tuple[tuple[int, float, float, bool], ...]


@dataclass(slots=True)
class Sketch:
    """Layers of primitives, pens by wire, and what is to be labelled."""

    theme: Theme
    plates: list[Primitive] = field(default_factory=list)
    wires: list[Line | Cubic] = field(default_factory=list)
    marks: list[Primitive] = field(default_factory=list)  # dots, glyphs, boxes
    ports: list[Primitive] = field(default_factory=list)
    texts: list[Label] = field(default_factory=list)
    blocks: list[Extent] = field(default_factory=list)  # where no label may stand
    gaps: list[Extent] = field(default_factory=list)  # where no separator may run
    zones: list[Zone] = field(default_factory=list)
    pens: dict[Key, Pen] = field(default_factory=dict)

    def start(self, key: Key, x: float, y: float, level: int) -> None:
        """Put a wire's pen down."""
        self.pens[key] = Pen(x, y, level)

    def run(self, key: Key, x: float) -> Pen:
        """Draw the wire straight on to ``x``."""
        pen = self.pens[key]
        if x > pen.x + 1e-9:
            colour, weight = self.theme.level(pen.level)
            self.wires.append(Line((pen.x, pen.y), (x, pen.y), colour, weight))
            pen.x = x
        return pen

    def bend(self, key: Key, x0: float, x1: float, y: float) -> None:
        """Straight to ``x0``, then an S-curve that reaches ``y`` at ``x1``."""
        pen = self.run(key, x0)
        if abs(pen.y - y) < 1e-9:
            return
        self.wires.append(self.curve(x0, pen.y, x1, y, pen.level))
        pen.x, pen.y = x1, y

    def curve(self, x0: float, y0: float, x1: float, y1: float, level: int) -> Cubic:
        """An S-curve with horizontal ends."""
        colour, weight = self.theme.level(level)
        reach = 0.55 * (x1 - x0)
        return Cubic(((x0, y0), (x0 + reach, y0), (x1 - reach, y1), (x1, y1)), colour, weight)

    def end(self, key: Key) -> None:
        """Lift a pen for good."""
        del self.pens[key]


def curve_width(dy: float) -> float:
    """How wide an S-curve over a height is."""
    return min(max(24.0, 0.42 * abs(dy)), 54.0)
