"""Check: the schedule of a subject, run in counted memory against the reference and the counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from ioweave.derive.counting.levelled import count
from ioweave.derive.execution.check import KINDS, TOLERANCE, Checked, check
from ioweave.derive.execution.grid import Values
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.derive.reporting.explained import explain_counts
from ioweave.derive.reporting.found import run_search
from ioweave.derive.reporting.subject import Source, Subject, settle
from ioweave.derive.reporting.target import Target
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.report import CheckLine, ExplainRow, Report

DRAWS = 10
LARGE = 1 << 24  # elements of one box's index space
LARGEST_ERROR = 1e308  # stands for a value that is not finite, which JSON has no number for


@dataclass(frozen=True)
class Run:
    """The report of a check, and the arrays of its one run (none for draws), inputs among them."""

    report: Report
    arrays: Mapping[str, Values] = field(repr=False)


def check_report(
    subject: Subject,
    target: Target,
    sized: bool,
    tiles: Mapping[str, int] | None = None,
    seed: int = 0,
    inputs: Mapping[str, Values] | None = None,
    large: bool = False,
    own: Subject | None = None,
    explain: bool = False,
) -> Run:
    """Run a subject's schedule: as written, or else as derived.

    ``sized`` runs it once, at the subject's sizes, on ``inputs`` or on drawn ones, in a memory of
    the target's capacity; else it is run at ten draws of sizes and tiles. ``tiles`` replace those
    of the schedule, by name of axis; where the schedule at these sizes tiles none of them, that of
    ``own`` (the subject at the sizes of its file) is taken. Raises WeaveError for a tile of an
    axis that no schedule tiles, and for sizes that take long unless ``large``.
    """
    given = dict(tiles or {})
    values = subject.values
    if (sized or inputs is not None) and not large:
        _refuse_large(subject)
    levelled = subject.levelled or run_search(subject, target).after
    if subject.levelled is None and own is not None and not set(given) <= _tiled(levelled):
        levelled = run_search(own, target).after
    _check_tiles(levelled, given)
    if sized or inputs is not None:
        arrays = draw_inputs(subject.diagram, values, seed)
        if inputs is not None:
            arrays = {name: inputs[name] for name in arrays if name in inputs}
        capacity = target.capacity.value
        runs = check(levelled, values, given, seed, 1, target.accumulate, capacity, arrays)
        runs = (as_mathematics(runs[0], subject.diagram, arrays),)
        kept = {**arrays, **runs[0].arrays}
    else:
        drawn = check(levelled, None, given, seed, DRAWS, target.accumulate)
        runs = tuple(as_mathematics(r, subject.diagram, _inputs(r, k)) for k, r in enumerate(drawn))
        kept = {}
    return Run(_report(subject, target, runs, explain), kept)


def as_mathematics(run: Checked, diagram: Diagram, inputs: Mapping[str, Values]) -> Checked:
    """The run, failed if its outputs are not those of ``diagram``: its own lines may have been rewritten."""
    import numpy as np

    if not run.row.passed or run.levelled.diagram == diagram:
        return run
    values = diagram.values({n: v for n, v in _values(run).items() if n in diagram.values()})
    reference = evaluate(diagram, values, inputs)
    worst = run.row.error
    for name in diagram.outputs:
        a, b = (np.asarray(x, dtype=float) for x in (run.arrays[name], reference[name]))
        finite = np.isfinite(b)
        scale = float(np.max(np.abs(b[finite]), initial=0.0)) or 1.0
        error = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale
        if not error <= TOLERANCE:
            because = f"{name} differs from the mathematics: max|a - b| is {error:.3g} of max|b|"
            return replace(run, row=replace(run.row, error=error, passed=False, because=because))
        worst = max(worst, error)
    return replace(run, row=replace(run.row, error=worst))


def _values(run: Checked) -> dict[str, int | float]:
    """The sizes and constants of a run."""
    return run.levelled.diagram.values(dict(run.row.axes))


def _inputs(run: Checked, number: int) -> dict[str, Values]:
    """The inputs that a draw was run on."""
    return draw_inputs(run.levelled.diagram, _values(run), run.row.seed, KINDS[number % len(KINDS)])


def sizes_of(source: Source, sizes: Mapping[str, int | float], inputs: Mapping[str, Values]) -> dict[str, int | float]:
    """The sizes that arrays of the inputs have, with those given. Raises WeaveError where they disagree."""
    diagram = settle(source, sizes).diagram
    known: dict[str, int | float] = dict(sizes)
    for i in diagram.inputs:
        if i.name not in inputs:
            raise WeaveError(f"the inputs hold no array {i.name}{nearest(i.name, inputs)}; they hold {listed(inputs)}")
        shape = inputs[i.name].shape
        if len(shape) != len(i.dims):
            raise WeaveError(f"{i.name} has {len(i.dims)} dimensions, and the array given has {len(shape)}")
        for form, n in zip(i.dims, shape, strict=True):
            if len(form.sizes) == 1 and form.sizes[0][1] == 1:
                name, size = form.sizes[0][0], int(n) - form.offset
                if known.setdefault(name, size) != size:
                    raise WeaveError(f"the size of `{name}` is {known[name]}, and {i.name} has {size} there")
    found = settle(source, known)
    values = {n: int(v) for n, v in found.values.items()}
    for i in found.diagram.inputs:
        wanted = tuple(form.fixed(values) for form in i.dims)
        if inputs[i.name].shape != wanted:
            raise WeaveError(f"{i.name} has the shape {wanted}, and the array given has {inputs[i.name].shape}")
    return known


def _report(subject: Subject, target: Target, runs: tuple[Checked, ...], explain: bool) -> Report:
    return Report(
        algorithm=subject.name,
        axes=subject.axes,
        machine=target.machine.name,
        levels=target.levels,
        accumulate=target.accumulate,
        check=tuple(_line(r) for r in runs),
        warnings=subject.warnings,
        explain=_explained(runs[-1], target) if explain else None,
        title=subject.title,
        values=subject.values,
    )


def _explained(run: Checked, target: Target) -> tuple[ExplainRow, ...]:
    """The counts that a run was held to."""
    counts = count(run.levelled, _values(run), target.accumulate)
    return explain_counts(f"seed {run.row.seed}", counts, run.levelled.diagram)


def _line(run: Checked) -> CheckLine:
    row = run.row
    return CheckLine(
        tuple(row.axes.items()),
        row.tiles,
        row.seed,
        row.error if isfinite(row.error) else LARGEST_ERROR,
        row.not_finite,
        row.passed,
        row.because,
    )


def _tiled(levelled: Levelled) -> set[str]:
    """The axes that some region groups or streams."""
    return {base_name(a) for r in levelled.regions for a, _ in (*r.group, *r.stream)}


def _check_tiles(levelled: Levelled, given: Mapping[str, int]) -> None:
    tiled = sorted(_tiled(levelled))
    for axis in given:
        if base_name(axis) not in tiled:
            raise WeaveError(
                f"the schedule does not tile `{axis}`{nearest(axis, tiled)}; the axes that it tiles are {listed(tiled)}"
            )


def _refuse_large(subject: Subject) -> None:
    values = subject.values
    most, name = 0.0, ""
    for box in open_diagram(subject.diagram).boxes:
        n = 1.0
        for a in box.all_axes:
            n *= values[base_name(a)]
        if n > most:
            most, name = n, box.line
    if most > LARGE:
        raise WeaveError(
            f"`{name}` computes {most:.2g} elements at these sizes, which takes long; give smaller sizes, or --large"
        )
