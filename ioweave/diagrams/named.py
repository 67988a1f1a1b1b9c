"""Named-axis arrays: formulas in Python that build the same diagrams as the notation.

>>> from ioweave.diagrams.functions import dot, softmax, sqrt
>>> q, x, d = axes("q x d", q=4096, x=4096, d=64)
>>> Q, K, V = array("Q", q, d), array("K", x, d), array("V", x, d)
>>> S = dot(Q, K, over=d) / sqrt(d.size)
>>> P = softmax(S, over=x)
>>> O = dot(P, V, over=x)
>>> [f"{line.name}[{', '.join(line.axes)}]" for line in diagram(S=S, P=P, O=O).lines]
['S[q, x]', 'P[q, x]', 'O[q, d]']

An array is a scalar expression at one index together with what it mentions (sizes, inputs,
lines), so broadcasting is by name alone: ``Q * K`` above has the axes q, d and x.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Never, TypeVar

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.assemble import assemble
from ioweave.diagrams.diagram import Definition, Diagram, Input, Line
from ioweave.diagrams.errors import WeaveError
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
    free_axes,
    rebuild,
    transform,
)
from ioweave.diagrams.notation.printer import print_expr
from ioweave.diagrams.parts import affine, as_dim, check_dtype, check_name, definition, ordered, parse_fact, position

OWN = "~own"  # what a recurrence reads of itself before its line has a name


@dataclass(frozen=True, slots=True)
class Scope:
    """What a value mentions, each in an order of first use that is valid for evaluation."""

    definitions: tuple[Definition, ...] = ()
    inputs: tuple[Input, ...] = ()
    lines: tuple[Line, ...] = ()

    def __or__(self, other: Scope) -> Scope:
        return Scope(
            _union(self.definitions, other.definitions, "size or constant"),
            _union(self.inputs, other.inputs, "input"),
            _union(self.lines, other.lines, "line"),
        )


_Named = TypeVar("_Named", Definition, Input, Line)


def _union(a: tuple[_Named, ...], b: tuple[_Named, ...], what: str) -> tuple[_Named, ...]:
    if a is b or not b:
        return a
    known = {item.name: item for item in a}
    for item in b:
        if known.setdefault(item.name, item) != item:
            raise WeaveError(f"{what} {item.name} is defined twice, differently; give one of the two another name")
    return tuple(known.values())


class Arithmetic:
    """Python's operators on axes (as indices) and arrays; each makes a new array."""

    __slots__ = ()

    def __add__(self, other: Operand) -> Array:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Array:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Array:
        return apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Array:
        return apply("sub", other, self)

    def __mul__(self, other: Operand) -> Array:
        return apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Array:
        return apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Array:
        return apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Array:
        return apply("div", other, self)

    def __floordiv__(self, other: Operand) -> Array:
        return apply("floordiv", self, other)

    def __rfloordiv__(self, other: Operand) -> Array:
        return apply("floordiv", other, self)

    def __mod__(self, other: Operand) -> Array:
        return apply("mod", self, other)

    def __rmod__(self, other: Operand) -> Array:
        return apply("mod", other, self)

    def __pow__(self, other: Operand) -> Array:
        return apply("pow", self, other)

    def __rpow__(self, other: Operand) -> Array:
        return apply("pow", other, self)

    def __neg__(self) -> Array:
        return apply("neg", self)

    def __abs__(self) -> Array:
        return apply("abs", self)

    def __lt__(self, other: Operand) -> Array:
        return apply("lt", self, other)

    def __le__(self, other: Operand) -> Array:
        return apply("le", self, other)

    def __gt__(self, other: Operand) -> Array:
        return apply("gt", self, other)

    def __ge__(self, other: Operand) -> Array:
        return apply("ge", self, other)

    def __eq__(self, other: object) -> Any:
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return apply("ne", self, other)

    def __hash__(self) -> int:
        return id(self)

    def __and__(self, other: Operand) -> Array:
        return apply("and", self, other)

    def __rand__(self, other: Operand) -> Array:
        return apply("and", other, self)

    def __or__(self, other: Operand) -> Array:
        return apply("or", self, other)

    def __ror__(self, other: Operand) -> Array:
        return apply("or", other, self)

    def __invert__(self) -> Array:
        return apply("not", self)

    def __bool__(self) -> bool:
        raise WeaveError(
            "a named array has no single truth value; write where(c, a, b) for if, & | ~ for and or not, "
            "(a <= x) & (x < b) for a <= x < b"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Axis(Arithmetic):
    """A named index. As a value it is its index; ``axis.size`` is its size.

    ``space`` holds the sizes that were given together with it, in their order.
    """

    name: str
    space: tuple[Definition, ...] = field(default=(), repr=False)

    @property
    def index(self) -> Array:
        """The index itself as an array, as in ``x.index.named("I", x)``; in formulas the bare axis does."""
        return Array(Index(self.name), Scope(self.space))

    @property
    def size(self) -> Array:
        """The size of the axis as a value: ``dot(Q, K, over=d) / sqrt(d.size)``."""
        return Array(Size(self.name), Scope(self.space))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Array(Arithmetic):
    """A value for each index of its named axes.

    ``body`` is None for an input that cannot be read bare, since a dimension is no plain axis;
    ``stored`` names the input or line that the array stands for, with its dimensions ``dims``.
    """

    body: Expr | None
    scope: Scope = Scope()
    stored: str | None = None
    dims: tuple[Affine, ...] = ()

    def __repr__(self) -> str:
        if self.body is None:
            return f"<{self.stored}[{', '.join(map(str, self.dims))}]>"
        axes = free_axes(self.body)
        return f"<{print_expr(self.body, axes)}, axes [{', '.join(axes)}]>"

    @property
    def expr(self) -> Expr:
        """The scalar expression at one index; WeaveError where an index must be written."""
        if self.body is None:
            dims = ", ".join(map(str, self.dims))
            raise WeaveError(f"{self.stored} has dimensions [{dims}]: write the index, e.g. {self.stored}[i + k, c]")
        return self.body

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes that the value depends on, in order of first appearance."""
        return free_axes(self.expr)

    def __getitem__(self, index: Operand | tuple[Operand, ...]) -> Array:
        """The element at positions made of axes, ``X[i + k, c]``, or looked up: ``K[page[x // p], x % p]``."""
        if self.stored is None:
            raise WeaveError('only inputs and named lines take an index; write .named("T", i) first, then T[i + 1]')
        items = index if isinstance(index, tuple) else (index,)
        if self.stored == OWN and not self.dims:
            raise WeaveError(
                "scan: an earlier element at an index needs its axes; give them, e.g. scan(..., axes=(d, e))"
            )
        if len(items) != len(self.dims):
            raise WeaveError(f"{self.stored} has {len(self.dims)} axes, not {len(items)}: give one index for each")
        scope, forms = self.scope, []
        for item in items:
            value = lift(item)
            scope = scope | value.scope
            forms.append(position(value.expr))
        return Array(Read(self.stored, tuple(forms)), scope)

    def __iter__(self) -> Never:
        raise WeaveError("a named array is not a sequence; index it with its axes, e.g. X[i, c]")

    def named(self, name: str, *axes: Axis, dtype: str | None = None) -> Array:
        """The line ``name[axes] = ...``, read back as an array.

        The axes are those given, in that order, else those of the value in order of first
        appearance. Raises WeaveError if the value depends on an axis that is not given.
        """
        own = self.axes
        names = tuple(a.name for a in axes) if axes else own
        if missing := [a for a in own if a not in names]:
            raise WeaveError(
                f"{name} depends on {missing[0]}, which is not among its axes [{', '.join(names)}]: "
                f"name it there, or reduce over it, e.g. sum_(..., over={missing[0]})"
            )
        check_name(name)
        check_dtype(name, dtype)
        scope = self.scope
        for a in axes:
            scope = scope | Scope(a.space)
        return made(Line(name, names, _named(self, name, names), dtype), scope)


def _named(value: Array, name: str, axes: tuple[str, ...]) -> Expr:
    """The right side of the line ``name[axes]``: a recurrence reads its own line."""
    if not isinstance(value.body, Scan):
        return value.expr
    order = [str(form.bare) for form in value.dims]

    def step(e: Expr) -> Expr:
        if isinstance(e, Read) and e.array == OWN:
            places = dict(zip(order, e.index, strict=True))
            return Read(name, tuple(places.get(a, Affine.axis(a)) for a in axes))
        return e

    return transform(value.body, step)


Operand = Axis | Array | int | float
Over = Axis | tuple[Axis, ...]


def made(line: Line, scope: Scope) -> Array:
    """The array that reads ``line``, which stands on ``scope``."""
    forms = tuple(Affine.axis(a) for a in line.axes)
    return Array(Read(line.name, forms), scope | Scope(lines=(line,)), line.name, forms)


def axes(names: str, **sizes: int | str | Axis | Array) -> tuple[Axis, ...]:
    """Axes by name, separated by spaces, with their sizes.

    A size is a number, or another axis (or its name) to which it is tied. Sizes left out are
    given to `diagram`.

    >>> q, x = axes("q x", q=4096, x="q")
    >>> x.size.scope.definitions[1].value
    Constant(name='q')
    """
    wanted = names.replace(",", " ").split()
    if unknown := [s for s in sizes if s not in wanted]:
        raise WeaveError(f"axes({names!r}) has no axis {unknown[0]}; its sizes go by its own names")
    scope = Scope()
    for name in wanted:
        check_name(name)
        if name in sizes:
            scope = scope | _sized(name, sizes[name])
    return tuple(Axis(name, scope.definitions) for name in wanted)


def _sized(name: str, size: int | float | str | Axis | Array) -> Scope:
    if isinstance(size, Axis):
        return Scope(size.space) | Scope((definition(name, size.name),))
    if isinstance(size, Array):
        tie = transform(size.expr, lambda e: Constant(e.axis) if isinstance(e, Size) else e)
        return size.scope | Scope((Definition(name, tie),))
    return Scope((definition(name, size),))


def constant(name: str, value: int | float | str | Axis | Array) -> Array:
    """A named constant, such as ``eps``, that can be set with the sizes."""
    check_name(name)
    return Array(Constant(name), _sized(name, value))


def number(value: int | float | bool) -> Array:
    """A literal as an array, for where Python would compute it: ``number(2) / 3``."""
    return Array(Number(value))


def array(name: str, *dims: Operand, dtype: str = "fp16", fact: str | None = None) -> Array:
    """An input. A dimension is an axis, an integer, or integer arithmetic on axes, meaning their sizes.

    ``fact`` states what holds of every value: ``array("X", q, x, dtype="fp32", fact="> 0")``.
    Raises WeaveError for an unknown dtype or fact.
    """
    check_name(name)
    check_dtype(name, dtype)
    scope, forms, bare = Scope(), [], []
    for dim in dims:
        value = lift(dim)
        scope = scope | value.scope
        form = affine(value.expr)
        if form is None:
            raise WeaveError(f"a dimension of {name} is not affine; write an axis, or arithmetic such as i + k - 1")
        forms.append(as_dim(form))
        bare.append(form)
    declared = Input(name, tuple(forms), dtype, parse_fact(name, fact))
    plain = all(form.bare is not None for form in bare)
    body = Read(name, tuple(bare)) if plain else None
    return Array(body, scope | Scope(inputs=(declared,)), name, tuple(bare))


def lift(value: object) -> Array:
    """A number, axis (its index) or array as an array; WeaveError for anything else."""
    match value:
        case Array():
            return value
        case Axis():
            return value.index
        case int() | float():
            return Array(Number(value))
        case _:
            raise WeaveError(f"{value!r} cannot stand in a formula; write numbers, axes and named arrays")


def _operand(value: object) -> Array:
    """What an operator takes: a value, but no recurrence, which is a line of its own."""
    found = lift(value)
    if isinstance(found.body, Scan):
        raise WeaveError('a scan is a line of its own; name it before it is used, e.g. H = scan(...).named("H", t, d)')
    return found


def apply(op: str, *args: object) -> Array:
    """A scalar operator on values."""
    values = tuple(_operand(a) for a in args)
    return Array(Apply(op, tuple(v.expr for v in values)), _scopes(values))


def _scopes(values: Iterable[Array]) -> Scope:
    scope = Scope()
    for v in values:
        scope = scope | v.scope
    return scope


def over_axes(over: Over) -> tuple[tuple[str, ...], Scope]:
    """The names of one or several axes, and their sizes; WeaveError for anything else."""
    listed = over if isinstance(over, tuple) else (over,)
    if not listed or not all(isinstance(a, Axis) for a in listed):
        raise WeaveError("over= takes an axis or a tuple of axes, e.g. over=x or over=(x, y)")
    scope = Scope()
    for a in listed:
        scope = scope | Scope(a.space)
    return tuple(a.name for a in listed), scope


def reduce(op: str, value: Operand, over: Over, where: Operand | None = None) -> Array:
    """A reduction of ``value`` over axes; ``where`` leaves terms out."""
    v, (names, scope) = _operand(value), over_axes(over)
    mask = None if where is None else _operand(where)
    scope = v.scope | (Scope() if mask is None else mask.scope) | scope
    return Array(Reduce(op, names, v.expr, None if mask is None else mask.expr), scope)


def listed(op: str, value: Operand, over: Over, into: Axis, where: Operand | None = None) -> Array:
    """A list along the axis ``into``: the largest values over axes, or their positions."""
    if not isinstance(into, Axis):
        raise WeaveError(f"{op}: into= takes the axis of the list, e.g. {op}(S, over=x, into=k)")
    made_here = reduce(op, value, over, where)
    assert isinstance(made_here.body, Reduce)
    return replace(made_here, body=replace(made_here.body, into=into.name), scope=made_here.scope | Scope(into.space))


def composite(op: str, value: Operand, over: Over, **options: Operand) -> Array:
    """A named composite, such as softmax, of ``value`` over axes."""
    v, (names, scope) = _operand(value), over_axes(over)
    given = {k: lift(o) for k, o in options.items()}
    scope = _scopes((v, *given.values())) | scope
    return Array(Composite(op, names, (v.expr,), tuple((k, o.expr) for k, o in given.items())), scope)


def diagram(
    *parts: Array | Axis,
    name: str = "",
    doc: str = "",
    sizes: Mapping[str, int | float | str] | None = None,
    out: Iterable[str] = (),
    **lines: Array,
) -> Diagram:
    """The diagram of named arrays.

    ``lines`` give names to values; a value that contains another one of ``lines`` reads it.
    ``parts`` are inputs, and lines made by `Array.named`; axes and constants too, to fix the
    order of their definitions. All keep the order given, each after what it needs. ``sizes``
    completes or overrides those of the axes, and comes first. ``out`` marks further outputs;
    the last line and lines that nobody reads are outputs anyway.

    Raises WeaveError for an axis without a size, a name given twice, or nothing to compute.
    """
    for p in parts:
        if isinstance(p, Array) and p.stored is None and not isinstance(p.body, Constant):
            raise WeaveError("diagram(...) got a value without a name: write diagram(O=...) or .named('O')")
    values = {key: lift(v) for key, v in lines.items()}
    scope = _scopes((*map(lift, parts), *values.values()))
    made_here = {key: v for key, v in values.items() if v.stored != key}
    table: dict[Expr, Read] = {}
    for key, v in made_here.items():
        check_name(key)
        if not isinstance(v.expr, Read):
            table.setdefault(v.expr, Read(key, tuple(map(Affine.axis, v.axes))))
    every = scope | Scope(lines=tuple(Line(key, v.axes, _named(v, key, v.axes)) for key, v in made_here.items()))
    folded = tuple(replace(line, expr=_fold(line.expr, table, line.name)) for line in every.lines)
    listed = [p.stored for p in parts if isinstance(p, Array) and p.stored is not None]
    order = [*listed, *lines]
    return assemble(scope.definitions, scope.inputs, ordered(folded, order), sizes or {}, out, name, doc)


def _fold(e: Expr, table: Mapping[Expr, Read], own: str) -> Expr:
    """``e`` with values that have a line of their own read from it; ``own`` is the line at hand."""
    found = table.get(e)
    if found is not None and found.array != own:
        return found
    kids = children(e)
    return rebuild(e, tuple(_fold(c, table, own) for c in kids)) if kids else e
