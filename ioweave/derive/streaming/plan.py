"""The records of the prover: a plan for a region's streamed axes, and the repairs that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ioweave.diagrams.boxes import Box

RepairKind = Literal["none", "rescale", "shift", "separate", "moments"]
Stage = Literal["head", "body", "tail"]


class Unrepairable(Exception):
    """A reduction cannot run beside the ones that it depends on.

    The message says why; ``waits`` names the unfinished arrays that stand in the way, and
    ``nearest`` a change that would do.
    """

    def __init__(self, why: str, waits: tuple[str, ...] = (), nearest: str | None = None) -> None:
        self.waits = waits
        self.nearest = nearest
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reduction left to a further pass: why, the unfinished reductions it waits for, the nearest change."""

    reduction: str
    reason: str
    waits: tuple[str, ...] = ()
    nearest: str | None = None


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


@dataclass(frozen=True, slots=True)
class Plan:
    """Boxes rewritten so that every repaired reduction runs in one pass over ``streamed``.

    ``boxes`` are in order of evaluation; ``stages`` gives the pass (from 1; 0 before any loop)
    and the stage of each. A box that reads a finished value of pass k inside the loop is in
    pass k + 1. ``refusals`` has every reduction left to a further pass; ``safe`` says of exponents
    why no maximum is kept for them.
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

    @property
    def passes(self) -> int:
        """Passes over the streamed axes."""
        return max((p for _, p, _ in self.stages), default=0)

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
