"""What index arrays may hold: places of the arrays that are looked up by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ioweave.derive.execution.grid import CELLS, Grid, Values, gather
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Expr, Read, children, reads, value_of
from ioweave.diagrams.notation.reach import reach


@dataclass(frozen=True, slots=True)
class Use:
    """One place at which an array of ``length`` is looked up by an index array.

    Numbers of ``0 .. high`` in every index array of ``form`` are in range; there are none where ``high`` is -1.
    """

    array: str
    form: Affine
    high: int
    length: int
    guarded: bool


def uses(name: str, diagram: Diagram, values: Mapping[str, int | float]) -> tuple[Use, ...]:
    """Every place where what ``name`` holds decides a position."""
    sizes = {n: int(v) for n, v in values.items()}
    dims = {i.name: tuple(form.fixed(sizes) for form in i.dims) for i in diagram.inputs}
    dims.update({line.name: tuple(sizes[a] for a in line.axes) for line in diagram.lines})
    found: dict[Use, None] = {}
    for line in diagram.lines:
        for read, guarded in _reads(line.expr, False):
            for form, n in zip(read.index, dims.get(read.array, ()), strict=False):
                arrays = {a for lookup, _ in form.lookups for a in _sources(lookup.expr)}
                if name in arrays:
                    found.setdefault(Use(read.array, form, _highest(form, arrays, n, values), n, guarded))
    return tuple(found)


def _reads(e: Expr, guarded: bool) -> Iterator[tuple[Read, bool]]:
    """Every read, with whether a `where` may leave it out."""
    if isinstance(e, Read):
        yield e, guarded
    for k, child in enumerate(children(e)):
        yield from _reads(child, guarded or (isinstance(e, Apply) and e.op == "where" and k > 0))


def _sources(e: Expr) -> Iterator[str]:
    """The arrays whose values enter an expression; not those that only say where to read them."""
    if isinstance(e, Read):
        yield e.array
        return
    for child in children(e):
        yield from _sources(child)


def _highest(form: Affine, arrays: set[str], length: int, values: Mapping[str, int | float]) -> int:
    """The greatest number that every index array of a form may hold, by bisection; -1 if there is none."""
    least, most = -1, 1
    while most < 1 << 40 and _fits(form, dict.fromkeys(arrays, (0, most)), length, values):
        most *= 2
    if most >= 1 << 40:  # every number leads somewhere
        return length - 1
    while most - least > 1:
        middle = (least + most) // 2
        fits = _fits(form, dict.fromkeys(arrays, (0, middle)), length, values)
        least, most = (middle, most) if fits else (least, middle)
    return least


def _fits(form: Affine, spans: Mapping[str, tuple[int, int]], length: int, values: Mapping[str, int | float]) -> bool:
    low, high = reach(value_of(form), values, spans)
    return low >= 0 and high < length


def check_places(name: str, array: Values, diagram: Diagram, values: Mapping[str, int | float]) -> None:
    """Raise WeaveError where a given index array names a place that is not there, and nothing guards against it.

    A position that other arrays decide too is not judged.
    """
    for use in uses(name, diagram, values):
        if use.guarded or not array.size:
            continue
        spans = {name: (int(array.min()), int(array.max()))}
        if _fits(use.form, spans, use.length, values) or {r.array for r in reads(value_of(use.form))} != {name}:
            continue
        grid = Grid.over({a: (0, int(values[a])) for a in use.form.names}, values)
        cells = 1
        for a in use.form.names:
            cells *= grid.extent(a)
        if cells > CELLS:
            continue

        def read(r: Read, at: Grid) -> Values:
            return gather(array, tuple(at.form(f, read) for f in r.index))

        places = grid.form(use.form, read)
        for worst in (int(places.min()), int(places.max())):
            if not 0 <= worst < use.length:
                raise WeaveError(
                    f"the array given for `{name}` leads to place {worst} of {use.array}, whose places there are "
                    f"0 to {use.length - 1}"
                )
