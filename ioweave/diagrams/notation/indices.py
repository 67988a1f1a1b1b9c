"""Indices and dimensions: affine forms of axes and sizes, and in indices whatever else is a whole number."""

from __future__ import annotations

from collections.abc import Callable

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.elements import kind
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Expr,
    Lookup,
    Number,
    Read,
    Reduce,
    Scan,
    Size,
    free_axes,
    transform,
    walk,
)
from ioweave.diagrams.notation.nearest import listed, nearest, or_one_of
from ioweave.diagrams.notation.ranges import check_range
from ioweave.diagrams.notation.scope import Scope
from ioweave.diagrams.notation.syntax import Binary, Call, Chain, Literal, Name, Node, Subscript, Unary, nodes
from ioweave.diagrams.operators import KEEP
from ioweave.diagrams.sizes import evaluate

Reader = Callable[[Node, Scope], Expr]


def index(node: Node, scope: Scope, array: str, place: int, dim: Affine, scalar: Reader) -> Affine:
    """Position ``place`` of a read of ``array``, whose dimension there is ``dim``.

    ``scalar`` reads what is not affine. Raises `WeaveError` for what is no whole number, an unbound
    axis, or a place out of range.
    """
    form = position(node, scope, scalar)
    try:
        check_range(array, place, form, dim, scope, node.position)
    except WeaveError:
        sized = {id(c.args[0]) for c in nodes(node) if isinstance(c, Call) and c.function == "size" and c.args}
        parts = [b.right for b in nodes(node) if isinstance(b, Binary) and b.op in ("floordiv", "mod")]
        sized |= {id(n) for part in parts for n in nodes(part)}  # a divisor is a size
        for n in nodes(node):  # a declared size that leads out of range was meant as an index
            if isinstance(n, Name) and id(n) not in sized and n.name not in scope.bound and n.name in scope.names.dims:
                raise WeaveError(f"{_unbound(n.name, scope)}; its size is size({n.name})", n.position) from None
        raise
    return form


def position(node: Node, scope: Scope, scalar: Reader) -> Affine:
    """A position wherever it may lie."""
    if isinstance(node, Name) and node.name not in scope.bound and scope.names.is_axis(node.name):
        raise WeaveError(_unbound(node.name, scope), node.position)
    return _affine(node, scope, scalar)


def dimension(node: Node, scope: Scope) -> Affine:
    """One dimension of an input: sizes, integers and their arithmetic. Raises `WeaveError` otherwise."""
    return _affine(node, scope, None)


def _unbound(axis: str, scope: Scope) -> str:
    given = ", ".join((*scope.bound, axis))
    return (
        f"axis `{axis}` is neither on the left side nor reduced; reduce over it, `sum[{axis}](...)`, or put it on the "
        f"left, `{scope.line.name}[{given}]`"
    )


def _affine(node: Node, scope: Scope, scalar: Reader | None) -> Affine:
    """The form of an index; of a dimension where there is no ``scalar``."""
    match node:
        case Literal(value=int() as value) if not isinstance(value, bool):
            return Affine((), (), value)
        case Literal(value=value, position=position):
            raise WeaveError(f"an index is a whole number; {value} is not", position)
        case Name():
            return _name(node, scope, scalar)
        case Unary(op="neg", operand=operand):
            return _affine(operand, scope, scalar).scale(-1)
        case Binary(op="add" | "sub" as op, left=left, right=right):
            a, b = _affine(left, scope, scalar), _affine(right, scope, scalar)
            return a + (b if op == "add" else b.scale(-1))
        case Binary(op="mul" | "floordiv" | "mod" | "pow" | "div" as op, left=left, right=right):
            return _product(node, op, left, right, scope, scalar)
        case Call(function="size", args=[Name(name=name)], axes=None, keywords=()):
            return _size(name, node, scope)
        case Subscript(array=array):
            if scalar is None:
                raise WeaveError(f"a dimension is made of sizes and integers; `{array}` is an array", node.position)
            return _lookup(node, scope, scalar)
        case Unary() | Chain() | Binary():
            raise WeaveError(_TRUTH, node.position)
        case Call(function=function):
            if scalar is None:
                raise WeaveError(
                    f"a dimension is made of sizes and integers; `{function}` is an operator", node.position
                )
            return _lookup(node, scope, scalar)


_TRUTH = "a truth value is no index; write where(c, i, j) for the index it chooses"


def _lookup(node: Node, scope: Scope, scalar: Reader) -> Affine:
    """A whole number that no affine form gives, as one term; its value where nothing moves it."""
    e = scalar(node, scope)
    for part in walk(e):
        match part:
            case Reduce(op=op) | Composite(op=op):
                raise WeaveError(
                    f"`{op}` inside an index needs a line of its own; write it above and read it here", node.position
                )
            case Scan():
                raise WeaveError("`scan` inside an index needs a line of its own", node.position)
            case Apply(op="keep"):
                raise WeaveError(f"`{KEEP}` drops elements and says not where to read; multiply by it", node.position)
    what = kind(e, scope.made.kinds, scope.values)
    if what == "bool":
        raise WeaveError(_TRUTH, node.position)
    if what == "float":
        raise WeaveError(_no_whole_number(e, scope), node.position)
    if free_axes(e) or any(isinstance(n, Read) for n in walk(e)):
        return Affine.make({}, {}, 0, {Lookup(e): 1})
    return Affine((), (), _value(e, node, scope))


def _no_whole_number(e: Expr, scope: Scope) -> str:
    if isinstance(e, Read):
        return (
            f"`{e.array}` does not hold whole numbers, so it cannot be an index; declare it int32, or write "
            f"floor({e.array}[...])"
        )
    return "an index is a whole number, and this need not be one; write floor(...)"


def _value(e: Expr, node: Node, scope: Scope) -> int:
    """The whole number that an expression of sizes stands for."""
    numbers = transform(e, lambda n: Number(scope.values[n.axis]) if isinstance(n, Size) else n)
    value = evaluate(numbers, scope.values, node.position)
    if not isinstance(value, int):
        raise WeaveError(f"this index is {value}; it must be a whole number", node.position)
    return value


def _name(node: Name, scope: Scope, scalar: Reader | None) -> Affine:
    name = node.name
    if name in scope.bound:
        return Affine.axis(name)
    if scope.names.array(name) is not None:
        if scalar is None:
            raise WeaveError(f"a dimension is made of sizes and integers; `{name}` is an array", node.position)
        return _lookup(node, scope, scalar)
    if name not in scope.values:
        known = (*scope.bound, *scope.names.definitions)
        raise WeaveError(
            f"unknown axis `{name}`{nearest(name, known)}; give it a size, `{name} = 64`{or_one_of(known)}",
            node.position,
        )
    if scalar is not None and name in scope.names.bound:
        raise WeaveError(f"{_unbound(name, scope)}; its size is size({name})", node.position)
    return _size(name, node, scope)


def _size(name: str, node: Node, scope: Scope) -> Affine:
    value = scope.values.get(name)
    if value is None:
        known = scope.names.definitions
        raise WeaveError(f"unknown axis `{name}`{nearest(name, known)}; sizes are {listed(known)}", node.position)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WeaveError(f"`{name}` is {value}; in an index it must be a whole number", node.position)
    return Affine((), ((name, 1),), 0)


def _product(node: Node, op: str, left: Node, right: Node, scope: Scope, scalar: Reader | None) -> Affine:
    """A product with a number, arithmetic of sizes alone, which is replaced by its value, or what is not affine."""
    if op == "div":
        raise WeaveError("`/` gives no whole number; in an index write `//`", node.position)
    moving = [_moves(n, scope) for n in (left, right)]
    if scalar is not None and (all(moving) or (op != "mul" and any(moving))):
        return _lookup(node, scope, scalar)
    a, b = _affine(left, scope, scalar), _affine(right, scope, scalar)
    if op == "mul":
        for factor, other in ((a, b), (b, a)):
            if not factor.names and not factor.lookups and not factor.sizes:
                return other.scale(factor.offset)
        constants_first = sorted((a, b), key=lambda f: any(scope.names.is_axis(s) for s, _ in f.sizes))
        for factor, other in (constants_first, constants_first[::-1]):
            if not factor.axes and not factor.lookups:
                return other.scale(_fixed(factor, scope))
    parts = (Number(_fixed(a, scope)), Number(_fixed(b, scope)))
    value = evaluate(Apply(op, parts), {}, node.position)
    if not isinstance(value, int):
        raise WeaveError(f"this index is {value}; it must be a whole number", node.position)
    return Affine((), (), value)


def _moves(node: Node, scope: Scope) -> bool:
    """Whether an index varies: it names a bound axis or an array."""
    sized = {id(c.args[0]) for c in nodes(node) if isinstance(c, Call) and c.function == "size" and c.args}
    for n in nodes(node):
        if isinstance(n, Subscript):
            return True
        if isinstance(n, Name) and id(n) not in sized and (n.name in scope.bound or scope.names.array(n.name)):
            return True
    return False


def _fixed(form: Affine, scope: Scope) -> int:
    return form.offset + sum(c * int(scope.values[s]) for s, c in form.sizes)
