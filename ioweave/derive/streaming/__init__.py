"""The prover: which axes stream, with what state, and how partial states merge."""

from ioweave.derive.streaming.merge import merge_boxes, merge_states, merge_text, state_name
from ioweave.derive.streaming.plan import Merge, Plan, Refusal, Repair
from ioweave.derive.streaming.repair import repair
from ioweave.derive.streaming.verdict import prove

__all__ = [
    "Merge",
    "Plan",
    "Refusal",
    "Repair",
    "merge_boxes",
    "merge_states",
    "merge_text",
    "prove",
    "repair",
    "state_name",
]
