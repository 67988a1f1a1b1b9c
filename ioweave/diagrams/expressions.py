"""Scalar expressions: what a box computes for one index, as immutable trees.

``Reduce``, ``Scan`` and ``Composite`` stand only in lines (`ioweave.diagrams.diagram`); opening a
line (`ioweave.diagrams.opening`) leaves boxes whose bodies hold the other nodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ioweave.diagrams.affine import Affine


@dataclass(frozen=True, slots=True)
class Number:
    """A literal: an int, a float (``inf`` included) or a bool."""

    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Constant:
    """A named constant of the diagram, such as ``eps``; overridable with the sizes."""

    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """The value of a bound axis."""

    axis: str


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an axis, as a value."""

    axis: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """A whole number inside an index that no affine form gives: ``page[b, x // p]``, ``x % p``."""

    expr: Expr

    @property
    def names(self) -> tuple[str, ...]:
        """The axes that it depends on, in order of appearance."""
        return free_axes(self.expr)

    def rename(self, names: Mapping[str, str]) -> Lookup:
        """The same lookup over renamed axes."""
        return Lookup(rename_axes(self.expr, dict(names)))


@dataclass(frozen=True, slots=True)
class Read:
    """One element of an array at positions; no positions for a single value."""

    array: str
    index: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Apply:
    """A scalar operator of `ioweave.diagrams.operators` on its arguments."""

    op: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """``op`` over ``axes`` of ``body``; ``where`` leaves terms out (their identity stands in).

    ``into`` is the axis of a list: the ``k`` largest values in descending order (``topk``), or
    their positions (``argtopk``).
    """

    op: str
    axes: tuple[str, ...]
    body: Expr
    where: Expr | None = None
    into: str | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence along ``axis``: ``body`` reads its own line's earlier values; before the first, ``start``.

    ``backward`` runs from the last element to the first, and the body reads later values.
    """

    axis: str
    body: Expr
    start: Expr
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Composite:
    """A named composite such as softmax over ``axes``; defined in ``definitions/*.weave``."""

    op: str
    axes: tuple[str, ...]
    args: tuple[Expr, ...]
    options: tuple[tuple[str, Expr], ...] = ()


Expr = Number | Constant | Index | Size | Read | Apply | Reduce | Scan | Composite


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions, in order."""
    match e:
        case Apply(args=args):
            return args
        case Read(index=index):
            return tuple(lookup.expr for form in index for lookup, _ in form.lookups)
        case Reduce(body=body, where=where):
            return (body,) if where is None else (body, where)
        case Scan(body=body, start=start):
            return (body, start)
        case Composite(args=args, options=options):
            return (*args, *(v for _, v in options))
        case _:
            return ()


def rebuild(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """The node ``e`` with its children replaced, in the order of `children`."""
    match e:
        case Apply():
            return replace(e, args=new)
        case Read(index=index):
            inner = iter(new)
            return replace(e, index=tuple(_with_lookups(form, inner) for form in index)) if new else e
        case Scan():
            return replace(e, body=new[0], start=new[1])
        case Reduce(where=where):
            return replace(e, body=new[0], where=None if where is None else new[1])
        case Composite(args=args, options=options):
            n = len(args)
            return replace(e, args=new[:n], options=tuple((k, v) for (k, _), v in zip(options, new[n:], strict=True)))
        case _:
            return e


def _with_lookups(form: Affine, new: Iterator[Expr]) -> Affine:
    """The form with the expressions of its lookups replaced, in order."""
    if not form.lookups:
        return form
    pairs = [(Lookup(next(new)), c) for _, c in form.lookups]
    total: dict[Lookup, int] = {}
    for lookup, c in pairs:
        total[lookup] = total.get(lookup, 0) + c
    return Affine.make(dict(form.axes), dict(form.sizes), form.offset, total)


def walk(e: Expr) -> Iterator[Expr]:
    """Every node of the tree, parents first."""
    yield e
    for child in children(e):
        yield from walk(child)


def transform(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Apply ``f`` to every node, children first."""
    kids = children(e)
    if kids:
        e = rebuild(e, tuple(transform(c, f) for c in kids))
    return f(e)


def reads(e: Expr) -> tuple[Read, ...]:
    """The distinct reads of the tree, in order of appearance."""
    return tuple(dict.fromkeys(n for n in walk(e) if isinstance(n, Read)))


def operands(e: Expr) -> tuple[Read, ...]:
    """The distinct reads whose values enter that of the tree; not those that only say where to read."""
    found: dict[Read, None] = {}

    def visit(node: Expr) -> None:
        if isinstance(node, Read):
            found.setdefault(node)
            return
        for child in children(node):
            visit(child)

    visit(e)
    return tuple(found)


def free_axes(e: Expr) -> tuple[str, ...]:
    """Axes whose index the value depends on, in order of appearance; bound ones left out."""
    seen: dict[str, None] = {}

    def visit(node: Expr, bound: frozenset[str]) -> None:
        match node:
            case Index(axis=axis):
                if axis not in bound:
                    seen.setdefault(axis)
            case Read(index=index):
                for form in index:
                    for axis in form.names:
                        if axis not in bound:
                            seen.setdefault(axis)
            case Scan(axis=axis):
                seen.setdefault(axis)
                for child in children(node):
                    visit(child, bound)
            case Reduce(axes=axes, into=into):
                for child in children(node):
                    visit(child, bound | set(axes))
                if into is not None and into not in bound:
                    seen.setdefault(into)
            case Composite(op=op, axes=axes):
                from ioweave.diagrams.operators import COMPOSITES_THAT_REDUCE

                inner = bound | set(axes) if op in COMPOSITES_THAT_REDUCE else bound
                for child in children(node):
                    visit(child, inner)
            case _:
                for child in children(node):
                    visit(child, bound)

    visit(e, frozenset())
    return tuple(seen)


def rename_axes(e: Expr, names: dict[str, str]) -> Expr:
    """The tree with axes renamed everywhere, bound ones included."""

    def step(node: Expr) -> Expr:
        match node:
            case Index(axis=a):
                return Index(names.get(a, a))
            case Read(array=array, index=index):
                return Read(array, tuple(_renamed(form, names) for form in index))
            case Scan(axis=a):
                return replace(node, axis=names.get(a, a))
            case Reduce(axes=axes, into=into):
                into = names.get(into, into) if into else None
                return replace(node, axes=tuple(names.get(a, a) for a in axes), into=into)
            case Composite(axes=axes):
                return replace(node, axes=tuple(names.get(a, a) for a in axes))
            case _:
                return node

    return transform(e, step)


def _renamed(form: Affine, names: Mapping[str, str]) -> Affine:
    """The form over renamed axes; its lookups have been renamed already."""
    return Affine.make({names.get(a, a): c for a, c in form.axes}, dict(form.sizes), form.offset, dict(form.lookups))


def substitute(e: Expr, places: Mapping[str, Affine]) -> Expr:
    """The tree at other places: each axis of ``places`` replaced by an index form. No axis is bound in ``e``."""

    def step(node: Expr) -> Expr:
        match node:
            case Index(axis=axis) if axis in places:
                return value_of(places[axis])
            case Read(array=array, index=index):
                return Read(array, tuple(at_places(form, places) for form in index))
            case _:
                return node

    return transform(e, step)


def at_places(form: Affine, places: Mapping[str, Affine]) -> Affine:
    """An index form with axes replaced by forms; those of its lookups have been replaced already."""
    total = Affine.make({}, dict(form.sizes), form.offset, dict(form.lookups))
    for axis, c in form.axes:
        total = total + places.get(axis, Affine.axis(axis)).scale(c)
    return total


def value_of(form: Affine) -> Expr:
    """An index form as a scalar expression."""
    terms: list[tuple[Expr, int]] = [(Index(a), c) for a, c in form.axes]
    terms += [(lookup.expr, c) for lookup, c in form.lookups]
    terms += [(Size(s), c) for s, c in form.sizes]
    result: Expr | None = None
    for term, c in terms:
        part = term if abs(c) == 1 else Apply("mul", (Number(abs(c)), term))
        if result is None:
            result = part if c > 0 else Apply("neg", (part,))
        else:
            result = Apply("add" if c > 0 else "sub", (result, part))
    if result is None:
        return Number(form.offset)
    if form.offset:
        result = Apply("add" if form.offset > 0 else "sub", (result, Number(abs(form.offset))))
    return result


def is_predicate_of_indices(e: Expr) -> bool:
    """Whether the value follows from indices, sizes and constants alone: no array is read, no chance is drawn."""
    return not any(
        isinstance(n, Read | Reduce | Scan | Composite) or (isinstance(n, Apply) and n.op == "keep") for n in walk(e)
    )
