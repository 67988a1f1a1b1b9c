"""The syntax tree of the notation: what was written, with its places and no meaning yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from ioweave.diagrams.diagram import Position


@dataclass(frozen=True, slots=True)
class Name:
    """A name, dotted ones such as ``P.max`` included."""

    name: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or a truth value as written; never negative."""

    value: int | float | bool
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Subscript:
    """``array[index, ...]``."""

    array: str
    index: tuple[Node, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Keyword:
    """``name=value`` in a call."""

    name: str
    value: Node
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """``function(args)`` or ``function[axes](args)``; ``axes`` is None without a bracket."""

    function: str
    axes: tuple[Node, ...] | None
    args: tuple[Node, ...]
    keywords: tuple[Keyword, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """``-a``, ``not a`` (also written ``~a``); ``op`` is ``neg`` or ``not``."""

    op: str
    operand: Node
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """An infix operator; ``op`` names it, and ``symbol`` is what was written (``and`` or ``&``)."""

    op: str
    symbol: str
    left: Node
    right: Node
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Chain:
    """``a < b <= c``: one more operand than operators."""

    ops: tuple[str, ...]
    operands: tuple[Node, ...]
    position: Position = field(compare=False)


Node = Name | Literal | Subscript | Call | Unary | Binary | Chain


@dataclass(frozen=True, slots=True)
class Assign:
    """``name[axes]: dtype = value``; ``axes`` is None where no bracket was written.

    Whether ``name = value`` is a definition or a single value is decided later (counting.md 7).
    """

    name: str
    axes: tuple[Node, ...] | None
    dtype: Name | None
    value: Node
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Declare:
    """``name[dims]: dtype``, with a fact such as ``> 0`` or without."""

    name: str
    dims: tuple[Node, ...]
    dtype: Name
    fact: tuple[str, Node] | None
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Out:
    """``out(S, T)``."""

    names: tuple[Name, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``key: value`` of ``group``, ``stream``, ``hold`` or ``place``."""

    key: str
    value: Node | str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """``with level(level, group=..., stream=..., hold=..., place=..., buffers=n):`` and its body."""

    level: str
    group: tuple[Entry, ...]
    stream: tuple[Entry, ...]
    hold: tuple[Entry, ...]
    place: tuple[Entry, ...]
    buffers: Node | None
    body: tuple[Statement, ...]
    position: Position = field(compare=False)


Statement = Assign | Declare | Out | Block


@dataclass(frozen=True, slots=True)
class Text:
    """A whole file: its docstring and statements, blocks nested."""

    file: str = field(compare=False)
    doc: str
    statements: tuple[Statement, ...]

    def flat(self) -> tuple[Assign | Declare | Out, ...]:
        """The statements in order, those of blocks included, the blocks left out."""
        found: list[Assign | Declare | Out] = []

        def visit(statements: tuple[Statement, ...]) -> None:
            for s in statements:
                if isinstance(s, Block):
                    visit(s.body)
                else:
                    found.append(s)

        visit(self.statements)
        return tuple(found)


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node that are expressions, a bracket's axes included."""
    match node:
        case Subscript(index=index):
            return index
        case Call(axes=axes, args=args, keywords=keywords):
            return (*(axes or ()), *args, *(k.value for k in keywords))
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Chain(operands=operands):
            return operands
        case _:
            return ()


def nodes(node: Node) -> tuple[Node, ...]:
    """Every node of an expression, parents first."""
    found: list[Node] = []
    stack = [node]
    while stack:
        top = stack.pop()
        found.append(top)
        stack.extend(reversed(children(top)))
    return tuple(found)
