"""Selected: a sum whose small weights count for nothing, written over the list of the largest ones.

Statement. Where all but n terms of a sum over x are 0 (`thresholds`), the sum over the n slots of the list of
largest weights is the same: the list carries beside its keys what the terms read along x, and the tail
works the terms out with the finished normaliser. Slots that no term fills have the key -inf and count for
nothing.
Source. `thresholds` and `lists`; the tail of a streamed function may be any function of its state (Abbott and
Zardini, arXiv 2412.03317).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ioweave.derive.streaming.cascade import Passes, at_index, inline
from ioweave.derive.streaming.covering import Covering
from ioweave.derive.streaming.forms import Form, atom, express, product
from ioweave.derive.streaming.given import Given
from ioweave.derive.streaming.listing import WHOLE
from ioweave.derive.streaming.lists import order_key, scored
from ioweave.derive.streaming.members import IDLE
from ioweave.derive.streaming.plan import Unrepairable
from ioweave.derive.streaming.rescale import read_of
from ioweave.derive.streaming.separate import form_atoms
from ioweave.derive.streaming.thresholds import Threshold, threshold
from ioweave.derive.streaming.values import Values, values_of
from ioweave.derive.streaming.workshop import Workshop
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, base_name, source
from ioweave.diagrams.expressions import (
    Apply,
    Expr,
    Index,
    Number,
    Read,
    free_axes,
    is_predicate_of_indices,
    reads,
    transform,
    walk,
)
from ioweave.diagrams.lists import KEYED, KEYS, PAYLOAD, POSITIONS

MOST = 2**16  # slots of a list: longer ones are left to another pass
SUMMANDS = 8  # of one sum that is parted
STEPS_APART = 3  # steps whose two sides are told apart


@dataclass(frozen=True, slots=True)
class Selected:
    """The boxes with such sums written over lists; the axes of the lists with their slots; why it is exact.

    ``homes`` has the sum that each list was made for.
    """

    boxes: tuple[Box, ...]
    lengths: tuple[tuple[str, int], ...]
    identities: tuple[str, ...]
    homes: tuple[tuple[str, str], ...]


def selected(boxes: tuple[Box, ...], axis: str, kept: frozenset[str], given: Given) -> Selected | None:
    """The boxes with every thresholded sum over ``axis`` as a list; None where there is none.

    Raises `OverBudget` where its algebra costs too much.
    """
    values = values_of(boxes, given)
    made: list[Box] = []
    lengths: dict[str, int] = {}
    said: list[str] = []
    homes: dict[str, str] = {}
    sums = Passes(frozenset({axis}))
    for box in boxes:
        at = sums.earliest(box)
        sums.place(box)
        parts = _parts(box, axis, boxes, values, given) if axis in box.over and at > 1 else []
        try:
            longer, why = dict(lengths), list(said)
            written = _written(box, parts, axis, boxes, values, given, kept, longer, why)
            lengths, said = longer, why
        except Unrepairable:
            written = []
        homes |= {b.name: box.name for b in written if b.name != box.name}
        made += written or [box]
    if not said:
        return None
    return Selected(tuple(made), tuple(lengths.items()), tuple(dict.fromkeys(said)), tuple(homes.items()))


def _parts(
    box: Box, axis: str, boxes: tuple[Box, ...], values: Values, given: Given
) -> list[tuple[Box, Threshold | None]]:
    """A reduction by a threshold of its terms, or the summands of one that has a threshold for some; else nothing."""

    def found(b: Box) -> Threshold | None:
        terms = counting(b)
        at = None if terms is None else threshold(values.form(terms), axis, values, given.fixed(axis))
        return at if at is not None and 0 < at.slots <= MOST else None

    whole = found(box)
    if whole is not None:
        return [(box, whole)]
    if box.reduction != "sum":
        return []
    for body in _told_apart(box.body, {b.name: b for b in boxes}, values, axis):
        summands = addends(body)
        if not 1 < len(summands) <= SUMMANDS:
            continue
        split = [(replace(box, body=e), found(replace(box, body=e))) for e in summands]
        if all(t is None for _, t in split):
            continue
        rest = [b.body for b, t in split if t is None]
        total: list[tuple[Box, Threshold | None]] = [(b, t) for b, t in split if t is not None]
        if rest:
            total.append((replace(box, body=_added(rest)), None))
        return total
    return []


def _told_apart(body: Expr, boxes: Mapping[str, Box], values: Values, axis: str) -> Iterator[Expr]:
    """The terms, and the same with every step as what it is on one side and the rest: min(p, t) = p - relu(p - t)."""
    yield body
    whole = inline(body, boxes, lambda r: axis in boxes[r.array].axes and _steps_in(boxes[r.array].body))
    places = [n for n in _additive(whole) if _is_step(n) and axis in free_axes(n)]
    if not places or len(places) > STEPS_APART:
        return
    for sides in itertools.product((False, True), repeat=len(places)):
        yield _exchanged(whole, {n: _on_one_side(n, side) for n, side in zip(places, sides, strict=True)})


def _exchanged(e: Expr, table: Mapping[Expr, Expr]) -> Expr:
    return transform(e, lambda n: table.get(n, n))


def _steps_in(e: Expr) -> bool:
    return any(_is_step(n) for n in _additive(e))


def _is_step(e: Expr) -> bool:
    if not isinstance(e, Apply) or any(isinstance(n, Number) and abs(n.value) == float("inf") for n in walk(e)):
        return False
    return e.op in ("relu", "min", "max") or (e.op == "where" and not is_predicate_of_indices(e.args[0]))


def _additive(e: Expr) -> list[Expr]:
    """The parts that an expression is linear in: of sums, products and quotients, innermost first."""
    if isinstance(e, Apply) and e.op in ("add", "sub", "neg", "mul"):
        return list(dict.fromkeys(n for x in e.args for n in _additive(x)))
    if isinstance(e, Apply) and e.op == "div":
        return _additive(e.args[0])
    return [e]


def _on_one_side(e: Expr, other: bool) -> Expr:
    """A step as its value on one side and a correction that is 0 there."""
    assert isinstance(e, Apply)
    zero = Number(0)
    if e.op == "relu":
        return Apply("add", (e.args[0], Apply("relu", (Apply("neg", e.args),)))) if other else e
    if e.op == "where":
        test, yes, no = e.args
        if other:
            return Apply("add", (yes, Apply("where", (test, zero, Apply("sub", (no, yes))))))
        return Apply("add", (no, Apply("where", (test, Apply("sub", (yes, no)), zero))))
    first, second = e.args if not other else (e.args[1], e.args[0])
    gap = (first, second) if e.op == "min" else (second, first)
    rest = Apply("relu", (Apply("sub", gap),))
    return Apply("sub" if e.op == "min" else "add", (first, rest))


def _written(
    box: Box,
    parts: list[tuple[Box, Threshold | None]],
    axis: str,
    boxes: tuple[Box, ...],
    values: Values,
    given: Given,
    kept: frozenset[str],
    lengths: dict[str, int],
    said: list[str],
) -> list[Box]:
    """The boxes of a reduction by its parts. Raises `Unrepairable` for one that a list cannot carry."""
    taken = {b.name for b in boxes}
    made: list[Box] = []
    names: list[str] = []
    for b, at in parts:
        name = box.name
        if len(parts) > 1:
            name = next(n for k in range(len(boxes) + SUMMANDS) if (n := f"{box.name}.part{k + 1}") not in taken)
            taken.add(name)
        part = replace(b, name=name)
        names.append(name)
        if at is None:
            made.append(part)
            continue
        writer = _Writer(part, axis, at, boxes, values, given, kept)
        made += writer.boxes(lengths)
        said.append(writer.said())
    if len(parts) > 1:
        reads_of = [Read(n, tuple(Affine.axis(a) for a in box.axes)) for n in names]
        made.append(replace(box, body=_added(reads_of), reduction=None, over=()))
    return made


def factors_of(e: Expr) -> list[Expr]:
    """The factors of a product, left to right."""
    return [f for x in e.args for f in factors_of(x)] if isinstance(e, Apply) and e.op == "mul" else [e]


def addends(e: Expr) -> list[Expr]:
    """The summands of an expression, products of sums multiplied out."""
    if isinstance(e, Apply) and e.op in ("add", "sub"):
        second = addends(e.args[1])
        return [*addends(e.args[0]), *(second if e.op == "add" else [Apply("neg", (x,)) for x in second])]
    if isinstance(e, Apply) and e.op == "neg":
        return [Apply("neg", (x,)) for x in addends(e.args[0])]
    if isinstance(e, Apply) and e.op == "mul":
        left, right = addends(e.args[0]), addends(e.args[1])
        return [Apply("mul", (a, b)) for a in left for b in right] if len(left) * len(right) <= SUMMANDS else [e]
    if isinstance(e, Apply) and e.op == "div":
        return [Apply("div", (x, e.args[1])) for x in addends(e.args[0])]
    return [e]


def _added(parts: Sequence[Expr]) -> Expr:
    total = parts[0]
    for e in parts[1:]:
        total = Apply("add", (total, e))
    return total


class _Writer:
    """Writes one sum over its list."""

    def __init__(
        self,
        box: Box,
        axis: str,
        found: Threshold,
        boxes: tuple[Box, ...],
        values: Values,
        given: Given,
        kept: frozenset[str],
    ) -> None:
        self.box = box
        self.axis = axis
        self.found = found
        self.source = {b.name: b for b in boxes}
        self.values = values
        self.shop = Workshop(self.source, Passes(frozenset({axis})), given)
        self.covering = Covering(self.source, kept, self.shop)
        for b in boxes:
            self.covering.enter(b.name)
        self.slot = ""
        self.places = ""
        self.score: Form = ()
        self.whole: Form = ()
        self.picks: dict[Expr, Box] = {}

    def boxes(self, lengths: dict[str, int]) -> list[Box]:
        """The list of keys, its positions, what rides along, and the sum over the slots.

        Raises `Unrepairable` where the terms read what a list cannot carry.
        """
        over = frozenset({self.axis})
        weight = self.found.weight
        form = order_key(self.values, over, weight.monomial, weight.power)
        if form is None:
            raise Unrepairable("the weight does not change along the axis")
        self.score = scored(self.values, over, form, True)[0]
        self.slot = _axis(self.found.slots, self.source, lengths)
        lengths[self.slot] = self.found.slots
        own = self.own_key()
        self.whole = self.values.of(own.name) if own is not None else self.score
        key: Expr = read_of(own) if own is not None else self.covering.expression(self.score)
        helpers = [b for b in self.shop.out if b.name not in self.source]
        axes = (*self.covering.ordered(tuple(a for a in free_axes(key) if a != self.axis)), self.slot)
        name = self.shop.fresh(f"{self.box.name}.top")
        self.top = Box(name, axes, key, KEYS, (self.axis,), self.box.dtype, self.box.line, into=self.slot)
        at = self.places = self.shop.fresh(f"{self.box.name}.at")
        places = replace(self.top, name=at, reduction=POSITIONS, dtype=WHOLE, keys=(name, at))
        body = self.moved(self.box.body)
        filled = Apply("gt", (read_of(self.top), Number(float("-inf"))))
        rest = tuple(a for a in self.box.over if a != self.axis)
        idle = Number(IDLE[self.box.reduction or "sum"])
        whole = replace(self.box, body=Apply("where", (filled, body, idle)), over=(self.slot, *rest))
        weights = self.weights(body, filled, whole.all_axes)
        if weights is not None:
            whole = replace(whole, body=weights[1])
        if not set(self.top.axes) <= set(whole.all_axes):
            raise Unrepairable("the weight has an axis that the sum does not have")
        shared = [weights[0]] if weights is not None else []
        return [*helpers, self.top, places, *self.picks.values(), *shared, whole]

    def weights(self, body: Expr, filled: Expr, axes: tuple[str, ...]) -> tuple[Box, Expr] | None:
        """The factors of the terms that are the same for all rows of a slot as a box, and the terms with it."""
        own = [f for f in factors_of(body) if set(free_axes(f)) <= set(self.top.axes)]
        rest = [f for f in factors_of(body) if f not in own]
        if self.box.reduction != "sum" or not rest or not any(isinstance(f, Apply) for f in own):
            return None
        name = self.shop.fresh(f"{self.box.name}.weight")
        hidden = Apply("where", (filled, product(own), Number(0)))
        made = Box(name, self.top.axes, hidden, None, (), self.box.dtype, self.box.line)
        terms = Apply("mul", (read_of(made), product(rest)))
        plain = all(isinstance(f, Read) for f in rest)  # an empty slot holds 0
        return made, terms if plain else Apply("where", (filled, terms, Number(0)))

    def own_key(self) -> Box | None:
        """The user's box that has the order of the weight, the last one that needs no unfinished result."""
        over = frozenset({self.axis})
        for b in reversed(self.source.values()):
            known = self.axis in b.axes and self.covering.clean(b.name)
            if known and scored(self.values, over, self.values.of(b.name), True)[0] == self.score:
                return b
        return None

    def moved(self, e: Expr) -> Expr:
        """An expression of the terms as one of the slots."""
        if self.axis not in free_axes(e):
            return e
        if all(self.covering.clean(source(r.array)) for r in reads(e)):
            return self.held(e)
        if isinstance(e, Read) and e.array in self.source and self.source[e.array].reduction is None:
            return self.moved(at_index(self.source[e.array], e.index))
        if isinstance(e, Apply):
            return Apply(e.op, tuple(self.moved(a) for a in e.args))
        raise Unrepairable("a reduction over another axis stands between the weight and its sum")

    def held(self, e: Expr) -> Expr:
        """What the list has of an expression that is known when its term is seen: made of the key, or beside it."""
        if is_predicate_of_indices(e):
            at = Read(self.places, read_of(self.top).index)
            return transform(e, lambda n: at if n == Index(self.axis) else n)
        if isinstance(e, Apply) and e.op in ("and", "or", "not"):
            return Apply(e.op, tuple(self.moved(a) for a in e.args))
        if self.values.form(e) == self.whole:
            return read_of(self.top)
        for strictly in (True, False):
            score, back = scored(self.values, frozenset({self.axis}), self.values.form(e), strictly)
            value = back(atom(read_of(self.top))) if score == self.whole else ()
            if value and not any(r.array in self.values.atoms for a in form_atoms(value) for r in reads(a)):
                return express(value)
        if e not in self.picks:
            own = (a for a in free_axes(e) if a != self.axis and a not in self.top.axes)
            axes = (*self.top.axes, *self.covering.ordered(tuple(own)))
            stem = e.array if isinstance(e, Read) else f"{self.box.name}.term"
            name = self.shop.fresh(f"{stem}.pick")
            dtype = self.source[e.array].dtype if isinstance(e, Read) and e.array in self.source else self.box.dtype
            body = Apply(KEYED, (self.top.body, e))
            keys = (self.top.name, self.places)
            made = Box(name, axes, body, PAYLOAD, (self.axis,), dtype, self.box.line, into=self.slot, keys=keys)
            self.shop.boxes[name] = made
            self.picks[e] = made
        return read_of(self.picks[e])

    def said(self) -> str:
        """Why the list is long enough."""
        t, w = self.found, self.found.weight
        size = "w" if w.power == 1 else "abs(w)"
        bound = f"sum[{self.axis}](w{'' if w.power == 1 else '**2'}) <= {w.total}"
        relation = "<=" if t.strict else "<"
        return (
            f"the terms of {self.box.name} are 0 where {size} {relation} {_shown(t.at)}, and {bound}: "
            f"at most {t.slots} of them are not, and those are in the list of the {t.slots} largest"
        )


def counting(box: Box) -> Expr | None:
    """What is 0 where a term of a reduction changes nothing; None for a reduction that this says nothing of."""
    if box.reduction == "sum":
        return box.body
    test = box.body
    if box.reduction in ("max", "min"):
        hides = isinstance(test, Apply) and test.op == "where" and test.args[2] == Number(IDLE[box.reduction])
        if not isinstance(test, Apply) or not hides:
            return None
        test = test.args[0]
    return Apply("where", (test, Number(1), Number(0))) if box.reduction in IDLE else None


def _shown(v: Fraction) -> str:
    """A fraction as people write it, or the nearest number of a few digits."""
    return str(v) if v.denominator < 10**6 else f"{float(v):.6g}"


def _axis(slots: int, source: Mapping[str, Box], lengths: Mapping[str, int]) -> str:
    """The name of the axis of lists of this length."""
    taken = {base_name(a) for b in source.values() for a in b.all_axes}
    name = f"slot{slots}"
    while name in taken and name not in lengths:
        name += "_"
    return name
