"""Opening: from lines to boxes.

A line may nest reductions and composites; a box has one function. `open_diagram` splits every
line into boxes and resolves axes into components (counting.md 5, 12); `open_line` is the
rewrite that replaces one line by the lines of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, Opened, Operand, Recurrence, base_name
from ioweave.diagrams.components import rename_components
from ioweave.diagrams.composites import Definition, definition
from ioweave.diagrams.diagram import Diagram, Line
from ioweave.diagrams.elements import POSITION, line_dtype, operand_dtype
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Constant,
    Expr,
    Number,
    Read,
    Reduce,
    Scan,
    Size,
    children,
    free_axes,
    is_predicate_of_indices,
    reads,
    rebuild,
    rename_axes,
    transform,
    walk,
)
from ioweave.diagrams.operators import LIST_NAMES, REDUCTIONS, REVERSED
from ioweave.diagrams.recurrences import Walk, as_own, in_lockstep

__all__ = ["can_open", "line_dtype", "open_diagram", "open_line", "open_one"]
from ioweave.diagrams.sizes import ties


class _Opener:
    """Splits one line; `boxes` collects its parts in order of evaluation."""

    def __init__(self, line: Line, dtype: str, others: frozenset[str], known: Mapping[str, str]) -> None:
        self.line = line
        self._known = known  # element types of what the line reads
        self._walk: Walk | None = None  # the scan that the line is
        self._others = others  # names of inputs and lines, which a part may not take
        self.dtype = dtype
        self.boxes: list[Box] = []
        self._taken: dict[str, int] = {}
        self._guards: tuple[Expr, ...] = ()  # what holds where the value of the present part is used

    def name(self, part: str) -> str:
        while True:
            n = self._taken[part] = self._taken.get(part, 0) + 1
            name = f"{self.line.name}.{part}" + (str(n) if n > 1 else "")
            if name not in self._others:
                return name

    def ordered(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes in the order of the line, then in order of appearance."""
        return (*(a for a in self.line.axes if a in axes), *(a for a in axes if a not in self.line.axes))

    def emit(
        self,
        part: str | None,
        body: Expr,
        reduction: str | None = None,
        over: tuple[str, ...] = (),
        axes: tuple[str, ...] | None = None,
    ) -> Read:
        """Add a box and return the read of its value; `part` None names the line itself."""
        body = transform(body, _joined)
        if axes is None:
            axes = self.ordered(tuple(a for a in (*free_axes(body), *self.steps(body)) if a not in over))
        name = self.line.name if part is None else self.name(part)
        return self.add(Box(name, axes, body, reduction, over, self.dtype, self.line.name))

    def add(self, box: Box) -> Read:
        self.boxes.append(box)
        return Read(box.name, tuple(Affine.axis(a) for a in box.axes))

    def steps(self, body: Expr) -> tuple[str, ...]:
        """The axis of the scan around a part that is made anew in each of its steps."""
        walk = self._walk
        return (walk.axis,) if walk is not None and any(walk.is_own(r) for r in reads(body)) else ()

    def scan(self, e: Scan) -> None:
        """The boxes of a recurrence that is the whole line: its parts, then the box that carries the state."""
        start = self.flatten(e.start)
        self._walk = Walk(self.line.name, self.line.axes, e.axis, e.backward, start)
        body = transform(self.flatten(e.body), _joined)
        recurrence = Recurrence(e.axis, start, e.backward)
        self.add(Box(self.line.name, self.line.axes, body, None, (), self.dtype, self.line.name, scan=recurrence))

    def open(self) -> tuple[Box, ...]:
        if isinstance(self.line.expr, Scan):
            self.scan(self.line.expr)
            return tuple(self.boxes)
        result = self.flatten(self.line.expr, top=True)
        if not (isinstance(result, Read) and self.boxes and self.boxes[-1].name == self.line.name):
            self.emit(None, result, axes=self.line.axes)
        return tuple(self.boxes)

    def flatten(self, e: Expr, top: bool = False) -> Expr:
        match e:
            case Read(array=array) if self._walk is not None and array == self.line.name:
                return self._walk.own(rebuild(e, tuple(self.flatten(c) for c in children(e))), self._guards)
            case Reduce(op, axes, body, where, into) if op in LIST_NAMES:
                assert into is not None
                return self.listed(op, axes, self.flatten(body), where and self.flatten(where), into, top)
            case Reduce(op, axes, body, where):
                return self.reduce(op, axes, self.flatten(body), where and self.flatten(where), top)
            case Composite(op, axes, args, options):
                return self.composite(definition(op), axes, [self.flatten(a) for a in args], dict(options), top)
            case Apply("where", (condition, chosen, other)) if is_predicate_of_indices(condition):
                yes = self.under(condition, chosen)
                return Apply("where", (condition, yes, self.under(Apply("not", (condition,)), other)))
            case _:
                kids = children(e)
                return rebuild(e, tuple(self.flatten(c) for c in kids)) if kids else e

    def under(self, condition: Expr, e: Expr) -> Expr:
        """``e`` flattened, where ``condition`` holds."""
        before = self._guards
        self._guards = (*before, condition)
        result = self.flatten(e)
        self._guards = before
        return result

    def guarded(self, body: Expr, axes: tuple[str, ...], other: float) -> Expr:
        """A part's body under the guards around it, ``other`` elsewhere, where it reads shifted places.

        A line of its own has no guard around it, and its reads must be in range (counting.md 6).
        """
        free = set(free_axes(body)) - set(axes)
        guards = [g for g in self._guards if set(free_axes(g)) <= free]
        shifted = any(form.bare is None for r in reads(body) for form in r.index)
        if not guards or not shifted or not can_open(self.line):
            return body
        condition = guards[0]
        for g in guards[1:]:
            condition = Apply("and", (condition, g))
        return Apply("where", (condition, body, Number(other)))

    def reduce(self, op: str, axes: tuple[str, ...], body: Expr, where: Expr | None, top: bool) -> Expr:
        if op == "mean":
            total = self.reduce("sum", axes, body, where, False)
            return Apply("div", (total, self.count(axes, where)))
        if where is not None:
            body = Apply("where", (where, body, Number(REDUCTIONS[op].identity)))
        body = self.guarded(body, axes, REDUCTIONS[op].identity)
        inner = {a for a in free_axes(body) if a not in axes}
        if top and inner == set(self.line.axes):
            return self.emit(None, body, op, axes, self.line.axes)
        return self.emit(op, body, op, axes)

    def listed(self, op: str, axes: tuple[str, ...], key: Expr, where: Expr | None, into: str, top: bool) -> Expr:
        """The boxes of a list: its keys, and for positions those beside them."""
        if where is not None:
            key = Apply("where", (where, key, Number(REDUCTIONS[op].identity)))
        key = transform(self.guarded(key, axes, REDUCTIONS[op].identity), _joined)
        outer = tuple(a for a in (*free_axes(key), *self.steps(key)) if a not in axes)
        own = self.ordered((*outer, into))
        at_top = top and set(own) == set(self.line.axes)
        own = self.line.axes if at_top else own
        name = self.line.name if at_top else self.name(op)
        if op == "topk":
            return self.add(Box(name, own, key, op, axes, self.dtype, self.line.name, into=into))
        keys = f"{name}.topk"
        while keys in self._others:
            keys += "_"
        dtype = operand_dtype(key, self._known)
        self.add(Box(keys, own, key, "topk", axes, dtype, self.line.name, into=into))
        dtype = self.dtype if at_top else POSITION
        return self.add(Box(name, own, key, op, axes, dtype, self.line.name, into=into, keys=(keys, name)))

    def count(self, axes: tuple[str, ...], where: Expr | None) -> Expr:
        """What a mean divides by: the size of its axes, or the count of what `where` keeps."""
        if where is not None:
            return self.emit("count", Apply("where", (where, Number(1), Number(0))), "sum", axes)
        return _product([Size(a) for a in axes])

    def composite(
        self, d: Definition, axes: tuple[str, ...], args: list[Expr], options: dict[str, Expr], top: bool
    ) -> Expr:
        arg = args[0]
        if len(d.lines) == 1 and isinstance(d.lines[0].expr, Scan):
            return self.prefix(d, d.lines[0].expr, axes[0], arg, options, top)
        # an argument that lacks an axis of the row is the same at every place of it
        row = self.ordered(tuple(dict.fromkeys((*free_axes(arg), *axes))))
        if not _is_row(arg, row):
            arg = self.emit("arg", self.guarded(arg, axes, 0), axes=row)
        values: dict[str, Expr] = {}
        result: Expr = arg
        for index, part in enumerate(d.lines):
            last = index == len(d.lines) - 1
            body = _instantiate(part.expr, d, axes, arg, options, values)
            mine = row if part.axes else tuple(a for a in row if a not in axes)
            if isinstance(body, Reduce):
                flat = self.flatten(body.body)
                at_top = last and top and set(mine) == set(self.line.axes)
                if body.op == "mean":
                    total = self.emit("sum", flat, "sum", axes, mine)
                    result = Apply("div", (total, _product([Size(a) for a in axes])))
                    result = self.emit(None if at_top else part.name, result, axes=mine)
                else:
                    result = self.emit(None if at_top else part.name, flat, body.op, axes, mine)
            else:
                at_top = last and top and set(mine) == set(self.line.axes)
                out_axes = self.line.axes if at_top else mine
                name = None if at_top else (d.name if last else part.name)
                result = self.emit(name, body, axes=out_axes)
            values[part.name] = result
        return result

    def prefix(self, d: Definition, e: Scan, axis: str, arg: Expr, options: dict[str, Expr], top: bool) -> Expr:
        """The box of a composite that is one recurrence along ``axis``; its argument stands in the body."""
        arg = self.guarded(arg, (axis,), 0)
        row = self.ordered(tuple(dict.fromkeys((*free_axes(arg), axis, *self.steps(arg)))))
        at_top = top and set(row) == set(self.line.axes)
        name, row = (self.line.name, self.line.axes) if at_top else (self.name(d.name), row)
        backward = options.get(REVERSED) == Number(True)
        walk = Walk(name, row, axis, backward, e.start)
        before = Read(walk.previous, tuple(Affine.axis(a) for a in row if a != axis))

        def step(node: Expr) -> Expr:
            if isinstance(node, Read):
                return arg if node.array == d.argument else before
            return node

        body = transform(transform(e.body, step), _joined)
        return self.add(
            Box(name, row, body, None, (), self.dtype, self.line.name, scan=Recurrence(axis, e.start, backward))
        )


def _joined(e: Expr) -> Expr:
    """A `where` in a `where` with the same other branch, as one: a conjunction is one predicate (counting.md 25)."""
    match e:
        case Apply("where", (p, Apply("where", (r, x, y)), other)) if y == other and _are_predicates(p, r, other):
            return Apply("where", (Apply("and", (p, r)), x, other))
        case Apply("where", (p, other, Apply("where", (r, x, y)))) if x == other and _are_predicates(p, r, other):
            return Apply("where", (Apply("or", (p, r)), other, y))
    return e


def _are_predicates(*parts: Expr) -> bool:
    return all(is_predicate_of_indices(p) for p in parts)


def _is_row(e: Expr, row: tuple[str, ...]) -> bool:
    """Whether ``e`` is an array read at exactly the axes of ``row``, each at a place of its own."""
    if not isinstance(e, Read):
        return False
    places = [form.bare for form in e.index]
    return len(places) == len(row) and set(places) == set(row)


def _product(terms: list[Size]) -> Expr:
    result: Expr = terms[0]
    for t in terms[1:]:
        result = Apply("mul", (result, t))
    return result


def _instantiate(
    e: Expr, d: Definition, axes: tuple[str, ...], arg: Expr, options: dict[str, Expr], values: dict[str, Expr]
) -> Expr:
    """A definition's expression for these axes, this argument and these options."""

    def step(node: Expr) -> Expr:
        match node:
            case Read(array=array) if array == d.argument:
                return arg
            case Read(array=array):
                return values[array]
            case Size(axis=axis) if axis == d.axis:
                return _product([Size(a) for a in axes])
            case Constant(name=name):
                return options.get(name, Number(d.options[name]))
            case Reduce(axes=over) if over == (d.axis,):
                return replace(node, axes=axes)
            case _:
                return node

    return transform(e, step)


def open_one(
    line: Line, dtype: str, others: frozenset[str] = frozenset(), known: Mapping[str, str] | None = None
) -> tuple[Box, ...]:
    """The boxes of one line, axes by the line's own names; no part has a name among ``others``.

    ``known`` gives the element types of what the line reads: the keys of its lists have them.
    """
    return _Opener(line, dtype, others, known or {}).open()


def names_of(diagram: Diagram) -> frozenset[str]:
    """The names of a diagram's inputs and lines."""
    return frozenset(i.name for i in diagram.inputs) | frozenset(line.name for line in diagram.lines)


@lru_cache(maxsize=256)
def open_diagram(diagram: Diagram) -> Opened:
    """Every line opened into boxes, axes renamed to components."""
    known = {i.name: i.dtype for i in diagram.inputs}
    boxes: list[Box] = []
    names = names_of(diagram)
    for line in diagram.lines:
        known[line.name] = dtype = line_dtype(line, known)
        boxes.extend(open_one(line, dtype, names, known))
    renamed = rename_components(tuple(boxes))
    base = {a: base_name(a) for b in renamed for a in b.all_axes}
    inputs = tuple(Operand(i.name, i.dims, i.dtype, i.fact) for i in diagram.inputs)
    return Opened(renamed, inputs, diagram.outputs, tuple(base.items()), ties(diagram.definitions))


def can_open(line: Line) -> bool:
    """Whether a line holds a composite, so that opening it gives more than one line."""
    return any(isinstance(n, Composite) for n in walk(line.expr))


def as_line(box: Box, rename: Callable[[str], str] = base_name) -> Line:
    """A box as a line of its own."""
    names = {a: rename(a) for a in box.all_axes}
    over = tuple(names[a] for a in box.over)
    into = names[box.into] if box.into else None
    if box.scan is not None:
        own = as_own(box)
        start = rename_axes(box.scan.start, names)
        expr: Expr = Scan(names[box.scan.axis], rename_axes(own, names), start, box.scan.backward)
    else:
        body = rename_axes(box.body, names)
        expr = Reduce(box.reduction, over, body, into=into) if box.reduction else body
    return Line(box.name, tuple(names[a] for a in box.axes), expr, box.dtype)


def open_line(diagram: Diagram, name: str) -> Diagram:
    """The diagram with line ``name`` replaced by the lines of its parts (rewrite "open").

    Opening the result gives the same boxes as before, but for the line they belong to.
    """
    known = {i.name: i.dtype for i in diagram.inputs}
    lines: list[Line] = []
    names = names_of(diagram)
    for line in diagram.lines:
        known[line.name] = dtype = line_dtype(line, known)
        boxes = open_one(line, dtype, names, known) if line.name == name else ()
        if line.name != name or in_lockstep(boxes):
            lines.append(line)
            continue
        beside = {box.keys[0] for box in boxes if box.keys is not None}  # keys come again with their positions
        for box in boxes:
            if box.name in beside:
                continue
            part = as_line(box)
            known[part.name] = box.dtype
            plain = replace(part, dtype=None)
            lines.append(plain if line.dtype is None and line_dtype(plain, known) == box.dtype else part)
    return replace(diagram, lines=tuple(lines))
