"""The verdict on one axis: whether it streams, with what state, and why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from ioweave.hierarchy.approximation import Approximation
from ioweave.hierarchy.changes import Change

Direction = Literal["both", "forward", "backward"]


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One array of the state: its axes, the dtype it is held in, its identity, and how it is repaired."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    identity: str
    repair: str

    def to_json(self) -> dict[str, Any]:
        """The entry as the report's schema has it."""
        return {
            "name": self.name,
            "axes": list(self.axes),
            "dtype": self.dtype,
            "identity": self.identity,
            "repair": self.repair,
        }


@dataclass(frozen=True, slots=True)
class CascadeRow:
    """One reduction over the axis: what it computes, what it waits for, and the repair found for it.

    ``formula`` is the reduction as written; ``needs`` names the reductions over the axis whose
    results its terms depend on; ``accumulators`` are the parts of the state that carry it;
    ``identity`` is the equation over the reals that justifies the repair, or empty; ``run`` is the
    pass in which it is finished.
    """

    name: str
    formula: str
    needs: tuple[str, ...]
    repair: str
    accumulators: tuple[str, ...]
    identity: str
    run: int

    def to_json(self) -> dict[str, Any]:
        """The row as a record."""
        return {
            "name": self.name,
            "formula": self.formula,
            "needs": list(self.needs),
            "repair": self.repair,
            "accumulators": list(self.accumulators),
            "identity": self.identity,
            "pass": self.run,
        }


@dataclass(frozen=True, slots=True)
class Alternative:
    """One plan on the Pareto list: fewer passes against less state and less traffic.

    ``state_values`` is measured as in `Verdict`; ``loads`` counts the values read along the axis
    in all passes, each array once in each pass that reads it, other axes whole.
    """

    passes: int
    state_values: int
    state_bytes: int
    loads: int
    state: tuple[str, ...]
    how: str

    def to_json(self) -> dict[str, Any]:
        """The plan as a record."""
        return {
            "passes": self.passes,
            "state_values": self.state_values,
            "state_bytes": self.state_bytes,
            "loads": self.loads,
            "state": list(self.state),
            "how": self.how,
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """One execution of the plan beside the reference: sizes, lengths of steps, pieces merged, largest error.

    ``steps`` are the lengths of the successive steps along the axis, in order; ``parts`` how many
    pieces of the axis were streamed apart and merged; ``data`` says how inputs were drawn.
    """

    axes: tuple[tuple[str, int], ...]
    steps: tuple[int, ...]
    parts: int
    data: str
    seed: int
    error: float
    passed: bool

    def to_json(self) -> dict[str, Any]:
        """The trial as a record."""
        return {
            "axes": dict(self.axes),
            "steps": list(self.steps),
            "parts": self.parts,
            "data": self.data,
            "seed": self.seed,
            "error": self.error if isfinite(self.error) else None,
            "passed": self.passed,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """A plan, or a refusal, for streaming ``axis`` through a whole diagram.

    ``state_values`` and ``state_bytes`` count the state with tile 1 on every axis that all its
    parts share and the other axes whole; None where sizes were not given. ``whole`` has the axes
    that must be whole in an instance. ``head``, ``body`` and ``tail`` are formulas for people;
    ``refusal`` names the reduction that stops a single pass, ``nearest`` a change that would not.
    ``cascade`` has the reductions over the axis with their repairs, ``kept`` what is kept from one
    pass to the next, ``commutative`` whether partial states may be merged in any order, ``least`` why
    no fewer passes do, ``safe`` how overflow is kept away, ``warnings`` what rounding may cost,
    ``plans`` the Pareto list where passes, state and traffic trade, ``trials`` the executions that
    the plan has passed. ``lists`` are the axes of lists in the state, with their
    slots where those are known: such an axis is whole. ``directed`` says why an axis with recurrences is
    walked one way, or has no merge;
    ``opposite`` is the plan that walks it the other way, and ``chunked`` the form in which a step of
    many elements is products of matrices, as lines. ``changes`` are edits of the diagram that were proved
    to stream, the nearest first; ``approximation`` says what a plan that is not exact replaced.
    ``least_state`` is the least number of values that a smooth state can have, in the measure of
    ``state_values``, None where numbers do not tell; ``least_note`` compares the plan with it. ``ranks`` are
    pairs of a prefix's length and the rank found there, at small sizes. ``witness`` is a record that
    shows why one pass is not enough: a ``pair`` of prefixes, a ``late-output`` or a ``growing-rank``.
    """

    axis: str
    verdict: str
    passes: int
    direction: Direction = "both"
    whole: tuple[str, ...] = ()
    state: tuple[StateEntry, ...] = ()
    state_values: int | None = None
    state_bytes: int | None = None
    head: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    merge: str | None = None
    exact: Literal["reals", "casts"] = "reals"
    identities: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    refusal: str | None = None
    nearest: str | None = None
    cascade: tuple[CascadeRow, ...] = ()
    kept: tuple[str, ...] = ()
    commutative: bool = True
    least: str | None = None
    safe: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    plans: tuple[Alternative, ...] = ()
    trials: tuple[Trial, ...] = ()
    lists: tuple[tuple[str, int], ...] = ()
    directed: str | None = None
    opposite: tuple[str, ...] = ()
    chunked: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    approximation: Approximation | None = None
    least_state: int | None = None
    least_note: str = ""
    ranks: tuple[tuple[int, int], ...] = ()
    witness: dict[str, Any] | None = field(default=None, hash=False)

    @property
    def streams(self) -> bool:
        """Whether one pass suffices."""
        return self.verdict.startswith(("one-pass", "approximate"))

    def to_json(self) -> dict[str, Any]:
        """The verdict as the report's schema has it; counts that were not asked for are left out."""
        record: dict[str, Any] = {
            "axis": self.axis,
            "verdict": self.verdict,
            "direction": self.direction,
            "passes": self.passes,
            "whole": list(self.whole),
            "state": [s.to_json() for s in self.state],
            "head": list(self.head),
            "body": list(self.body),
            "tail": list(self.tail),
            "merge": self.merge,
            "exact": self.exact,
            "identities": list(self.identities),
            "assumes": list(self.assumes),
            "refusal": self.refusal,
            "nearest": self.nearest,
            "cascade": [row.to_json() for row in self.cascade],
            "kept": list(self.kept),
            "commutative": self.commutative,
            "least": self.least,
            "safe": list(self.safe),
            "warnings": list(self.warnings),
            "plans": [plan.to_json() for plan in self.plans],
            "trials": [trial.to_json() for trial in self.trials],
            "lists": [{"axis": axis, "slots": n} for axis, n in self.lists],
            "directed": self.directed,
            "opposite": list(self.opposite),
            "chunked": list(self.chunked),
            "changes": [change.to_json() for change in self.changes],
            "approximation": None if self.approximation is None else self.approximation.to_json(),
            "least_state": self.least_state,
            "least_note": self.least_note,
            "ranks": [list(pair) for pair in self.ranks],
            "witness": self.witness,
        }
        counts = {"state_values": self.state_values, "state_bytes": self.state_bytes}
        return record | {name: value for name, value in counts.items() if value is not None}
