"""From a diagram to arrays and columns: how each line's operation is drawn, by its structure.

Only the picture is chosen here. The name of a composite may choose a pictogram; nothing here
proves or counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.diagram import Diagram, Line
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
    reads,
    walk,
)
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.operators import CASTS, COMPOSITES_THAT_REDUCE, LIST_NAMES, PREDICATES, REVERSED, REVERSIBLE
from ioweave.render.figure.mathematics import formula, position
from ioweave.render.figure.names import POINT, math, maths_name
from ioweave.render.figure.operands import operand_specs
from ioweave.render.figure.spec import ArraySpec, ColumnSpec, Glyph, LoopSpec, OperandSpec
from ioweave.render.figure.theme import PAPER
from ioweave.render.figure.typeset import width

INFIX = {
    "add": "+", "sub": "−", "mul": "×", "div": "÷", "masked_sub": "−", "masked_div": "÷", "mod": "mod", "floordiv": "÷",
}  # fmt: skip
SIGNS = {"sum": "Σ", "prod": "Π", "logsumexp": "lse"}
NORMS = {"layernorm": "centred", "rmsnorm": "rms", "l2norm": "l2"}
TITLE_LIMIT = 130.0
SCAN_LIMIT = 215.0  # a recurrence is told by its formula as far as that goes


@dataclass(frozen=True, slots=True)
class Described:
    """The arrays and columns of a diagram; axes are components (``d'``)."""

    arrays: tuple[ArraySpec, ...]
    columns: tuple[ColumnSpec, ...]


def describe_diagram(diagram: Diagram) -> Described:
    """Arrays (inputs first) and one column for each line."""
    names = _components(diagram)
    columns = tuple(_column(line, names[line.name]) for line in diagram.lines)
    outputs = set(diagram.outputs)
    order = [d.name for d in diagram.definitions]
    arrays: list[ArraySpec] = []
    for i in diagram.inputs:
        labels = tuple(_dimension(i.name, p, _ordered(dim, order), columns) for p, dim in enumerate(i.dims))
        arrays.append(ArraySpec(i.name, math(i.name), labels or ("",), True))
    for line, column in zip(diagram.lines, columns, strict=True):
        labels = tuple(math(a) for a in column.axes)
        arrays.append(ArraySpec(line.name, math(line.name), labels, False, line.name in outputs))
    return Described(tuple(arrays), columns)


def _components(diagram: Diagram) -> dict[str, dict[str, str]]:
    """For each line, its axis names to components."""
    out: dict[str, dict[str, str]] = {line.name: {} for line in diagram.lines}
    for box in open_diagram(diagram).boxes:
        for axis in box.all_axes:
            out[box.line].setdefault(base_name(axis), axis)
    return out


def _ordered(dim: Affine, order: list[str]) -> Affine:
    """The form with its sizes in the order of their definitions, as it was written."""
    return replace(dim, sizes=tuple(sorted(dim.sizes, key=lambda s: order.index(s[0]) if s[0] in order else -1)))


def _dimension(array: str, place: int, dim: Affine, columns: tuple[ColumnSpec, ...]) -> str:
    if dim.offset == 0 and not dim.axes and len(dim.sizes) == 1 and dim.sizes[0][1] == 1:
        size = dim.sizes[0][0]
        for column in columns:
            for o in column.operands:
                if o.array == array and place not in o.shifted and len(o.axes[place]) == 1:
                    axis = o.axes[place][0]
                    if base_name(axis) == size:
                        return math(axis)
        return math(size)
    return f"${position(dim)}$"


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is found while a line's expression is peeled from the outside."""

    inner: Expr
    after: tuple[tuple[str, bool], ...] = ()  # what follows, innermost first, and whether it is a scalar factor
    mask: bool = False

    def then(self, inner: Expr, text: str, factor: bool = False) -> _Parts:
        """With what stands outside ``inner`` taken off."""
        return replace(self, inner=inner, after=((text, factor), *self.after))

    def factor(self) -> str:
        """The scalar factors that stand at the tip of a cup: those before any function."""
        factors = (text for text, _ in takewhile(lambda step: step[1], self.after))
        return " ".join(factors)

    def functions(self) -> str:
        """What follows those factors, in order."""
        return " ".join(text for text, _ in dropwhile(lambda step: step[1], self.after))


def _column(line: Line, names: dict[str, str]) -> ColumnSpec:
    axes = tuple(names.get(a, a) for a in line.axes) or (POINT,)
    parts = _peel(_Parts(line.expr))
    operands = operand_specs(line.expr, parts.inner, line.name, names)
    factor, after = parts.factor(), parts.functions()
    blank = ColumnSpec(line.name, axes, operands, "", "box", factor=factor, mask=parts.mask, after=after)
    tail = "".join([", mask" if parts.mask else "", f", {after}" if after else ""])
    match parts.inner:
        case Reduce(op=op, axes=over, body=body):
            removed = tuple(names.get(a, a) for a in over)
            first = tuple(dict.fromkeys(names.get(a, a) for a in _removed(body)))
            contracts = op == "sum" and any(_carriers(operands, a) > 1 for a in removed)
            glyph: Glyph = "contract" if contracts else "reduce"
            verb = "contract" if contracts else op
            if op in LIST_NAMES and parts.inner.into is not None:
                tail = f" into {_list((names.get(parts.inner.into, parts.inner.into),))}{tail}"
            head = f"{verb} {_list(removed)}"
            if first:
                inner = "contract" if all(_carriers(operands, a) > 1 for a in first) else "reduce"
                before = _before(body)
                head = _short(f"{inner} {_list(first)}, {f'{before}, ' if before else ''}{head}", head)
            title = _short(f"{head}{tail}", head)
            return replace(
                blank, title=title, glyph=glyph, over=(*removed, *first), first=first, reduction=SIGNS.get(op, op),
                before=_before(body), factor=factor if contracts else "",
                after=after if contracts or not factor else f"{factor} {after}".strip(),
            )  # fmt: skip
        case Scan() as scan:
            return _scan(blank, scan, names)
        case Composite(op=op, axes=(axis,), args=args, options=options) if op in REVERSIBLE:
            backward = any(k == REVERSED and v == Number(True) for k, v in options)
            walked = names.get(axis, axis)
            before = "" if isinstance(args[0], Read) else _before(args[0])
            title = _short(f"{op} {_list((walked,))}{tail}", f"{op} {_list((walked,))}")
            loop = LoopSpec(walked, backward)
            return replace(blank, title=title, glyph="scan", reduction="+", before=before, loop=loop)
        case Composite(op=op, axes=over, args=args):
            worked = tuple(names.get(a, a) for a in over)
            title = _short(f"{op} {_list(worked)}{tail}", f"{op} {_list(worked)}")
            before = "" if all(isinstance(a, Read) for a in args) else _before(args[0])
            if op in COMPOSITES_THAT_REDUCE:
                sign = SIGNS.get(op, op)
                return replace(blank, title=title, glyph="reduce", over=worked, reduction=sign, before=before)
            glyph = "norm" if op in NORMS else "softmax"
            return replace(blank, title=title, glyph=glyph, works=worked, reduction=NORMS.get(op, ""), before=before)
        case inner if not _bound(inner):
            signs = _signs(line.expr)
            glyph = "add" if signs == ("+",) else "elementwise"
            return replace(
                blank, title=_formula_title(line), glyph=glyph, reduction=" ".join(signs),
                factor="", after="", mask=False,
            )  # fmt: skip
        case _:
            removed = tuple(dict.fromkeys(names.get(a, a) for a in _removed(line.expr)))
            return replace(
                blank, title=_short(_words(line.expr, names), "several steps"), glyph="reduce" if removed else "box",
                over=removed, reduction=_short(_summary(line.expr), "f", 60.0), factor="", after="", mask=False,
            )  # fmt: skip


def _scan(blank: ColumnSpec, scan: Scan, names: dict[str, str]) -> ColumnSpec:
    """A recurrence: a loop round its operation; an axis that only its inner reductions have ends inside."""
    walked = names.get(scan.axis, scan.axis)
    inner = tuple(dict.fromkeys(names.get(a, a) for a in _removed(scan.body)))
    read = {a for o in blank.operands for dim in o.axes for a in dim}
    removed = tuple(a for a in inner if a in read and a not in blank.axes)
    verb = f"scan {_list((walked,))}"
    title = _short(f"{verb}: ${formula(scan.body)}$", verb, SCAN_LIMIT)
    sums = {SIGNS.get(n.op, n.op) for n in walk(scan.body) if isinstance(n, Reduce | Composite)}
    loop = LoopSpec(walked, scan.backward, " ".join(sorted(sums)))
    return replace(blank, title=title, glyph="scan", over=removed, reduction=" ".join(_signs(scan.body)), loop=loop)


def _carriers(operands: tuple[OperandSpec, ...], axis: str) -> int:
    """How many operands have the axis."""
    return sum(1 for o in operands if o.feeds is None and any(axis in dim for dim in o.axes))


def _list(axes: tuple[str, ...]) -> str:
    return "$" + ",".join(maths_name(a) for a in axes) + "$"


def _constant(e: Expr) -> bool:
    return not any(isinstance(n, Read | Index | Reduce | Scan | Composite) for n in walk(e))


def _bound(e: Expr) -> bool:
    return any(isinstance(n, Reduce | Scan | Composite) for n in walk(e))


def _peel(p: _Parts) -> _Parts:
    """Strip masks, scalar factors and elementwise functions from the outside of a reduction."""
    match p.inner:
        case Apply(op="where", args=(test, a, b)) if not reads(test):
            for keep, other in ((a, b), (b, a)):
                if _constant(other) and _bound(keep):
                    return _peel(replace(p, inner=keep, mask=True))
        case Apply(op="div", args=(a, b)) if _constant(b) and _bound(a):
            return _peel(p.then(a, rf"$\cdot\,{_inverse(b)}$", True))
        case Apply(op="mul", args=(a, b)) if _constant(a) != _constant(b) and _bound(a) != _bound(b):
            scale, rest = (a, b) if _constant(a) else (b, a)
            if _bound(rest):
                return _peel(p.then(rest, rf"$\cdot\,{formula(scale)}$", True))
        case Apply(op=op, args=args) if sum(_bound(a) for a in args) == 1 and all(
            _bound(a) or _constant(a) for a in args
        ):
            inner = next(a for a in args if _bound(a))
            name = op if op not in INFIX else f"{INFIX[op]}"
            return _peel(p.then(inner, name))
        case Apply(op=op, args=(a, b)) if op in INFIX and _bound(a) != _bound(b):
            inner, other = (a, b) if _bound(a) else (b, a)
            text = f"${formula(other, 70)}$"
            if isinstance(other, Read) and width(text, PAPER.text_block) > 40:
                text = math(other.array)  # where it is read is seen at its wires
            if width(text, PAPER.text_block) <= 40:
                name = f"{INFIX[op]} {text}" if inner is a else f"{text} {INFIX[op]}"
                return _peel(p.then(inner, name))
    return p


def _inverse(e: Expr) -> str:
    match e:
        case Apply(op="sqrt", args=(inner,)) if isinstance(inner, Size | Constant | Number):
            return f"{formula(inner)}^{{-1/2}}"
        case Size() | Constant():
            return f"{formula(e)}^{{-1}}"
        case _:
            return f"1/{formula(e, 70)}"


def _before(body: Expr) -> str:
    """The elementwise function that a reduction applies first; nothing for a plain product of reads."""
    factors = _factors(body)
    if all(isinstance(f, Read) for f in factors):
        return "square" if len(factors) == 2 and factors[0] == factors[1] else ""
    return " ".join(dict.fromkeys(s for f in factors for s in _signs(f, inside=False)))


def _factors(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Apply) and e.op == "mul":
        return (*_factors(e.args[0]), *_factors(e.args[1]))
    return (e,)


def _signs(e: Expr, inside: bool = True) -> tuple[str, ...]:
    """The operators of an elementwise expression in order of evaluation, each once, four at most.

    Reductions in it are signs too with ``inside``, and so is what they reduce; else both are left out.
    """
    out: dict[str, None] = {}

    def visit(node: Expr) -> None:
        if _constant(node) or (not inside and isinstance(node, Reduce | Composite)):
            return
        masks = isinstance(node, Apply) and node.op == "where" and not reads(node.args[0])
        for child in children(node)[1 if masks else 0 :]:
            visit(child)
        if isinstance(node, Reduce | Composite):
            out.setdefault(SIGNS.get(node.op, node.op))
        if isinstance(node, Apply) and node.op not in PREDICATES:
            if node.op == "pow" and node.args[1] == Number(2):
                out.setdefault("square")
            elif node.op == "where":
                out.setdefault("mask" if not reads(node.args[0]) else "where")
            elif node.op not in CASTS:
                out.setdefault(INFIX.get(node.op, node.op))
            else:
                out.setdefault(node.op)

    visit(e)
    signs = tuple(out)
    if len(signs) > 1 and signs[-1] == "×":
        signs = signs[:-1] if signs[:-1] != () and "×" not in signs[:-1] and len(signs) > 4 else signs
    return signs if len(signs) <= 4 else (*signs[:3], "…")


def _formula_title(line: Line) -> str:
    e = line.expr
    if isinstance(e, Read) and any(f.lookups for f in e.index):
        return "gather" if any(reads(x.expr) for f in e.index for x, _ in f.lookups) else "copy"
    if isinstance(e, Read):
        bare = tuple(f.bare for f in e.index)
        return "transpose" if bare != line.axes and sorted(map(str, bare)) == sorted(line.axes) else "copy"
    return _short(f"${formula(e)}$", "elementwise")


def _short(text: str, other: str, limit: float = TITLE_LIMIT) -> str:
    return text if width(text, PAPER.text_block) <= limit else other


def _removed(e: Expr) -> tuple[str, ...]:
    out: list[str] = []
    for node in walk(e):
        if isinstance(node, Reduce) or (isinstance(node, Composite) and node.op in COMPOSITES_THAT_REDUCE):
            out.extend(node.axes)
    return tuple(out)


def _words(e: Expr, names: dict[str, str]) -> str:
    """A line of several reductions in words: ``logsumexp v − sum v``."""
    match e:
        case Reduce(op=op, axes=axes) | Composite(op=op, axes=axes):
            return f"{op} {_list(tuple(names.get(a, a) for a in axes))}"
        case Apply(op=op, args=(a, b)) if op in INFIX:
            parts = [_words(e, names) for e in (a, b)]
            if op in ("mul", "div"):
                parts = [f"({p})" if isinstance(e, Apply) and e.op in ("add", "sub") else p
                         for e, p in zip((a, b), parts, strict=True)]  # fmt: skip
            return f"{parts[0]} {INFIX[op]} {parts[1]}"
        case Apply(op=op, args=args):
            return f"{op}({', '.join(_words(a, names) for a in args)})"
        case _:
            return f"${formula(e)}$"


def _summary(e: Expr) -> str:
    """The same in signs, for the box itself."""
    match e:
        case Reduce(op=op) | Composite(op=op):
            return SIGNS.get(op, op)
        case Apply(op=op, args=(a, b)) if op in INFIX and (_bound(a) or _bound(b)):
            return f"{_summary(a)} {INFIX[op]} {_summary(b)}"
        case Apply(op=op, args=args) if any(_bound(a) for a in args):
            return f"{op} {' '.join(_summary(a) for a in args if _bound(a))}"
        case _:
            return f"${formula(e)}$"
