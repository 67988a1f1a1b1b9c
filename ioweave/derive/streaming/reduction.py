"""Repairs one reduction: its terms are split, each sum of them gets an accumulator, the tail recombines them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ioweave.derive.streaming.cascade import on_reads
from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    conditions,
    express,
    make_monomial,
    multiply,
)
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.gate import Sample, agree
from ioweave.derive.streaming.job import Job
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.plan import Repair, RepairKind, Unrepairable
from ioweave.derive.streaming.rescale import Carried, as_old, carry, read_of
from ioweave.derive.streaming.separate import Part, View, axes_of, form_atoms, is_fixed, monomial_atoms
from ioweave.derive.streaming.shift import extremum, masks
from ioweave.derive.streaming.workshop import STEP, Workshop
from ioweave.diagrams.boxes import RUNNING, Box, base_name
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, Size, reads, rename_axes


@dataclass
class Group:
    """Terms with one sum: ``tail * sum(inner * exp(carried))``.

    ``reference`` is what the sum changes with, as ``exp(-reference)``: that of the carried
    exponent, and those of sums inside the loop among the factors.
    """

    inner: Monomial
    carried: Carried
    reference: Form
    tail: Form


def reduce(box: Box, run: int, shop: Workshop) -> None:
    """Write the boxes of ``box`` repaired to run in pass ``run``; raises `Unrepairable` with the reason.

    Nothing is written unless the repair holds.
    """
    if box.reduction not in ("sum", "max", "min"):
        raise Unrepairable(f"no repair is known for {box.reduction}")
    saved = shop.save()
    try:
        job = _job(box, run, shop)
        if box.reduction == "sum":
            _sum(job, shop)
        else:
            _extremum(job, shop)
    except Unrepairable:
        shop.restore(saved)
        wider = _interchanged(box, run, shop)
        if wider is None:
            raise
        reduce(wider, run, shop)


def _interchanged(box: Box, run: int, shop: Workshop) -> Box | None:
    """``sum_x b sum_h f`` as ``sum_{x,h} b f``, for a sum inside the loop that waits for earlier results."""
    view = View(lambda name: shop.passes.unfinished(name, run), shop.passes.axes)
    for r in box.reads():
        if box.reduction != "sum" or not view.unfinished(r.array) or not shop.passes.when[r.array].inside:
            continue
        inner = shop.boxes.get(r.array)  # what a scan makes is no box of the shop's
        if inner is None or inner.reduction != "sum" or r != read_of(inner):
            continue
        if not _linear(box.body, r):
            continue
        names: dict[str, str] = {}
        for a in inner.over:
            new = a
            while new in box.all_axes or new in inner.axes:
                new += "'"
            names[a] = new
        body = rename_axes(inner.body, names)
        return replace(box, body=_put(box.body, r, body), over=(*box.over, *names.values()))
    return None


def _linear(e: Expr, r: Read) -> bool:
    """Whether every term of an expression has the read as a factor, once."""
    form = Canonical(lambda n: r not in reads(n)).form(e)
    return all((r, ONE) in m.factors and sum(r in reads(a) for a in monomial_atoms(m)) == 1 for m, _ in form)


def _put(e: Expr, r: Read, value: Expr) -> Expr:
    return on_reads(e, lambda n: value if n == r else n)


def _job(box: Box, run: int, shop: Workshop) -> Job:
    return Job(
        box,
        run,
        shop.boxes,
        shop.passes,
        shop.signs.expression,
        lambda b: _inner_sum(b, run, shop),
        shop.bounds.loose,
        shop.lifted,
    )


def _inner_sum(box: Box, run: int, shop: Workshop) -> Box | None:
    """A sum inside the loop as a map of sums that wait for nothing: ``sum_e c g = c sum_e g``, c free of e.

    An exponent is carried in the sum under its bound, which `Workshop.scales` records. None if a
    factor depends on the summed axis.
    """
    key = (run, box.name)
    if key in shop.inner:
        return shop.inner[key]
    job = _job(box, run, shop)
    groups, constant = _grouped(job, shop)
    used = axes_of((*form_atoms(constant), *(a for g in groups for a in form_atoms((*g.tail, *g.reference)))))
    opened: Box | None = None
    if set(box.over).isdisjoint(used):
        terms, pointwise = [_times_sizes(constant, box.over)], [constant]
        for g in groups:
            body, _ = _body(g, job, shop)
            name = shop.fresh(f"{box.name}{STEP if g.tail == ((UNIT, ONE),) else '.term'}")
            made = shop.emit(Box(name, box.axes, body, "sum", box.over, box.dtype, box.line), run)
            if g.reference:
                shop.scales[name] = g.reference
            front = g.tail if len(g.tail) == 1 else atom(express(g.tail, job.order, job.guarded))
            terms.append(multiply(front, atom(read_of(made))))
            pointwise.append(multiply(front, atom(shop.written_out(body))))
        _check(job, add(*pointwise), shop)
        opened = Box(box.name, box.axes, express(add(*terms), job.order, job.guarded), None, (), box.dtype, box.line)
    shop.inner[key] = opened
    return opened


def _choose(part: Part, job: Job, shop: Workshop) -> Carried:
    """Under which bound an exponent runs in the loop."""
    plain = Carried(part.inner_exponent, (), part.outer_exponent)
    if job.passes.axes.isdisjoint(axes_of(form_atoms(part.inner_exponent))):
        return plain
    effective = add(part.inner_exponent, masks(part.inner))

    def full(f: Form) -> Form:
        return shop.full(express(f))

    references = shop.references(job.run)
    found = carry(part.inner_exponent, effective, part.outer_exponent, references, shop.signs.expression, full)
    if found is not None:
        return found
    if shop.bounds.bounded(full(effective)):
        return plain
    own = atom(read_of(_own_maximum(part, job, shop)))
    return Carried(part.inner_exponent, own, add(part.outer_exponent, own))


def _own_maximum(part: Part, job: Job, shop: Workshop) -> Box:
    """A running maximum of the exponent, where no reduction of the region bounds it."""
    body = express(part.inner_exponent, job.order)
    for c in conditions(part.inner):
        body = Apply("where", (c, body, Number(float("-inf"))))
    free = axes_of((*form_atoms(part.inner_exponent), *conditions(part.inner)))
    axes = tuple(a for a in job.box.axes if a in free and a not in job.passes.axes)
    over = tuple(a for a in job.box.all_axes if a in free and a not in axes)
    name = shop.fresh(f"{job.box.name}.max")
    box = shop.accumulate(Box(name, axes, body, "max", over, job.box.dtype, job.box.line), job.run)
    if box.name == name:
        shop.repairs.append(Repair(job.box.name, name, "none", "exponents run under their own maximum"))
    return box


def _grouped(job: Job, shop: Workshop) -> tuple[list[Group], Form]:
    """The terms by the sum that they need, and those that need none: they do not change along any reduced axis."""
    groups: dict[tuple[Monomial, Form, Form], Group] = {}
    constant: Form = ()
    for part in job.parts:
        scale = _scale_of(part, shop)
        if _steady(part, job.box.over):
            if scale:
                raise Unrepairable("a sum inside the loop does not change along a reduced axis")
            whole = multiply(((part.outer, part.coefficient),), ((part.inner, ONE),))
            exponent = add(part.inner_exponent, part.outer_exponent)
            constant = add(constant, multiply(whole, ((Monomial((), exponent), ONE),)))
            continue
        carried = _choose(part, job, shop)
        term: Form = ((Monomial(part.outer.factors, carried.rest), part.coefficient),)
        key = (part.inner, carried.inner, carried.reference)
        if key in groups:
            groups[key].tail = add(groups[key].tail, term)
        else:
            groups[key] = Group(part.inner, carried, add(carried.reference, scale), term)
    return [g for g in groups.values() if g.tail], constant


def _scale_of(part: Part, shop: Workshop) -> Form:
    """The reference that the sums inside the loop among a part's factors change with."""
    total: Form = ()
    for a, p in part.inner.factors:
        scaled = [r for r in reads(a) if r.array in shop.scales]
        if not scaled:
            continue
        if not isinstance(a, Read) or p <= 0 or a != read_of(shop.boxes[a.array]):
            raise Unrepairable(f"{text(a)} does not change by a factor", tuple(r.array for r in scaled))
        total = add(total, tuple((m, c * p) for m, c in shop.scales[a.array]))
    for a in (*form_atoms(part.inner_exponent), *form_atoms(part.outer_exponent), *monomial_atoms(part.outer)):
        if any(r.array in shop.scales for r in reads(a)):
            raise Unrepairable(f"{text(a)} does not change by a factor")
    return total


def _times_sizes(f: Form, over: tuple[str, ...]) -> Form:
    """A constant summed over axes: times their sizes."""
    powers: dict[Expr, Fraction] = {}
    for a in over:
        size = Size(base_name(a))
        powers[size] = powers.get(size, Fraction(0)) + 1
    return multiply(f, ((make_monomial(powers), ONE),)) if f else ()


def _sum(job: Job, shop: Workshop) -> None:
    box = job.box
    kept, constant = _grouped(job, shop)
    spread = _spread(kept, constant, job)
    if shop.given.frugal and (len(kept) > 1 or spread):
        raise Unrepairable("it would need more than one accumulator")
    over = tuple(a for a in box.over if a not in spread)
    axes = (*box.axes, *spread)
    trivial = len(kept) == 1 and kept[0].tail == ((UNIT, ONE),) and not constant and not spread
    kind: RepairKind = "separate" if len(kept) + bool(constant) > 1 else "rescale"
    if len({g.carried.reference for g in kept if g.carried.reference}) > 1:
        kind = "moments"  # several powers of one weight
    terms: list[Form] = []
    pointwise: list[Form] = [constant] if constant else []
    order = dict(job.order)
    guarded = job.guarded
    for g in kept:
        body, rescale = _body(g, job, shop)
        name = box.name if trivial else shop.fresh(f"{box.name}.acc")
        new = Box(name, axes, body, "sum", over, box.dtype, box.line, rescale=rescale)
        acc = shop.accumulate(new, job.run)
        made = acc.name == name
        if trivial and not made:
            trivial = False
        order[read_of(acc)] = -1
        if rescale is not None:
            guarded |= {read_of(acc)}  # it is 0 where everything is masked, as what it is divided by
        if made:
            follow = _follow(g.reference) if g.reference else ""
            shop.repairs.append(Repair(box.name, name, kind, follow))
        front = g.tail if len(g.tail) == 1 else atom(express(g.tail, order, guarded))
        if any(p < 0 and a == read_of(acc) for m, _ in front for a, p in m.factors) and shop.vanishes(acc.name):
            raise Unrepairable(f"{acc.name} may be 0 where everything is masked, so it does not cancel")
        term = multiply(front, atom(read_of(acc)))
        if conditions(g.inner) and front != ((UNIT, ONE),):
            term = _hidden(term, read_of(acc), order, guarded)
        terms.append(term)
        pointwise.append(multiply(front, atom(shop.written_out(body))))
        _check_rescale(g, body, rescale, shop)
    _check(job, add(*pointwise), shop)
    if trivial:
        return
    terms.append(_times_sizes(constant, over))
    tail = express(add(*terms), order, guarded)
    reduction = "sum" if spread else None
    shop.identities.append(_separated(box, tail, spread))
    if any(m.exponent for g in kept for m, _ in g.tail):
        shop.lifted.add(box.name)
    shop.emit(Box(box.name, box.axes, tail, reduction, spread, box.dtype, box.line))


def _hidden(term: Form, acc: Read, order: Mapping[Expr, int], guarded: frozenset[Expr]) -> Form:
    """A term of the tail that is 0 where a mask hid all of it, though its factor be infinite there."""
    if len(term) == 1 and not term[0][0].exponent:
        factors = [(a, p) for a, p in term[0][0].factors if a != acc and not is_fixed(a)]
        if all(p < 0 for _, p in factors):
            value = express(term, order, guarded | {a for a, _ in factors})
            return atom(value)
    test = Apply("ne", (acc, Number(0)))
    return atom(Apply("where", (test, express(term, order, guarded), Number(0))))


def _steady(part: Part, over: tuple[str, ...]) -> bool:
    """Whether what is summed does not change along any reduced axis."""
    atoms = (*monomial_atoms(part.inner), *form_atoms(part.inner_exponent))
    return set(over).isdisjoint(axes_of(atoms))


def _spread(groups: list[Group], constant: Form, job: Job) -> tuple[str, ...]:
    """Reduced axes that the tail's factors depend on: their sum is interchanged and left to the tail."""
    used: set[str] = set()
    for g in groups:
        used.update(axes_of(form_atoms(g.tail)), axes_of(form_atoms(g.reference)))
    used.update(axes_of(form_atoms(constant)))
    return tuple(a for a in job.box.over if a in used and a not in job.passes.axes)


def _body(g: Group, job: Job, shop: Workshop) -> tuple[Expr, str | None]:
    """What the accumulator sums, and the box of the factor that it is rescaled by."""
    rescale = shop.delta(g.reference, job.run).name if shop.moves(g.reference, job.run) else None
    if not g.carried.reference:
        return express(((Monomial(g.inner.factors, g.carried.inner), ONE),), job.order), rescale
    box, left = shop.cover(job, g.inner, g.carried)
    read = read_of(box)
    return express(multiply(((left, ONE),), atom(read)), {**job.order, read: -1}), rescale


def _follow(reference: Form) -> str:
    """The identity that a rescaled accumulator rests on."""
    r = text(express(reference))
    return f"exp(s - r') = exp(r - r') * exp(s - r) with r = {r}"


def _separated(box: Box, tail: Expr, spread: tuple[str, ...]) -> str:
    """The identity by which factors free of the axis leave the sum."""
    left = f"sum[{', '.join(box.over)}]({text(box.body)})"
    right = f"sum[{', '.join(spread)}]({text(tail)})" if spread else text(tail)
    return f"{left} = {right}"


def _check(job: Job, pointwise: Form, shop: Workshop) -> None:
    """The gate: the reduction's terms against what the accumulators and the tail make of them."""
    if not agree(job.body, express(pointwise), Sample(shop.signs.array)):
        raise Unrepairable("unproved: the terms and their normal form differ on numbers")


def _check_rescale(g: Group, body: Expr, rescale: str | None, shop: Workshop) -> None:
    """The gate: the summed terms with a new reference against the factor times those with the old one."""
    if rescale is None:
        return
    names = {r.array for a in form_atoms(g.reference) for r in reads(a)}
    now = on_reads(shop.written_out(body), lambda r: _scaled(r, shop))
    before = as_old(now, lambda n: n in names)
    change = on_reads(shop.boxes[rescale].body, _plain)
    if not agree(now, Apply("mul", (change, before)), Sample(shop.signs.array)):
        raise Unrepairable("unproved: the accumulator does not follow a change of its reference on numbers")


def _scaled(e: Read, shop: Workshop) -> Expr:
    """A sum inside the loop with the factor that it changes by made plain."""
    if e.array in shop.scales:
        minus = tuple((m, -c) for m, c in shop.scales[e.array])
        return Apply("mul", (e, Apply("exp", (express(minus),))))
    return e


def _plain(r: Read) -> Read:
    return Read(r.array.removesuffix(RUNNING), r.index)


def _extremum(job: Job, shop: Workshop) -> None:
    box = job.box
    if any(_scale_of(p, shop) for p in job.parts):
        raise Unrepairable("a sum inside the loop is carried with its exponent, which a maximum does not follow")
    e = extremum(job.parts, frozenset(box.over), shop.signs.expression)
    used = axes_of((*form_atoms(e.factor), *form_atoms(e.lift), *form_atoms(e.shift)))
    if not set(box.over).isdisjoint(used):
        raise Unrepairable("a factor changes along a reduced axis, so it does not come out of a maximum or minimum")
    trivial = not e.exponential and e.factor == ((UNIT, ONE),) and not e.shift
    body = express(e.body, job.order)
    name = box.name if trivial else shop.fresh(f"{box.name}.acc")
    reduction = {"max": "min", "min": "max"}[box.reduction or "max"] if e.flipped else box.reduction
    acc = shop.accumulate(Box(name, box.axes, body, reduction, box.over, box.dtype, box.line), job.run)
    value: Form = atom(read_of(acc))
    pointwise: Form = e.body
    if e.exponential:
        value = ((Monomial((), add(value, e.lift)), ONE),)
        pointwise = ((Monomial((), add(pointwise, e.lift)), ONE),)
    _check(job, add(multiply(e.factor, pointwise), e.shift), shop)
    kind: RepairKind = "shift" if not e.exponential and e.factor == ((UNIT, ONE),) else "rescale"
    if acc.name == name:
        shop.repairs.append(Repair(box.name, name, "none" if trivial else kind))
    over = ", ".join(box.over)
    if e.exponential:
        shop.identities.append(f"{box.reduction}[{over}](exp(f)) = exp({reduction}[{over}](f)) with f = {text(body)}")
    if e.factor != ((UNIT, ONE),):
        shop.identities.append(
            f"{box.reduction}[{over}](c * f) = c * {reduction}[{over}](f) with c = {text(express(e.factor))}"
        )
    if e.shift:
        shop.identities.append(
            f"{box.reduction}[{over}](f + c) = {box.reduction}[{over}](f) + c with c = {text(express(e.shift))}"
        )
    if trivial and acc.name == name:
        return
    order = {**job.order, read_of(acc): -1}
    tail = express(add(multiply(e.factor, value), e.shift), order, job.guarded)
    shop.emit(Box(box.name, box.axes, tail, None, (), box.dtype, box.line))
