"""Indices and dimensions: affine forms of axes and sizes."""

from __future__ import annotations

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Number
from ioweave.diagrams.notation.nearest import listed, nearest, or_one_of
from ioweave.diagrams.notation.ranges import check_range
from ioweave.diagrams.notation.scope import Scope
from ioweave.diagrams.notation.syntax import Binary, Call, Chain, Literal, Name, Node, Subscript, Unary, nodes
from ioweave.diagrams.sizes import evaluate


def index(node: Node, scope: Scope, array: str, place: int, dim: Affine) -> Affine:
    """Position ``place`` of a read of ``array``, whose dimension there is ``dim``.

    Raises `WeaveError` for a gather, a form that is not affine, an unbound axis, or a place out
    of range.
    """
    if isinstance(node, Name) and node.name not in scope.bound and scope.names.is_axis(node.name):
        raise WeaveError(_unbound(node.name, scope), node.position)
    form = _affine(node, scope)
    try:
        check_range(array, place, form, dim, scope, node.position)
    except WeaveError:
        sized = {id(c.args[0]) for c in nodes(node) if isinstance(c, Call) and c.function == "size" and c.args}
        for n in nodes(node):  # a declared size that leads out of range was meant as an index
            if isinstance(n, Name) and id(n) not in sized and n.name not in scope.bound and n.name in scope.names.dims:
                raise WeaveError(f"{_unbound(n.name, scope)}; its size is size({n.name})", n.position) from None
        raise
    return form


def dimension(node: Node, scope: Scope) -> Affine:
    """One dimension of an input: sizes, integers and their arithmetic. Raises `WeaveError` otherwise."""
    return _affine(node, scope, declared=True)


def _unbound(axis: str, scope: Scope) -> str:
    given = ", ".join((*scope.bound, axis))
    return (
        f"axis `{axis}` is neither on the left side nor reduced; reduce over it, `sum[{axis}](...)`, or put it on the "
        f"left, `{scope.line.name}[{given}]`"
    )


def _affine(node: Node, scope: Scope, declared: bool = False) -> Affine:
    match node:
        case Literal(value=int() as value) if not isinstance(value, bool):
            return Affine((), (), value)
        case Literal(value=value, position=position):
            raise WeaveError(f"an index is a whole number; {value} is not", position)
        case Name():
            return _name(node, scope, declared)
        case Unary(op="neg", operand=operand):
            return _affine(operand, scope, declared).scale(-1)
        case Binary(op="add" | "sub" as op, left=left, right=right):
            a, b = _affine(left, scope, declared), _affine(right, scope, declared)
            return a + (b if op == "add" else b.scale(-1))
        case Binary(op="mul" | "floordiv" | "mod" | "pow" | "div" as op, left=left, right=right):
            return _product(node, op, left, right, scope, declared)
        case Call(function="size", args=[Name(name=name)], axes=None, keywords=()):
            return _size(name, node, scope)
        case Subscript(array=array):
            if declared:
                raise WeaveError(f"a dimension is made of sizes and integers; `{array}` is an array", node.position)
            raise WeaveError(
                f"`{array}[...]` inside an index is a gather, and gathers are not supported yet; indices are affine, "
                "e.g. X[2 * i + k]",
                node.position,
            )
        case Unary() | Chain() | Binary():
            raise WeaveError("a truth value is no index; indices are affine, e.g. X[2 * i + k]", node.position)
        case Call(function=function):
            raise WeaveError(
                f"`{function}` in an index is not affine; indices are sums of axes times integers, e.g. X[2 * i + k]",
                node.position,
            )


def _name(node: Name, scope: Scope, declared: bool) -> Affine:
    name = node.name
    if name in scope.bound:
        return Affine.axis(name)
    if scope.names.array(name) is not None:
        if declared:
            raise WeaveError(f"a dimension is made of sizes and integers; `{name}` is an array", node.position)
        raise WeaveError(
            f"`{name}` inside an index is a gather, and gathers are not supported yet; indices are affine",
            node.position,
        )
    if name not in scope.values:
        known = (*scope.bound, *scope.names.definitions)
        raise WeaveError(
            f"unknown axis `{name}`{nearest(name, known)}; give it a size, `{name} = 64`{or_one_of(known)}",
            node.position,
        )
    if not declared and name in scope.names.bound:
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


def _product(node: Node, op: str, left: Node, right: Node, scope: Scope, declared: bool) -> Affine:
    """A product with a number, or arithmetic of sizes alone, which is replaced by its value."""
    a, b = _affine(left, scope, declared), _affine(right, scope, declared)
    if op == "mul":
        for factor, other in ((a, b), (b, a)):
            if not factor.axes and not factor.sizes:
                return other.scale(factor.offset)
        constants_first = sorted((a, b), key=lambda f: any(scope.names.is_axis(s) for s, _ in f.sizes))
        for factor, other in (constants_first, constants_first[::-1]):
            if not factor.axes:
                return other.scale(_fixed(factor, scope))
    if op == "div" and not a.axes and not b.axes:
        raise WeaveError("`/` gives no whole number; in an index write `//`", node.position)
    if a.axes or b.axes:
        symbol = {"mul": "*", "floordiv": "//", "mod": "%", "pow": "**", "div": "/"}[op]
        hint = (
            "where several heads share one, give each array both axes, e.g. Q[k, g, q, d] and K[k, x, d]"
            if op in ("floordiv", "mod")
            else "an axis may be multiplied by an integer only, e.g. X[2 * i + k]"
        )
        axes = listed(dict.fromkeys((*a.names, *b.names)))
        raise WeaveError(f"this index is not affine: `{symbol}` on {axes}; {hint}", node.position)
    parts = (Number(_fixed(a, scope)), Number(_fixed(b, scope)))
    value = evaluate(Apply(op, parts), {}, node.position)
    if not isinstance(value, int):
        raise WeaveError(f"this index is {value}; it must be a whole number", node.position)
    return Affine((), (), value)


def _fixed(form: Affine, scope: Scope) -> int:
    return form.offset + sum(c * int(scope.values[s]) for s, c in form.sizes)
