"""Evidence: what numbers say of a verdict: the least state by a rank, witnesses against a single pass."""

from ioweave.derive.evidence.least import Question
from ioweave.derive.evidence.weigh import weigh

__all__ = ["Question", "weigh"]
