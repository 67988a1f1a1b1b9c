"""Least passes: why an axis cannot be walked fewer times than a plan walks it.

Statement. In the canonical form of a result (`values`), a reduction over the axis whose terms depend
on the finished result of another one, and from which no factor, summand or exponent carries that
dependence out, starts when the other one ends. The passes of a result are the depth of this nesting;
a result indexed by the axis that needs a finished reduction over it costs one more, since its first
element would change with the last one read.
Source. Definition 1 of arXiv 2505.09326: the accumulator of a streamed function sees each element once.
Reach. The depth is least among plans whose states are finitely many sums, products and extrema of
terms in the fragment of `values`; see docs/theory for what lies outside.
"""

from __future__ import annotations

from ioweave.derive.streaming.budget import OverBudget, budget
from ioweave.derive.streaming.forms import Form, atom, express
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.interchange import Settled
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.separability import Screen, screen
from ioweave.derive.streaming.separate import form_atoms
from ioweave.derive.streaming.values import values_of
from ioweave.diagrams.boxes import Box, Opened, source
from ioweave.diagrams.expressions import Expr, Read, free_axes, reads


def least_passes(opened: Opened, plan: Plan, axis: str, given: Given) -> tuple[str | None, str | None]:
    """Why no fewer passes do, for a plan of several, and what numbers leave open.

    The second part is not None where values at random show terms that might separate after all, of
    a reduction for which no plan was found.
    """
    if plan.passes < 2:
        return None, None
    try:
        with budget():
            found = _screens(opened, axis, given)
            fewest = _nesting(opened, axis, given)
    except OverBudget as reason:
        return None, str(reason).removeprefix("unproved: ")
    maybe = next((f"{name}: {s.said}" for name, s in found if s.may_separate), None)
    if maybe is None and fewest < plan.passes:
        few = f"{max(fewest, 1)} pass{'es' if fewest > 1 else ''}"
        maybe = f"the canonical form of the results needs {few}, but no safe plan of so few was found"
    chain = _chain(plan, opened, axis)
    if not chain:
        return None, maybe
    why = ", then ".join(chain)
    if not found:
        return f"{plan.passes} passes are least: {why}", maybe
    evidence = "; ".join(dict.fromkeys(f"{name}: {s.said}" for name, s in found))
    return f"{plan.passes} passes: {why}. Evidence that fewer do not serve: {evidence}", maybe


def _nesting(opened: Opened, axis: str, given: Given) -> int:
    """The passes that the canonical forms of the outputs need."""
    settled = _settled(opened, axis, given)
    found = 0
    for name in opened.outputs:
        depth = settled.depth(settled.of(name))
        found = max(found, depth + (axis in opened.box(name).axes and depth > 0))
    return found


def _settled(opened: Opened, axis: str, given: Given) -> Settled:
    return Settled(values_of(opened.boxes, given), frozenset({axis}))


def _screens(opened: Opened, axis: str, given: Given) -> list[tuple[str, Screen]]:
    """What numbers say of every reduction over the axis that waits for another one in the canonical form."""
    settled = _settled(opened, axis, given)
    values = settled.values
    homes: dict[str, str] = {}
    for box in opened.boxes:
        for e in form_atoms(settled.of(box.name)):
            for r in reads(e):
                homes.setdefault(r.array, box.name)
    needed = {r.array for n in opened.outputs for e in form_atoms(settled.of(n)) for r in reads(e)}
    found: list[tuple[str, Screen]] = []
    todo, seen = list(needed), set[str]()
    while todo:
        name = todo.pop()
        known = values.atoms.get(name)
        if known is None or name in seen:
            continue
        seen.add(name)
        todo += [r.array for e in form_atoms(known.inner) for r in reads(e)]
        if settled.reduces(name) and settled.depth_of(name) > 1:
            result = _screened(known.op, known.inner, settled, axis)
            if result is not None:
                found.append((homes.get(name, opened.outputs[-1]), result))
    # a sum that was split may separate as a whole
    for box in opened.boxes:
        waits = any(box.name == name for name, _ in found)
        if waits and box.reduction is not None and axis in box.over:
            result = _screened(box.reduction, settled.form(values.form(box.body)), settled, axis)
            if result is not None and result.may_separate:
                found.append((box.name, result))
    return found


def _screened(op: str, terms: Form, settled: Settled, axis: str) -> Screen | None:
    def waits(e: Expr) -> bool:
        return isinstance(e, Read) and settled.depth(atom(e)) > 0

    return screen(op, express(terms), waits, lambda e: axis in free_axes(e), settled.values.nonnegative)


def _chain(plan: Plan, opened: Opened, axis: str) -> list[str]:
    """For each pass, a box of it that waits for the pass before, from the first to the last."""
    runs = {n: run for n, run, _ in plan.stages}
    boxes = {b.name: b for b in plan.boxes}
    finished = {b.name for b in (*plan.state, *plan.tail)}
    last = max((n for n in runs if runs[n] == plan.passes), key=lambda n: n in opened.outputs, default=None)
    said: list[str] = []
    run = plan.passes
    current = last
    while current is not None and run > 1:
        found = _waits(current, boxes, runs, run, finished)
        if found is None:
            break
        box = boxes[found[0]]
        what = f"{found[0]} at every {axis}" if axis in box.axes else found[0]
        said.append(f"{what} needs the finished {found[1]}")
        current, run = found[1], run - 1
    return list(reversed(said))


def _waits(
    name: str, boxes: dict[str, Box], runs: dict[str, int], run: int, finished: set[str]
) -> tuple[str, str] | None:
    """A box of pass ``run`` at or behind a name, and the finished result of the pass before that it reads."""
    todo, seen = [name], set[str]()
    while todo:
        n = todo.pop(0)
        if n in seen or n not in boxes:
            continue
        seen.add(n)
        box = boxes[n]
        operands = [source(r.array) for r in box.reads()]
        for m in operands:
            if runs.get(n) == run and runs.get(m, 0) == run - 1 and m in finished:
                return n, m
        todo += operands
    return None
