"""The verdict on one axis: whether it streams, with what state, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

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
class Verdict:
    """A plan, or a refusal, for streaming ``axis`` through a whole diagram.

    ``state_values`` and ``state_bytes`` count the state with tile 1 on every axis that all its
    parts share and the other axes whole; None where sizes were not given. ``whole`` has the axes
    that must be whole in an instance. ``head``, ``body`` and ``tail`` are formulas for people;
    ``refusal`` names the reduction that stops a single pass, ``nearest`` a change that would not.
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

    @property
    def streams(self) -> bool:
        """Whether one pass suffices."""
        return self.verdict.startswith("one-pass")

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
        }
        counts = {"state_values": self.state_values, "state_bytes": self.state_bytes}
        return record | {name: value for name, value in counts.items() if value is not None}
