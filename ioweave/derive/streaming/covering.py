"""Covering: code for values, in which the user's own boxes stand wherever their value occurs.

A form over inputs and irreducible reductions becomes a form over reads of boxes: a known part that some
box of the user's already computes is read from it, an irreducible reduction over other axes gets a box,
and one over the streamed axes its accumulator (`emission`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    express,
    form_key,
    is_indicator,
    is_mask,
    make_monomial,
    may_vanish,
    multiply,
    scale,
)
from ioweave.derive.streaming.interchange import Settled
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.parting import axes_used_form, moved, parted
from ioweave.derive.streaming.plan import Unrepairable
from ioweave.derive.streaming.rescale import read_of
from ioweave.derive.streaming.separate import form_atoms
from ioweave.derive.streaming.values import Values
from ioweave.derive.streaming.workshop import Workshop
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, children, reads, rebuild


class Covering:
    """Writes boxes into ``shop``, with the clean ones among ``boxes`` as they are."""

    def __init__(self, boxes: Mapping[str, Box], kept: frozenset[str], shop: Workshop) -> None:
        self.source = dict(boxes)
        self.kept = kept
        self.shop = shop
        self.axes = shop.passes.axes
        self.values: Values = shop.values
        self.settled = Settled(self.values, self.axes)
        self.plain = Canonical(nonnegative=shop.signs.expression)
        self.order = {a: k for k, a in enumerate(dict.fromkeys(a for b in boxes.values() for a in b.all_axes))}
        self.finished: dict[str, Form] = {}
        self.references: dict[tuple[str, str], tuple[Form, int]] = {}
        self.exponentials: dict[tuple[str, str, int], Box] = {}
        self.inner: dict[tuple[str, int], Form] = {}
        self.homes: dict[str, Box] = {}
        self._clean: dict[str, bool] = {}
        self._table: dict[str, tuple[str, Fraction]] = {}
        self._singles: dict[str, list[tuple[str, Monomial, Fraction]]] = {}
        self._weights: list[tuple[str, Monomial, Fraction]] = []
        self.forms: dict[str, Form] = {}
        self.rows: set[str] = set()  # axes that every result has
        self.whole: set[tuple[str, str]] = set()

    def clean(self, name: str) -> bool:
        """Whether a box is an input, or is made from inputs without a reduction over the streamed axes."""
        if name not in self.source:
            return True
        if name not in self._clean:
            box = self.source[name]
            own = box.reduction is None or self.axes.isdisjoint(box.over)
            self._clean[name] = own and all(self.clean(r.array) for r in box.reads())
        return self._clean[name]

    def use(self, name: str) -> None:
        """Write a clean box of the user's, and what it reads."""
        if name not in self.source or any(b.name == name for b in self.shop.out):
            return
        for r in self.source[name].reads():
            self.use(r.array)
        self.shop.emit(self.source[name])

    def enter(self, name: str) -> None:
        """Remember what a box can stand for, and where each reduction comes from."""
        box = self.source[name]
        if box.reduction is not None and not self.axes.isdisjoint(box.over):
            form = self.settled.of(name)
            for e in form_atoms(form):
                for r in reads(e):
                    if r.array in self.values.atoms:
                        self.homes.setdefault(r.array, box)
            return
        form = self.values.of(name)
        if not self.clean(name) or not form or not set(box.axes) <= set(axes_used_form(form)):
            return  # what is the same along an axis of the box may be needed where that axis is not
        lead = form[0][1]
        self._table.setdefault(form_key(scale(form, 1 / lead)), (name, lead))
        if len(form) == 1 and form[0][0].exponent and self.shop.small(read_of(box)):
            self._weights.append((name, *form[0]))
        if len(form) == 1 and not form[0][0].exponent:
            for a, p in form[0][0].factors:
                if p == 1 and isinstance(a, Read) and a.array in self.values.atoms:
                    rest = make_monomial({e: q for e, q in form[0][0].factors if e != a})
                    self._singles.setdefault(a.array, []).append((name, rest, lead))

    def code(self, f: Form) -> Form:
        """The form with irreducible reductions and known parts replaced by reads of boxes."""
        if not f:
            return f
        if self.settled.depth(f) == 0:
            known = self.match(f)
            if known is not None:
                return known
            if len(f) > 1:
                shared, rest = self.values.common(f, ONE)
                known = self.match(rest) if shared != UNIT else None
                if known is not None:
                    return multiply(self.monomial(shared), known)
        return add(*(scale(self.monomial(m), c) for m, c in f))

    def match(self, f: Form) -> Form | None:
        """A clean box of the user's with this value, up to a number."""
        if len(f) == 1 and len(f[0][0].factors) == 1 and not f[0][0].exponent:
            a, p = f[0][0].factors[0]
            if p == 1 and not (isinstance(a, Read) and a.array in self.values.atoms) and not isinstance(a, Apply):
                return None
        found = self._table.get(form_key(scale(f, 1 / f[0][1]))) if f[0][0] != UNIT or len(f) > 1 else None
        if found is None:
            return None
        name, lead = found
        self.use(name)
        return scale(atom(read_of(self.source[name])), f[0][1] / lead)

    def monomial(self, m: Monomial) -> Form:
        result: Form = ((UNIT, ONE),)
        factors = dict(m.factors)
        for a, p in m.factors:
            if a not in factors or p != 1 or not isinstance(a, Read) or self.settled.depth(atom(a)):
                continue
            single = self._single(a, factors)
            if single is not None:
                name, rest, lead = single
                self.use(name)
                result = scale(multiply(result, atom(read_of(self.source[name]))), 1 / lead)
                del factors[a]
                for e, q in rest.factors:
                    factors[e] -= q
        for a, p in factors.items():
            if p:
                result = multiply(result, self.plain.power(self._atom(a), p))
        if m.exponent:
            result = multiply(result, self.plain.exponential(self.exponent(m.exponent)))
        return result

    def _single(self, a: Read, factors: Mapping[Expr, Fraction]) -> tuple[str, Monomial, Fraction] | None:
        """The user's box that is a reduction times most of the factors at hand."""
        own = self.values.atoms.get(a.array)
        if own is None or a.index != tuple(Affine.axis(x) for x in own.axes):
            return None
        fitting = [s for s in self._singles.get(a.array, ()) if all(factors.get(e) == q for e, q in s[1].factors)]
        return max(fitting, key=lambda s: len(s[1].factors), default=None)

    def exponent(self, e: Form) -> Form:
        """The code of an exponent: its known part may be one box."""
        still = tuple((m, c) for m, c in e if self.settled.depth(((m, ONE),)) == 0)
        rest = tuple((m, c) for m, c in e if (m, c) not in still)
        return add(self.code(still), self.code(rest))

    def _atom(self, a: Expr) -> Form:
        if isinstance(a, Apply):
            if is_indicator(a) or is_mask(a):
                return atom(Apply(a.op, (self._predicate(a.args[0]), *a.args[1:])))
            if self.settled.depth(atom(a)) == 0:
                known = self.match(atom(a))
                if known is not None:
                    return known
            if a.op in ("add", "sub", "mul", "div", "neg"):
                return self.balanced(self.code(self.values.form(a)))  # a sum under a power
            if a.op == "log":
                inside = self.balanced(self.code(self.values.form(a.args[0])))
                return self.plain.logarithm(inside)
            return self.plain.form(Apply(a.op, tuple(self.expression(self.values.form(x)) for x in a.args)))
        if isinstance(a, Read) and children(a):
            found = tuple(self.expression(self.values.form(e)) for e in children(a))
            a = rebuild(a, found)
        if not isinstance(a, Read) or a.array not in self.values.atoms:
            return atom(a)
        own = self.values.atoms[a.array].axes
        names = {x: f for x, f in zip(own, a.index, strict=True) if f.bare != x}
        if not self.axes.isdisjoint(names):
            raise Unrepairable("a value inside the loop is read at another place of it")
        form = self.finish(a.array) if self.settled.reduces(a.array) else self._inside(a.array)
        return moved(form, names) if names else form

    def _predicate(self, e: Expr) -> Expr:
        if isinstance(e, Apply) and e.op in ("and", "or", "not"):
            return Apply(e.op, tuple(self._predicate(a) for a in e.args))
        if isinstance(e, Apply) and e.op == "ne" and may_vanish(e.args[0]) and e.args[1] == Number(0):
            # its accumulator is 0 where it is; the exponential of its reference may not be finite
            held = self.code(self.values.form(e.args[0]))[0][0]
            return Apply("ne", (express(((Monomial(held.factors), ONE),)), Number(0)))
        if isinstance(e, Apply):
            return Apply(e.op, tuple(self.expression(self.values.form(a)) for a in e.args))
        return self.expression(self.values.form(e))

    def expression(self, f: Form) -> Expr:
        """The code of a form as an expression."""
        return express(self.code(f), guarded=self.guarded())

    def balanced(self, f: Form) -> Form:
        """A sum of different exponentials under its largest one, so that none overflows."""
        exponents = list(dict.fromkeys(m.exponent for m, _ in f))
        if len(exponents) < 2:
            return f if len(f) < 2 else atom(express(f, guarded=self.guarded()))
        top: Expr = express(exponents[0])
        for e in exponents[1:]:
            top = Apply("max", (top, express(e)))
        lead = atom(top)
        rest = tuple((Monomial(m.factors, add(m.exponent, scale(lead, -ONE))), c) for m, c in f)
        inside = atom(express(rest, guarded=self.guarded()))
        return ((Monomial(inside[0][0].factors, lead), ONE),)

    def _inside(self, name: str) -> Form:
        """A reduction over other axes: inside the loop, before it, or after it."""
        known = self.values.atoms[name]
        key = (name, 0)
        if key not in self.inner:
            match = self.match(atom(Read(name, tuple(Affine.axis(x) for x in known.axes))))
            if match is None:
                home = self.home(name)
                front, inner = self.freed(self.code(known.inner), frozenset(known.over))
                self._check_inside(inner)
                body = express(inner, guarded=self.guarded())
                box = Box(
                    self.shop.fresh(f"{home.line}.{known.op}"),
                    self.ordered(known.axes),
                    body,
                    known.op,
                    known.over,
                    home.dtype,
                    home.line,
                )
                match = multiply(front, atom(read_of(self.shop.emit(box))))
            self.inner[key] = match
        return self.inner[key]

    def freed(self, code: Form, over: frozenset[str]) -> tuple[Form, Form]:
        """The exponential that every term has and that no summed axis changes, and the terms without it."""
        parts = [parted(m, over) for m, _ in code]
        shared = {free.exponent for free, _ in parts}
        if len(shared) != 1 or not (exponent := shared.pop()):
            return ((UNIT, ONE),), code
        front: Form = ((Monomial((), exponent), ONE),)
        return front, multiply(code, ((Monomial((), scale(exponent, -ONE)), ONE),))

    def _check_inside(self, code: Form) -> None:
        """Raises `Unrepairable` for a new sum inside a step, or after the loop, of exponentials with no bound."""
        for m, _ in code:
            if m.exponent and not self.shop.bounds.bounded(self.shop.full(express(m.exponent))):
                raise Unrepairable("an exponential of a sum over another axis has no bound")

    def finish(self, name: str) -> Form:
        """The finished value of a reduction over the streamed axes. Raises `Unrepairable` where there is none."""
        raise Unrepairable(f"{name} is not finished before the loop")

    def home(self, name: str) -> Box:
        """The user's box that a reduction comes from, for its line and element type."""
        if name in self.homes:
            return self.homes[name]
        known = self.values.atoms[name]
        used = {r.array for e in form_atoms(known.inner) for r in reads(e)}
        for n in used:
            if n in self.homes:
                return self.homes[n]
        return next(b for n, b in reversed(list(self.source.items())) if n in self.kept)

    def ordered(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes in the order in which the user's boxes have them."""
        return tuple(sorted(axes, key=lambda a: self.order.get(a, len(self.order))))

    def guarded(self) -> frozenset[Expr]:
        """Sums that `masked_div` divides by: where every term is masked they are 0."""
        return frozenset(read_of(b) for b in self.shop.out if b.running and b.reduction == "sum")
