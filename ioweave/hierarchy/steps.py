"""Steps of a derivation: one rewrite each, with what it was applied to and why it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

StepName = Literal[
    "open", "fuse", "group", "stream", "hold", "place", "recompute", "split", "reassociate", "rename", "cast"
]
STEP_NAMES: tuple[StepName, ...] = get_args(StepName)


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite of a levelled diagram, complete enough to be applied again.

    ``region`` is the region that it changes or makes, by its name after the step; ``axis`` and
    ``size`` a partition and its tile, or the depth of a hold. ``lines`` are the lines it was
    applied to (for ``recompute`` the line, then its readers), ``arrays`` those that it makes or
    holds. ``because`` is a clause that justifies it, ``identity`` the equation that it rests on.
    """

    step: StepName
    because: str
    region: str | None = None
    axis: str | None = None
    size: int | None = None
    identity: str | None = None
    lines: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As one row of ``derivation`` of the report; what a step does not have is left out."""
        row: dict[str, Any] = {"step": self.step}
        for key in ("region", "axis", "size"):
            value = getattr(self, key)
            if value is not None:
                row[key] = value
        for key in ("lines", "arrays"):
            names = getattr(self, key)
            if names:
                row[key] = list(names)
        row["because"] = self.because
        if self.identity is not None:
            row["identity"] = self.identity
        return row

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Step:
        """The step that `to_json` wrote. Raises ValueError for a row that is no step."""
        if row.get("step") not in STEP_NAMES or not isinstance(row.get("because"), str):
            raise ValueError(f"a step has `because` and a `step` out of {', '.join(STEP_NAMES)}")
        return Step(
            cast(StepName, row["step"]),
            row["because"],
            row.get("region"),
            row.get("axis"),
            row.get("size"),
            row.get("identity"),
            tuple(row.get("lines", ())),
            tuple(row.get("arrays", ())),
        )

    def sentence(self) -> str:
        """The step in plain words, with its justification; one sentence."""
        return f"{self._action()}: {self.because}."

    def _action(self) -> str:
        match self.step:
            case "open":
                return f"Open {and_list(self.lines)} into {and_list(self.arrays)}"
            case "fuse":
                return f"Fuse {and_list(self.lines)} into one region, {self.region}"
            case "recompute":
                return f"Compute {self.lines[0]} again, as {and_list(self.arrays)}, for {and_list(self.lines[1:])}"
            case "group":
                return f"In {self.region}, group {self.axis} in tiles of {self.size}"
            case "split":
                return f"In {self.region}, split the reduction over {self.axis} into tiles of {self.size}"
            case "stream":
                return f"In {self.region}, stream {self.axis} in steps of {self.size}"
            case "hold":
                return f"In {self.region}, hold {and_list(self.arrays)} {depth_words(self.size or 0)}"
            case _:
                what = and_list((*self.lines, *self.arrays)) or self.axis or ""
                where = f" in {self.region}" if self.region else ""
                return f"{self.step.capitalize()} {what}{where}".rstrip()


def depth_words(depth: int) -> str:
    """Where a load at this depth stands: ``outside all loops``, ``inside the outermost loop``."""
    if depth == 0:
        return "outside all loops"
    return "inside the outermost loop" if depth == 1 else f"inside the {depth} outermost loops"


def and_list(names: Sequence[str]) -> str:
    """``S, P and O``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
