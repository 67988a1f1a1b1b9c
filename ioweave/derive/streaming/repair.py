"""Repair: rewrite the boxes of a region so that its cascade of reductions runs in as few passes as can be proved.

Every reduction over the streamed axes is taken in order. One that depends on reductions of an
earlier pass is repaired to run beside the latest of them (`separate`, `rescale`, `shift`), or is
left to the next pass, where they are finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from ioweave.derive.streaming.budget import MOMENT_TERMS, OverBudget, budget
from ioweave.derive.streaming.cascade import live, renamed
from ioweave.derive.streaming.emission import Emission
from ioweave.derive.streaming.gathered import gathered
from ioweave.derive.streaming.given import Given, Ties
from ioweave.derive.streaming.listing import led
from ioweave.derive.streaming.members import members
from ioweave.derive.streaming.plan import Merge, Plan, Refusal, Repair, Stage, Unrepairable, positional
from ioweave.derive.streaming.recentre import recentred
from ioweave.derive.streaming.recurrence import passes_of, signs_of_scans, walks_of
from ioweave.derive.streaming.reduction import reduce
from ioweave.derive.streaming.rescale import guard_exponents
from ioweave.derive.streaming.segments import summed_up
from ioweave.derive.streaming.selected import selected
from ioweave.derive.streaming.values import values_of
from ioweave.derive.streaming.workshop import STEP, Workshop
from ioweave.diagrams.boxes import OLD, RUNNING, Box, source
from ioweave.diagrams.expressions import Apply, Expr, Read, free_axes, walk
from ioweave.diagrams.groups import lockstep
from ioweave.diagrams.lists import is_list

_NOMINAL = 64  # the size that every axis has where plans are compared before sizes are known


def repair(
    boxes: tuple[Box, ...],
    streamed: frozenset[str],
    kept: frozenset[str],
    facts: Mapping[str, tuple[str, float]],
    values: Mapping[str, int | float] | None = None,
    accumulate: str = "fp32",
    frugal: bool = False,
    lazy: float = 0.0,
    ties: Ties = (),
) -> Plan:
    """The plan for ``boxes`` with the axes ``streamed`` walked in steps.

    ``kept`` names the arrays needed outside; boxes that nothing kept needs are dropped. ``facts``
    are the declared facts of inputs, such as ``{"X": (">", 0.0)}``; ``values`` the numbers of sizes
    and constants, by which exponents are bounded; ``accumulate``, ``frugal``, ``lazy`` and ``ties`` as
    in `Given`. Only reductions over equal sets of streamed axes are repaired with respect to each other.
    Nothing is raised: what cannot be repaired is left as it was and listed in ``refusals``.
    """
    with budget():
        signed = {**facts, **signs_of_scans(boxes, facts)}
        return _fewest(boxes, streamed, kept, Given.of(signed, values, accumulate, frugal, lazy, ties))


@lru_cache(maxsize=4096)
def _fewest(boxes: tuple[Box, ...], streamed: frozenset[str], kept: frozenset[str], given: Given) -> Plan:
    """The plan of accumulators; or of lists of what counts, where that saves a pass."""
    if len(streamed) != 1:
        return _repair(boxes, streamed, kept, given)
    axis = next(iter(streamed))
    boxes = gathered(boxes, axis)
    plan = _repair(boxes, streamed, kept, given)
    if plan.passes < 2 or given.frugal:
        return plan
    with suppress(OverBudget):
        needed = tuple(live(list(boxes), kept))
        chosen = gathered(members(needed, axis, values_of(needed, given)), axis)
        if chosen != needed:
            rival = _repair(chosen, streamed, kept, given)
            plan, needed = (rival, chosen) if rival.passes < plan.passes else (plan, needed)
        found = selected(needed, axis, kept, given) if plan.passes > 1 else None
        listed = _repair(found.boxes, streamed, kept, given) if found is not None else plan
        if found is not None and listed.passes < plan.passes:
            made = {b.into for b in listed.state}
            lengths = tuple((a, n) for a, n in found.lengths if a in made)
            home = dict(found.homes)
            repairs = tuple(replace(r, reduction=home.get(r.reduction, r.reduction)) for r in listed.repairs)
            identities = (*found.identities, *listed.identities)
            return replace(listed, lengths=lengths, identities=identities, repairs=repairs)
    return plan


def _repair(
    boxes: tuple[Box, ...],
    streamed: frozenset[str],
    kept: frozenset[str],
    given: Given,
) -> Plan:
    current = list(boxes)
    scans = lockstep(boxes)
    repairs: list[Repair] = []
    refusals: list[Refusal] = []
    identities: list[str] = []
    assumes: list[str] = []
    safe: list[str] = []
    classes = list(dict.fromkeys(frozenset(b.over) & streamed for b in boxes if b.reduction))
    for axes in classes:
        if axes:
            try:
                shop = _repair_class(current, axes, streamed, given)
            except OverBudget as reason:
                shop = _left(current, axes, given, str(reason))
            found = _settle(shop.out, kept)
            sound = consistent(found, axes, kept)
            single = len([c for c in classes if c]) == 1 and not given.frugal and not scans
            if single and not (sound and _plain(found, axes, kept)):
                for rival in _from_values(current, axes, given, kept):
                    if not consistent(rival.out, axes, kept):
                        continue
                    if not sound or given.lazy or _cost(rival.out, axes, kept) < _cost(found, axes, kept):
                        shop, found, sound = rival, _settle(rival.out, kept), True
                        if given.lazy:
                            break
            if not sound:
                shop = _left(current, axes, given, "unproved: no order of the passes was found for its repair")
                found = _settle(shop.out, kept)
            current = found
            moments: list[Repair] = []
            centred: list[str] = []
            if not scans:
                with suppress(OverBudget), budget(MOMENT_TERMS):
                    current, moments, centred = recentred(current, axes, streamed, kept, shop.signs.expression)
            behind = {r.accumulator: r.reduction for r in shop.repairs}
            repairs += shop.repairs
            repairs += [replace(r, reduction=behind.get(r.reduction, r.reduction)) for r in moments]
            refusals += shop.refusals
            identities += (*shop.identities, *centred)
            assumes += shop.assumes
            safe += shop.safe
    current = live(current, kept)
    names = {b.name for b in current}
    sets = [c for c in classes if c] or [streamed]
    stages = _stages(current, sets[0] if len(sets) == 1 else streamed)
    if len(sets) == 1:
        order = {"head": 0, "body": 1, "tail": 2}
        at = {n: (p, order[s]) for n, p, s in stages}
        current.sort(key=lambda b: at[b.name])
    running = [b for b in current if b.running]
    walks = walks_of(current, sets[0] if len(sets) == 1 else streamed, stages) if scans else ()
    made = Plan(
        tuple(current),
        streamed,
        stages,
        tuple(r for r in repairs if r.accumulator in {b.name for b in running}),
        tuple(Merge(b.name, b.reduction or "sum", b.rescale) for b in running),
        tuple(dict.fromkeys(identities)),
        tuple(dict.fromkeys(assumes)),
        tuple(r for r in refusals if r.reduction in names),
        tuple(dict.fromkeys(safe)),
        walks=walks,
        kept=kept,
    )
    return replace(made, segments=summed_up(made)) if scans else made


def _repair_class(boxes: list[Box], axes: frozenset[str], streamed: frozenset[str], given: Given) -> Workshop:
    """Repair the reductions over exactly ``axes`` among the streamed ones."""
    scans = lockstep(boxes)
    shop = Workshop({b.name: b for b in boxes if b.name not in scans}, passes_of(boxes, axes), given)
    read = {r.array for b in boxes for r in b.reads()}
    for box in boxes:
        if box.name in scans:
            shop.pass_by(box)
            if box.scan is not None and shop.passes.when[box.name].run > 1:
                shop.refusals.append(_waiting(box, shop))
            continue
        if box.reduction is None or box.running or not axes & set(box.over):
            outside = box.reduction is None and axes.isdisjoint(box.axes)
            shop.emit(shop.settle(box) if outside else box)
            continue
        box = led(box, shop.boxes)
        run = shop.passes.earliest(box)
        known = shop.same(box, run)
        if known is not None:
            shop.emit(known)
            continue
        exact = frozenset(box.over) & streamed == axes
        if run > 1 and exact and not shop.behind_scan(box, run):
            try:
                reduce(box, run - 1, shop)
                shop.carry(box.name)
                continue
            except Unrepairable as reason:
                waits = shop.roots(reason.waits or [source(r.array) for r in box.reads()], run - 1)
                shop.refusals.append(Refusal(box.name, str(reason), waits))
        elif exact and box.reduction == "sum" and box.name in read and shop.bounds.loose(box.body):
            try:
                reduce(box, run, shop)
                shop.carry(box.name)
                continue
            except Unrepairable:
                pass
        shop.base(replace(box, running=True), run)
        shop.carry(box.name)
    return shop


def _waiting(scan: Box, shop: Workshop) -> Refusal:
    """Why a scan is left to a later pass: nothing repairs it, and a loop has one direction."""
    run = shop.passes.when[scan.name].run
    waits = shop.roots([source(r.array) for b in shop.out if b.line == scan.line for r in b.reads()], run - 1)
    assert scan.scan is not None
    if waits:
        return Refusal(scan.name, "a scan waits for what its elements are made from, and is never repaired", waits)
    way = "last to first" if scan.scan.backward else "first to last"
    return Refusal(scan.name, f"it walks {scan.scan.axis} from the {way}, and an earlier scan the other way")


def _left(boxes: list[Box], axes: frozenset[str], given: Given, reason: str) -> Workshop:
    """The plan that repairs nothing: every reduction runs after those that it needs."""
    scans = lockstep(boxes)
    shop = Workshop({b.name: b for b in boxes if b.name not in scans}, passes_of(boxes, axes), given)
    for box in boxes:
        if box.name in scans:
            shop.pass_by(box)
            continue
        if box.reduction is None or axes.isdisjoint(box.over):
            shop.emit(box)
            continue
        run = shop.passes.earliest(box)
        shop.refusals.append(Refusal(box.name, reason, shop.roots([source(r.array) for r in box.reads()], run - 1)))
        shop.repairs.append(Repair(box.name, box.name, "list" if is_list(box) else "none"))
        shop.emit(replace(box, running=True), run)
    return shop


def _plain(boxes: list[Box], axes: frozenset[str], kept: frozenset[str]) -> bool:
    """Whether the state is one accumulator that follows nothing, in one pass: no plan has less."""
    needed = live(boxes, kept)
    state = [b for b in needed if b.running]
    single = len(state) == 1 and state[0].rescale is None and not is_list(state[0])
    return single and max(run for _, run, _ in _stages(needed, axes)) == 1


def _from_values(boxes: list[Box], axes: frozenset[str], given: Given, kept: frozenset[str]) -> Iterator[Workshop]:
    """The plans of the canonical form, as far as their values can be written as boxes.

    The first leaves what runs after the loop as it was written; the second goes through it, so that
    what cancels there needs no state.
    """
    table = {b.name: b for b in boxes}
    for tails in (True, False):
        shop = Workshop(table, passes_of(boxes, axes), given)
        emission = Emission(table, kept, shop)
        if tails and not emission.after():
            continue
        with suppress(Unrepairable):
            emission.run(tails)
            yield shop


def _cost(boxes: list[Box], axes: frozenset[str], kept: frozenset[str]) -> tuple[int, int, int]:
    """Passes, values of state (every axis that not all of it shares at one nominal size), results that may overflow."""
    needed = live(boxes, kept)
    runs = [run for _, run, _ in _stages(needed, axes)]
    state = [b for b in needed if b.running and not positional(b)]
    shared = set.intersection(*(set(b.axes) for b in state)) - {b.into for b in state} if state else set()
    tops = {b.name for b in state if b.reduction in ("max", "min")}
    bare = sum(_bare_exponential(b.body, tops) for b in needed if b.name not in tops)
    return max(runs, default=0), sum(_NOMINAL ** len(set(b.axes) - shared) for b in state), bare


def consistent(boxes: list[Box], axes: frozenset[str], kept: frozenset[str]) -> bool:
    """Whether running values are read in the pass alone in which they run, and every box has the axes it reads."""
    needed = live(boxes, kept)
    runs = {n: run for n, run, _ in _stages(needed, axes)}
    by_name = {b.name: b for b in needed}
    for b in needed:
        corrections = [by_name[n] for n in (b.rescale, b.recentre) if n is not None]
        if not set(free_axes(b.body)) <= set(b.all_axes) or any(not set(c.axes) <= set(b.axes) for c in corrections):
            return False
    moving: dict[str, frozenset[int]] = {}  # the passes whose running values a map of the loop holds
    for b in needed:
        found = {runs[source(r.array)] for r in b.reads() if r.array.endswith((RUNNING, OLD))}
        for r in b.reads():
            if r.array in moving and not by_name[r.array].running:
                found |= moving[r.array]
        for other in (b.rescale, b.recentre):
            found |= moving.get(other, frozenset()) if other else frozenset()
        if any(run != runs[b.name] for run in found):
            return False
        moving[b.name] = frozenset(found)
    return True


def _bare_exponential(e: Expr, tops: set[str]) -> bool:
    """Whether an expression has the exponential of a maximum that nothing is taken from."""
    return any(
        isinstance(n, Apply)
        and n.op in ("exp", "exp2")
        and any(isinstance(r, Read) and r.array in tops for r in walk(n.args[0]))
        and not any(isinstance(r, Apply) and r.op in ("sub", "masked_sub", "neg") for r in walk(n.args[0]))
        for n in walk(e)
    )


def _settle(boxes: list[Box], kept: frozenset[str]) -> list[Box]:
    """Drop what nobody needs; a running form takes the name of the box it replaces, if that is gone.

    Differences of finished extrema in an exponent are made to survive rows that are masked whole.
    """
    current = live(boxes, kept)
    names = {b.name for b in current}
    tops = {b.name for b in current if b.running and b.reduction in ("max", "min")}
    back = {n: n.removesuffix(STEP) for n in names if n.endswith(STEP) and n.removesuffix(STEP) not in names}
    if tops:
        current = [b if b.running else _guarded(b, tops) for b in current]
    return [renamed(b, back) for b in current] if back else current


def _guarded(b: Box, tops: set[str]) -> Box:
    body = guard_exponents(b.body, tops.__contains__)
    return b if body == b.body else replace(b, body=body)


def _stages(boxes: list[Box], axes: frozenset[str]) -> tuple[tuple[str, int, Stage], ...]:
    passes = passes_of(boxes, axes)
    for b in boxes:
        passes.place(b)
    return tuple((b.name, *passes.stage(b.name)) for b in boxes)
