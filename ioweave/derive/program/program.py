"""The program: the expanded form of a region, made in one place.

Columns of head, loads, boxes, merge and tail with every variable, its extent, dtype and life.
Memory, FLOPs, execution, pseudocode and emitted programs all read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ioweave.derive.program.reach import Place
from ioweave.derive.program.slots import Slot
from ioweave.derive.program.spans import Span
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.scans import Walk

Role = Literal["slab", "state", "old", "value"]


@dataclass(frozen=True, slots=True)
class Variable:
    """What is allocated: a loaded slab, a running state, its old value, or a box's result.

    ``pieces`` are products of spans and reaches, one per read for a slab (its extent is their union), one
    for anything else. An axis in ``entered`` is at its step, a grouped one at its tile, any
    other whole.
    """

    name: str
    array: str
    role: Role
    dtype: str
    pieces: tuple[tuple[Place, ...], ...]
    entered: frozenset[str]


@dataclass(frozen=True, slots=True)
class Load:
    """One load of an array at a depth of the loops: its reads there, and the slab it fills.

    ``key`` tells the loads of one array apart (counting.md 18, 19): the slot over the loops
    down to its depth. ``reads`` pairs the reading box with the read, ``pieces`` holds the spans of each.
    It is counted under ``label``: the array, or ``state(LINE)`` for partial states.
    """

    array: str
    variable: str
    depth: int
    key: Slot
    reads: tuple[tuple[str, Read], ...]
    pieces: tuple[tuple[Place, ...], ...]
    label: str


@dataclass(frozen=True, slots=True)
class Column:
    """One moment: a set of loads, a box that runs, or stores; with the variables live at it.

    ``cost`` is the box as its arithmetic is counted (`ioweave.derive.program.free`).
    ``box`` at ``slot`` writes ``variable``; ``sources`` maps each read of its body, and that
    of its rescaling factor, to the variable read. ``taken`` is the variable whose bytes the result takes over, if any.
    ``walk`` tells how a column goes along a scan: columns of one scan are made together, element by element.
    """

    kind: Literal["load", "run", "store"]
    title: str
    live: tuple[str, ...] = ()
    loads: tuple[Load, ...] = ()
    box: Box | None = None
    slot: Slot = ()
    variable: str | None = None
    spans: tuple[Span, ...] = ()
    sources: tuple[tuple[Read, str], ...] = ()
    taken: str | None = None
    stores: tuple[str, ...] = ()
    cost: Box | None = None
    walk: Walk | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """One pass over a streamed axis; ``starts`` are the states set to their identities before it.

    ``backward`` loops run from the last step to the first.
    """

    position: int
    axis: str
    time: int
    starts: tuple[str, ...]
    body: tuple[Column | Loop, ...]
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """An array stored once per instance, or the state of a split reduction (``state(LINE)``)."""

    array: str
    variable: str
    label: str
    state: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A region's program. ``merge`` is the program that joins the states of a split reduction.

    ``grouped`` and ``loops`` are the tiled axes; ``split`` the grouped axes that are reduced in
    more than one tile; ``boxes`` the boxes after streaming, with their ``slots``. ``free`` names the
    arrays that positions alone decide: they take no memory, and partial ones neither leave (``known``)
    nor are loaded by a merge (``given``). ``lengths`` are the axes of lists that streaming made, with their slots.
    """

    name: str
    grouped: tuple[str, ...]
    loops: tuple[str, ...]
    split: tuple[str, ...]
    boxes: tuple[Box, ...]
    slots: tuple[tuple[str, tuple[Slot, ...]], ...]
    variables: tuple[Variable, ...]
    body: tuple[Column | Loop, ...]
    stores: tuple[Store, ...]
    passes: int
    merge: Program | None = None
    free: frozenset[str] = frozenset()
    known: tuple[Store, ...] = ()
    given: tuple[Load, ...] = ()
    lengths: tuple[tuple[str, int], ...] = ()

    @property
    def dtypes(self) -> frozenset[str]:
        """The element types of what takes memory."""
        return frozenset(v.dtype for v in self.variables if v.array not in self.free)

    def variable(self, name: str) -> Variable:
        """The variable of that name."""
        return next(v for v in self.variables if v.name == name)

    def columns(self) -> Iterator[tuple[Column, tuple[Loop, ...]]]:
        """Every column with the loops around it, outermost first, in order of time."""

        def visit(body: tuple[Column | Loop, ...], path: tuple[Loop, ...]) -> Iterator[tuple[Column, tuple[Loop, ...]]]:
            for node in body:
                if isinstance(node, Loop):
                    yield from visit(node.body, (*path, node))
                else:
                    yield node, path

        yield from visit(self.body, ())

    def loads(self) -> Iterator[Load]:
        """Every load, in order of time."""
        for column, _ in self.columns():
            yield from column.loads
