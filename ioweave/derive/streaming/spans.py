"""Spans: intervals of exact numbers with open and closed ends, for proofs that must not round."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor

HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers from ``lo`` to ``hi``; an end that is open does not belong to it."""

    lo: Fraction
    hi: Fraction
    lo_open: bool = False
    hi_open: bool = False

    @staticmethod
    def point(v: Fraction | int) -> Span:
        """One number."""
        return Span(Fraction(v), Fraction(v))

    @property
    def value(self) -> Fraction | None:
        """The number, where there is but one."""
        return self.lo if self.lo == self.hi else None

    def __add__(self, other: Span) -> Span:
        return Span(
            self.lo + other.lo, self.hi + other.hi, self.lo_open or other.lo_open, self.hi_open or other.hi_open
        )

    def times(self, c: Fraction) -> Span:
        """Every number times ``c``."""
        if c == 0:
            return Span.point(0)
        if c > 0:
            return Span(self.lo * c, self.hi * c, self.lo_open, self.hi_open)
        return Span(self.hi * c, self.lo * c, self.hi_open, self.lo_open)

    def power(self, p: Fraction) -> Span | None:
        """A whole positive power; None for any other."""
        if p == 1:
            return self
        if p.denominator != 1 or p < 1:
            return None
        n = int(p)
        if n % 2 == 0:
            size = self.size()
            return Span(size.lo**n, size.hi**n, size.lo_open, size.hi_open)
        return Span(self.lo**n, self.hi**n, self.lo_open, self.hi_open)

    def size(self) -> Span:
        """Absolute values."""
        if self.lo >= 0:
            return self
        if self.hi <= 0:
            return self.times(Fraction(-1))
        far = max(-self.lo, self.hi)
        closed = (far == self.hi and not self.hi_open) or (far == -self.lo and not self.lo_open)
        return Span(Fraction(0), far, False, not closed)

    def floored(self) -> Span:
        """The largest whole number below each."""
        hi = floor(self.hi)
        return Span(Fraction(floor(self.lo)), Fraction(hi - 1 if self.hi_open and hi == self.hi else hi))

    def rounded(self) -> Span:
        """The nearest whole number of each, of two the even one."""
        below = self.hi_open and (self.hi - HALF).denominator == 1
        above = self.lo_open and (self.lo - HALF).denominator == 1
        lo = Fraction(round(self.lo)) if not above else self.lo + HALF
        hi = Fraction(round(self.hi)) if not below else self.hi - HALF
        return Span(min(lo, hi), hi)

    @property
    def below_zero(self) -> bool:
        """Whether every number is below 0."""
        return self.hi < 0 or (self.hi == 0 and self.hi_open)

    @property
    def above_zero(self) -> bool:
        """Whether every number is above 0."""
        return self.lo > 0 or (self.lo == 0 and self.lo_open)

    @property
    def never_positive(self) -> bool:
        """Whether no number is above 0."""
        return self.hi <= 0

    @property
    def never_negative(self) -> bool:
        """Whether no number is below 0."""
        return self.lo >= 0


def simplest(lo: Fraction, hi: Fraction) -> Fraction:
    """The fraction of the smallest denominator in ``lo .. hi``, both above 0 (Stern and Brocot)."""
    whole = floor(lo)
    if whole == lo or whole + 1 <= hi:
        return Fraction(whole if whole == lo else whole + 1)
    return whole + 1 / simplest(1 / (hi - whole), 1 / (lo - whole))
