"""A memory that counts: what is moved into it and out of it, and the most that it holds.

It holds real arrays by the name of their variable, and refuses what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ioweave.derive.execution.grid import Values
from ioweave.diagrams.dtypes import DTYPES, size_bytes
from ioweave.diagrams.errors import DoesNotFit


@dataclass(frozen=True)
class Held:
    """An array in memory: its values, where it starts in the whole array, its elements and their type.

    ``elements`` may be fewer than the values of the dense block that carries them; ``copies``
    is how many buffers it takes.
    """

    values: Values
    lows: tuple[int, ...]
    elements: int
    dtype: str
    copies: int = 1

    @property
    def bytes(self) -> int:
        """What it takes."""
        return size_bytes(self.elements, self.dtype) * self.copies


@dataclass
class Traffic:
    """Values and bits moved, per array."""

    values: dict[str, int] = field(default_factory=dict)
    bits: int = 0

    def move(self, array: str, count: int, dtype: str) -> None:
        """Count ``count`` values of an array."""
        self.values[array] = self.values.get(array, 0) + count
        self.bits += count * DTYPES[dtype].bits


class CountedMemory:
    """One level of memory over the run of a region.

    ``capacity`` in bytes, or None for no limit; exceeding it raises `DoesNotFit`. Variables named
    ``free`` are kept beside it: positions alone decide them, and they take none of it.
    """

    def __init__(self, capacity: int | None = None, free: frozenset[str] = frozenset()) -> None:
        self.capacity = capacity
        self.free = free
        self.held: dict[str, Held] = {}
        self.loads = Traffic()
        self.stores = Traffic()
        self.peak = 0
        self.most = 0
        self.column = ""

    def put(self, name: str, held: Held) -> None:
        """Hold an array under a name, in place of what was there."""
        self.held[name] = held

    def keep_only(self, names: Iterable[str]) -> None:
        """Free everything else."""
        wanted = {*names, *self.free}
        for name in [n for n in self.held if n not in wanted]:
            del self.held[name]

    def measure(self, live: Iterable[str], column: str) -> None:
        """Record what the live arrays take together.

        Raises `DoesNotFit` beyond the capacity.
        """
        here = [self.held[n] for n in live if n in self.held]
        total = sum(h.bytes for h in here)
        self.most = max(self.most, sum(h.elements * h.copies for h in here))
        if self.capacity is not None and total > self.capacity:
            raise DoesNotFit(f"{column} holds {total:,} bytes, and the memory has {self.capacity:,}", total)
        if total > self.peak:
            self.peak, self.column = total, column
