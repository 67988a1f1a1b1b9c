"""A diagram as Python: source that builds an equal diagram with named-axis arrays.

The printer of ``ioweave show NAME --as python``. Running the source binds ``algorithm``.
"""

from __future__ import annotations

import builtins
import json
import keyword
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

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
    free_axes,
    walk,
)
from ioweave.diagrams.operators import CASTS, COMPARISONS, KEEP, LIST_NAMES, OPERATORS, REVERSED, SCAN
from ioweave.diagrams.sizes import axis_names

_ATOM, _POWER, _UNARY = 100, 90, 80
# Python binds & and | tighter than comparisons, unlike `and` and `or`
_PRECEDENCE = {"and": 50, "or": 45}
_SIGN = {"and": "&", "or": "|"}
_FUNCTION = {"min": "minimum", "max": "maximum", "round": "round_"}
_REDUCTION = {op: f"{op}_" for op in ("sum", "prod", "max", "min", "any", "all")} | {"mean": "mean"}
_FREE = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {"algorithm"}


def to_python(diagram: Diagram) -> str:
    """Python source that rebuilds the diagram; it binds ``algorithm`` to one equal to it."""
    return _Printer(diagram).source()


@dataclass
class _Printer:
    """Prints one diagram; `imports`, `names` and `defined` fill as the parts are printed."""

    diagram: Diagram
    imports: set[str] = field(default_factory=lambda: {"diagram"})
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    axes: frozenset[str] = frozenset()
    defined: set[str] = field(default_factory=set)  # a tie may stand before what it is tied to
    walked: tuple[Line, Scan] | None = None  # the recurrence that is being printed

    def source(self) -> str:
        d = self.diagram
        self.axes = frozenset(axis_names(d))
        self.name_all()
        definitions, leading = self.definitions()
        inputs = [self.input(i) for i in d.inputs]
        lines = [self.line(n) for n in d.lines]
        listed = [*leading, *(self.array(i.name) for i in d.inputs), *(self.array(n.name) for n in d.lines)]
        marked = d.outputs[: -1 if d.outputs[-1] == d.lines[-1].name else None]
        options = [f"name={_quoted(d.name)}"] if d.name else []
        options += [f"doc={_quoted(d.doc)}"] if d.doc else []
        options += [f"out=({' '.join(_quoted(n) + ',' for n in marked)})"] if marked else []
        call = f"algorithm = diagram({', '.join([*listed, *options])})"
        if len(call) > 100:
            call = "algorithm = diagram(\n" + "".join(f"    {a},\n" for a in (", ".join(listed), *options)) + ")"
        head = "from ioweave import " + ", ".join(sorted(self.imports))
        if len(head) > 100:
            head = "from ioweave import (\n" + "".join(f"    {n},\n" for n in sorted(self.imports)) + ")"
        blocks = [head, "\n".join(definitions), "\n".join(inputs), "\n".join(lines), call]
        return "\n\n".join(b for b in blocks if b) + "\n"

    def name_all(self) -> None:
        """A Python name for every axis, constant and array, apart from those imported."""
        taken = set(_FREE) | {*_FUNCTION.values(), *_REDUCTION.values(), *OPERATORS, "array", "axes", "constant"}
        taken |= {"cast", "diagram", "dot", "inf", "number", "where", SCAN, *LIST_NAMES}
        taken |= {n.op for line in self.diagram.lines for n in walk(line.expr) if isinstance(n, Composite)}
        wanted = [("value", d.name) for d in self.diagram.definitions]
        wanted += [("array", i.name) for i in self.diagram.inputs] + [("array", n.name) for n in self.diagram.lines]
        for key in wanted:
            name = key[1].replace(".", "_")
            while name in taken:
                name += "_"
            taken.add(name)
            self.names[key] = name

    def value(self, name: str) -> str:
        return self.names["value", name]

    def array(self, name: str) -> str:
        return self.names["array", name]

    def use(self, name: str) -> str:
        self.imports.add(name)
        return name

    def definitions(self) -> tuple[list[str], list[str]]:
        """The statements that define sizes and constants, and what `diagram` must list to keep their order."""
        given = self.diagram.definitions
        sizes = [d for d in given if d.name in self.axes]
        others = [d for d in given if d.name not in self.axes]
        read = dict.fromkeys(n.name for line in self.diagram.lines for n in walk(line.expr) if isinstance(n, Constant))
        plain = all(isinstance(d.value, Number | Constant) for d in sizes)
        first = bool(self.diagram.inputs and self.diagram.inputs[0].dims)
        found = [*(d.name for d in sizes), *(n for n in read if n not in self.axes)]
        if sizes and plain and first and found == [d.name for d in given]:
            names = [d.name for d in sizes]
            left = ", ".join(self.value(n) for n in names) + ("," if len(names) == 1 else "")
            ties = ", ".join(f"{d.name}={self.size(d)}" for d in sizes)
            made = f'{left} = {self.use("axes")}("{" ".join(names)}", {ties})'
            self.defined.update(names)
            return [made, *(self.constant(d) for d in others)], []
        statements = []
        for d in given:
            if d.name in self.axes:
                statements.append(f'({self.value(d.name)},) = {self.use("axes")}("{d.name}", {d.name}={self.size(d)})')
                self.defined.add(d.name)
            else:
                statements.append(self.constant(d))
        return statements, [self.value(d.name) for d in given]

    def size(self, d: Definition) -> str:
        return _quoted(d.value.name) if isinstance(d.value, Constant) else self.expression(d.value, 0)

    def constant(self, d: Definition) -> str:
        text = f'{self.value(d.name)} = {self.use("constant")}("{d.name}", {self.size(d)})'
        self.defined.add(d.name)
        return text

    def input(self, i: Input) -> str:
        dims = "".join(f", {self.form(Affine(d.sizes, (), d.offset))}" for d in i.dims)
        fact = ""
        if i.fact is not None:
            op, bound = i.fact
            fact = f', fact="{op} {int(bound) if bound.is_integer() else bound}"'
        return f'{self.array(i.name)} = {self.use("array")}("{i.name}"{dims}, dtype="{i.dtype}"{fact})'

    def line(self, line: Line) -> str:
        if isinstance(line.expr, Scan):
            text = self.scan(line, line.expr)
        else:
            text = self.lifted(line.expr) if _native(line.expr) else self.expression(line.expr, _ATOM)
        if isinstance(line.expr, Index):
            text += ".index"
        axes = "".join(f", {self.value(a)}" for a in line.axes)
        dtype = f', dtype="{line.dtype}"' if line.dtype else ""
        return f'{self.array(line.name)} = {text}.named("{line.name}"{axes}{dtype})'

    def scan(self, line: Line, e: Scan) -> str:
        """A recurrence as a function of what came before, under the name of its line."""
        self.walked = line, e
        body = self.expression(e.body, 0)
        self.walked = None
        others = [self.value(a) for a in line.axes if a != e.axis]
        state = f"({others[0]},)" if len(others) == 1 else f"({', '.join(others)})"
        way = f", {REVERSED}=True" if e.backward else ""
        return (
            f"{self.use(SCAN)}({self.value(e.axis)}, lambda {self.array(line.name)}: {body}, "
            f"start={self.expression(e.start, 0)}{way}, axes={state})"
        )

    def form(self, form: Affine) -> str:
        """An affine index: axes by name, sizes by `.size`, constants by name."""
        text = ""
        order = [d.name for d in self.diagram.definitions]
        axes = sorted(form.axes, key=lambda t: order.index(t[0]))
        sizes = [(self.value(n) + (".size" if n in self.axes else ""), c) for n, c in form.sizes]
        alone = len(form.lookups) == 1 and form == Affine.make({}, {}, 0, {form.lookups[0][0]: 1})
        looked = [(self.expression(lookup.expr, 0 if alone else _UNARY + 1), c) for lookup, c in form.lookups]
        for name, c in (*((self.value(a), c) for a, c in axes), *looked, *sizes):
            term = name if abs(c) == 1 else f"{abs(c)} * {name}"
            text += (" - " if c < 0 else " + ") + term if text else ("-" if c < 0 else "") + term
        if form.offset or not text:
            text += (f" {'-' if form.offset < 0 else '+'} {abs(form.offset)}") if text else str(form.offset)
        return text

    def lifted(self, e: Expr) -> str:
        """A literal that Python must not compute with."""
        return f"{self.use('number')}({self.expression(e, 0)})"

    def operand(self, e: Expr, least: int, lift: bool) -> str:
        return self.lifted(e) if lift and _native(e) else self.expression(e, least)

    def expression(self, e: Expr, least: int) -> str:
        """``e`` in parentheses unless it binds at least as tightly as ``least``."""
        text, precedence = self.bare(e)
        return text if precedence >= least else f"({text})"

    def bare(self, e: Expr) -> tuple[str, int]:
        match e:
            case Number(value=value):
                sign = "-" if math.copysign(1, value) < 0 else ""
                text = self.use("inf") if math.isinf(value) else repr(abs(value) if sign else value)
                return sign + text, _UNARY if sign else _ATOM
            case Constant(name=name):
                if name not in self.defined:
                    return f'{self.use("Axis")}("{name}").size', _ATOM
                # in a definition, another size stands as a constant
                return self.value(name) + (".size" if name in self.axes else ""), _ATOM
            case Index(axis=axis):
                return self.value(axis), _ATOM
            case Size(axis=axis):
                return (self.value(axis) if axis in self.axes else f'{self.use("Axis")}("{axis}")') + ".size", _ATOM
            case Read():
                return self.read(e), _ATOM
            case Reduce():
                return self.reduction(e), _ATOM
            case Scan():
                raise TypeError("a recurrence is a whole line")
            case Composite(op=op, axes=axes, args=args, options=options):
                given = "".join(f", {k}={self.expression(v, 0)}" for k, v in options)
                values = ", ".join(self.expression(a, 0) for a in args)
                return f"{self.use(op)}({values}, over={self.over(axes)}{given})", _ATOM
            case Apply(op=op, args=args):
                return self.apply(op, args)

    def apply(self, op: str, args: tuple[Expr, ...]) -> tuple[str, int]:
        if op == "neg" or op == "not":
            sign = "-" if op == "neg" else "~"
            return f"{sign}{self.operand(args[0], _UNARY, True)}", _UNARY
        if op == "abs":
            return f"abs({self.operand(args[0], 0, True)})", _ATOM
        if op == KEEP:
            places = ", ".join(self.expression(a, 0) for a in args[1:])
            return f"{self.use(KEEP)}({places}, p={self.expression(args[0], 0)})", _ATOM
        if op in CASTS:
            return f'{self.use("cast")}({self.expression(args[0], 0)}, "{op}")', _ATOM
        sign_or_none = OPERATORS[op].symbol
        if sign_or_none is None:
            name = self.use(_FUNCTION.get(op, op))
            return f"{name}({', '.join(self.expression(a, 0) for a in args)})", _ATOM
        mine = _PRECEDENCE.get(op, OPERATORS[op].precedence)
        left, right = args
        # Python would compute with two literals, and turn `2 < a` round
        lift = _native(right) or op in COMPARISONS
        if op == "pow":
            before, after = _POWER + 1, _UNARY
        else:
            before, after = mine + (op in COMPARISONS), mine + 1
        sign = _SIGN.get(op, sign_or_none)
        gap = "" if op == "pow" else " "
        return f"{self.operand(left, before, lift)}{gap}{sign}{gap}{self.expression(right, after)}", mine

    def read(self, r: Read) -> str:
        name = self.array(r.array)
        if self.walked is not None and r.array == self.walked[0].name:
            return self.own(name, r, *self.walked)
        if not r.index or r.index == self.own_index(r.array):
            return name
        return f"{name}[{', '.join(self.form(f) for f in r.index)}]"

    def own(self, name: str, r: Read, line: Line, e: Scan) -> str:
        """What a recurrence reads of itself: bare the step before, else the place along its axis first."""
        place = line.axes.index(e.axis)
        before = Affine.make({e.axis: 1}, {}, 1 if e.backward else -1)
        others = [f for k, f in enumerate(r.index) if k != place]
        if r.index[place] == before and others == [Affine.axis(a) for a in line.axes if a != e.axis]:
            return name
        return f"{name}[{', '.join(self.form(f) for f in (r.index[place], *others))}]"

    def own_index(self, array: str) -> tuple[Affine, ...] | None:
        """The index at which the bare array is read, if it may stand bare."""
        declared = self.diagram.input(array)
        if declared is None:
            return tuple(map(Affine.axis, self.diagram.line(array).axes))
        forms = tuple(Affine(d.sizes, (), d.offset) for d in declared.dims)
        return forms if all(f.bare is not None for f in forms) else None

    def reduction(self, r: Reduce) -> str:
        over = f"over={self.over(r.axes)}"
        if r.into is not None:
            over += f", into={self.value(r.into)}"
        if r.where is not None:
            over += f", where={self.expression(r.where, 0)}"
        elif r.op == "sum" and isinstance(r.body, Apply) and r.body.op == "mul":
            a, b = r.body.args
            if all(axis in free_axes(f) for axis in r.axes for f in (a, b)):
                return f"{self.use('dot')}({self.expression(a, 0)}, {self.expression(b, 0)}, {over})"
        return f"{self.use(_REDUCTION.get(r.op, r.op))}({self.expression(r.body, 0)}, {over})"

    def over(self, axes: Iterable[str]) -> str:
        names = [self.value(a) for a in axes]
        return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _quoted(text: str) -> str:
    """A Python string in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _native(e: Expr) -> bool:
    """Whether the text of ``e`` is a plain Python number."""
    return isinstance(e, Number)
