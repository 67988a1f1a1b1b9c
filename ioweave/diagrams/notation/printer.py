"""Diagram to text: parsing what is printed gives an equal diagram."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Definition, Diagram, Input, Line
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
    walk,
)
from ioweave.diagrams.operators import COMPARISONS, COMPOSITES_THAT_REDUCE, KEEP, OPERATORS, REVERSED, REVERSIBLE
from ioweave.diagrams.sizes import axis_names

WIDTH = 110
_ATOM = 100
_CHAIN = 40
_SUM, _PRODUCT = 60, 70
_UNARY = 80
_POWER = 90


def print_diagram(diagram: Diagram) -> str:
    """The text of a diagram, its description first and its outputs last."""
    axes = frozenset(axis_names(diagram))
    body = [print_line(line, axes) for line in diagram.lines]
    return "\n".join([*header(diagram), *body, *footer(diagram)]) + "\n"


def header(diagram: Diagram) -> list[str]:
    """Description, definitions and inputs, a blank line between them."""
    text: list[str] = []
    if diagram.doc:
        text.append(docstring(diagram.doc))
    text.extend(print_definitions(diagram.definitions))
    if diagram.inputs:
        if text:
            text.append("")
        order = tuple(d.name for d in diagram.definitions)
        text.extend(print_input(i, order) for i in diagram.inputs)
    elif text:
        text.append("")
    return text


def footer(diagram: Diagram) -> list[str]:
    """``out(...)`` for outputs other than the last line; the last line too where it is not the last output."""
    last = diagram.lines[-1].name if diagram.lines else ""
    marked = diagram.outputs[:-1] if diagram.outputs and diagram.outputs[-1] == last else diagram.outputs
    return [f"out({', '.join(marked)})"] if marked else []


def docstring(doc: str) -> str:
    """The description in triple quotes; after several lines the closing ones stand alone."""
    escaped = doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if escaped.endswith('"'):
        escaped = escaped[:-1] + '\\"'
    end = "\n" if "\n" in doc else ""
    return f'"""{escaped}{end}"""'


def print_definitions(definitions: Iterable[Definition]) -> list[str]:
    """One line for each run of whole numbers, one for every other definition."""
    text: list[str] = []
    run: list[Definition] = []

    def flush() -> None:
        if run:
            text.append(f"{', '.join(d.name for d in run)} = {', '.join(print_expr(d.value) for d in run)}")
            run.clear()

    for d in definitions:
        if isinstance(d.value, Number) and type(d.value.value) is int:
            run.append(d)
            if sum(len(r.name) + len(print_expr(r.value)) + 4 for r in run) > WIDTH:
                last = run.pop()
                flush()
                run.append(last)
        else:
            flush()
            text.append(f"{d.name} = {print_expr(d.value)}")
    flush()
    return text


def print_input(i: Input, order: Sequence[str] = ()) -> str:
    """``X[q, d]: fp16 > 0``; sizes in a sum follow ``order``."""
    dims = f"[{', '.join(print_affine(d, order=order) for d in i.dims)}]" if i.dims else ""
    fact = "" if i.fact is None else f" {i.fact[0]} {_number(i.fact[1], whole=True)}"
    return f"{i.name}{dims}: {i.dtype}{fact}"


def print_line(line: Line, axes: Iterable[str] = ()) -> str:
    """``S[q, x]: fp32 = ...``; ``axes`` are the names that stand as axes elsewhere in the diagram."""
    reads = any(isinstance(n, Read | Reduce | Scan | Composite) for n in walk(line.expr))
    bracket = f"[{', '.join(line.axes)}]" if line.axes else "" if reads or line.dtype else "[()]"
    dtype = f": {line.dtype}" if line.dtype else ""
    known = (
        frozenset(axes)
        | set(line.axes)
        | {a for n in walk(line.expr) if isinstance(n, Reduce | Composite) for a in n.axes}
        | {n.axis for n in walk(line.expr) if isinstance(n, Scan)}
    )
    return f"{line.name}{bracket}{dtype} = {_Printer(known).text(line.expr, line.axes)}"


def print_expr(e: Expr, bound: Sequence[str] = (), axes: Iterable[str] = ()) -> str:
    """One expression, with as few parentheses as it needs; a bound axis' size is ``size(d)``."""
    known = frozenset(axes) | frozenset(bound) | {n.axis for n in walk(e) if isinstance(n, Size | Index)}
    return _Printer(known).text(e, tuple(bound))


def print_affine(form: Affine, sized: Iterable[str] = (), order: Sequence[str] = ()) -> str:
    """An index or dimension; sizes of the axes in ``sized`` are written ``size(d)``.

    Terms follow ``order``; axes come before sizes.
    """
    wrap = frozenset(sized)
    place = {name: i for i, name in enumerate(order)}
    axes = sorted(form.axes, key=lambda t: place.get(t[0], len(place)))
    sizes = sorted(form.sizes, key=lambda t: place.get(t[0], len(place)))
    parts: list[str] = []
    inner = _Printer(wrap)

    def add(name: str, c: int) -> None:
        term = name if abs(c) == 1 else f"{abs(c)} * {name}"
        parts.append((" - " if c < 0 else " + ") + term if parts else ("-" if c < 0 else "") + term)

    for axis, c in axes:
        add(axis, c)
    for lookup, c in form.lookups:
        least = _PRODUCT + 1 if abs(c) > 1 else _UNARY + 1 if c < 0 and not parts else _SUM + 1
        add(inner.at(lookup.expr, tuple(order), least), c)
    for size, c in sizes:
        add(f"size({size})" if size in wrap else size, c)
    if form.offset or not parts:
        parts.append((" - " if form.offset < 0 else " + ") + str(abs(form.offset)) if parts else str(form.offset))
    return "".join(parts)


def _number(value: int | float | bool, whole: bool = False) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if whole and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


class _Printer:
    """Prints expressions; ``axes`` are the diagram's axes."""

    def __init__(self, axes: frozenset[str]) -> None:
        self.axes = axes

    def text(self, e: Expr, bound: tuple[str, ...]) -> str:
        return self.show(e, bound)[0]

    def at(self, e: Expr, bound: tuple[str, ...], least: int) -> str:
        """The text, in parentheses if it binds less tightly than ``least``."""
        text, strength = self.show(e, bound)
        return text if strength >= least else f"({text})"

    def show(self, e: Expr, bound: tuple[str, ...]) -> tuple[str, int]:
        """The text and how tightly its outermost operator binds."""
        match e:
            case Number(value=value):
                text = _number(value)
                return text, _UNARY if text.startswith("-") else _ATOM
            case Constant(name=name) | Index(axis=name):
                return name, _ATOM
            case Size(axis=axis):
                return (axis if axis in self.axes and axis not in bound else f"size({axis})"), _ATOM
            case Read(array=array, index=index):
                if not index:
                    return array, _ATOM
                return f"{array}[{', '.join(print_affine(f, self.axes, bound) for f in index)}]", _ATOM
            case Apply(op=op, args=args):
                return self.apply(e, op, args, bound)
            case Reduce(op=op, axes=axes, body=body, where=where, into=into):
                inner = _within(bound, axes)
                masked = "" if where is None else f", where={self.text(where, inner)}"
                listed = "" if into is None else f", into={into}"
                return f"{op}[{', '.join(axes)}]({self.text(body, inner)}{listed}{masked})", _ATOM
            case Scan(axis=axis, body=body, start=start, backward=backward):
                option = f", {REVERSED}=True" if backward else ""
                return f"scan[{axis}{option}]({self.text(body, bound)}, start={self.text(start, bound)})", _ATOM
            case Composite(op=op, axes=axes, args=args, options=options):
                inner = _within(bound, axes) if op in COMPOSITES_THAT_REDUCE else bound
                given = [f"{k}={self.text(v, bound)}" for k, v in options]
                way = given if op in REVERSIBLE else []
                parts = [self.text(a, inner) for a in args] + [g for g in given if g not in way]
                return f"{op}[{', '.join((*axes, *way))}]({', '.join(parts)})", _ATOM

    def apply(self, e: Apply, op: str, args: tuple[Expr, ...], bound: tuple[str, ...]) -> tuple[str, int]:
        operator = OPERATORS[op]
        if op == KEEP:
            return f"{KEEP}({', '.join(self.text(a, bound) for a in args[1:])}, p={self.text(args[0], bound)})", _ATOM
        if operator.symbol is None or (op == "neg" and _positive(args[0])):
            return f"{op}({', '.join(self.text(a, bound) for a in args)})", _ATOM
        strength = operator.precedence
        if op == "neg":
            return f"-{self.at(args[0], bound, strength)}", strength
        if op == "not":
            return f"not {self.at(args[0], bound, strength)}", strength
        left, right = args
        if op == "pow":
            return f"{self.at(left, bound, _POWER + 1)}**{self.at(right, bound, _UNARY)}", strength
        if op in COMPARISONS:
            return f"{self.at(left, bound, _CHAIN + 1)} {operator.symbol} {self.at(right, bound, _CHAIN + 1)}", strength
        if op == "and" and (chain := _chain(e)) is not None:
            parts = [self.at(chain[0].args[0], bound, _CHAIN + 1)]
            for link in chain:
                parts.append(f"{OPERATORS[link.op].symbol} {self.at(link.args[1], bound, _CHAIN + 1)}")
            return " ".join(parts), _CHAIN
        return f"{self.at(left, bound, strength)} {operator.symbol} {self.at(right, bound, strength + 1)}", strength


def _within(bound: tuple[str, ...], axes: tuple[str, ...]) -> tuple[str, ...]:
    return (*bound, *(a for a in axes if a not in bound))


def _positive(e: Expr) -> bool:
    """Whether ``-e`` would be read as a number."""
    return isinstance(e, Number) and not isinstance(e.value, bool) and not _number(e.value).startswith("-")


def _chain(e: Expr) -> list[Apply] | None:
    """The comparisons of ``a < b < c``, if a conjunction is one."""
    links: list[Apply] = []
    while isinstance(e, Apply) and e.op == "and":
        last = e.args[1]
        if not (isinstance(last, Apply) and last.op in COMPARISONS):
            return None
        links.insert(0, last)
        e = e.args[0]
    if not (isinstance(e, Apply) and e.op in COMPARISONS):
        return None
    links.insert(0, e)
    for a, b in pairwise(links):
        if repr(a.args[1]) != repr(b.args[0]):  # repr, since 1 == 1.0 == True
            return None
    return links
