"""Posynomials over sizes, tiles and memory: the continuous form of one region's traffic and memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Powers = tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True, slots=True)
class Monomial:
    """``coefficient * product(symbol ** power)``; powers are sorted by symbol and never zero."""

    coefficient: Fraction | int
    powers: Powers = ()

    @staticmethod
    def make(coefficient: Fraction | int, powers: Mapping[str, Fraction | int] | None = None) -> Monomial:
        """Build the monomial in normal form."""
        kept = sorted((s, p if isinstance(p, Fraction) else Fraction(p)) for s, p in (powers or {}).items() if p)
        return Monomial(coefficient if isinstance(coefficient, Fraction) else Fraction(coefficient), tuple(kept))

    def __mul__(self, other: Monomial) -> Monomial:
        powers = dict(self.powers)
        for symbol, p in other.powers:
            powers[symbol] = powers[symbol] + p if symbol in powers else p
        return Monomial.make(self.coefficient * other.coefficient, powers)

    def inverse(self) -> Monomial:
        """One over the monomial."""
        return Monomial.make(1 / Fraction(self.coefficient), {s: -p for s, p in self.powers})

    def power(self, symbol: str) -> Fraction:
        """The exponent of ``symbol``; 0 where it is absent."""
        return next((p for s, p in self.powers if s == symbol), Fraction(0))

    def split(self, symbols: frozenset[str]) -> tuple[Monomial, Powers]:
        """The factor free of ``symbols``, and the powers of ``symbols``."""
        inside = tuple((s, p) for s, p in self.powers if s in symbols)
        outside = tuple((s, p) for s, p in self.powers if s not in symbols)
        return Monomial(Fraction(self.coefficient), outside), inside

    def substitute(self, values: Mapping[str, Monomial]) -> Monomial:
        """Replace symbols that stand to an integer power by monomials."""
        if not any(s in values for s, _ in self.powers):
            return self
        out = Monomial(Fraction(self.coefficient), tuple((s, p) for s, p in self.powers if s not in values))
        for symbol, p in self.powers:
            if symbol in values:
                base = values[symbol] if p > 0 else values[symbol].inverse()
                for _ in range(abs(int(p))):
                    out = out * base
        return out

    def evaluate(self, values: Mapping[str, float]) -> float:
        """The number at ``values`` of the symbols."""
        number = float(self.coefficient)
        for symbol, p in self.powers:
            number *= float(values[symbol]) ** float(p)
        return number


ONE = Monomial(Fraction(1))


@dataclass(frozen=True, slots=True)
class Posynomial:
    """A sum of monomials, like ones merged, in the order in which they first stood."""

    terms: tuple[Monomial, ...]

    @staticmethod
    def make(terms: Iterable[Monomial]) -> Posynomial:
        """Merge like terms; those that cancel are dropped."""
        total: dict[Powers, Fraction] = {}
        for t in terms:
            total[t.powers] = total.get(t.powers, Fraction(0)) + t.coefficient
        return Posynomial(tuple(Monomial(c, p) for p, c in total.items() if c))

    def __add__(self, other: Posynomial) -> Posynomial:
        return Posynomial.make((*self.terms, *other.terms))

    def __mul__(self, other: Posynomial) -> Posynomial:
        return Posynomial.make(a * b for a in self.terms for b in other.terms)

    def substitute(self, values: Mapping[str, Monomial]) -> Posynomial:
        """Replace symbols by monomials in every term."""
        return Posynomial.make(t.substitute(values) for t in self.terms)

    def positive(self) -> Posynomial:
        """The positive terms alone: windows give ``g + r - 1``, and the method needs a sum of positive terms."""
        return Posynomial(tuple(t for t in self.terms if t.coefficient > 0))

    def evaluate(self, values: Mapping[str, float]) -> float:
        """The number at ``values`` of the symbols."""
        return sum(t.evaluate(values) for t in self.terms)


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile size to choose, between 1 and ``upper`` (a monomial in sizes)."""

    symbol: str
    upper: Monomial
    kind: Literal["group", "stream"] = "group"


@dataclass(frozen=True, slots=True)
class Shape:
    """One region as a continuous problem: least ``traffic`` with every column at most M.

    ``traffic`` is loads plus stores, in values. ``columns`` are in the unit of M: values
    where one dtype rules, else bytes. Attention with q grouped and x streamed:
    traffic 2*q*d + 2*q*x*d/g_q, one column 2*g_q*d + 2*s_x*d + g_q*s_x + 3*g_q.
    """

    traffic: Posynomial
    columns: tuple[Posynomial, ...]
    tiles: tuple[Tile, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """The tile symbols."""
        return frozenset(t.symbol for t in self.tiles)


def parse(text: str) -> Posynomial:
    """Read ``2*q*d + 2*q*x*d/g_q``: sums of products and quotients of integers and symbols, integer powers.

    Raises ValueError on anything else.
    """
    terms = []
    for part in text.split("+"):
        term, last, sign = ONE, ONE, 1
        for token in re.findall(r"[*/]{2}|[*/]|[^\s*/]+", part):
            if token in ("*", "/"):
                sign = 1 if token == "*" else -1
            elif token == "**":
                sign = 0
            elif sign == 0:
                term = term * _repeat(last, int(token) - 1)
            else:
                factor = Monomial.make(int(token)) if token.isdigit() else Monomial.make(1, {token: 1})
                last = factor if sign > 0 else factor.inverse()
                term = term * last
        terms.append(term)
    return Posynomial.make(terms)


def _repeat(m: Monomial, times: int) -> Monomial:
    out = ONE
    for _ in range(times):
        out = out * m
    return out


def make_shape(
    traffic: str, columns: Iterable[str], group: Mapping[str, str], stream: Mapping[str, str] | None = None
) -> Shape:
    """A shape from text; ``group`` and ``stream`` map a tile's symbol to the size of its axis."""
    tiles = [Tile(s, Monomial.make(1, {a: 1}), "group") for s, a in group.items()]
    tiles += [Tile(s, Monomial.make(1, {a: 1}), "stream") for s, a in (stream or {}).items()]
    return Shape(parse(traffic), tuple(parse(c) for c in columns), tuple(tiles))
