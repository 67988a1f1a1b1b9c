"""The diagram: named sizes, inputs and lines, in the order they were written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ioweave.diagrams import display
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Expr


@dataclass(frozen=True, slots=True)
class Position:
    """Where something was written: ``file:line:column``, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Definition:
    """``name = value``: a size, a constant, or a tie to other names (numbers and names alone).

    In ``value`` another defined name stands as `Constant`.
    """

    name: str
    value: Expr
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Input:
    """``name[dims]: dtype``; a dimension is affine in sizes. ``fact`` is e.g. ``(">", 0.0)``."""

    name: str
    dims: tuple[Affine, ...]
    dtype: str
    fact: tuple[str, float] | None = None
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Line:
    """``name[axes]: dtype = expr``; ``dtype`` is None where it was not written."""

    name: str
    axes: tuple[str, ...]
    expr: Expr
    dtype: str | None = None
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Diagram:
    """A directed acyclic graph of arrays and boxes, as lines in a valid order of evaluation.

    ``outputs`` names the lines whose values leave the diagram, the last line among them.
    """

    name: str = field(compare=False)
    definitions: tuple[Definition, ...]
    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    doc: str = field(default="", compare=False)

    _repr_svg_ = display.svg
    _repr_html_ = display.html

    def line(self, name: str) -> Line:
        """The line that makes ``name``; KeyError if there is none."""
        for line in self.lines:
            if line.name == name:
                return line
        raise KeyError(name)

    def input(self, name: str) -> Input | None:
        """The input called ``name``, or None."""
        return next((i for i in self.inputs if i.name == name), None)

    def values(self, overrides: Mapping[str, int | float] | None = None) -> dict[str, int | float]:
        """Every defined name with its number, ``overrides`` first, ties followed.

        An overridden tie is cut; a name tied to an overridden one follows it.
        Raises KeyError for an override that is not defined.
        """
        from ioweave.diagrams.sizes import resolve

        return resolve(self.definitions, overrides or {})
