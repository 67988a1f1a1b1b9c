"""Bounds of rows and of what contracts them: norms proved from how a row was normalised.

Statement. ``|sum_d a b| <= (sum_d |a|**2)**(1/2) (sum_d |b|**2)**(1/2)`` and
``|sum_d a b| <= sum_d |a| max_d |b|``. A row ``a / D**(1/q)`` has ``sum_d |a|**q / D <= k`` if
``k D - sum_d |a|**q`` is never negative: so do rows over their length, their root mean square, their
standard deviation, or their sum, with anything that is not negative added to it.
Source. Hoelder and Minkowski: Hardy, Littlewood and Polya, Inequalities (1934), 2.7, 2.8 and 2.11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import product

from ioweave.derive.streaming.formats import cast_error, largest_finite
from ioweave.derive.streaming.forms import (
    ONE,
    Form,
    Monomial,
    add,
    atom,
    express,
    is_indicator,
    make_form,
    make_monomial,
    multiply,
    scale,
)
from ioweave.derive.streaming.ranges import INF, Interval, fraction_power
from ioweave.derive.streaming.unfold import Unfold, bound_axes, fresh_axes
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, Size, free_axes
from ioweave.diagrams.operators import CASTS

Power = tuple[Expr, Fraction]
_HALF = Fraction(1, 2)
_NEAR = 1 + 1e-12
_MOST = 4  # factors along the axes that are shared out between two rows
# never larger than their argument in absolute value
_SHRINK = frozenset({"neg", "abs", "relu", "tanh", "silu", "gelu", "sin"})


class Rows:
    """Norms of rows; ``interval`` bounds forms, looking into so many reductions."""

    def __init__(
        self,
        unfold: Unfold,
        of: Callable[[Expr], Interval],
        interval: Callable[[Form, int], Interval],
        size: Callable[[str], Interval],
    ) -> None:
        self._unfold = unfold
        self._of = of
        self._interval = interval
        self._size = size
        self._norms: dict[tuple[Expr, tuple[str, ...], int], float] = {}
        self._covers: dict[tuple[Expr, Expr, tuple[str, ...], int], float] = {}

    def contraction(
        self, body: Expr, axes: tuple[str, ...], rest: Sequence[Power] = (), exponent: Form = ()
    ) -> float | None:
        """A bound of ``|sum over axes of body * rest * exp(exponent)|``; None if there is none."""
        factors, coefficient = self._flat(body, axes)
        for e, p in rest:
            more, c = self._flat(e, axes, p)
            factors += more
            coefficient *= c
        if exponent:
            factors.append((Apply("exp", (express(exponent),)), ONE))
        walking: list[Power] = []
        powers: dict[Expr, Fraction] = {}  # one entry for each, so that no root is used up twice
        for e, p in factors:
            if set(axes).isdisjoint(free_axes(e)):
                powers[e] = powers.get(e, Fraction(0)) + p
            elif p.denominator == 1 and 1 < p <= _MOST:
                walking += [(e, ONE)] * int(p)
            else:
                walking.append((e, p))
        free = [(e, p) for e, p in powers.items() if p]
        if not walking or len(walking) > _MOST:
            return None
        best = min((b for b in self._splits(walking, free, axes)), default=INF)
        return best * coefficient * _NEAR if best < INF else None

    def _splits(self, walking: list[Power], free: list[Power], axes: tuple[str, ...]) -> Iterator[float]:
        tokens: list[Expr] = []
        for e, p in free:
            if p < 0 and (2 * p).denominator == 1 and self._unfold.tells(e):
                tokens += [e] * min(int(-2 * p), 4)
        if not self._hopeful([e for e, p in walking if p == 1], [*tokens, *(e for e, p in walking if p != 1)]):
            return
        for sides in product((0, 1), repeat=len(walking)):
            a = _product(w for w, s in zip(walking, sides, strict=True) if s == 0)
            b = _product(w for w, s in zip(walking, sides, strict=True) if s == 1)
            if a is None:
                continue
            if b is None:
                for k, used in self._rows(a, axes, 1, tokens):
                    yield _times(k, self._left(free, used))
                continue
            top = self._of(b)
            if top.bounded and not top.masked:
                for k, used in self._rows(a, axes, 1, tokens):
                    yield _times(_times(k, top.magnitude), self._left(free, used))
            if sides[0] == 0:
                for k, used in self._rows(a, axes, 2, tokens):
                    others = list(tokens)
                    for d in used:
                        others.remove(d)
                    for j, too in self._rows(b, axes, 2, others):
                        yield _times(_times(k**0.5, j**0.5), self._left(free, [*used, *too]))

    def _rows(self, e: Expr, axes: tuple[str, ...], q: int, tokens: list[Expr]) -> Iterator[tuple[float, list[Expr]]]:
        """Bounds of ``sum |e|**q``, and of ``sum |e|**q / D`` with the roots of ``D`` that it uses up."""
        plain = self.norm(e, axes, q)
        if plain < INF:
            yield plain, []
        need = 2 // q
        for d in dict.fromkeys(tokens):
            if tokens.count(d) >= need:
                k = self.cover(e, d, axes, q)
                if k < INF:
                    yield k, [d] * need

    def _hopeful(self, row: Iterable[Expr], divisors: Iterable[Expr]) -> bool:
        """Whether each unbounded array among the factors of a row is part of some divisor."""
        bare = [e for e in row if isinstance(e, Read) and self._is_leaf(e)]
        if not bare:
            return True
        others = [*divisors, *(e for e in row if e not in bare)]
        return {e.array for e in bare} <= frozenset().union(*(self._unfold.support(d) for d in others))

    def _is_leaf(self, r: Read) -> bool:
        """Whether an array with no bounds is read that is no map."""
        return self._unfold.map(r) is None and not self._of(r).bounded

    def _left(self, free: list[Power], used: list[Expr]) -> float:
        """The magnitude of the factors free of the axes, without the roots used up."""
        total = 1.0
        for e, p in free:
            take = used.count(e) if p < 0 else 0
            left = p + _HALF * min(Fraction(take), -2 * p) if take else p
            if left:
                v = fraction_power(self._of(e), float(left)) if left != 1 else self._of(e)
                if v.masked or v.infinite:
                    return INF
                total = _times(total, v.magnitude)
        return total

    def _flat(self, e: Expr, axes: tuple[str, ...], p: Fraction = ONE) -> tuple[list[Power], float]:
        """Factors whose product is an expression to a power, in absolute value, and their coefficient."""
        match e:
            case Number(value=v):
                return ([], abs(float(v)) ** float(p)) if v and abs(v) < INF else ([(e, p)], 1.0)
            case Apply(op="mul", args=(a, b)):
                return self._pair(a, p, b, p, axes)
            case Apply(op="div" | "masked_div", args=(a, b)):
                return self._pair(a, p, b, -p, axes)
            case Apply(op="neg", args=(a,)):
                return self._flat(a, axes, p)
            case Apply(op="sqrt", args=(a,)):
                return self._flat(a, axes, p * _HALF)
            case Apply(op="rsqrt", args=(a,)):
                return self._flat(a, axes, -p * _HALF)
            case Apply(op="max" | "add") if p < 0:
                for a in self._parts(e):
                    return self._flat(a, axes, p)
            case Apply(op="pow", args=(a, Number(value=n))) if n == int(n) and 0 < n <= _MOST:
                return self._flat(a, axes, p * int(n))
            case Read():
                box = self._unfold.map(e)
                if box is not None and isinstance(box.body, Apply | Read):
                    inner = self._unfold.placed(box, e.index, {})
                    if isinstance(inner, Read) or (isinstance(inner, Apply) and inner.op in _FLAT):
                        return self._flat(inner, axes, p)
        return [(e, p)], 1.0

    def _pair(self, a: Expr, p: Fraction, b: Expr, r: Fraction, axes: tuple[str, ...]) -> tuple[list[Power], float]:
        left, c = self._flat(a, axes, p)
        right, d = self._flat(b, axes, r)
        return left + right, c * d

    # norms

    def norm(self, e: Expr, axes: tuple[str, ...], q: int) -> float:
        """A bound of ``sum over axes of |e|**q`` for every place of the other axes; inf if none is proved."""
        key = (e, axes, q)
        if key not in self._norms:
            self._norms[key] = INF
            best = self._each(e, axes, q)
            if best > 0:
                best = min(best, self._divided(e, axes, q))
            self._norms[key] = min(best, self._shape(e, axes, q)) * _NEAR if best else 0.0
        return self._norms[key]

    def _each(self, e: Expr, axes: tuple[str, ...], q: int) -> float:
        v = self._of(e)
        if v.empty or v.masked or v.infinite:
            return INF
        count = 1.0
        for a in axes:
            count *= self._size(a).hi
        best = _times(count, v.magnitude**q if v.magnitude < 1e150 else INF)
        if best == INF and set(axes).isdisjoint(free_axes(e)):
            form = self._power(self._unfold.form(e), q)
            for a in axes:
                form = multiply(form, atom(Size(bound_axes(a))))
            best = self._interval(form, 1).magnitude
        return best

    def _power(self, f: Form, q: int) -> Form:
        return f if q == 1 else multiply(f, f)

    def _divided(self, e: Expr, axes: tuple[str, ...], q: int) -> float:
        """By a divisor of the row itself."""
        outer, _ = _split(self._unfold.form(e), axes)
        divisors = [d for d, p in outer.factors if p < 0 and self._unfold.tells(d)]
        return min((self.cover(e, d, axes, q, True) for d in divisors), default=INF)

    def cover(self, e: Expr, d: Expr, axes: tuple[str, ...], q: int, own: bool = False) -> float:
        """A bound of ``sum |e|**q / d``, or of ``sum |e|**q`` where the divisor is ``e``'s ``own``."""
        key = (e, d if not own else Apply("neg", (d,)), axes, q)
        if key not in self._covers:
            self._covers[key] = self._cover(e, d, axes, q, own)
        return self._covers[key]

    def _cover(self, e: Expr, d: Expr, axes: tuple[str, ...], q: int, own: bool) -> float:
        outer, inner = _split(self._unfold.form(e), axes)
        if not inner or (len(inner) == 1 and not self._hopeful((a for a, _ in inner[0][0].factors), (d,))):
            return INF
        divisor = self._unfold.expanded(self._unfold.form(d), frozenset(axes))
        side = self._power(((outer, ONE),), q)
        if own:
            side = multiply(side, atom(d))
        best = min((self._clamped(e, d, a, axes, q) for a in self._parts(d)), default=INF) if own else INF
        if best < INF or (isinstance(d, Apply) and d.op == "max"):
            return best
        for body, extra in self._thinned(inner):
            if q == 1 and self._interval(body, 1).lo < 0:
                continue
            sums = self._unfold.summed(self._power(body, q), frozenset(axes))
            for ratio, c in _ratios(divisor, sums):
                left = add(divisor, scale(multiply(sums, ((ratio, c),)), -ONE))
                if len(left) > len(divisor) - len(sums):
                    continue  # not every term of the row's sum is in the divisor
                k = self._interval(((ratio, c),), 1)
                if k.lo < 0 or k.masked or self._interval(left, 1).lo < 0:
                    continue
                inverse = make_monomial({a: -p for a, p in ratio.factors}, scale(ratio.exponent, -ONE))
                rest = self._interval(multiply(side, ((inverse, 1 / c),)), 1)
                if rest.bounded and not rest.masked and not rest.infinite:
                    best = min(best, rest.magnitude * extra**q)
        return best

    def _parts(self, d: Expr) -> Iterator[Expr]:
        """What a divisor is never less than: arguments of a maximum, and of a sum of what is never negative."""
        if isinstance(d, Apply) and d.op in ("max", "add"):
            bounds = [self._of(a) for a in d.args]
            for a, b in zip(d.args, bounds, strict=True):
                safe = b.lo >= 0 and not b.masked and (d.op == "max" or all(o.lo >= 0 for o in bounds))
                if safe and self._unfold.tells(a):
                    yield a

    def _clamped(self, e: Expr, d: Expr, a: Expr, axes: tuple[str, ...], q: int) -> float:
        """By a divisor that is at least ``a``: the row over ``a`` in its place is larger."""
        larger = self._unfold.exchanged(e, d, a)
        return self.norm(larger, axes, q) if larger != e else INF

    def _thinned(self, inner: Form) -> Iterator[tuple[Form, float]]:
        """A row, and the row without factors that are bounded, with their bound."""
        yield inner, 1.0
        # hidden terms only make it smaller
        bare = make_form(
            {make_monomial({a: p for a, p in m.factors if not is_indicator(a)}, m.exponent): c for m, c in inner}
        )
        if bare != inner and len(bare) == len(inner) == 1:
            yield bare, 1.0
        if len(inner) == 1 and not inner[0][0].exponent:
            m, c = inner[0]
            bounds = {a: fraction_power(self._of(a), float(p)) for a, p in m.factors}
            small = {a: v.magnitude for a, v in bounds.items() if v.bounded and not v.masked and not v.infinite}
            if small and len(small) < len(m.factors):
                extra = abs(float(c))
                for v in small.values():
                    extra *= v
                yield ((make_monomial({a: p for a, p in m.factors if a not in small}), ONE),), extra

    def _shape(self, e: Expr, axes: tuple[str, ...], q: int) -> float:
        """By what the row is made of."""
        match e:
            case Read():
                return self._read(e, axes, q)
            case Apply(op="mul", args=(a, b)):
                return min(self._scaled(a, b, axes, q), self._scaled(b, a, axes, q))
            case Apply(op="div" | "masked_div", args=(a, b)):
                return self._scaled(a, Apply("div", (Number(1), b)), axes, q)
            case Apply(op="add" | "sub", args=(a, b)):
                first = self.norm(a, axes, q)
                return (first ** (1 / q) + self.norm(b, axes, q) ** (1 / q)) ** q if first < INF else INF
            case Apply(op="where", args=(_, a, b)):
                first = self.norm(a, axes, q)
                return first + self.norm(b, axes, q) if first < INF else INF
            case Apply(op=op, args=(a,)) if op in _SHRINK:
                return self.norm(a, axes, q)
            case Apply(op=op, args=(a,)) if op in CASTS and DTYPES[op].kind == "float":
                whole = self.norm(a, axes, q)
                largest = min(self._of(a).magnitude, whole ** (1 / q))
                if not largest <= largest_finite(op):
                    return INF
                u, t = cast_error(op)
                count = 1.0
                for x in axes:
                    count *= self._size(x).hi
                return (whole ** (1 / q) * (1 + u) + t * count ** (1 / q)) ** q if count < INF else INF
        return INF

    def _scaled(self, row: Expr, factor: Expr, axes: tuple[str, ...], q: int) -> float:
        v = self._of(factor)
        if not v.bounded or v.masked or v.infinite:
            return INF
        return _times(self.norm(row, axes, q), v.magnitude**q)

    def _read(self, r: Read, axes: tuple[str, ...], q: int) -> float:
        box = self._unfold.map(r)
        if box is None:
            return INF
        inner = self._unfold.placed(box, r.index, {})
        best = self.norm(inner, axes, q)
        if best < INF:
            return best
        # a row read at other places, no place twice, is a part of the row
        walked = {i: f for i, f in enumerate(r.index) if not set(axes).isdisjoint(f.names)}
        if all(f.bare for f in walked.values()) or sorted(n for f in walked.values() for n in f.names) != sorted(axes):
            return INF
        taken = [*(a for f in r.index for a in f.names), *box.axes]
        names = fresh_axes([box.axes[i] for i in walked], taken)
        index = tuple(Affine.axis(names[box.axes[i]]) if i in walked else f for i, f in enumerate(r.index))
        if any(len(f.names) != 1 for f in walked.values()):
            return INF
        return self.norm(Read(r.array, index), tuple(sorted(names.values())), q)


_FLAT = frozenset({"mul", "div", "masked_div", "neg", "sqrt", "rsqrt"})


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _product(parts: Iterator[Power]) -> Expr | None:
    result: Expr | None = None
    for e, p in parts:
        if p == -1:
            result = Apply("div", (result or Number(1), e))
            continue
        power = e if p == 1 else Apply("pow", (e, Number(int(p) if p.denominator == 1 else float(p))))
        result = power if result is None else Apply("mul", (result, power))
    return result


def _split(f: Form, axes: tuple[str, ...]) -> tuple[Monomial, Form]:
    """The factors free of the axes that all terms share, and the form without them."""
    if not f:
        return Monomial(), ()
    shared: dict[Expr, Fraction] | None = None
    for m, _ in f:
        mine = {a: p for a, p in m.factors if set(axes).isdisjoint(free_axes(a)) and not is_indicator(a)}
        shared = mine if shared is None else {a: p for a, p in shared.items() if mine.get(a) == p}
    outer = make_monomial(shared or {})
    inner = make_form(
        {make_monomial({a: p for a, p in m.factors if a not in (shared or {})}, m.exponent): c for m, c in f}
    )
    return outer, inner


def _ratios(whole: Form, part: Form) -> Iterator[tuple[Monomial, Fraction]]:
    """Terms ``r`` for which ``r * part`` shares its first term with ``whole``, with their coefficients."""
    if not part:
        return
    first, c = part[0]
    for m, k in whole:
        powers = dict(m.factors)
        for a, p in first.factors:
            powers[a] = powers.get(a, Fraction(0)) - p
        if any(is_indicator(a) and p for a, p in powers.items()) or k / c <= 0:
            continue
        yield make_monomial(powers, add(m.exponent, scale(first.exponent, -ONE))), k / c
