"""Expressions in mathematics, for titles and signs: indices are left out where they are the axes themselves."""

from __future__ import annotations

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Apply, Composite, Constant, Expr, Index, Number, Read, Reduce, Scan, Size
from ioweave.diagrams.operators import KEEP
from ioweave.render.figure.names import maths_name

COMPARE = {"lt": "<", "le": "\\le ", "gt": ">", "ge": "\\ge ", "eq": "=", "ne": "\\ne "}


def _number(v: float) -> str:
    """A number as it is read: ``10^{-5}`` for 1e-05."""
    if v in (float("inf"), float("-inf")):
        return "\\infty" if v > 0 else "-\\infty"
    digits, _, power = f"{v:g}".partition("e")
    if not power:
        return digits
    ten = f"10^{{{int(power)}}}"
    return ten if digits == "1" else f"-{ten}" if digits == "-1" else f"{digits}\\cdot {ten}"


def formula(e: Expr, precedence: int = 0) -> str:
    """An expression in mathematics, indices left out."""
    match e:
        case Number(value=v):
            return _number(v)
        case Constant(name=name) | Size(axis=name) | Index(axis=name):
            return maths_name(name)
        case Read(array=name, index=index) if any(f.bare is None for f in index):
            moved = [f for f in index if f.bare is None]
            if len(index) > 1 and all(_is_shift(f) for f in moved):
                return f"{maths_name(name)}_{{{','.join(position(f) for f in moved)}}}"
            return f"{maths_name(name)}[{','.join(position(f) for f in index)}]"
        case Read(array=name):
            return maths_name(name)
        case Apply(op=op, args=(a, b)) if op in COMPARE:
            return f"{formula(a, 40)}{COMPARE[op]}{formula(b, 40)}"
        case Apply(op="pow", args=(a, b)):
            return f"{formula(a, 100)}^{{{formula(b)}}}"
        case Apply(op="add" | "sub" | "masked_sub" as op, args=(a, b)):
            inner = f"{formula(a, 60)}{'+' if op == 'add' else '-'}{formula(b, 61)}"
            return f"({inner})" if precedence > 60 else inner
        case Apply(op="mul", args=(a, b)):
            if isinstance(b, Number) and not isinstance(a, Number):
                a, b = b, a
            inner = rf"{formula(a, 70)}\,{formula(b, 71)}"
            return f"({inner})" if precedence > 70 else inner
        case Apply(op="div" | "masked_div", args=(a, b)):
            inner = f"{formula(a, 70)}/{formula(b, 71)}"
            return f"({inner})" if precedence > 70 else inner
        case Apply(op="floordiv", args=(a, b)):
            return rf"\lfloor {formula(a, 70)}/{formula(b, 71)}\rfloor "
        case Apply(op="mod", args=(a, b)):
            inner = rf"{formula(a, 70)}\;\text{{mod}}\;{formula(b, 71)}"
            return f"({inner})" if precedence > 60 else inner
        case Apply(op=op) if op == KEEP:
            return rf"\text{{{KEEP}}}"
        case Apply(op="neg", args=(a,)):
            return f"-{formula(a, 80)}"
        case Apply(op=op, args=args):
            return rf"\text{{{op}}}({', '.join(formula(a) for a in args)})"
        case Reduce(op="sum", axes=axes, body=body):
            inner = rf"Σ_{{{','.join(maths_name(a) for a in axes)}}}\,{formula(body, 70)}"
            return f"({inner})" if precedence > 61 else inner
        case Reduce(op=op, axes=axes, body=body):
            return rf"\text{{{op}}}_{{{','.join(maths_name(a) for a in axes)}}}({formula(body)})"
        case Composite(op=op, args=args):
            return rf"\text{{{op}}}({', '.join(formula(a) for a in args)})"
        case Scan(body=body):
            return formula(body, precedence)


def position(form: Affine) -> str:
    """A position as it is read: ``q-x+1``, ``I``, ``\\lfloor x/p\\rfloor``."""
    parts: list[str] = []
    alone = len(form.lookups) == 1 and not (form.axes or form.sizes or form.offset)
    terms = [(formula(lookup.expr, 0 if alone else 70), c) for lookup, c in form.lookups]
    terms += [(maths_name(name), c) for name, c in (*form.axes, *form.sizes)]
    if form.offset or not terms:
        terms.append(("", form.offset))
    for text, c in terms:
        sign = "-" if c < 0 else "+" if parts else ""
        parts.append(f"{sign}{abs(c) if abs(c) != 1 or not text else ''}{text}")
    return "".join(parts)


def _is_shift(form: Affine) -> bool:
    """Whether a position is an axis or its neighbour by a number: ``t-1``."""
    return len(form.axes) == 1 and form.axes[0][1] == 1 and not form.sizes and not form.lookups
