r"""A diagram as LaTeX: one aligned equation for each line.

The printer of ``ioweave show NAME --as latex``; the result stands inside ``equation`` or ``\[ \]``
and needs amsmath and amssymb.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Diagram, Input, Line
from ioweave.diagrams.dtypes import DTYPES
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
    rename_axes,
)
from ioweave.diagrams.operators import CASTS, COMPOSITES_THAT_REDUCE, KEEP, OPERATORS

_GREEK = re.compile(
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|phi|chi|psi|omega"
)
_INFIX = {
    "add": "+",
    "sub": "-",
    "mod": r"\bmod",
    "lt": "<",
    "le": r"\le",
    "gt": ">",
    "ge": r"\ge",
    "eq": "=",
    "ne": r"\ne",
    "and": r"\land",
    "or": r"\lor",
    "masked_sub": "-",
}
_KNOWN = {name: rf"\{name}" for name in ("exp", "log", "tanh", "sin", "cos", "max", "min")}
_NAMED = {"exp2": r"\operatorname{exp}_2", "log2": r"\log_2", "sigmoid": r"\sigma", "erf": r"\operatorname{erf}"}
_BIG = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min", "any": r"\bigvee", "all": r"\bigwedge"}
_FIELD = {"float": r"\mathbb{R}", "int": r"\mathbb{Z}", "bool": r"\mathbb{B}"}
_ATOM, _POWER, _UNARY, _PRODUCT, _SUM = 100, 90, 80, 70, 60


def to_latex(diagram: Diagram) -> str:
    """The inputs with their sets, then each line as an equation, in one ``aligned`` environment."""
    order = tuple(d.name for d in diagram.definitions)
    rows = [_input(i, order) for i in diagram.inputs]
    rows += [_line(line) for line in diagram.lines]
    body = " \\\\\n".join(f"  {row}" for row in rows)
    return f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}\n"


def _input(i: Input, order: tuple[str, ...]) -> str:
    space = _FIELD[DTYPES[i.dtype].kind]
    if i.fact is not None:
        op, bound = i.fact
        sign = {">=": r"\ge", "<=": r"\le", "!=": r"\ne"}.get(op, op)
        space += f"_{{{sign} {_number(bound)}}}"
    if i.dims:
        space += "^{" + r" \times ".join(_dimension(d, order) for d in i.dims) + "}"
    return rf"{symbol(i.name)} &\in {space}"


def _dimension(d: Affine, order: tuple[str, ...]) -> str:
    text = _affine(Affine(d.sizes, (), d.offset), order)
    return f"({text})" if re.search(r" [+-] ", text) else text


def _line(line: Line) -> str:
    left = symbol(line.name) + _subscript(map(Affine.axis, line.axes), line.axes)
    if isinstance(line.expr, Scan):
        return f"{left} &= {_recurrence(line, line.expr)}"
    return f"{left} &= {_expression(line.expr, 0, line.axes)}"


def _recurrence(line: Line, e: Scan) -> str:
    """The step of a recurrence, and what stands before the first one."""
    before = Affine.make({}, {e.axis: 1}) if e.backward else Affine((), (), -1)
    forms = [before if a == e.axis else Affine.axis(a) for a in line.axes]
    first = symbol(line.name) + _subscript(forms, line.axes)
    return rf"{_expression(e.body, 0, line.axes)}, \quad {first} = {_expression(e.start, 0, line.axes)}"


def symbol(name: str) -> str:
    """A name in mathematics: one letter in italics, longer ones upright, ``d_1`` with a subscript."""
    stem, primes = name.rstrip("'"), len(name) - len(name.rstrip("'"))
    match = re.fullmatch(r"([A-Za-z]+)_(\w+)", stem)
    if match and (len(match[1]) == 1 or _GREEK.fullmatch(match[1])):
        text = f"{symbol(match[1])}_{{{_upright(match[2])}}}"
        text = f"{{{text}}}"  # an index may follow
    elif _GREEK.fullmatch(stem):
        text = rf"\{stem}"
    else:
        text = stem if len(stem) == 1 else rf"\mathrm{{{_upright(stem)}}}"
    return text + "'" * primes


def _upright(text: str) -> str:
    return text.replace("_", r"\_")


def _subscript(forms: Iterable[Affine], bound: tuple[str, ...]) -> str:
    parts = [_affine(f, bound) for f in forms]
    return f"_{{{', '.join(parts)}}}" if parts else ""


def _affine(form: Affine, bound: tuple[str, ...]) -> str:
    """The form, its axes in the order of ``bound``."""
    axes = sorted(form.axes, key=lambda t: bound.index(t[0]) if t[0] in bound else len(bound))
    terms = [(symbol(a), c) for a, c in axes] + [(_size(a, bound), c) for a, c in form.sizes]
    terms += [(_expression(lookup.expr, _SUM + 1 if abs(c) == 1 else _PRODUCT, bound), c) for lookup, c in form.lookups]
    text = ""
    for name, c in terms:
        digits = name[:1].isdigit()
        term = name if abs(c) == 1 else rf"{abs(c)} \cdot {name}" if digits else f"{abs(c)}{name}"
        text += (" - " if c < 0 else " + ") + term if text else ("-" if c < 0 else "") + term
    if form.offset or not text:
        text += f" {'-' if form.offset < 0 else '+'} {abs(form.offset)}" if text else str(form.offset)
    return text


def _size(axis: str, bound: tuple[str, ...]) -> str:
    """A size by the name of its axis; between bars where the name stands for the index."""
    return f"|{symbol(axis)}|" if axis in bound else symbol(axis)


def _number(value: int | float | bool) -> str:
    if isinstance(value, bool):
        return r"\top" if value else r"\bot"
    if math.isinf(value):
        return r"\infty" if value > 0 else r"-\infty"
    text = str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    power = f"10^{{{int(exponent)}}}"
    return power if mantissa == "1" else rf"{mantissa} \times {power}"


def _expression(e: Expr, least: int, bound: tuple[str, ...]) -> str:
    """``e`` in parentheses unless it binds at least as tightly as ``least``."""
    text, precedence = _bare(e, bound)
    return text if precedence >= least else rf"\left({text}\right)"


def _bare(e: Expr, bound: tuple[str, ...]) -> tuple[str, int]:
    match e:
        case Number(value=value):
            text = _number(value)
            return text, _PRODUCT if r"\times" in text else _UNARY if text.startswith("-") else _ATOM
        case Constant(name=name) | Index(axis=name):
            return symbol(name), _ATOM
        case Size(axis=axis):
            return _size(axis, bound), _ATOM
        case Read(array=array, index=index):
            return symbol(array) + _subscript(index, bound), _ATOM
        case Reduce():
            return _reduction(e, bound)
        case Scan(body=body):
            return _bare(body, bound)
        case Composite(op=op, axes=axes, args=args, options=options):
            inner = (*bound, *axes) if op in COMPOSITES_THAT_REDUCE else bound
            values = ", ".join(_expression(a, 0, inner) for a in args)
            if op == "cumsum":
                return _prefix_sum(axes[0], args[0], bool(options), bound)
            given = "".join(rf";\, {symbol(k)} = {_expression(v, 0, bound)}" for k, v in options)
            return rf"\operatorname{{{op}}}{_over(axes)}\left({values}{given}\right)", _ATOM
        case Apply(op=op, args=args):
            return _apply(op, args, bound)


def _prefix_sum(axis: str, body: Expr, backward: bool, bound: tuple[str, ...]) -> tuple[str, int]:
    """A sum over the elements up to the one at hand, or from it on, under an index of another name."""
    other = axis + "'"
    inner = _expression(rename_axes(body, {axis: other}), _PRODUCT, (*bound, other))
    sign = r"\ge" if backward else r"\le"
    return rf"\sum_{{{symbol(other)} {sign} {symbol(axis)}}} {inner}", _SUM + 5


def _over(axes: Iterable[str], condition: str = "") -> str:
    return f"_{{{', '.join(map(symbol, axes))}{condition}}}"


def _reduction(r: Reduce, bound: tuple[str, ...]) -> tuple[str, int]:
    inner = (*bound, *r.axes)
    if r.into is not None:
        chosen = "" if r.where is None else rf" \,:\, {_expression(r.where, 0, inner)}"
        number = rf"\operatorname{{{r.op}}}^{{({symbol(r.into)})}}{_over(r.axes, chosen)}"
        return rf"{number}\left({_expression(r.body, 0, inner)}\right)", _ATOM
    condition = "" if r.where is None else rf" \,:\, {_expression(r.where, 0, inner)}"
    if r.op == "mean":
        return rf"\operatorname{{mean}}{_over(r.axes, condition)}\left({_expression(r.body, 0, inner)}\right)", _ATOM
    # a sum reaches as far right as its product, so it is set apart inside a product
    return rf"{_BIG[r.op]}{_over(r.axes, condition)} {_expression(r.body, _PRODUCT, inner)}", _SUM + 5


def _apply(op: str, args: tuple[Expr, ...], bound: tuple[str, ...]) -> tuple[str, int]:
    def text(index: int, least: int = 0) -> str:
        return _expression(args[index], least, bound)

    match op:
        case _ if op == KEEP:
            places = ", ".join(text(k) for k in range(1, len(args)))
            return rf"\operatorname{{keep}}_{{p = {text(0)}}}\left({places}\right)", _ATOM
        case "neg":
            return f"-{text(0, _UNARY)}", _UNARY
        case "not":
            return rf"\lnot {text(0, _UNARY)}", _UNARY
        case "mul":
            digits = text(0, _PRODUCT)[-1:].isdigit() and text(1, _PRODUCT + 1)[:1].isdigit()
            sign = r"\cdot" if digits else r"\,"
            return f"{text(0, _PRODUCT)} {sign} {text(1, _PRODUCT + 1)}", _PRODUCT
        case "div" | "masked_div":
            return rf"\frac{{{text(0)}}}{{{text(1)}}}", _ATOM - 1
        case "floordiv":
            return rf"\left\lfloor \frac{{{text(0)}}}{{{text(1)}}} \right\rfloor", _ATOM
        case "pow":
            return f"{text(0, _ATOM)}^{{{text(1)}}}", _POWER
        case "sqrt":
            return rf"\sqrt{{{text(0)}}}", _ATOM - 1
        case "rsqrt":
            return rf"\frac{{1}}{{\sqrt{{{text(0)}}}}}", _ATOM - 1
        case "abs":
            return rf"\left|{text(0)}\right|", _ATOM
        case "floor":
            return rf"\left\lfloor {text(0)} \right\rfloor", _ATOM
        case "where":
            rows = rf"{text(1)} & {text(0)} \\ {text(2)} & \text{{otherwise}}"
            return rf"\begin{{cases}} {rows} \end{{cases}}", _SUM
        case _ if op in _INFIX:
            mine = OPERATORS["sub" if op == "masked_sub" else op].precedence
            return f"{text(0, mine)} {_INFIX[op]} {text(1, mine + 1)}", mine
        case _:
            name = rf"\operatorname{{{_upright(op)}}}"
            name = _KNOWN.get(op) or _NAMED.get(op) or (rf"\mathrm{{{_upright(op)}}}" if op in CASTS else name)
            return rf"{name}\left({', '.join(text(k) for k in range(len(args)))}\right)", _ATOM
