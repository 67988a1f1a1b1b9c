"""Closed forms as text: Python that sympy reads, LaTeX, and plain signs for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from ioweave.derive.bounds.posynomial import Monomial
from ioweave.derive.bounds.product import Base, Product


def formula(terms: Iterable[Product], order: Sequence[str]) -> str:
    """A sum such as ``2*q*d + 4*q*x*d**2/M``; symbols stand in ``order``."""
    return " + ".join(text(t, order) for t in terms) or "0"


def text(term: Product, order: Sequence[str]) -> str:
    """One term, e.g. ``2*a*b*c/sqrt(M)``."""

    def base_text(base: Base) -> str:
        return _sum(base, lambda p: text(p, order)) if isinstance(base, tuple) else str(base)

    def factor(base: Base, e: Fraction) -> str:
        name = base_text(base)
        name = f"({name})" if isinstance(base, tuple) else name
        if e == 1:
            return name
        return f"{name}**{e}" if e.denominator == 1 else f"{name}**({e})"

    def written(half: Half) -> list[str]:
        roots = [b for b, e in half if e == Fraction(1, 2)]
        several = len(roots) > 1
        inside = "*".join(f"({base_text(b)})" if isinstance(b, tuple) and several else base_text(b) for b in roots)
        return [*(factor(b, e) for b, e in half if b not in roots), *([f"sqrt({inside})"] if roots else [])]

    above, below = _halves(term, order)
    top = "*".join(_with_number(term.coefficient.numerator, written(above)))
    low = _with_number(term.coefficient.denominator, written(below), empty=True)
    if not low:
        return top
    return f"{top}/{low[0]}" if len(low) == 1 else f"{top}/({'*'.join(low)})"


def latex(terms: Iterable[Product], order: Sequence[str]) -> str:
    """The sum in LaTeX, e.g. ``2 q d + \\frac{4 q x d^{2}}{M}``."""
    return " + ".join(_latex_term(t, order) for t in terms) or "0"


def _latex_term(term: Product, order: Sequence[str]) -> str:
    def factor(base: Base, e: Fraction) -> str:
        if isinstance(base, tuple):
            name = _sum(base, lambda p: _latex_term(p, order))
        else:
            name = str(base) if isinstance(base, int) else latex_name(base)
        name = rf"\left({name}\right)" if isinstance(base, tuple) else name
        return name if e == 1 else f"{name}^{{{e}}}"

    def written(half: Half) -> list[str]:
        roots = [(b, Fraction(1)) for b, e in half if e == Fraction(1, 2)]
        inside = " ".join(factor(b, e) for b, e in roots)
        plain = [factor(b, e) for b, e in half if e != Fraction(1, 2)]
        return [*plain, *([rf"\sqrt{{{inside}}}"] if roots else [])]

    above, below = _halves(term, order)
    top = " ".join(_with_number(term.coefficient.numerator, written(above)))
    low = " ".join(_with_number(term.coefficient.denominator, written(below), empty=True))
    return rf"\frac{{{top}}}{{{low}}}" if low else top


def latex_name(symbol: str) -> str:
    """A symbol in LaTeX: long names upright in italics, what follows an underscore as a subscript."""
    head, _, tail = symbol.partition("_")
    head = head if len(head) == 1 else rf"\mathit{{{head}}}"
    return f"{head}_{{{tail}}}" if tail else head


def pretty(formula: str) -> str:
    """A formula for people: ``2*q*d + 4*q*x*d**2/M`` becomes ``2qd + 4qxd²/M``."""
    names = [n for n in re.findall(r"[A-Za-z_]\w*", formula) if n != "sqrt"]
    out = re.sub(r"sqrt\((\w+)\)", r"√\1", formula).replace("sqrt(", "√(")
    out = re.sub(r"\*\*(\d+)", lambda m: m.group(1).translate(_SUPERSCRIPTS), out)
    return out.replace("*", "" if all(len(n) == 1 for n in names) else "·")


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


Half = list[tuple[Base, Fraction]]


def _halves(term: Product, order: Sequence[str]) -> tuple[Half, Half]:
    """The factors above and below the line of the fraction, each with a positive exponent."""

    def key(item: tuple[Base, Fraction]) -> tuple[int, int]:
        base = item[0]
        if isinstance(base, int):
            return 0, base
        if isinstance(base, tuple):
            return 2, 0
        return 1, order.index(base) if base in order else len(order)

    ordered = sorted(term.factors, key=key)
    return [(b, e) for b, e in ordered if e > 0], [(b, -e) for b, e in ordered if e < 0]


def _with_number(number: int, factors: list[str], empty: bool = False) -> list[str]:
    if number != 1 or not (factors or empty):
        return [str(number), *factors]
    return factors


def _sum(base: tuple[Monomial, ...], write: Callable[[Product], str]) -> str:
    out = ""
    for m in base:
        part = write(Product.of(Monomial.make(abs(Fraction(m.coefficient)), dict(m.powers))))
        sign = "-" if m.coefficient < 0 else "+"
        out = f"{out} {sign} {part}" if out else (f"-{part}" if sign == "-" else part)
    return out
