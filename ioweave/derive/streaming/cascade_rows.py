"""The cascade for people: every reduction over the axis as written, what it waits for, and the repair found for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ioweave.derive.streaming.cascade import inline, live
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box, Opened, source
from ioweave.hierarchy.verdicts import CascadeRow

LONGEST = 72  # characters of a formula with the maps that wait written out; a longer one stays as it is in the file
_WEAK_TO_STRONG = ("none", "shift", "rescale", "separate", "moments", "list", "recurrence")


def cascade_rows(opened: Opened, plan: Plan, axis: str) -> tuple[CascadeRow, ...]:
    """A row for each reduction over ``axis`` that the outputs need, in order.

    Maps that wait for another row are written out in the formula, so that what a row needs can be
    seen in it. A row needs what its terms read through maps and through reductions over other axes,
    the nearest first, but not what those rows need in turn.
    """
    boxes = live(list(opened.boxes), frozenset(opened.outputs))
    by_name = {b.name: b for b in boxes}
    rows: dict[str, CascadeRow] = {}
    for b in boxes:
        if b.reduction is None or axis not in b.over:
            continue
        needs = _behind(b, by_name, lambda n: n in rows)
        held = _accumulators(b.name, plan)
        rows[b.name] = CascadeRow(
            name=b.name,
            formula=_formula(b, by_name, frozenset(rows)),
            needs=needs,
            repair=_repair(b.name, plan),
            accumulators=held,
            identity=_identity(b, plan),
            run=_run(b.name, held, [rows[n].run for n in needs], plan),
        )
    return tuple(rows.values())


def kept_between(plan: Plan) -> tuple[str, ...]:
    """What has to be kept from one pass to a later one, as ``name[axes]``: finished values that the later one reads."""
    stages = {n: (run, stage) for n, run, stage in plan.stages}
    found: dict[str, None] = {}
    for box in plan.boxes:
        run, _ = stages[box.name]
        for name in _operands(box, plan):
            before, stage = stages.get(name, (0, "head"))
            made = plan.box(name) if name in stages else None
            if made is not None and 0 < before < run and (made.running or made.scan or stage == "tail"):
                found[f"{name}[{', '.join(made.axes)}]"] = None
    return tuple(found)


def _operands(box: Box, plan: Plan) -> Iterator[str]:
    """The arrays that a box needs, those of the boxes that correct it among them."""
    yield from (source(r.array) for r in box.reads())
    for other in (box.rescale, box.recentre):
        if other is not None:
            yield from (source(r.array) for r in plan.box(other).reads())


def _behind(box: Box, boxes: Mapping[str, Box], stop: Callable[[str], bool]) -> tuple[str, ...]:
    """The nearest boxes for which ``stop`` holds behind a box's reads, breadth first."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    todo = [source(r.array) for r in box.reads()]
    while todo:
        name = todo.pop(0)
        if name in seen or name not in boxes:
            continue
        seen.add(name)
        if stop(name):
            found[name] = None
        else:
            todo += [source(r.array) for r in boxes[name].reads()]
    return tuple(found)


def _formula(box: Box, boxes: Mapping[str, Box], earlier: frozenset[str]) -> str:
    """The reduction with the maps that wait for earlier ones written out, where that is short."""

    def waits(name: str) -> bool:
        return name in boxes and bool(_behind(boxes[name], boxes, lambda n: n in earlier))

    whole = _reduction(box, text(inline(box.body, boxes, lambda r: waits(r.array))))
    return whole if len(whole) <= LONGEST else _reduction(box, text(box.body))


def _reduction(box: Box, body: str) -> str:
    return f"{box.reduction}[{', '.join(box.over)}]({body})"


def _repair(name: str, plan: Plan) -> str:
    """The strongest word among the repairs of a reduction's accumulators.

    ``shared`` where its value is finished from accumulators of other rows alone, ``dropped`` where
    the plan does without it.
    """
    kinds: list[str] = [r.kind for r in plan.repairs if r.reduction == name]
    if not kinds:
        return "shared" if any(b.name == name for b in plan.boxes) else "dropped"
    return max(kinds, key=lambda k: _WEAK_TO_STRONG.index(k) if k in _WEAK_TO_STRONG else len(_WEAK_TO_STRONG))


def _accumulators(name: str, plan: Plan) -> tuple[str, ...]:
    """The parts of the state made for a reduction, then those that its finished value reads, through the tail."""
    boxes = {b.name: b for b in plan.boxes}
    running = {b.name for b in plan.state}
    own = [r.accumulator for r in plan.repairs if r.reduction == name and r.accumulator in running]
    if name in running:
        own.append(name)
    read = _behind(boxes[name], boxes, running.__contains__) if name in boxes and name not in running else ()
    return tuple(dict.fromkeys((*own, *read)))


def _identity(box: Box, plan: Plan) -> str:
    """The equations that the repair of a reduction rests on."""
    own = [r.identity for r in plan.repairs if r.reduction == box.name and r.identity]
    body = text(box.body)
    left = f"{_reduction(box, body)} = "
    own += [i for i in plan.identities if i.startswith(left) or i.endswith(f" with f = {body}")]
    return "; ".join(dict.fromkeys(own))


def _run(name: str, held: tuple[str, ...], needed: list[int], plan: Plan) -> int:
    """The pass in which a reduction is finished; that of what it needs where the plan does without it."""
    runs = {n: run for n, run, _ in plan.stages}
    known = [runs[n] for n in (name, *held) if n in runs]
    return max(known or [*needed, 1])
