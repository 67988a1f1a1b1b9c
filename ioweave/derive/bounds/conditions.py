"""Conditions as text: a Python expression over sizes and M, without what follows from the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

from ioweave.derive.bounds import writing
from ioweave.derive.bounds.product import Base, Product
from ioweave.derive.bounds.regimes import Condition


def appearances(conditions: Iterable[Condition]) -> dict[str, int]:
    """In how many conditions each symbol stands: the rarest is put alone on the left."""
    counts: dict[str, int] = {}
    for symbols in {frozenset(b for p in c.parts for b, _ in p.factors if isinstance(b, str)) for c in conditions}:
        for s in symbols:
            counts[s] = counts.get(s, 0) + 1
    return counts


def all_of(conditions: Iterable[Condition], sizes: Mapping[str, int], memory: str, counts: Mapping[str, int]) -> str:
    """All the conditions, joined by ``and``; ``True`` for none."""
    needed = without_implied([c.normal() for c in conditions])
    texts = dict.fromkeys(_condition(c, sizes, memory, counts) for c in needed)
    return " and ".join(t for t in texts if t) or "True"


def any_of(texts: Sequence[str]) -> str:
    """Any of the texts, joined by ``or``."""
    distinct = list(dict.fromkeys(texts))
    if "True" in distinct:
        return "True"
    return " or ".join(f"({t})" if " and " in t and len(distinct) > 1 else t for t in distinct)


def _condition(c: Condition, numbers: Mapping[str, int], memory: str, counts: Mapping[str, int]) -> str:
    """One inequality, with a size alone on its left where one can be; "" where it always holds."""
    c = c.normal()
    order = (*numbers, memory)
    if len(c.parts) > 1:
        scale = Product.symbol(memory) if all(p.exponent(memory) == -1 for p in c.parts) else Product.number(1)
        return f"{writing.formula([p * scale for p in c.parts], order)} <= {writing.text(scale, order)}"
    ratio = c.parts[0]
    symbols = [(b, e) for b, e in ratio.factors if isinstance(b, str)]
    sums = any(isinstance(b, tuple) for b, _ in ratio.factors)
    if all(b == memory and e < 0 for b, e in symbols) and not sums:
        return ""  # M is at least 1
    if all(e < 0 for _, e in symbols) and not sums and ratio.coefficient <= 1 and symbols:
        return ""  # sizes are at least 1
    by_memory = next((e for b, e in symbols if b == memory), Fraction(0))
    sizes = [(b, e) for b, e in symbols if b != memory and (by_memory == 0 or e * by_memory < 0)]
    if (by_memory < 0 and not (len(sizes) == 1 and sizes[0][1] > -by_memory)) or not sizes:
        left, e = memory, by_memory
    else:
        left, e = min(sizes, key=lambda s: (s[1] > 0, counts.get(s[0], 0), -numbers[s[0]]))
    if not e:
        return f"{writing.text(ratio, order)} <= 1"
    rest = (ratio / Product(Fraction(1), ((left, e),))) ** (-1 / e)
    return f"{left} {'<=' if e > 0 else '>='} {writing.text(rest, order)}"


def without_implied(conditions: Sequence[Condition]) -> list[Condition]:
    """Drop the conditions of one term that follow from one or two others, sizes and M being at least 1."""
    kept = list(dict.fromkeys(conditions))
    for c in list(kept):
        if len(c.parts) == 1:
            rest = [o.parts[0] for o in kept if o is not c and len(o.parts) == 1]
            symbols = sorted({b for b, _ in c.parts[0].factors if isinstance(b, str)})
            ones = [Product.symbol(s) ** -1 for s in symbols]
            given = [*((r,) for r in rest), *combinations([*rest, *ones], 2)]
            if any(_follows(c.parts[0], g) for g in given):
                kept.remove(c)
    return kept


def _follows(claim: Product, given: tuple[Product, ...]) -> bool:
    """Whether ``claim <= 1`` is a product of non-negative powers of ``given <= 1``."""
    bases: list[Base] = list(dict.fromkeys(b for p in (claim, *given) for b, _ in p.factors if not isinstance(b, int)))
    scale = math.lcm(*(e.denominator for p in (claim, *given) for _, e in p.factors))
    columns = [_exponents(p, bases, scale) for p in given]
    powers = _combination(columns, _exponents(claim, bases, scale))
    if powers is None or min(powers) < 0:
        return False
    claimed, bound = _number(claim), 1.0
    for p, given_one in zip(powers, given, strict=True):
        bound *= _number(given_one) ** float(p)
    return claimed <= bound * (1 + 1e-12)


def _exponents(p: Product, bases: Sequence[Base], scale: int) -> list[int]:
    """The exponents of ``bases`` times ``scale``, which makes them whole."""
    mine = dict(p.factors)
    return [e.numerator * (scale // e.denominator) if (e := mine.get(b)) else 0 for b in bases]


def _number(p: Product) -> float:
    return Product(p.coefficient, tuple((b, e) for b, e in p.factors if isinstance(b, int))).evaluate({})


def _combination(columns: list[list[int]], target: list[int]) -> list[Fraction] | None:
    """Coefficients of one or two vectors that give ``target``; None where there are none or they are not unique."""
    n = len(target)
    if len(columns) == 1:
        (u,) = columns
        k = next((i for i in range(n) if u[i]), None)
        if k is None or any(target[k] * u[i] != target[i] * u[k] for i in range(n)):
            return None
        return [Fraction(target[k], u[k])]
    u, v = columns
    pair = next(((i, j) for i in range(n) for j in range(n) if u[i] * v[j] != u[j] * v[i]), None)
    if pair is None:
        return None
    i, j = pair
    det = u[i] * v[j] - u[j] * v[i]
    a, b = target[i] * v[j] - target[j] * v[i], u[i] * target[j] - u[j] * target[i]
    if any(a * u[k] + b * v[k] != target[k] * det for k in range(n)):
        return None
    return [Fraction(a, det), Fraction(b, det)]
