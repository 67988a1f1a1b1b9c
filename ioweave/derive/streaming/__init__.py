"""The prover: which axes can be streamed, with what state, and why; it knows no algorithm by name."""

from ioweave.derive.streaming.merge import merge_boxes, merge_text, part_of
from ioweave.derive.streaming.plan import Merge, Plan, Refusal, Repair
from ioweave.derive.streaming.repair import repair
from ioweave.derive.streaming.verdict import prove

__all__ = ["Merge", "Plan", "Refusal", "Repair", "merge_boxes", "merge_text", "part_of", "prove", "repair"]
