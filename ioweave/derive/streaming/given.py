"""What the prover is told beside the boxes: declared facts, numbers of sizes and constants, how results are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.dtypes import DTYPES

Facts = tuple[tuple[str, tuple[str, float]], ...]
Ties = tuple[tuple[str, tuple[str, ...]], ...]  # names, and those behind their values


@dataclass(frozen=True, slots=True)
class Given:
    """``facts`` of inputs such as ``X > 0``; ``values`` of sizes and constants, where known.

    ``accumulate`` is ``"same"`` to hold results in their array's dtype (counting.md 8). A ``frugal``
    plan gives no reduction more than one accumulator, and walks the axis again instead. A ``lazy`` one
    lets the references of exponents move in multiples of that number alone. ``ties`` say which names a
    name is worked out from: a constant or size that follows the length of an axis.
    """

    facts: Facts = ()
    values: tuple[tuple[str, int | float], ...] = ()
    accumulate: str = "fp32"
    frugal: bool = False
    lazy: float = 0.0
    ties: Ties = ()

    @staticmethod
    def of(
        facts: Mapping[str, tuple[str, float]],
        values: Mapping[str, int | float] | None = None,
        accumulate: str = "fp32",
        frugal: bool = False,
        lazy: float = 0.0,
        ties: Ties = (),
    ) -> Given:
        """The record of these facts and numbers."""
        numbers = tuple(sorted((values or {}).items()))
        return Given(tuple(sorted(facts.items())), numbers, accumulate, frugal, lazy, ties)

    def tied(self, axis: str) -> frozenset[str]:
        """The names whose value may follow the length of an axis, its own name among them."""
        behind = dict(self.ties)
        base = base_name(axis)
        roots = {base, *behind.get(base, ())}
        return frozenset({*roots, *(name for name, names in self.ties if not roots.isdisjoint(names))})

    def fixed(self, axis: str) -> frozenset[str]:
        """The names of known value that stays as it is when the axis grows."""
        return frozenset(n for n, _ in self.values) - self.tied(axis)

    def held(self, dtype: str) -> str:
        """The dtype that the result of a reduction is held in while its loop runs (counting.md 8)."""
        narrow = DTYPES[dtype].kind == "float" and DTYPES[dtype].bits <= 16
        return "fp32" if narrow and self.accumulate != "same" else dtype
