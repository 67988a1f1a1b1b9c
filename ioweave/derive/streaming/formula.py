"""Scalar expressions as text: a sort key for normal forms, and formulas for people."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import OLD, PAST, PREV, RUNNING
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size, transform, walk
from ioweave.diagrams.operators import OPERATORS

# Over the reals a masked operator is the plain one; people read the plain sign.
_SIGNS = {"masked_sub": "sub", "masked_div": "div"}
_TIGHT_RIGHT = {"sub", "div", "floordiv", "mod"}


@lru_cache(maxsize=65536)
def key(e: Expr) -> str:
    """A text that tells any two different expressions apart."""
    match e:
        case Number(value=v):
            return repr(v)
        case Constant(name=n):
            return f"c:{n}"
        case Index(axis=a):
            return f"i:{a}"
        case Size(axis=a):
            return f"s:{a}"
        case Read(array=array, index=index):
            return f"{array}[{','.join(map(_form_key, index))}]"
        case Apply(op=op, args=args):
            return f"{op}({','.join(map(key, args))})"
        case _:
            return repr(e)


def _form_key(f: Affine) -> str:
    """An index form; what is looked up stands beside its affine part."""
    return "".join((str(f), *(f"+{c}*<{key(lookup.expr)}>" for lookup, c in f.lookups)))


def _place(f: Affine) -> str:
    """An index form for people, what it looks up with it."""
    parts = [f"{c} * {text(lookup.expr)}" if c != 1 else text(lookup.expr) for lookup, c in f.lookups]
    rest = Affine(f.axes, f.sizes, f.offset)
    return " + ".join((*parts, str(rest))) if rest != Affine() or not parts else " + ".join(parts)


def text(e: Expr) -> str:
    """A formula for people: arrays by name alone unless a place is looked up, ``name~`` as the new ``name``.

    A size is written by the name of its axis, as ``size(x)`` where the index ``x`` stands beside it.
    """
    indices = {n.axis for n in walk(e) if isinstance(n, Index)}
    return _text(_told_apart(e, indices) if indices else e)[0]


def _told_apart(e: Expr, indices: set[str]) -> Expr:
    return transform(e, lambda n: Constant(f"size({n.axis})") if isinstance(n, Size) and n.axis in indices else n)


def _name(array: str) -> str:
    if array.endswith(OLD):
        return f"old({array.removesuffix(OLD)})"
    return array.removesuffix(RUNNING).removesuffix(PREV).removesuffix(PAST)


def _number(v: int | float | bool) -> str:
    if isinstance(v, float) and v.is_integer():
        return str(int(v))
    if isinstance(v, float) and abs(v) != float("inf"):
        f = Fraction(v).limit_denominator(1000)
        if float(f) == v and f.denominator > 8:
            return f"{f.numerator}/{f.denominator}"
    return str(v)


def _text(e: Expr) -> tuple[str, int]:
    match e:
        case Number(value=v):
            return _number(v), 100 if not isinstance(v, bool) and v >= 0 else 65
        case Constant(name=n) | Size(axis=n) | Index(axis=n):
            return n, 100
        case Read(array=array, index=index):
            places = ", ".join(map(_place, index)) if any(f.lookups for f in index) else ""
            return f"{_name(array)}[{places}]" if places else _name(array), 100
        case Apply(op=op, args=args):
            name = _SIGNS.get(op, op)
            operator = OPERATORS[name]
            if operator.symbol is None:
                return f"{name}({', '.join(text(a) for a in args)})", 100
            p = operator.precedence
            if len(args) == 1:
                inner, q = _text(args[0])
                sign = operator.symbol + (" " if operator.symbol.isalpha() else "")
                return sign + (inner if q >= p else f"({inner})"), p
            left, lp = _text(args[0])
            right, rp = _text(args[1])
            tight = name in _TIGHT_RIGHT or p == 40
            left = f"({left})" if lp < p or (p in (40, 90) and lp == p) else left
            right = f"({right})" if rp < p or (tight and rp == p) else right
            return (f"{left}**{right}" if name == "pow" else f"{left} {operator.symbol} {right}"), p
        case _:
            return repr(e), 100
