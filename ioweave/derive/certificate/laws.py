"""The laws of a plan's state, tried on numbers: steps in any order and length, merges, and the equations of the steps.

What follows scans is walked in their direction, in steps and in pieces; with what they make at hand the
accumulators beside them know no order either.
Of an accumulator with correction ``c`` and summand ``g``: the state after a set B that holds A is, with
``F(A; r)`` the terms of A at the references r, ``F(A; r_B) = c(r_A, r_B) (F(A; r_A) + g(r_A, r_B))``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ioweave.derive.certificate.identities import Identity
from ioweave.derive.certificate.machine import Machine
from ioweave.derive.certificate.numbers import Case, agree, cut, difference, in_turn, pieces
from ioweave.derive.certificate.pieces import Walked, joined, walk
from ioweave.derive.certificate.structure import Unsound
from ioweave.derive.certificate.values import Step, Values
from ioweave.derive.streaming.plan import Segments
from ioweave.diagrams.boxes import old, running
from ioweave.diagrams.lists import is_list

LOOSE = 1e-7  # of equations at points that no data need reach


def check_laws(
    machine: Machine,
    case: Case,
    pairs: tuple[Identity, ...],
    rng: np.random.Generator,
    apart: tuple[Machine, Segments] | None = None,
) -> None:
    """Raise `Unsound` naming the accumulator whose law fails, or the array that differs from the diagram's.

    ``apart`` has the machine of a loop with the maps of its segments, where pieces are to be joined in order.
    """
    layout = machine.layout
    arrays: dict[str, Values] = dict(case.inputs)
    with np.errstate(all="ignore"):
        machine.finish(arrays, 0)
        for run in range(1, layout.passes + 1):
            machine.prepare(arrays, run)
            if layout.scans(run):
                arrays.update(_check_scans(machine, arrays, run, rng, apart))
            arrays.update(machine.closed(_check_pass(machine, arrays, run, rng)))
            _check_steps(machine, arrays, run, pairs, rng)
            machine.finish(arrays, run)
    for name, wanted in case.arrays.items():
        made = layout.by_name.get(name)
        if made is None or layout.stirred(name) or arrays[name].shape != wanted.shape:
            continue
        if not agree(arrays[name], wanted):
            raise Unsound(f"{name} of the plan is not {name} of the diagram")


def _check_scans(
    machine: Machine,
    arrays: Mapping[str, Values],
    run: int,
    rng: np.random.Generator,
    apart: tuple[Machine, Segments] | None,
) -> Mapping[str, Values]:
    """What the scans of a pass make, the same in any steps, and in pieces that are joined."""
    size = machine.size(machine.layout.axis)
    whole = walk(machine, arrays, run, [(0, size)])
    for _ in range(2):
        _same(machine, walk(machine, arrays, run, cut(size, rng)), whole, f"of pass {run} differs in steps")
    if apart is not None:
        wide, found = apart
        for _ in range(2):
            parts = in_turn(size, rng, machine.layout.directions.get(run) == "backward")
            for how, walked in joined(machine, wide, arrays, found, parts):
                _same(machine, walked, whole, f"of pieces joined, {how}, differs")
    return whole.made


def _same(machine: Machine, walked: Walked, whole: Walked, how: str) -> None:
    for what, found, wanted in (
        ("carried", walked.carries, whole.carries),
        ("state", walked.states, whole.states),
        ("array", walked.made, whole.made),
    ):
        for name, values in found.items():
            if what == "array" and machine.layout.stirred(name):
                continue
            if not agree(values, wanted[name]) or difference(values, wanted[name]) == np.inf:
                raise Unsound(f"the {what} {name} {how} from the one in one step")


def _check_pass(
    machine: Machine, arrays: Mapping[str, Values], run: int, rng: np.random.Generator
) -> Mapping[str, Values]:
    """The state of a pass, the same whichever way it is reached."""
    size = machine.size(machine.layout.axis)
    steps = cut(size, rng)
    whole = machine.walk(arrays, run, [(0, size)])
    ways = {
        "in steps": machine.walk(arrays, run, steps),
        "in other steps, backward": machine.walk(arrays, run, cut(size, rng)[::-1]),
        "merged from parts": machine.merged(arrays, run, [machine.walk(arrays, run, p) for p in pieces(steps, rng)]),
    }
    for how, states in ways.items():
        for name, state in states.items():
            if not agree(state, whole[name]) or difference(state, whole[name]) == np.inf:
                raise Unsound(f"the state {name} of pass {run} differs {how} from the state in one step")
    _check_growth(machine, arrays, run, steps, whole)
    return whole


def _check_growth(
    machine: Machine, arrays: Mapping[str, Values], run: int, steps: list[Step], whole: Mapping[str, Values]
) -> None:
    """Part of the data at the references of the whole is that part at its own references, corrected."""
    some = steps[: max(1, len(steps) // 2)]
    part = machine.walk(arrays, run, some)
    held = dict(arrays)
    held.update({old(n): v for n, v in part.items()} | {running(n): v for n, v in whole.items()})
    lo, hi = some[0][0], some[-1][1]
    for b in machine.layout.moving(run):
        if not b.running:
            held[b.name] = machine.evaluate(b, held)
            continue
        if b.reduction in ("any", "all") or is_list(b):
            continue
        at_whole = machine.evaluate(b, held, (lo, hi))
        corrected = machine.moved(b, part[b.name], held)
        if not agree(at_whole, corrected, LOOSE):
            what = " and ".join(n for n in (b.recentre, b.rescale) if n) or "no correction"
            raise Unsound(f"the terms of {b.name} do not change with its references as {what} says")


def _check_steps(
    machine: Machine,
    arrays: Mapping[str, Values],
    run: int,
    pairs: tuple[Identity, ...],
    rng: np.random.Generator,
) -> None:
    """``f(x, r') = c(r, r') f(x, r)`` for x in a part of the axis, r its references and r' those of the whole."""
    size = machine.size(machine.layout.axis)
    lo = int(rng.integers(0, size))
    part = (lo, int(rng.integers(lo, size)) + 1)
    first = machine.walk(arrays, run, [part])
    then = machine.walk(arrays, run, [(0, size)])
    held = dict(arrays)
    held.update({old(n): v for n, v in first.items()} | {running(n): v for n, v in then.items()})
    for pair in pairs:
        if pair.kind != "step" or machine.layout.places[pair.of][0] != run:
            continue
        left, right = (machine.terms(e, pair.axes, held, part) for e in (pair.left, pair.right))
        if not agree(left, right, LOOSE):
            raise Unsound(f"the identity of {pair.of} does not hold: its two sides differ on numbers")
