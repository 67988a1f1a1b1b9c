"""Ranges of element types: their largest and smallest values, and how far a cast moves a value.

Source. IEEE 754-2019 for 64, 32 and 16 bits; the OCP 8-bit and microscaling format
specifications (2023) for e4m3, e5m2 and e2m1.
"""

from __future__ import annotations

from ioweave.diagrams.dtypes import DTYPES

# (emax, emin) of each float type: values are below 2**(emax + 1), and subnormals reach down to 2**(emin - mantissa).
_EXPONENTS: dict[str, tuple[int, int]] = {
    "fp64": (1023, -1022),
    "fp32": (127, -126),
    "tf32": (127, -126),
    "fp16": (15, -14),
    "bf16": (127, -126),
    "fp8": (8, -6),
    "fp8_e5m2": (15, -14),
    "fp4": (2, 0),
}
_LARGEST = {"fp8": 448.0, "fp4": 6.0}  # e4m3 keeps one code of the top binade for NaN; e2m1 has no inf


def largest_finite(dtype: str) -> float:
    """The largest finite value of a type; of an integer type, its largest integer."""
    t = DTYPES[dtype]
    if t.kind != "float":
        return 1.0 if t.kind == "bool" else float(2 ** (t.bits - 1) - 1)
    emax = _EXPONENTS[dtype][0]
    return _LARGEST.get(dtype, (2.0 - 2.0**-t.mantissa) * 2.0**emax)


def smallest_positive(dtype: str) -> float:
    """The smallest positive value of a type, a subnormal one for floats; 1 for integers."""
    t = DTYPES[dtype]
    return 2.0 ** (_EXPONENTS[dtype][1] - t.mantissa) if t.kind == "float" else 1.0


def cast_error(dtype: str) -> tuple[float, float]:
    """``(u, t)``: a cast in range moves a value ``v`` by at most ``u |v| + t``."""
    t = DTYPES[dtype]
    return (2.0 ** -(t.mantissa + 1), smallest_positive(dtype) / 2) if t.kind == "float" else (0.0, 1.0)
