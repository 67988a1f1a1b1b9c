"""Edits of one expression: roundings, conditions and functions that keep a result from following its statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ioweave.derive.changes.view import Edit, View, pruned, swap, with_line
from ioweave.diagrams.diagram import Line
from ioweave.diagrams.expressions import Apply, Composite, Expr, Number, Read, Reduce, reads, walk
from ioweave.diagrams.notation.printer import print_expr
from ioweave.diagrams.operators import CASTS, PREDICATES, SPECIAL

_ROUNDINGS = CASTS | {"round", "floor"}
_CAP = 30  # scores between -30 and 30 have exponentials in the range of fp32


def moved_roundings(view: View) -> Iterator[Edit]:
    """A rounding of a value that waits, applied to what it is made of: before normalising."""
    for line, node in _nodes(view, lambda n: isinstance(n, Apply) and n.op in _ROUNDINGS):
        assert isinstance(node, Apply)
        places = dict(_sources(view, line, node.args[0]))
        if not places:
            continue
        d = with_line(view.diagram, line.name, swap(node, node.args[0]))
        for name, found in places.items():
            for r in found:
                d = with_line(d, name, swap(r, Apply(node.op, (r,))))
        shown = " and ".join(dict.fromkeys(print_expr(r) for found in places.values() for r in found))
        yield Edit(
            text=f"apply {node.op} to {shown}, before normalising",
            diagram=pruned(d),
            axis=view.axis,
            same=False,
            note=f"a different function: {shown} is rounded in place of {print_expr(node.args[0])}",
            rank=0,
        )


def _sources(view: View, line: Line, e: Expr) -> Iterator[tuple[str, list[Read]]]:
    """By line, the reads of values that change along the axis and wait for nothing, which a value is made of."""
    lines = {x.name: x for x in view.diagram.lines}
    todo: list[tuple[str, Expr]] = [(line.name, e)]
    seen: set[str] = set()
    while todo:
        name, expr = todo.pop()
        own = [r for r in reads(expr) if view.walks(r) and not view.waits(r)]
        if own:
            yield name, own
        for r in reads(expr):
            inner = lines.get(r.array)
            if inner is not None and inner.name not in seen and view.axis in inner.axes and view.waits(r):
                seen.add(inner.name)
                todo.append((inner.name, inner.expr))


def dropped(view: View) -> Iterator[Edit]:
    """A rounding, a condition, a normalisation or a function of a value that waits, left out."""
    for line, node in _nodes(view, _stands_in_the_way):
        match node:
            case Apply("where", (condition, chosen, _)):
                if not view.waits(condition):
                    continue
                new, what = chosen, f"the condition {print_expr(condition)}"
            case Apply(op, args):
                new, what = args[0], op
            case Reduce(where=condition) if condition is not None:
                new, what = replace(node, where=None), f"the condition {print_expr(condition)}"
            case Composite(op, _, args):
                new, what = args[0], op
            case _:
                continue
        d = with_line(view.diagram, line.name, swap(node, new))
        rounding = isinstance(node, Apply) and node.op in _ROUNDINGS
        masked = what.startswith("the condition")
        yield Edit(
            text=f"leave out {what} in {line.name}",
            diagram=pruned(d),
            axis=view.axis,
            same=False,
            note="a different function",
            rank=1 if rounding or masked else 6,
        )


def _stands_in_the_way(e: Expr) -> bool:
    if isinstance(e, Apply):
        return e.op in _ROUNDINGS or e.op == "where" or e.op in SPECIAL
    return isinstance(e, Composite) or (isinstance(e, Reduce) and e.where is not None)


def _nodes(view: View, wanted: Callable[[Expr], bool]) -> Iterator[tuple[Line, Expr]]:
    """The wanted nodes whose argument changes along the axis and waits, with their lines."""
    for line in view.diagram.lines:
        if not view.inside(line):
            continue
        for n in dict.fromkeys(walk(line.expr)):
            if not wanted(n):
                continue
            parts: tuple[Expr, ...] = (n.where,) if isinstance(n, Reduce) and n.where is not None else ()
            parts = n.args if isinstance(n, Apply | Composite) else parts
            if any(_waits_in_loop(view, p) for p in parts):
                yield line, n


def _waits_in_loop(view: View, e: Expr) -> bool:
    """Whether a value waits for a finished result and something in it changes along the axis."""
    return any(view.mixed(n) for n in walk(e) if isinstance(n, Read | Apply)) or (
        isinstance(e, Apply) and e.op in PREDICATES and view.waits(e) and view.walks(e)
    )


def capped(view: View) -> Iterator[Edit]:
    """Scores capped, so that exponentials are in range without a maximum."""
    found: dict[tuple[str, Read], None] = {}
    for line in view.diagram.lines:
        if not view.inside(line):
            continue
        for n in walk(line.expr):
            if (isinstance(n, Composite) and view.axis in n.axes) or (isinstance(n, Apply) and n.op == "exp"):
                for r in reads(n):
                    if view.walks(r) and not view.waits(r):
                        found.setdefault((line.name, r))
    d = view.diagram
    for name, r in found:
        cap = Number(_CAP)
        value = Apply("mul", (cap, Apply("tanh", (Apply("div", (r, cap)),))))
        d = with_line(d, name, swap(r, value))
    if found:
        shown = " and ".join(dict.fromkeys(print_expr(r) for _, r in found))
        yield Edit(
            text=f"cap {shown} at {_CAP}, so that its exponentials need no maximum",
            diagram=pruned(d),
            axis=view.axis,
            same=False,
            note=f"a different function where {shown} is large",
            rank=5,
        )
