"""The napkin formula: the least transfer in closed form, e.g. ``2*q*d + 4*q*x*d**2/M``, and where it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Literal

from ioweave.derive.bounds import conditions as where_text
from ioweave.derive.bounds import writing
from ioweave.derive.bounds.leading import LARGE, fix_idle_tiles, fix_tiles, held_variants, keep_leading
from ioweave.derive.bounds.posynomial import Shape, Tile
from ioweave.derive.bounds.product import Product, add
from ioweave.derive.bounds.regimes import Condition, Regime, regimes

MOST_OTHERS = 6
MANY = 4
STEPS = (Fraction(1, 64), Fraction(1, 8), Fraction(8), Fraction(64), Fraction(1 << 20))


@dataclass(frozen=True, slots=True)
class Napkin:
    """A closed form of the least transfer in values, with ``M`` in the unit of the shape's columns.

    ``exponents`` maps each term to its power of 1/M. ``holds_where`` is a Python expression in the sizes and M
    (``True`` where nothing limits it); there the formula is exact up to terms that are small where the products
    in ``leading_for`` are large. ``worth_of_a_byte`` maps a level to dH/dM, in bytes moved per byte of memory
    (negative: more memory moves less). ``memory_unit`` is that of M; ``without_mask`` says that masks are left out,
    so that the formula is at most.
    """

    formula: str
    latex: str
    exponents: dict[str, float]
    holds_where: str
    other_regimes: tuple[tuple[str, str], ...]
    worth_of_a_byte: dict[str, float]
    leading_for: tuple[str, ...] = ()
    values: float = 0.0
    terms: tuple[Product, ...] = ()
    memory_unit: Literal["values", "bytes"] = "values"
    without_mask: bool = False

    @property
    def pretty(self) -> str:
        """The formula for people: ``2qd + 4qxd²/M``."""
        return writing.pretty(self.formula)

    def to_json(self) -> dict[str, Any]:
        """The report's record; ``without_mask`` only where it is so."""
        row: dict[str, Any] = {
            "formula": self.formula,
            "latex": self.latex,
            "exponents": dict(self.exponents),
            "holds_where": self.holds_where,
            "other_regimes": [{"formula": f, "holds_where": w} for f, w in self.other_regimes],
            "worth_of_a_byte": dict(self.worth_of_a_byte),
            "memory_unit": self.memory_unit,
        }
        return {**row, "without_mask": True} if self.without_mask else row


@dataclass(frozen=True, slots=True)
class _Choice:
    """One regime for every region of one structure."""

    regimes: tuple[Regime, ...]

    structure: int

    @property
    def variants(self) -> tuple[int, ...]:
        return (self.structure, *(r.variant for r in self.regimes))

    @property
    def terms(self) -> tuple[Product, ...]:
        return add(t for r in self.regimes for t in r.terms)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(dict.fromkeys(c.normal() for r in self.regimes for c in r.conditions))


def napkin(
    structure: Sequence[Shape],
    sizes: Mapping[str, int],
    memory: float,
    *,
    others: Iterable[Sequence[Shape]] = (),
    level: str = "smem",
    bytes_per_value: float = 2.0,
    bytes_per_unit: float | None = None,
) -> Napkin | None:
    """The closed form of the least traffic of ``structure`` (its regions' shapes); None if nothing fits.

    ``others`` are rival structures (other partitions, other loops): the formula is that of the cheapest at ``sizes``,
    the others appear among the other regimes. ``sizes`` also gives the order of the symbols. ``memory`` is M in the
    unit of the columns, ``bytes_per_unit`` its bytes (default: that of a value); ``bytes_per_value`` are those of the
    traffic.
    """
    symbol = _memory_symbol(sizes)
    order = (*sizes, symbol)
    base: dict[str, float] = {**{s: float(n) for s, n in sizes.items()}, symbol: float(memory)}
    tables = [[_table(shape, symbol, base) for shape in s] for s in (structure, *others)]
    best = _cheapest(tables, base, symbol)
    if best is None:
        return None
    rivals = _rivals(tables, base, symbol, best)
    terms = _without_small(best, base, symbol)
    where = list(best.conditions)
    for rival, _ in rivals:
        where.extend(_against(best, rival, base))
    counts = where_text.appearances([*where, *(c for rival, _ in rivals for c in rival.conditions)])
    others_text: dict[str, list[str]] = {}
    for rival, point in rivals:
        text = writing.formula(rival.terms, order)
        if text in others_text or len(others_text) < MOST_OTHERS:
            conditions = [*rival.conditions, *_against(rival, best, point)]
            others_text.setdefault(text, []).append(where_text.all_of(conditions, sizes, symbol, counts))
    above, below = (_cost(terms, {**base, symbol: memory * f}) for f in (1 + 1e-4, 1 - 1e-4))
    slope = (above - below) / (2e-4 * memory)
    unit = bytes_per_value if bytes_per_unit is None else bytes_per_unit
    leading = dict.fromkeys(p for r in best.regimes for p in r.large)
    return Napkin(
        formula=writing.formula(terms, order),
        latex=writing.latex(terms, order),
        exponents={writing.text(t, order): float(-t.exponent(symbol)) for t in terms},
        holds_where=where_text.all_of(where, sizes, symbol, counts),
        other_regimes=tuple((f, where_text.any_of(w)) for f, w in others_text.items()),
        worth_of_a_byte={level: slope * bytes_per_value / unit},
        leading_for=tuple(dict.fromkeys(writing.text(Product(Fraction(1), p.factors), order) for p in leading)),
        values=_cost(terms, base),
        terms=terms,
    )


def _memory_symbol(sizes: Mapping[str, int]) -> str:
    name = "M"
    while name in sizes:
        name += "_"
    return name


Table = list[Regime]


def _table(shape: Shape, memory: str, base: Mapping[str, float]) -> Table:
    """Every regime of a region: of its own loops, and of those that hold what lacks an axis."""
    shape = fix_tiles(shape, {t.symbol: t.upper for t in shape.tiles if t.upper.evaluate(base) == 1})
    shape = Shape(keep_leading(shape.traffic, base)[0], shape.columns, shape.tiles)
    needed = len(fix_idle_tiles(shape).tiles)
    if needed > MANY:  # a window that is streamed is taken whole in each step
        shape = fix_tiles(shape, {t.symbol: t.upper for t in shape.tiles if t.kind == "stream" and _short(t, base)})
    out: dict[tuple[tuple[Product, ...], tuple[Condition, ...]], Regime] = {}
    for i, variant in enumerate(held_variants(shape, needed if needed <= 3 else 1)):
        for regime in regimes(fix_idle_tiles(variant), base, memory, i):
            out.setdefault((regime.terms, regime.conditions), regime)
    return list(out.values())


def _short(tile: Tile, base: Mapping[str, float]) -> bool:
    return tile.upper.evaluate(base) < LARGE


def _cost(terms: Iterable[Product], values: Mapping[str, float]) -> float:
    return sum(t.evaluate(values) for t in terms)


def _cheapest(tables: Sequence[Sequence[Table]], values: Mapping[str, float], memory: str) -> _Choice | None:
    best: tuple[float, _Choice] | None = None
    for number, structure in enumerate(tables):
        chosen: list[Regime] = []
        for table in structure:
            costs = [(r.cost(values), i) for i, r in enumerate(table)]
            ranked = sorted((c, i) for c, i in costs if not math.isnan(c))
            least = next((c for c, i in ranked if table[i].feasible(values, memory)), None)
            if least is None:
                break
            equal = (i for c, i in costs if least <= c <= least * (1 + 1e-9) and table[i].feasible(values, memory))
            chosen.append(table[next(equal)])
        else:
            cost = sum(r.cost(values) for r in chosen)
            if best is None or cost < best[0] * (1 - 1e-9):
                best = cost, _Choice(tuple(chosen), number)
    return None if best is None else best[1]


def _rivals(
    tables: Sequence[Sequence[Table]], base: Mapping[str, float], memory: str, best: _Choice
) -> list[tuple[_Choice, dict[str, float]]]:
    """What is best when M or one size is scaled: each other choice, and the first point at which it wins."""
    found: dict[_Choice, dict[str, float]] = {}
    for step, name in product(STEPS, sorted(base, key=lambda s: s != memory)):
        point = {**base, name: max(2.0, base[name] * float(step))}
        choice = _cheapest(tables, point, memory)
        if choice is not None and choice.terms != best.terms:
            found.setdefault(choice, point)
    return list(found.items())


def _without_small(choice: _Choice, base: Mapping[str, float], memory: str) -> tuple[Product, ...]:
    """The terms, less those that the conditions make smaller than another by a whole size that is large."""
    terms = [(t, t.evaluate(base)) for t in choice.terms]
    given = [Product.number(1), *(c.parts[0] for c in choice.conditions if len(c.parts) == 1)]
    known = [(c, c.evaluate(base)) for c in given]

    def small(ratio: Product) -> bool:
        symbols = {b: e for b, e in ratio.factors if not isinstance(b, int)}
        if any(e > 0 or isinstance(b, tuple) for b, e in symbols.items()):
            return False
        large = any(e <= -1 and b != memory and base[str(b)] >= LARGE for b, e in symbols.items())
        return large

    def hidden(t: Product, n: float) -> bool:
        above = [(other, n / m) for other, m in terms if n * LARGE <= m]
        return any(small(t / other / c) for other, r in above for c, k in known if r * LARGE <= k)

    return tuple(t for t, n in terms if not hidden(t, n))


def _against(best: _Choice, rival: _Choice, point: Mapping[str, float]) -> list[Condition]:
    """Why ``best`` beats ``rival`` at a point: a condition that the rival breaks there, or the cost."""
    broken = [c for c in rival.conditions if not c.holds(point)]
    if not broken:
        # Within one convex problem the bounds of the tiles already say which regime is best.
        return [] if best.variants == rival.variants else _comparison(best.terms, rival.terms, point)
    if len(broken) > 1 or _cost(rival.terms, point) >= _cost(best.terms, point):
        return []
    (only,) = broken
    return [Condition((only.parts[0] ** -1,), Product.number(1))] if len(only.parts) == 1 else []


def _comparison(lower: Sequence[Product], higher: Sequence[Product], values: Mapping[str, float]) -> list[Condition]:
    """``lower <= higher`` by the greatest terms of their difference."""
    difference = add((*lower, *(Product(-t.coefficient, t.factors) for t in higher)))
    mine = [t for t in difference if t.coefficient > 0]
    theirs = [Product(-t.coefficient, t.factors) for t in difference if t.coefficient < 0]
    if not mine or not theirs:
        return []
    a = max(mine, key=lambda t: t.evaluate(values))
    b = max(theirs, key=lambda t: t.evaluate(values))
    condition = Condition((a / b,), Product.number(1))
    return [condition] if condition.parts[0].factors and condition.holds(values) else []
