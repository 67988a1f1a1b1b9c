"""Putting a diagram together from its parts, with the checks that Python's builders share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ioweave.diagrams.diagram import Definition, Diagram, Input, Line
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Constant,
    Expr,
    Number,
    Read,
    Scan,
    Size,
    reads,
    transform,
    walk,
)
from ioweave.diagrams.notation import parse, print_diagram
from ioweave.diagrams.parts import definition
from ioweave.diagrams.sizes import as_size, axis_names


def assemble(
    definitions: Iterable[Definition],
    inputs: Iterable[Input],
    lines: tuple[Line, ...],
    sizes: Mapping[str, int | float | str],
    out: Iterable[str],
    name: str,
    doc: str,
) -> Diagram:
    """The diagram of these parts; ``sizes`` come first and override, unread lines are outputs.

    Outputs stand as the notation has them: those in ``out`` first, in that order, the last line last.

    Raises WeaveError if there is no line, a name stands twice, an axis has no size or is sized
    by something other than a positive integer, a read finds no array or the wrong rank,
    ``out`` names no line, or for anything that the notation refuses.
    """
    inputs = tuple(inputs)
    if not lines:
        raise WeaveError("nothing is computed; give the diagram at least one line, e.g. diagram(O=O)")
    _unique([*(i.name for i in inputs), *(n.name for n in lines)])
    given = _definitions(definitions, sizes)
    _check_reads(inputs, lines)
    wanted = tuple(out)
    made = [line.name for line in lines]
    if missing := [n for n in wanted if n not in made]:
        raise WeaveError(f"out names {missing[0]}, which is no line; the lines are {', '.join(made)}")
    read = {r.array for line in lines for r in reads(line.expr) if r.array != line.name}
    marked = dict.fromkeys((*wanted, *(n for n in made if n not in read)))
    draft = Diagram(name, given, inputs, lines, tuple(marked), doc)
    axes = axis_names(draft)
    draft = replace(draft, lines=tuple(_sized(line, frozenset(axes)) for line in lines))
    _check_names(draft, axes)
    check_as_text(draft)
    return draft


def check_as_text(diagram: Diagram) -> None:
    """Every check that the notation makes: reads in range, bound axes, divisors, names, depth.

    Raises the notation's WeaveError, without a place, since nobody wrote the text.
    """
    try:
        parse(print_diagram(diagram))
    except WeaveError as error:
        raise WeaveError(error.message) from None


def _unique(names: list[str]) -> None:
    for n in names:
        if names.count(n) > 1:
            raise WeaveError(f"two arrays are called {n}; rename one of them")


def _definitions(definitions: Iterable[Definition], sizes: Mapping[str, int | float | str]) -> tuple[Definition, ...]:
    given = {n: definition(n, v) for n, v in sizes.items()}
    for d in definitions:
        given.setdefault(d.name, d)
    return tuple(given.values())


def _sized(line: Line, axes: frozenset[str]) -> Line:
    """The line with names of axes that stand as values read as their sizes."""

    def step(node: Expr) -> Expr:
        return Size(node.name) if isinstance(node, Constant) and node.name in axes else node

    return Line(line.name, line.axes, transform(line.expr, step), line.dtype, line.position)


def _check_names(diagram: Diagram, axes: Iterable[str]) -> None:
    values = {d.name: d.value for d in diagram.definitions}
    for axis in axes:
        if axis not in values:
            raise WeaveError(f"axis {axis} has no size; give it one, e.g. sizes={{'{axis}': 64}}")
        size = values[axis]
        if isinstance(size, Number):
            as_size(axis, size.value)
    nodes = [n for line in diagram.lines for n in walk(line.expr)]
    used = [n.name for n in nodes if isinstance(n, Constant)] + [n.axis for n in nodes if isinstance(n, Size)]
    used += [s for n in nodes if isinstance(n, Read) for form in n.index for s, _ in form.sizes]
    used += [s for i in diagram.inputs for form in i.dims for s, _ in form.sizes]
    used += [n.name for d in diagram.definitions for n in walk(d.value) if isinstance(n, Constant)]
    for name in used:
        if name not in values:
            raise WeaveError(f"{name} is used but has no value; give it one, e.g. sizes={{'{name}': 64}}")


def _check_reads(inputs: tuple[Input, ...], lines: tuple[Line, ...]) -> None:
    ranks = {i.name: len(i.dims) for i in inputs}
    for line in lines:
        if isinstance(line.expr, Scan):  # it reads what it has made so far
            ranks[line.name] = len(line.axes)
        for r in reads(line.expr):
            if r.array not in ranks:
                raise WeaveError(f"{line.name} reads {r.array}, which is neither an input nor an earlier line")
            if len(r.index) != ranks[r.array]:
                raise WeaveError(
                    f"{line.name} reads {r.array} with {len(r.index)} indices; it has {ranks[r.array]} axes"
                )
        ranks[line.name] = len(line.axes)
