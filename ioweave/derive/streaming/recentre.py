"""Recentre: second moments are carried about the running mean, not as raw sums of products.

Statement. With ``A = sum w f``, ``B = sum w g``, ``W = sum w`` and ``C = sum w (f - A/W)(g - B/W)``,
``sum w f g = C + A B / W``. A tail in which ``A B / W`` cancels against other products of the sums
(a variance, a covariance) loses their common digits; carried as ``C`` it loses none. When a step
changes the means from ``a, b`` to ``a', b'``, ``C' = C + W (a - a')(b - b') + sum w (f - a')(g - b')``
with the old ``W``, the sum over the step's terms. A change of a common factor of the weights
(`rescale`) multiplies the whole bracket before the terms are added. About one mean alone,
``C' = C + B (a - a') + sum w (f - a') g``: so where both would turn a contraction into other work.
Source. Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983 (technical
report 222, 1979), updating formula for two samples; the weights follow from counting repeats.
Check. The products cancel on normal forms of the tail; the gate compares both formulas, and one
step of the updating formula, on numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ioweave.derive.streaming.cascade import Passes, inline, live, on_reads, placed, renamed
from ioweave.derive.streaming.forms import (
    ONE,
    Form,
    Monomial,
    atom,
    express,
    form_key,
    make_monomial,
    multiply,
    product,
)
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.gate import Sample, agree
from ioweave.derive.streaming.job import guarded_divisors
from ioweave.derive.streaming.moments import (
    Moment,
    Nonnegative,
    contracts,
    fresh,
    second_moments,
    terms,
    transparent,
    unscaled,
)
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.plan import Repair
from ioweave.derive.streaming.rescale import read_of
from ioweave.derive.streaming.separate import is_fixed
from ioweave.diagrams.boxes import OLD, RUNNING, Box, base_name, source
from ioweave.diagrams.expressions import (
    Apply,
    Expr,
    Index,
    Number,
    Read,
    Size,
    reads,
    rename_axes,
    transform,
    walk,
)

_LINEAR = frozenset({"add", "sub", "masked_sub", "neg", "mul", "div", "masked_div", "where"})


def recentred(
    boxes: Sequence[Box],
    axes: frozenset[str],
    streamed: frozenset[str],
    kept: frozenset[str],
    nonnegative: Nonnegative,
) -> tuple[list[Box], list[Repair], list[str]]:
    """The boxes with every second moment that a tail takes less its means carried about the running means.

    ``axes`` are those of the accumulators among the ``streamed`` ones; ``kept`` names what is needed
    outside. The repairs name the accumulator replaced as their reduction; the identities are over the
    reals. Boxes are in order of evaluation before and after.
    """
    current = list(boxes)
    repairs: list[Repair] = []
    identities: list[str] = []
    while True:
        found = _once(current, axes, streamed, kept, nonnegative)
        if found is None:
            current = live(_shared(current, kept), kept)
            names = {b.name for b in current}
            return current, [r for r in repairs if r.accumulator in names], identities
        current, more, identity = found
        repairs += more
        identities.append(identity)


def _once(
    boxes: list[Box], axes: frozenset[str], streamed: frozenset[str], kept: frozenset[str], nonnegative: Nonnegative
) -> tuple[list[Box], list[Repair], str] | None:
    """One moment recentred; where none is found, once more with numbers and sizes taken out of the sums."""
    canonical = Canonical(nonnegative=nonnegative)
    tried: list[Box] | None = boxes
    for again in (True, False):
        if tried is None:
            return None
        passes = Passes(axes)
        for b in tried:
            passes.place(b)
        # a running count would run in the first pass, and its partial values be wanted in a later one
        first = [b for b in tried if b.running and passes.when[b.name].run == 1]
        sums = [b for b in first if b.reduction == "sum" and frozenset(b.over) & streamed == axes]
        if len(sums) < 2:
            return None
        for moment in second_moments(sums, tried, passes, streamed, canonical, nonnegative):
            found = _Rewriting(moment, tried, passes, kept, streamed, canonical).result()
            if found is not None:
                return found[0], [*_taken_out(boxes, tried), *found[1]], found[2]
        tried = unscaled(sums, tried, passes, canonical) if again else None
    return None


def _taken_out(before: list[Box], after: list[Box]) -> list[Repair]:
    """The repairs of sums that numbers and sizes were taken out of."""
    names = {b.name for b in before}
    behind = {r.array: b.name for b in after if b.reduction is None for r in b.reads() if r.array not in names}
    return [Repair(behind[b.name], b.name, "separate") for b in after if b.name not in names and b.running]


class _Rewriting:
    """One second moment tried: the tail with ``square`` as ``centred + left * right / weight``; used once."""

    def __init__(
        self,
        moment: Moment,
        boxes: list[Box],
        passes: Passes,
        kept: frozenset[str],
        streamed: frozenset[str],
        canonical: Canonical,
    ) -> None:
        self.moment, self.boxes, self.passes, self.kept = moment, boxes, passes, kept
        self.streamed, self.canonical = streamed, canonical
        self.names = {b.name for b in boxes}
        c = moment.square
        self.centred = replace(c, name=fresh(f"{c.line}.centred", self.names))
        a, b = read_of(moment.left), read_of(moment.right)
        between = Apply("pow", (a, Number(2))) if a == b else Apply("mul", (a, b))
        self.between: Expr = Apply("div" if moment.unit else "masked_div", (between, self.total()))
        body = Apply("add", (read_of(self.centred), self.between))
        self.raw = Box(c.name, c.axes, body, None, (), c.dtype, c.line)
        outside = {x.name: x for x in boxes if x.reduction is None and not passes.when[x.name].inside}
        self.table: dict[str, Box] = {**outside, c.name: self.raw, **self.equal_values()}

    def total(self) -> Expr:
        """The whole weight, after the loop."""
        if self.moment.unit:
            return product(Size(base_name(a)) for a in self.moment.square.over)
        return read_of(self.moment.weight)

    def equal_values(self) -> dict[str, Box]:
        """Sums known by fewer axes, by their sizes, or as the weight: as maps of what they are equal to."""
        found: dict[str, Box] = {}
        weight = self.moment.weight
        known: dict[object, Box] = {} if self.moment.unit else {self.value_key(weight): weight}
        for b in sorted((b for b in self.boxes if b.reduction == "sum"), key=lambda b: len(b.axes)):
            if b.recentre is not None or b.name in (self.moment.square.name, weight.name):
                continue
            value: Expr | None = None
            if is_fixed(b.body):
                value = product((b.body, *(Size(base_name(a)) for a in b.over)))
            else:
                twin = known.setdefault(self.value_key(b), b)
                value = read_of(twin) if twin is not b and set(twin.axes) <= set(b.axes) else None
                if value is not None and twin is not weight and self.run_of(twin) > self.run_of(self.moment.square):
                    value = None  # not there yet where the moment is read
            if value is not None:
                found[b.name] = Box(b.name, b.axes, value, None, (), b.dtype, b.line)
        return found

    def run_of(self, b: Box) -> int:
        """The pass that finishes a sum."""
        return self.passes.when[b.name].run

    def value_key(self, b: Box) -> object:
        """What tells the finished values of sums apart: their terms, with the reduced axes renamed by their sizes."""
        names = {a: f"{base_name(a)}.{i}" for i, a in enumerate(sorted(b.over, key=base_name))}
        return form_key(self.canonical.form(rename_axes(b.body, names))), tuple(sorted(names.values())), b.rescale

    def result(self) -> tuple[list[Box], list[Repair], str] | None:
        """The boxes rewritten; None if the products of the means cancel nowhere, or the gate says no."""
        self.waits = {self.moment.square.name}  # what is still a raw moment
        self.gained = False
        rewritten: dict[str, Box] = {}
        for b in self.boxes:
            if not any(r.array in self.waits for r in b.reads()):
                continue
            body, clean = self.rewrite(b.body)
            rewritten[b.name] = new = replace(b, body=body)
            if b.name in self.table:
                self.table[b.name] = new
                if not clean:
                    self.waits.add(b.name)
        if not self.gained:
            return None
        made = self.written()
        return None if made is None else self.assembled(rewritten, made)

    def full(self, e: Expr) -> Expr:
        """The expression with the maps outside the loop written out, down to accumulators."""
        e = inline(e, self.table, lambda r: r.array in self.table)
        return transform(e, self.unmasked)

    def unmasked(self, e: Expr) -> Expr:
        """``where(a != 0, v, 0)`` as ``v``, where every term of v has a factor that is 0 with a."""
        if not (isinstance(e, Apply) and e.op == "where" and e.args[2] == Number(0)):
            return e
        test = e.args[0]
        if not (isinstance(test, Apply) and test.op == "ne" and test.args[1] == Number(0)):
            return e
        a = test.args[0]
        gone = {a}
        if a == self.total():  # weights are not negative: with their sum 0 all are
            gone |= {read_of(self.moment.left), read_of(self.moment.right)}
        form = self.canonical.form(e.args[1])
        return e.args[1] if all(any(p > 0 and x in gone for x, p in m.factors) for m, _ in form) else e

    def rewrite(self, e: Expr, root: bool = True, able: bool = False) -> tuple[Expr, bool]:
        """The expression in terms of the centred moment, and whether no product of means is left beside it.

        Where the products cancel in a whole sum of products (a body, or the argument of a function: a
        ``root``), the smallest of its parts in which they do are written anew; the rest stays as it was.
        """
        if not any(isinstance(n, Read) and n.array in self.waits for n in walk(e)):
            return e, True
        if not isinstance(e, Apply):
            return inline(e, {self.raw.name: self.raw}, lambda r: r.array == self.raw.name), False
        written = self.full(e)
        form = self.canonical.form(written) if root or able else ()
        able = self.clean(form) if root else able
        parts = [self.rewrite(a, e.op not in _LINEAR, able) for a in e.args]
        if all(clean for _, clean in parts):
            return Apply(e.op, tuple(x for x, _ in parts)), True
        if able and (root or self.clean(form)):
            order = {n: i for i, n in enumerate(dict.fromkeys(walk(written)))}
            new = express(form, order, guarded_divisors(written, self.canonical))
            if agree(written, new, Sample(self.positive)):
                self.gained = True
                return new, True
        return Apply(e.op, tuple(x for x, _ in parts)), False

    def positive(self, name: str) -> bool:
        """Whether an array is never negative, for the gate: weights, and squares about their mean."""
        if name == self.centred.name:
            return self.moment.left is self.moment.right
        return name == self.moment.weight.name or self.canonical.nonnegative(Read(name.split("#")[0]))

    def clean(self, form: Form) -> bool:
        """Whether the centred moment is there, and nowhere beside the product of the means that makes it raw."""
        seen = False
        for context in self.contexts(form):
            terms = dict(context)
            for m in terms:
                for a, p in m.factors:
                    if not isinstance(a, Read) or a.array != self.centred.name:
                        continue
                    seen = True
                    if p > 0 and p.denominator == 1:
                        at = dict(zip(self.centred.axes, a.index, strict=True))
                        rest = make_monomial({**dict(m.factors), a: p - 1} if p > 1 else _less(m, a), m.exponent)
                        between = self.canonical.form(placed(self.between, at))
                        if any(x in terms for x, _ in multiply(((rest, ONE),), between)):
                            return False
        return seen

    def contexts(self, form: Form) -> Iterator[Form]:
        """The form, and those of the arguments of its atoms and of its exponents."""
        yield form
        for m, _ in form:
            if m.exponent:
                yield from self.contexts(m.exponent)
            for a, _ in m.factors:
                if isinstance(a, Apply):
                    inner = self.canonical.form(a)
                    if inner != atom(a):
                        yield from self.contexts(inner)
                        continue
                    for x in a.args:
                        yield from self.contexts(self.canonical.form(x))

    def written(self) -> list[Box] | None:
        """The boxes of the centred moment, the one itself last; None where its terms cannot be had, or differ."""
        moment, weight = self.moment, self.moment.weight
        found = terms(moment, self.in_loop())
        if found is None:
            return None
        made = [] if weight.name in self.names else [weight]
        f, g, times = found
        same = moment.left is moment.right
        means = [self.mean(moment.left), *([] if same else [self.mean(moment.right)])]
        made += [m for m in means if m.name not in self.names]
        left = Apply("sub", (f, read_of(means[0])))
        if same:
            bodies = [(times(Apply("pow", (left, Number(2)))), (True, True))]
        else:
            right = Apply("sub", (g, read_of(means[1])))
            sides = ((left, right), (left, g), (f, right))
            which = ((True, True), (True, False), (False, True))
            bodies = [(times(Apply("mul", s)), w) for s, w in zip(sides, which, strict=True)]
        c = self.centred
        body, moves = bodies[0]
        if contracts(moment.square.body, c.axes):  # about one mean it is C too, and may stay a contraction
            body, moves = next((b for b in bodies if contracts(b[0], c.axes)), bodies[0])
        step, more = self.moved(means, moves)
        made = [b for b in made if b in (*means, weight)]
        made += [*more, step, replace(c, body=body, recentre=step.name)]
        self.means = {m.name: letter for m, letter in zip(means, "ab", strict=False)}
        return made if self.holds(made) else None

    def mean(self, a: Box) -> Box:
        """The box of the running mean of an accumulator's terms, there already or new."""
        weight = self.moment.weight
        axes = tuple(x for x in self.moment.square.axes if x in a.axes or x in weight.axes)
        body = Apply("masked_div", (now(a), now(weight)))
        for b in self.boxes:
            if b.body == body and b.reduction is None and set(b.axes) == set(axes) and b.dtype == a.dtype:
                return b
        return Box(fresh(f"{a.name}.mean", self.names), axes, body, None, (), a.dtype, self.moment.square.line)

    def moved(self, means: list[Box], moves: tuple[bool, bool]) -> tuple[Box, list[Box]]:
        """The box of ``W (a - a')(b - b')``, and those of changes of means that have fewer axes.

        About the mean of f alone it is ``B (a - a')``: W, B and the means without a prime are those
        before the step.
        """
        moment, weight, c = self.moment, self.moment.weight, self.centred
        more: list[Box] = []

        def change(a: Box, mean: Box) -> Expr:
            body = Apply("sub", (Apply("masked_div", (before(a), before(weight))), read_of(mean)))
            if set(mean.axes) == set(c.axes):
                return body
            box = Box(fresh(f"{a.name}.moved", self.names), mean.axes, body, None, (), a.dtype, c.line)
            more.append(box)
            return read_of(box)

        if moment.left is moment.right:
            body = Apply("mul", (before(weight), Apply("pow", (change(moment.left, means[0]), Number(2)))))
        elif moves == (True, True):
            changes = (change(moment.left, means[0]), change(moment.right, means[1]))
            body = Apply("mul", (Apply("mul", (before(weight), changes[0])), changes[1]))
        elif moves == (True, False):
            body = Apply("mul", (before(moment.right), change(moment.left, means[0])))
        else:
            body = Apply("mul", (before(moment.left), change(moment.right, means[1])))
        return Box(fresh(f"{c.name}.recentre", self.names), c.axes, body, None, (), c.dtype, c.line), more

    def in_loop(self) -> dict[str, Box]:
        """The maps of the loop."""
        return {b.name: b for b in self.boxes if b.reduction is None and self.passes.when[b.name].inside}

    def holds(self, made: list[Box]) -> bool:
        """The gate: one step of the updating formula, from two terms to three, against raw sums of three terms."""
        moment, c = self.moment, made[-1]
        maps = {**self.in_loop(), **{b.name: b for b in made[:-1]}}

        def value(e: Expr) -> Expr:
            e = inline(e, maps, lambda r: r.array not in self.names or transparent(r, maps))
            return on_reads(e, lambda r: sums.get(r.array, r))

        def term(e: Expr, i: int) -> Expr:
            return _at(inline(e, maps, lambda r: r.array not in self.names or transparent(r, maps)), i, c.over)

        def added(b: Box, n: int) -> Expr:
            body = Number(1) if moment.unit and b is moment.weight else b.body
            total = term(body, 0)
            for i in range(1, n):
                total = Apply("add", (total, term(body, i)))
            return total

        parts = (moment.left, moment.right, moment.weight)
        sums: dict[str, Expr] = {now(b).array: added(b, 3) for b in parts}
        sums |= {before(b).array: added(b, 2) for b in parts}

        def centred(n: int, form: Callable[[Box], Read]) -> Expr:
            left, right, weight = (sums[form(b).array] for b in parts)
            between = Apply("masked_div", (Apply("mul", (left, right)), weight))
            return Apply("sub", (added(moment.square, n), between))

        step = on_reads(term(c.body, 2), lambda r: sums.get(r.array, r))
        updated = Apply("add", (Apply("add", (centred(2, before), value(made[-2].body))), step))
        return agree(centred(3, now), updated, Sample(self.positive))

    def assembled(self, rewritten: Mapping[str, Box], made: list[Box]) -> tuple[list[Box], list[Repair], str]:
        """All boxes in order, what repairs the new accumulators, and the identity that they rest on."""
        moment = self.moment
        parts = (moment.square.name, moment.left.name, moment.right.name, moment.weight.name)
        last = max(i for i, b in enumerate(self.boxes) if b.name in parts)
        head = [rewritten.get(b.name, b) for b in self.boxes[: last + 1] if b.name != moment.square.name]
        tail = [rewritten.get(b.name, b) for b in self.boxes[last + 1 :]]
        raw = [self.raw] if self.raw.name in self.kept else []
        boxes = live(_ordered([*head, *made, *raw, *tail]), self.kept)
        boxes, name = _named(boxes, self.centred.name, self.kept)
        centred = on_reads(made[-1].body, lambda r: Read(self.means.get(r.array, r.array), r.index))
        identity = _identity(moment, centred, self.between)
        repairs = [Repair(moment.square.name, name, "moments", identity)]
        if moment.weight.name not in self.names:
            repairs.insert(0, Repair(moment.square.name, moment.weight.name, "none"))
        return boxes, repairs, identity


def _identity(moment: Moment, centred: Expr, between: Expr) -> str:
    """``sum(w f g) = sum(w (f - a)(g - b)) + A B / W``, with the accumulators by their names."""
    assert isinstance(between, Apply)
    parts = dict.fromkeys((moment.left.name, moment.right.name))
    means = (text(Apply("div", (Read(n), between.args[1]))) for n in parts)
    used = {r.array for r in reads(centred)}
    said = ", ".join(f"{letter} = {m}" for letter, m in zip("ab", means, strict=False) if letter in used)
    over = ", ".join(moment.square.over)
    whole = f"sum[{over}]({text(moment.square.body)})"
    return f"{whole} = sum[{over}]({text(centred)}) + {text(between)} with {said}"


def _shared(boxes: list[Box], kept: frozenset[str]) -> list[Box]:
    """The boxes with one count for all that count the same terms, where one of them has fewer axes."""
    counts = [b for b in boxes if b.running and b.reduction == "sum" and is_fixed(b.body) and b.name not in kept]
    found: dict[str, Box] = {}
    for b in counts:
        same = [o for o in counts if o.body == b.body and set(o.over) == set(b.over) and set(o.axes) < set(b.axes)]
        if same:
            found[b.name] = min(same, key=lambda o: len(o.axes))
    if not found:
        return boxes
    axes = {b.name: b.axes for b in counts}

    def shared(r: Read) -> Read:
        name = source(r.array)
        if name not in found:
            return r
        at = dict(zip(axes[name], r.index, strict=True))
        return Read(found[name].name + r.array[len(name) :], tuple(at[a] for a in found[name].axes))

    return _ordered([replace(b, body=on_reads(b.body, shared)) for b in boxes])


def _ordered(boxes: list[Box]) -> list[Box]:
    """The boxes in the order given, but operands before their readers."""
    left = {b.name: b for b in boxes}
    result: list[Box] = []

    def place(b: Box) -> None:
        if b.name not in left:
            return
        del left[b.name]
        for name in (*(source(r.array) for r in b.reads()), b.rescale, b.recentre):
            if name is not None and name in left:
                place(left[name])
        result.append(b)

    for b in boxes:
        place(b)
    return result


def _named(boxes: list[Box], centred: str, kept: frozenset[str]) -> tuple[list[Box], str]:
    """The centred moment under the name of a result that is equal to it, which needs no box of its own then."""
    c = next(b for b in boxes if b.name == centred)
    same = [b for b in boxes if b.body == read_of(c) and b.axes == c.axes and b.dtype == c.dtype and not b.reduction]
    same.sort(key=lambda b: b.name not in kept)
    if not same:
        return boxes, centred
    name = same[0].name
    gone = {name, *(b.name for b in same if b.name not in kept)}
    names = {**dict.fromkeys((centred, *gone), name), f"{centred}.recentre": f"{name}.recentre"}
    return [renamed(b, names) for b in boxes if b.name not in gone], name


def _less(m: Monomial, a: Expr) -> dict[Expr, Fraction]:
    return {x: p for x, p in m.factors if x != a}


def now(b: Box) -> Read:
    """The read of an accumulator's value so far."""
    return Read(b.name + RUNNING, read_of(b).index)


def before(b: Box) -> Read:
    """The read of an accumulator's value before the present step."""
    return Read(b.name + OLD, read_of(b).index)


def _at(e: Expr, i: int, over: tuple[str, ...]) -> Expr:
    """The i-th term of a sum over axes: reads and indices that change along them stand for other values."""

    def step(n: Expr) -> Expr:
        if isinstance(n, Read) and any(a in over for f in n.index for a in f.names):
            return Read(f"{n.array}#{i}", n.index)
        if isinstance(n, Index) and n.axis in over:
            return Read(f"{n.axis}#{i}")
        return n

    return transform(e, step)
