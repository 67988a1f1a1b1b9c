"""Reads stay in range (counting.md 6), or stand under a `where` that selects its other branch there.

First by intervals; then by eliminating the axes from the inequalities of the predicates
(Fourier-Motzkin); last, on small grids, element by element. What an array holds is not known here:
a position that it gives is taken to be in range, unless no value could be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Position
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Apply,
    Constant,
    Expr,
    Index,
    Number,
    Read,
    Size,
    free_axes,
    is_predicate_of_indices,
    value_of,
    walk,
)
from ioweave.diagrams.notation.printer import print_affine
from ioweave.diagrams.notation.reach import EVERY, Reach, Spans, reach
from ioweave.diagrams.notation.scope import Condition, Scope, Walk
from ioweave.diagrams.sizes import Value

Row = tuple[dict[str, int], int]  # sum(c * axis) + offset >= 0
Unknowns = dict[tuple[Expr, int], tuple[Row, tuple[Row, ...]]]  # what is not affine: its unknown, and rows that bind it

_MOST_ROWS = 400
_MOST_CASES = 64
_GRID = 1 << 22
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def check_range(array: str, place: int, form: Affine, dim: Affine, scope: Scope, position: Position) -> None:
    """Raise `WeaveError` if position ``place`` of a read may leave its array at the sizes of the scope."""
    sizes = {n: int(v) for n, v in scope.values.items() if isinstance(v, int)}
    length = dim.fixed(sizes)
    axes = {a: sizes[a] for a in form.names}
    spans = scope.made.spans
    low, high = _reach(form, sizes, scope.values, spans)
    if low >= 0 and high < length:
        return
    if any(isinstance(n, Read) and n.array not in spans for n, _ in _terms(form)) and low < length and high >= 0:
        return
    for below in (True, False):
        if (low >= 0 if below else high < length) or _never(form, length, below, axes, scope):
            continue
        raise WeaveError(_message(array, place, form, dim, (low, high, length), below, scope.conditions), position)


def earlier(form: Affine, walk: Walk, scope: Scope) -> bool:
    """Whether a position along the axis of a scan is always before the step at hand, as the scan walks."""
    here = Affine.axis(walk.axis)
    late = here + form.scale(-1) if walk.backward else form + here.scale(-1)  # 0 or more where it is not before
    sizes = {n: int(v) for n, v in scope.values.items() if isinstance(v, int)}
    if any(isinstance(n, Read) and n.array not in scope.made.spans for n, _ in _terms(late)):
        return False
    if not late.lookups and interval(late, sizes)[1] < 0:
        return True
    axes = {a: sizes[a] for a in late.names}
    unknowns: Unknowns = {}
    row = _row(late, scope.values, unknowns, scope.made.spans)
    return row is not None and excluded(row, axes, scope.conditions, scope.values, unknowns)


def _never(form: Affine, length: int, below: bool, axes: Mapping[str, int], scope: Scope) -> bool:
    """Whether the form is never below 0, or never ``length`` or more, under the conditions of the scope."""
    unknowns: Unknowns = {}
    row = _row(form, scope.values, unknowns, scope.made.spans)
    if row is not None:
        out = (_scale(row, -1)[0], -row[1] - 1) if below else (row[0], row[1] - length)
        if excluded(out, axes, scope.conditions, scope.values, unknowns):
            return True
    if not form.lookups:
        return False
    value = value_of(form)
    if not is_predicate_of_indices(value):
        return False
    leaves = Apply("lt", (value, Number(0))) if below else Apply("ge", (value, Number(length)))
    known = [c for c in scope.conditions if is_predicate_of_indices(c[0])]
    every = {**axes, **{a: int(scope.values[a]) for e, _ in known for a in free_axes(e)}}
    return _never_on_grid(leaves, every, known, scope.values)


def _terms(form: Affine) -> list[tuple[Expr, int]]:
    """The nodes of a form's lookups that decide its value, each with how often it counts; not the places of reads."""
    found: list[tuple[Expr, int]] = []

    def visit(e: Expr, c: int) -> None:
        found.append((e, c))
        if isinstance(e, Apply):
            for a in e.args:
                visit(a, c)

    for lookup, c in form.lookups:
        visit(lookup.expr, c)
    return found


def _reach(form: Affine, sizes: Mapping[str, int], values: Mapping[str, Value], spans: Spans) -> Reach:
    low, high = interval(form, sizes)
    total: Reach = (low, high)
    for lookup, c in form.lookups:
        a, b = reach(lookup.expr, values, spans)
        total = (total[0] + c * (a if c > 0 else b), total[1] + c * (b if c > 0 else a))
    return total


def _row(form: Affine, values: Mapping[str, Value], unknowns: Unknowns, spans: Spans) -> Row | None:
    """An index form as a row; None where a lookup says nothing linear."""
    sizes = {n: int(v) for n, v in values.items() if isinstance(v, int)}
    total: Row = (dict(form.axes), form.fixed(sizes))
    for lookup, c in form.lookups:
        part = _linear(lookup.expr, values, unknowns, spans)
        if part is None:
            return None
        total = _less(_scale(part, -c), total)
    return total


def _message(
    array: str,
    place: int,
    form: Affine,
    dim: Affine,
    reached: tuple[float, float, int],
    below: bool,
    conditions: tuple[Condition, ...],
) -> str:
    low, high, length = reached
    bare = form.bare
    sized = frozenset(form.names) | {s for s, _ in dim.sizes}
    if bare is not None and not conditions:
        name = dim.sizes[0][0] if len(dim.sizes) == 1 and not dim.offset else ""
        tie = f"; tie them, `{bare} = {name}`, or rename one" if name and name != bare else ""
        return (
            f"size conflict: axis `{bare}` has {_elements(int(high) + 1)}, but position {place + 1} of `{array}` has "
            f"{length}"
            f"{tie or f'; declare `{array}` with a longer dimension, or guard the read with where(...)'}"
        )
    shown = print_affine(form, sized)
    guard = f"{shown} >= 0" if below else f"{shown} < {print_affine(dim, sized)}"
    end = low if below else high
    reaches = f"reaches {end:.0f}" if abs(end) < EVERY[1] else "is not known to stay inside"
    if form.lookups and abs(end) < EVERY[1]:
        reaches = f"may reach {end:.0f}"
    return (
        f"`{array}` is read out of range: `{shown}` {reaches}, but position {place + 1} has "
        f"{_elements(length)}, 0{f' to {length - 1}' if length > 1 else ''}; guard it, "
        f"`where({guard}, {array}[...], 0)`, or change its declaration"
    )


def _elements(n: int) -> str:
    return "1 element" if n == 1 else f"{n} elements"


def interval(form: Affine, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Least and greatest value of the affine part of a form when each axis runs over its size."""
    fixed = form.fixed(sizes)
    low = fixed + sum(c * (sizes[a] - 1) for a, c in form.axes if c < 0)
    high = fixed + sum(c * (sizes[a] - 1) for a, c in form.axes if c > 0)
    return low, high


def excluded(
    row: Row,
    axes: Mapping[str, int],
    conditions: tuple[Condition, ...],
    values: Mapping[str, Value],
    unknowns: Unknowns | None = None,
) -> bool:
    """Whether no element meets ``row >= 0`` together with the conditions; ``axes`` have their sizes.

    ``unknowns`` are those that the row holds beside the axes.
    """
    unknowns = {} if unknowns is None else unknowns
    plain = not unknowns
    known = [c for c in conditions if is_predicate_of_indices(c[0])]
    if not known and plain:
        return False
    all_axes = dict(axes)
    for e, _ in known:
        all_axes.update({a: int(values[a]) for a in free_axes(e)})
    cases: list[list[Row]] = [[]]
    for e, holds in known:
        options = _cases(e, holds, values, unknowns)
        cases = [c + o for c in cases for o in options]
        if len(cases) > _MOST_CASES:
            break
    else:
        box: list[Row] = []
        for a, n in all_axes.items():
            box.extend((({a: 1}, 0), ({a: -1}, n - 1)))
        box.extend(row for _, sides in unknowns.values() for row in sides)
        if all(_infeasible([row, *c, *box]) for c in cases):
            return True
    return plain and _excluded_on_grid(row, all_axes, known, values)


def _cases(e: Expr, holds: bool, values: Mapping[str, Value], unknowns: Unknowns) -> list[list[Row]]:
    """The predicate as a disjunction of conjunctions of rows; what is not affine says nothing.

    ``unknowns`` receives the unknowns of ``//`` and ``%``, whose rows hold in every case.
    """
    match e:
        case Number(value=value):
            return [[]] if bool(value) == holds else []
        case Apply(op="not", args=(arg,)):
            return _cases(arg, not holds, values, unknowns)
        case Apply(op="and" | "or" as op, args=(a, b)):
            left, right = _cases(a, holds, values, unknowns), _cases(b, holds, values, unknowns)
            if (op == "and") == holds:
                both = [x + y for x in left for y in right]
                return both if len(both) <= _MOST_CASES else [[]]
            return left + right
        case Apply(op=op, args=(a, b)) if op in _NEGATED:
            x, y = _linear(a, values, unknowns), _linear(b, values, unknowns)
            if x is None or y is None:
                return [[]]
            return _comparison(op if holds else _NEGATED[op], x, y)
        case _:
            return [[]]


def _comparison(op: str, x: Row, y: Row) -> list[list[Row]]:
    up, down = _less(x, y), _less(y, x)  # y - x and x - y
    match op:
        case "le":
            return [[up]]
        case "lt":
            return [[(up[0], up[1] - 1)]]
        case "ge":
            return [[down]]
        case "gt":
            return [[(down[0], down[1] - 1)]]
        case "eq":
            return [[up, down]]
        case _:
            return [[(up[0], up[1] - 1)], [(down[0], down[1] - 1)]]


def _less(x: Row, y: Row) -> Row:
    total = dict(y[0])
    for a, c in x[0].items():
        total[a] = total.get(a, 0) - c
    return {a: c for a, c in total.items() if c}, y[1] - x[1]


def _linear(e: Expr, values: Mapping[str, Value], unknowns: Unknowns, spans: Spans | None = None) -> Row | None:
    match e:
        case Read(array=array) if spans is not None and array in spans:
            return _unknown(e, (), values, unknowns, spans)
        case Index(axis=axis):
            return {axis: 1}, 0
        case Number(value=int() as value):
            return {}, int(value)
        case Size(axis=name) | Constant(name=name):
            number = values.get(name)
            return ({}, number) if isinstance(number, int) else None
        case Apply(op="neg", args=(a,)):
            x = _linear(a, values, unknowns, spans)
            return None if x is None else _less(x, ({}, 0))
        case Apply(op="add" | "sub" | "mul" as op, args=(a, b)):
            x, y = _linear(a, values, unknowns, spans), _linear(b, values, unknowns, spans)
            if x is None or y is None:
                return None
            if op == "sub":
                return _less(y, x)
            if op == "add":
                return _less(_less(y, ({}, 0)), x)
            if x[0] and y[0]:
                return None
            form, factor = (x, y[1]) if x[0] else (y, x[1])
            return _scale(form, factor)
        case Apply(op="floordiv" | "mod" as op, args=(a, b)):
            x, y = _linear(a, values, unknowns, spans), _linear(b, values, unknowns, spans)
            if x is None or y is None or y[0] or y[1] < 1:
                return None
            quotient: Row = ({f"#{len(unknowns)}": 1}, 0)  # a fresh unknown with 0 <= x - y * quotient < y
            rest = _less(_scale(quotient, y[1]), x)
            made = unknowns.setdefault((a, y[1]), (quotient, (rest, _less(rest, ({}, y[1] - 1)))))
            return made[0] if op == "floordiv" else made[1][0]
        case Apply(op="min" | "max" as op, args=(a, b)):
            parts = [_linear(x, values, unknowns, spans) for x in (a, b)]
            return _unknown(e, tuple((p, op == "max") for p in parts if p is not None), values, unknowns, spans)
        case Apply(op="abs", args=(a,)):
            x = _linear(a, values, unknowns, spans)
            bounds = () if x is None else ((x, True), (_scale(x, -1), True))
            return _unknown(e, bounds, values, unknowns, spans)
        case Apply(op="where"):
            return _unknown(e, (), values, unknowns, spans)
        case _:
            return None


def _unknown(
    e: Expr, bounds: tuple[tuple[Row, bool], ...], values: Mapping[str, Value], unknowns: Unknowns, spans: Spans | None
) -> Row | None:
    """A fresh unknown for a value within its reach, with rows that it is at least (True) or at most."""
    low, high = reach(e, values, spans or {})
    if low == EVERY[0] or high == EVERY[1]:
        return None
    one: Row = ({f"#{len(unknowns)}": 1}, 0)
    rows = [_less(({}, math.ceil(low)), one), _less(one, ({}, math.floor(high)))]
    rows += [_less(b, one) if at_least else _less(one, b) for b, at_least in bounds]
    return unknowns.setdefault((e, 0), (one, tuple(rows)))[0]


def _scale(form: Row, factor: int) -> Row:
    return {n: c * factor for n, c in form[0].items() if factor}, form[1] * factor


def _infeasible(rows: list[Row]) -> bool:
    """Whether no real point meets all rows, by eliminating one axis after another."""
    while True:
        if any(not r[0] and r[1] < 0 for r in rows):
            return True
        rows = [r for r in rows if r[0]]
        if not rows:
            return False
        axis = min({a for r in rows for a in r[0]}, key=lambda a: sum(a in r[0] for r in rows))
        up = [r for r in rows if r[0].get(axis, 0) > 0]
        down = [r for r in rows if r[0].get(axis, 0) < 0]
        rest = [r for r in rows if axis not in r[0]]
        rows = rest + [_eliminate(u, d, axis) for u in up for d in down]
        if len(rows) > _MOST_ROWS:
            return False


def _eliminate(u: Row, d: Row, axis: str) -> Row:
    p, n = u[0][axis], -d[0][axis]
    total = {a: c * n for a, c in u[0].items() if a != axis}
    for a, c in d[0].items():
        if a != axis:
            total[a] = total.get(a, 0) + c * p
    return {a: c for a, c in total.items() if c}, u[1] * n + d[1] * p


def _excluded_on_grid(
    row: Row, axes: Mapping[str, int], conditions: list[Condition], values: Mapping[str, Value]
) -> bool:
    """The same by trying every element; False where there are too many or the arithmetic overflows."""
    inside = value_of(Affine.make(row[0], {}, row[1]))
    return _never_on_grid(Apply("ge", (inside, Number(0))), axes, conditions, values)


def _never_on_grid(
    leaves: Expr, axes: Mapping[str, int], conditions: list[Condition], values: Mapping[str, Value]
) -> bool:
    """Whether a predicate holds nowhere together with the conditions, by trying every element."""
    count = 1
    for n in axes.values():
        count *= n
    wild = any(isinstance(n, Number) and abs(n.value) > 1 << 31 for e, _ in conditions for n in walk(e))
    if count > _GRID or wild:
        return False
    import numpy as np

    names = list(axes)
    grids = dict(zip(names, np.meshgrid(*(np.arange(axes[a]) for a in names), indexing="ij", sparse=True), strict=True))
    inside = np.asarray(_on_grid(leaves, grids, values), dtype=bool)
    for e, holds in conditions:
        inside = np.logical_and(inside, np.equal(np.asarray(_on_grid(e, grids, values), dtype=bool), holds))
    return not bool(np.any(inside))


def _on_grid(e: Expr, grids: Mapping[str, object], values: Mapping[str, Value]) -> object:
    import numpy as np

    from ioweave.diagrams.arithmetic import FUNCTIONS

    match e:
        case Index(axis=axis):
            return grids[axis]
        case Number(value=value):
            return value
        case Size(axis=name) | Constant(name=name):
            return values[name]
        case Apply(op=op, args=args):
            with np.errstate(all="ignore"):
                return FUNCTIONS[op](*(_on_grid(a, grids, values) for a in args))
        case _:
            raise TypeError(type(e).__name__)
