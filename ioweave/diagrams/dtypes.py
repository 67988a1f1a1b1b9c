"""Element types: their width in bytes and the NumPy type that carries their values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    ``bits`` is the storage width, ``kind`` one of ``float``, ``int``, ``bool``;
    ``mantissa`` counts the explicit fraction bits of a float.
    """

    name: str
    bits: int
    kind: str
    mantissa: int = 0

    @property
    def bytes(self) -> float:
        """Bytes per value; half a byte for the four-bit type."""
        return self.bits / 8


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("fp64", 64, "float", 52),
        DType("fp32", 32, "float", 23),
        DType("tf32", 32, "float", 10),
        DType("fp16", 16, "float", 10),
        DType("bf16", 16, "float", 7),
        DType("fp8", 8, "float", 3),
        DType("fp8_e5m2", 8, "float", 2),
        DType("fp4", 4, "float", 1),
        DType("int64", 64, "int"),
        DType("int32", 32, "int"),
        DType("int8", 8, "int"),
        DType("bool", 8, "bool"),
    )
}

# Widest first: the type of a line is the widest of its operands; a float beats any integer.
_ORDER = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp8_e5m2", "fp4", "int64", "int32", "int8", "bool")


def widest(names: list[str]) -> str:
    """The widest of several element types (floats before integers); ``fp32`` for none."""
    return min(names, key=_ORDER.index, default="fp32")


def size_bytes(values: int, dtype: str) -> int:
    """Bytes that ``values`` elements take, rounded up to whole bytes."""
    return -(-values * DTYPES[dtype].bits // 8)
