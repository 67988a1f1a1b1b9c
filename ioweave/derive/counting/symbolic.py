"""Sums of products of symbols with whole powers, and their text: enough algebra for formulas of counts.

sympy would do, but takes longer to import than all the counting of a report; `expression`
hands over to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Powers = tuple[tuple[str, int], ...]
Linear = tuple[tuple[Fraction, Powers], ...]


@dataclass(frozen=True, slots=True)
class Term:
    """``coefficient * product(symbol ** power) * product(sums)``; powers are sorted by symbol, never zero."""

    coefficient: Fraction
    powers: Powers = ()
    sums: tuple[Linear, ...] = ()

    @staticmethod
    def number(value: int | Fraction) -> Term:
        """A number."""
        return Term(Fraction(value))

    @staticmethod
    def symbol(name: str) -> Term:
        """One symbol."""
        return Term(Fraction(1), ((name, 1),))

    def __mul__(self, other: Term) -> Term:
        return Term(
            self.coefficient * other.coefficient,
            _times(self.powers, other.powers),
            tuple(sorted((*self.sums, *other.sums))),
        )

    def __truediv__(self, other: Term) -> Term:
        """Divide by a term without sums."""
        assert not other.sums
        return self * Term(1 / other.coefficient, tuple((s, -p) for s, p in other.powers))

    def evaluate(self, values: Mapping[str, int]) -> Fraction:
        """The number at ``values`` of the symbols."""
        result = self.coefficient * _number(self.powers, values)
        for s in self.sums:
            result *= sum((c * _number(p, values) for c, p in s), Fraction(0))
        return result

    def symbols(self) -> frozenset[str]:
        """Every symbol in it."""
        inside = {s for part in self.sums for _, p in part for s, _ in p}
        return frozenset({s for s, _ in self.powers} | inside)


ONE = Term(Fraction(1))


def add(terms: Iterable[Term]) -> Term:
    """A sum of terms without sums as one factor; a single term where they are alike."""
    merged: dict[Powers, Fraction] = {}
    for t in terms:
        assert not t.sums
        merged[t.powers] = merged.get(t.powers, Fraction(0)) + t.coefficient
    left = tuple((c, p) for p, c in merged.items() if c)
    if len(left) == 1:
        return Term(*left[0])
    return Term(Fraction(1), (), (left,)) if left else Term(Fraction(0))


def gather(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Like terms merged, in the order in which they first stood; a sum that nothing multiplies is dissolved."""
    merged: dict[tuple[Powers, tuple[Linear, ...]], Fraction] = {}
    for t in terms:
        alone = not t.powers and len(t.sums) == 1
        for part in (Term(t.coefficient * c, p) for c, p in t.sums[0]) if alone else (t,):
            key = (part.powers, part.sums)
            merged[key] = merged.get(key, Fraction(0)) + part.coefficient
    return tuple(Term(c, p, s) for (p, s), c in merged.items() if c)


def expand(terms: Iterable[Term]) -> tuple[Term, ...]:
    """The same sum without sums inside its terms."""
    result: list[Term] = []
    for t in terms:
        parts = [Term(t.coefficient, t.powers)]
        for s in t.sums:
            parts = [a * Term(c, p) for a in parts for c, p in s]
        result.extend(parts)
    return gather(result)


def evaluate(terms: Iterable[Term], values: Mapping[str, int]) -> Fraction:
    """The value of a sum of terms."""
    return sum((t.evaluate(values) for t in terms), Fraction(0))


def expression(terms: Iterable[Term]) -> Any:
    """The sum of terms as a sympy expression in positive integer symbols, for further algebra."""
    from sympy import Add, Mul, Pow, Rational, Symbol

    def monomial(coefficient: Fraction, powers: Powers) -> Any:
        factors = [Pow(Symbol(s, positive=True, integer=True), p) for s, p in powers]
        return Mul(Rational(coefficient.numerator, coefficient.denominator), *factors)

    return Add(
        *(Mul(monomial(t.coefficient, t.powers), *(Add(*(monomial(*m) for m in s)) for s in t.sums)) for t in terms)
    )


def text(terms: Sequence[Term], order: Sequence[str]) -> str:
    """The sum as Python that sympy reads, ``2*q*d + 2*q*x*d/g_q``; symbols stand in ``order``."""
    return _sum([_term(t, order, _PLAIN) for t in terms])


def latex(terms: Sequence[Term], order: Sequence[str]) -> str:
    r"""The sum in LaTeX, ``2 q d + \frac{2 q x d}{g_{q}}``."""
    return _sum([_term(t, order, _LATEX) for t in terms])


def latex_symbol(symbol: str) -> str:
    """A symbol in LaTeX: names of several letters in one italic word, what follows an underscore as a subscript."""
    head, *tail = [_word(part) for part in symbol.split("_") if part]
    return f"{head}_{{{','.join(tail)}}}" if tail else head


def _word(name: str) -> str:
    return name if len(name) == 1 or name.isdigit() else rf"\mathit{{{name}}}"


@dataclass(frozen=True, slots=True)
class _Style:
    """How products, powers and quotients are written."""

    latex: bool

    def symbol(self, name: str) -> str:
        return latex_symbol(name) if self.latex else name

    def power(self, base: str, p: int) -> str:
        if p == 1:
            return base
        return f"{base}^{{{p}}}" if self.latex else f"{base}**{p}"

    def group(self, inside: str) -> str:
        return rf"\left({inside}\right)" if self.latex else f"({inside})"

    def product(self, factors: Sequence[str]) -> str:
        return (" " if self.latex else "*").join(factors)

    def quotient(self, above: Sequence[str], below: Sequence[str]) -> str:
        if not below:
            return self.product(above)
        if self.latex:
            return rf"\frac{{{self.product(above)}}}{{{self.product(below)}}}"
        low = below[0] if len(below) == 1 else f"({self.product(below)})"
        return f"{self.product(above)}/{low}"


_PLAIN, _LATEX = _Style(False), _Style(True)


def _term(t: Term, order: Sequence[str], style: _Style) -> tuple[bool, str]:
    """Whether the term is negative, and its absolute value as text."""
    rank = {s: k for k, s in enumerate(order)}
    powers = sorted(t.powers, key=lambda sp: rank.get(sp[0], len(rank)))
    above = [style.power(style.symbol(s), p) for s, p in powers if p > 0]
    below = [style.power(style.symbol(s), -p) for s, p in powers if p < 0]
    for s in dict.fromkeys(t.sums):
        inside = _sum([_term(Term(c, p), order, style) for c, p in s])
        above.append(style.power(style.group(inside), t.sums.count(s)))
    size = abs(t.coefficient)
    if size.numerator != 1 or not above:
        above.insert(0, str(size.numerator))
    if size.denominator != 1:
        below.insert(0, str(size.denominator))
    return t.coefficient < 0, style.quotient(above, below)


def _sum(parts: Sequence[tuple[bool, str]]) -> str:
    out = ""
    for negative, part in parts:
        if out:
            out += f" {'-' if negative else '+'} {part}"
        else:
            out = f"-{part}" if negative else part
    return out or "0"


def _times(a: Powers, b: Powers) -> Powers:
    powers = dict(a)
    for s, p in b:
        powers[s] = powers.get(s, 0) + p
    return tuple(sorted((s, p) for s, p in powers.items() if p))


def _number(powers: Powers, values: Mapping[str, int]) -> Fraction:
    result = Fraction(1)
    for s, p in powers:
        result *= Fraction(values[s]) ** p
    return result
