"""The records of the prover: a plan for a region's streamed axes, and the repairs that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ioweave.diagrams.boxes import Box

RepairKind = Literal["none", "rescale", "shift", "separate", "moments", "list", "recurrence"]
Stage = Literal["head", "body", "tail"]


class Unrepairable(Exception):
    """A reduction cannot run beside the ones that it depends on.

    The message says why; ``waits`` names the unfinished arrays that stand in the way.
    """

    def __init__(self, why: str, waits: tuple[str, ...] = ()) -> None:
        self.waits = waits
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reduction left to a further pass: why, and the unfinished reductions it waits for."""

    reduction: str
    reason: str
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """How one accumulator follows the change of the reductions that its terms depend on.

    ``reduction`` is the box repaired, ``accumulator`` the box that holds (part of) its state,
    ``identity`` the equation over the reals that justifies it.
    """

    reduction: str
    accumulator: str
    kind: RepairKind
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Merge:
    """How two partial states of one accumulator become one.

    The merged value is ``op`` of the parts; where ``factor`` names a box (exp of old less new
    reference), each part is first multiplied by that box with its own references as the old
    ones and the merged references as the new.
    """

    accumulator: str
    op: str
    factor: str | None = None


LEFT, RIGHT, BOTH = "₁", "₂", "₁₂"  # end the names of two summaries, the earlier one first, and of both joined


@dataclass(frozen=True, slots=True)
class Segments:
    """How pieces of a scanned axis are summed up and joined.

    ``maps`` run in the loop beside the plan's own boxes, and with them make the summary of a piece;
    ``joined`` are the boxes that join two summaries, of names that end in ``₁`` (the earlier piece in
    the direction of the walk) and ``₂``, as names that end in ``₁₂``; ``lifts`` those that correct an
    accumulator of a piece, ``name₂``, by the state that enters it. ``again`` names what is made in
    a second walk, from the state that enters each piece. ``neutral`` is what each scan's piece starts from.
    """

    scans: tuple[Box, ...]
    maps: tuple[Box, ...]
    joined: tuple[Box, ...]
    lifts: tuple[Box, ...]
    again: tuple[str, ...]
    neutral: tuple[tuple[str, float], ...]

    @property
    def carried(self) -> tuple[str, ...]:
        """The names of what is joined: the scans, then their maps."""
        return tuple(b.name.removesuffix(BOTH) for b in self.joined if b.name.endswith(BOTH))


@dataclass(frozen=True, slots=True)
class Plan:
    """Boxes rewritten so that every repaired reduction runs in one pass over ``streamed``.

    ``boxes`` are in order of evaluation; ``stages`` gives the pass (from 1; 0 before any loop)
    and the stage of each. A box that reads a finished value of pass k inside the loop is in
    pass k + 1. ``refusals`` has every reduction left to a further pass; ``safe`` says of exponents
    why no maximum is kept for them. ``lengths`` has the axes of lists that the plan makes, with their slots.
    ``walks`` has the direction of every pass, ``both`` where steps may come in any order; a plan without
    recurrences has none. ``kept`` names the arrays needed outside. ``segments`` says
    how pieces of an axis with recurrences are joined, where they can be.
    """

    boxes: tuple[Box, ...]
    streamed: frozenset[str]
    stages: tuple[tuple[str, int, Stage], ...]
    repairs: tuple[Repair, ...]
    merges: tuple[Merge, ...]
    identities: tuple[str, ...]
    assumes: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    safe: tuple[str, ...] = ()
    lengths: tuple[tuple[str, int], ...] = ()
    walks: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    segments: Segments | None = None

    @property
    def passes(self) -> int:
        """Passes over the streamed axes."""
        return max((p for _, p, _ in self.stages), default=0)

    @property
    def direction(self) -> str:
        """The direction in which the first pass walks that has one."""
        return next((w for w in self.walks if w != "both"), "both")

    @property
    def recurrences(self) -> tuple[Box, ...]:
        """The scans along a streamed axis: what each carries is its value before the present element."""
        return tuple(b for b in self.boxes if b.scan is not None and b.scan.axis in self.streamed)

    @property
    def state(self) -> tuple[Box, ...]:
        """The accumulators, in order of evaluation."""
        return tuple(b for b in self.boxes if b.running)

    @property
    def carried(self) -> tuple[Box, ...]:
        """The accumulators that hold data: what positions alone decide, as a running count, is no state."""
        return tuple(b for b in self.state if not positional(b))

    @property
    def head(self) -> tuple[Box, ...]:
        """Boxes that run before any loop."""
        return self._at("head")

    @property
    def body(self) -> tuple[Box, ...]:
        """Boxes that run in every step, accumulators among them."""
        return self._at("body")

    @property
    def tail(self) -> tuple[Box, ...]:
        """Boxes that run after a loop, on finished values."""
        return self._at("tail")

    def _at(self, stage: Stage) -> tuple[Box, ...]:
        names = {n for n, _, s in self.stages if s == stage}
        return tuple(b for b in self.boxes if b.name in names)

    def box(self, name: str) -> Box:
        """The box that makes ``name``; KeyError if there is none."""
        for b in self.boxes:
            if b.name == name:
                return b
        raise KeyError(name)

    def pass_of(self, name: str) -> int:
        """The pass in which a box runs."""
        return next(p for n, p, _ in self.stages if n == name)


def positional(box: Box) -> bool:
    """Whether a box is known from indices, sizes and constants alone (counting.md 22)."""
    return not box.reads() and box.rescale is None and box.recentre is None


def slot_axes(plan: Plan) -> frozenset[str]:
    """The axes of the lists in the state: a list is whole wherever it is."""
    return frozenset(b.into for b in plan.carried if b.into is not None)
