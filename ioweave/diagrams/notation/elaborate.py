"""Syntax tree to diagram: what the names mean, and every check that a text must pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Definition, Diagram, Input, Line, Position
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.elements import kind
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Composite,
    Constant,
    Expr,
    Number,
    Read,
    Reduce,
    Scan,
    Size,
    children,
    reads,
    walk,
)
from ioweave.diagrams.notation.indices import dimension
from ioweave.diagrams.notation.names import Entity, Names, collect, mentions
from ioweave.diagrams.notation.nearest import listed, nearest, or_one_of
from ioweave.diagrams.notation.parser import DEPTH
from ioweave.diagrams.notation.scalars import constant, right_side
from ioweave.diagrams.notation.scope import Made, Scope
from ioweave.diagrams.notation.syntax import Assign, Block, Declare, Name, Node, Statement, Text, nodes
from ioweave.diagrams.sizes import LARGEST, Value, as_size, evaluate, resolve


@dataclass(frozen=True, slots=True)
class Elaborated:
    """A diagram with the numbers of its names and what deserves a warning (one line each)."""

    diagram: Diagram
    values: Mapping[str, Value]
    warnings: tuple[str, ...]


def elaborate(text: Text, overrides: Mapping[str, Value] | None = None) -> Elaborated:
    """The diagram of a syntax tree; blocks are left to `ioweave.hierarchy.notation`.

    ``overrides`` replace definitions by numbers, in the diagram too; an axis that the text gives
    no size takes it from them. Raises `WeaveError` with the place, what is wrong and what would
    be right.
    """
    names = collect(text)
    definitions = _definitions(names, dict(overrides or {}))
    values = resolve(definitions, {})
    _check_axes(names, values)
    start = Position(text.file, 1, 1)
    if not names.of("line"):
        raise WeaveError("nothing is computed; write at least one line, e.g. `Y[i] = 2 * X[i]`", start)
    before = Made()
    inputs: list[Input] = []
    lines: list[Line] = []
    for entity in names.of("input"):
        made = _input(entity, Scope(names, values, before, entity))
        inputs.append(made)
        before.dims[made.name] = made.dims
        before.kinds[made.name] = DTYPES[made.dtype].kind
    for entity in names.of("line"):
        line = _line(entity, Scope(names, values, before, entity))
        lines.append(line)
        _record(line, before, values)
    outputs = _outputs(names, lines)
    _check_read(names, lines, outputs)
    name = PurePath(text.file).stem if not text.file.startswith("<") else "diagram"
    diagram = Diagram(name, definitions, tuple(inputs), tuple(lines), outputs, text.doc)
    return Elaborated(diagram, values, _unread(text, names))


def _definitions(names: Names, overrides: dict[str, Value]) -> tuple[Definition, ...]:
    """The definitions, overridden ones as numbers; axes that only an override sizes come last."""
    known = names.definitions
    unsized = {n: p for n, p in {**names.dims, **names.bound}.items() if names.entities.get(n) is None}
    for name in overrides:
        if name not in known and name not in unsized:
            raise WeaveError(
                f"`{name}` is not a size or constant here{nearest(name, known)}; these are: {listed(known)}"
            )
    found: list[Definition] = []
    every = frozenset(known) | set(overrides)
    for entity in names.of("definition"):
        statement = entity.statement
        value: Expr = (
            Number(overrides[entity.name])
            if entity.name in overrides
            else constant(statement.value, every)
            if isinstance(statement, Assign)
            else Number(0)
        )
        _check_depth(value, entity.position)
        found.append(Definition(entity.name, value, entity.position))
    found.extend(Definition(n, Number(v), unsized[n]) for n, v in overrides.items() if n in unsized)
    return tuple(found)


def _check_axes(names: Names, values: Mapping[str, Value]) -> None:
    """Every axis has a size of 1 to 2**40."""
    for axis in dict.fromkeys((*names.dims, *names.bound)):
        places = [p[axis] for p in (names.dims, names.bound) if axis in p]
        used = min(places, key=lambda p: (p.line, p.column))
        entity = names.entities.get(axis)
        if axis in values:
            as_size(axis, values[axis], entity.position if entity else used)
        elif entity is not None:
            raise WeaveError(f"`{axis}` is an array, not an axis; give the axis another name", used)
        else:
            known = names.definitions
            raise WeaveError(
                f"unknown axis `{axis}`{nearest(axis, known)}: nothing gives it a size; write "
                f"`{axis} = 64`{or_one_of(known)}",
                used,
            )


def _dtype(node: Name) -> str:
    if node.name not in DTYPES:
        raise WeaveError(
            f"unknown dtype `{node.name}`{nearest(node.name, DTYPES)}; dtypes are {listed(DTYPES)}", node.position
        )
    return node.name


def _input(entity: Entity, scope: Scope) -> Input:
    statement = entity.statement
    assert isinstance(statement, Declare)
    sizes = {n: int(v) for n, v in scope.values.items() if isinstance(v, int)}
    dims: list[Affine] = []
    for node in statement.dims:
        dim = dimension(node, scope)
        length = dim.fixed(sizes)
        if not 1 <= length <= LARGEST:
            raise WeaveError(
                f"dimension `{dim}` of `{entity.name}` is {length}; a dimension is 1 to 2**40", node.position
            )
        dims.append(dim)
    fact = None
    if statement.fact is not None:
        op, node = statement.fact
        if any(isinstance(n, Name) and n.name != "inf" for n in nodes(node)):
            raise WeaveError("a fact compares with a number, as in `fp32 > 0`", node.position)
        value = evaluate(constant(node, frozenset()), {}, node.position)
        fact = (op, float(value))
    return Input(entity.name, tuple(dims), _dtype(statement.dtype), fact, entity.position)


def _line(entity: Entity, scope: Scope) -> Line:
    statement = entity.statement
    assert isinstance(statement, Assign)
    axes: list[str] = []
    for node in statement.axes or ():
        if not isinstance(node, Name):
            raise WeaveError(
                f"the left side names axes only, as in `{entity.name}[q, x] = ...`; move arithmetic to the right side",
                node.position,
            )
        if node.name in axes:
            raise WeaveError(
                f"axis `{node.name}` stands twice on the left; give the second a name of its own and tie it, "
                f"`{node.name}_1 = {node.name}`",
                node.position,
            )
        axes.append(node.name)
    dtype = None if statement.dtype is None else _dtype(statement.dtype)
    scope.made.kinds[entity.name] = "float" if dtype is None else DTYPES[dtype].kind  # of a recurrence's own elements
    inner = Scope(scope.names, scope.values, scope.made, entity, tuple(axes))
    expr = right_side(statement.value, inner)
    _check_depth(expr, statement.value.position)
    return Line(entity.name, tuple(axes), expr, dtype, entity.position)


def _record(line: Line, made: Made, values: Mapping[str, Value]) -> None:
    """Add what is known of a line's array."""
    made.dims[line.name] = tuple(Affine((), ((a, 1),), 0) for a in line.axes)
    is_float = line.dtype is not None and DTYPES[line.dtype].kind == "float"
    made.kinds[line.name] = "float" if is_float else kind(line.expr, made.kinds, values)
    if isinstance(line.expr, Reduce) and line.expr.op == "argtopk":
        made.spans[line.name] = (0, int(values[line.expr.axes[0]]) - 1)


def _check_depth(e: Expr, position: Position) -> None:
    level: list[Expr] = [e]
    for _ in range(DEPTH):
        level = [c for node in level for c in children(node)]
        if not level:
            return
    raise WeaveError(f"the expression is nested more than {DEPTH} deep; split it over several lines", position)


def _outputs(names: Names, lines: list[Line]) -> tuple[str, ...]:
    found: list[str] = []
    made = [line.name for line in lines]
    for statement in names.outs:
        for n in statement.names:
            if n.name not in made:
                entity = names.entities.get(n.name)
                what = f"no line{nearest(n.name, made)}" if entity is None else f"{_article(entity.kind)}, not a line"
                raise WeaveError(f"`{n.name}` is {what}; out(...) names one of {listed(made)}", n.position)
            if n.name in found:
                raise WeaveError(f"`{n.name}` is marked as an output twice; keep one", n.position)
            found.append(n.name)
    return tuple(found if made[-1] in found else [*found, made[-1]])


def _article(kind: str) -> str:
    return "an input" if kind == "input" else "a number"


def _check_read(names: Names, lines: list[Line], outputs: tuple[str, ...]) -> None:
    """Every computed line is read or an output."""
    read = {r.array for line in lines for r in reads(line.expr) if r.array != line.name}
    for line in lines:
        if line.name not in read and line.name not in outputs:
            raise WeaveError(
                f"`{line.name}` is neither read nor an output; mark it, `out({line.name})`, or delete the line",
                line.position,
            )


def _unread(text: Text, names: Names) -> tuple[str, ...]:
    """Warnings for inputs, sizes and constants that nothing uses."""
    used: set[str] = set(names.bound)
    for entity in names.entities.values():
        statement = entity.statement
        if isinstance(statement, Assign):
            used |= mentions(statement.value)
        else:
            for node in statement.dims:
                used |= mentions(node)
    for node in _tiles(text.statements):
        used |= mentions(node)
    found: list[str] = []
    for entity in names.entities.values():
        if entity.name in used or entity.kind == "line":
            continue
        what = "input" if entity.kind == "input" else "constant"
        found.append(f"{entity.position}: {what} `{entity.name}` is never read; delete it, or use it")
    return tuple(found)


def _tiles(statements: tuple[Statement, ...]) -> tuple[Node, ...]:
    found: list[Node] = []
    for s in statements:
        if isinstance(s, Block):
            entries = (*s.group, *s.stream, *s.hold)
            found.extend(e.value for e in entries if not isinstance(e.value, str))
            found.extend([s.buffers] if s.buffers is not None else [])
            found.extend(_tiles(s.body))
    return tuple(found)


def unread(diagram: Diagram) -> tuple[str, ...]:
    """One warning for each input, size and constant of a diagram that nothing uses."""
    used: set[str] = set()
    for d in diagram.definitions:
        used |= {n.name for n in walk(d.value) if isinstance(n, Constant)}
    for i in diagram.inputs:
        used |= {s for dim in i.dims for s, _ in dim.sizes}
    for line in diagram.lines:
        used |= set(line.axes)
        for node in walk(line.expr):
            match node:
                case Constant(name=name):
                    used.add(name)
                case Size(axis=axis):
                    used.add(axis)
                case Reduce(axes=axes) | Composite(axes=axes):
                    used |= set(axes)
                case Scan(axis=axis):
                    used.add(axis)
                case Read(array=array, index=index):
                    used |= {array, *(s for form in index for s, _ in form.sizes)}
                case _:
                    pass
    found: list[str] = []
    for what, names in (("input", diagram.inputs), ("constant", diagram.definitions)):
        for n in names:
            if n.name not in used:
                place = f"{n.position}: " if n.position else ""
                found.append(f"{place}{what} `{n.name}` is never read; delete it, or use it")
    return tuple(found)
