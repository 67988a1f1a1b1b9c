"""Edits about finished results: given as inputs by an earlier pass, or returned for a later one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ioweave.derive.changes.view import Edit, View, array_input, at_axes, names_of, pruned
from ioweave.diagrams.diagram import Diagram, Line
from ioweave.diagrams.expressions import Apply, Expr, Read, Reduce, reads

Passes = Callable[[Diagram], int]
_MOST = 6  # statistics of which subsets are tried


@dataclass(frozen=True, slots=True)
class _Given:
    """A diagram with the statistics ``names`` as inputs, ``logs`` of them logs of sums, made by the lines ``made``."""

    diagram: Diagram
    names: tuple[str, ...]
    logs: tuple[str, ...]
    made: tuple[str, ...]


def given(view: View, passes: Passes) -> Iterator[Edit]:
    """The fewest statistics of earlier passes as inputs, and logs of sums of exponentials in place of their parts."""
    whole = view.opened(view.holders)
    tried: list[tuple[View, tuple[str, ...], tuple[str, ...]]] = [(whole, (), ())]
    for n in range(1, _MOST):
        seen, logs, totals = log_sums(whole, n)
        if len(logs) < n:
            break
        tried.append((seen, logs, totals))
    found = [g for seen, logs, totals in tried if (g := _least_given(seen, passes, logs, totals)) is not None]
    if not found:
        return
    best = min(found, key=lambda g: len(g.names))
    few = view.opened(view.holders_of(best.made))
    seen, logs, totals = log_sums(few, len(best.logs))
    if logs == best.logs:  # with no more lines opened than the statistics need
        rest = [n for n in best.names if n not in logs]
        diagram = _as_inputs(seen.diagram, rest)
        if passes(diagram) <= 1:
            best = replace(best, diagram=diagram)
    arrays = [i for i in best.diagram.inputs if i.name in best.names]
    shown = " and ".join(f"{i.name}[{', '.join(map(str, i.dims))}]" if i.dims else i.name for i in arrays)
    what = "the log-sum-exp " if best.names == best.logs else ""
    before = passes(_ordered(pruned(replace(whole.diagram, outputs=best.made))))
    count = len(arrays)
    entered = "an input" if count == 1 else "inputs"
    rows = " of each row" if any(i.dims for i in arrays) else ""
    first = "a pass before it makes" if before <= 1 else f"{before} passes before it make"
    yield Edit(
        text=f"keep {what}{shown}: given as {entered}, one pass is left",
        diagram=best.diagram,
        axis=view.axis,
        same=True,
        note=f"the same results; {first} {count} value{'s' if count > 1 else ''}{rows}",
        rank=2,
    )


def _least_given(view: View, passes: Passes, logs: tuple[str, ...], totals: tuple[str, ...]) -> _Given | None:
    """As few statistics as inputs, beside the logs of sums, as leave one pass."""
    names = view.frontier
    if not names and not logs:
        return None
    chosen = list(names)
    if passes(_as_inputs(view.diagram, chosen)) > 1:
        return None
    for n in names[:_MOST]:
        fewer = [m for m in chosen if m != n]
        if (fewer or logs) and passes(_as_inputs(view.diagram, fewer)) <= 1:
            chosen = fewer
    final = _as_inputs(view.diagram, chosen)
    kept = {i.name for i in final.inputs}
    return _Given(final, tuple(n for n in (*logs, *chosen) if n in kept), logs, (*totals, *chosen))


def _as_inputs(d: Diagram, names: list[str]) -> Diagram:
    lines = {line.name: line for line in d.lines}
    inputs = tuple(array_input(n, lines[n].axes) for n in names)
    rest = tuple(line for line in d.lines if line.name not in names)
    outputs = tuple(n for n in d.outputs if n not in names)
    return pruned(replace(d, inputs=(*d.inputs, *inputs), lines=rest, outputs=outputs)) if outputs else d


def log_sums(view: View, most: int) -> tuple[View, tuple[str, ...], tuple[str, ...]]:
    """The first ``most`` of all ``exp(s - m) / sum exp(s - m)`` as ``exp(s - L)`` of an input L.

    Nothing else may read m and the sum. The names of the inputs and those of the sums come beside it.
    """
    d = view.diagram
    made: list[str] = []
    totals: list[str] = []
    for total in d.lines:
        found = _normalised(d, total, view)
        if found is None or len(made) == most:
            continue
        exponential, top, readers = found
        name = f"{total.name.rsplit('.', 1)[0]}.lse"
        if name in names_of(d) or not isinstance(exponential.expr, Apply):
            continue
        inner = exponential.expr.args[0]
        assert isinstance(inner, Apply)
        value = Apply(exponential.expr.op, (Apply(inner.op, (inner.args[0], at_axes(name, total.axes))),))
        gone = {total.name, exponential.name, top}
        lines = tuple(
            replace(x, expr=value) if x.name in readers else x
            for x in d.lines
            if x.name not in gone or x.name in readers
        )
        d = replace(d, lines=lines, inputs=(*d.inputs, array_input(name, total.axes)))
        made.append(name)
        totals.append(total.name)
    return View(d, view.axis), tuple(made), tuple(totals)


def _normalised(d: Diagram, total: Line, view: View) -> tuple[Line, str, frozenset[str]] | None:
    """The exponential that a sum adds up, its reference, and the lines that are one over the other."""
    if not isinstance(total.expr, Reduce) or total.expr.op != "sum" or view.axis not in total.expr.axes:
        return None
    lines = {line.name: line for line in d.lines}
    body = total.expr.body
    exponential = lines.get(body.array) if isinstance(body, Read) else None
    if exponential is None or not isinstance(exponential.expr, Apply) or exponential.expr.op != "exp":
        return None
    inner = exponential.expr.args[0]
    if not isinstance(inner, Apply) or inner.op not in ("sub", "masked_sub") or not isinstance(inner.args[1], Read):
        return None
    top = lines.get(inner.args[1].array)
    if top is None or not isinstance(top.expr, Reduce) or top.expr.op != "max":
        return None
    names = {total.name, exponential.name, top.name}
    readers = {x.name for x in d.lines if x.name not in names and names & {r.array for r in reads(x.expr)}}
    if names & set(d.outputs) or not readers:
        return None
    if not all(_is_quotient(lines[n].expr, exponential, total) and lines[n].axes == exponential.axes for n in readers):
        return None
    return exponential, top.name, frozenset(readers)


def _is_quotient(e: Expr, above: Line, below: Line) -> bool:
    if not isinstance(e, Apply) or e.op not in ("div", "masked_div"):
        return False
    return e.args == (at_axes(above.name, above.axes), at_axes(below.name, below.axes))


def returned(view: View) -> Iterator[Edit]:
    """Outputs along the axis left to what reads them: their statistics are returned in their place."""
    whole = view.opened(view.holders)
    lines = {line.name: line for line in whole.diagram.lines}
    left = [n for n in whole.diagram.outputs if view.axis in lines[n].axes and n in whole.waiting]
    if not left:
        return
    needed: dict[str, None] = {}
    todo = list(left)
    seen = set(left)
    while todo:
        for r in reads(lines[todo.pop()].expr):
            if r.array in whole.frontier:
                needed.setdefault(r.array)
            elif r.array in whole.waiting and r.array not in seen:  # a scan reads itself
                seen.add(r.array)
                todo.append(r.array)
    outputs = (*(n for n in whole.diagram.outputs if n not in left), *(x for x in lines if x in needed))
    if not needed:
        return
    names = " and ".join(x for x in lines if x in needed)
    few = view.opened(view.holders_of(outputs))  # with no more lines opened than the outputs need
    d = _ordered(pruned(replace(few.diagram, outputs=outputs)))
    yield Edit(
        text=f"return {names} and leave {' and '.join(left)} to what reads it: one pass",
        diagram=d,
        axis=view.axis,
        same=False,
        note=f"{' and '.join(left)} is no output: its reader makes it from {names}",
        rank=3,
    )


def _ordered(d: Diagram) -> Diagram:
    """Outputs in the order of their lines: the last line is one."""
    return replace(d, outputs=tuple(line.name for line in d.lines if line.name in d.outputs))
