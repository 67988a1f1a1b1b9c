"""Applying the steps of a derivation again: from the unfused diagram to the result."""

from __future__ import annotations

from collections.abc import Iterable

from ioweave.derive.rewrites.fuse import fuse
from ioweave.derive.rewrites.group import group
from ioweave.derive.rewrites.hold import hold
from ioweave.derive.rewrites.open_composite import open_composite
from ioweave.derive.rewrites.recompute import recompute
from ioweave.derive.rewrites.regions import Check, unchecked
from ioweave.derive.rewrites.stream import stream
from ioweave.diagrams.errors import Refused
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.steps import Step


def apply(levelled: Levelled, step: Step, check: Check = unchecked) -> Levelled:
    """The levelled diagram after one step. Raises Refused where the rewrite does not hold or the step is incomplete."""
    return rewrite(levelled, step, check)[0]


def rewrite(levelled: Levelled, step: Step, check: Check = unchecked) -> tuple[Levelled, Step]:
    """As `apply`, with the step as its rewrite justifies it here."""
    match step:
        case Step(step="open", lines=(line,)):
            return open_composite(levelled, line)
        case Step(step="fuse", lines=(_, _, *_) as lines):
            return fuse(levelled, tuple(lines), check)
        case Step(step="recompute", lines=(line, *readers), arrays=(copy,)):
            return recompute(levelled, line, tuple(readers), copy, check)
        case Step(step="group" | "split", region=str(region), axis=str(axis), size=int(size)):
            return group(levelled, region, axis, size, check)
        case Step(step="stream", region=str(region), axis=str(axis), size=int(size)):
            return stream(levelled, region, axis, size, check)
        case Step(step="hold", region=str(region), size=int(depth), arrays=(array,)):
            return hold(levelled, region, array, depth, check)
        case _:
            raise Refused(f"the step `{step.step}` is no rewrite here, or says too little to be applied")


def replay(levelled: Levelled, steps: Iterable[Step], check: Check = unchecked) -> Levelled:
    """The levelled diagram after all steps, in order. Raises Refused as `apply` does."""
    for step in steps:
        levelled = apply(levelled, step, check)
    return levelled
