"""Numbers with units: sizes, bytes, rates and times, parsed, kept apart by type and printed.

A number without a unit cannot be read as bytes, and two quantities of different kinds cannot
be added or compared: 11.6 s is never taken for 11.6 ms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ioweave.diagrams.errors import WeaveError

LARGEST_SIZE = 2**40
LARGEST_BYTES = 2**50
LARGEST_RATE = 10**21

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BYTE_UNITS = {
    "B": 1,
    **{f"{p}B": n for p, n in _BINARY.items()},
    **{f"{p}B": n for p, n in _DECIMAL.items()},
}
_QUANTITY = re.compile(r"(?P<sign>[+-]?)(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)\s*(?P<unit>.*)")


@dataclass(frozen=True, slots=True, order=True)
class Bytes:
    """An amount of memory or traffic, a whole number of bytes."""

    value: int

    def __truediv__(self, rate: BytesPerSecond) -> Seconds:
        """The time that this many bytes take at a bandwidth."""
        if not isinstance(rate, BytesPerSecond):
            return NotImplemented
        return Seconds(self.value / rate.value)

    def __str__(self) -> str:
        return format_bytes(self.value)


@dataclass(frozen=True, slots=True, order=True)
class BytesPerSecond:
    """A bandwidth."""

    value: float

    def __str__(self) -> str:
        return _with_unit(self.value, "B/s")


@dataclass(frozen=True, slots=True, order=True)
class FlopsPerSecond:
    """A rate of arithmetic."""

    value: float

    def time(self, operations: int) -> Seconds:
        """The time that this many operations take."""
        return Seconds(operations / self.value)

    def __str__(self) -> str:
        return _with_unit(self.value, "FLOP/s")


@dataclass(frozen=True, slots=True, order=True)
class Seconds:
    """A time."""

    value: float

    def __add__(self, other: Seconds) -> Seconds:
        if not isinstance(other, Seconds):
            return NotImplemented
        return Seconds(self.value + other.value)

    def __str__(self) -> str:
        return format_seconds(self.value)


def parse_size(text: str, what: str = "a size") -> int:
    """The size of an axis, a count of values: ``4096``, ``128Ki``, ``1Mi``.

    ``what`` names the thing in errors. Raises WeaveError for anything but a whole number
    from 1 to 2**40.
    """
    sign, number, unit = _split(text, what, "4096 or 4Ki")
    if unit.endswith("B"):
        raise WeaveError(f"{what} counts values, not bytes: {_shown(text)} would be {text.strip()[:-1]!r}")
    if unit in _DECIMAL:
        raise WeaveError(
            f"{what} is unclear: {_shown(text)}; write {number}{unit.upper()}i for a power of two, or the number out"
        )
    if unit and unit not in _BINARY:
        raise WeaveError(
            f"{what} has an unknown suffix: {_shown(text)}; write a whole number, or one with Ki, Mi or Gi"
        )
    value = sign * _exact(number) * _BINARY.get(unit, 1)
    _check_range(value, LARGEST_SIZE, text, what, "2**40")
    return _whole(value, text, what, "a whole number")


def parse_number(text: str, what: str = "a constant") -> int | float:
    """A constant of an algorithm, such as ``eps``: ``1e-5``, ``-0.5``, ``3``, ``4Ki``.

    Whole numbers written without a point or an exponent are integers. Raises WeaveError.
    """
    sign, number, unit = _split(text, what, "1e-5 or 3")
    if unit and unit not in _BINARY:
        raise WeaveError(f"{what} has an unknown suffix: {_shown(text)}; write a number without a unit")
    value = sign * _exact(number) * _BINARY.get(unit, 1)
    return value.numerator if value.denominator == 1 and number.replace("_", "").isdecimal() else float(value)


def parse_bytes(text: str, what: str = "a capacity") -> Bytes:
    """An amount of memory with its unit: ``128KiB`` (1024s), ``50MB`` (1000s), ``4096 B``.

    Raises WeaveError for a missing or unknown unit, for zero, for less, for more than 2**50,
    and for a part of a byte.
    """
    sign, number, unit = _split(text, what, "128KiB")
    if unit in ("", *_BINARY, *_DECIMAL):
        repair = f"{number}KiB or {number}B" if not unit else f"{number}{unit}B"
        raise WeaveError(f"{what} needs a unit: {_shown(text)}; write {repair}")
    if unit not in _BYTE_UNITS:
        raise WeaveError(f"{what} has an unknown unit: {_shown(text)}; write B, KiB, MiB, GiB, KB, MB or GB")
    value = sign * _exact(number) * _BYTE_UNITS[unit]
    _check_range(value, LARGEST_BYTES, text, what, "1024 TiB")
    return Bytes(_whole(value, text, what, "a whole number of bytes"))


def parse_bandwidth(text: str, what: str = "a bandwidth") -> BytesPerSecond:
    """Bytes per second with the unit: ``3.35 TB/s``, ``900GB/s``. Raises WeaveError."""
    units = {f"{u}/s": n for u, n in _BYTE_UNITS.items()}
    return BytesPerSecond(_rate(text, what, units, "3.35 TB/s"))


def parse_flops_rate(text: str, what: str = "a peak") -> FlopsPerSecond:
    """Operations per second with the unit: ``989 TFLOP/s``. Raises WeaveError."""
    units = {"FLOP/s": 1, **{f"{p}FLOP/s": n for p, n in _DECIMAL.items()}}
    return FlopsPerSecond(_rate(text, what, units, "989 TFLOP/s"))


def format_bytes(value: int) -> str:
    """Bytes for people, in powers of 1024: ``512 B``, ``33.0 MiB``."""
    amount, unit = float(value), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        # 1023.95 would print as 1024.0
        if abs(amount) < (1024 if unit == "B" else 1023.95):
            break
        amount, unit = amount / 1024, larger
    return f"{value} B" if unit == "B" else f"{amount:.1f} {unit}"


def format_seconds(value: float) -> str:
    """A time for people, to three digits: ``11.6 ms``, ``968 ns``."""
    if value == 0:
        return "0 s"
    for unit, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if abs(value) * scale < 999.5:
            return f"{_three_digits(value * scale)} {unit}"
    return f"{_three_digits(value)} s"


def format_count(value: float) -> str:
    """A count with an SI prefix, to three digits: ``512``, ``5.24 M``."""
    digits, prefix = _si(value)
    return f"{digits} {prefix}" if prefix else digits


def _si(value: float) -> tuple[str, str]:
    if abs(value) < 1000 and value == int(value):
        return str(int(value)), ""
    amount, prefix = float(value), ""
    for larger in ("k", "M", "G", "T", "P", "E", "Z", "Y"):
        if abs(amount) < 999.5:
            break
        amount, prefix = amount / 1000, larger
    return _three_digits(amount), prefix


def _with_unit(value: float, unit: str) -> str:
    digits, prefix = _si(value)
    return f"{digits} {prefix}{unit}"


def _three_digits(amount: float) -> str:
    whole = len(str(int(abs(amount))))
    return f"{amount:.{max(0, 3 - whole)}f}"


def _split(text: str, what: str, example: str) -> tuple[int, str, str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise WeaveError(f"{what} is not a number: {_shown(text)}; write it as {example}")
    return (-1 if found["sign"] == "-" else 1), found["number"], found["unit"]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _exact(number: str) -> Fraction:
    # 40 digits are beyond every limit; a longer text would only be slow to read
    return Fraction(number.replace("_", "")) if len(number) <= 40 else Fraction(10**39)


def _check_range(value: Fraction, largest: int, text: str, what: str, limit: str) -> None:
    if value <= 0:
        raise WeaveError(f"{what} must be more than zero: {_shown(text)}")
    if value > largest:
        raise WeaveError(f"{what} is too large: {_shown(text)}; at most {limit}")


def _whole(value: Fraction, text: str, what: str, kind: str) -> int:
    if value.denominator != 1:
        raise WeaveError(f"{what} is not {kind}: {_shown(text)}")
    return value.numerator


def _rate(text: str, what: str, units: dict[str, int], example: str) -> float:
    sign, number, unit = _split(text, what, example)
    if unit not in units:
        kind = "an unknown unit" if unit else "no unit"
        raise WeaveError(f"{what} has {kind}: {_shown(text)}; write it as {example}")
    value = sign * _exact(number) * units[unit]
    _check_range(value, LARGEST_RATE, text, what, "10**21 a second")
    return float(value)
