"""The algebra of diagrams: boxes, composed in sequence, in parallel, and by weaving.

A term is a diagram without sizes. Names are its wires: ``f >> g`` joins what ``f`` makes to the
inputs of ``g`` of the same names, ``f | g`` sets two terms side by side, and ``f.weave("h")`` maps
a term over a further axis. `Term.diagram` gives the sizes and makes a `Diagram`.

>>> scores = box("S = sum[d](Q[d] * K[d]) / sqrt(d)").weave("x", only="K")
>>> print(scores)
K[x, d], Q[d] -> S[x]

The axioms, wherever both sides are defined (``id`` is `identity` of the wires):

>>> f, g, h = box("B[i] = exp(A[i])"), box("C[i] = B[i] * W[i]"), box("D = sum[i](C[i])")
>>> (f >> g) >> h == f >> (g >> h)
True
>>> p, q = box("E[i] = relu(A[i])"), box("F[i] = E[i] + 1")
>>> (f | p) | h == f | (p | h)
True
>>> identity("A[i]") >> f == f == f >> identity("B[i]") and identity() | f == f == f | identity()
True
>>> (f >> g) | (p >> q) == (f | p) >> (g | q)
True
>>> (f >> g).weave("t") == f.weave("t") >> g.weave("t")
True
>>> (f >> g).weave("t", only="W") == f >> g.weave("t", only="W")
True
>>> (f | p).weave("t") == f.weave("t") | p.weave("t")
True
>>> f.weave("s").weave("t") == f.weave("t").weave("s", at=1)
True

Associativity needs no care; interchange holds where neither pair names a wire of the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.assemble import assemble
from ioweave.diagrams.diagram import Definition, Diagram, Input, Line
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Composite,
    Constant,
    Expr,
    Read,
    Reduce,
    Scan,
    Size,
    rename_axes,
    transform,
    walk,
)
from ioweave.diagrams.named import Array, Scope, made
from ioweave.diagrams.parts import as_dim, check_dtype, check_name, definition, parse_fact
from ioweave.diagrams.signatures import Port, merge, read_box, read_port

T = TypeVar("T")
_PLACE = re.compile(r"_(\d*)")


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Boxes and their wires: what enters (``ports``), the ``lines``, and what leaves (``outputs``).

    Two terms are equal if they are one graph: the order of ports and of independent lines says
    nothing; the order of outputs does, since inputs called ``_1``, ``_2`` are matched to it.
    """

    ports: tuple[Port, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self._graph() == other._graph()

    def __hash__(self) -> int:
        return hash(self._graph())

    def _graph(self) -> tuple[frozenset[Port], frozenset[Line], tuple[str, ...]]:
        return frozenset(self.ports), frozenset(self.lines), self.outputs

    def __str__(self) -> str:
        taken = ", ".join(sorted(map(str, self.ports)))
        return f"{taken} -> {', '.join(self._signature(o) for o in self.outputs)}".strip()

    def _signature(self, name: str) -> str:
        dims = self._dims(name)
        return f"{name}[{', '.join('?' if d is None else str(d) for d in dims)}]" if dims else name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arrays that enter."""
        return tuple(p.name for p in self.ports)

    def _made(self) -> frozenset[str]:
        return frozenset(line.name for line in self.lines)

    def _dims(self, name: str) -> tuple[Affine | None, ...]:
        for line in self.lines:
            if line.name == name:
                return tuple(as_dim(Affine.axis(a)) for a in line.axes)
        return next(p.dims for p in self.ports if p.name == name)

    def __rshift__(self, other: Term) -> Term:
        """``self``, then ``other``, whose inputs are joined by name to what ``self`` makes.

        Inputs of ``other`` that ``self`` does not make pass through, and so do outputs of
        ``self`` that ``other`` does not take; every line stays a wire that later terms can
        read. Inputs called ``_1`` (or ``_``), ``_2``, ... take the outputs in order.
        Raises WeaveError if nothing matches, axes disagree, or a name is made twice.
        """
        other = other.rename(_placed(self, other))
        self._check_disjoint(other)
        self._check_constants(other)
        mine, given = self._made(), self._made() | set(self.outputs)
        joined = [p for p in other.ports if p.name in given]
        if self.outputs and other.ports and not joined:
            raise WeaveError(
                f"f >> g joins nothing: f gives {_listed(self.outputs)}, g takes {_listed(other.inputs)}; "
                f"rename an input, e.g. g.rename({other.inputs[0]}='{self.outputs[0]}'), or set them in parallel, f | g"
            )
        for port in joined:
            if port.name in mine:
                _check_join(self, port)
        taken = {p.name for p in joined}
        kept = tuple(o for o in self.outputs if o not in taken and o not in other.outputs)
        ports = merge(self.ports, (p for p in other.ports if p.name not in mine))
        return Term(ports, self.lines + other.lines, other.outputs + kept)

    def __or__(self, other: Term) -> Term:
        """The two side by side; inputs of one name are one array.

        Raises WeaveError if both make one name, or one reads what the other makes.
        """
        self._check_disjoint(other)
        for f, g in ((self, other), (other, self)):
            if wire := next((p.name for p in g.ports if p.name in f._made()), None):
                raise WeaveError(
                    f"f | g has no wires between its sides, but one makes {wire} and the other takes it; use >>"
                )
            f._check_constants(g)
        outputs = self.outputs + tuple(o for o in other.outputs if o not in self.outputs)
        return Term(merge(self.ports, other.ports), self.lines + other.lines, outputs)

    def _check_disjoint(self, other: Term) -> None:
        if twice := sorted(self._made() & other._made()):
            raise WeaveError(f"both terms make {twice[0]}; rename one, e.g. g.rename({twice[0]}='{twice[0]}2')")
        if cycle := sorted(other._made() & set(self.inputs)):
            raise WeaveError(f"g makes {cycle[0]}, which f takes as an input; compose them as g >> f, or rename one")

    def _check_constants(self, other: Term) -> None:
        """What one term makes must not be a constant of the other: it was meant to be read."""
        for line in other.lines:
            for node in walk(line.expr):
                if isinstance(node, Constant) and node.name in self._made():
                    raise WeaveError(
                        f"{line.name} uses {node.name} as a constant, but it is made before; "
                        f"declare it as an input, box(..., '{node.name}')"
                    )

    def weave(self, axis: str, only: str | Iterable[str] | None = None, at: int | Mapping[str, int] = 0) -> Term:
        """The term mapped over a further axis.

        The axis is added to all outputs and to the inputs in ``only`` (all, by default); the
        other inputs are broadcast, and lines that depend on no woven input are shared. It
        stands in front of an array's axes, or at place ``at`` (-1: last), which may be given
        for each array: ``at={"V": 1}``.
        Raises WeaveError for an unknown input or place, or if an array has the axis already.
        """
        check_name(axis)
        chosen = self.inputs if only is None else (only,) if isinstance(only, str) else tuple(only)
        if unknown := [c for c in chosen if c not in self.inputs]:
            raise WeaveError(f"weave: {unknown[0]} is no input; the inputs are {_listed(self.inputs)}")
        if isinstance(at, Mapping) and (unknown := [a for a in at if a not in self._made() | set(self.inputs)]):
            raise WeaveError(f"weave: at names {unknown[0]}, which is no array of the term")
        if stuck := [o for o in self.outputs if o in self.inputs and o not in chosen]:
            raise WeaveError(f"weave: {stuck[0]} passes through unchanged, so it must be woven too; add it to only=")
        woven = set(chosen)
        lines: list[Line] = []
        for line in self.lines:
            if line.name in self.outputs or any(isinstance(n, Read) and n.array in woven for n in walk(line.expr)):
                woven.add(line.name)
                line = _woven(line, axis, woven, at)
            lines.append(line)
        ports = tuple(p.woven(axis, _place(at, p.name, len(p.dims))) if p.name in chosen else p for p in self.ports)
        return Term(ports, tuple(lines), self.outputs)

    def rename(self, names: Mapping[str, str] | None = None, /, **more: str) -> Term:
        """The term with arrays (inputs or lines) renamed; inputs given one name become one array.

        Raises WeaveError for a name that the term does not have, or one made twice.
        """
        new = {**(names or {}), **more}
        known = self._made() | set(self.inputs)
        if unknown := [n for n in new if n not in known]:
            raise WeaveError(f"rename: {unknown[0]} is no array of the term; it has {_listed(sorted(known))}")
        for n in new.values():
            check_name(n)

        def step(e: Expr) -> Expr:
            return Read(new.get(e.array, e.array), e.index) if isinstance(e, Read) else e

        lines = tuple(replace(n, name=new.get(n.name, n.name), expr=transform(n.expr, step)) for n in self.lines)
        names_now = [n.name for n in lines]
        ports = merge((), (replace(p, name=new.get(p.name, p.name)) for p in self.ports))
        for p in (*names_now, *(p.name for p in ports)):
            if (*names_now, *(p.name for p in ports)).count(p) > 1:
                raise WeaveError(f"rename: two arrays would be called {p}; choose a free name")
        return Term(ports, lines, tuple(new.get(o, o) for o in self.outputs))

    def relabel(self, **axes: str) -> Term:
        """The term with axes renamed everywhere: ``f.relabel(d="e")``.

        Raises WeaveError if two axes of one array or line would become one.
        """
        for before in self.lines:
            used = _axes_of(before)
            if len({axes.get(a, a) for a in used}) < len(used):
                raise WeaveError(f"relabel: two axes of {before.name} would have one name; choose a free name")

        def step(e: Expr) -> Expr:
            match e:
                case Constant(name=name):
                    return Constant(axes.get(name, name))
                case Size(axis=name):
                    return Size(axes.get(name, name))
                case Read(array=array, index=index):
                    return Read(array, tuple(_resized(f, axes) for f in index))
                case _:
                    return e

        lines = tuple(
            replace(
                n,
                axes=tuple(axes.get(a, a) for a in n.axes),
                expr=transform(rename_axes(n.expr, axes), step),
            )
            for n in self.lines
        )
        return Term(tuple(p.relabelled(axes) for p in self.ports), lines, self.outputs)

    def diagram(
        self,
        sizes: Mapping[str, int | float | str] | Iterable[Definition],
        dtypes: str | Mapping[str, str] = "fp16",
        name: str = "",
        doc: str = "",
        out: Iterable[str] = (),
    ) -> Diagram:
        """The diagram of the term, equal to what the notation gives for the same lines.

        ``sizes`` gives every axis and constant, in the order of their definitions: a number, or
        a name to be tied to (``{"q": 4096, "x": "q"}``). ``dtypes`` is that of every input
        whose signature has none, or a map by input, with a fact or without (``"fp32 > 0"``).
        ``out`` marks further lines as outputs.
        Raises WeaveError for an axis without a size, or an input whose axes are not known.
        """
        if isinstance(sizes, Mapping):
            definitions = tuple(definition(n, v) for n, v in sizes.items())
        else:
            definitions = tuple(sizes)
        inputs = tuple(_input(p, dtypes) for p in self.ports)
        marked = (*out, *(line.name for line in self.lines if line.name in self.outputs))
        return assemble(definitions, inputs, self.lines, {}, marked, name, doc)


def box(source: str | Callable[..., Array | tuple[Array, ...]], *inputs: str, out: str | tuple[str, ...] = ()) -> Term:
    """A term of one box: a line of the notation, or a Python function of named-axis arrays.

    ``inputs`` are signatures. A line's own reads give their axes, unless they are shifted; a
    single value that is read must be declared: ``box("Y[i] = X[i] / N", "N")``. A function
    takes the inputs in their order and gives one array or several, which ``out`` names.

    >>> print(box("S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)"))
    K[x, d], Q[q, d] -> S[q, x]
    >>> print(box(lambda X, B: X + B, "X[i, j]", "B[j]", out="Y"))
    B[j], X[i, j] -> Y[i, j]

    Raises WeaveError for text that is not one line, or a result without a name.
    """
    if isinstance(source, str):
        ports, line = read_box(source, inputs)
        return Term(ports, (line,), (line.name,))
    ports = tuple(read_port(text) for text in inputs)
    value = source(*(_array(p) for p in ports))
    results = value if isinstance(value, tuple) else (value,)
    names = (out,) if isinstance(out, str) else out
    if names and len(names) != len(results):
        raise WeaveError(f"the function gives {len(results)} arrays, but out names {len(names)}")
    scope, outputs = Scope(), list[str]()
    for index, result in enumerate(results):
        if not isinstance(result, Array):
            raise WeaveError(f"the function gives {result!r}, which is no named array")
        named = _named(result, names[index]) if names else result
        if named.stored is None:
            raise WeaveError("the result has no name; give one with out='S' or .named('S')")
        scope = scope | named.scope
        outputs.append(named.stored)
    return Term(ports, scope.lines, tuple(outputs))


def _named(result: Array, signature: str) -> Array:
    """The result of a function under the name and axes that ``out`` gives it."""
    shape = read_port(signature)
    if result.stored == shape.name:
        return result
    axes = tuple(str(d) for d in shape.dims) if shape.dims else result.axes
    if missing := [a for a in result.axes if a not in axes]:
        raise WeaveError(f"{shape.name} depends on {missing[0]}, which out={signature!r} leaves out")
    return made(Line(shape.name, axes, result.expr, shape.dtype), result.scope)


def identity(*wires: str) -> Term:
    """Wires that run straight through: ``identity("V[x, d]: fp16")``. It also declares what it carries."""
    ports = tuple(read_port(w) for w in wires)
    return Term(merge((), ports), (), tuple(p.name for p in ports))


def term(diagram: Diagram) -> Term:
    """A diagram as a term, to compose or weave further; its sizes are left behind."""
    ports = tuple(Port(i.name, i.dims, True, i.dtype, i.fact) for i in diagram.inputs)
    return Term(ports, diagram.lines, diagram.outputs)


def _array(port: Port) -> Array:
    """A port as the array that a Python function takes."""
    dims = tuple(Affine(d.sizes, (), d.offset) for d in port.dims if d is not None)
    body = Read(port.name, dims) if all(d.bare is not None for d in dims) else None
    return Array(body, Scope(), port.name, dims)


def _input(port: Port, dtypes: str | Mapping[str, str]) -> Input:
    if _PLACE.fullmatch(port.name):
        raise WeaveError(f"input {port.name} is joined to nothing; compose it, f >> g, or rename it")
    given = dtypes.get(port.name) if isinstance(dtypes, Mapping) else port.dtype or dtypes
    dtype, _, fact = (given or port.dtype or "").partition(" ")
    if not dtype:
        raise WeaveError(f"input {port.name} has no dtype; add it, e.g. dtypes={{'{port.name}': 'fp16'}}")
    check_dtype(port.name, dtype)
    dims = tuple(d for d in port.dims if d is not None)
    if len(dims) < len(port.dims):
        raise WeaveError(
            f"the axes of input {port.name} do not follow from its reads; declare them, "
            f"identity('{port.name}[i, j]') >> f or box(..., '{port.name}[i, j]')"
        )
    return Input(port.name, dims, dtype, parse_fact(port.name, fact or None) or port.fact)


def _placed(f: Term, g: Term) -> dict[str, str]:
    """Which output of ``f`` each input of ``g`` that is matched by position takes."""
    found: dict[str, str] = {}
    for name in g.inputs:
        if match := _PLACE.fullmatch(name):
            index = int(match[1] or 1)
            if not 1 <= index <= len(f.outputs):
                raise WeaveError(f"g takes output {index} of f, which has {len(f.outputs)}: {_listed(f.outputs)}")
            found[name] = f.outputs[index - 1]
    return found


def _check_join(f: Term, port: Port) -> None:
    dims = f._dims(port.name)
    if len(dims) == len(port.dims) and all(p is None or p == d for p, d in zip(port.dims, dims, strict=True)):
        return
    gives, takes = f._signature(port.name), str(port)
    if len(dims) != len(port.dims):
        hint = "weave the side that lacks an axis"
    elif set(dims) == set(port.dims):
        hint = "the axes stand in another order: read them so, or choose it with weave(..., at=)"
    else:
        hint = "rename an axis with relabel(...), or declare in the box how the array was made"
    raise WeaveError(f"f >> g: f gives {gives}, but g takes {takes}; {hint}")


def _place(at: int | Mapping[str, int], name: str, rank: int) -> int:
    place = at if isinstance(at, int) else at.get(name, 0)
    if not -rank - 1 <= place <= rank:
        raise WeaveError(f"weave: {name} has {rank} axes, so the new one stands at 0 to {rank} (-1: last), not {place}")
    return place if place >= 0 else rank + 1 + place


def _inserted(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place:])


def _resized(form: Affine, axes: Mapping[str, str]) -> Affine:
    """The form with the sizes of renamed axes renamed too."""
    sizes = {axes.get(s, s): c for s, c in form.sizes}
    return Affine.make(dict(form.axes), sizes, form.offset, dict(form.lookups))


def _axes_of(line: Line) -> tuple[str, ...]:
    """The axes of a line, those bound inside it and those of its reads."""
    found = dict.fromkeys(line.axes)
    for node in walk(line.expr):
        if isinstance(node, Reduce | Composite):
            found.update(dict.fromkeys(node.axes))
        elif isinstance(node, Scan):
            found.setdefault(node.axis)
        elif isinstance(node, Read):
            found.update(dict.fromkeys(a for form in node.index for a in form.names))
    return tuple(found)


def _woven(line: Line, axis: str, woven: set[str], at: int | Mapping[str, int]) -> Line:
    if axis in _axes_of(line):
        raise WeaveError(
            f"weave: {line.name} has an axis {axis} already; weave over another name, or relabel({axis}=...)"
        )

    def step(e: Expr) -> Expr:
        if isinstance(e, Read) and e.array in woven:
            return Read(e.array, _inserted(e.index, _place(at, e.array, len(e.index)), Affine.axis(axis)))
        return e

    axes = _inserted(line.axes, _place(at, line.name, len(line.axes)), axis)
    return replace(line, axes=axes, expr=transform(line.expr, step))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
