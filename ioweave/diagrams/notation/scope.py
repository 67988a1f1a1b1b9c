"""What is known at one place of an expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Position
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Expr, free_axes
from ioweave.diagrams.notation.names import Entity, Names, mentions
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.diagrams.notation.syntax import Assign, Declare, Name
from ioweave.diagrams.sizes import Value

Condition = tuple[Expr, bool]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Walk:
    """The scan whose body is being read: its axis and direction; ``hidden`` where another axis has its name."""

    axis: str
    backward: bool
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """What is known of the arrays so far.

    ``dims`` are their dimensions, ``kinds`` what numbers they hold (``float``, ``int`` or ``bool``),
    ``spans`` the least and the greatest value of those whose values are positions.
    """

    dims: dict[str, tuple[Affine, ...]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """One line being read: the axes bound here, and the predicates known to hold here.

    ``made`` tells of the arrays before it; ``walk`` is the scan around this place. A condition
    ``(e, True)`` says that ``e`` holds, ``(e, False)`` that it does not.
    """

    names: Names
    values: Mapping[str, Value]
    made: Made
    line: Entity
    bound: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    walk: Walk | None = None

    @property
    def dims(self) -> Mapping[str, tuple[Affine, ...]]:
        """The dimensions of each array that was made before."""
        return self.made.dims

    def bind(self, axes: tuple[str, ...]) -> Scope:
        """The scope inside a reduction; what was known of a shadowed axis is forgotten."""
        kept = tuple(c for c in self.conditions if not set(free_axes(c[0])) & set(axes))
        walk = self.walk
        if walk is not None and walk.axis in axes:
            walk = replace(walk, hidden=True)
        return replace(self, bound=tuple(dict.fromkeys((*self.bound, *axes))), conditions=kept, walk=walk)

    def given(self, condition: Expr, holds: bool) -> Scope:
        """The scope where a predicate holds, or does not."""
        return replace(self, conditions=(*self.conditions, (condition, holds)))

    def array(self, name: str, position: Position) -> tuple[Affine, ...]:
        """The dimensions of an array that may be read here.

        Raises `WeaveError` for an unknown one, one made later, or one made from this very line.
        """
        entity = self.names.array(name)
        if entity is None:
            if name in self.names.definitions:
                raise WeaveError(f"`{name}` is a number, not an array; write `{name}` without a bracket", position)
            raise WeaveError(
                f"unknown array `{name}`{nearest(name, self.names.arrays)}; declare it, `{name}[...]: fp16`, "
                f"or read one of {listed(self.names.arrays)}",
                position,
            )
        if name == self.line.name and self.walk is not None:
            return tuple(Affine((), ((n.name, 1),), 0) for n in entity.axes if isinstance(n, Name))
        if entity.order >= self.line.order:
            raise WeaveError(self._too_early(entity), position)
        return self.dims[name]

    def _too_early(self, entity: Entity) -> str:
        name, line = entity.name, self.line.name
        if name == line:
            t = next((n.name for n in self.line.axes if isinstance(n, Name)), "t")
            return (
                f"`{name}` reads itself; a recurrence is the whole right side of its line, "
                f"`{name}[...] = scan[{t}](... {name}[{t} - 1, ...] ..., start=0)`"
            )
        path = _path(self.names, name, line)
        if path:
            steps = ", ".join(f"{a} reads {b}" for a, b in zip((line, *path[:-1]), path, strict=True))
            return f"cyclic definition: {steps}; break the cycle by renaming one of them"
        if isinstance(entity.statement, Declare):
            return f"`{name}` is declared on line {entity.position.line}, after this read; move the declaration up"
        return f"`{name}` is used before its definition on line {entity.position.line}; move that line up"


def _path(names: Names, start: str, goal: str) -> tuple[str, ...]:
    """A chain of reads from line ``start`` back to line ``goal``, or nothing."""
    stack: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while stack:
        path = stack.pop()
        if path[-1] == goal:
            return path
        entity = names.array(path[-1])
        if entity is None or not isinstance(entity.statement, Assign):
            continue
        for name in sorted(mentions(entity.statement.value)):
            if name not in seen and names.array(name) is not None:
                seen.add(name)
                stack.append((*path, name))
    return ()
