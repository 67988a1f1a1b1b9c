"""Expressions with their maps written out, within a budget, and sums brought under one sign.

Over the reals a masked operator is the plain one times an indicator, or plus a mask, of its first
argument: ``masked_div(0, y)`` is 0 and ``masked_sub(-inf, y)`` is -inf, whatever ``y``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

from ioweave.derive.streaming.cascade import at_index, placed
from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    express,
    make_form,
    make_monomial,
    multiply,
)
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.ranges import Interval
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, base_name, source
from ioweave.diagrams.expressions import (
    Apply,
    Expr,
    Number,
    Read,
    Reduce,
    Size,
    children,
    free_axes,
    reads,
    rename_axes,
)

_NODES = 160  # maps are written out while the expression has no more nodes
_BOUND = "@"  # a bound axis is its size's name and one sign more than any axis inside
MINUS_INFINITY = Number(float("-inf"))


def bound_axes(axis: str) -> str:
    """The name whose size an axis has, bound or not."""
    return base_name(axis.rstrip(_BOUND))


def fresh_axes(axes: Iterable[str], inside: Iterable[str]) -> dict[str, str]:
    """New names for bound axes, free of capture by the axes ``inside``; equal for equal sums."""
    deepest = max((a.count(_BOUND) for a in inside), default=0)
    names: dict[str, str] = {}
    for a in sorted(axes):
        name = bound_axes(a) + _BOUND * (deepest + 1)
        while name in names.values():
            name += _BOUND
        names[a] = name
    return names


class Unfold:
    """Forms of expressions with every map written out that the budget allows."""

    def __init__(self, boxes: Mapping[str, Box], of: Callable[[Expr], Interval], canonical: Canonical) -> None:
        self._boxes = boxes
        self._of = of
        self._canonical = canonical
        self._costs: dict[str, int] = {}
        self._inlined: dict[Expr, Expr] = {}
        self._forms: dict[Expr, Form] = {}
        self._supports: dict[str, frozenset[str]] = {}
        self._tells: dict[str, bool] = {}

    def support(self, e: Expr) -> frozenset[str]:
        """The arrays that an expression depends on."""
        found: set[str] = set()
        for r in reads(e):
            box = self._boxes.get(source(r.array))
            found.add(r.array)
            if box is None:
                continue
            if box.name not in self._supports:
                self._supports[box.name] = frozenset()
                self._supports[box.name] = self.support(box.body)
            found |= self._supports[box.name]
        return frozenset(found)

    def settled(self, box: Box) -> bool:
        """Whether a box is what its body says of finished values, at one time."""
        if box.rescale is not None or box.recentre is not None:
            return False
        return all(source(r.array) == r.array for r in box.reads())

    def map(self, r: Read) -> Box | None:
        """The map behind a read that may be written out."""
        box = self._boxes.get(r.array)
        return box if box is not None and box.reduction is None and self.settled(box) else None

    def reduction(self, r: Read) -> Box | None:
        """The finished reduction behind a read."""
        box = self._boxes.get(r.array)
        return box if box is not None and box.reduction is not None and self.settled(box) else None

    def sum_of(self, r: Read) -> Box | None:
        """The finished sum behind a read."""
        box = self.reduction(r)
        return box if box is not None and box.reduction == "sum" else None

    def placed(self, box: Box, index: tuple[Affine, ...], names: Mapping[str, Affine]) -> Expr:
        """The body of a box at an index, its reduced axes at ``names``."""
        return placed(box.body, {**dict(zip(box.axes, index, strict=True)), **names})

    def opened(self, r: Read, box: Box, deepest: Iterable[str] = ()) -> tuple[Expr, tuple[str, ...]]:
        """What a reduction runs over at a read, and its bound axes, named apart from the free ones."""
        inside = [*deepest, *(a for f in r.index for a in f.names), *box.over]
        names = fresh_axes(box.over, inside)
        return self.placed(box, r.index, {a: Affine.axis(n) for a, n in names.items()}), tuple(names.values())

    def inside(self, r: Read) -> tuple[Read, ...]:
        """The reads of a map at the index of a read of it."""
        box = self.map(r)
        return reads(at_index(box, r.index)) if box is not None else ()

    def _cost(self, e: Expr) -> int:
        """Nodes of an expression with its maps written out, as far as the budget goes."""
        if isinstance(e, Read):
            box = self.map(e)
            if box is None:
                return 1
            if e.array not in self._costs:
                self._costs[e.array] = _NODES + 1  # a box may not read itself
                self._costs[e.array] = min(self._cost(box.body), _NODES + 1)
            cost = self._costs[e.array]
            return cost if cost <= _NODES else 1
        return 1 + sum(self._cost(k) for k in children(e))

    def inlined(self, e: Expr) -> Expr:
        """The expression with its maps written out, and masked operators as plain ones with their masks."""
        if e not in self._inlined:
            self._inlined[e] = self._inline(e, _NODES)
        return self._inlined[e]

    def _inline(self, e: Expr, budget: int) -> Expr:
        whole = self._cost(e) <= budget

        def step(n: Expr) -> Expr:
            match n:
                case Read():
                    box = self.map(n)
                    if box is None or self._costs.get(n.array, _NODES + 1) > _NODES or not whole:
                        return n
                    return step(at_index(box, n.index))
                case Apply(op="masked_div", args=(a, b)) if self._may_vanish(a):
                    there = Apply("ne", (a, Number(0)))
                    return Apply("where", (there, Apply("div", (step(a), step(b))), Number(0)))
                case Apply(op="masked_sub", args=(a, b)) if self._of(a).masked:
                    gone = Apply("eq", (a, MINUS_INFINITY))
                    return Apply("where", (gone, MINUS_INFINITY, Apply("sub", (step(a), step(b)))))
                case Apply(op=op, args=args):
                    return Apply(op, tuple(step(a) for a in args))
            return n

        return step(e)

    def _may_vanish(self, e: Expr) -> bool:
        """Whether a value may be 0; an exponential is not, but for a mask."""
        bound = self._of(e)
        if not bound.lo <= 0 <= bound.hi:
            return False
        if isinstance(e, Read):
            box = self.map(e)
            return box is None or self._may_vanish(at_index(box, e.index))
        if isinstance(e, Apply) and e.op in ("exp", "exp2"):
            return self._of(e.args[0]).masked
        if isinstance(e, Apply) and e.op in ("mul", "div", "masked_div"):
            return self._may_vanish(e.args[0]) or (e.op == "mul" and self._may_vanish(e.args[1]))
        return True

    def form(self, e: Expr, replaced: Mapping[Read, Expr] | None = None) -> Form:
        """The normal form of an expression written out; reads in ``replaced`` stand for what it gives."""
        if replaced:
            return self._canonical.form(_replace(self.inlined(e), {r: self.inlined(x) for r, x in replaced.items()}))
        if e not in self._forms:
            self._forms[e] = self._canonical.form(self.inlined(e))
        return self._forms[e]

    def tells(self, e: Expr) -> bool:
        """Whether the shape of an expression may tell more than its parts do."""
        match e:
            case Read(array=array):
                if array not in self._tells:
                    box = self.map(e)
                    self._tells[array] = False
                    self._tells[array] = self.tells(box.body) if box is not None else self.reduction(e) is not None
                return self._tells[array]
            case Apply(op="sub" | "masked_sub"):
                return True
            case _:
                return any(self.tells(k) for k in children(e))

    def exchanged(self, e: Expr, old: Expr, new: Expr) -> Expr:
        """The expression written out with one part for another."""

        def step(n: Expr) -> Expr:
            if self._canonical.canonical(n) == old:
                return new
            return Apply(n.op, tuple(step(a) for a in n.args)) if isinstance(n, Apply) else n

        return step(self.inlined(e))

    def summed_over(self, e: Expr) -> Iterator[tuple[str, ...]]:
        """The axes of the finished sums in an expression."""
        for r in reads(e):
            box = self.sum_of(r)
            if box is not None:
                yield box.over

    def gathered(self, f: Form) -> tuple[tuple[str, ...], Form, Form] | None:
        """Terms that are multiples of sums over axes of equal sizes, as one sum; what is left; None for fewer than 2.

        Gives the bound axes, the form under the sum, and the rest.
        """
        found: dict[tuple[str, ...], list[tuple[Monomial, Fraction, Read, Box]]] = {}
        for m, c in f:
            for a, p in m.factors:
                box = self.sum_of(a) if p == 1 and isinstance(a, Read) else None
                if box is not None and isinstance(a, Read):
                    found.setdefault(tuple(sorted(bound_axes(o) for o in box.over)), []).append((m, c, a, box))
                    break
        group = max(found.values(), key=len, default=[])
        if len(group) < 2:
            return None
        inside = [x for m, _, a, box in group for b, _ in m.factors for x in (*free_axes(b), *box.over)]
        axes: tuple[str, ...] = ()
        total: list[Form] = []
        for m, c, a, box in group:
            body, axes = self.opened(a, box, inside)
            rest = make_monomial({b: p for b, p in m.factors if b != a}, m.exponent)
            total.append(multiply(((rest, c),), self.form(body)))
        gone = {m for m, *_ in group}
        return axes, add(*total), make_form({m: c for m, c in f if m not in gone})

    def summed(self, f: Form, axes: frozenset[str], levels: int = 2) -> Form:
        """``sum`` over the axes of a form, distributed; equal sums get equal atoms."""
        total: list[Form] = []
        for m, c in f:
            inner = {a: p for a, p in m.factors if not axes.isdisjoint(free_axes(a))}
            walks = any(not axes.isdisjoint(free_axes(a)) for a in _atoms(m.exponent))
            outer = make_monomial({a: p for a, p in m.factors if a not in inner}, () if walks else m.exponent)
            body = make_monomial(inner, m.exponent if walks else ())
            if body == UNIT:
                count = ((make_monomial(_powers(Size(bound_axes(a)) for a in axes)), ONE),)
                total.append(multiply(((outer, c),), count))
                continue
            e = express(((body, ONE),))
            names = fresh_axes(axes, _all_axes(e) - axes)
            whole = Reduce("sum", tuple(sorted(names.values())), rename_axes(e, names))
            total.append(multiply(((outer, c),), atom(whole)))
        return self.expanded(add(*total), axes, levels) if levels else add(*total)

    def expanded(self, f: Form, axes: frozenset[str], levels: int = 2) -> Form:
        """A form with finished sums over axes of these sizes distributed, as `summed` writes them."""
        sizes = sorted(bound_axes(a) for a in axes)
        result: list[Form] = []
        for m, c in f:
            term: Form = ((make_monomial({}, m.exponent), c),)
            for a, p in m.factors:
                box = self.sum_of(a) if isinstance(a, Read) and p.denominator == 1 and p > 0 else None
                if box is None or not isinstance(a, Read) or sorted(bound_axes(o) for o in box.over) != sizes:
                    term = multiply(term, atom(a, p))
                    continue
                body, over = self.opened(a, box)
                inner = self.summed(self.form(body), frozenset(over), levels - 1)
                for _ in range(int(p)):
                    term = multiply(term, inner)
            result.append(term)
        return add(*result)


def _replace(e: Expr, replaced: Mapping[Read, Expr]) -> Expr:
    if isinstance(e, Read):
        return replaced.get(e, e)
    if isinstance(e, Apply):
        return Apply(e.op, tuple(_replace(a, replaced) for a in e.args))
    return e


def _atoms(f: Form) -> Iterable[Expr]:
    for m, _ in f:
        for a, _ in m.factors:
            yield a
        yield from _atoms(m.exponent)


def _powers(atoms: Iterable[Expr]) -> dict[Expr, Fraction]:
    powers: dict[Expr, Fraction] = {}
    for a in atoms:
        powers[a] = powers.get(a, Fraction(0)) + ONE
    return powers


def _all_axes(e: Expr) -> set[str]:
    """Every axis of an expression, bound ones included."""
    found = set(free_axes(e))
    todo = [e]
    while todo:
        n = todo.pop()
        if isinstance(n, Reduce):
            found.update(n.axes)
        todo += children(n)
    return found
