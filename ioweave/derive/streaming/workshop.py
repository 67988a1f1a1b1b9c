"""The boxes of a plan in the making: names, accumulators, exponentials carried in the loop, and their factors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

from ioweave.derive.streaming.bounds import Bounds
from ioweave.derive.streaming.cascade import Passes, inline, on_reads
from ioweave.derive.streaming.formats import largest_finite
from ioweave.derive.streaming.forms import (
    ONE,
    Form,
    Monomial,
    atom,
    express,
    form_key,
    hides,
    make_monomial,
    may_vanish,
    multiply,
)
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.gate import Sample
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.intervals import Interval, Intervals, fits, fits_above
from ioweave.derive.streaming.job import Job, guarded_divisors
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.parting import without
from ioweave.derive.streaming.plan import Refusal, Repair
from ioweave.derive.streaming.rescale import (
    Carried,
    as_finished,
    as_running,
    carried_body,
    delta_body,
    exponential_form,
    guard,
    read_of,
    reference_axes,
)
from ioweave.derive.streaming.separate import axes_of, form_atoms
from ioweave.derive.streaming.signs import Signs
from ioweave.derive.streaming.values import values_of
from ioweave.diagrams.boxes import Box, base_name, running, source
from ioweave.diagrams.expressions import Expr, Read, reads
from ioweave.diagrams.lists import is_list

MANY = 2**40  # terms of a sum whose size is not known
Saved = tuple[tuple[dict[Any, Any], ...], tuple[list[Any], ...], set[str], set[str]]
STEP = ".step"  # the form of a box that reads running values, while its finished form may be needed too


class Workshop:
    """What has been written for one set of streamed axes; boxes go to ``out`` in order of evaluation."""

    def __init__(self, boxes: Mapping[str, Box], passes: Passes, given: Given) -> None:
        self.boxes: dict[str, Box] = dict(boxes)
        self._inputs = {r.array for b in boxes.values() for r in b.reads()} - set(boxes)
        self.passes = passes
        self.given = given
        self.signs = Signs(self.boxes, dict(given.facts))
        self.out: list[Box] = []
        self.repairs: list[Repair] = []
        self.refusals: list[Refusal] = []
        self.identities: list[str] = []
        self.assumes: list[str] = []
        self.scales: dict[str, Form] = {}  # sums inside the loop that change as exp(-reference)
        self.inner: dict[tuple[int, str], Box | None] = {}
        self.lifted: set[str] = set()  # results whose tail multiplies by an exponential of a maximum
        self._plain = Canonical(nonnegative=self.signs.expression)
        self._full: dict[Expr, Form] = {}
        self.bounds = Bounds(self.boxes, passes, self.signs.expression, self.full, self._stays, self.small)
        self.values = values_of(tuple(boxes.values()), given)
        self._intervals = intervals_of(tuple(boxes.values()), given)
        self.safe: list[str] = []
        self._narrow = min((b.dtype for b in boxes.values()), key=largest_finite, default="fp32")
        self._carriers: dict[str, tuple[str, Form]] = {}  # irreducible reductions -> the box whose value holds them
        self._equals: dict[str, str] = {}  # values -> the finished result that has them
        self._known: dict[tuple[object, ...], Box] = {}
        self._exponentials: dict[tuple[int, str], Box] = {}
        self._steps: dict[tuple[int, str], Box] = {}

    def save(self) -> Saved:
        """Everything written so far, to come back to if a repair fails."""
        return (
            tuple(dict(t) for t in self._tables()),
            tuple(list(x) for x in self._lists()),
            set(self.passes.accumulators),
            set(self.lifted),
        )

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        written = (self.boxes, self._known, self._exponentials, self._steps, self._carriers, self._equals)
        return (*written, self.passes.when, self.scales, self.inner)

    def _lists(self) -> tuple[list[Any], ...]:
        return self.out, self.repairs, self.identities, self.assumes, self.safe

    def restore(self, saved: Saved) -> None:
        """Forget what was written since."""
        tables, lists, accumulators, lifted = saved
        for table, before in zip(self._tables(), tables, strict=True):
            table.clear()
            table.update(before)
        for items, earlier in zip(self._lists(), lists, strict=True):
            items[:] = earlier
        self.passes.accumulators = set(accumulators)
        self.lifted = set(lifted)

    def emit(self, box: Box, run: int | None = None) -> Box:
        """Write a box; it becomes the definition of its name."""
        self.out.append(box)
        self.boxes[box.name] = box
        self.passes.place(box, run)
        return box

    def pass_by(self, box: Box) -> None:
        """Write a box that nothing may be put in the place of, as one of a scan: what reads it sees an input."""
        self.out.append(box)
        self.passes.place(box)

    def behind_scan(self, box: Box, run: int) -> bool:
        """Whether a box reads, through maps, a scan that waits for a pass."""
        todo, seen = [source(r.array) for r in box.reads()], set[str]()
        while todo:
            name = todo.pop()
            at = self.passes.when.get(name)
            if name in seen or at is None or at.run < run:
                continue
            seen.add(name)
            if name not in self.boxes:
                return True
            todo += [source(r.array) for r in self.boxes[name].reads()]
        return False

    def fresh(self, name: str) -> str:
        """The name, with a number if it is taken."""
        n, free = 1, name
        while free in self.boxes or free in self._inputs:
            n += 1
            free = f"{name}{n}"
        return free

    def full(self, e: Expr) -> Form:
        """The form of an expression with every map written out, for comparison."""
        if e not in self._full:
            self._full[e] = self._plain.form(inline(e, self.boxes, lambda r: True))
        return self._full[e]

    def base(self, box: Box, run: int) -> Box:
        """Write an accumulator that needs no repair."""
        self.repairs.append(Repair(box.name, box.name, "list" if is_list(box) else "none"))
        self._known.setdefault(self._key(box), box)
        return self.emit(replace(box, running=True), run)

    def _stays(self, exponent: Form) -> bool:
        return self.fixed_reference(exponent, False, self._narrow) is not None

    def small(self, e: Expr) -> bool:
        """Whether an expression is an exponential over a sum of such, and bounded whatever its exponents are."""
        form = self.values.form(e)
        if len(form) != 1 or all(p > 0 for _, p in form[0][0].factors):
            return False
        return self.in_reach(e)

    def in_reach(self, e: Expr) -> bool:
        """Whether an expression is bounded within the range of every type of the region."""
        found = self._intervals.of(e)
        return found.bounded and not found.infinite and found.magnitude <= largest_finite(self._narrow)

    def positive(self, f: Form) -> bool:
        """Whether a form of code is proved to be above 0."""
        return self._intervals.of(express(f)).lo > 0

    def fixed_reference(self, exponent: Form, vanishes: bool, dtype: str) -> Fraction | None:
        """A number under which ``exp`` of a form stays in range of the types that it passes through; None if none does.

        ``dtype`` is that of the line; the sum is held in `Given.held` of it. ``vanishes`` says that
        the sum may round to 0 without harm: nothing divides by it or takes its logarithm.
        """
        e = express(exponent)
        found = self._intervals.of(e)
        sizes = dict(self.given.values)
        terms = prod(max(int(sizes.get(base_name(a), MANY)), 1) for a in self.passes.axes)
        test = fits_above if vanishes else fits
        held = self.given.held(dtype)
        for centre in (Fraction(0), *(() if vanishes else _middle(found))):
            moved = replace(found, lo=found.lo - float(centre), hi=found.hi - float(centre))
            if test(moved, dtype) and fits_above(moved, held, terms):
                self._say(e, found, centre, vanishes, dtype)
                return centre
        return None

    def _say(self, e: Expr, found: Interval, centre: Fraction, vanishes: bool, dtype: str) -> None:
        low, high = (f"{v:.6g}" for v in (found.lo, found.hi))
        where = f"at most {high}" if vanishes else f"within [{low}, {high}]"
        held = self.given.held(dtype)
        types = dtype if held == dtype else f"{dtype} and {held}"
        less = f", less {float(centre):g}," if centre else ""
        said = f"{text(e)} is {where}: its exponential{less} stays in range of {types}, so no maximum is kept for it"
        if said not in self.safe:
            self.safe.append(said)

    def _key(self, box: Box) -> tuple[object, ...]:
        running = any(r.array != source(r.array) for r in box.reads())
        if box.rescale is None and not running:
            return frozenset(box.axes), form_key(self.values.value(box))
        body = form_key(self._plain.form(box.body))
        return box.reduction, frozenset(box.over), frozenset(box.axes), body, box.rescale

    def carry(self, name: str) -> None:
        """Note that the finished value of a box holds an irreducible reduction, for others that need the same."""
        held = self._held(name)
        if held is not None:
            self._carriers.setdefault(held, (name, self.values.of(name)))
        self._equals.setdefault(form_key(self.values.of(name)), name)

    def vanishes(self, name: str) -> bool:
        """Whether masks may leave a sum of the region without a term."""
        form = self.values.of(name) if name in self.values else ()
        return any(hides(a) or any(may_vanish(r) for r in reads(a)) for a in form_atoms(form))

    def _at_hand(self, name: str, box: Box, run: int) -> bool:
        """Whether a finished result can stand in for another by pass ``run``."""
        at = self.passes.when[name]
        return at.run <= run and not at.inside and set(self.boxes[name].axes) == set(box.axes)

    def _ratio(self, f: Form, g: Form, held: str) -> Form:
        """``f / g`` for multiples of one and the same reduction."""
        (m, c), (n, k) = f[0], g[0]
        ours, theirs = (without(x, _factor(x, held)) for x in (m, n))
        return multiply(((ours, c),), self.values.power(((theirs, k),), -ONE))

    def _held(self, name: str) -> str | None:
        """The one reduction over the streamed axes that a box of the region is a known multiple of."""
        form = self.values.of(name)
        if len(form) != 1:
            return None
        held = [a.array for a, p in form[0][0].factors if p == 1 and isinstance(a, Read) and self._reduces(a.array)]
        return held[0] if len(held) == 1 else None

    def _reduces(self, name: str) -> bool:
        known = self.values.atoms.get(name)
        return known is not None and not self.passes.axes.isdisjoint(known.over)

    def same(self, box: Box, run: int) -> Box | None:
        """A box that a finished reduction of pass ``run`` already gives, up to a known factor; None if none does."""
        equal = self._equals.get(form_key(self.values.of(box.name)))
        if equal is not None and self._at_hand(equal, box, run):
            return replace(box, body=read_of(self.boxes[equal]), reduction=None, over=(), running=False)
        held = self._held(box.name)
        if held is None or held not in self._carriers:
            return None
        name, form = self._carriers[held]
        if not self._at_hand(name, box, run):
            return None
        ratio = self._ratio(self.values.of(box.name), form, held)
        if any(r.array in self.values.atoms for a in form_atoms(ratio) for r in reads(a)):
            return None
        value = express(multiply(ratio, atom(read_of(self.boxes[name]))))
        return replace(box, body=value, reduction=None, over=(), running=False)

    def settle(self, box: Box) -> Box:
        """A map of the tail with the exponentials of its operands' tails cancelled, where that can be had."""
        if not any(r.array in self.lifted for r in box.reads()):
            return box
        body = inline(box.body, self.boxes, lambda r: r.array in self.lifted)
        form = self._plain.form(body)
        if any(m.exponent for m, _ in form):
            self.lifted.add(box.name)
            return box
        return replace(box, body=express(form, guarded=guarded_divisors(body, self._plain)))

    def accumulate(self, box: Box, run: int) -> Box:
        """Write an accumulator, or give the equal one that there is already."""
        key = self._key(box)
        known = self._known.get(key)
        if known is not None and self.passes.when[known.name].run <= run:
            return known
        self._known[key] = box
        return self.emit(replace(box, running=True), run)

    def references(self, run: int) -> dict[Read, tuple[str, Form]]:
        """The running maxima and minima of a pass, with what they run over."""
        return {
            read_of(b): (b.reduction, self.full(b.body))
            for b in self.out
            if b.running and b.reduction in ("max", "min") and self.passes.when[b.name].run == run
        }

    def is_running(self, run: int) -> _Running:
        """Whether a name is an accumulator of the pass."""
        return _Running(self.passes, run)

    def roots(self, names: Iterable[str], run: int) -> tuple[str, ...]:
        """The accumulators of a pass behind names, in order."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        todo = list(names)
        while todo:
            n = todo.pop(0)
            if n in seen or n not in self.boxes:
                continue
            seen.add(n)
            if self.is_running(run)(n):
                found[n] = None
            else:
                todo += [source(r.array) for r in self.boxes[n].reads()]
        return tuple(found)

    def moves(self, reference: Form, run: int) -> bool:
        """Whether a reference changes while the loop of a pass runs."""
        return any(self.is_running(run)(r.array) for a in form_atoms(reference) for r in reads(a))

    def delta(self, reference: Form, run: int) -> Box:
        """The box of the factor that a step multiplies an accumulator by, for one reference."""
        key = (run, form_key(reference))
        if key not in self._steps:
            names = [r.array for a in form_atoms(reference) for r in reads(a) if self.is_running(run)(r.array)]
            first = self.boxes[names[0]]
            body = delta_body(reference, self.is_running(run))
            name = self.fresh(f"{first.name}.delta")
            box = Box(name, reference_axes(reference), body, None, (), first.dtype, first.line)
            self._steps[key] = self.emit(box, run)
        return self._steps[key]

    def cover(self, job: Job, inner: Monomial, carried: Carried) -> tuple[Box, Monomial]:
        """A box of the loop that holds the carried exponential, and the factors of ``inner`` that it leaves.

        A map that the reduction reads anyway is used in its running form where it is the
        exponential times some of the factors; else a box is made for the exponential alone.
        """
        exponent = exponential_form(carried)
        best: tuple[int, str, Monomial] | None = None
        for name in job.candidates:
            form = job.canonical.form(inline(self.boxes[name].body, self.boxes, lambda r: r.array in job.candidates))
            if len(form) != 1 or form[0][1] != ONE or form[0][0].exponent != exponent:
                continue
            powers = dict(inner.factors)
            mine = form[0][0].factors
            if all(powers.get(a) == p for a, p in mine) and (best is None or len(mine) > best[0]):
                best = len(mine), name, make_monomial({a: p for a, p in inner.factors if (a, p) not in mine})
        if best is not None:
            box = self.step_form(best[1], job)
            if box is not None and self._masks_safely(box, carried):
                if best[0] == 0:
                    self._exponentials.setdefault((job.run, form_key(exponent)), box)
                return box, best[2]
        return self._exponential(job, carried), inner

    def _exponential(self, job: Job, carried: Carried) -> Box:
        exponent = exponential_form(carried)
        key = (job.run, form_key(exponent))
        if key not in self._exponentials:
            body = carried_body(carried, self.is_running(job.run), job.order)
            free = axes_of(form_atoms(exponent))
            axes = tuple(a for a in job.box.all_axes if a in free)
            name = self.fresh(f"{job.box.name}.exp")
            self._exponentials[key] = self.emit(Box(name, axes, body, None, (), job.box.dtype, job.box.line), job.run)
        return self._exponentials[key]

    def step_form(self, name: str, job: Job) -> Box | None:
        """The form of a map of the loop that reads running values; None if it cannot be had."""
        key = (job.run, name)
        if key not in self._steps:
            box = self.boxes[name]
            if box.reduction is not None:
                return None
            is_running = self.is_running(job.run)
            names: dict[str, str] = {}
            for r in box.reads():
                if not job.view.unfinished(r.array):
                    continue
                if r.array in self.passes.accumulators:
                    if r != read_of(self.boxes[r.array]):
                        return None
                    continue
                inner = self.step_form(r.array, job)
                if inner is None:
                    return None
                names[r.array] = inner.name
            stepped = on_reads(box.body, lambda r: Read(names.get(r.array, r.array), r.index))
            body = guard(as_running(stepped, is_running), lambda n: is_running(source(n)))
            free = self.fresh(name + STEP)
            self._steps[key] = self.emit(replace(box, name=free, body=body), job.run)
        return self._steps[key]

    def _masks_safely(self, box: Box, carried: Carried) -> bool:
        """Whether the box is 0, not NaN, where the scores and the running references are all ``-inf``."""
        import numpy as np

        sample = Sample(self.signs.array)
        for r in (r for a in form_atoms(carried.inner) for r in reads(a)):
            sample.fix(r, float("-inf"))
        for r in (r for a in form_atoms(carried.reference) for r in reads(a)):
            sample.fix(Read(running(r.array), r.index), float("-inf"))
        values = sample.value(self.written_out(Read(box.name, read_of(box).index), finished=False))
        return bool(np.all(values == 0))

    def written_out(self, e: Expr, finished: bool = True) -> Expr:
        """The expression with the boxes made here replaced by what they compute, running reads made plain."""
        made = {b.name for b in (*self._exponentials.values(), *self._steps.values())}
        e = inline(e, self.boxes, lambda r: r.array in made)
        return as_finished(e) if finished else e


@lru_cache(maxsize=256)
def intervals_of(boxes: tuple[Box, ...], given: Given) -> Intervals:
    """The bounds of a region's arrays, shared by all who ask for the same one."""
    return Intervals({b.name: b for b in boxes}, dict(given.facts), dict(given.values))


def _middle(found: Interval) -> tuple[Fraction, ...]:
    """The middle of a bounded interval, to a few digits."""
    if not found.bounded:
        return ()
    return (Fraction(f"{(found.lo + found.hi) / 2:.4g}"),)


def _factor(m: Monomial, name: str) -> Expr:
    """The factor of a monomial that is an array of this name."""
    return next(a for a, _ in m.factors if isinstance(a, Read) and a.array == name)


class _Running:
    """Says which names are accumulators of one pass."""

    def __init__(self, passes: Passes, run: int) -> None:
        self._passes = passes
        self._run = run

    def __call__(self, name: str) -> bool:
        return name in self._passes.accumulators and self._passes.when[name].run == self._run
