"""Boxes: one function each, what every later stage reasons about.

A box has output axes, a scalar body over reads of its operands, and at most one reduction.
Axes here are components (counting.md 5): ``d`` and ``d'`` are two axes that share a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Expr, Read, reads


@dataclass(frozen=True, slots=True)
class Recurrence:
    """How a box walks one of its axes: element by element, from ``start`` before the first.

    ``start`` is an expression without the axis. ``backward`` walks from the last element to the first.
    """

    axis: str
    start: Expr
    backward: bool = False


@dataclass(frozen=True)
class Box:
    """One function: ``name[axes] = reduction over ``over`` of ``body``, or ``body`` itself.

    ``line`` is the line that the box belongs to; ``dtype`` that of the array it makes.

    A box with a ``scan`` is made one element of the scan's axis after another. Its value at the
    element before is read as ``name~prev``, without that axis: by its own body, and by those boxes of
    its line that its body reads (`PREV`). What a body reads of its own earlier elements at other
    places is ``name~past``, with the axis (`PAST`).

    ``into`` is the axis of the list that a ``topk``, ``argtopk`` or ``pick`` makes. The body of the
    first two is the key; that of a ``pick`` is ``keyed(key, payload)``: the payload beside each of the
    largest keys. ``keys`` names the ``topk`` and the ``argtopk`` whose lists order this one; ties go
    to the lower position.

    Only in streamed plans (`ioweave.derive.streaming`): a box with ``running`` accumulates over
    a streamed axis. While the loop runs, its value so far is read as ``name~`` and the value
    before the present step as ``name~old``; after the loop as ``name``. In each step
    ``name~ = rescale * (name~old + recentre) + terms`` for a sum: ``rescale`` names the box of a
    factor that multiplies its old value, ``recentre`` that of a summand added to it first.
    """

    name: str
    axes: tuple[str, ...]
    body: Expr
    reduction: str | None
    over: tuple[str, ...]
    dtype: str
    line: str
    running: bool = False
    rescale: str | None = None
    recentre: str | None = None
    scan: Recurrence | None = None
    into: str | None = None
    keys: tuple[str, str] | None = None

    @property
    def all_axes(self) -> tuple[str, ...]:
        """Output axes, then reduced ones."""
        return (*self.axes, *self.over)

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        start = () if self.scan is None else reads(self.scan.start)
        return tuple(dict.fromkeys((*reads(self.body), *start)))

    def reads(self) -> tuple[Read, ...]:
        """The distinct reads of the body, then those of the start of a recurrence."""
        return self._reads

    @cached_property
    def _operands(self) -> tuple[Read, ...]:
        return tuple(r for r in self._reads if not r.array.endswith((PREV, PAST)))

    def operands(self) -> tuple[Read, ...]:
        """The reads of inputs and of finished or running boxes: all but those of earlier elements of a scan."""
        return self._operands


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that enters from outside: its dimensions (affine in sizes), dtype and fact."""

    name: str
    dims: tuple[Affine, ...]
    dtype: str
    fact: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A diagram opened into boxes, in order; ``base`` maps a component to the name of its size.

    ``ties`` has the names of sizes and constants that are worked out from others, with all of those.
    """

    boxes: tuple[Box, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]
    base: tuple[tuple[str, str], ...]
    ties: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def box(self, name: str) -> Box:
        """The box that makes ``name``; KeyError if there is none."""
        for b in self.boxes:
            if b.name == name:
                return b
        raise KeyError(name)


def base_name(axis: str) -> str:
    """The name whose size an axis component has: ``d'`` has the size of ``d``."""
    return axis.rstrip("'")


RUNNING, OLD = "~", "~old"
PREV, PAST = "~prev", "~past"


def running(name: str) -> str:
    """The name under which a running value is read inside its loop."""
    return name + RUNNING


def old(name: str) -> str:
    """The name under which the value before the present step is read."""
    return name + OLD


def source(array: str) -> str:
    """The box or input behind a read, running and old forms included."""
    return array.split(RUNNING, 1)[0]
