"""Emission: the boxes of a plan written from values alone, with the user's own boxes wherever their value occurs.

The state is what the results' values need and nothing else: one accumulator for each irreducible
reduction over the streamed axes, and the running references of their exponents. It is the plan of
the canonical form, so equal mathematics gets equal passes and equal state, however it was written.
"""

from __future__ import annotations

from fractions import Fraction

from ioweave.derive.streaming.champion import Champion, champion_of, kept, stays
from ioweave.derive.streaming.champion import followed as picked
from ioweave.derive.streaming.covering import Covering
from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    conditions,
    express,
    form_key,
    is_indicator,
    make_monomial,
    mask,
    multiply,
    scale,
)
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.joined import joined
from ioweave.derive.streaming.lazy import lazy_reference
from ioweave.derive.streaming.listing import listing
from ioweave.derive.streaming.parting import axes_used, parted, without
from ioweave.derive.streaming.plan import Refusal, Repair, RepairKind, Unrepairable
from ioweave.derive.streaming.rescale import Carried, carried_body, guard, read_of
from ioweave.derive.streaming.separate import form_atoms, is_fixed, monomial_atoms
from ioweave.derive.streaming.values import Irreducible
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Read, free_axes, reads


class Emission(Covering):
    """Writes boxes into ``shop`` for the kept ones among ``boxes``, all from their values."""

    def run(self, tails: bool = False) -> None:
        """Write every kept box; with ``tails`` the user's maps after the loop stay as they are.

        Raises `Unrepairable` where a value has no code.
        """
        after = self.after() if tails else set[str]()
        results = self._results(after)
        self.forms = joined({n: self.settled.of(n) for n in results}, self.settled)
        shared = [set(self.source[n].axes) for n in (*results, *self._reductions(results))]
        self.rows = set.intersection(*shared) if shared else set()
        for name in self.source:
            self.enter(name)
        final = [self.settled.of(n) for n in self.source if n in self.kept and not self.clean(n)]
        self.whole = self._whole_sums([*self.forms.values(), *final])
        for name, box in self.source.items():
            if name in self.forms:
                self._output(box, self.forms[name])
            elif name in after:
                for r in box.reads():
                    if self.clean(r.array):
                        self.use(r.array)
                self.shop.emit(box)
            elif name in self.kept:
                self.use(name)

    def after(self) -> set[str]:
        """The boxes behind the kept ones that run after the loop, on finished results."""
        found: set[str] = set()
        todo = list(self.kept)
        while todo:
            name = todo.pop()
            if name in found or name not in self.source or self.clean(name):
                continue
            box = self.source[name]
            if self.axes.isdisjoint((*box.axes, *box.over)):
                found.add(name)
                todo += [r.array for r in box.reads()]
        return found

    def _reductions(self, results: list[str]) -> list[str]:
        """The user's reductions over the streamed axes behind the results."""
        found: dict[str, None] = {}
        todo, seen = list(results), set[str]()
        while todo:
            name = todo.pop()
            if name in seen or name not in self.source:
                continue
            seen.add(name)
            box = self.source[name]
            if box.reduction is not None and not self.axes.isdisjoint(box.over):
                found[name] = None
            todo += [r.array for r in box.reads()]
        return list(found)

    def _results(self, after: set[str]) -> list[str]:
        """The boxes that have to be written from their values: kept, or read by what runs after the loop."""
        wanted = self.kept | {r.array for n in after for r in self.source[n].reads()}
        return [n for n in self.source if n in wanted and n not in after and not self.clean(n)]

    def _whole_sums(self, forms: list[Form]) -> set[tuple[str, str]]:
        """Sums that a result divides by, or takes a function of: they may not vanish in rounding."""
        found: set[str] = set()
        todo = forms
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
        return {self._shape(self.values.atoms[n]) for n in found if n in self.values.atoms}

    def finish(self, name: str) -> Form:
        """The finished value of a reduction over the streamed axes, in terms of its accumulator."""
        if name not in self.finished:
            known = self.values.atoms[name]
            run = self.settled.depth_of(name)
            if run > 1:
                self._refuse(known)
            if known.into is not None:
                self.finished[name] = listing(self, known, run)
            elif known.op == "sum" and known.inner[0][0].exponent:
                self.finished[name] = self._exponential_sum(known, run)
            elif known.op == "sum" and any(self._champion(known, m) for m, _ in known.inner):
                self.finished[name] = self._champion_sum(known, run)
            else:
                self.finished[name] = self._accumulator(known, run)
        return self.finished[name]

    def _refuse(self, known: Irreducible) -> None:
        """Note why a reduction waits for others: what in its terms depends on them and on the axis at once."""
        waiting = [a for m, _ in known.inner for a in monomial_atoms(m) if self.settled.depth(atom(a))]
        inside = set[str]().union(*(self._behind(r.array) for a in waiting for r in reads(a)))
        waits = tuple(dict.fromkeys(self.home(n).name for n in sorted(inside)))
        home = self.home(known.name)
        why = f"{text(home.body)} depends on both in one term that does not come apart"
        self.shop.refusals.append(Refusal(home.name, why, waits))

    def _behind(self, name: str) -> set[str]:
        """The reductions over the streamed axes that an irreducible one is, or is made from."""
        known = self.values.atoms.get(name)
        if known is None or self.settled.reduces(name):
            return {name} if known is not None else set()
        return set[str]().union(*(self._behind(r.array) for a in form_atoms(known.inner) for r in reads(a)))

    def _accumulator(self, known: Irreducible, run: int) -> Form:
        """An accumulator that follows nothing; the user's own reduction where it is a multiple of this one.

        Raises `Unrepairable` for an exponential under an extremum or a product, which no reference carries.
        """
        for m, _ in known.inner:
            home = self.home(known.name)
            if m.exponent and self.shop.fixed_reference(self.exponent(m.exponent), False, home.dtype) != 0:
                raise Unrepairable(f"an exponential under a {known.op} is not carried")
        whole = atom(Read(known.name, tuple(Affine.axis(a) for a in known.axes)))
        for box in self.source.values():
            if box.reduction != known.op or self.axes.isdisjoint(box.over):
                continue
            form = self.settled.of(box.name)
            if form == whole and set(box.axes) == set(known.axes):
                return atom(read_of(self._write(box.name, known, self.code(known.inner), run, None)))
            direct = all(self.clean(r.array) for r in box.reads()) and set(box.axes) == set(known.axes)
            if not direct or len(form) != 1 or dict(form[0][0].factors).get(whole[0][0].factors[0][0]) != 1:
                continue
            ratio = ((without(form[0][0], whole[0][0].factors[0][0]), form[0][1]),)
            if self.steady(ratio[0][0]):
                for r in box.reads():
                    self.use(r.array)
                made = self.shop.accumulate(box, run)
                return multiply(atom(read_of(made)), self.plain.power(self.code(ratio), -ONE))
        body = self.code(known.inner)
        front: Form = ((UNIT, ONE),)
        if known.op in ("max", "min"):
            front, body = _positive_front(body)
        suffix = "acc" if known.op == "sum" else known.op
        name = self.shop.fresh(f"{self.home(known.name).line}.{suffix}")
        return multiply(front, atom(read_of(self._write(name, known, body, run, None))))

    def steady(self, m: Monomial) -> bool:
        """Whether a factor is known before the loop."""
        return self.settled.depth(((m, ONE),)) == 0 and self.axes.isdisjoint(axes_used(m)) and not m.exponent

    def _write(self, name: str, known: Irreducible, body: Form, run: int, rescale: str | None) -> Box:
        home = self.home(known.name)
        written = {b.name for b in self.shop.out}
        other = name in self.source and set(self.source[name].axes) != set(self._axes(known, home))
        free = name if name not in written and not other else self.shop.fresh(name)
        box = Box(
            free,
            self._axes(known, home),
            express(body, guarded=self.guarded()),
            known.op,
            known.over,
            home.dtype,
            home.line,
            rescale=rescale,
        )
        made = self.shop.accumulate(box, run)
        if made.name == free:
            self.shop.repairs.append(Repair(home.name, free, self._kind(known, home, rescale)))
        return made

    def _kind(self, known: Irreducible, home: Box, rescale: str | None) -> RepairKind:
        """What a reader of the paper calls the repair: several sums for one, several powers of one weight, a factor."""
        sums = [
            self.values.atoms[r.array]
            for e in form_atoms(self.settled.of(home.name))
            for r in reads(e)
            if self.settled.reduces(r.array)
            and self.values.atoms[r.array].op == "sum"
            and self.home(r.array).name == home.name
        ]
        weights = {n.inner[0][0].exponent for n in sums if self._shape(n) == self._shape(known)}
        if known.op == "sum" and len({n.name for n in sums}) > 1:
            return "moments" if known.inner[0][0].exponent and len(weights) > 1 else "separate"
        return "none" if rescale is None else "rescale"

    def _axes(self, known: Irreducible, home: Box) -> tuple[str, ...]:
        """The axes of an accumulator: those of the user's reduction, one value for each of its rows, and its own."""
        plain = known.op == "sum" and not any(m.exponent for m, _ in known.inner)
        rows = {a for a in home.axes if plain and a not in self.axes and a not in known.over and a in self.rows}
        return self.ordered(tuple({*known.axes, *rows}))

    def _exponential_sum(self, known: Irreducible, run: int) -> Form:
        """A sum of terms times one exponential, carried under a reference unless its exponent is bounded."""
        exponent = known.inner[0][0].exponent
        tests = conditions(known.inner[0][0])
        within = self._within(known)
        if within is not None:
            box = self._write(self._named(known, ()), known, within[0], run, None)
            return multiply(within[1], atom(read_of(box)))
        plain = self._as_written(known, run)
        if plain is not None:
            return plain
        reference, since = self._reference(known, exponent, tests, run)
        if not reference:
            return atom(read_of(self._write(self._named(known, ()), known, self.code(known.inner), run, None)))
        held = self._held(known, exponent, tests, reference, run)
        terms: Form = ()
        for m, c in known.inner:
            rest = make_monomial({a: p for a, p in m.factors if not (held[1] and is_indicator(a))})
            terms = add(terms, scale(multiply(self.monomial(rest), atom(read_of(held[0]))), c))
        delta = self.shop.delta(reference, run).name if since == run else None
        box = self._write(self._named(known, reference), known, terms, run, delta)
        if delta is not None:
            self.shop.identities.append(followed(reference))
        return ((Monomial(atom(read_of(box))[0][0].factors, reference), ONE),)

    def _champion(self, known: Irreducible, m: Monomial) -> Champion | None:
        """The factor of a term that picks the places of an extremum which this very pass finds."""
        found = champion_of(m, known.over, self.values)
        return (
            found if found is not None and self.settled.depth(found.top) == self.settled.depth_of(known.name) else None
        )

    def _champion_sum(self, known: Irreducible, run: int) -> Form:
        """A sum over the places of an extremum. Raises `Unrepairable` where its terms pick different ones."""
        found = [self._champion(known, m) for m, _ in known.inner]
        first = found[0]
        if first is None or any(c is None or c.factor != first.factor for c in found):
            raise Unrepairable("its terms pick the places of different extrema")
        top, score = self.code(first.top), self.expression(first.score)
        rest = tuple((without(m, first.factor), c) for m, c in known.inner)
        running = self.shop.is_running(run)
        body = kept(score, top, self.expression(rest), running)
        home = self.home(known.name)
        key = (form_key(top), "", run)
        if key not in self.exponentials:
            axes = {a for e in form_atoms(top) for a in free_axes(e)}
            name = self.shop.fresh(f"{home.line}.stays")
            factor = Box(name, self.ordered(tuple(axes)), stays(top, running), None, (), home.dtype, home.line)
            self.exponentials[key] = self.shop.emit(factor, run)
        self.shop.identities.append(picked(first.op))
        name = self.shop.fresh(f"{home.line}.acc")
        return atom(read_of(self._write(name, known, atom(body), run, self.exponentials[key].name)))

    def _as_written(self, known: Irreducible, run: int) -> Form | None:
        """The user's own reduction, where its terms are bounded and its sum may vanish without harm."""
        if self._shape(known) in self.whole:
            return None
        for box in self.source.values():
            form = self.settled.of(box.name) if box.reduction == "sum" and not self.axes.isdisjoint(box.over) else ()
            if len(form) != 1 or set(box.axes) != set(known.axes) or not all(self.clean(r.array) for r in box.reads()):
                continue
            held = Read(known.name, tuple(Affine.axis(a) for a in known.axes))
            rest = without(form[0][0], held)
            steady = self.settled.depth(((rest, ONE),)) == 0 and self.axes.isdisjoint(axes_used(rest))
            if dict(form[0][0].factors).get(held) == 1 and steady and self.shop.in_reach(box.body):
                for r in box.reads():
                    self.use(r.array)
                made = self.shop.accumulate(box, run)
                back = self.plain.power(self.code(((rest, form[0][1]),)), -ONE)
                return multiply(atom(read_of(made)), back)
        return None

    def _within(self, known: Irreducible) -> tuple[Form, Form] | None:
        """The terms by a bounded map of the user's that holds their exponential, and the factor it lacks; or None."""
        over = frozenset(known.over)
        for name, whole, c in self._weights:
            free, lead = parted(whole, over)
            if any(m.exponent != lead.exponent for m, _ in known.inner):
                continue
            if any(dict(m.factors).get(a) != p for m, _ in known.inner for a, p in lead.factors):
                continue
            self.use(name)
            read = atom(read_of(self.source[name]))
            terms: Form = ()
            for m, k in known.inner:
                rest = make_monomial({a: p for a, p in m.factors if a not in dict(lead.factors)})
                terms = add(terms, scale(multiply(self.monomial(rest), read), k / c))
            return terms, self.plain.power(self.code(((free, ONE),)), -ONE)
        return None

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
        vanishes = self._shape(known) not in self.whole
        fixed = self.shop.fixed_reference(self.exponent(exponent), vanishes, self.home(known.name).dtype)
        if fixed is not None:
            return (((UNIT, fixed),) if fixed else ()), 0
        lead = abs(exponent[0][1])
        key = self._shape(known)
        if key not in self.references:
            hidden = add(exponent, *(atom(mask(t)) for t in tests))
            over = tuple(a for a in known.over if any(a in axes_used(m) for m, _ in hidden))
            found, since = self._maximum(over, hidden, 1 / lead, run)
            if self.shop.given.lazy and since == run:
                found = lazy_reference(found, self.shop.given.lazy)
            self.references[key] = found, since
        found, since = self.references[key]
        return scale(found, lead), since

    def _maximum(self, over: tuple[str, ...], hidden: Form, factor: Fraction, run: int) -> tuple[Form, int]:
        """The maximum of an exponent times a number, as code, and the pass that it runs in.

        It is a multiple of a maximum that other results need too, where there is one, or one of its own.
        """
        top = self.settled.form(self.values.reduced("max", over, hidden))
        reduces = self.settled.reduces
        held = [{r.array for a in monomial_atoms(m) for r in reads(a) if reduces(r.array)} for m, _ in top]
        plain = len([t for t in held if t]) == 1 and (max(map(len, held)) == 1 or self.settled.depth(top) < run)
        if not plain or not self._follows(top):
            top = atom(self.values.irreducible("max", over, hidden))
        self._over_box(over, hidden, top)
        return scale(self.code(top), factor), self.settled.depth(top)

    def _over_box(self, over: tuple[str, ...], hidden: Form, top: Form) -> None:
        """Let a maximum run over a box that the exponent is a multiple of, where no user's maximum will do."""
        factors = [a for a, p in top[0][0].factors if p == 1 and isinstance(a, Read) and self._is_extremum(a.array)]
        code = self.exponent(hidden)
        single = len(code) == 1 and code[0][1] > 0 and not code[0][0].exponent and len(code[0][0].factors) == 1
        if len(top) != 1 or top[0][0].exponent or len(factors) != 1 or not single:
            return
        held = factors[0]
        known = self.values.atoms[held.array]
        own = any(
            b.reduction == known.op
            and all(self.clean(r.array) for r in b.reads())
            and any(r == held for a in form_atoms(self.settled.of(b.name)) for r in reads(a))
            for b in self.source.values()
        )
        read, power = code[0][0].factors[0]
        if own or held.array in self.finished or power != 1 or not isinstance(read, Read) or known.op != "max":
            return
        body: Form = ((code[0][0], ONE),)
        name = self.shop.fresh(f"{self.home(known.name).line}.max")
        made = self._write(name, known, body, self.settled.depth_of(known.name), None)
        rest = ((without(top[0][0], held), top[0][1]),)
        value = scale(atom(read_of(made)), code[0][1])
        self.finished[held.array] = multiply(value, self.plain.power(self.code(rest), -ONE))

    def _is_extremum(self, name: str) -> bool:
        known = self.values.atoms.get(name)
        return known is not None and known.op in ("max", "min")

    def _follows(self, top: Form) -> bool:
        """Whether a maximum is a positive multiple of one, so that it starts from minus infinity as that does."""
        for m, _ in top:
            held = [a for a, p in m.factors if p == 1 and isinstance(a, Read) and self.settled.reduces(a.array)]
            inside = [a for a in monomial_atoms(m) if any(self.settled.reduces(r.array) for r in reads(a))]
            extrema = [a for a in inside if any(self._is_extremum(r.array) for r in reads(a))]
            if any(a not in held for a in extrema):
                return False
            rest = make_monomial({a: p for a, p in m.factors if a not in held})
            if extrema and not self.shop.positive(self.code(((rest, ONE),))):
                return False
        return True

    def _held(
        self, known: Irreducible, exponent: Form, tests: tuple[Expr, ...], reference: Form, run: int
    ) -> tuple[Box, bool]:
        """The box of the carried exponential, and whether it is 0 by itself where a mask hides the term."""
        masked = self.match(add(exponent, *(atom(mask(t)) for t in tests))) if tests else None
        code = masked if masked is not None else self.exponent(exponent)
        key = (form_key(code), form_key(reference), run)
        if key not in self.exponentials:
            home = self.home(known.name)
            body = carried_body(Carried(code, reference, ()), self.shop.is_running(run), {}, self.guarded())
            axes = {a for e in (*form_atoms(code), *form_atoms(reference)) for a in free_axes(e)}
            name = self.shop.fresh(f"{home.line}.exp")
            box = Box(name, self.ordered(tuple(axes)), body, None, (), home.dtype, home.line)
            self.exponentials[key] = self.shop.emit(box, run)
        return self.exponentials[key], masked is not None

    def _shape(self, known: Irreducible) -> tuple[str, str]:
        """What tells exponentials apart that may not share a reference: the exponent up to a number, and the masks."""
        first = known.inner[0][0]
        if not first.exponent:
            return known.name, ""
        shape = scale(first.exponent, 1 / abs(first.exponent[0][1]))
        return form_key(shape), ";".join(form_key(atom(t)) for t in conditions(first))

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
        tops = {b.name for b in self.shop.out if b.running and b.reduction in ("max", "min")}
        return guard(express(code, guarded=self.guarded()), tops.__contains__)


def followed(reference: Form) -> str:
    """The identity by which a sum follows a change of the reference of its exponent."""
    return f"exp(s - r') = exp(r - r') * exp(s - r) with r = {text(express(reference))}"


def _positive_front(f: Form) -> tuple[Form, Form]:
    """A form of one term as a positive number or size times the rest, which an extremum may run over instead."""
    unit: Form = ((UNIT, ONE),)
    if len(f) != 1 or f[0][1] <= 0 or f[0][0].exponent:
        return unit, f
    fixed = {a: p for a, p in f[0][0].factors if is_fixed(a)}
    rest = make_monomial({a: p for a, p in f[0][0].factors if a not in fixed})
    return ((make_monomial(fixed), f[0][1]),), ((rest, ONE),)
