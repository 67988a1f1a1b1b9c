"""How what a scan carries enters the values of a step: affinely, through one extremum, or otherwise.

Statement. Let ``c`` be the values that all scans of a loop carry into an element. A box is affine in
``c`` where its normal form has no product of two values that hold ``c``, no function of one, and no
reduction of one but a sum. Maps ``c -> A c + b`` compose, ``(A2, b2) after (A1, b1) = (A2 A1, A2 b1 + b2)``,
and so do ``c -> max(g c + h, b)`` with ``g > 0``: segments of the axis can be walked apart and joined.
Source. Blelloch, "Prefix sums and their applications" (1990), section 1.4; for extrema the same over the
semiring of max and plus.
Check. Every form is compared with the body on numbers (`gate`); the trial of a plan executes its merge.
Reach. What cancels across reductions is not seen: such a map is called not affine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ioweave.derive.streaming.cascade import inline
from ioweave.derive.streaming.forms import ONE, UNIT, Form, Monomial, add, express
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.gate import Sample, agree
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.parting import without
from ioweave.diagrams.boxes import Box, old, running, source
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, reads
from ioweave.diagrams.groups import before_body, groups, past, prev
from ioweave.diagrams.lists import is_list

ZERO = Number(0)


@dataclass(frozen=True, slots=True)
class Term:
    """``factor * read``: one way in which a value that holds the carry enters a body."""

    factor: Expr
    read: Read


@dataclass(frozen=True, slots=True)
class Linear:
    """A body that is ``rest`` plus its terms; neither ``rest`` nor a factor depends on the carry."""

    terms: tuple[Term, ...]
    rest: Expr


@dataclass(frozen=True, slots=True)
class Extremal:
    """A scan's body that is ``op(scale * before + shift, const)`` with a scale above 0; ``scale`` None for 1."""

    op: str
    scale: Expr | None
    shift: Expr
    const: Expr


@dataclass(frozen=True, slots=True)
class Bent:
    """A body that depends on the carry in another way; ``why`` says of which term."""

    why: str


Dependence = Linear | Extremal | Bent


@dataclass(frozen=True, slots=True)
class Carry:
    """The boxes of a loop that depend on the carry, each with how: those that do not are not named.

    ``scans`` are the names of the scans; ``why`` says why their states have no merge, None where they have.
    """

    scans: tuple[str, ...]
    of: Mapping[str, Dependence]
    why: str | None

    @property
    def linear(self) -> tuple[str, ...]:
        """The scans that are affine in the carry."""
        return tuple(n for n in self.scans if isinstance(self.of.get(n), Linear))


def carry(boxes: Iterable[Box], axis: str, nonnegative: Callable[[Expr], bool]) -> Carry:
    """How the boxes of one loop over ``axis`` depend on what its scans carry; ``nonnegative`` proves signs."""
    body = tuple(boxes)
    found = [g for g in groups(body) if g.axis == axis]
    table = {b.name: b for b in body}
    reader = _Reader(table, axis, frozenset(g.scan.name for g in found), nonnegative)
    of: dict[str, Dependence] = {}
    for b in body:
        made = reader.dependence(b)
        if made is not None:
            of[b.name] = made
    scans = tuple(g.scan.name for g in found)
    why: str | None = None
    for g in found:
        if g.past:
            why = why or f"{g.scan.name} reads all of its earlier elements"
        made = of.get(g.scan.name)
        if isinstance(made, Bent):
            why = why or made.why
    return Carry(scans, of, why)


class _Reader:
    def __init__(
        self, table: Mapping[str, Box], axis: str, scans: frozenset[str], nonnegative: Callable[[Expr], bool]
    ) -> None:
        self._table = table
        self._axis = axis
        self._scans = scans
        self._nonnegative = nonnegative
        self._canonical = Canonical(nonnegative=nonnegative)
        self._moving = {prev(n) for n in scans} | {past(n) for n in scans} | set(scans)
        self._bent: dict[str, str] = {past(n): f"{n} reads all of its earlier elements" for n in scans}
        self._extremal: set[str] = set()

    def dependence(self, b: Box) -> Dependence | None:
        """How a box depends on the carry, given all boxes before it; None where it does not."""
        body = inline(b.body, self._table, lambda r: r.array in self._moving and r.array not in self._scans)
        moving = [r for r in reads(body) if r.array in self._moving]
        follows = [n for n in (b.rescale, b.recentre) if n in self._moving]
        if not moving and not follows:
            return None
        made = self._made(b, body, moving) if not follows else Bent(f"{b.name} follows {follows[0]}")
        self._moving.add(b.name)
        if b.running:
            self._moving |= {running(b.name), old(b.name)}
        if isinstance(made, Bent):
            self._bent[b.name] = made.why
        if isinstance(made, Extremal):
            self._extremal.add(b.name)
        return made

    def _made(self, b: Box, body: Expr, moving: list[Read]) -> Dependence:
        made = self._affine(b, body, moving)
        own = b.scan is not None and b.name in self._scans and all(r.array == prev(b.name) for r in moving)
        if not isinstance(made, Bent) or not own:
            return made
        before = before_body(b)
        ways = (_Extremum(op, before, self._is_moving, self._nonnegative).of(body) for op in ("max", "min"))
        return next((w for w in ways if w is not None), made)

    def _affine(self, b: Box, body: Expr, moving: list[Read]) -> Linear | Bent:
        for r in moving:
            known = self._bent.get(r.array)
            if known is not None:
                return Bent(known)
            if source(r.array) in self._extremal:
                return Bent(f"{b.name} depends on {source(r.array)}, which is an extremum of what it carries")
            if r.array != source(r.array) and source(r.array) not in self._scans:
                return Bent(f"{b.name} depends on the unfinished {source(r.array)}")
            far = self._far(r)
            if far is not None:
                return Bent(f"{b.name} {far}")
        if is_list(b):
            return Bent(f"{b.name} is a list of what depends on {_names(moving)}, which is not affine in it")
        if b.reduction is not None and b.reduction != "sum":
            return Bent(f"{b.name} takes the {b.reduction} of {text(b.body)}, which is not affine in {_names(moving)}")
        form = self._canonical.form(body)
        terms: list[Term] = []
        rest: Form = ()
        for m, c in form:
            made = self._term(m, c)
            if made is None:
                said = f"{b.name} has the term {text(express(((m, c),)))}, which is not affine in {_names(moving)}"
                return Bent(said)
            if isinstance(made, Term):
                terms.append(made)
            else:
                rest = add(rest, made)
        found = Linear(tuple(terms), express(rest))
        if not agree(body, whole(found), Sample(lambda n: self._nonnegative(Read(n)))):
            return Bent(f"{b.name} does not agree with its affine form on numbers")
        return found

    def _is_moving(self, e: Expr) -> bool:
        return any(r.array in self._moving for r in reads(e))

    def _term(self, m: Monomial, c: object) -> Term | Form | None:
        """A monomial as a term of the carry, as one without it, or None where it is not affine in it."""
        from fractions import Fraction

        assert isinstance(c, Fraction)
        held = [(a, p) for a, p in m.factors if self._is_moving(a)]
        if any(self._is_moving(express(((n, ONE),))) for n, _ in m.exponent):
            return None
        if not held:
            return ((m, c),)
        a, p = held[0]
        if len(held) > 1 or p != 1 or not isinstance(a, Read):
            return None
        rest = without(m, a)
        return Term(express(((rest, c),)) if rest != UNIT or c != 1 else Number(1), a)

    def _far(self, r: Read) -> str | None:
        """Why a read along the axis is further back than what is carried; None where it is not."""
        box = self._table.get(r.array)
        if box is None or self._axis not in box.axes:
            return None
        form = r.index[box.axes.index(self._axis)]
        if form.bare == self._axis:
            return None
        scan = box.scan
        one = (1 if scan.backward else -1) if scan is not None else 0
        if one and form.axes == ((self._axis, 1),) and form.offset == one and not form.sizes and not form.lookups:
            return None
        return f"reads {r.array} at {form}: more is carried than the value before"


def whole(found: Linear) -> Expr:
    """A linear body as an expression."""
    total = found.rest
    for t in found.terms:
        total = Apply("add", (total, product_of(t.factor, t.read)))
    return total


def product_of(a: Expr, b: Expr) -> Expr:
    """The product without factors of 1; what a condition hides stays hidden."""
    if isinstance(a, Number) and a.value == 1:
        return b
    if isinstance(b, Number) and b.value == 1:
        return a
    if isinstance(a, Apply) and a.op == "where" and a.args[2] == ZERO:
        return Apply("where", (a.args[0], product_of(a.args[1], b), ZERO))
    return Apply("mul", (a, b))


def _names(moving: list[Read]) -> str:
    return " and ".join(dict.fromkeys(source(r.array) for r in moving))


@dataclass(frozen=True)
class _Extremum:
    """Reads a body as ``op(scale * before + shift, const)``."""

    op: str
    before: Read
    moving: Callable[[Expr], bool]
    nonnegative: Callable[[Expr], bool]

    @property
    def least(self) -> Number:
        """The value that changes no extremum."""
        return Number(float("-inf") if self.op == "max" else float("inf"))

    def of(self, e: Expr) -> Extremal | None:
        """The body so; None where it is no such map."""
        found = self._of(e)
        return None if found is None or found.const == self.least else found

    def _of(self, e: Expr) -> Extremal | None:
        if e == self.before:
            return Extremal(self.op, None, ZERO, self.least)
        if not isinstance(e, Apply):
            return None
        a = e.args
        match e.op:
            case "add" | "sub" if not self.moving(a[1]):
                return self._each(a[0], lambda x: Apply(e.op, (x, a[1])))
            case "add" if not self.moving(a[0]):
                return self._each(a[1], lambda x: Apply("add", (a[0], x)))
            case "mul" | "div" if not self.moving(a[1]) and positive(a[1]):
                return self._scaled(a[0], lambda x: Apply(e.op, (x, a[1])))
            case "mul" if not self.moving(a[0]) and positive(a[0]):
                return self._scaled(a[1], lambda x: Apply("mul", (a[0], x)))
            case "relu" if self.op == "max":
                return self._joined(a[0], ZERO)
            case self.op:
                return self._joined(a[0], a[1])
            case "where" if not self.moving(a[0]):
                return self._where(a[0], a[1], a[2])
        return None

    def _each(self, e: Expr, f: Callable[[Expr], Expr]) -> Extremal | None:
        x = self._of(e)
        return None if x is None else Extremal(self.op, x.scale, _plus(f(x.shift)), self._const(x, f))

    def _scaled(self, e: Expr, f: Callable[[Expr], Expr]) -> Extremal | None:
        x = self._of(e)
        if x is None:
            return None
        shift = ZERO if x.shift == ZERO else f(x.shift)
        return Extremal(self.op, f(x.scale or Number(1)), shift, self._const(x, f))

    def _const(self, x: Extremal, f: Callable[[Expr], Expr]) -> Expr:
        return x.const if x.const == self.least else f(x.const)

    def _joined(self, a: Expr, b: Expr) -> Extremal | None:
        if not self.moving(a):
            a, b = b, a
        x = self._of(a)
        if x is None:
            return None
        if not self.moving(b):
            return Extremal(self.op, x.scale, x.shift, self._larger(x.const, b))
        y = self._of(b)
        if y is None or x.scale != y.scale:
            return None
        return Extremal(self.op, x.scale, self._larger(x.shift, y.shift), self._larger(x.const, y.const))

    def _larger(self, a: Expr, b: Expr) -> Expr:
        if a == self.least or a == b:
            return b
        return a if b == self.least else Apply(self.op, (a, b))

    def _where(self, test: Expr, a: Expr, b: Expr) -> Extremal | None:
        sides = []
        for e in (a, b):
            side = self._of(e) if self.moving(e) else Extremal(self.op, None, self.least, e)
            if side is None:
                return None
            sides.append(side)
        x, y = sides
        one = Number(1)
        scale = None if x.scale == y.scale is None else Apply("where", (test, x.scale or one, y.scale or one))
        shift, const = (Apply("where", (test, *pair)) for pair in ((x.shift, y.shift), (x.const, y.const)))
        return Extremal(self.op, scale, shift, const)


def _plus(e: Expr) -> Expr:
    """A sum without a summand of 0."""
    if isinstance(e, Apply) and e.op == "add" and ZERO in e.args:
        return e.args[0] if e.args[1] == ZERO else e.args[1]
    return e


def positive(e: Expr) -> bool:
    """Whether an expression is above 0 whatever its operands are."""
    if isinstance(e, Number):
        return e.value > 0
    if not isinstance(e, Apply):
        return False
    if e.op in ("exp", "exp2", "sigmoid"):
        return True
    if e.op in ("add", "mul", "div", "min"):
        return all(positive(a) for a in e.args)
    if e.op == "where":
        return all(positive(a) for a in e.args[1:])
    return e.op == "max" and any(positive(a) for a in e.args)
