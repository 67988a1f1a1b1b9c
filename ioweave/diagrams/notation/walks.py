"""Right sides that walk along an axis, and the numbers of lists and masks: scan, lists, keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.elements import kind
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Apply,
    Constant,
    Expr,
    Number,
    Read,
    Scan,
    free_axes,
    is_predicate_of_indices,
    reads,
)
from ioweave.diagrams.notation.indices import index, position
from ioweave.diagrams.notation.nearest import nearest
from ioweave.diagrams.notation.printer import print_affine
from ioweave.diagrams.notation.ranges import earlier
from ioweave.diagrams.notation.scope import Scope, Walk
from ioweave.diagrams.notation.syntax import Call, Keyword, Literal, Name, Node, Subscript
from ioweave.diagrams.operators import KEEP, REVERSED

Reader = Callable[[Node, Scope], Expr]


def scan(node: Call, axes: tuple[str, ...], scope: Scope, scalar: Reader) -> Scan:
    """``scan[t](body, start=value)``. Raises `WeaveError` where it is no recurrence along one axis of its line."""
    line = scope.line.name
    if len(axes) != 1:
        raise WeaveError(
            f"a recurrence runs along one axis, not along {', '.join(axes)}; scan one after the other", node.position
        )
    axis = axes[0]
    if axis not in scope.bound:
        raise WeaveError(
            f"`scan` keeps its axis `{axis}`, which is not on the left; write "
            f"`{line}[{', '.join((*scope.bound, axis))}] = scan[{axis}](...)`",
            node.position,
        )
    start: Node | None = None
    backward = False
    for k in node.keywords:
        if k.name == "start":
            start = k.value
        elif k.name == REVERSED:
            backward = is_reversed(k)
        else:
            known = ("start", REVERSED)
            raise WeaveError(
                f"`scan` has no option `{k.name}`{nearest(k.name, known)}; it has `start=` and "
                f"`[{axis}, {REVERSED}=True]`",
                k.position,
            )
    sample = f"`scan[{axis}]({line}[{axis} {'+' if backward else '-'} 1] + X[{axis}], start=0)`"
    if start is None:
        raise WeaveError(
            f"this recurrence has no start: what stands before its first step; write {sample}", node.position
        )
    if len(node.args) != 1:
        raise WeaveError(
            f"`scan` takes one formula and a start, not {len(node.args)} formulas; write {sample}", node.position
        )
    first = scalar(start, scope)
    if axis in free_axes(first):
        raise WeaveError(
            f"the start is what stands before the first step, so it has no `{axis}`; write it without, "
            "e.g. `start=H0[d]`",
            start.position,
        )
    body = scalar(node.args[0], replace(scope, walk=Walk(axis, backward)))
    if not any(r.array == line for r in reads(body)):
        raise WeaveError(
            f"nothing is carried from step to step: the formula does not read `{line}`; write {sample}, or leave "
            "`scan` out",
            node.position,
        )
    return Scan(axis, body, first, backward)


def is_reversed(option: Keyword) -> bool:
    """The value of ``reversed=``, which is True or False."""
    match option.value:
        case Literal(value=bool() as value):
            return value
    raise WeaveError(f"`{REVERSED}` is True or False, as in `scan[t, {REVERSED}=True](...)`", option.position)


def own_read(node: Subscript, dims: tuple[Affine, ...], scope: Scope, scalar: Reader) -> Read:
    """What a scan's body reads of its own line: an earlier element, or the start before the first."""
    walk = scope.walk
    assert walk is not None
    name, axis = node.array, walk.axis
    if walk.hidden:
        raise WeaveError(
            f"`{axis}` is another index here than that of scan[{axis}], whose earlier elements this reads; give the "
            f"inner axis a name of its own, `{axis}_1 = {axis}`",
            node.position,
        )
    forms: list[Affine] = []
    for place, (n, dim) in enumerate(zip(node.index, dims, strict=True)):
        if dim.sizes[0][0] != axis:
            forms.append(index(n, scope, name, place, dim, scalar))
            continue
        form = position(n, scope, scalar)
        forms.append(form)
        if not earlier(form, walk, scope):
            raise WeaveError(_not_earlier(name, form, walk), n.position)
    return Read(name, tuple(forms))


def _not_earlier(name: str, form: Affine, walk: Walk) -> str:
    axis = walk.axis
    step = f"{axis} + 1" if walk.backward else f"{axis} - 1"
    shown = print_affine(form, frozenset((axis,)))
    if form == Affine.axis(axis):
        return f"`{name}` at `{axis}` is the element being made; a step reads an earlier one, `{name}[{step}, ...]`"
    ahead = "before" if walk.backward else "after"
    if not form.lookups and dict(form.axes) == {axis: 1}:
        other = f"scan[{axis}]" if walk.backward else f"scan[{axis}, {REVERSED}=True]"
        return (
            f"this step of the scan reads `{name}` at `{shown}`, which is made {ahead} it; read `{step}`, or walk "
            f"the other way, `{other}(...)`"
        )
    guard = f"{shown} {'>' if walk.backward else '<'} {axis}"
    return (
        f"this step of the scan may read `{name}` at `{shown}`, which is made {ahead} it; guard it by a predicate of "
        f"indices, `where({guard}, {name}[...], 0)`"
    )


def reads_itself(e: Expr, axes: tuple[str, ...], node: Call, scope: Scope) -> None:
    """Raise `WeaveError` if a composite needs the whole of the axis along which its line is still being made."""
    walk = scope.walk
    if walk is None or walk.axis not in axes:
        return
    if any(r.array == scope.line.name for r in reads(e)):
        raise WeaveError(
            f"`{node.function}` over `{walk.axis}` needs every step of the scan, which makes them one by one; "
            "work over another axis, or after the scan in a line of its own",
            node.position,
        )


def list_axis(node: Call, axes: tuple[str, ...], scope: Scope) -> str | None:
    """The axis that ``into=`` names; None for a reduction that makes no list."""
    name, line = node.function, scope.line.name
    option = next((k for k in node.keywords if k.name == "into"), None)
    kept = tuple(a for a in scope.bound if a not in (*axes, "k"))
    sample = f"`{line}[{', '.join((*kept, 'k'))}] = {name}[{', '.join(axes)}](..., into=k)`"
    if option is None:
        raise WeaveError(f"`{name}` makes a list, whose axis `into=` names; write {sample}", node.position)
    if not isinstance(option.value, Name):
        raise WeaveError(
            f"`into` names the axis of the list; write {sample}, with `k = 4` for its length", option.position
        )
    into = option.value.name
    if into in axes:
        raise WeaveError(
            f"`{into}` is the axis that `{name}` takes from, so it cannot be the axis of the list; write {sample}",
            option.position,
        )
    if into not in scope.bound:
        raise WeaveError(
            f"`{into}`, the axis of the list, is not on the left; write "
            f"`{line}[{', '.join((*scope.bound, into))}] = ...`",
            option.position,
        )
    if name == "argtopk" and len(axes) > 1:
        raise WeaveError(
            f"`argtopk` gives positions along one axis, and {', '.join(axes)} together have no single index; "
            "take one axis at a time",
            node.position,
        )
    rows = 1
    for a in axes:
        rows *= int(scope.values[a])
    length = int(scope.values[into])
    if length > rows:
        over = f"`{axes[0]}` has" if len(axes) == 1 else f"{', '.join(axes)} together have"
        raise WeaveError(
            f"the list is longer than what it is taken from: `{into}` has {length} places, but {over} {rows} "
            f"element{'s' if rows != 1 else ''}; make `{into}` at most {rows}",
            option.position,
        )
    return into


def check_key(e: Expr, into: str, node: Call) -> None:
    """Raise `WeaveError` if what a list orders by depends on the place in the list."""
    if into in free_axes(e):
        raise WeaveError(
            f"`{into}` numbers the places of the list, so what is listed cannot depend on it; use another axis inside",
            node.position,
        )


def keep(node: Call, scope: Scope, scalar: Reader) -> Apply:
    """``keep(q, x, p=0.1)``: whole numbers made of indices, and the probability of 0."""
    sample = f"`{KEEP}({', '.join(scope.bound[:2]) or 'q, x'}, p=0.1)`"
    p: Expr | None = None
    for k in node.keywords:
        if k.name != "p":
            raise WeaveError(f"`{KEEP}` has no option `{k.name}`; write {sample}", k.position)
        p = scalar(k.value, scope)
        if not isinstance(p, Number | Constant):
            raise WeaveError(f"`p` is a number or the name of a constant; write {sample}", k.position)
        value = p.value if isinstance(p, Number) else scope.values[p.name]
        if isinstance(value, bool) or not 0 <= value < 1:
            raise WeaveError(
                f"`p` is {value}; the probability that an element is dropped is at least 0 and less than 1", k.position
            )
    if p is None:
        raise WeaveError(f"`{KEEP}` needs the probability that an element is dropped; write {sample}", node.position)
    if not node.args:
        raise WeaveError(f"`{KEEP}` needs the indices that it draws for; write {sample}", node.position)
    args: list[Expr] = []
    for n in node.args:
        e = scalar(n, scope)
        if not is_predicate_of_indices(e):
            raise WeaveError(f"`{KEEP}` draws for indices, and this is a value of arrays; write {sample}", n.position)
        if kind(e, scope.made.kinds, scope.values) != "int":
            raise WeaveError(f"`{KEEP}` draws for indices, which are whole numbers; write {sample}", n.position)
        args.append(e)
    return Apply(KEEP, (p, *args))


def whole_right_side(node: Call, scope: Scope) -> WeaveError:
    """The error of a scan inside a formula."""
    return WeaveError(
        f"`scan` is the whole right side of its line; give it one, `A[...] = scan[...](...)`, and read `A` in "
        f"`{scope.line.name}`",
        node.position,
    )


def one_axis(node: Call, axes: tuple[str, ...]) -> None:
    """Raise `WeaveError` unless a composite that walks has one axis."""
    if len(axes) != 1:
        raise WeaveError(
            f"`{node.function}` runs along one axis, not along {', '.join(axes)}; nest them, "
            f"`{node.function}[{axes[0]}]({node.function}[{axes[1]}](...))`",
            node.position,
        )
