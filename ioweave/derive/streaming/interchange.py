"""Interchange: a finite sum over another axis leaves the streamed sum, which becomes a larger state.

Statement. ``sum_x b(x) sum_h a(h, r) g(h, x) = sum_h a(h, r) sum_x b(x) g(h, x)``: where ``a`` holds
results that are unfinished while x is walked, the accumulator takes the axis h, and the tail sums
over it (a mix over heads between the weights and the values).
Source. Finite sums commute; weaving a streamable algorithm over h keeps it streamable (Abbott and
Zardini, arXiv 2412.03317, theorem 1). It is done only where fewer passes result.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from ioweave.derive.streaming.cascade import on_reads
from ioweave.derive.streaming.champion import champion_of
from ioweave.derive.streaming.forms import ONE, UNIT, Form, Monomial, add, express, make_monomial, multiply
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.parting import axes_used, moved, parted, without
from ioweave.derive.streaming.separate import monomial_atoms
from ioweave.derive.streaming.values import Irreducible, Values
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.expressions import Apply, Expr, Read, reads


class Settled:
    """The values of a region relative to streamed axes: every sum interchanged that saves a pass."""

    def __init__(self, values: Values, axes: frozenset[str]) -> None:
        self.values = values
        self.axes = axes
        self._depths: dict[str, int] = {}
        self._forms: dict[str, Form] = {}

    def of(self, name: str) -> Form:
        """The settled value of a box."""
        return self.form(self.values.of(name))

    def form(self, f: Form) -> Form:
        """A form with its irreducible reductions settled."""
        return rebuilt(f, self.values, self._atom)

    def reduces(self, name: str) -> bool:
        """Whether an irreducible reduction is over a streamed axis."""
        known = self.values.atoms.get(name)
        return known is not None and not self.axes.isdisjoint(known.over)

    def depth(self, f: Form) -> int:
        """The passes after which a form is known: nested reductions over the streamed axes."""
        return max((self._depth_of(a) for m, _ in f for a in monomial_atoms(m)), default=0)

    def depth_of(self, name: str) -> int:
        """The pass in which an irreducible reduction is finished."""
        if name not in self._depths:
            known = self.values.atoms[name]
            self._depths[name] = self._inner_depth(known) + self.reduces(name)
        return self._depths[name]

    def _inner_depth(self, known: Irreducible) -> int:
        """The depth of a reduction's terms; what only picks the places of an extremum follows it."""
        if known.op != "sum" or not self.reduces(known.name):
            return self.depth(known.inner)
        return max((self.depth(((self.unpicked(m, known.over), ONE),)) for m, _ in known.inner), default=0)

    def unpicked(self, m: Monomial, over: tuple[str, ...]) -> Monomial:
        """A monomial without a factor that picks the places of an extremum, unless it has an exponential too."""
        found = champion_of(m, over, self.values) if not m.exponent else None
        return m if found is None else without(m, found.factor)

    def _depth_of(self, e: Expr) -> int:
        return max((self.depth_of(r.array) for r in reads(e) if r.array in self.values.atoms), default=0)

    def _atom(self, e: Read) -> Form | None:
        """The settled form of one irreducible reduction; None where it stays as it is."""
        if e.array not in self.values.atoms:
            return None
        form = self._irreducible(e.array)
        own = self.values.atoms[e.array].axes
        names = {a: f for a, f in zip(own, e.index, strict=True) if f.bare != a}
        whole = self._whole(e.array)
        if form == whole:
            return None
        return moved(form, names) if names else form

    def _whole(self, name: str) -> Form:
        axes = self.values.atoms[name].axes
        return ((make_monomial({Read(name, tuple(Affine.axis(a) for a in axes)): ONE}), ONE),)

    def _irreducible(self, name: str) -> Form:
        if name not in self._forms:
            known = self.values.atoms[name]
            self._forms[name] = self._whole(name)
            if self.depth_of(name) > 1 or (self.depth_of(name) == 1 and not self.reduces(name)):
                inner = self.form(known.inner)
                if inner != known.inner:
                    self._forms[name] = self.values.reduced(known.op, known.over, inner)
                if known.op == "sum" and self.reduces(name):
                    self._forms[name] = self._opened(known, inner) or self._forms[name]
        return self._forms[name]

    def _opened(self, known: Irreducible, inner: Form) -> Form | None:
        """The sum with the sums inside it, that wait and walk, taken out."""
        total: Form = ()
        found = False
        for m, c in inner:
            part = self._exchanged(known, m) or self._spread(known, m)
            found = found or part is not None
            term = part if part is not None else self.values.reduced("sum", known.over, ((m, ONE),))
            total = add(total, tuple((n, k * c) for n, k in term))
        if not found or self.depth(total) >= self.depth_of(known.name):
            return None
        return total

    def _spread(self, known: Irreducible, m: Monomial) -> Form | None:
        """``sum_{x,h} a(h, r) g(h, x) = sum_h a(h, r) sum_x g(h, x)``, for a factor that waits and does not walk."""
        others = tuple(a for a in known.over if a not in self.axes)
        free, bound = parted(m, self.axes)
        if not others or bound == UNIT or self.depth(((free, ONE),)) == 0:
            return None
        core = self.values.reduced("sum", tuple(a for a in known.over if a in self.axes), ((bound, ONE),))
        return self.form(self.values.reduced("sum", others, multiply(((free, ONE),), core)))

    def _exchanged(self, known: Irreducible, m: Monomial) -> Form | None:
        for a, p in m.factors:
            if p != 1 or not isinstance(a, Read) or a.array not in self.values.atoms:
                continue
            b = self.values.atoms[a.array]
            waits = self.depth_of(a.array) > 0
            if b.op != "sum" or not waits or self.axes.isdisjoint(b.axes):
                continue
            names = {x: f for x, f in zip(b.axes, a.index, strict=True) if f.bare != x}
            taken = {*known.over, *axes_used(m)}
            fresh: dict[str, str] = {}
            for x in b.over:
                new = x
                while new in taken or new in fresh.values():
                    new += "'"
                fresh[x] = new
            body = moved(b.inner, names | {x: Affine.axis(n) for x, n in fresh.items() if n != x})
            rest = Monomial(tuple((e, q) for e, q in m.factors if e != a), m.exponent)
            opened = multiply(((rest, ONE),), body)
            total: Form = ()
            over = tuple(fresh.values())
            for n, k in opened:
                free, bound = parted(n, frozenset(known.over))
                core = self.values.reduced("sum", known.over, ((bound, ONE),)) if bound != UNIT else None
                if core is None:
                    return None
                whole = self.values.reduced("sum", over, multiply(((free, k),), core))
                total = add(total, whole)
            return self.form(total)
        return None


def rebuilt(f: Form, values: Canonical, atom_of: Callable[[Read], Form | None]) -> Form:
    """A form with reads replaced by forms, inside functions too, in normal form again."""

    def one(r: Read) -> Expr:
        new = atom_of(r)
        return r if new is None else express(new)

    total: Form = ()
    for m, c in f:
        plain: dict[Expr, Fraction] = {}
        result: Form = ((UNIT, c),)
        for a, p in m.factors:
            new = None
            if isinstance(a, Read):
                new = atom_of(a)
            elif isinstance(a, Apply):
                changed = on_reads(a, one)
                new = None if changed is a else values.form(changed)
            if new is None:
                plain[a] = p
            else:
                result = multiply(result, values.power(new, p))
        result = multiply(((make_monomial(plain), ONE),), result)
        if m.exponent:
            result = multiply(result, values.exponential(rebuilt(m.exponent, values, atom_of)))
        total = add(total, result)
    return total
