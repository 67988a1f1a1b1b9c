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
    """What crosses between a level and its parent: values and bytes, loads and stores by array."""

    values: int
    bytes: int
    loads: Mapping[str, int]
    stores: Mapping[str, int]

    def __add__(self, other: Transfers) -> Transfers:
        return Transfers(
            self.values + other.values,
            self.bytes + other.bytes,
            _sum(self.loads, other.loads),
            _sum(self.stores, other.stores),
        )

    def to_json(self) -> dict[str, Any]:
        """As one entry of ``transfers`` of the report; arrays that move nothing are left out."""
        return {
            "values": self.values,
            "bytes": self.bytes,
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
