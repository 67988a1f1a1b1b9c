"""Emission: the boxes of a plan written from values alone, with the user's own boxes wherever their value occurs.

The state is what the results' values need and nothing else: one accumulator for each irreducible
reduction over the streamed axes, and the running references of their exponents. It is the plan of
the canonical form, so equal mathematics gets equal passes and equal state, however it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.interchange import Settled
from ioweave.derive.streaming.joined import joined
from ioweave.derive.streaming.normal_form import (
    ONE,
    UNIT,
    Canonical,
    Form,
    Monomial,
    add,
    atom,
    conditions,
    express,
    form_key,
    is_indicator,
    is_mask,
    make_monomial,
    mask,
    may_vanish,
    multiply,
    scale,
)
from ioweave.derive.streaming.plan import Repair, RepairKind, Unrepairable
from ioweave.derive.streaming.rescale import Carried, carried_body, read_of
from ioweave.derive.streaming.separate import form_atoms
from ioweave.derive.streaming.values import Irreducible, Values, axes_used, moved, without
from ioweave.derive.streaming.workshop import Workshop
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, free_axes, reads


class Emission:
    """Writes boxes into ``shop`` for the kept ones among ``boxes``, all from their values."""

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
        self.forms: dict[str, Form] = {}
        self.whole: set[str] = set()

    def run(self) -> None:
        """Write every kept box. Raises `Unrepairable` where a value has no code."""
        waiting = {}
        for name in self.source:
            if name in self.kept and not self.clean(name):
                waiting[name] = self.settled.of(name)
        self.forms = joined(waiting, self.settled)
        for name in self.source:
            self._enter(name)
        self.whole = self._whole_sums()
        for name, box in self.source.items():
            if name in self.forms:
                self._output(box, self.forms[name])
            elif name in self.kept:
                self.use(name)

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

    def _enter(self, name: str) -> None:
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
        if not self.clean(name) or not form:
            return
        lead = form[0][1]
        self._table.setdefault(form_key(scale(form, 1 / lead)), (name, lead))
        if len(form) == 1 and not form[0][0].exponent:
            for a, p in form[0][0].factors:
                if p == 1 and isinstance(a, Read) and a.array in self.values.atoms:
                    rest = make_monomial({e: q for e, q in form[0][0].factors if e != a})
                    self._singles.setdefault(a.array, []).append((name, rest, lead))

    def _whole_sums(self) -> set[str]:
        """Sums that a result divides by, or takes a function of: they may not vanish in rounding."""
        found: set[str] = set()
        todo = list(self.forms.values())
        while todo:
            f = todo.pop()
            for m, _ in f:
                for a, p in m.factors:
                    if isinstance(a, Read) and a.array in self.values.atoms:
                        if p != 1:
                            found.add(a.array)
                    elif isinstance(a, Apply):
                        found |= {r.array for r in reads(a)}
                for e in form_atoms(m.exponent):
                    found |= {r.array for r in reads(e)}
        return found

    # code: forms over boxes that have been written, from forms over values

    def code(self, f: Form) -> Form:
        """The form with irreducible reductions and known parts replaced by reads of boxes."""
        if not f:
            return f
        if self.settled.depth(f) == 0:
            known = self._match(f)
            if known is not None:
                return known
            if len(f) > 1:
                shared, rest = self.values.common(f, ONE)
                known = self._match(rest) if shared != UNIT else None
                if known is not None:
                    return self.plain_product(self._monomial(shared), known)
        return add(*(scale(self._monomial(m), c) for m, c in f))

    def plain_product(self, f: Form, g: Form) -> Form:
        """The product of two forms of code."""
        return multiply(f, g)

    def _match(self, f: Form) -> Form | None:
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

    def _monomial(self, m: Monomial) -> Form:
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
                known = self._match(atom(a))
                if known is not None:
                    return known
            if a.op in ("add", "sub", "mul", "div", "neg"):
                return self.balanced(self.code(self.values.form(a)))  # a sum under a power
            if a.op == "log":
                inside = self.balanced(self.code(self.values.form(a.args[0])))
                return self.plain.logarithm(inside)
            return self.plain.form(Apply(a.op, tuple(self.expression(self.values.form(x)) for x in a.args)))
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
        return express(self.code(f), guarded=self._guarded())

    def balanced(self, f: Form) -> Form:
        """A sum of different exponentials under its largest one, so that none overflows."""
        exponents = list(dict.fromkeys(m.exponent for m, _ in f))
        if len(exponents) < 2:
            return f if len(f) < 2 else atom(express(f, guarded=self._guarded()))
        top: Expr = express(exponents[0])
        for e in exponents[1:]:
            top = Apply("max", (top, express(e)))
        lead = atom(top)
        rest = tuple((Monomial(m.factors, add(m.exponent, scale(lead, -ONE))), c) for m, c in f)
        inside = atom(express(rest, guarded=self._guarded()))
        return ((Monomial(inside[0][0].factors, lead), ONE),)

    def _inside(self, name: str) -> Form:
        """A reduction over other axes: inside the loop, before it, or after it."""
        known = self.values.atoms[name]
        key = (name, 0)
        if key not in self.inner:
            match = self._match(atom(Read(name, tuple(Affine.axis(x) for x in known.axes))))
            if match is None:
                home = self.home(name)
                body = self.expression(known.inner)
                box = Box(
                    self.shop.fresh(f"{home.line}.{known.op}"),
                    self.ordered(known.axes),
                    body,
                    known.op,
                    known.over,
                    home.dtype,
                    home.line,
                )
                match = atom(read_of(self.shop.emit(box)))
            self.inner[key] = match
        return self.inner[key]

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

    # accumulators

    def finish(self, name: str) -> Form:
        """The finished value of a reduction over the streamed axes, in terms of its accumulator."""
        if name not in self.finished:
            known = self.values.atoms[name]
            run = self.settled.depth_of(name)
            if known.op == "sum" and known.inner[0][0].exponent:
                self.finished[name] = self._exponential_sum(known, run)
            else:
                self.finished[name] = self._accumulator(known, run)
        return self.finished[name]

    def _accumulator(self, known: Irreducible, run: int) -> Form:
        """An accumulator that follows nothing; the user's own reduction where it is a multiple of this one."""
        whole = atom(Read(known.name, tuple(Affine.axis(a) for a in known.axes)))
        for box in self.source.values():
            if box.reduction != known.op or self.axes.isdisjoint(box.over):
                continue
            form = self.settled.of(box.name)
            if form == whole:
                return atom(read_of(self._write(box.name, known, self.code(known.inner), run, None)))
            direct = all(self.clean(r.array) for r in box.reads()) and set(box.axes) == set(known.axes)
            if not direct or len(form) != 1 or dict(form[0][0].factors).get(whole[0][0].factors[0][0]) != 1:
                continue
            ratio = ((without(form[0][0], whole[0][0].factors[0][0]), form[0][1]),)
            if self._steady(ratio[0][0]):
                for r in box.reads():
                    self.use(r.array)
                made = self.shop.accumulate(box, run)
                return multiply(atom(read_of(made)), self.plain.power(self.code(ratio), -ONE))
        name = self.shop.fresh(f"{self.home(known.name).line}.acc")
        return atom(read_of(self._write(name, known, self.code(known.inner), run, None)))

    def _steady(self, m: Monomial) -> bool:
        """Whether a factor is known before the loop."""
        return self.settled.depth(((m, ONE),)) == 0 and self.axes.isdisjoint(axes_used(m)) and not m.exponent

    def _write(self, name: str, known: Irreducible, body: Form, run: int, rescale: str | None) -> Box:
        home = self.home(known.name)
        free = name if name not in {b.name for b in self.shop.out} else self.shop.fresh(name)
        box = Box(
            free,
            self.ordered(known.axes),
            express(body, guarded=self._guarded()),
            known.op,
            known.over,
            home.dtype,
            home.line,
            rescale=rescale,
        )
        made = self.shop.accumulate(box, run)
        if made.name == free:
            kind: RepairKind = "none" if rescale is None else "rescale"
            self.shop.repairs.append(Repair(home.name, free, kind))
        return made

    def _exponential_sum(self, known: Irreducible, run: int) -> Form:
        """A sum of terms times one exponential, carried under a reference unless its exponent is bounded."""
        exponent = known.inner[0][0].exponent
        tests = conditions(known.inner[0][0])
        reference, since = self._reference(known, exponent, tests, run)
        if not reference:
            body = self.code(known.inner)
            name = self._named(known, ())
            return atom(read_of(self._write(name, known, body, run, None)))
        held = self._held(known, exponent, tests, reference, run)
        terms: Form = ()
        for m, c in known.inner:
            rest = make_monomial({a: p for a, p in m.factors if not (held[1] and is_indicator(a))})
            terms = add(terms, scale(multiply(self._monomial(rest), atom(read_of(held[0]))), c))
        delta = self.shop.delta(reference, run).name if since == run else None
        box = self._write(self._named(known, reference), known, terms, run, delta)
        if delta is not None:
            self.shop.identities.append(followed(reference))
        return ((Monomial(atom(read_of(box))[0][0].factors, reference), ONE),)

    def _named(self, known: Irreducible, reference: Form) -> str:
        """The name of the user's reduction that the accumulator is, or a new one."""
        whole = atom(Read(known.name, tuple(Affine.axis(a) for a in known.axes)))
        taken = {b.name for b in self.shop.out}
        for box in self.source.values():
            if box.reduction == "sum" and not self.axes.isdisjoint(box.over) and box.name not in taken:
                form = self.settled.of(box.name)
                if len(form) != 1 or dict(form[0][0].factors) != dict(whole[0][0].factors) or form[0][1] != 1:
                    continue
                if self.code(scale(form[0][0].exponent, -ONE)) == reference and box.name not in self.forms:
                    return box.name
        return self.shop.fresh(f"{self.home(known.name).line}.acc")

    def _reference(self, known: Irreducible, exponent: Form, tests: tuple[Expr, ...], run: int) -> tuple[Form, int]:
        """The reference of an exponent, as code, and the pass that it runs in; none where a bound makes it needless."""
        if self.axes.isdisjoint({a for m, _ in exponent for a in axes_used(m)}):
            return (), run
        if self._bounded(known, exponent, tests):
            return (), run
        lead = abs(exponent[0][1])
        shape = scale(exponent, 1 / lead)
        key = (form_key(shape), ";".join(form_key(atom(t)) for t in tests))
        if key not in self.references:
            hidden = add(exponent, *(atom(mask(t)) for t in tests))
            over = tuple(a for a in known.over if any(a in axes_used(m) for m, _ in hidden))
            top = self.settled.form(self.values.reduced("max", over, hidden))
            self.references[key] = scale(self._maximum(known, over, hidden, top, run), 1 / lead), run
        found, since = self.references[key]
        return scale(found, lead), since

    def _maximum(self, known: Irreducible, over: tuple[str, ...], hidden: Form, top: Form, run: int) -> Form:
        """The running maximum of an exponent: one that the results need anyway, the user's own, or a new one."""
        for box in self.source.values():
            direct = box.reduction == "max" and not self.axes.isdisjoint(box.over)
            if direct and self.settled.of(box.name) == top and all(self.clean(r.array) for r in box.reads()):
                for r in box.reads():
                    self.use(r.array)
                made = self.shop.accumulate(box, run)
                self.shop.repairs.append(Repair(box.name, made.name, "none"))
                return atom(read_of(made))
        code = self.exponent(hidden)
        front: Form = ((UNIT, ONE),)
        if len(code) == 1 and code[0][1] > 0 and not code[0][0].exponent:
            front, code = ((UNIT, code[0][1]),), ((code[0][0], ONE),)
        home = self.home(known.name)
        used = {a for m, _ in hidden for a in axes_used(m)} - set(over)
        name = self.shop.fresh(f"{home.line}.max")
        body = express(code, guarded=self._guarded())
        made = self.shop.accumulate(Box(name, self.ordered(tuple(used)), body, "max", over, home.dtype, home.line), run)
        if made.name == name:
            self.shop.repairs.append(Repair(home.name, name, "none", "exponents run under their own maximum"))
        return multiply(front, atom(read_of(made)))

    def _held(
        self, known: Irreducible, exponent: Form, tests: tuple[Expr, ...], reference: Form, run: int
    ) -> tuple[Box, bool]:
        """The box of the carried exponential, and whether it is 0 by itself where a mask hides the term."""
        masked = self._match(add(exponent, *(atom(mask(t)) for t in tests))) if tests else None
        code = masked if masked is not None else self.exponent(exponent)
        key = (form_key(code), form_key(reference), run)
        if key not in self.exponentials:
            home = self.home(known.name)
            body = carried_body(Carried(code, reference, ()), self.shop.is_running(run), {})
            axes = {a for e in (*form_atoms(code), *form_atoms(reference)) for a in free_axes(e)}
            name = self.shop.fresh(f"{home.line}.exp")
            box = Box(name, self.ordered(tuple(axes)), body, None, (), home.dtype, home.line)
            self.exponentials[key] = self.shop.emit(box, run)
        return self.exponentials[key], masked is not None

    def _bounded(self, known: Irreducible, exponent: Form, tests: tuple[Expr, ...]) -> bool:
        """Whether the exponential stays in range: from above, and from below too where its sum may not vanish."""
        return self.shop.in_range(self.exponent(exponent), known.name not in self.whole, self.home(known.name).dtype)

    def _guarded(self) -> frozenset[Expr]:
        return frozenset(read_of(b) for b in self.shop.out if b.running and b.reduction == "sum")

    # results

    def _output(self, box: Box, form: Form) -> None:
        if box.reduction is not None and not self.axes.isdisjoint(box.over) and self._is_accumulator(box, form):
            return
        inside = not self.axes.isdisjoint(box.axes)
        if inside and box.reduction is not None and len(form) == 1 and form[0][1] == 1:
            held = [a for a, p in form[0][0].factors if p == 1 and isinstance(a, Read) and a.array in self.values.atoms]
            if len(form[0][0].factors) == 1 and held and not self.settled.reduces(held[0].array):
                known = self.values.atoms[held[0].array]
                body = self.expression(known.inner)
                self.shop.emit(Box(box.name, box.axes, body, known.op, known.over, box.dtype, box.line))
                return
        code = self.code(form)
        if all(b.name != box.name for b in self.shop.out):
            self.shop.emit(Box(box.name, box.axes, self._tail(code), None, (), box.dtype, box.line))

    def _is_accumulator(self, box: Box, form: Form) -> bool:
        """Whether the result is an accumulator by itself, written under its own name."""
        if len(form) != 1 or form[0][1] != 1 or len(form[0][0].factors) != 1 or form[0][0].exponent:
            return False
        a, p = form[0][0].factors[0]
        if p != 1 or not isinstance(a, Read) or not self.settled.reduces(a.array) or a.array in self.finished:
            return False
        finished = self.finish(a.array)
        return finished == atom(read_of(box))

    def _tail(self, code: Form) -> Expr:
        return express(code, guarded=self._guarded())


def followed(reference: Form) -> str:
    """The identity by which a sum follows a change of the reference of its exponent."""
    return f"exp(s - r') = exp(r - r') * exp(s - r) with r = {text(express(reference))}"
