"""Indices taken apart: what an index form with lookups is a function of.

Its *arguments* are the places at which index arrays are read, and what is made of indices alone: linear forms,
and their quotients and remainders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import (
    Apply,
    Constant,
    Expr,
    Index,
    Lookup,
    Number,
    Read,
    Size,
    children,
    free_axes,
    reads,
    transform,
)


def filled(form: Affine, sizes: Mapping[str, int], constants: Mapping[str, int | float]) -> Affine:
    """The form with numbers in place of sizes and constants, in its lookups too."""

    def step(e: Expr) -> Expr:
        match e:
            case Size(axis=name):
                return Number(sizes[name])
            case Constant(name=name):
                return Number(constants.get(name, sizes.get(name, 0)))
            case Read(array=array, index=index):
                return Read(array, tuple(filled(f, sizes, constants) for f in index))
        return e

    lookups: dict[Lookup, int] = {}
    fixed = form.fixed(sizes)
    for lookup, c in form.lookups:
        expr = transform(lookup.expr, step)
        lookups[Lookup(expr)] = lookups.get(Lookup(expr), 0) + c
    return Affine.make(dict(form.axes), {}, fixed, lookups)


def written(form: Affine) -> Expr:
    """A filled form as an expression."""
    total: Expr = Number(form.offset)
    for axis, c in form.axes:
        total = Apply("add", (total, Apply("mul", (Number(c), Index(axis)))))
    for lookup, c in form.lookups:
        total = Apply("add", (total, Apply("mul", (Number(c), lookup.expr))))
    return total


@lru_cache(maxsize=4096)
def arguments(form: Affine) -> tuple[Expr, ...]:
    """What a filled form is a function of: linear forms, their quotients and remainders; index arrays looked through.

    A form of indices alone that is none of these is a function of the linear forms in it.
    """
    return tuple(dict.fromkeys(_arguments(written(form))))


def _arguments(e: Expr) -> Iterator[Expr]:
    if not free_axes(e):
        return
    if not reads(e) and (linear(e) is not None or divided_form(e) is not None):
        yield e
        return
    if isinstance(e, Read):
        for form in e.index:
            yield from _arguments(written(form))
        return
    if isinstance(e, Apply) and e.op in ("add", "sub") and reads(e):  # the part without reads is one argument
        plain = _without_reads(e)
        if plain is not None and free_axes(plain):
            yield from _arguments(plain)
        for part in _terms(e):
            if reads(part):
                for child in children(part) if isinstance(part, Apply) else (part,):
                    yield from _arguments(child)
        return
    for child in children(e):
        yield from _arguments(child)


def _terms(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Apply) and e.op in ("add", "sub"):
        for child in e.args:
            yield from _terms(child)
    else:
        yield e


def _without_reads(e: Expr) -> Expr | None:
    """The terms of a sum that read nothing, as one sum."""
    if isinstance(e, Apply) and e.op in ("add", "sub"):
        left, right = (_without_reads(a) for a in e.args)
        if left is None or right is None:
            return left if right is None else (right if e.op == "add" else Apply("neg", (right,)))
        return Apply(e.op, (left, right))
    return None if reads(e) else e


def linear(e: Expr) -> tuple[dict[str, int], int] | None:
    """Coefficients and offset of a whole linear form of indices; None for anything else."""
    match e:
        case Number(value=v) if float(v).is_integer():
            return {}, int(v)
        case Index(axis=a):
            return {a: 1}, 0
        case Apply(op="neg", args=(x,)):
            inner = linear(x)
            return None if inner is None else _scaled(inner, -1)
        case Apply(op=("add" | "sub") as op, args=(x, y)):
            left, right = linear(x), linear(y)
            if left is None or right is None:
                return None
            right = right if op == "add" else _scaled(right, -1)
            axes = dict(left[0])
            for a, c in right[0].items():
                axes[a] = axes.get(a, 0) + c
            return {a: c for a, c in axes.items() if c}, left[1] + right[1]
        case Apply(op="mul", args=(x, y)):
            left, right = linear(x), linear(y)
            if left is None or right is None or (left[0] and right[0]):
                return None
            return _scaled(right, left[1]) if not left[0] else _scaled(left, right[1])
    return None


def _scaled(form: tuple[dict[str, int], int], c: int) -> tuple[dict[str, int], int]:
    return {a: k * c for a, k in form[0].items() if k * c}, form[1] * c


def divided_form(e: Expr) -> tuple[str, Expr, int] | None:
    """The operator, the linear form and the divisor of ``form // n`` or ``form % n``."""
    match e:
        case Apply(op="add", args=(Number(value=0), x)) | Apply(op="mul", args=(Number(value=1), x)):
            return divided_form(x)
        case Apply(op=("floordiv" | "mod") as op, args=(x, Number(value=n))) if n > 0 and float(n).is_integer():
            return (op, x, int(n)) if linear(x) is not None else None
    return None


def leaves_of(e: Expr) -> Iterator[Expr]:
    """The largest linear forms in an expression."""
    if not free_axes(e):
        return
    if linear(e) is not None:
        yield e
        return
    for child in children(e):
        yield from leaves_of(child)


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with one sub-expression replaced, the largest first."""
    if e == old:
        return new
    if isinstance(e, Apply):
        return Apply(e.op, tuple(replaced(a, old, new) for a in e.args))
    return e
