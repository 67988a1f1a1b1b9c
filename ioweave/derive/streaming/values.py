"""Values: what every box computes, as a normal form over inputs and irreducible reductions.

Statement. Maps are written out; a sum is linear, so factors free of its axes come out and each term
that is left is one irreducible sum; factors and summands come out of a maximum or minimum where
that is exact, and powers out of a product. Two boxes of equal value have equal forms, whatever
lines, names or bound axes they were written with: accumulators are told apart by value.
Source. Linearity of the sum and monotone maps through extrema; the exchange of weaves and
reductions of Abbott and Zardini (arXiv 2412.03317, theorem 1).
Reach. Complete for sums of products of powers and exponentials; an expression past ``MAX_TERMS``
terms stays an atom, which can only tell equal values apart, never join different ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import log

from ioweave.derive.streaming.forms import (
    HALF,
    LOG2,
    MAX_TERMS,
    ONE,
    UNIT,
    VANISHING,
    Form,
    Monomial,
    add,
    atom,
    express,
    form_key,
    hides,
    indicator,
    is_indicator,
    is_mask,
    make_form,
    make_monomial,
    multiply,
    scale,
)
from ioweave.derive.streaming.formula import key
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.lists import list_value
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.parting import axes_used, axes_used_form, moved, parted, size_of, without
from ioweave.derive.streaming.rescale import never_negative
from ioweave.derive.streaming.separate import form_atoms
from ioweave.derive.streaming.signs import Signs, nonnegative
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, base_name
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, Size, children, reads, rebuild
from ioweave.diagrams.lists import KEYS, POSITIONS
from ioweave.diagrams.operators import CASTS, PREDICATES

MONOTONE = frozenset({"tanh", "sigmoid", "erf", "exp", "exp2", "relu", "floor", "round", *CASTS})
_FLIP = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_OTHER = {"max": "min", "min": "max"}
_PLAIN = 4096  # the largest denominator of a plain fraction
_LAST_DIGIT = 4.5e-16  # two units in the last place of a float, relative


@dataclass(frozen=True, slots=True)
class Irreducible:
    """A reduction that nothing comes out of: ``op`` over ``over`` of ``inner``; ``axes`` are its own.

    Of a list, ``into`` is the axis of its slots, the last of ``axes``.
    """

    name: str
    op: str
    over: tuple[str, ...]
    axes: tuple[str, ...]
    inner: Form
    nonnegative: bool
    into: str | None = None


class Values(Canonical):
    """The forms of the boxes of one region, each worked out once."""

    def __init__(
        self,
        boxes: Iterable[Box],
        facts: Mapping[str, tuple[str, float]],
        numbers: Mapping[str, int | float] | None = None,
    ) -> None:
        super().__init__(nonnegative=self._nonnegative)
        self._boxes = {b.name: b for b in boxes}
        self._signs = Signs(self._boxes, facts)
        self._numbers = dict(numbers or {})
        self._forms: dict[str, Form] = {}
        self._names: dict[str, str] = {}
        self.atoms: dict[str, Irreducible] = {}

    def known(self, name: str) -> int | float | None:
        """The number of a named constant: an exponent is expanded by it."""
        return self._numbers.get(name)

    def leaf(self, e: Expr) -> Form:
        """An input is an atom; a box is its value."""
        if not isinstance(e, Read):
            return atom(e)
        if e.array in self.atoms:
            return atom(e)
        box = self._boxes.get(e.array)
        if box is None:
            return atom(self._looked_up(e))
        e = self._looked_up(e)
        names = {a: f for a, f in zip(box.axes, e.index, strict=True) if f.bare != a}
        first = box.reduction == KEYS and names.get(box.into or "") == Affine()  # the largest of all
        form = self.reduced("max", box.over, self.form(box.body)) if first else self.of(e.array)
        return moved(form, names) if names else form

    def _looked_up(self, e: Read) -> Read:
        """A read of an input with what it looks up as values."""
        inner = children(e)
        made = rebuild(e, tuple(self.canonical(i) for i in inner)) if inner else e
        assert isinstance(made, Read)
        return made

    def form(self, e: Expr) -> Form:
        """The value of an expression; elementwise extrema in one order."""
        if isinstance(e, Apply) and e.op in ("max", "min"):
            args = sorted(dict.fromkeys(self._flat(e.op, e)), key=key)
            shared, args = self._shared(args)
            result = args[0]
            for a in args[1:]:
                result = Apply(e.op, (result, a))
            return multiply(((shared, ONE),), atom(result) if len(args) > 1 else super().form(result))
        return super().form(e)

    def _shared(self, args: list[Expr]) -> tuple[Monomial, list[Expr]]:
        """The factor that all arguments of an elementwise extremum have and that is never negative, and the rest."""
        forms = [self.form(a) for a in args]
        if len(args) < 2 or any(len(f) != 1 for f in forms):
            return UNIT, args
        shared, _ = self.common(tuple((f[0][0], Fraction(k + 1)) for k, f in enumerate(forms)), HALF)
        if shared == UNIT:
            return UNIT, args
        back = self.power(((shared, ONE),), -ONE)
        return shared, sorted((express(multiply(f, back)) for f in forms), key=key)

    def _flat(self, op: str, e: Expr) -> tuple[Expr, ...]:
        """The arguments of nested extrema of one kind."""
        if isinstance(e, Apply) and e.op == op:
            return tuple(x for a in e.args for x in self._flat(op, a))
        written = self.canonical(e)
        again = isinstance(written, Apply) and written.op == op
        return self._flat(op, written) if again and written != e else (written,)

    def canonical(self, e: Expr) -> Expr:
        """The expression of the value: equal for equal values."""
        return express(self.form(e))

    def __contains__(self, name: object) -> bool:
        return name in self._boxes

    def of(self, name: str) -> Form:
        """The value of a box at its own axes."""
        if name not in self._forms:
            box = self._boxes[name]
            whole = atom(Read(name, tuple(Affine.axis(a) for a in box.axes)))
            self._forms[name] = whole  # stands in for itself while its own parts are worked out
            form = self.value(box)
            self._forms[name] = form if size_of(form) <= MAX_TERMS else whole
        return self._forms[name]

    def value(self, box: Box) -> Form:
        """What a box computes, which need not be one of the region's own."""
        if box.into is not None:
            return list_value(self, box)
        form = self.form(box.body)
        return form if box.reduction is None else self.reduced(box.reduction, box.over, form)

    def reduced(self, op: str, over: tuple[str, ...], form: Form) -> Form:
        """The reduction of a form over axes."""
        match op:
            case "sum":
                return self._sum(over, form)
            case "max" | "min":
                return self._extremum(op, over, form)
            case "prod":
                return self._product(over, form)
            case _:
                return self._decision(op, over, form) or atom(self.irreducible(op, over, form))

    def _decision(self, op: str, over: tuple[str, ...], form: Form) -> Form | None:
        """``all`` and ``any`` of a comparison by the extremum of its sides' difference; None for anything else."""
        if len(form) != 1 or form[0][1] != 1 or form[0][0].exponent or len(form[0][0].factors) != 1:
            return None
        test, p = form[0][0].factors[0]
        if p != 1 or not isinstance(test, Apply) or test.op not in PREDICATES:
            return None
        test = self.predicate(test)
        if not isinstance(test, Apply):
            return None
        if test.op == ("and" if op == "all" else "or"):
            parts = [express(self.reduced(op, over, atom(a))) for a in test.args]
            return atom(self.predicate(Apply(test.op, tuple(parts))))
        if test.op not in ("lt", "le"):
            return None
        left, right = (self.form(a) for a in test.args)
        gap = add(left, scale(right, -ONE))
        still = tuple((m, c) for m, c in gap if set(over).isdisjoint(axes_used(m)))
        walking = tuple(t for t in gap if t not in still)
        if not walking:
            return None
        end = self._extremum("max" if op == "all" else "min", over, walking)
        return atom(Apply(test.op, (express(end), express(scale(still, -ONE)))))

    def _nonnegative(self, e: Expr) -> bool:
        return nonnegative(e, self._array_nonnegative)

    def _array_nonnegative(self, name: str) -> bool:
        return self.atoms[name].nonnegative if name in self.atoms else self._signs.array(name)

    def _sum(self, over: tuple[str, ...], form: Form) -> Form:
        total: Form = ()
        for m, c in self._below(over, form):
            free, bound = parted(m, frozenset(over))
            used = axes_used(bound)
            sizes = [a for a in over if a not in used]
            mine = tuple(a for a in over if a in used)
            front: Form = ((free, c),)
            for a in sizes:
                front = multiply(front, atom(Size(base_name(a))))
            term = front if bound == UNIT else multiply(front, atom(self.irreducible("sum", mine, ((bound, ONE),))))
            total = add(total, term)
        return total

    def _below(self, over: tuple[str, ...], form: Form) -> Form:
        """The terms with ``[s < m]`` as ``1 - [m <= s]`` where m is the extremum of s: those not at its places."""
        total: Form = ()
        for m, c in form:
            if any(p == 1 and self._is_below(a, over, False) for a, p in m.factors):
                continue  # nothing is beyond the extremum
            under = next((a for a, p in m.factors if p == 1 and self._is_below(a, over)), None)
            if under is None or not isinstance(under, Apply):
                total = add(total, ((m, c),))
                continue
            low, high = under.args[0].args if isinstance(under.args[0], Apply) else ()
            at = atom(indicator(Apply("le", (high, low))))
            rest: Form = ((without(m, under), c),)
            total = add(total, rest, scale(multiply(at, rest), -ONE))
        return total

    def _is_below(self, e: Expr, over: tuple[str, ...], inside: bool = True) -> bool:
        """Whether an indicator is of the values short of their extremum, or with ``inside`` False beyond it."""
        test = e.args[0] if isinstance(e, Apply) and is_indicator(e) else None
        if not isinstance(test, Apply) or test.op != "lt":
            return False
        if not any(r.array in self.atoms and self.atoms[r.array].op in _OTHER for r in reads(test)):
            return False
        low, high = (self.form(a) for a in test.args)
        first, last = (low, high) if inside else (high, low)
        return any(
            self.reduced(op, tuple(a for a in over if a in axes_used_form(score)), score) == top
            for op, score, top in (("max", first, last), ("min", last, first))
            if not set(over).isdisjoint(axes_used_form(score))
        )

    def _extremum(self, op: str, over: tuple[str, ...], form: Form) -> Form:
        axes = frozenset(over)
        shift: Form = ()
        walking: list[tuple[Monomial, Monomial, Fraction]] = []
        for m, c in form:
            free, bound = parted(m, axes)
            if bound == UNIT:
                shift = add(shift, ((m, c),))
            else:
                walking.append((free, bound, c))
        if not walking:
            return shift
        plain = [w for w in walking if not _masks(w, op)]
        lead = (plain or walking)[0]
        if any(w[0] != lead[0] for w in plain):
            ends = self._ends(op, over, walking) if len(plain) == len(walking) else None
            return atom(self.irreducible(op, over, form)) if ends is None else add(shift, ends)
        if not self.positive(lead[0]):
            return self._either(op, over, lead[0], shift, walking)
        size = lead[2] if plain else ONE
        # a negative factor turns max into min, and the masks with it
        sign = ONE if size > 0 else -ONE
        inner = make_form({w[1]: w[2] * sign if _masks(w, op) else w[2] / abs(size) * sign for w in walking})
        core = self._core(op if size > 0 else _OTHER[op], over, inner)
        return add(shift, multiply(((lead[0], size),), core))

    def _ends(self, op: str, over: tuple[str, ...], walking: list[tuple[Monomial, Monomial, Fraction]]) -> Form | None:
        """The extremum of a quadratic that opens the right way: at one of the ends of what it is quadratic in."""
        if len(walking) != 2:
            return None
        (a, y2, c), (b, y, d) = sorted(walking, key=lambda w: -sum(p for _, p in w[1].factors))
        doubled = self.power(((y, ONE),), Fraction(2))
        opens = c > 0 if op == "max" else c < 0
        if not opens or not self.positive(a) or doubled != ((y2, ONE),):
            return None

        def at(end: Form) -> Expr:
            return express(add(multiply(((a, c),), self.power(end, Fraction(2))), multiply(((b, d),), end)))

        ends = [at(self._extremum(kind, over, ((y, ONE),))) for kind in ("max", "min")]
        return self.form(Apply(op, (ends[0], ends[1])))

    def _either(
        self,
        op: str,
        over: tuple[str, ...],
        factor: Monomial,
        shift: Form,
        walking: list[tuple[Monomial, Monomial, Fraction]],
    ) -> Form:
        """A factor of unknown sign: the extremum of the rest where it is >= 0, the other one where it is not."""
        if any(_masks(w, op) for w in walking):
            whole = add(*(multiply(((w[0], w[2]),), ((w[1], ONE),)) for w in walking))
            return add(shift, atom(self.irreducible(op, over, whole)))
        rest = make_form({w[1]: w[2] for w in walking})
        unknown = {a: ONE for a, p in factor.factors if not never_negative(a, p, self.nonnegative)}
        test = Apply("lt", (express(((make_monomial(unknown), ONE),)), Number(0)))
        ways = (
            (Apply("not", (test,)), self._extremum(op, over, rest)),
            (test, self._extremum(_OTHER[op], over, rest)),
        )
        front: Form = ((factor, ONE),)
        return add(shift, *(multiply(multiply(atom(indicator(self.predicate(c))), front), f) for c, f in ways))

    def positive(self, m: Monomial) -> bool:
        """Whether a monomial is proved to be >= 0."""
        return all(never_negative(a, p, self.nonnegative) for a, p in m.factors)

    def _core(self, op: str, over: tuple[str, ...], inner: Form) -> Form:
        """An extremum of terms that share no factor: monotone functions come out."""
        if len(inner) == 1:
            m, c = inner[0]
            if m.exponent and not m.factors and c > 0:
                return scale(self.exponential(self._extremum(op, over, m.exponent)), c)
            if not m.exponent and len(m.factors) == 1 and c > 0:
                a, p = m.factors[0]
                if isinstance(a, Apply) and a.op == op and p == 1:
                    both = (express(self._extremum(op, over, self.form(x))) for x in a.args)
                    return scale(atom(Apply(op, tuple(both))), c)
                if isinstance(a, Apply) and a.op == "abs" and op == "max" and p > 0:
                    arg = self.form(a.args[0])
                    if any(set(over).isdisjoint(axes_used(n)) for n, _ in arg):
                        high = express(self._extremum("max", over, arg))
                        low = express(scale(self._extremum("min", over, arg), -ONE))
                        return scale(self.power(self.form(Apply("max", (high, low))), p), c)
                if isinstance(a, Apply) and a.op in MONOTONE and p > 0 and (p == 1 or self.nonnegative(a)):
                    core = self._extremum(op, over, self.form(a.args[0]))
                    return scale(self.power(self.form(Apply(a.op, (express(core),))), p), c)
                if p not in (ONE,) and self.nonnegative(a):
                    core = self._extremum(op if p > 0 else _OTHER[op], over, atom(a))
                    return scale(self.power(core, p), c)
        return atom(self.irreducible(op, over, inner))

    def _product(self, over: tuple[str, ...], form: Form) -> Form:
        if len(form) != 1:
            return atom(self.irreducible("prod", over, form))
        (m, c) = form[0]
        free, bound = parted(m, frozenset(over))
        count: Expr = Number(1)
        for a in over:
            count = Size(base_name(a)) if count == Number(1) else Apply("mul", (count, Size(base_name(a))))
        front = constant_power(free, c, count)
        if front is None:
            return atom(self.irreducible("prod", over, form))
        factors = make_monomial(dict(bound.factors))
        result = front
        if factors != UNIT:
            result = multiply(result, atom(self.irreducible("prod", over, ((factors, ONE),))))
        if bound.exponent:
            result = multiply(result, ((Monomial((), self._sum(over, bound.exponent)), ONE),))
        return result

    def irreducible(self, op: str, over: tuple[str, ...], inner: Form, into: str | None = None) -> Read:
        """The read of the reduction; equal reductions have one name, whatever their axes are called.

        ``into`` is the axis of a list.
        """
        names = {a: f"${base_name(a)}{k or ''}" for k, a in enumerate(sorted(over))}
        renamed = moved(inner, {a: Affine.axis(n) for a, n in names.items()})
        text = f"{op}[{','.join(sorted(names.values()))}]{form_key(renamed)}"
        axes = tuple(sorted(set(axes_used_form(inner)) - set(over)))
        if into is not None:
            text = f"{text}>{base_name(into)}"
            axes = (*axes, into)
        name = self._names.get(text)
        if name is None:
            empty = op == "sum" and any(hides(a) for a in form_atoms(inner))
            name = self._names[text] = f"§{len(self._names)}{VANISHING if empty else ''}"
            sign = op not in ("any", "all") and all(c >= 0 and self.positive(m) for m, c in inner)
            self.atoms[name] = Irreducible(name, op, over, axes, inner, sign or op in ("any", "all", POSITIONS), into)
        return Read(name, tuple(Affine.axis(a) for a in axes))

    def exponential(self, f: Form) -> Form:
        """``exp(f)``; a mask in the exponent hides the term, and log2(e) written as a number undoes log(2)."""
        f = add(*(natural(m, c) for m, c in f))
        masks = [m for m, c in f if c > 0 and not m.exponent and len(m.factors) == 1 and is_mask(m.factors[0][0])]
        if not masks:
            return super().exponential(f)
        result = super().exponential(tuple((m, c) for m, c in f if m not in masks))
        for m in masks:
            shown = m.factors[0][0]
            assert isinstance(shown, Apply)
            result = multiply(atom(indicator(shown.args[0])), result)
        return result

    def _where(self, condition: Expr, a: Expr, b: Expr) -> Form:
        return super()._where(self.predicate(condition), a, b)

    def _compared(self, op: str, left: Form, right: Form) -> Expr:
        """A comparison with 0 without the factors that are above 0: exponentials, and what is divided by."""
        for side, other in ((left, right), (right, left)):
            if not other and len(side) == 1:
                m, c = side[0]
                kept = make_monomial({a: p for a, p in m.factors if p > 0 or not self.nonnegative(a)})
                slim = express(((kept, c),))
                return Apply(op, (slim, Number(0)) if side is left else (Number(0), slim))
        return Apply(op, (express(left), express(right)))

    def predicate(self, e: Expr) -> Expr:
        """A condition in one writing: no ``not`` before a comparison, the smaller side first."""
        if not isinstance(e, Apply):
            return self.canonical(e)
        match e.op:
            case "not":
                inner = self.predicate(e.args[0])
                if isinstance(inner, Apply) and inner.op in _FLIP:
                    return self.predicate(Apply(_FLIP[inner.op], inner.args))
                return inner.args[0] if isinstance(inner, Apply) and inner.op == "not" else Apply("not", (inner,))
            case "and" | "or":
                return Apply(e.op, tuple(sorted((self.predicate(a) for a in e.args), key=key)))
            case "gt" | "ge":
                return self.predicate(Apply({"gt": "lt", "ge": "le"}[e.op], (e.args[1], e.args[0])))
            case "eq" | "ne":
                return Apply(e.op, tuple(sorted((self.canonical(a) for a in e.args), key=key)))
            case "lt" | "le":
                return self._compared(e.op, *(self.form(a) for a in e.args))
            case _:
                return Apply(e.op, tuple(self.canonical(a) for a in e.args))


def natural(m: Monomial, c: Fraction) -> Form:
    """A term of an exponent, where its number times log(2) is a plain fraction to the last digit that fraction."""
    if (LOG2, ONE) in m.factors and c.denominator > _PLAIN:
        value = float(c) * log(2.0)
        plain = Fraction(value).limit_denominator(_PLAIN)
        if plain and abs(float(plain) - value) <= _LAST_DIGIT * abs(value):
            return ((without(m, LOG2), plain),)
    return ((m, c),)


def constant_power(free: Monomial, c: Fraction, count: Expr) -> Form | None:
    """``(c * free)**count`` for a number of terms that is a size; None where a sign is in doubt."""
    if free == UNIT and c == 1:
        return ((UNIT, ONE),)
    base = express(((Monomial(free.factors), c),))
    result = ((UNIT, ONE),) if (free.factors, c) == ((), ONE) else atom(Apply("pow", (base, count)))
    if free.exponent:
        grown = tuple((make_monomial({**dict(m.factors), count: ONE}, m.exponent), k) for m, k in free.exponent)
        if isinstance(count, Apply):
            return None
        result = multiply(result, ((Monomial((), make_form(dict(grown))), ONE),))
    return result


def _masks(term: tuple[Monomial, Monomial, Fraction], op: str) -> bool:
    """Whether a term is 0, or the identity of an extremum where it hides the others."""
    free, bound, c = term
    one = free == UNIT and len(bound.factors) == 1 and not bound.exponent and c == (1 if op == "max" else -1)
    return one and is_mask(bound.factors[0][0])


@lru_cache(maxsize=256)
def values_of(boxes: tuple[Box, ...], given: Given) -> Values:
    """The values of a region, shared by all who ask for the same one."""
    return Values(boxes, dict(given.facts), dict(given.values))
