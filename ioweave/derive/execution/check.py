"""Check: the program of a levelled diagram, run in counted memory, against the reference and the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ioweave.derive.counting.levelled import Placed, place
from ioweave.derive.counting.region import count_region
from ioweave.derive.execution.draws import MANY, draw_schedule, draw_sizes, draw_tiles, trips, with_tiles
from ioweave.derive.execution.grid import Values
from ioweave.derive.execution.inputs import Kind, draw_inputs, given_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.derive.execution.run import Execution, execute
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import DoesNotFit, Refused, WeaveError
from ioweave.diagrams.sizes import axis_names
from ioweave.hierarchy.counts import RegionCount
from ioweave.hierarchy.levelled import Levelled

TOLERANCE = 1e-9  # of the largest value of an array
KINDS: tuple[Kind, ...] = ("plain", "zeros", "constant")


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One run: its sizes, its tiles by region, the seed of its inputs, and how it compared.

    ``error`` is the largest max|a - b| / max|b| of an array; ``not_finite`` counts elements of
    the outputs where the reference is not finite, at which the derived value is free.
    """

    axes: Mapping[str, int]
    tiles: Mapping[str, Any]
    seed: int
    error: float
    not_finite: int
    passed: bool
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        """As one row of ``check`` of the report."""
        row: dict[str, Any] = {
            "axes": dict(self.axes),
            "tiles": dict(self.tiles),
            "seed": self.seed,
            "error": self.error if np.isfinite(self.error) else 1e308,
            "not_finite": self.not_finite,
            "passed": self.passed,
        }
        return row if self.passed else {**row, "because": self.because}


@dataclass(frozen=True)
class Checked:
    """A row, the levelled diagram that was run, and every array that it stored."""

    row: CheckRow
    levelled: Levelled
    arrays: Mapping[str, Values] = field(repr=False)


def check(
    subject: Levelled | Diagram,
    sizes: Mapping[str, int | float] | None = None,
    tiles: Mapping[str, int] | None = None,
    seed: int = 0,
    draws: int = 10,
    accumulate: str = "fp32",
    capacity: int | None = None,
    inputs: Mapping[str, Values] | None = None,
) -> tuple[Checked, ...]:
    """Run and compare.

    With ``sizes`` (or arrays for the inputs) it is one run at those sizes, with the tiles of a
    levelled diagram as written but for ``tiles`` (by name of axis). Without, it is ``draws``
    runs at drawn sizes and tiles; a plain diagram is run by drawn schedules. Raises WeaveError
    where no drawn sizes make the file valid or arrays do not fit, and Refused where a region cannot run as written.
    """
    diagram = subject.diagram if isinstance(subject, Levelled) else subject
    given = dict(tiles or {})
    results = []
    if sizes is not None or inputs is not None:
        values = diagram.values(sizes or {})
        levelled = _written(subject, values, given, np.random.default_rng(seed))
        arrays = draw_inputs(diagram, values, seed) if inputs is None else given_inputs(diagram, values, inputs)
        return (check_once(levelled, values, arrays, seed, accumulate, capacity),)
    for k in range(draws):
        rng = np.random.default_rng([seed, k])
        checked = _draw(subject, diagram, given, seed + k, rng, KINDS[k % len(KINDS)], accumulate, capacity)
        results.append(checked)
    return tuple(results)


def _written(
    subject: Levelled | Diagram, values: Mapping[str, int | float], given: Mapping[str, int], rng: np.random.Generator
) -> Levelled:
    if isinstance(subject, Levelled):
        return with_tiles(subject, given)
    return draw_schedule(subject, values, rng, given)


def _draw(
    subject: Levelled | Diagram,
    diagram: Diagram,
    given: Mapping[str, int],
    seed: int,
    rng: np.random.Generator,
    kind: Kind,
    accumulate: str,
    capacity: int | None,
) -> Checked:
    """One drawn run; tiles that a region refuses are drawn again."""
    refused = Refused("")
    for attempt in range(50):
        values = draw_sizes(diagram, rng)
        if isinstance(subject, Levelled):
            levelled = draw_tiles(subject, values, rng, given)
        else:
            levelled = draw_schedule(subject, values, rng, given)
        try:
            placed = place(levelled, values, accumulate)
            for p in placed:
                count_region(p.program, p.tiles, p.setting, p.buffers)
        except Refused as e:
            refused = e
            continue
        if attempt < 40 and sum(trips(p.tiles) for p in placed) > MANY:
            continue
        try:
            inputs = draw_inputs(diagram, values, seed, kind)
        except WeaveError as e:  # at these sizes an index array has nothing to name
            refused = Refused(str(e))
            continue
        return check_once(levelled, values, inputs, seed, accumulate, capacity)
    raise refused


def check_once(
    levelled: Levelled,
    values: Mapping[str, int | float],
    inputs: Mapping[str, Values],
    seed: int = 0,
    accumulate: str = "fp32",
    capacity: int | None = None,
) -> Checked:
    """Run a levelled diagram once and compare values and counts; Refused where it cannot run as written."""
    diagram = levelled.diagram
    placed = place(levelled, values, accumulate)
    axes = {a: int(values[a]) for a in axis_names(diagram) if a in values}
    tiles = _tiles(levelled)
    try:
        done = execute(placed, inputs, capacity)
    except DoesNotFit as e:
        return Checked(CheckRow(axes, tiles, seed, 0.0, 0, False, str(e)), levelled, {})
    reference = evaluate(diagram, values, inputs)
    error, not_finite, why = _compare_values(reference, done, diagram.outputs)
    problems = [why] if why else []
    try:
        known = _whole_numbers({**inputs, **reference}, placed)
        for p, ran in zip(placed, done.regions, strict=True):
            setting = replace(p.setting, integers=known)
            problems.extend(_compare_counts(count_region(p.program, p.tiles, setting, p.buffers), ran))
    except Refused as e:
        problems.append(f"not counted: {e}")
    row = CheckRow(axes, tiles, seed, error, not_finite, not problems, "; ".join(problems[:3]))
    return Checked(row, levelled, {k: v for k, v in done.arrays.items() if k in reference})


def _whole_numbers(arrays: Mapping[str, Values], placed: Sequence[Placed]) -> dict[str, Values]:
    """The arrays of whole numbers, by which lookups are counted."""
    dtypes = placed[0].setting.dtypes
    kept = {n: np.asarray(a) for n, a in arrays.items() if n in dtypes and DTYPES[dtypes[n]].kind == "int"}
    return {n: a.astype(np.int64) for n, a in kept.items() if np.all(np.isfinite(a))}


def _tiles(levelled: Levelled) -> dict[str, Any]:
    """Per region with tiles: its groups, steps and holds."""
    result: dict[str, Any] = {}
    for r in levelled.regions:
        parts = {"group": dict(r.group), "stream": dict(r.stream), "hold": dict(r.hold)}
        kept = {k: v for k, v in parts.items() if v}
        if kept:
            result[r.name] = kept
    return result


def _compare_values(
    reference: Mapping[str, Values], done: Execution, outputs: tuple[str, ...]
) -> tuple[float, int, str]:
    """The largest relative error, how many output elements are free, and what is wrong."""
    worst, free, why = 0.0, 0, ""
    for name, expected in reference.items():
        if name not in done.arrays:
            continue
        b = np.asarray(expected, dtype=float)
        a = np.asarray(done.arrays[name], dtype=float)
        finite = np.isfinite(b)
        if name in outputs:
            free += int(np.count_nonzero(~finite))
        scale = float(np.max(np.abs(b[finite]), initial=0.0))
        difference = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
        error = difference if scale == 0 else difference / scale
        if not error <= TOLERANCE:
            at = "a value is not finite" if np.isnan(error) else f"max|a - b| is {error:.3g} of max|b|"
            why = why or f"{name} differs from the reference: {at}"
            error = np.inf if np.isnan(error) else error
        worst = max(worst, error)
    return worst, free, why


def _compare_counts(counted: RegionCount, ran: RegionCount) -> list[str]:
    """Where the analytic counts of a region differ from what its run counted."""
    problems = []
    for what, said, found in (
        ("loads", counted.transfers.loads, ran.transfers.loads),
        ("stores", counted.transfers.stores, ran.transfers.stores),
    ):
        for array in dict.fromkeys((*said, *found)):
            one, other = said.get(array, 0), found.get(array, 0)
            if one != other:
                problems.append(f"{counted.name}: {what} of {array} are counted {one:,} and were {other:,}")
    for what, one, other in (
        ("bytes moved", counted.transfers.bytes, ran.transfers.bytes),
        ("bytes of memory", counted.memory.bytes, ran.memory.bytes),
        ("mma FLOPs", counted.flops.mma, ran.flops.mma),
        ("vector FLOPs", counted.flops.vector, ran.flops.vector),
        ("special FLOPs", counted.flops.special, ran.flops.special),
    ):
        if one != other:
            problems.append(f"{counted.name}: {what} are counted {one:,} and were {other:,}")
    return problems
