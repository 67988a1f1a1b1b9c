"""The commands as functions: each takes an algorithm, sizes and a target, and gives a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ioweave.derive.execution.grid import Values
from ioweave.derive.reporting.approximated import parse_error
from ioweave.derive.reporting.checked import check_report
from ioweave.derive.reporting.compared import compare_named, compare_subjects
from ioweave.derive.reporting.cost import cost_report
from ioweave.derive.reporting.derived import derive_report
from ioweave.derive.reporting.subject import Anything, Value, as_subject
from ioweave.derive.reporting.target import make_target
from ioweave.derive.reporting.verdicts import stream_report
from ioweave.hierarchy.machines import Machine
from ioweave.hierarchy.report import Report

Sizes = Mapping[str, Value]
Capacity = str | Mapping[str, str | int] | Sequence[str]
LEVELS = ("gmem", "smem")


def search(
    algorithm: Anything,
    sizes: Sizes | None = None,
    *,
    machine: str | Machine = "h100",
    levels: str | Sequence[str] = LEVELS,
    capacity: Capacity = (),
    accumulate: str = "fp32",
    align: Mapping[str, int] | None = None,
    explain: bool = False,
) -> Report:
    """Find the schedule of an algorithm that moves least: ``ioweave derive``.

    ``algorithm`` is a name of the catalogue, a path, a text of the notation, a diagram or a
    levelled diagram (whose levels are left out); ``sizes`` replace its own. ``capacity`` is
    ``{"smem": "128KiB"}`` (or a number of bytes), ``align`` maps axes to what their tiles must
    be multiples of. Raises WeaveError for bad input, and DoesNotFit where nothing fits.
    """
    target = make_target(machine, levels, capacity, accumulate, align=align or {})
    return derive_report(as_subject(algorithm, sizes, target.levels), target, explain)


def cost(
    algorithm: Anything,
    sizes: Sizes | None = None,
    *,
    machine: str | Machine = "h100",
    levels: str | Sequence[str] = LEVELS,
    capacity: Capacity = (),
    accumulate: str = "fp32",
    explain: bool = False,
) -> Report:
    """Count a levelled diagram as it is written: ``ioweave cost``.

    Arguments are those of `search`. Raises WeaveError for bad input, and Refused where a region
    cannot be run as written.
    """
    target = make_target(machine, levels, capacity, accumulate)
    return cost_report(as_subject(algorithm, sizes, target.levels), target, explain)


def stream(
    algorithm: Anything,
    axis: str,
    sizes: Sizes | None = None,
    *,
    accumulate: str = "fp32",
    explain: bool = False,
    approximate: float | None = None,
) -> Report:
    """Prove that an axis streams, or refuse with the reason: ``ioweave stream``.

    ``approximate`` is the relative error that results may have where no exact plan has one pass.
    Raises WeaveError for bad input, an axis that no line has among it.
    """
    error = None if approximate is None else parse_error(approximate)
    target = make_target(accumulate=accumulate)
    return stream_report(as_subject(algorithm, sizes), axis, target, explain, approximate=error)


def check(
    algorithm: Anything,
    sizes: Sizes | None = None,
    *,
    tiles: Mapping[str, int] | None = None,
    seed: int = 0,
    inputs: Mapping[str, Values] | None = None,
    large: bool = False,
    machine: str | Machine = "h100",
    levels: str | Sequence[str] = LEVELS,
    capacity: Capacity = (),
    accumulate: str = "fp32",
) -> Report:
    """Run a schedule in counted memory against the mathematics and the counts: ``ioweave check``.

    Levels as written are run as written, others as derived. Without ``sizes`` (or arrays for the
    ``inputs``) it is run at ten draws of sizes and tiles. ``report.passed`` says how it went.
    Raises WeaveError for bad input, DoesNotFit where nothing fits.
    """
    target = make_target(machine, levels, capacity, accumulate)
    subject = as_subject(algorithm, sizes, target.levels)
    own = as_subject(algorithm, None, target.levels) if sizes else None
    return check_report(subject, target, sizes is not None, tiles, seed, inputs, large, own).report


def compare(
    a: Anything,
    b: Anything,
    sizes: Sizes | None = None,
    *,
    machine: str | Machine = "h100",
    levels: str | Sequence[str] = LEVELS,
    capacity: Capacity = (),
    accumulate: str = "fp32",
) -> Report:
    """What differs between two algorithms, levelled files, machines or dtypes: ``ioweave compare``.

    ``sizes`` are given to the one or the other as far as it has such names.
    """
    target = make_target(machine, levels, capacity, accumulate)
    if isinstance(a, str) and isinstance(b, str) and (named := compare_named(a, b, target)) is not None:
        return named
    first, second = (as_subject(x, None, target.levels) for x in (a, b))
    given = dict(sizes or {})
    if given:
        unknown = set(given) - set(first.values) - set(second.values)
        first, second = (
            as_subject(x, {n: v for n, v in given.items() if n in s.values or n in unknown}, target.levels)
            for x, s in ((a, first), (b, second))
        )
    return compare_subjects(first, second, target)
