"""Boxes of a loop that are read at other places of the walked axis: known from inputs, they are made there again."""

from __future__ import annotations

from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, source
from ioweave.diagrams.groups import lockstep


def elsewhere(plan: Plan, run: int) -> tuple[Box, ...]:
    """The boxes of a pass that some box reads at a place of the axis that is not its own, and what they are made of.

    Only what waits for nothing that the walk carries: it can be worked out at any place, at any time, as a halo is.
    """
    names = {n for n, p, s in plan.stages if s == "body" and p == run}
    body = [b for b in plan.boxes if b.name in names]
    scans = lockstep(plan.boxes)
    known: dict[str, Box] = {}
    for b in body:
        held = b.running or b.name in scans or b.rescale is not None or b.recentre is not None
        if not held and all(r.array in known or source(r.array) not in names for r in b.reads()):
            known[b.name] = b
    needed = {r.array for b in body for r in b.reads() if r.array in known and _moved(known[r.array], r.index, plan)}
    for b in reversed(body):
        if b.name in needed:
            needed |= {r.array for r in b.reads() if r.array in known}
    return tuple(b for b in body if b.name in needed)


def _moved(box: Box, index: tuple[Affine, ...], plan: Plan) -> bool:
    """Whether a read of a box is not at the place of the step."""
    return any(a in plan.streamed and f.bare != a for a, f in zip(box.axes, index, strict=True))
