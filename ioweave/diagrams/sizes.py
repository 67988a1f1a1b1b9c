"""Numbers for defined names: ties followed, overrides first, every axis size checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from ioweave.diagrams.diagram import Definition, Diagram, Position
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Composite, Constant, Expr, Number, Reduce, Scan, walk

Value = int | float
LARGEST = 1 << 40  # of an axis
_BITS = 64  # of an integer on the way


def resolve(definitions: Iterable[Definition], overrides: Mapping[str, Value]) -> dict[str, Value]:
    """Every defined name with its number.

    An override replaces a definition, so it cuts a tie; a name tied to an overridden one follows
    it. Raises `WeaveError` for an override that is not defined, a cycle of ties, an unknown name
    or arithmetic without a result.
    """
    table = {d.name: d for d in definitions}
    for name in overrides:
        if name not in table:
            from ioweave.diagrams.notation.nearest import listed, nearest

            raise WeaveError(
                f"`{name}` is not a size or constant here{nearest(name, table)}; these are: {listed(table)}"
            )
    done: dict[str, Value] = {n: overrides[n] for n in table if n in overrides}
    for root in table:
        _settle(root, table, done)
    return {name: done[name] for name in table}


def _settle(root: str, table: Mapping[str, Definition], done: dict[str, Value]) -> None:
    """Find the value of ``root`` and of all it is tied to, without recursion."""
    path: list[str] = [root]
    while path:
        name = path[-1]
        if name in done:
            path.pop()
            continue
        d = table[name]
        waiting = None
        for node in walk(d.value):
            if isinstance(node, Constant) and node.name not in done:
                if node.name not in table:
                    raise WeaveError(f"`{node.name}` has no value; define it, `{node.name} = 64`", d.position)
                waiting = node.name
                break
        if waiting is None:
            done[name] = evaluate(d.value, done, d.position)
            path.pop()
        elif waiting in path:
            cycle = [*path[path.index(waiting) :], waiting]
            raise WeaveError(
                f"cyclic definition: {' = '.join(cycle)}; give one of them a number", table[cycle[0]].position
            )
        else:
            path.append(waiting)


def ties(definitions: Iterable[Definition]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names that are worked out from others, each with every name behind it."""
    direct = {d.name: {n.name for n in walk(d.value) if isinstance(n, Constant)} for d in definitions}
    found: dict[str, tuple[str, ...]] = {}
    for name in direct:
        behind: set[str] = set()
        todo = list(direct[name])
        while todo:
            other = todo.pop()
            if other not in behind:
                behind.add(other)
                todo += direct.get(other, ())
        if behind:
            found[name] = tuple(sorted(behind))
    return tuple(found.items())


def axis_sizes(diagram: Diagram, overrides: Mapping[str, Value] | None = None) -> dict[str, int]:
    """The size of every axis of the diagram, dimensions of inputs included.

    Raises `WeaveError` where a size is not a whole number between 1 and 2**40.
    """
    values = diagram.values(overrides)
    places = {d.name: d.position for d in diagram.definitions}
    found: dict[str, int] = {}
    for name in axis_names(diagram):
        if name not in values:
            raise WeaveError(f"axis `{name}` has no size; give it one, `{name} = 64`")
        found[name] = as_size(name, values[name], places.get(name))
    return found


def axis_names(diagram: Diagram) -> tuple[str, ...]:
    """Every name that stands as an axis in the lines, or alone as a dimension of an input."""
    found: dict[str, None] = {}
    for i in diagram.inputs:
        for dim in i.dims:
            if len(dim.sizes) == 1 and dim.sizes[0][1] == 1 and not dim.offset:
                found.setdefault(dim.sizes[0][0])
    for line in diagram.lines:
        found.update(dict.fromkeys(line.axes))
        for node in walk(line.expr):
            if isinstance(node, Reduce | Composite):
                found.update(dict.fromkeys(node.axes))
            elif isinstance(node, Scan):
                found.setdefault(node.axis)
    return tuple(found)


def as_size(name: str, value: Value, position: Position | None = None) -> int:
    """``value`` as the size of axis ``name``; WeaveError if it is not a whole number of 1 to 2**40."""
    shown = f"{value}" if abs(value) < 1e15 else f"{value:.3g}" if isinstance(value, float) else "a number of that size"
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise WeaveError(f"the size of axis `{name}` is {shown}; a size is a whole number, 1 or more", position)
    if value < 1:
        raise WeaveError(f"the size of axis `{name}` is {shown}; a size is 1 or more", position)
    if value > LARGEST:
        raise WeaveError(f"the size of axis `{name}` is beyond 2**40; sizes go up to {LARGEST}", position)
    return int(value)


def evaluate(e: Expr, values: Mapping[str, Value], position: Position | None = None) -> Value:
    """The number that an expression of numbers and defined names stands for.

    Integers stay exact; ``/`` and functions give floats. Raises `WeaveError` for division by
    zero, a function outside its domain and integers beyond 64 bits.
    """
    match e:
        case Number(value=value):
            return value
        case Constant(name=name):
            return values[name]
        case Apply(op=op, args=args):
            parts = [evaluate(a, values, position) for a in args]
            function = _FUNCTIONS.get(op)
            if function is None:
                raise WeaveError(f"`{op}` is not for constants; use + - * / // % ** and functions of numbers", position)
            try:
                result = function(*parts)
            except ZeroDivisionError:
                raise WeaveError("this divides by zero; the divisor must not be 0", position) from None
            except (ValueError, OverflowError, TypeError):
                shown = ", ".join(str(p) for p in parts)
                raise WeaveError(
                    f"`{op}` of {shown} is not a real number that fits; change its argument", position
                ) from None
            if isinstance(result, complex):
                raise WeaveError("a negative number to a broken power is not real; change the base", position)
            if isinstance(result, int) and result.bit_length() > _BITS:
                raise WeaveError("this integer is beyond 64 bits; sizes go up to 2**40", position)
            return result
        case _:
            raise WeaveError("a constant is made of numbers and sizes alone; give this a bracket of axes", position)


def _power(a: Value, b: Value) -> Value:
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a.bit_length() * b > 4 * _BITS:
        raise OverflowError
    result: Value = a**b
    return result


def _gelu(a: Value) -> float:
    return 0.5 * a * (1 + math.erf(a / math.sqrt(2)))


def _sigmoid(a: Value) -> float:
    return 0.5 * (1 + math.tanh(0.5 * a))


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "pow": _power,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "not": lambda a: not a,
    "min": min,
    "max": max,
    "abs": abs,
    "relu": lambda a: max(a, 0),
    "floor": math.floor,
    "round": round,
    "where": lambda c, a, b: a if c else b,
    "masked_sub": lambda a, b: a if a == -math.inf else a - b,
    "masked_div": lambda a, b: 0.0 if a == 0 else a / b,
    "exp": math.exp,
    "exp2": lambda a: 2.0**a,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "tanh": math.tanh,
    "sigmoid": _sigmoid,
    "silu": lambda a: a * _sigmoid(a),
    "gelu": _gelu,
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    **dict.fromkeys(("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp8_e5m2", "fp4"), float),
    **dict.fromkeys(("int64", "int32", "int8"), int),
    "bool": bool,
}
