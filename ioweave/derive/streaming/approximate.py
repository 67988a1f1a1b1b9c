"""Functions of a weight that stop a single pass, and the polynomials that take their place when that is asked for.

Statement. Let ``p`` be an expression that splits into factors of the axis and factors of unfinished
results, in a proved interval, as a normalised weight is in [0, 1]. A function ``f(p)`` that does not
split, but is analytic on the interval, is replaced by a polynomial: its powers split, so that one
accumulator for each of them serves (`separate`).
Check. The error of each polynomial is proved on the interval (`polynomial`) and carried to every
output (`magnitude`). Nothing here is used unless an error was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ioweave.derive.streaming.budget import budget
from ioweave.derive.streaming.cascade import at_index, inline
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.intervals import Interval, Intervals
from ioweave.derive.streaming.magnitude import Carried, Mark, Uncarried, carried
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.plan import Unrepairable
from ioweave.derive.streaming.polynomial import MOST_MOMENTS, Fitted, Target
from ioweave.derive.streaming.separate import View, split
from ioweave.derive.streaming.series import VARIABLE, NotAnalytic
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.expressions import (
    Apply,
    Constant,
    Expr,
    Number,
    Read,
    children,
    rebuild,
    transform,
)

_CALM = 20.0  # an exponent free of the axis comes out of the weight's function where it is no larger than this
_TINY = 1e-9  # an error by which the way of errors to the outputs is tried
_ROUNDS = 12  # of fewer and fewer errors allowed to the polynomials
_POLYNOMIAL = frozenset({"add", "sub", "masked_sub", "neg", "mul"})


class Unapproximable(Exception):
    """No polynomial can be proved to serve; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place where ``function`` of ``weight`` stands, in the line ``box``; ``weight`` is in ``bounds``."""

    box: str
    weight: Expr
    function: Expr
    bounds: Interval

    @property
    def shown(self) -> str:
        """The function as a formula of the weight."""
        return text(substituted(self.function, self.weight))


@dataclass(frozen=True, slots=True)
class Approximate:
    """A diagram with polynomials in it: ``opened`` is what runs, ``exact`` what it stands for.

    ``sites`` have the polynomials; ``measures`` maps each output to the box of ``measured`` against which
    its error is at most ``errors[output]``; ``measured`` are boxes of the exact diagram.
    """

    opened: Opened
    exact: Opened
    sites: tuple[tuple[Site, Fitted], ...]
    measured: tuple[Box, ...]
    measures: tuple[tuple[str, str], ...]
    errors: tuple[tuple[str, float], ...]

    @property
    def error(self) -> float:
        """The largest error of an output, over its measure."""
        return max((e for _, e in self.errors), default=0.0)


def substituted(f: Expr, value: Expr) -> Expr:
    """A function of `VARIABLE` at a value."""
    return transform(f, lambda n: value if n == VARIABLE else n)


def power_sum(coefficients: tuple[float, ...], weight: Expr) -> Expr:
    """The polynomial of a weight, lowest power first."""
    total: Expr | None = None
    for k, c in enumerate(coefficients):
        if c == 0:
            continue
        power = weight if k == 1 else Apply("pow", (weight, Number(k)))
        term: Expr = Number(c) if k == 0 else Apply("mul", (Number(c), power))
        total = term if total is None else Apply("add", (total, term))
    return Number(0.0) if total is None else total


def approximate(opened: Opened, axis: str, values: Mapping[str, int | float], error: float) -> Approximate:
    """The diagram with every function of a weight that does not split along ``axis`` replaced by a polynomial.

    The degrees are the least, of interpolating polynomials, for which the error proved of every output
    is at most ``error``. Constants have the numbers of ``values``; sizes may be any. Raises
    `Unapproximable` with the reason.
    """
    exact = _with_numbers(opened, values)
    finder = _Finder(exact, axis)
    boxes = finder.marked()
    if not finder.sites:
        raise Unapproximable("no function of one bounded weight stands in the way of a single pass")
    targets = [_target(s) for s in finder.sites]
    _carried(exact, boxes, finder, [replace(t.blank(), error=_TINY) for t in targets])  # whether errors have bounds
    allowed = error
    for _ in range(_ROUNDS):
        fits = [_least(s, t, allowed) for s, t in zip(finder.sites, targets, strict=True)]
        found = _carried(exact, boxes, finder, fits)
        worst = max((found.error(n) for n in exact.outputs), default=0.0)
        if worst <= error:
            return _approximate(exact, boxes, finder, fits, found)
        allowed = max(f.error for f in fits) * error / worst * (1 - 1e-9)
    raise Unapproximable(f"no polynomials were found that leave every output within {error:g}")


def _with_numbers(opened: Opened, values: Mapping[str, int | float]) -> Opened:
    def known(e: Expr) -> Expr:
        return Number(values[e.name]) if isinstance(e, Constant) and e.name in values else e

    return replace(opened, boxes=tuple(replace(b, body=transform(b.body, known)) for b in opened.boxes))


def _target(site: Site) -> Target:
    try:
        return Target(site.function, site.bounds.lo, site.bounds.hi)
    except NotAnalytic as why:
        raise Unapproximable(f"{site.shown} is not analytic for {_place(site)}: {why}") from None


def _place(site: Site) -> str:
    return f"{text(site.weight)} in [{site.bounds.lo:.6g}, {site.bounds.hi:.6g}]"


def _least(site: Site, target: Target, allowed: float) -> Fitted:
    """The polynomial of the lowest degree whose bound is small enough."""
    best = float("inf")
    for degree in range(target.zeros, MOST_MOMENTS + 1):
        coefficients = target.fit(degree)
        best = min(best, target.guess(coefficients))
        if best > allowed:
            continue
        try:
            found = target.prove(coefficients)
        except NotAnalytic as why:
            raise Unapproximable(f"no bound is proved for a polynomial near {site.shown}: {why}") from None
        if found.error <= allowed:
            return found
    raise Unapproximable(
        f"{site.shown} for {_place(site)} needs more than {MOST_MOMENTS} moments for an error of {allowed:.1e}: "
        f"with those it is about {best:.0e}"
    )


def _marks(finder: _Finder, fits: list[Fitted]) -> dict[str, Mark]:
    return {
        _name(k): Mark(substituted(s.function, s.weight), s.weight, f)
        for k, (s, f) in enumerate(zip(finder.sites, fits, strict=True))
    }


def _carried(exact: Opened, boxes: tuple[Box, ...], finder: _Finder, fits: list[Fitted]) -> Carried:
    try:
        return carried(exact, boxes, _marks(finder, fits), finder.intervals)
    except Uncarried as why:
        raise Unapproximable(str(why)) from None


def _approximate(
    exact: Opened, boxes: tuple[Box, ...], finder: _Finder, fits: list[Fitted], found: Carried
) -> Approximate:
    values = {
        _name(k): power_sum(f.coefficients, s.weight) for k, (s, f) in enumerate(zip(finder.sites, fits, strict=True))
    }
    made = tuple(replace(b, body=_unmarked(b.body, values)) for b in boxes)
    measures = tuple((n, found.measure(n)) for n in exact.outputs)
    errors = tuple((n, found.error(n)) for n in exact.outputs)
    sites = tuple(zip(finder.sites, fits, strict=True))
    return Approximate(replace(exact, boxes=made), exact, sites, found.boxes, measures, errors)


def _unmarked(e: Expr, values: Mapping[str, Expr]) -> Expr:
    return transform(e, lambda n: values.get(n.array, n) if isinstance(n, Read) else n)


def _name(k: int) -> str:
    return f"~site{k}"


class _Finder:
    """The functions of weights in the boxes of a diagram, relative to one streamed axis."""

    def __init__(self, opened: Opened, axis: str) -> None:
        self.opened = opened
        self.axis = axis
        self.boxes = {b.name: b for b in opened.boxes}
        self.facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
        self.intervals = Intervals(self.boxes, self.facts, {})
        self.sites: list[Site] = []
        self._here = ""
        self._waiting: set[str] = set()
        for b in opened.boxes:
            if (b.reduction and axis in b.over) or any(r.array in self._waiting for r in b.reads()):
                self._waiting.add(b.name)
        self._view = View(self._waiting.__contains__, frozenset({axis}))
        self._canonical = Canonical(lambda e: not self._view.waits(e), self._nonnegative)
        self._splits: dict[Expr, bool] = {}
        self._known: dict[Expr, tuple[Expr | None, Expr] | None] = {}

    def _nonnegative(self, e: Expr) -> bool:
        bound = self.intervals.of(e)
        return bound.lo >= 0 and not bound.masked

    def marked(self) -> tuple[Box, ...]:
        """The boxes with the read of a site in place of each function; `sites` has them after this."""
        with budget():
            found = []
            for b in self.opened.boxes:
                self._here = b.name
                found.append(replace(b, body=self._visit(b.body)) if b.scan is None else b)
            return tuple(found)

    def _mixed(self, e: Expr) -> bool:
        """Whether a value changes along the axis and waits for results over it."""
        return self._view.waits(e) and self._view.walks(e)

    def _is_map(self, r: Read) -> bool:
        box = self.boxes.get(r.array)
        return box is not None and box.reduction is None and box.scan is None and r.array in self._waiting

    def splits(self, e: Expr) -> bool:
        """Whether every term is a factor of the axis times a factor of unfinished results."""
        known = self._splits.get(e)
        if known is None:
            whole = inline(e, self.boxes, lambda r: self._is_map(r) and self._view.walks(r))
            try:
                for term in self._canonical.form(whole):
                    split(term, self._view)
                known = True
            except Unrepairable:
                known = False
            self._splits[e] = known
        return known

    def _visit(self, e: Expr) -> Expr:
        if not isinstance(e, Apply) or not self._mixed(e) or self.splits(e):
            return e
        apart = self._exponent_apart(e)
        if apart is not None:
            return apart
        found = self.univariate(e)
        if found is not None and found[0] is not None:
            return self._site(found[0], found[1])
        if e.op in ("mul", "div", "masked_div"):
            return self._product(e)
        made = rebuild(e, tuple(self._visit(a) for a in e.args))
        if made == e and all(not self._mixed(a) or self.splits(a) for a in e.args):
            raise Unapproximable(f"{text(e)} is not a function of one weight and numbers alone")
        return made

    def _exponent_apart(self, e: Apply) -> Expr | None:
        """``exp(a - b)`` as ``exp(a) / exp(b)``, ``b`` free of the axis and calm."""
        if e.op not in ("exp", "exp2") or not isinstance(e.args[0], Apply):
            return None
        inner = e.args[0]
        if inner.op not in ("add", "sub", "masked_sub"):
            return None
        a, b = inner.args
        swapped = inner.op == "add" and not self._mixed(a)
        if swapped:
            a, b = b, a
        if not self._mixed(a) or self._view.walks(b) or isinstance(b, Number):
            return None
        bound = self.intervals.of(b)
        weight = self.univariate(a)
        if weight is None or weight[0] is None or not bound.bounded or bound.masked or bound.magnitude > _CALM:
            return None
        front = self._visit(Apply(e.op, (a,)))
        return Apply("mul" if inner.op == "add" else "div", (front, Apply(e.op, (b,))))

    def _product(self, e: Apply) -> Expr:
        """A product: what its factors make of one weight is one function."""
        grouped: dict[Expr, Expr] = {}
        rest: list[tuple[Expr, bool]] = []
        for factor, below in _factors(e):
            found = self.univariate(factor) if self._stands_in_the_way(factor, below) else None
            if found is None or found[0] is None:
                rest.append((self._visit(factor), below))
                continue
            before = grouped.get(found[0], Number(1) if below else None)
            function = found[1] if before is None else Apply("div" if below else "mul", (before, found[1]))
            grouped[found[0]] = function
        total: Expr | None = None
        for weight, function in grouped.items():
            here = self._site(weight, function)
            total = here if total is None else Apply("mul", (total, here))
        for value, below in rest:
            if total is None:
                total = Apply("div", (Number(1), value)) if below else value
            else:
                total = Apply("div" if below else "mul", (total, value))
        assert total is not None
        return total

    def _stands_in_the_way(self, factor: Expr, below: bool) -> bool:
        """Whether a factor is to be approximated here: a line that is read stands for itself where it is made."""
        if not self._mixed(factor):
            return False
        if below:
            return not self.splits(Apply("div", (Number(1), factor)))
        return not isinstance(factor, Read) and not self.splits(factor)

    def univariate(self, e: Expr) -> tuple[Expr | None, Expr] | None:
        """A weight and the function of it that an expression is; no weight for a number, else None."""
        if e not in self._known:
            self._known[e] = self._univariate(e)
        return self._known[e]

    def _univariate(self, e: Expr) -> tuple[Expr | None, Expr] | None:
        if isinstance(e, Number):
            return None, e
        if isinstance(e, Read):
            if not self._mixed(e) or not self._is_map(e):
                return None
            body = at_index(self.boxes[e.array], e.index)
            found = self.univariate(body)
            return (e, VARIABLE) if found is not None and found[1] == VARIABLE and found[0] == body else found
        if not isinstance(e, Apply):
            return None
        parts = [self.univariate(a) for a in e.args]
        known = [p for p in parts if p is not None]
        if len(known) == len(parts):
            weights = list(dict.fromkeys(p[0] for p in known if p[0] is not None))
            function = Apply(e.op, tuple(p[1] for p in known))
            if not weights:
                return None, function
            if len(weights) == 1 and (self._is_polynomial(e, known) or not self.splits(e)):
                return weights[0], function
        return (e, VARIABLE) if self._mixed(e) and self.splits(e) else None

    def _is_polynomial(self, e: Apply, parts: list[tuple[Expr | None, Expr]]) -> bool:
        if e.op in _POLYNOMIAL:
            return True
        if e.op in ("div", "masked_div"):
            return parts[1][0] is None
        power = e.args[1] if e.op == "pow" else None
        return isinstance(power, Number) and power.value == int(power.value) and power.value >= 0

    def _site(self, weight: Expr, function: Expr) -> Expr:
        bounds = self.intervals.of(weight)
        site = Site(self._here, weight, function, bounds)
        if not bounds.bounded or bounds.masked or bounds.infinite:
            raise Unapproximable(f"{site.shown} is a function of {text(weight)}, which has no proved bounds")
        self.sites.append(site)
        return Read(_name(len(self.sites) - 1))


def _factors(e: Expr, below: bool = False) -> Iterator[tuple[Expr, bool]]:
    """The factors of a product, and whether each stands below the line."""
    if isinstance(e, Apply) and e.op == "mul":
        for a in children(e):
            yield from _factors(a, below)
    elif isinstance(e, Apply) and e.op in ("div", "masked_div"):
        yield from _factors(e.args[0], below)
        yield from _factors(e.args[1], not below)
    else:
        yield e, below
