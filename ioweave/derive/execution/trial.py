"""Trials: a plan runs beside the reference at random sizes, steps, merges and data before it is printed.

The reference is every box on whole arrays. Results agree where they differ by no more than 1e-9 of
the largest value, or by what rounding explains: both sides are run again with every value moved by
about 1e-13 of itself, and the spread of the results is what their rounding may do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from ioweave.derive.execution.grid import Values
from ioweave.derive.execution.plan_machine import PlanMachine, Step
from ioweave.derive.execution.trial_data import FAR, LARGE, LEVEL, PLAIN, Subject, data, small_sizes, with_casts
from ioweave.derive.execution.walked import in_order
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.expressions import Apply, reads, walk
from ioweave.diagrams.groups import Group, groups
from ioweave.diagrams.lists import holds_positions, is_list, key
from ioweave.diagrams.operators import COMPARISONS
from ioweave.hierarchy.verdicts import Trial

TOLERANCE = 1e-9  # of the largest value of an output
RUNS = 8  # with moved values, where a difference has to be told from rounding
RETRIES = 3  # where no element of any output is finite
REDRAWS = 8  # where the reference compares what is no number
FULL_LISTS = 1000  # the longest lists that trials fill
REDRAWN = 10_007  # between the seeds of data that are drawn again


def try_plan(
    opened: Opened,
    plan: Plan,
    values: Mapping[str, int | float],
    *,
    draws: int = 6,
    seed: int = 0,
    definitions: Sequence[Definition] = (),
    before: Sequence[Box] = (),
    largest: int = 9,
    against: Against | None = None,
) -> tuple[Trial, ...]:
    """The plan of a diagram, or of a part of it, executed ``draws`` times beside the reference.

    ``values`` has every size and constant, ``definitions`` their ties; sizes are drawn up to
    ``largest``. ``before`` are boxes outside the part whose results it reads. A plan of one pass
    with a state is also streamed in two or three pieces apart, in any order, and merged. No trial
    is made where no small sizes are valid, none after one that failed. Nothing is raised for a plan
    that cannot be executed: its trial fails with an infinite error. ``against`` says what errors are
    measured by where a plan is not to be exact.
    """
    subject = Subject.of(opened, before, plan.streamed)
    found: list[Trial] = []
    for turn in range(draws):
        for attempt in range(RETRIES):
            rng = np.random.default_rng([seed, turn, attempt])
            wanted = _filling(plan, subject, turn, rng)
            sizes = small_sizes(subject, values, definitions, largest, rng, wanted)
            if sizes is None:
                break
            bench, trial = _try(opened, plan, subject, sizes, turn, seed + turn + attempt * draws, rng, against)
            if bench.decides or attempt == RETRIES - 1:
                found.append(trial)
                break
        if found and not found[-1].passed:
            break
    return tuple(found)


def _try(
    opened: Opened,
    plan: Plan,
    subject: Subject,
    sizes: Mapping[str, int | float],
    turn: int,
    seed: int,
    rng: np.random.Generator,
    against: Against | None,
) -> tuple[Bench, Trial]:
    axes = sorted(plan.streamed)
    lengths = {a: _lengths(int(sizes[subject.base[a]]), turn, rng) for a in axes}
    kinds = _kinds(opened, plan, subject)
    kind = kinds[turn % len(kinds)]
    steps = _steps(lengths)
    if turn % 3 == 2:
        steps.reverse()
    pieces = _pieces(steps, rng) if plan.passes == 1 and plan.state and not plan.recurrences else []
    if plan.segments is not None:
        pieces = _in_turn(steps, groups(plan.recurrences), rng)
    if turn in (1, 3) and plan.lengths:
        kind = LEVEL  # as many terms count as can
    arrays = data(subject, sizes, kind, {a: parts[0] for a, parts in lengths.items()}, seed)
    bench = Bench(opened, plan, subject, sizes, arrays, against or Against())
    for _ in range(REDRAWS):
        if not bench.compares_no_number():
            break
        # which way a comparison with no number goes is nobody's claim: other data are drawn
        kind, seed = PLAIN, seed + REDRAWN
        arrays = data(subject, sizes, kind, {a: parts[0] for a, parts in lengths.items()}, seed)
        bench = Bench(opened, plan, subject, sizes, arrays, against or Against())
    error = bench.error(steps, pieces, rng)
    spans = [dict.fromkeys(s[a] for s in steps) for a in axes]
    names = set(subject.base.values())
    trial = Trial(
        axes=tuple((n, int(v)) for n, v in sizes.items() if n in names),
        steps=tuple(hi - lo for walked in spans for lo, hi in walked),
        parts=max(1, len(pieces)),
        data=kind,
        seed=seed,
        error=error,
        passed=error <= bench.against.allowed,
    )
    return bench, trial


def _kinds(opened: Opened, plan: Plan, subject: Subject) -> tuple[str, ...]:
    """The kinds of data to try. Far exponents underflow to equal values, which positions of a list would tell apart."""
    ordered = {key(b) for b in plan.boxes if is_list(b)}
    moved = any(holds_positions(b) and key(b) not in ordered for b in opened.boxes)
    return tuple(k for k in subject.kinds() if not moved or k not in (LARGE, FAR))


def _filling(plan: Plan, subject: Subject, turn: int, rng: np.random.Generator) -> dict[str, int]:
    """Sizes of the streamed axes at which a plan's own lists are one slot short, just full, and have to choose."""
    longest = max((n for _, n in plan.lengths), default=0)
    if not 0 < longest <= FULL_LISTS or turn % 2 == 0:
        return {}
    length = {1: longest + 1, 3: longest}.get(turn) or int(rng.integers(longest, 2 * longest + 2))
    return {subject.base[a]: length for a in plan.streamed}


def _lengths(size: int, turn: int, rng: np.random.Generator) -> list[int]:
    """The lengths of steps: of 1 in the first trial, the whole axis in some, else unequal ones."""
    if turn == 0:
        return [1] * size
    if turn % 6 == 4:
        return [size]
    cuts = sorted({0, size, *(int(n) for n in rng.integers(0, size, int(rng.integers(1, 4))))})
    return [hi - lo for lo, hi in pairwise(cuts)]


def _steps(lengths: Mapping[str, Sequence[int]]) -> list[Step]:
    """The steps of the nest of the streamed axes."""
    spans = []
    for a, parts in lengths.items():
        ends = np.cumsum(parts)
        spans.append([(a, (int(end) - n, int(end))) for n, end in zip(parts, ends, strict=True)])
    return [dict(combination) for combination in product(*spans)]


def _pieces(steps: Sequence[Step], rng: np.random.Generator) -> list[list[Step]]:
    """The steps dealt to two or three pieces in any order; fewer where there are fewer steps."""
    order = [steps[k] for k in rng.permutation(len(steps))]
    count = min(len(order), int(rng.integers(2, 4)))
    return [order[k::count] for k in range(count)]


def _in_turn(steps: Sequence[Step], scans: Sequence[Group], rng: np.random.Generator) -> list[list[Step]]:
    """The steps in two to four pieces one after another, in the direction of the scans."""
    ordered = list(in_order(steps, scans))
    inner = rng.integers(1, len(ordered), int(rng.integers(1, 4))) if len(ordered) > 1 else ()
    cuts = sorted({0, len(ordered), *(int(n) for n in inner)})
    return [ordered[lo:hi] for lo, hi in pairwise(cuts)]


@dataclass(frozen=True, slots=True)
class Against:
    """What errors are measured by: for an output the array ``measures`` names, else its largest value.

    An error of up to ``allowed`` passes.
    """

    measures: tuple[tuple[str, str], ...] = ()
    allowed: float = TOLERANCE


@dataclass
class Bench:
    """A plan and its reference on the same inputs, as they are or with every value moved a little."""

    opened: Opened
    plan: Plan
    subject: Subject
    values: Mapping[str, int | float]
    inputs: Mapping[str, Values]
    against: Against = Against()

    @cached_property
    def made(self) -> dict[str, Values]:
        """Every array of the reference, inputs included."""
        return self._direct(None)

    def _direct(self, noise: np.random.Generator | None) -> dict[str, Values]:
        return PlanMachine(self.subject.sizes_of(self.values), self.inputs, noise).direct(self.subject.boxes)

    def compares_no_number(self) -> bool:
        """Whether the reference compares a value that is no number, such as a mean of no values."""
        for b in self.subject.boxes:
            for n in walk(b.body):
                if isinstance(n, Apply) and n.op in COMPARISONS:
                    arrays = [self.made[r.array] for r in reads(n) if r.array in self.made]
                    if any(a.dtype.kind == "f" and bool(np.isnan(a).any()) for a in arrays):
                        return True
        return False

    def _outputs(self, arrays: Mapping[str, Values]) -> dict[str, Values]:
        return {n: arrays[n].astype(float) for n in self.opened.outputs}

    @cached_property
    def lowered(self) -> Plan:
        """The plan with its casts as the reference has them."""
        return replace(self.plan, boxes=with_casts(self.plan.boxes))

    @property
    def decides(self) -> bool:
        """Whether the reference has a finite element to compare with."""
        return any(bool(np.any(np.isfinite(a))) for a in self._outputs(self.made).values())

    def error(self, steps: Sequence[Step], pieces: Sequence[Sequence[Step]], rng: np.random.Generator) -> float:
        """The largest difference of an output from the reference, beyond rounding, over its largest value.

        The plan is run in ``steps``, and merged from ``pieces`` where there are any. Elements where
        the reference is not finite are free; infinite where the plan cannot be executed or gives no
        number.
        """
        worst = self._compared([steps], False, rng)
        return max(worst, self._compared(pieces, True, rng)) if pieces else worst

    def _planned(
        self, pieces: Sequence[Sequence[Step]], merged: bool, noise: np.random.Generator | None
    ) -> dict[str, Values]:
        own = {b.name for b in self.opened.boxes}
        outside = {n: a for n, a in self.made.items() if n not in own}
        machine = PlanMachine(self.subject.sizes_of(self.values), outside, noise)
        run = self.lowered
        return self._outputs(machine.merged(run, pieces) if merged else machine.streamed(run, pieces[0]))

    def _compared(self, pieces: Sequence[Sequence[Step]], merged: bool, rng: np.random.Generator) -> float:
        reference = self._outputs(self.made)
        try:
            got = self._planned(pieces, merged, None)
        except KeyError:
            return float("inf")
        measures = {n: np.abs(self.made[m].astype(float)) for n, m in self.against.measures}
        error = _largest(reference, got, {}, measures)
        if error <= self.against.allowed:
            return error
        sides = [reference], [got]
        for _ in range(RUNS):
            sides[0].append(self._outputs(self._direct(rng)))
            sides[1].append(self._planned(pieces, merged, rng))
        spread = {n: _spread([s[n] for s in sides[0]]) + _spread([s[n] for s in sides[1]]) for n in reference}
        return _largest(reference, got, spread, measures)


def _spread(runs: Sequence[Values]) -> Values:
    """How far each element moves over the runs; infinite where only some of them give a number."""
    stack = np.stack(runs)
    finite = np.isfinite(stack)
    wide = np.max(stack, axis=0, where=finite, initial=-np.inf) - np.min(stack, axis=0, where=finite, initial=np.inf)
    return np.asarray(np.where(finite.all(axis=0), wide, np.where(finite.any(axis=0), np.inf, 0.0)))


def _largest(
    reference: Mapping[str, Values],
    got: Mapping[str, Values],
    spread: Mapping[str, Values],
    measures: Mapping[str, Values],
) -> float:
    """The largest difference beyond the spread, over its measure, or else over the largest value of its output."""
    worst = 0.0
    for n, b in reference.items():
        a = got[n]
        if a.shape != b.shape:
            return float("inf")
        finite = np.isfinite(b)
        gap = np.full(b.shape, np.inf)
        np.subtract(a, b, out=gap, where=finite & np.isfinite(a))
        gap = np.where(finite, np.abs(gap), 0.0)
        if n in spread:
            gap = np.where(
                np.isinf(spread[n]), 0.0, np.maximum(gap - np.where(np.isinf(spread[n]), 0.0, spread[n]), 0.0)
            )
        if n in measures:
            worst = max(worst, _over(gap, measures[n]))
            continue
        most = float(np.max(gap, initial=0.0))
        scale = float(np.max(np.abs(b), where=finite, initial=0.0))
        worst = max(worst, most / scale if scale > 0 else (np.inf if most > 0 else 0.0))
    return worst


def _over(gap: Values, measure: Values) -> float:
    """The largest gap over its measure, element by element, where the measure is a number."""
    known = np.isfinite(measure)
    ratio = np.divide(gap, measure, out=np.where(gap > 0, np.inf, 0.0), where=known & (measure > 0))
    return float(np.max(np.where(known, ratio, 0.0), initial=0.0))
