"""Right sides: from the syntax tree to scalar expressions."""

from __future__ import annotations

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Position
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Constant,
    Expr,
    Index,
    Number,
    Read,
    Reduce,
    Size,
)
from ioweave.diagrams.notation.indices import index
from ioweave.diagrams.notation.names import BRACKETED
from ioweave.diagrams.notation.nearest import listed, nearest, or_one_of
from ioweave.diagrams.notation.scope import Scope
from ioweave.diagrams.notation.syntax import Binary, Call, Chain, Literal, Name, Node, Subscript, Unary
from ioweave.diagrams.notation.walks import (
    check_key,
    is_reversed,
    keep,
    list_axis,
    one_axis,
    own_read,
    reads_itself,
    scan,
    whole_right_side,
)
from ioweave.diagrams.operators import (
    COMPOSITES,
    COMPOSITES_THAT_KEEP,
    KEEP,
    LIST_NAMES,
    OPERATORS,
    REDUCE_NAMES,
    REVERSED,
    REVERSIBLE,
    SCAN,
)

INFIX = frozenset(o.name for o in OPERATORS.values() if o.symbol)
FUNCTIONS = frozenset(OPERATORS) - INFIX - {KEEP} | {"neg"}  # neg(1) is the negation of 1; -1 is a number
CALLABLE = FUNCTIONS | BRACKETED | {"size", KEEP}
OPTIONS = {"rmsnorm": ("eps",), "layernorm": ("eps",), "cumsum": (REVERSED,)}
_BARE = {  # dividing by, or taking a root, logarithm or power of, an index (counting.md 2)
    "div": (1, "divides by"),
    "floordiv": (1, "divides by"),
    "mod": (1, "divides by"),
    "sqrt": (0, "takes the root of"),
    "rsqrt": (0, "takes the root of"),
    "log": (0, "takes the logarithm of"),
    "log2": (0, "takes the logarithm of"),
    "pow": (0, "takes a power of"),
}


def right_side(node: Node, scope: Scope) -> Expr:
    """The right side of a line: a recurrence, or the expression of a node."""
    if isinstance(node, Call) and node.function == SCAN and node.axes is not None:
        return scan(node, _axes(node, scope), scope, scalar)
    return scalar(node, scope)


def scalar(node: Node, scope: Scope) -> Expr:
    """The expression of a node. Raises `WeaveError` with the place of what is wrong."""
    match node:
        case Literal(value=value, position=position):
            return _number(value, position)
        case Name():
            return _name(node, scope)
        case Subscript():
            return _read(node, scope)
        case Unary(op="neg", operand=Literal(value=int() | float() as value, position=position)) if not isinstance(
            value, bool
        ):
            number = _number(value, position)
            return Number(-number.value)
        case Unary(op="neg", operand=Name(name="inf")):
            return Number(float("-inf"))
        case Unary(op=op, operand=operand):
            return Apply(op, (scalar(operand, scope),))
        case Binary():
            return _binary(node, scope)
        case Chain(ops=ops, operands=operands):
            parts = [scalar(o, scope) for o in operands]
            links: list[Expr] = [Apply(op, (parts[i], parts[i + 1])) for i, op in enumerate(ops)]
            result = links[0]
            for link in links[1:]:
                result = Apply("and", (result, link))
            return result
        case Call():
            return _call(node, scope)


def _number(value: int | float | bool, position: Position) -> Number:
    if isinstance(value, int) and value.bit_length() > 63:
        raise WeaveError("this integer is beyond 64 bits; write it as a float, e.g. 1e30", position)
    return Number(value)


def _name(node: Name, scope: Scope) -> Expr:
    name = node.name
    if name == "inf":
        return Number(float("inf"))
    if name in scope.bound:
        return Index(name)
    if scope.names.array(name) is not None:
        dims = scope.array(name, node.position)
        if dims:
            raise WeaveError(
                f"`{name}` has {_axes_of(dims)}; write which element, e.g. `{_sample(name, dims)}`",
                node.position,
            )
        return Read(name, ())
    if scope.names.is_axis(name):
        if name not in scope.values:
            raise WeaveError(f"axis `{name}` has no size; give it one, `{name} = 64`", node.position)
        return Size(name)
    if name in scope.values:
        return Constant(name)
    if name in CALLABLE:
        raise WeaveError(f"`{name}` needs its argument, as in `{_call_sample(name)}`", node.position)
    known = (*scope.bound, *scope.names.definitions, *scope.names.arrays)
    raise WeaveError(
        f"unknown name `{name}`{nearest(name, known)}; define it, `{name} = 64`{or_one_of(known)}",
        node.position,
    )


def _axes_of(dims: tuple[Affine, ...]) -> str:
    shown = ", ".join(str(d) for d in dims)
    return f"{len(dims)} ax{'i' if len(dims) == 1 else 'e'}s [{shown}]" if dims else "no axes"


def _sample(name: str, dims: tuple[Affine, ...]) -> str:
    return f"{name}[{', '.join(str(d) for d in dims)}]" if dims else name


def _call_sample(name: str) -> str:
    if name in ("min", "max"):
        return f"{name}(a, b)"
    if name in LIST_NAMES:
        return f"{name}[x](S[q, x], into=k)"
    if name == SCAN:
        return "scan[t](A[t - 1] + X[t], start=0)"
    if name == KEEP:
        return f"{KEEP}(q, x, p=0.1)"
    if name in REDUCE_NAMES | COMPOSITES:
        return f"{name}[x](S[q, x])"
    return "size(d)" if name == "size" else f"{name}(" + ", ".join("abc"[: OPERATORS[name].arity]) + ")"


def _read(node: Subscript, scope: Scope) -> Expr:
    name = node.array
    if scope.names.array(name) is None and name in BRACKETED:
        raise WeaveError(f"`{name}[...]` needs its argument, as in `{_call_sample(name)}`", node.position)
    dims = scope.array(name, node.position)
    if len(node.index) != len(dims):
        raise WeaveError(
            f"`{name}` has {_axes_of(dims)} but {len(node.index)} ind{'ex' if len(node.index) == 1 else 'ices'} "
            f"here; write `{_sample(name, dims)}`",
            node.position,
        )
    if name == scope.line.name:
        return own_read(node, dims, scope, scalar)
    places = enumerate(zip(node.index, dims, strict=True))
    return Read(name, tuple(index(n, scope, name, place, dim, scalar) for place, (n, dim) in places))


def _binary(node: Binary, scope: Scope) -> Expr:
    left, right = scalar(node.left, scope), scalar(node.right, scope)
    if node.symbol in "&|":
        for e in (left, right):
            if isinstance(e, Index | Size | Constant | Number) and not (
                isinstance(e, Number) and isinstance(e.value, bool)
            ):
                raise WeaveError(
                    f"`{node.symbol}` binds tighter than a comparison; write (a < b) {node.symbol} (c < d), "
                    f"or `{node.op}`",
                    node.position,
                )
    return _apply(node.op, (left, right), node.position, scope)


def _apply(op: str, args: tuple[Expr, ...], position: Position, scope: Scope) -> Expr:
    if op in _BARE:
        place, verb = _BARE[op]
        arg = args[place]
        if isinstance(arg, Index):
            raise WeaveError(
                f"this {verb} the index `{arg.axis}`, which is bound here; for its size write size({arg.axis})",
                position,
            )
        if place == 1:
            _check_divisor(arg, position, scope)
    return Apply(op, args)


def _check_divisor(arg: Expr, position: Position, scope: Scope) -> None:
    value = arg.value if isinstance(arg, Number) else scope.values.get(arg.name, 1) if isinstance(arg, Constant) else 1
    if value == 0:
        raise WeaveError("this divides by zero; the divisor must not be 0", position)


def _call(node: Call, scope: Scope) -> Expr:
    name, position = node.function, node.position
    if name == "size":
        return _size(node, scope)
    if node.axes is not None:
        if name == SCAN:
            raise whole_right_side(node, scope)
        if name in REDUCE_NAMES:
            return _reduce(node, scope)
        if name in COMPOSITES:
            return _composite(node, scope)
        if name in FUNCTIONS | {KEEP}:
            raise WeaveError(
                f"`{name}` works element by element and takes no axes; write `{_call_sample(name)}`", position
            )
    elif name == KEEP:
        return keep(node, scope, scalar)
    elif name in FUNCTIONS:
        return _function(node, scope)
    elif name in BRACKETED:
        raise WeaveError(f"`{name}` needs the axes it works over; write `{_call_sample(name)}`", position)
    if scope.names.array(name) is not None:
        raise WeaveError(f"`{name}` is an array, not a function; read it with a bracket, `{name}[...]`", position)
    hint = nearest(name, CALLABLE)
    raise WeaveError(f"unknown operator `{name}`{hint}; the operators are {listed(sorted(CALLABLE), 99)}", position)


def _size(node: Call, scope: Scope) -> Expr:
    match node:
        case Call(axes=None, args=[Name(name=name)], keywords=()):
            if name not in scope.values:
                known = scope.names.definitions
                raise WeaveError(
                    f"unknown axis `{name}`{nearest(name, known)}; sizes are {listed(known)}", node.position
                )
            return Size(name)
        case _:
            raise WeaveError("size(...) takes one axis, as in `size(d)`", node.position)


def _function(node: Call, scope: Scope) -> Expr:
    name, position = node.function, node.position
    arity = OPERATORS[name].arity
    if node.keywords:
        raise WeaveError(
            f"`{name}` has no option `{node.keywords[0].name}`; write `{_call_sample(name)}`", node.keywords[0].position
        )
    many = name in ("min", "max") and len(node.args) >= 2
    if len(node.args) != arity and not many:
        extra = f"; to reduce over an axis write `{name}[x](...)`" if name in ("min", "max") else ""
        raise WeaveError(
            f"`{name}` takes {arity} argument{'s' if arity > 1 else ''}, not {len(node.args)}; "
            f"write `{_call_sample(name)}`{extra}",
            position,
        )
    if name == "where":
        condition = scalar(node.args[0], scope)
        yes = scalar(node.args[1], scope.given(condition, True))
        no = scalar(node.args[2], scope.given(condition, False))
        return Apply("where", (condition, yes, no))
    args = [scalar(a, scope) for a in node.args]
    result = _apply(name, tuple(args[:arity]), position, scope)
    for a in args[arity:]:
        result = Apply(name, (result, a))
    return result


def _axes(node: Call, scope: Scope) -> tuple[str, ...]:
    """The bracket of a reduction or composite: names of axes with sizes, each once."""
    found: list[str] = []
    for a in node.axes or ():
        if not isinstance(a, Name):
            raise WeaveError(
                f"the bracket of `{node.function}` names axes, as in `{node.function}[x](...)`", a.position
            )
        if a.name in found:
            raise WeaveError(f"axis `{a.name}` stands twice in the bracket; name it once", a.position)
        if scope.names.array(a.name) is not None:
            raise WeaveError(f"`{a.name}` is an array, not an axis; write `{node.function}[x](...)`", a.position)
        if a.name not in scope.values:
            known = scope.names.definitions
            raise WeaveError(
                f"unknown axis `{a.name}`{nearest(a.name, known)}; give it a size, `{a.name} = 64`{or_one_of(known)}",
                a.position,
            )
        found.append(a.name)
    if not found:
        raise WeaveError(
            f"`{node.function}` needs an axis in its bracket, as in `{node.function}[x](...)`", node.position
        )
    return tuple(found)


def _argument(node: Call) -> Node:
    if len(node.args) != 1:
        raise WeaveError(
            f"`{node.function}[...]` takes one argument, not {len(node.args)}; write `{_call_sample(node.function)}`",
            node.position,
        )
    return node.args[0]


def _reduce(node: Call, scope: Scope) -> Expr:
    axes = _axes(node, scope)
    inner = scope.bind(axes)
    where: Expr | None = None
    lists = node.function in LIST_NAMES
    for k in node.keywords:
        if k.name == "into" and lists:
            continue
        if k.name != "where":
            known = "`into=` and `where=`" if lists else "`where=`"
            raise WeaveError(f"`{node.function}` has no option `{k.name}`; it has {known}", k.position)
        where = scalar(k.value, inner)
    argument = _argument(node)
    into = list_axis(node, axes, scope) if lists else None
    body = scalar(argument, inner if where is None else inner.given(where, True))
    made = Reduce(node.function, axes, body, where, into)
    if into is not None:
        check_key(Reduce(node.function, axes, body, where), into, node)
    return made


def _composite(node: Call, scope: Scope) -> Expr:
    name = node.function
    axes = _axes(node, scope)
    if name in COMPOSITES_THAT_KEEP:
        for axis in axes:
            if axis not in scope.bound:
                raise WeaveError(
                    f"`{name}` keeps its axis `{axis}`, which is not bound here; put it on the left, "
                    f"`{scope.line.name}[{', '.join((*scope.bound, axis))}]`, or reduce over it, `sum[{axis}](...)`",
                    node.position,
                )
        inner = scope
    else:
        inner = scope.bind(axes)
    if name in REVERSIBLE:
        one_axis(node, axes)
    options: list[tuple[str, Expr]] = []
    for k in node.keywords:
        if k.name not in OPTIONS.get(name, ()):
            if k.name == "where":
                raise WeaveError(f"`{name}` is masked inside: write `{name}[x](where(c, S[q, x], -inf))`", k.position)
            known = listed(OPTIONS.get(name, ()))
            raise WeaveError(f"`{name}` has no option `{k.name}`; its options: {known}", k.position)
        if k.name == REVERSED:
            if is_reversed(k):
                options.append((k.name, Number(True)))
            continue
        value = scalar(k.value, scope)
        if not isinstance(value, Number | Constant):
            raise WeaveError(f"`{k.name}` is a number or the name of a constant, as in `{k.name}=1e-5`", k.position)
        options.append((k.name, value))
    argument = scalar(_argument(node), inner)
    reads_itself(argument, axes, node, scope)
    return Composite(name, axes, (argument,), tuple(options))


def constant(node: Node, known: frozenset[str]) -> Expr:
    """The right side of a definition: numbers, functions of numbers, and other names as `Constant`."""
    match node:
        case Literal(value=value, position=position):
            return _number(value, position)
        case Name(name="inf"):
            return Number(float("inf"))
        case (
            Name(name=name, position=position)
            | Call(function="size", args=[Name(name=name)], axes=None, position=position)
        ):
            if name not in known:
                raise WeaveError(
                    f"`{name}` has no value{nearest(name, known)}; define it, `{name} = 64`{or_one_of(known)}",
                    position,
                )
            return Constant(name)
        case Unary(op="neg", operand=Literal(value=int() | float() as value)) if not isinstance(value, bool):
            return Number(-value)
        case Unary(op="neg", operand=Name(name="inf")):
            return Number(float("-inf"))
        case Unary(op=op, operand=operand):
            return Apply(op, (constant(operand, known),))
        case Binary(op=op, left=left, right=right):
            return Apply(op, (constant(left, known), constant(right, known)))
        case Call(function=function, axes=None, args=args, keywords=()) if function in FUNCTIONS:
            if len(args) != OPERATORS[function].arity:
                raise WeaveError(f"write `{_call_sample(function)}`", node.position)
            return Apply(function, tuple(constant(a, known) for a in args))
        case Call(function=function):
            raise WeaveError(
                f"unknown operator `{function}`{nearest(function, FUNCTIONS)}; a constant is made of numbers, "
                "sizes and functions of them",
                node.position,
            )
        case _:
            raise WeaveError("a constant is made of numbers, sizes and functions of them", node.position)
