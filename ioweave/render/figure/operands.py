"""What a line reads, as a column draws it: arrays whose values enter, and arrays that say where to read those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Apply, Expr, Read, operands, reads
from ioweave.render.figure.mathematics import position
from ioweave.render.figure.names import POINT
from ioweave.render.figure.spec import OperandSpec


def operand_specs(expr: Expr, early: Expr, own: str, names: Mapping[str, str]) -> tuple[OperandSpec, ...]:
    """The operands of a line in order of appearance, each before the arrays that say where it is read.

    ``early`` is the part of ``expr`` whose operands meet before the operation; ``own`` the line's own name, whose
    earlier values are no operand; ``names`` maps the line's axes to components.
    """
    out: list[OperandSpec] = []
    inner = operands(early)
    for read in operands(expr):
        if read.array != own:
            _add(out, read, None, read not in inner, names)
    return tuple(out)


def _add(
    out: list[OperandSpec], read: Read, feeds: tuple[int, int] | None, late: bool, names: Mapping[str, str]
) -> None:
    at = len(out)
    out.append(replace(_operand(read, names), key=at, feeds=feeds, late=late))
    for p, form in enumerate(read.index):
        for found in _lookups(form):
            _add(out, found, (at, p), late, names)


def _lookups(form: Affine) -> Iterator[Read]:
    """The arrays that a position looks up."""
    for lookup, _ in form.lookups:
        yield from operands(lookup.expr)


def _operand(read: Read, names: Mapping[str, str]) -> OperandSpec:
    dims = tuple(tuple(names.get(a, a) for a in form.names) for form in read.index)
    shifted = tuple(p for p, form in enumerate(read.index) if form.names and form.bare is None)
    gathered = tuple(p for p, form in enumerate(read.index) if any(_lookups(form)))
    maps = tuple((p, f"${position(form)}$") for p, form in enumerate(read.index) if _is_map(form))
    return OperandSpec(read.array, dims or ((POINT,),), shifted, gathered=gathered, maps=maps)


def _is_map(form: Affine) -> bool:
    """Whether a position is a quotient or a remainder of indices, worth its name in the figure."""
    return bool(form.lookups) and all(isinstance(x.expr, Apply) and not reads(x.expr) for x, _ in form.lookups)
