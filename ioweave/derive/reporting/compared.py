"""Compare: what differs between two algorithms, levelled files, machines or dtypes, term by term."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ioweave.derive.reporting.cost import cost_report
from ioweave.derive.reporting.derived import derive_report
from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import Target
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import listed
from ioweave.hierarchy.machines import Machine, load_machine, machine_names
from ioweave.hierarchy.report import CompareRow, ExplainRow, RegionRow, Report, Side

Scalar = int | float | str
Terms = Mapping[str, Scalar]


def compare_reports(a: Report, b: Report) -> Report:
    """What differs between the schedules of two reports; A's keys are kept, rows stand under ``compare``."""
    return Report(
        algorithm=a.algorithm,
        axes=a.axes,
        machine=a.machine,
        levels=a.levels,
        capacity=a.capacity,
        accumulate=a.accumulate,
        warnings=tuple(dict.fromkeys((*a.warnings, *b.warnings))),
        compare=differences(_terms(a), _terms(b)),
        explain=_explained(a, b),
        other=b.algorithm,
        title=a.title,
        values=a.values,
    )


def compare_subjects(a: Subject, b: Subject, target: Target, explain: bool = False) -> Report:
    """Two subjects: levels as written are counted as written, others are derived."""
    return compare_reports(*(schedule_report(s, target, explain) for s in (a, b)))


def schedule_report(subject: Subject, target: Target, explain: bool = False) -> Report:
    """The report of a subject's schedule: as written, or else as derived."""
    make = derive_report if subject.levelled is None else cost_report
    return make(subject, target, explain)


def compare_named(a: str, b: str, target: Target) -> Report | None:
    """Two machines or two dtypes by name; None where they are neither."""
    if a in machine_names() and b in machine_names():
        return compare_machines(load_machine(a), load_machine(b))
    if a in DTYPES and b in DTYPES:
        return compare_dtypes(a, b, target.machine)
    for known, kind in ((machine_names(), "machine"), (tuple(DTYPES), "dtype")):
        for one, other in ((a, b), (b, a)):
            if one in known:
                raise WeaveError(f"{one} is a {kind} and {other} is none; compare it with one of {listed(known)}")
    return None


def compare_machines(a: Machine, b: Machine) -> Report:
    """What differs between two machines: bytes, bytes a second, operations a second."""
    rows = differences(_machine_terms(a), _machine_terms(b))
    return Report(algorithm=a.name, axes=(), machine=a.name, compare=rows, other=b.name, title=a.title)


def compare_dtypes(a: str, b: str, machine: Machine) -> Report:
    """What differs between two dtypes: widths, and the peaks of a machine."""
    rows = differences(_dtype_terms(a, machine), _dtype_terms(b, machine))
    return Report(algorithm=a, axes=(), machine=machine.name, compare=rows, other=b)


def differences(a: Terms, b: Terms) -> tuple[CompareRow, ...]:
    """The terms whose values differ, A's order first; None where a side lacks one."""
    keys = sorted(dict.fromkeys((*a, *b)), key=_kind)
    return tuple(CompareRow(k, a.get(k), b.get(k)) for k in keys if a.get(k) != b.get(k))


KINDS = ("axes", "transfers", "loads", "stores", "memory", "flops", "seconds", "regions", "region", "bound", "napkin")


def _kind(term: str) -> int:
    """Terms of one kind stand together."""
    word = re.split(r"[. ]", term)[0]
    return KINDS.index(word) if word in KINDS else len(KINDS)


def _explained(a: Report, b: Report) -> tuple[ExplainRow, ...] | None:
    """What makes up both schedules, each under its name."""
    if a.explain is None or b.explain is None:
        return None
    return tuple(replace(row, side=r.algorithm) for r in (a, b) for row in r.explain or () if row.side == "after")


def _terms(report: Report) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {f"axes.{axis}": size for axis, size in report.axes}
    if report.after is not None:
        found.update(_side_terms(report.after))
    if report.bound is not None:
        found["bound"] = report.bound.values
    if report.napkin is not None:
        found["napkin"] = report.napkin.formula
    return found


def _side_terms(side: Side) -> dict[str, Scalar]:
    tally, level = side.tally, side.level
    found: dict[str, Scalar] = {
        f"transfers.{level}.values": tally.transfers.values,
        f"transfers.{level}.bytes": tally.transfers.bytes,
    }
    for way, table in (("loads", tally.transfers.loads), ("stores", tally.transfers.stores)):
        found.update({f"{way}.{array}": n for array, n in table.items() if n})
    found[f"memory.{level}.bytes"] = tally.memory.bytes
    found.update({f"flops.{kind}": n for kind, n in tally.flops.to_json().items()})
    if side.seconds is not None:
        found["seconds.total"] = side.seconds.total.value
        found["seconds.least"] = side.seconds.least.value
        found["seconds.bound_by"] = side.seconds.bound_by
    found["regions"] = len(side.regions)
    for k, region in enumerate(side.regions, 1):
        found[f"region {k}"] = region_words(region)
    return found


def region_words(region: RegionRow) -> str:
    """A region on one line: its boxes, its tiles, its loops."""
    parts = [", ".join(region.boxes)]
    if region.group:
        parts.append("group " + ", ".join(f"{a} {n}" for a, n in region.group))
    if region.stream:
        parts.append("stream " + ", ".join(f"{a} {n}" for a, n in region.stream))
    if region.hold:
        parts.append("hold " + ", ".join(f"{a} {n}" for a, n in region.hold))
    return " · ".join(parts)


def _machine_terms(machine: Machine) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for level in machine.levels:
        if level.capacity is not None:
            found[f"{level.name}.capacity"] = level.capacity.value
        found[f"{level.name}.instances"] = level.instances
        if level.bandwidth is not None:
            found[f"{level.name}.bandwidth"] = level.bandwidth.value
    for work, rates in machine.peaks:
        for dtype, rate in rates:
            found[f"peak.{work}.{dtype}"] = rate.value
    return found


def _dtype_terms(name: str, machine: Machine) -> dict[str, Scalar]:
    dtype = DTYPES[name]
    found: dict[str, Scalar] = {"bits": dtype.bits, "kind": dtype.kind, "mantissa": dtype.mantissa}
    if dtype.kind == "float":
        found["peak.mma"] = machine.peak("mma", name).value
        found["peak.vector"] = machine.peak("vector", name).value
        found["peak.special"] = machine.peak("special", name).value
    return found
