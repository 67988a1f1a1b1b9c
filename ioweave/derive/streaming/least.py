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

from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box, Opened, source


def least_passes(opened: Opened, plan: Plan, axis: str) -> str | None:
    """Why no fewer passes do, for a plan of several; None for one."""
    if plan.passes < 2:
        return None
    chain = _chain(plan, opened, axis)
    return f"{plan.passes} passes are least: " + ", then ".join(chain) if chain else None


def _chain(plan: Plan, opened: Opened, axis: str) -> list[str]:
    """For each pass, a box of it that waits for the pass before, from the first to the last."""
    runs = {n: run for n, run, _ in plan.stages}
    boxes = {b.name: b for b in plan.boxes}
    last = max((n for n in runs if runs[n] == plan.passes), key=lambda n: n in opened.outputs, default=None)
    said: list[str] = []
    run = plan.passes
    current = last
    while current is not None and run > 1:
        found = _waits(current, boxes, runs, run)
        if found is None:
            break
        box = boxes[found[0]]
        what = f"{found[0]} at every {axis}" if axis in box.axes else found[0]
        said.append(f"{what} needs the finished {found[1]}")
        current, run = found[1], run - 1
    return list(reversed(said))


def _waits(name: str, boxes: dict[str, Box], runs: dict[str, int], run: int) -> tuple[str, str] | None:
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
            if runs.get(n) == run and runs.get(m, 0) == run - 1:
                return n, m
        todo += operands
    return None
