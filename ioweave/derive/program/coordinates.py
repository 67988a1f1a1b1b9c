"""Coordinates: numbers that tell apart what an index touches, and that share no axis with one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

from ioweave.derive.program.arguments import divided_form, leaves_of, linear, replaced, written
from ioweave.derive.program.spans import Span, of_form
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Expr, Index, free_axes

UNCUT = 1 << 60  # the size of an axis without an end


@dataclass(frozen=True, slots=True)
class Variable:
    """A number that runs over a span, ``shift`` above its true value there: spans start at 0."""

    name: str
    span: Span
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Numbers that tell elements apart, and share no axis with other coordinates.

    A ``value`` is the span of its variable; a ``quotient`` and a ``remainder`` are that divided ``by`` a number;
    a ``tuple`` is what ``exprs`` of the variables give, those outside ``limits`` left out (None: none is).
    ``apart`` are the same expressions of other variables, for tiles on which those of ``variables`` have gaps.
    """

    kind: Literal["value", "quotient", "remainder", "tuple"]
    variables: tuple[Variable, ...]
    by: int = 1
    exprs: tuple[Expr, ...] = ()
    limits: tuple[int, ...] | None = None
    apart: tuple[tuple[Variable, ...], tuple[Expr, ...]] | None = None

    @property
    def span(self) -> Span:
        """The span of its one variable."""
        return self.variables[0].span

    @property
    def axis(self) -> str | None:
        """The axis, where it is nothing but the tile of one."""
        return self.span.bare if self.kind == "value" else None


Key = tuple[tuple[str, int], ...]


def _key(e: Expr) -> Key:
    """A linear form but for its offset, its sign and a common factor: equal ones tell the same indices apart."""
    found = linear(e)
    assert found is not None
    items = sorted(found[0].items())
    factor = gcd(*(c for _, c in items)) * (1 if items[0][1] > 0 else -1)
    return tuple((a, c // factor) for a, c in items)


class Coordinates:
    """Makes coordinates of expressions of the axes of a box."""

    def __init__(self, inner: Mapping[str, Span], sizes: Mapping[str, int]) -> None:
        self.inner, self.sizes = inner, sizes

    def coordinates(self, exprs: Sequence[Expr], limits: tuple[int, ...] | None) -> tuple[Coordinate, ...]:
        """Coordinates that tell the same apart as expressions; ``limits``, if any, belong to all of them."""
        if limits is not None:
            return (self.tuple_of(list(exprs), limits),)
        groups: list[tuple[list[Expr], set[str]]] = []
        for e in self.simple(exprs):
            axes = {t for a in free_axes(e) for t, _ in self.inner[a].axes}
            members = [e]
            for other in [g for g in groups if g[1] & axes]:
                groups.remove(other)
                members, axes = [*other[0], *members], axes | other[1]
            groups.append((members, axes))
        return tuple(c for members, _ in groups for c in self.joined(members))

    def joined(self, members: list[Expr]) -> tuple[Coordinate, ...]:
        """The coordinate of expressions that share axes; none for what never moves."""
        if len(members) == 1:
            return (self.one(members[0]),)
        return (self.tuple_of(members, None),)

    def simple(self, exprs: Sequence[Expr]) -> list[Expr]:
        """Fewer expressions that tell the same apart."""
        result = list(dict.fromkeys(exprs))
        for e in tuple(result):  # a quotient and the remainder beside it are the form itself
            divided = divided_form(e)
            if divided is not None and divided[0] == "floordiv":
                rest = next(
                    (o for o in result if (d := divided_form(o)) and d[0] == "mod" and d[1:] == divided[1:]), None
                )
                if rest is not None:
                    result = [divided[1] if o == e else o for o in result if o != rest]
        forms = dict.fromkeys(_key(e) for e in result if linear(e) is not None)
        if _independent(list(forms)) == len({a for key in forms for a, _ in key}):
            forms = dict.fromkeys(((a, 1),) for key in forms for a, _ in key)  # as many as axes: they tell each apart
        known = {a for key in forms for a, _ in key if len(key) == 1}
        kept = [written(Affine(key)) for key in forms if len(key) == 1 or not {a for a, _ in key} <= known]
        for e in result:
            if linear(e) is None and not set(free_axes(e)) <= known:
                divided = divided_form(e)
                if divided is None or _key(divided[1]) not in forms:
                    kept.append(e)
        return kept

    def exactly(self, exprs: Sequence[Expr], limits: tuple[int, ...]) -> tuple[Coordinate, ...]:
        """Coordinates of the elements at these indices, those out of range left out."""
        simple = all(linear(e) is not None or divided_form(e) is not None for e in exprs)
        if simple and all(self.within(e, n) for e, n in zip(exprs, limits, strict=True)):
            return self.coordinates(exprs, None)
        return self.coordinates(exprs, limits)

    def within(self, e: Expr, size: int) -> bool:
        """Whether a linear form, a quotient or a remainder stays in range on every tile."""
        divided = divided_form(e)
        low, high = self.range(e if divided is None else divided[1])
        if divided is not None and divided[0] == "mod":
            return divided[2] <= size
        by = 1 if divided is None else divided[2]
        return low // by >= 0 and high // by < size

    def range(self, e: Expr) -> tuple[int, int]:
        """The least and the greatest value of a linear form over all tiles."""
        form = linear(e)
        assert form is not None
        low = high = form[1]
        for a, c in form[0].items():
            span = self.inner[a]
            first = max(0, span.low + sum(min(k * (self.sizes[t] - 1), 0) for t, k in span.axes))
            last = min(span.size - 1, span.high + sum(max(k * (self.sizes[t] - 1), 0) for t, k in span.axes))
            low += min(c * first, c * last)
            high += max(c * first, c * last)
        return low, high

    def one(self, e: Expr) -> Coordinate:
        """The coordinate of a linear form, a quotient or a remainder."""
        if linear(e) is not None:
            return Coordinate("value", (self.variable("", e),))
        op, form, by = divided_form(e) or ("", e, 1)
        own, exprs = self.axes_of([e])
        kind: Literal["quotient", "remainder"] = "quotient" if op == "floordiv" else "remainder"
        return Coordinate(kind, (self.variable("", form, by),), by, apart=(own, exprs))

    def variable(self, name: str, e: Expr, by: int = 1) -> Variable:
        """A linear form as a variable; a span that is one already stays as it is."""
        form = linear(e)
        assert form is not None
        axes, offset = form
        ((only, c),) = tuple(axes.items()) if len(axes) == 1 else (("", 0),)
        if c == 1 and offset == 0:
            return Variable(name, self.inner[only])
        shift = -(self.range(e)[0] // by) * by
        span = of_form(Affine.make(axes, {}, offset + shift), self.inner, UNCUT, self.sizes)
        return Variable(name, span, shift)

    def tuple_of(self, exprs: list[Expr], limits: tuple[int, ...] | None) -> Coordinate:
        """The coordinate of expressions taken together: of one linear form, if they are functions of one."""
        own, written_out = self.axes_of(exprs)
        leaves = {x for e in exprs for x in leaves_of(e)}
        if len(leaves) != 1:
            return Coordinate("tuple", own, 1, written_out, limits)
        (leaf,) = leaves
        variable = self.variable("u", leaf)
        functions = tuple(replaced(e, leaf, Index("u")) for e in exprs)
        return Coordinate("tuple", (variable,), 1, functions, limits, (own, written_out))

    def axes_of(self, exprs: Sequence[Expr]) -> tuple[tuple[Variable, ...], tuple[Expr, ...]]:
        """The axes in expressions as variables."""
        names = dict.fromkeys(a for e in exprs for a in free_axes(e))
        return tuple(Variable(a, self.inner[a]) for a in names), tuple(exprs)


def _independent(keys: list[Key]) -> int:
    """How many of some linear forms are independent."""
    names = sorted({a for key in keys for a, _ in key})
    rows = [[dict(key).get(a, 0) for a in names] for key in keys]
    rank = 0
    for column in range(len(names)):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            f, g = rows[r][column], rows[rank][column]
            rows[r] = [x * g - y * f for x, y in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank
