"""What every name of a text stands for: definitions, inputs, lines and axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ioweave.diagrams.diagram import Position
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.syntax import Assign, Call, Declare, Name, Node, Out, Subscript, Text, nodes
from ioweave.diagrams.operators import COMPOSITES, REDUCE_NAMES, SCAN

BRACKETED = REDUCE_NAMES | COMPOSITES | {SCAN}  # operators that name axes in a bracket
RESERVED = frozenset({"inf"})


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing with a name: ``kind`` is ``definition``, ``input`` or ``line``; ``order`` its place in the text."""

    name: str
    kind: str
    order: int
    statement: Assign | Declare

    @property
    def position(self) -> Position:
        """Where it was written."""
        return self.statement.position

    @property
    def axes(self) -> tuple[Node, ...]:
        """The bracket as written."""
        return (self.statement.dims if isinstance(self.statement, Declare) else self.statement.axes) or ()


@dataclass(frozen=True, slots=True)
class Names:
    """All entities of a text by name, and where every axis was first used.

    ``bound`` are axes of left sides and of reductions' and composites' brackets, ``dims`` names
    that stand alone as a dimension of an input.
    """

    entities: Mapping[str, Entity]
    bound: Mapping[str, Position]
    dims: Mapping[str, Position]
    outs: tuple[Out, ...]

    def of(self, kind: str) -> tuple[Entity, ...]:
        """The entities of one kind, in order."""
        return tuple(e for e in self.entities.values() if e.kind == kind)

    def array(self, name: str) -> Entity | None:
        """The input or line of that name."""
        e = self.entities.get(name)
        return e if e is not None and e.kind != "definition" else None

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of inputs and lines."""
        return tuple(n for n, e in self.entities.items() if e.kind != "definition")

    @property
    def definitions(self) -> tuple[str, ...]:
        """Names of sizes and constants."""
        return tuple(n for n, e in self.entities.items() if e.kind == "definition")

    def is_axis(self, name: str) -> bool:
        """Whether the name is an axis somewhere."""
        return name in self.bound or name in self.dims


def collect(text: Text) -> Names:
    """Sort the statements of a text. Raises `WeaveError` for a name that is made twice."""
    flat = text.flat()
    scalars = _single_values(flat)
    entities: dict[str, Entity] = {}
    bound: dict[str, Position] = {}
    dims: dict[str, Position] = {}
    for order, s in enumerate(flat):
        if isinstance(s, Out):
            continue
        if s.name in RESERVED:
            raise WeaveError(f"`{s.name}` is a number of the notation; choose another name", s.position)
        if s.name in entities:
            first = entities[s.name]
            what = {"definition": "as a size or constant", "input": "as an input"}.get(first.kind, "as a line")
            raise WeaveError(
                f"`{s.name}` is already defined {what} on line {first.position.line}; choose another name", s.position
            )
        if isinstance(s, Declare):
            kind = "input"
        elif s.axes is None and s.dtype is None and s.name not in scalars:
            kind = "definition"
        else:
            kind = "line"
        if kind == "definition" and "." in s.name:
            raise WeaveError(f"a size or constant has a plain name; write `{s.name.replace('.', '_')}`", s.position)
        entities[s.name] = Entity(s.name, kind, order, s)
        if isinstance(s, Declare):
            for n in s.dims:
                if isinstance(n, Name):
                    dims.setdefault(n.name, n.position)
            continue
        for n in s.axes or ():
            if isinstance(n, Name):
                bound.setdefault(n.name, n.position)
        for node in nodes(s.value):
            if isinstance(node, Call) and node.axes and node.function in BRACKETED:
                for a in node.axes:
                    if isinstance(a, Name):
                        bound.setdefault(a.name, a.position)
    return Names(entities, bound, dims, tuple(s for s in flat if isinstance(s, Out)))


def _single_values(flat: tuple[Assign | Declare | Out, ...]) -> frozenset[str]:
    """Plain names whose right side reads an array or reduces: single values, not constants (counting.md 7)."""
    arrays = {
        s.name for s in flat if isinstance(s, Declare) or (isinstance(s, Assign) and (s.axes is not None or s.dtype))
    }
    plain = [s for s in flat if isinstance(s, Assign) and s.axes is None and s.dtype is None]
    found: set[str] = set()
    while True:
        more = {s.name for s in plain if s.name not in found and _reads(s.value, arrays | found)}
        if not more:
            return frozenset(found)
        found |= more


def _reads(value: Node, arrays: set[str]) -> bool:
    for node in nodes(value):
        if isinstance(node, Subscript) or (isinstance(node, Call) and node.axes is not None):
            return True
        if isinstance(node, Name) and node.name in arrays:
            return True
    return False


def mentions(value: Node) -> frozenset[str]:
    """Every name that stands in an expression: arrays, axes and constants."""
    return frozenset(
        n.name if isinstance(n, Name) else n.array for n in nodes(value) if isinstance(n, Name | Subscript)
    )
