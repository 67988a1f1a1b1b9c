"""What the prover is told beside the boxes: declared facts, numbers of sizes and constants, how results are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ioweave.diagrams.dtypes import DTYPES

Facts = tuple[tuple[str, tuple[str, float]], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """``facts`` of inputs such as ``X > 0``; ``values`` of sizes and constants, where known.

    ``accumulate`` is ``"same"`` to hold results in their array's dtype (counting.md 8). A ``frugal``
    plan gives no reduction more than one accumulator, and walks the axis again instead. A ``lazy`` one
    lets the references of exponents move in multiples of that number alone.
    """

    facts: Facts = ()
    values: tuple[tuple[str, int | float], ...] = ()
    accumulate: str = "fp32"
    frugal: bool = False
    lazy: float = 0.0

    @staticmethod
    def of(
        facts: Mapping[str, tuple[str, float]],
        values: Mapping[str, int | float] | None = None,
        accumulate: str = "fp32",
        frugal: bool = False,
        lazy: float = 0.0,
    ) -> Given:
        """The record of these facts and numbers."""
        return Given(tuple(sorted(facts.items())), tuple(sorted((values or {}).items())), accumulate, frugal, lazy)

    def held(self, dtype: str) -> str:
        """The dtype that the result of a reduction is held in while its loop runs (counting.md 8)."""
        narrow = DTYPES[dtype].kind == "float" and DTYPES[dtype].bits <= 16
        return "fp32" if narrow and self.accumulate != "same" else dtype
