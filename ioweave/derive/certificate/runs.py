"""Runs of a certified plan beside the reference: those recorded, and fresh ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from ioweave.derive.certificate.numbers import WORK, work
from ioweave.derive.certificate.structure import Unsound
from ioweave.derive.certificate.values import Step
from ioweave.derive.execution.trial import TOLERANCE, Bench, try_plan
from ioweave.derive.execution.trial_data import KINDS, LEVEL, Subject, data, with_casts
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.sizes import axis_names
from ioweave.hierarchy.verdicts import Trial

FRESH = 6


def fresh(diagram: Diagram, opened: Opened, plan: Plan, seed: int, draws: int = FRESH) -> tuple[Trial, ...]:
    """Trials at new sizes, steps and pieces. Raises `Unsound` for one that fails."""
    trials = try_plan(opened, plan, diagram.values(), draws=draws, seed=seed, definitions=diagram.definitions)
    for t in trials:
        if not t.passed:
            raise Unsound(f"a fresh run differs from the reference {_where(t)}")
    if not trials:
        raise Unsound("no small sizes make the algorithm valid, so that nothing can be run")
    return trials


def replayed(diagram: Diagram, opened: Opened, plan: Plan, axis: str, trial: Trial, number: int) -> Trial:
    """A recorded trial run again: its sizes, steps, data and number of pieces.

    Raises WeaveError for a trial that does not fit the diagram, `Unsound` for an error above the tolerance
    now or as recorded.
    """
    path = f"trials[{number}]"
    names = set(axis_names(diagram))
    sizes = dict(trial.axes)
    for name, n in sizes.items():
        if name not in names:
            raise WeaveError(f"{path}.axes: the algorithm has no axis {name[:40]}")
        if n < 1:
            raise WeaveError(f"{path}.axes: the size of {name} is {n}; 1 or more is right")
    values = diagram.values(sizes)
    size = int(values[base_name(axis)])
    if work(opened, values) > WORK:
        raise WeaveError(f"{path}.axes: these sizes are too large to run")
    if not trial.steps or any(s < 1 for s in trial.steps) or sum(trial.steps) != size:
        raise WeaveError(f"{path}.steps: the steps are to add up to {axis} = {size}")
    if not 1 <= trial.parts <= len(trial.steps):
        raise WeaveError(f"{path}.parts: the {len(trial.steps)} steps make 1 to {len(trial.steps)} parts")
    if trial.data not in (*KINDS, LEVEL):
        raise WeaveError(f"{path}.data: the kinds of data are {', '.join((*KINDS, LEVEL))}")
    if trial.seed < 0:
        raise WeaveError(f"{path}.seed: 0 or more is right")
    if not trial.passed or not trial.error <= TOLERANCE:
        raise Unsound(f"trial {number} did not pass when it was recorded")
    ends = [0, *accumulate(trial.steps)]
    steps: list[Mapping[str, Step]] = [{axis: (a, b)} for a, b in pairwise(ends)]
    pieces = _pieces(plan, steps, trial.parts) if plan.passes == 1 and trial.parts > 1 else []
    subject = Subject.of(opened, (), plan.streamed)
    inputs = data(subject, values, trial.data, {axis: trial.steps[0]}, trial.seed)
    bench = Bench(opened, replace(plan, boxes=with_casts(plan.boxes)), subject, values, inputs)
    error = bench.error(steps, pieces, np.random.default_rng(trial.seed))
    again = Trial(trial.axes, trial.steps, trial.parts, trial.data, trial.seed, error, error <= TOLERANCE)
    if not again.passed:
        raise Unsound(f"recorded trial {number} differs from the reference when run again {_where(again)}")
    return again


def _pieces(plan: Plan, steps: list[Mapping[str, Step]], parts: int) -> list[list[Mapping[str, Step]]]:
    """The steps dealt to pieces; one after another, in the order of the walk, where there are recurrences."""
    if not plan.recurrences:
        return [steps[k::parts] for k in range(parts)]
    if plan.segments is None:
        return []
    ordered = steps[::-1] if plan.direction == "backward" else steps
    ends = [len(steps) * k // parts for k in range(parts + 1)]
    return [ordered[a:b] for a, b in pairwise(ends)]


def _where(t: Trial) -> str:
    sizes = ", ".join(f"{a}={n}" for a, n in t.axes)
    return f"(at {sizes}, {t.data}, seed {t.seed}: {t.error:.3g} of the largest value)"
