"""The report: what a command found, as plain records with one JSON encoder.

``to_json`` gives what ``report.schema.json`` beside this file describes. Fields that a command
does not compute are None or empty, and their keys are absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ioweave.diagrams import display
from ioweave.hierarchy.counts import Flops, Memory, Transfers
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.steps import Step
from ioweave.hierarchy.time import TimeEstimate
from ioweave.hierarchy.verdicts import Verdict

Pairs = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Written:
    """A formula, as Python (sympy reads it) and as LaTeX; empty where none is short enough.

    ``bound`` says that the count is at most this; ``symbols`` are the numbers it was made at.
    """

    text: str = ""
    latex: str = ""
    bound: bool = False
    symbols: Pairs = ()

    def put(self, record: dict[str, Any], latex: bool = False) -> None:
        """Add the formula to a record; a bound is marked as one."""
        if self.text:
            record["formula"] = f"<= {self.text}" if self.bound else self.text
            if latex:
                record["latex"] = rf"\le {self.latex}" if self.bound else self.latex


@dataclass(frozen=True, slots=True)
class Formulas:
    """The formulas of a region or a side: transfers (values), memory (in ``unit``), FLOPs of all classes.

    They suppose that tiles divide; ``divides`` says whether the tiles of the report do.
    """

    transfers: Written = Written()
    memory: Written = Written()
    flops: Written = Written()
    unit: str = "bytes"
    divides: bool = True


@dataclass(frozen=True, slots=True)
class Tally:
    """Transfers, memory and FLOPs of a region or a side, and the formulas they are values of."""

    transfers: Transfers
    memory: Memory
    flops: Flops
    formulas: Formulas = Formulas()

    def to_json(self, level: str) -> dict[str, Any]:
        """The three records, transfers and memory under ``level``, the lower one of the pair."""
        moved, live, flops = self.transfers.to_json(), self.memory.to_json(), self.flops.to_json()
        self.formulas.transfers.put(moved, latex=True)
        self.formulas.memory.put(live)
        self.formulas.flops.put(flops)
        return {"transfers": {level: moved}, "memory": {level: live}, "flops": flops}


@dataclass(frozen=True, slots=True)
class RegionRow:
    """One region (or the merge after one): its tiles, what it computes and what it costs."""

    name: str
    level: str
    group: Pairs
    stream: Pairs
    hold: Pairs
    place: tuple[tuple[str, str], ...]
    boxes: tuple[str, ...]
    instances: int
    passes: int
    tally: Tally

    def to_json(self) -> dict[str, Any]:
        """As one entry of ``regions``."""
        record: dict[str, Any] = {
            "name": self.name,
            "level": self.level,
            "group": dict(self.group),
            "stream": [[axis, step] for axis, step in self.stream],
            "hold": dict(self.hold),
        }
        _put(record, "place", dict(self.place))
        record.update(boxes=list(self.boxes), instances=self.instances, passes=self.passes)
        return {**record, **self.tally.to_json(self.level)}


@dataclass(frozen=True, slots=True)
class Side:
    """A levelled diagram with its counts: ``before`` or ``after``. ``level`` is the lower of the pair."""

    level: str
    tally: Tally
    regions: tuple[RegionRow, ...]
    seconds: TimeEstimate | None = None
    levelled: Levelled | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """As ``before`` or ``after``."""
        record = {**self.tally.to_json(self.level), "regions": [r.to_json() for r in self.regions]}
        if self.seconds is not None:
            record["seconds"] = self.seconds.to_json()
        return record

    def as_rival(self) -> dict[str, Any]:
        """As one of ``rivals``."""
        record = {"regions": [r.to_json() for r in self.regions], "values": self.tally.transfers.values}
        if self.seconds is not None:
            record["seconds"] = self.seconds.total.value
        return record


@dataclass(frozen=True, slots=True)
class NapkinRow:
    """The closed form of the least transfer in values, which comes to ``values``; ``pretty`` is for people.

    ``memory_unit`` is that of M. ``without_mask`` says that masks are left out: the least is at most this.
    """

    formula: str
    pretty: str
    latex: str
    exponents: tuple[tuple[str, float], ...]
    holds_where: str
    other_regimes: tuple[tuple[str, str], ...]
    worth_of_a_byte: tuple[tuple[str, float], ...]
    values: float = 0.0
    memory_unit: str = "values"
    without_mask: bool = False

    def to_json(self) -> dict[str, Any]:
        """As ``napkin``."""
        return {
            "formula": self.formula,
            "latex": self.latex,
            "exponents": dict(self.exponents),
            "holds_where": self.holds_where,
            "other_regimes": [{"formula": f, "holds_where": w} for f, w in self.other_regimes],
            "worth_of_a_byte": dict(self.worth_of_a_byte),
        }


@dataclass(frozen=True, slots=True)
class BoundRow:
    """A number of values that no schedule can go below; ``ratio`` is the schedule found over it."""

    values: int | float
    because: str
    assumes: tuple[str, ...] = ()
    candidates: tuple[tuple[int | float, str], ...] = ()
    ratio: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As ``bound``."""
        record: dict[str, Any] = {
            "values": self.values,
            "because": self.because,
            "assumes": list(self.assumes),
            "candidates": [{"values": v, "because": b} for v, b in self.candidates],
        }
        if self.ratio is not None:
            record["ratio"] = self.ratio
        return record


@dataclass(frozen=True, slots=True)
class Searched:
    """What was looked at, and whether the answer is the best of it."""

    exact: bool
    space: str
    schedules: int
    seconds: float
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """As ``searched``."""
        return {
            "exact": self.exact,
            "space": self.space,
            "schedules": self.schedules,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
        }


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One run of a check: its sizes and tiles, and how values and counts compared."""

    axes: Pairs
    tiles: Mapping[str, Any]
    seed: int
    error: float
    not_finite: int
    passed: bool
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        """As one entry of ``check``."""
        record: dict[str, Any] = {
            "axes": dict(self.axes),
            "tiles": dict(self.tiles),
            "seed": self.seed,
            "error": self.error,
            "not_finite": self.not_finite,
            "passed": self.passed,
        }
        _put(record, "because", self.because)
        return record


@dataclass(frozen=True, slots=True)
class CompareRow:
    """One thing that differs between A and B; None where a side lacks it."""

    what: str
    a: int | float | str | None
    b: int | float | str | None

    def to_json(self) -> dict[str, Any]:
        """As one entry of ``compare``."""
        return {"what": self.what, "a": self.a, "b": self.b}


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One term of a total: what it is of, its value and formula, the rule that counts it, the lines it comes from.

    ``side`` is ``before``, ``after`` or the name of what is compared; ``total`` is ``transfers``, ``memory``,
    ``flops``, ``state`` or ``bound``; ``at`` the column at which memory is largest. Where ``bound``, the
    formula is at most.
    """

    side: str
    total: str
    region: str
    name: str
    kind: str
    value: int
    unit: str
    formula: str
    rule: str
    lines: tuple[str, ...]
    bound: bool = False
    at: str = ""

    def to_json(self) -> dict[str, Any]:
        """As one entry of ``explain``."""
        record: dict[str, Any] = {
            "side": self.side,
            "total": self.total,
            "region": self.region,
            "name": self.name,
            "kind": self.kind,
            "value": self.value,
            "unit": self.unit,
            "formula": f"<= {self.formula}" if self.bound else self.formula,
            "rule": self.rule,
            "lines": list(self.lines),
        }
        _put(record, "at", self.at)
        return record


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found. ``str(report)`` is the report for people, ``to_json()`` that for programs.

    ``axes`` are the sizes of the axes. ``other`` is the name of B where two things are compared.
    """

    algorithm: str
    axes: Pairs
    machine: str | None = None
    levels: tuple[str, ...] = ()
    capacity: int | None = None
    objective: str | None = None
    accumulate: str | None = None
    before: Side | None = None
    after: Side | None = None
    streaming: tuple[Verdict, ...] | None = None
    derivation: tuple[Step, ...] | None = None
    napkin: NapkinRow | None = None
    bound: BoundRow | None = None
    rivals: tuple[Side, ...] = ()
    searched: Searched | None = None
    notation: str | None = None
    warnings: tuple[str, ...] = ()
    check: tuple[CheckLine, ...] | None = None
    compare: tuple[CompareRow, ...] | None = None
    explain: tuple[ExplainRow, ...] | None = None
    other: str = ""
    title: str = ""
    values: Mapping[str, int | float] = field(default_factory=dict, repr=False, compare=False)

    _repr_svg_ = display.svg
    _repr_html_ = display.html

    def __str__(self) -> str:
        return display.picture("text", self) or f"report of {self.algorithm}"

    @property
    def passed(self) -> bool:
        """Whether every run of a check passed; True where nothing was checked."""
        return all(row.passed for row in self.check or ())

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and objects, as ``report.schema.json`` has them."""
        record: dict[str, Any] = {"algorithm": self.algorithm, "axes": dict(self.axes)}
        optional: tuple[tuple[str, Any], ...] = (
            ("machine", self.machine),
            ("levels", list(self.levels) or None),
            ("objective", self.objective),
            ("accumulate", self.accumulate),
            ("before", self.before and self.before.to_json()),
            ("after", self.after and self.after.to_json()),
            ("streaming", _rows(self.streaming)),
            ("derivation", _rows(self.derivation)),
            ("napkin", self.napkin and self.napkin.to_json()),
            ("bound", self.bound and self.bound.to_json()),
            ("rivals", [r.as_rival() for r in self.rivals] or None),
            ("searched", self.searched and self.searched.to_json()),
            ("notation", self.notation),
            ("warnings", list(self.warnings)),
            ("check", _rows(self.check)),
            ("compare", _rows(self.compare)),
            ("explain", _rows(self.explain)),
        )
        return record | {key: value for key, value in optional if value is not None}


def _rows(rows: Iterable[Any] | None) -> list[dict[str, Any]] | None:
    return None if rows is None else [r.to_json() for r in rows]


def _put(record: dict[str, Any], key: str, value: Any) -> None:
    """Set a key unless there is nothing to say."""
    if value:
        record[key] = value
