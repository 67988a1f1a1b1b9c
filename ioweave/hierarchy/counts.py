"""Records of counts: transfers between two levels, memory, FLOPs; of a region and of a whole side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Flops:
    """FLOPs by class: matrix units, other arithmetic, special functions."""

    mma: int = 0
    vector: int = 0
    special: int = 0

    def __add__(self, other: Flops) -> Flops:
        return Flops(self.mma + other.mma, self.vector + other.vector, self.special + other.special)

    @property
    def total(self) -> int:
        """All classes together."""
        return self.mma + self.vector + self.special

    def to_json(self) -> dict[str, Any]:
        """As ``flops`` of the report."""
        return {"mma": self.mma, "vector": self.vector, "special": self.special}


@dataclass(frozen=True, slots=True)
class Transfers:
    """What crosses between a level and its parent: values and bytes, loads and stores by array.

    Where that hangs on what an index array holds, these are the largest; ``least_values`` and ``least_bytes``
    are the smallest (None: the same).
    """

    values: int
    bytes: int
    loads: Mapping[str, int]
    stores: Mapping[str, int]
    least_values: int | None = None
    least_bytes: int | None = None

    def __add__(self, other: Transfers) -> Transfers:
        return Transfers(
            self.values + other.values,
            self.bytes + other.bytes,
            _sum(self.loads, other.loads),
            _sum(self.stores, other.stores),
            self.fewest[0] + other.fewest[0],
            self.fewest[1] + other.fewest[1],
        )

    @property
    def fewest(self) -> tuple[int, int]:
        """The least values and bytes, whatever index arrays hold."""
        return (
            self.values if self.least_values is None else self.least_values,
            self.bytes if self.least_bytes is None else self.least_bytes,
        )

    def to_json(self) -> dict[str, Any]:
        """As one entry of ``transfers`` of the report; arrays that move nothing are left out.

        ``least_values`` and ``least_bytes`` are there where index arrays may make it less.
        """
        record: dict[str, Any] = {"values": self.values, "bytes": self.bytes}
        values, size = self.fewest
        if values < self.values:
            record.update(least_values=values, least_bytes=size)
        return {
            **record,
            "loads": {k: v for k, v in self.loads.items() if v},
            "stores": {k: v for k, v in self.stores.items() if v},
        }


def _sum(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    result = dict(a)
    for k, v in b.items():
        result[k] = result.get(k, 0) + v
    return result


@dataclass(frozen=True, slots=True)
class Memory:
    """The largest sum of live bytes over columns and instances; values where one dtype rules."""

    bytes: int
    values: int | None
    column: str

    def to_json(self) -> dict[str, Any]:
        """As one entry of ``memory`` of the report."""
        row: dict[str, Any] = {"bytes": self.bytes, "column": self.column}
        if self.values is not None:
            row["values"] = self.values
        return row


@dataclass(frozen=True, slots=True)
class RegionCount:
    """The counts of one region, all its instances together (memory: the largest of them)."""

    name: str
    transfers: Transfers
    memory: Memory
    flops: Flops
    instances: int
    passes: int
