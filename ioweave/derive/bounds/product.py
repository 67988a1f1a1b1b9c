"""Exact closed forms: a rational times powers of primes, symbols and sums, with rational exponents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from ioweave.derive.bounds.posynomial import Monomial, Posynomial

Base = str | int | tuple[Monomial, ...]
"""A symbol, a prime, or a sum of monomials without a common factor."""


@dataclass(frozen=True, slots=True)
class Product:
    """``coefficient * product(base ** exponent)``; a prime's exponent lies strictly between 0 and 1."""

    coefficient: Fraction
    factors: tuple[tuple[Base, Fraction], ...] = ()

    @staticmethod
    def make(coefficient: Fraction, factors: Mapping[Base, Fraction]) -> Product:
        """Build the product in normal form: whole powers of primes go into the coefficient."""
        kept: dict[Base, Fraction] = {}
        for base, e in factors.items():
            if isinstance(base, int):
                whole = math.floor(e)
                coefficient *= Fraction(base) ** whole
                e -= whole
            if e:
                kept[base] = e
        return Product(coefficient, tuple(sorted(kept.items(), key=_order)))

    @staticmethod
    def number(value: Fraction | int) -> Product:
        """A rational number."""
        return Product(Fraction(value))

    @staticmethod
    def symbol(name: str) -> Product:
        """One symbol."""
        return Product(Fraction(1), ((name, Fraction(1)),))

    @staticmethod
    def of(monomial: Monomial) -> Product:
        """A monomial as a product."""
        return Product.make(Fraction(monomial.coefficient), dict(monomial.powers))

    @staticmethod
    def total(terms: Iterable[Monomial]) -> Product:
        """A sum of monomials as a product: their common factor times what is left of the sum."""
        merged = Posynomial.make(terms).terms
        if len(merged) == 1:
            return Product.of(merged[0])
        shared = {s: min(t.power(s) for t in merged) for s in dict.fromkeys(s for t in merged for s, _ in t.powers)}
        numbers = [Fraction(t.coefficient) for t in merged]
        content = Fraction(
            reduce(math.gcd, (n.numerator for n in numbers)), reduce(math.lcm, (n.denominator for n in numbers))
        )
        common = Monomial.make(content, shared)
        rest = tuple(sorted((t * common.inverse() for t in merged), key=lambda t: (t.coefficient < 0, t.powers)))
        return Product.of(common) * Product(Fraction(1), ((rest, Fraction(1)),))

    def __mul__(self, other: Product) -> Product:
        factors = dict(self.factors)
        for base, e in other.factors:
            factors[base] = factors.get(base, Fraction(0)) + e
        return Product.make(self.coefficient * other.coefficient, factors)

    def __pow__(self, exponent: Fraction | int) -> Product:
        exponent = Fraction(exponent)
        factors: dict[Base, Fraction] = {b: e * exponent for b, e in self.factors}
        if exponent.denominator == 1:
            return Product.make(self.coefficient ** int(exponent), factors)
        for prime, e in _primes(self.coefficient).items():
            factors[prime] = factors.get(prime, Fraction(0)) + e * exponent
        return Product.make(Fraction(1), factors)

    def __truediv__(self, other: Product) -> Product:
        return self * other**-1

    def exponent(self, symbol: str) -> Fraction:
        """The power of ``symbol`` for large ``symbol``, sums counted by their highest power of it."""
        total = Fraction(0)
        for base, e in self.factors:
            if base == symbol:
                total += e
            elif isinstance(base, tuple):
                total += e * max(t.power(symbol) for t in base)
        return total

    def evaluate(self, values: Mapping[str, float]) -> float:
        """The number at ``values``; nan where a sum (such as ``M - 2*d*x``) is not positive."""
        return self.compiled()(values)

    def compiled(self) -> Callable[[Mapping[str, float]], float]:
        """`evaluate` for many values: its exponents as floats."""
        start, symbols = float(self.coefficient), [(b, float(e)) for b, e in self.factors if isinstance(b, str)]
        sums = [(b, float(e)) for b, e in self.factors if isinstance(b, tuple)]
        for b, e in self.factors:
            if isinstance(b, int):
                start *= b ** float(e)

        def number(values: Mapping[str, float]) -> float:
            result = start
            for s, p in symbols:
                result *= float(values[s]) ** p
            for terms, p in sums:
                b = sum(t.evaluate(values) for t in terms)
                if b <= 0:
                    return math.nan
                result *= b**p
            return result

        return number


def add(products: Iterable[Product]) -> tuple[Product, ...]:
    """The sum with like products merged, in the order in which they first stood."""
    total: dict[tuple[tuple[Base, Fraction], ...], Fraction] = {}
    for p in products:
        total[p.factors] = total.get(p.factors, Fraction(0)) + p.coefficient
    return tuple(Product(c, f) for f, c in total.items() if c)


def _order(item: tuple[Base, Fraction]) -> tuple[int, str]:
    base = item[0]
    if isinstance(base, int):
        return 0, f"{base:09d}"
    return (1, base) if isinstance(base, str) else (2, repr(base))


def _primes(value: Fraction) -> dict[int, Fraction]:
    out: dict[int, Fraction] = {}
    for n, sign in ((value.numerator, 1), (value.denominator, -1)):
        p = 2
        while n > 1:
            if p * p > n:
                p = n
            while n % p == 0:
                out[p] = out.get(p, Fraction(0)) + sign
                n //= p
            p += 1
    return out
