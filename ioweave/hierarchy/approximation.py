"""What a plan that is not exact replaced, and how far its results may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


def above(error: float) -> str:
    """A bound in two digits, rounded up."""
    text = f"{error:.1e}"
    if float(text) >= error:
        return text
    digits, _, power = text.partition("e")
    return f"{float(f'{float(digits) + 0.1:.1f}e{power}'):.1e}"


@dataclass(frozen=True, slots=True)
class Replaced:
    """One function with the polynomial in its place.

    ``function`` of ``weight``, which is in ``interval``, stands in ``line``; ``coefficients`` are those
    of the polynomial, the lowest power first. ``error`` bounds its error: relative to the function
    where ``relative``, else absolute.
    """

    line: str
    function: str
    weight: str
    interval: tuple[float, float]
    coefficients: tuple[float, ...]
    error: float
    relative: bool
    equation: str

    @property
    def degree(self) -> int:
        """The highest power of the weight."""
        return len(self.coefficients) - 1

    def to_json(self) -> dict[str, Any]:
        """The function as a record."""
        return {
            "line": self.line,
            "function": self.function,
            "weight": self.weight,
            "interval": list(self.interval),
            "degree": self.degree,
            "coefficients": list(self.coefficients),
            "error": self.error,
            "relative": self.relative,
            "equation": self.equation,
        }


@dataclass(frozen=True, slots=True)
class Approximation:
    """The error asked for, the error proved and the largest one seen, each relative to a measure.

    ``statements`` are the inequalities proved, one for each output: over the reals, for inputs of any
    size and values. ``runs`` is how many executions ``observed`` is the largest error of.
    """

    asked: float
    proved: float
    observed: float
    runs: int
    functions: tuple[Replaced, ...]
    statements: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The approximation as a record."""
        return {
            "asked": self.asked,
            "proved": self.proved,
            "observed": self.observed,
            "runs": self.runs,
            "functions": [f.to_json() for f in self.functions],
            "statements": list(self.statements),
        }
