"""What kind of number an expression gives, and the element type of what a line makes."""

from __future__ import annotations

from collections.abc import Mapping

from ioweave.diagrams.diagram import Line
from ioweave.diagrams.dtypes import DTYPES, widest
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Constant,
    Expr,
    Index,
    Number,
    Read,
    Reduce,
    Scan,
    Size,
    children,
)
from ioweave.diagrams.operators import CASTS, KEEP, PREDICATES

POSITION = "int32"  # of the places that an argtopk gives
_WHOLE = frozenset({"add", "sub", "mul", "neg", "abs", "min", "max", "floordiv", "mod", "relu"})
_ROUNDED = frozenset({"floor", "round"})


def line_dtype(line: Line, known: Mapping[str, str]) -> str:
    """The element type of a line's array: declared, else its outermost cast, else its widest operand.

    Arrays that only say where to read are no operands; positions are int32.
    """
    if line.dtype is not None:
        return line.dtype
    if isinstance(line.expr, Apply) and line.expr.op in CASTS:
        return line.expr.op
    return operand_dtype(line.expr, {n: t for n, t in known.items() if n != line.name})


def operand_dtype(e: Expr, known: Mapping[str, str]) -> str:
    """The widest element type among the operands of an expression; names that ``known`` lacks do not count."""
    found: list[str] = []

    def visit(node: Expr) -> None:
        match node:
            case Read(array=array):
                found.extend([known[array]] if array in known else [])
            case Reduce(op="argtopk"):
                found.append(POSITION)
            case _:
                for child in children(node):
                    visit(child)

    visit(e)
    return widest(found)


def kind(e: Expr, kinds: Mapping[str, str], values: Mapping[str, int | float]) -> str:
    """``bool``, ``int`` (a whole number) or ``float``: what the values of an expression are.

    ``kinds`` are those of the arrays, ``values`` gives sizes and constants.
    """
    match e:
        case Number(value=value):
            return type(value).__name__
        case Constant(name=name):
            return type(values[name]).__name__
        case Index() | Size():
            return "int"
        case Read(array=array):
            return kinds[array]
        case Apply(op=op, args=args):
            return _applied(op, [kind(a, kinds, values) for a in args], args)
        case Reduce(op="argtopk"):
            return "int"
        case Reduce(op="any" | "all"):
            return "bool"
        case Reduce(op="mean"):
            return "float"
        case Reduce(op=op, body=body):
            inner = kind(body, kinds, values)
            return "int" if inner == "bool" and op in ("sum", "prod") else inner
        case Scan(body=body):
            return kind(body, kinds, values)
        case Composite():
            return "float"


def _applied(op: str, kinds: list[str], args: tuple[Expr, ...]) -> str:
    if op in PREDICATES or op == KEEP:
        return "bool"
    if op in _ROUNDED:
        return "int"
    if op == "where":
        both = set(kinds[1:])
        return both.pop() if len(both) == 1 else "float" if "float" in both else "int"
    if op in CASTS:  # a cast to integers leaves a fraction as it is: values are not rounded
        return kinds[0] if DTYPES[op].kind == "int" else DTYPES[op].kind
    whole = "float" not in kinds
    if op in _WHOLE:
        return "int" if whole else "float"
    exponent = args[1] if op == "pow" else None
    if whole and isinstance(exponent, Number) and exponent.value >= 0:
        return "int"
    return "float"
