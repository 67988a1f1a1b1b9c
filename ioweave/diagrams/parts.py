"""Small parts that Python's builders of diagrams share: names, numbers, dimensions, order."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Definition, Line
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Lookup, Number, Size, reads


def definition(name: str, value: object) -> Definition:
    """``name = value`` as the notation reads it; a string ties the name to another one.

    Raises WeaveError unless the value is a number or a name.
    """
    check_name(name)
    if isinstance(value, str):
        check_name(value)
        return Definition(name, Constant(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WeaveError(f"{name} = {value!r} is no number; write an integer, a float or the name of another size")
    return Definition(name, Number(value))


def parse_fact(name: str, fact: str | None) -> tuple[str, float] | None:
    """``"> 0"`` as the pair that an `Input` carries; WeaveError if it is no comparison with a number."""
    if fact is None:
        return None
    for sign in (">=", "<=", ">", "<"):
        if fact.strip().startswith(sign):
            try:
                return sign, float(fact.strip().removeprefix(sign))
            except ValueError:
                break
    raise WeaveError(f"{name}: the fact {fact!r} is not understood; write a comparison with a number, e.g. '> 0'")


def check_name(name: str) -> None:
    """Raise WeaveError unless ``name`` can stand in the notation (dots included)."""
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split(".")):
        raise WeaveError(f"{name!r} is no name; write letters, digits and underscores, e.g. S or P_1")


def check_dtype(name: str, dtype: str | None) -> None:
    """Raise WeaveError for an unknown element type, with the nearest known one."""
    if dtype is not None and dtype not in DTYPES:
        near = difflib.get_close_matches(dtype, DTYPES, n=1, cutoff=0.0)[0]
        raise WeaveError(f"{name}: unknown dtype {dtype}; did you mean {near}? (known: {', '.join(DTYPES)})")


def affine(e: Expr) -> Affine | None:
    """The expression as an integer combination of indices and sizes, or None if it is none."""
    match e:
        case Index(axis=axis):
            return Affine.axis(axis)
        case Size(axis=axis) | Constant(name=axis):
            return Affine.make({}, {axis: 1})
        case Number(value=int(value)):
            return Affine.make({}, {}, int(value))
        case Apply(op="neg", args=(a,)):
            inner = affine(a)
            return None if inner is None else inner.scale(-1)
        case Apply(op="add" | "sub" | "mul" as op, args=(a, b)):
            left, right = affine(a), affine(b)
            if left is None or right is None:
                return None
            if op != "mul":
                return left + (right if op == "add" else right.scale(-1))
            for one, other in ((left, right), (right, left)):
                if not one.axes and not one.sizes:
                    return other.scale(one.offset)
            return None
        case _:
            return None


def position(e: Expr) -> Affine:
    """The expression as an index: affine where it is, and what is not as lookups (`ioweave.diagrams.affine`)."""
    found = affine(e)
    if found is not None:
        return found
    match e:
        case Apply(op="neg", args=(a,)):
            return position(a).scale(-1)
        case Apply(op="add" | "sub" as op, args=(a, b)):
            return position(a) + position(b).scale(1 if op == "add" else -1)
        case Apply(op="mul", args=(Number(value=int() as factor), other) | (other, Number(value=int() as factor))):
            return position(other).scale(int(factor))
    return Affine.make({}, {}, 0, {Lookup(e): 1})


def as_dim(form: Affine) -> Affine:
    """A position read as a dimension: its axes stand for their sizes."""
    return Affine((), form.axes) + Affine.make({}, dict(form.sizes), form.offset)


def ordered(lines: tuple[Line, ...], wanted: Iterable[str]) -> tuple[Line, ...]:
    """The lines in the order of ``wanted``, the others and every operand as early as needed."""
    by_name = {line.name: line for line in lines}
    placed: dict[str, Line] = {}

    def place(line: Line) -> None:
        if line.name in placed:
            return
        for r in reads(line.expr):
            if r.array in by_name and r.array != line.name:
                place(by_name[r.array])
        placed[line.name] = line

    for name in (*wanted, *by_name):
        if name in by_name:
            place(by_name[name])
    return tuple(placed.values())
