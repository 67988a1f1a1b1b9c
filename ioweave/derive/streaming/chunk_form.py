"""The chunked form of one scan, as lines: its decays, its triangular system, its state, and what is read out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from ioweave.derive.streaming.carry import ZERO, Carry, Linear, carry, product_of
from ioweave.derive.streaming.chunk_decay import Decays, decays
from ioweave.derive.streaming.chunk_page import ONE, Page, fresh, moved, plus, times
from ioweave.derive.streaming.forms import ONE as UNITY
from ioweave.derive.streaming.forms import Monomial, express
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.parting import parted, without
from ioweave.derive.streaming.signs import nonnegative
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.diagram import Line
from ioweave.diagrams.elements import line_dtype
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Expr,
    Index,
    Read,
    Reduce,
    Scan,
    free_axes,
    reads,
    rename_axes,
    transform,
    walk,
)
from ioweave.diagrams.groups import lockstep, prev
from ioweave.diagrams.opening import names_of, open_one


class ScanForm:
    """The chunked form of one scan."""

    def __init__(self, page: Page, scan: Line) -> None:
        diagram, frame = page.diagram, page.frame
        self.page = page
        self.frame = frame
        self.scan = scan
        assert isinstance(scan.expr, Scan)
        if scan.expr.backward:
            raise Refused(f"{scan.name} walks {frame.axis} backward; the chunked form is written for forward scans")
        known = {i.name: i.dtype for i in diagram.inputs}
        for line in diagram.lines:
            known[line.name] = line_dtype(line, known)
        self.carried = tuple(a for a in scan.axes if a != frame.axis)
        opened = open_one(scan, known[scan.name], names_of(diagram))
        self.boxes = tuple(self._apart(b) for b in opened)
        self.decay: Expr = ZERO
        self.added: Expr = ZERO
        self.column: Expr | None = None
        self.row: Expr = ZERO
        self.mixed, self.over = "", ""
        self.still: tuple[str, ...] = ()
        self.decays = Decays(ONE, ONE, ONE, ONE, ONE, ONE)
        self.solved: Expr = ZERO
        self.entering: Expr = ZERO
        self.enters: Expr = ZERO
        self.given: Expr = ZERO
        self.canonical = Canonical(nonnegative=lambda e: nonnegative(e, lambda n: False))
        self._read()

    def _apart(self, b: Box) -> Box:
        """A box whose reduced axes have names that the scan's own axes do not have."""
        names = {a: fresh(f"{a}2", self.page.taken) for a in b.over if a in self.scan.axes}
        self.page.ties |= {new: a for a, new in names.items()}
        if not names:
            return b
        return replace(b, over=tuple(names.get(a, a) for a in b.over), body=rename_axes(b.body, names))

    def _beside(self) -> None:
        """The parts of the scan's line that read nothing carried, as lines of their own."""
        held = lockstep(self.boxes)
        reads_of: dict[str, Read] = {}
        for b in self.boxes:
            if b.name in held:
                continue
            body = _renamed(b.body, reads_of)
            value = Reduce(b.reduction, b.over, body) if b.reduction else body
            reads_of[b.name] = self.page.own(b.name.replace(".", "_"), b.axes, value)
        self.decay, self.added = _renamed(self.decay, reads_of), _renamed(self.added, reads_of)
        if self.column is not None:
            self.column, self.row = _renamed(self.column, reads_of), _renamed(self.row, reads_of)

    def write(self, whole: bool) -> None:
        """The lines of the scan, and the scan itself at every element where it is needed ``whole``."""
        self._beside()
        self._scan()
        if whole:
            self._rebuild()

    def _read(self) -> None:
        """Takes the scan apart: its decay, the rank-one part of its map, and what each element adds."""
        found = carry(self.boxes, self.frame.axis, lambda e: nonnegative(e, lambda n: False))
        name = self.scan.name
        if found.why is not None:
            raise Refused(f"{name} has no chunked form: {found.why}")
        made = found.of.get(name)
        if not isinstance(made, Linear):
            raise Refused(f"{name} has no chunked form: it is no sum of products of what it carries")
        own = tuple(Affine.axis(a) for a in self.carried)
        inner: Read | None = None
        for t in made.terms:
            if t.read == Read(prev(name), own):
                self.decay = t.factor if self.decay == ZERO else Apply("add", (self.decay, t.factor))
            elif t.read.array != prev(name) and (inner is None or inner == t.read):
                inner = t.read
                self.column = t.factor if self.column is None else Apply("add", (self.column, t.factor))
            else:
                raise Refused(f"{name} mixes what it carries by more than one product of a column and a row")
        self.added = made.rest
        if inner is not None:
            self._row(found, inner)

    def _row(self, found: Carry, inner: Read) -> None:
        """The row of the rank-one part, from the box that sums over what is carried."""
        box = next(b for b in self.boxes if b.name == inner.array)
        made = found.of[box.name]
        assert isinstance(made, Linear)
        fits = len(made.terms) == 1 and len(box.over) == 1
        if not fits:
            raise Refused(f"{self.scan.name} mixes what it carries by more than one product of a column and a row")
        (term,) = made.terms
        places = [f.bare for f in term.read.index]
        moved = [(a, p) for a, p in zip(self.carried, places, strict=True) if p != a]
        if len(moved) != 1 or moved[0][1] != box.over[0] or set(places) - {box.over[0]} - set(box.axes):
            raise Refused(f"{self.scan.name} mixes what it carries along more than one axis")
        self.mixed, self.over = moved[0][0], box.over[0]
        self.row = term.factor
        if self.mixed in {*free_axes(self.row), *box.axes}:
            raise Refused(f"{self.scan.name} mixes what it carries by a matrix that is no column times a row")
        self.still = tuple(a for a in self.carried if a != self.mixed)
        if made.rest != ZERO:  # r . S + rest, of which the column takes both
            assert self.column is not None
            rest = Reduce("sum", box.over, made.rest)
            self.added = Apply("add", (self.added, product_of(self.column, rest)))

    def direct(self, e: Reduce) -> list[Expr] | None:
        """The factors of the terms of a sum over what is carried, ``factor * S``; None where it is no such sum."""
        name = self.scan.name
        held = [r for r in reads(e.body) if r.array == name]
        inner = any(isinstance(n, Reduce | Composite) for n in walk(e.body))
        if e.op != "sum" or e.where is not None or not held or inner or not set(e.axes) <= set(self.carried):
            return None
        own = tuple(Affine.axis(a) for a in self.scan.axes)
        if any(r.index != own for r in held):
            return None
        terms: list[Expr] = []
        for m, c in self.canonical.form(e.body):
            if not any(a == held[0] and p == 1 for a, p in m.factors):
                return None
            rest = without(m, held[0])
            if any(r.array == name for r in reads(express(((rest, c),)))):
                return None
            terms.append(express(((rest, c),)))
        return terms

    def _rebuild(self) -> None:
        """The scan itself at every element."""
        value = self.read_out(self.scan.name, ONE, ())
        self.page.out.append(replace(self.scan, axes=self.page.axes(self.scan.axes), expr=value))

    def _scan(self) -> None:
        """The decays, the triangular system, what each chunk adds, and the scan over chunks."""
        f, name = self.frame, self.scan.name
        assert isinstance(self.scan.expr, Scan)
        pushed: Expr = ZERO
        self.decays = decays(self.page, name, self.decay, self.carried)
        here = self.page.placed(self.added, f.by)
        ends = times(self.decays.to_end, here)
        adds: Expr = ZERO
        if self.added != ZERO:
            adds = Reduce("sum", (f.by,), ends)
        if self.column is not None:
            self._system()
            pushed = times(self.decays.to_end, self.page.placed(self.column, f.by))
            if self.solved != ZERO:
                adds = plus(adds, Reduce("sum", (f.by,), times(pushed, moved(self.solved, {f.at: f.by}))))
        added: Expr = self.page.emit(f"{name}_adds", self.carried, adds) if adds != ZERO else ZERO
        state = fresh(f"{name}_state", self.page.taken)
        back = Affine.make({f.chunk: 1}, {}, -1)
        before = Read(state, (back, *(Affine.axis(a) for a in self.carried)))
        body = plus(times(self.decays.whole, before), added)
        if self.column is not None:
            other = Read(state, (back, *(Affine.axis(self.over if a == self.mixed else a) for a in self.carried)))
            seen = Reduce("sum", (self.over,), times(moved(self.entering, {f.at: f.by}), other))
            body = plus(body, Reduce("sum", (f.by,), times(pushed, seen)))
        own = (f.chunk, *self.carried)
        start = self.page.placed(self.scan.expr.start, f.at)
        self.page.out.append(Line(state, own, Scan(f.chunk, body, start), self.scan.dtype))
        later = Apply("gt", (Index(f.chunk), ZERO))
        self.enters = self.page.emit(f"{name}_enters", self.carried, Apply("where", (later, before, start)))
        if self.column is not None:
            seen = Reduce("sum", (self.over,), times(self.entering, moved(self.enters, {self.mixed: self.over})))
            self.given = self.page.emit(f"{name}_given", self.still, plus(self.solved, seen))

    def _system(self) -> None:
        """The triangular system of a chunk: what each element finds in the state before it."""
        f, name = self.frame, self.scan.name
        assert self.column is not None
        names = {self.mixed: self.over}
        row = self.page.placed(self.row, f.at)
        column = rename_axes(self.page.placed(self.column, f.by), names)
        short = rename_axes(self.decays.shorter, names)
        mine = Apply("lt", (Index(f.by), Index(f.at)))
        couples = self._couples(row, column, short, mine, f"{name}_couples")
        finds: Expr = ZERO
        for inside, outside in self._added((self.mixed,)):
            inside = rename_axes(inside, names)
            finds = plus(finds, self._history(row, inside, outside, short, (self.over,), mine, f"{name}_row"))
        if finds != ZERO:
            finds = self.page.emit(f"{name}_finds", self.still, finds)
        into = self.page.emit(f"{name}_reach", (self.over,), times(row, rename_axes(self.decays.behind, names)))
        self.solved = self._solve(f"{name}_found", finds, couples, mine)
        self.entering = self._solve(f"{name}_reached", into, couples, mine)

    def _couples(self, row: Expr, column: Expr, short: Expr, mine: Expr, name: str) -> Read:
        inner, outer = self._decayed(short, (self.over,))
        value = times(Reduce("sum", (self.over,), times(times(row, column), inner)), outer)
        return self.page.emit(name, self.still, Apply("where", (mine, value, ZERO)))

    def _solve(self, name: str, given: Expr, couples: Expr, mine: Expr) -> Expr:
        """``y_s = given_s + sum_(r < s) couples_sr y_r``."""
        f = self.frame
        if given == ZERO:
            return ZERO
        line = fresh(name, self.page.taken)
        free = dict.fromkeys((*free_axes(given), *free_axes(couples)))
        own = (f.chunk, f.at, *(a for a in free if a not in (f.chunk, f.at, f.by)))
        earlier = Read(line, tuple(Affine.axis(f.by if a == f.at else a) for a in own))
        past = Reduce("sum", (f.by,), Apply("where", (mine, times(couples, earlier), ZERO)))
        self.page.out.append(Line(line, own, Scan(f.at, Apply("add", (given, past)), ZERO)))
        return Read(line, tuple(Affine.axis(a) for a in own))

    def _added(self, over: tuple[str, ...]) -> list[tuple[Expr, Expr]]:
        """What an element adds, as products of a factor with the axes ``over`` and one without, at the second place."""
        at = self.frame.by
        parts = (_split(m, c, frozenset(over)) for m, c in self.canonical.form(self.added))
        return [(self.page.placed(a, at), self.page.placed(b, at)) for a, b in parts]

    def _decayed(self, decay: Expr, over: tuple[str, ...]) -> tuple[Expr, Expr]:
        """A decay inside a sum and outside it."""
        return (ONE, decay) if set(over).isdisjoint(free_axes(decay)) else (decay, ONE)

    def _history(
        self, factor: Expr, inside: Expr, outside: Expr, decay: Expr, over: tuple[str, ...], mine: Expr, name: str
    ) -> Expr:
        """``sum_r [mine] (sum_over factor_s decay_sr inside_r) outside_r``: scores first."""
        held, free = self._decayed(decay, over)
        score = times(times(factor, inside), held)
        summed: Expr = Reduce("sum", over, score) if over else score
        scores = self.page.emit(name, (), Apply("where", (mine, times(summed, free), ZERO)))
        return Reduce("sum", (self.frame.by,), times(scores, outside))

    def read_out(self, line: str, factor: Expr, over: tuple[str, ...]) -> Expr:
        """``sum_over factor * S`` at a place of a chunk."""
        f = self.frame
        here = self.page.placed(factor, f.at)
        mine = Apply("le", (Index(f.by), Index(f.at)))
        total: Expr = ZERO
        for inside, outside in self._added(over):
            total = plus(total, self._history(here, inside, outside, self.decays.between, over, mine, f"{line}_scores"))
        if self.column is not None:
            given = moved(self.given, {f.at: f.by})
            column = self.page.placed(self.column, f.by)
            summed: Expr = ONE
            free: Expr = ONE
            for part in (column, given):
                if set(over).isdisjoint(free_axes(part)):
                    free = times(free, part)
                else:
                    summed = times(summed, part)
            total = plus(total, self._history(here, summed, free, self.decays.between, over, mine, f"{line}_through"))
        inner = times(times(here, self.decays.into), self.enters)
        return plus(total, Reduce("sum", over, inner) if over else inner)


def _renamed(e: Expr, reads_of: Mapping[str, Read]) -> Expr:
    """An expression with the boxes that became lines read under their names."""
    return transform(
        e, lambda n: Read(reads_of[n.array].array, n.index) if isinstance(n, Read) and n.array in reads_of else n
    )


def _split(m: Monomial, c: Fraction, over: frozenset[str]) -> tuple[Expr, Expr]:
    """A term as a factor with these axes and one without."""
    free, bound = parted(m, over)
    return express(((bound, UNITY),)), express(((free, c),))
