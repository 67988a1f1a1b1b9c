"""Signatures: the inputs of a term with their axes, and a line of text as one box."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Line
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.elaborate import elaborate
from ioweave.diagrams.notation.parser import parse_text
from ioweave.diagrams.notation.syntax import (
    Assign,
    Binary,
    Call,
    Declare,
    Literal,
    Name,
    Node,
    Subscript,
    Text,
    Unary,
    nodes,
)
from ioweave.diagrams.operators import SCAN
from ioweave.diagrams.parts import check_dtype

FILE = "<box>"
_FAR = 1 << 20


@dataclass(frozen=True, slots=True)
class Port:
    """An input of a term.

    ``dims`` are its dimensions as in a declaration; None stands where the reads do not tell.
    ``declared`` sets dimensions that were written down above those that follow from reads.
    """

    name: str
    dims: tuple[Affine | None, ...]
    declared: bool = field(default=False, compare=False)
    dtype: str | None = None
    fact: tuple[str, float] | None = None

    def __str__(self) -> str:
        dims = ", ".join("?" if d is None else str(d) for d in self.dims)
        return f"{self.name}[{dims}]" if self.dims else self.name

    def woven(self, axis: str, place: int) -> Port:
        """The port with a further axis at ``place``; WeaveError if it has that axis."""
        if any(d is not None and axis in dict(d.sizes) for d in self.dims):
            raise WeaveError(
                f"weave: {self} has an axis {axis} already; weave over another name, or relabel({axis}=...)"
            )
        added: Affine | None = Affine.make({}, {axis: 1})
        return replace(self, dims=(*self.dims[:place], added, *self.dims[place:]))

    def relabelled(self, axes: Mapping[str, str]) -> Port:
        """The port with axes renamed."""

        def renamed(d: Affine | None) -> Affine | None:
            return d and Affine.make({}, {axes.get(a, a): c for a, c in d.sizes}, d.offset)

        return replace(self, dims=tuple(renamed(d) for d in self.dims))


def merge(ports: tuple[Port, ...], more: Iterable[Port]) -> tuple[Port, ...]:
    """The ports, those of one name made one; WeaveError if they cannot be one array."""
    found = {p.name: p for p in ports}
    for p in more:
        found[p.name] = _one(found[p.name], p) if p.name in found else p
    return tuple(found.values())


def _one(a: Port, b: Port) -> Port:
    """Both ports as one array: a declaration stands above reads, and reads that differ tell nothing."""
    if len(a.dims) != len(b.dims):
        raise WeaveError(f"{a} and {b} are one array with {len(a.dims)} and {len(b.dims)} axes; rename one of them")
    if a.declared and b.declared and a.dims != b.dims:
        raise WeaveError(f"{a.name} is declared as {a} and as {b}; give the two arrays different names")
    for x, y in ((a.dtype, b.dtype), (a.fact, b.fact)):
        if x is not None and y is not None and x != y:
            raise WeaveError(f"{a.name} is declared with {x} and with {y}; give the two arrays different names")
    if a.declared or b.declared:
        dims = a.dims if a.declared else b.dims
    else:
        dims = tuple(x if x == y else None for x, y in zip(a.dims, b.dims, strict=True))
    return Port(a.name, dims, a.declared or b.declared, a.dtype or b.dtype, a.fact or b.fact)


def read_port(text: str) -> Port:
    """A signature such as ``X[i + k - 1, c]: fp16 > 0``; the dtype and the fact may be left out."""
    typed = ":" in text
    statements = parse_text(text if typed else f"{text}: fp16", FILE).statements
    if len(statements) != 1 or not isinstance(statements[0], Declare):
        raise WeaveError(f"{text!r} is no signature; write one such as 'Q[q, d]' or 'Q[q, d]: fp16'")
    declare = statements[0]
    check_dtype(declare.name, declare.dtype.name)
    dims = tuple(_dimension(declare.name, d) for d in declare.dims)
    fact = None if declare.fact is None else (declare.fact[0], _number(declare.name, declare.fact[1]))
    return Port(declare.name, dims, True, declare.dtype.name if typed else None, fact)


def _dimension(array: str, node: Node) -> Affine:
    """Integer arithmetic on sizes."""
    match node:
        case Name(name=name):
            return Affine.make({}, {name: 1})
        case Literal(value=int(value)):
            return Affine.make({}, {}, int(value))
        case Unary(op="neg", operand=operand):
            return _dimension(array, operand).scale(-1)
        case Binary(op="add" | "sub" as op, left=left, right=right):
            return _dimension(array, left) + _dimension(array, right).scale(1 if op == "add" else -1)
        case Binary(op="mul", left=left, right=right):
            factors = _dimension(array, left), _dimension(array, right)
            for one, other in (factors, factors[::-1]):
                if not one.sizes:
                    return other.scale(one.offset)
    raise WeaveError(
        f"a dimension of {array} is not affine; write an axis, or arithmetic such as i + k - 1", node.position
    )


def _number(array: str, node: Node) -> float:
    match node:
        case Literal(value=value):
            return float(value)
        case Unary(op="neg", operand=operand):
            return -_number(array, operand)
    raise WeaveError(f"the fact of {array} is no comparison with a number; write one such as > 0", node.position)


def read_box(text: str, signatures: Iterable[str]) -> tuple[tuple[Port, ...], Line]:
    """One line of the notation as its ports, in order of first read, and its line.

    Raises WeaveError if the text is not one line, or as the notation does.
    """
    statements = parse_text(text, FILE).statements
    if len(statements) != 1 or not isinstance(statements[0], Assign):
        raise WeaveError("a box is one line, e.g. box('S[q, x] = sum[d](Q[q, d] * K[x, d])'); join lines with >>")
    line = statements[0]
    given = {p.name: p for p in map(read_port, signatures)}
    seen = _reads(line, frozenset(given))
    if unused := [n for n in given if n not in seen]:
        raise WeaveError(f"box: {line.name} does not read {unused[0]}; leave its signature out")
    ports = tuple(given.get(n) or p for n, p in seen.items())
    return ports, _elaborated(line, ports)


def _elaborated(line: Assign, ports: tuple[Port, ...]) -> Line:
    """The line alone, read amid axes of size 1 and inputs so large that no index leaves them."""
    here = line.position
    every = [n for root in (*(line.axes or ()), line.value) for n in nodes(root)]
    axes = _axes(line)
    names = {n.name for n in every if isinstance(n, Name)} - {p.name for p in ports} - {"inf", line.name}
    chances = {k.value.name for n in every if isinstance(n, Call) for k in n.keywords if isinstance(k.value, Name)}
    values = {n: Literal(1, here) if n in axes else Literal(_FAR, here) for n in names}
    values.update({n: Literal(0.0, here) for n in chances & names - axes})  # an option is a constant, as small as any
    sizes = tuple(Assign(n, None, None, values[n], here) for n in sorted(names))
    looked = {m.array for n in every if isinstance(n, Subscript) for i in n.index for m in _arrays(i)}
    inputs = tuple(
        Declare(
            p.name,
            tuple(Literal(_FAR * _FAR, here) for _ in p.dims),
            Name(p.dtype or ("int32" if p.name in looked else "fp16"), here),
            None,
            here,
        )
        for p in ports
    )
    # a bare index is an axis, so that one which nothing binds is an error
    index = {i.name: i for n in every if isinstance(n, Subscript) for i in n.index if isinstance(i, Name)}
    loose = Declare("_loose", tuple(i for n, i in index.items() if n not in axes), Name("fp16", here), None, here)
    return elaborate(Text(FILE, "", (*sizes, *inputs, loose, line))).diagram.lines[0]


def _axes(line: Assign) -> frozenset[str]:
    """The axes that a line binds."""
    calls = (n for n in nodes(line.value) if isinstance(n, Call))
    bound = [a for n in calls for a in n.axes or ()] + list(line.axes or ())
    return frozenset(a.name for a in bound if isinstance(a, Name))


def _arrays(index: Node) -> tuple[Subscript, ...]:
    """The arrays that an index is looked up in."""
    return tuple(n for n in nodes(index) if isinstance(n, Subscript))


def _check_index(array: str, index: Node, axes: frozenset[str]) -> None:
    """Sizes in an index may only be added, or divide one: their product has no value before they have one."""
    for n in nodes(index):
        if isinstance(n, Binary) and n.op not in ("add", "sub"):
            sides = [any(isinstance(m, Name) for m in nodes(side)) for side in (n.left, n.right)]
            varies = any((isinstance(m, Name) and m.name in axes) or isinstance(m, Subscript) for m in nodes(n.left))
            if n.op in ("floordiv", "mod") and varies:
                continue
            if all(sides) or (n.op != "mul" and any(sides)):
                raise WeaveError(
                    f"an index of {array} multiplies or divides names; give the result a name, "
                    f"as in {array}[i + n], and n its value in sizes",
                    n.position,
                )


def _reads(line: Assign, scalars: frozenset[str]) -> dict[str, Port]:
    """The arrays that a line reads, with the dimensions that follow from bare indices."""
    found: dict[str, Port] = {}
    axes = _axes(line)
    walks = isinstance(line.value, Call) and line.value.function == SCAN
    for node in nodes(line.value):
        port: Port | None = None
        if isinstance(node, Subscript):
            if walks and node.array == line.name:
                continue
            dims = tuple(Affine.make({}, {i.name: 1}) if isinstance(i, Name) else None for i in node.index)
            for i in node.index:
                _check_index(node.array, i, axes)
            port = Port(node.array, dims)
        elif isinstance(node, Name) and node.name in scalars:
            port = Port(node.name, ())
        if port is not None:
            found[port.name] = _one(found[port.name], port) if port.name in found else port
    return found
