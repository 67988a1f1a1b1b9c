"""Inputs for a check, drawn in order of declaration (counting.md 32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from ioweave.derive.execution.grid import Values
from ioweave.derive.execution.index_values import check_places, uses
from ioweave.diagrams.diagram import Diagram, Input
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size, walk
from ioweave.diagrams.operators import COMPARISONS

Kind = Literal["plain", "zeros", "constant"]
ABOVE = 0.1  # what a positive input adds to an absolute value


def draw_inputs(
    diagram: Diagram, values: Mapping[str, int | float], seed: int, kind: Kind = "plain"
) -> dict[str, Values]:
    """Arrays for every input from ``numpy.random.default_rng(seed)``.

    ``kind`` sets a block of some float arrays to zero (never where it is declared positive) or
    to one constant, after everything is drawn.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[str, Values] = {}
    for i in diagram.inputs:
        shape = tuple(form.fixed({n: int(v) for n, v in values.items()}) for form in i.dims)
        arrays[i.name] = _draw(i, shape, diagram, values, rng)
    if kind != "plain":
        for i in diagram.inputs:
            if DTYPES[i.dtype].kind == "float":
                _set_block(arrays[i.name], i, kind, rng)
    return arrays


def given_inputs(
    diagram: Diagram, values: Mapping[str, int | float], arrays: Mapping[str, Values]
) -> dict[str, Values]:
    """Arrays given for the inputs, by name, as float64, int64 or bool.

    Raises WeaveError for a missing array, a name that is no input, a wrong shape or kind.
    """
    names = [i.name for i in diagram.inputs]
    for name in arrays:
        if name not in names:
            raise WeaveError(f"`{name}` is given but is no input; the inputs are {', '.join(names)}")
    result: dict[str, Values] = {}
    for i in diagram.inputs:
        if i.name not in arrays:
            raise WeaveError(f"no array is given for the input `{i.name}`; the inputs are {', '.join(names)}")
        array = np.asarray(arrays[i.name])
        shape = tuple(form.fixed({n: int(v) for n, v in values.items()}) for form in i.dims)
        if array.shape != shape:
            raise WeaveError(f"the array given for `{i.name}` has shape {array.shape}; at these sizes it is {shape}")
        kind = DTYPES[i.dtype].kind
        if array.dtype.kind not in {"float": "fiub", "int": "iu", "bool": "b"}[kind]:
            raise WeaveError(f"the array given for `{i.name}` holds {array.dtype}; it is declared {i.dtype}")
        if kind == "int":
            check_places(i.name, array, diagram, values)
        result[i.name] = array.astype({"float": np.float64, "int": np.int64, "bool": np.bool_}[kind])
    return result


def _draw(
    i: Input, shape: tuple[int, ...], diagram: Diagram, values: Mapping[str, int | float], rng: np.random.Generator
) -> Values:
    match DTYPES[i.dtype].kind:
        case "bool":
            return rng.integers(0, 2, shape).astype(bool)
        case "int":
            first = 0 if i.fact is None or i.fact[0] not in (">", ">=") else int(i.fact[1]) + (i.fact[0] == ">")
            after = integer_range(i.name, diagram, values)
            if i.fact is not None and i.fact[0] in ("<", "<="):
                after = min(after, int(i.fact[1]) + (i.fact[0] == "<="))
            return rng.integers(first, max(after, first + 1), shape)
    normal = np.asarray(rng.standard_normal(shape))
    return normal if i.fact is None else _with_fact(normal, *i.fact)


def _with_fact(normal: Values, sign: str, bound: float) -> Values:
    """Standard normal values moved to where a fact holds."""
    match sign:
        case ">":
            return np.abs(normal) + ABOVE + bound
        case ">=":
            return np.abs(normal) + bound
        case "<":
            return bound - ABOVE - np.abs(normal)
        case "<=":
            return bound - np.abs(normal)
    return normal


def integer_range(name: str, diagram: Diagram, values: Mapping[str, int | float]) -> int:
    """One more than the greatest value to draw: the size of the axis that it indexes, or is compared with."""
    places = [use for use in uses(name, diagram, values) if use.high >= 0 or not use.guarded]
    if places:
        use = min(places, key=lambda u: u.high)
        if use.high < 0:
            raise WeaveError(
                f"`{name}` leads to places of {use.array}, and at these sizes 0 leads to none: "
                f"the axis has {use.length}"
            )
        return use.high + 1
    found: list[int] = []
    for line in diagram.lines:
        for node in walk(line.expr):
            if isinstance(node, Apply) and node.op in COMPARISONS:
                for side, other in (node.args, node.args[::-1]):
                    if any(isinstance(n, Read) and n.array == name for n in walk(side)):
                        found.extend(_extents(other, values))
    return max(found, default=8)


def _extents(e: Expr, values: Mapping[str, int | float]) -> list[int]:
    found: list[int] = []
    for n in walk(e):
        match n:
            case Index(axis=axis) | Size(axis=axis):
                found.append(int(values[axis]))
            case Number(value=value):
                found.append(int(value) + 2 if abs(value) < 2**31 else 1)
            case Constant(name=constant):
                found.append(int(values[constant]) + 2)
    return found


def _set_block(array: Values, i: Input, kind: Kind, rng: np.random.Generator) -> None:
    """Overwrite a random block along the first axes with zeros or one constant, in place."""
    positive = i.fact is not None and i.fact[0] in (">", "<")
    value = 0.0 if kind == "zeros" else float(array.reshape(-1)[0])
    if kind == "zeros" and (positive or (i.fact is not None and i.fact[1] != 0)):
        return
    index = []
    for n in array.shape:
        lo = int(rng.integers(0, 2)) * int(rng.integers(0, n))  # often from the start: a first block
        index.append(slice(lo, int(rng.integers(lo + 1, n + 1))))
    array[tuple(index)] = value
