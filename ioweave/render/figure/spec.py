"""What a figure shows: the input of the renderer, free of the model and of any layout.

Strings called *markup* are text with ``$...$`` for mathematics (`ioweave.render.figure.typeset`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["load", "store"]
Glyph = Literal["contract", "softmax", "norm", "elementwise", "add", "max", "reduce", "scan", "box"]
Partition = Literal["group", "stream"]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array and the labels (markup) of its wires, in the order of its axes."""

    name: str
    label: str
    axes: tuple[str, ...]
    is_input: bool = False
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """An array as a column reads it: for each of its dimensions, the axes of the box in its index.

    One axis is a plain wire, several meet in a node (``y + r``), none is a fixed position.
    ``shifted`` marks dimensions whose index is not the bare axis; ``late`` an operand that meets
    the others after the operation (``... + B``). ``gathered`` are dimensions read where other operands
    say; ``feeds`` is set on those: the ``key`` of the operand read there and its dimension. ``maps``
    has the formula (markup) of dimensions that are quotients or remainders of indices.
    """

    array: str
    axes: tuple[tuple[str, ...], ...]
    shifted: tuple[int, ...] = ()
    late: bool = False
    gathered: tuple[int, ...] = ()
    maps: tuple[tuple[int, str], ...] = ()
    key: int = 0
    feeds: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """A recurrence along ``axis``, from its first element on or ``backward``.

    ``inner`` are the signs of the reductions in each of its steps.
    """

    axis: str
    backward: bool = False
    inner: str = ""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One line: what it reads, what it makes, and how its operation is drawn.

    ``result`` names the array made, ``axes`` its axes in the names of the box; ``over`` are the
    axes that the operation removes (those of ``first`` before its functions), ``works`` those that
    it works on and keeps (a softmax's). ``factor`` (markup) stands at the tip of the cup, ``before``
    and ``after`` are the names of elementwise functions applied before and after a reduction;
    ``mask`` draws the mask's square.
    ``state`` (markup) names what is kept from step to step of a stream, ``loop`` what a recurrence
    runs along.
    """

    result: str
    axes: tuple[str, ...]
    operands: tuple[OperandSpec, ...]
    title: str
    glyph: Glyph
    over: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    works: tuple[str, ...] = ()
    reduction: str = ""
    factor: str = ""
    before: str = ""
    after: str = ""
    mask: bool = False
    state: str = ""
    loop: LoopSpec | None = None


@dataclass(frozen=True, slots=True)
class PortSpec:
    """The transfers of one array across a plate's edge: one term of H.

    ``every_step`` draws them filled. ``term`` is the formula (markup), ``values`` and ``size``
    (bytes) what it comes to.
    """

    array: str
    direction: Direction
    every_step: bool
    term: str
    values: int
    size: int


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition of ``axis``: its symbol, and what the bracket says, longest version first."""

    axis: str
    kind: Partition
    symbol: str
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """A plate: consecutive columns at one level (0 is the highest)."""

    name: str
    tag: str
    level: int
    columns: tuple[int, ...]
    partitions: tuple[PartitionSpec, ...] = ()
    ports: tuple[PortSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class CellSpec:
    """A cell under the columns ``first`` to ``last``: terms of a formula (markup) over a value."""

    first: int
    last: int
    terms: tuple[str, ...]
    value: str = ""


@dataclass(frozen=True, slots=True)
class RowSpec:
    """A row of the cost table: its symbol and note, its cells, and the total with its remark."""

    symbol: str
    note: str
    cells: tuple[CellSpec, ...]
    total: str
    remark: str = ""
    accent: bool = False


@dataclass(frozen=True, slots=True)
class PanelSpec:
    """One diagram: its arrays in order (inputs first), lines, plates and costs.

    ``note`` (markup) under the title says which tiles the costs are counted for.
    """

    title: str
    arrays: tuple[ArraySpec, ...]
    columns: tuple[ColumnSpec, ...]
    regions: tuple[RegionSpec, ...]
    rows: tuple[RowSpec, ...] = ()
    note: str = ""

    def array(self, name: str) -> ArraySpec:
        """The array called ``name``; KeyError if there is none."""
        for a in self.arrays:
            if a.name == name:
                return a
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure of one panel or a pair. ``levels`` are names, highest first; ``footer`` is markup."""

    name: str
    title: str
    panels: tuple[PanelSpec, ...]
    levels: tuple[str, ...]
    footer: str = ""
    description: str = field(default="")
