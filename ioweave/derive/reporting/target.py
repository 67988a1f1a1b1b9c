"""What a command aims at: a machine, two levels of it, accumulators, alignment, an objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.hierarchy.machines import (
    Machine,
    load_machine,
    parse_capacity_option,
    parse_levels_option,
    with_capacity,
)
from ioweave.hierarchy.quantities import Bytes, parse_size

ACCUMULATE = ("fp32", "same")
OBJECTIVES = ("transfers", "time", "energy")


@dataclass(frozen=True, slots=True)
class Target:
    """A machine with the capacities asked for, the levels counted, and how results are held.

    ``align`` maps names of axes to what their tiles must be multiples of.
    """

    machine: Machine
    levels: tuple[str, ...]
    accumulate: str
    objective: str
    align: Mapping[str, int]

    @property
    def capacity(self) -> Bytes:
        """The capacity of the lower level. Raises WeaveError where it has none."""
        lower = self.machine.level(self.levels[-1])
        if lower.capacity is None:
            raise WeaveError(
                f"level {lower.name} of {self.machine.name} has no capacity; give --capacity {lower.name}=128KiB"
            )
        return lower.capacity


def make_target(
    machine: str | Machine = "h100",
    levels: str | Sequence[str] = ("gmem", "smem"),
    capacity: str | Mapping[str, str | int] | Sequence[str] = (),
    accumulate: str = "fp32",
    objective: str = "transfers",
    align: Mapping[str, int] | Sequence[str] = (),
) -> Target:
    """A target from texts as a user types them, or from values. Raises WeaveError, one line."""
    chosen = machine if isinstance(machine, Machine) else load_machine(machine)
    names = parse_levels_option(levels if isinstance(levels, str) else ",".join(levels), chosen)
    if len(names) > 2:
        raise WeaveError(f"transfers are counted between two levels; give two, as {names[0]},{names[1]}")
    chosen = with_capacity(chosen, _capacities(capacity, chosen))
    if accumulate not in ACCUMULATE:
        raise WeaveError(
            f"results are accumulated in fp32 or in the same dtype; write fp32 or same, not {accumulate!r}"
        )
    return Target(chosen, names, accumulate, _objective(objective, names), _alignment(align))


def _capacities(given: str | Mapping[str, str | int] | Sequence[str], machine: Machine) -> dict[str, Bytes]:
    if isinstance(given, Mapping):
        given = [f"{level}={n}B" if isinstance(n, int) else f"{level}={n}" for level, n in given.items()]
    found: dict[str, Bytes] = {}
    for part in [given] if isinstance(given, str) else given:
        for level, amount in parse_capacity_option(part, machine).items():
            if level in found:
                raise WeaveError(f"the capacity of {level} is given twice; give it once")
            found[level] = amount
    return found


def _objective(text: str, levels: tuple[str, ...]) -> str:
    name, colon, level = text.partition(":")
    if name in ("time", "energy"):
        raise WeaveError(f"schedules are not searched for the least {name} yet; use transfers")
    if name != "transfers":
        raise WeaveError(
            f"unknown objective `{name}`{nearest(name, OBJECTIVES)}; write transfers or transfers:{levels[-1]}"
        )
    if colon and level != levels[-1]:
        raise WeaveError(
            f"transfers are counted into the lower of the levels; write transfers:{levels[-1]}, not {text!r}"
        )
    return text


def _alignment(given: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    if isinstance(given, Mapping):
        for axis, n in given.items():
            if isinstance(n, bool) or not isinstance(n, int) or n < 1:
                raise WeaveError(f"the alignment of {axis} is {n}; it is a whole number, 1 or more")
        return dict(given)
    return assignments(given, "the alignment of", "q=16")


def assignments(given: Sequence[str], what: str, example: str) -> dict[str, int]:
    """``q=16`` and the like, several with commas, as a table. Raises WeaveError."""
    found: dict[str, int] = {}
    for part in (p.strip() for text in given for p in text.split(",")):
        axis, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals or not axis:
            raise WeaveError(f"write axis=size, as {example}, not {part!r}")
        if axis in found:
            raise WeaveError(f"{what} {axis} is given twice; give it once")
        found[axis] = parse_size(size, f"{what} {axis}")
    return found


def check_axes(given: Mapping[str, int], known: Sequence[str], what: str) -> None:
    """Raises WeaveError for a key of ``given`` that is not among the ``known`` axes."""
    for axis in given:
        if axis not in known:
            raise WeaveError(
                f"{what} `{axis}`, but there is no such axis{nearest(axis, known)}; the axes are {listed(known)}"
            )
