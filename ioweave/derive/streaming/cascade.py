"""Cascades: which reductions over the streamed axes depend on which, and in what pass each can run.

Relative to a set K of streamed axes a box is an accumulator (it reduces over K), in the loop
(it has an axis of K) or outside (neither). Without repairs a reduction runs one pass after the
reductions that its terms depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ioweave.derive.streaming.plan import Stage
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import OLD, PREV, RUNNING, Box, source
from ioweave.diagrams.expressions import Apply, Expr, Index, Lookup, Number, Read, Size, children, rebuild


@dataclass(frozen=True, slots=True)
class When:
    """The pass in which a box runs (0: before any loop) and whether it is inside the loop."""

    run: int
    inside: bool


class Passes:
    """The pass of every box seen so far, relative to the streamed axes ``axes``."""

    def __init__(self, axes: frozenset[str]) -> None:
        self.axes = axes
        self.when: dict[str, When] = {}
        self.accumulators: set[str] = set()

    def reduces(self, box: Box) -> bool:
        """Whether a box reduces over a streamed axis."""
        return box.reduction is not None and not self.axes.isdisjoint(box.over)

    def earliest(self, box: Box) -> int:
        """The first pass in which every operand can be read inside the loop."""
        first = 1
        for r in box.reads():
            if r.array.endswith((RUNNING, OLD)):
                at = self.when.get(source(r.array))
                first = max(first, at.run if at else 1)
                continue
            at = self.when.get(r.array)
            if at is not None:
                first = max(first, at.run if at.inside else at.run + 1)
        return first

    def place(self, box: Box, run: int | None = None) -> When:
        """Enter a box; ``run`` overrides the pass of a repaired reduction."""
        listed = box.into in self.axes  # a list is made whole, before a loop over its places
        inside = (not self.axes.isdisjoint(box.axes) and not listed) or any(
            r.array.endswith((RUNNING, OLD)) and source(r.array) in self.accumulators for r in box.reads()
        )
        if self.reduces(box):
            at = When(run or self.earliest(box), False)
            self.accumulators.add(box.name)
        elif inside:
            at = When(run or self.earliest(box), True)
        else:
            known = [(r, self.when[r.array]) for r in box.reads() if r.array in self.when]
            # rows of the loop at places that are looked up once it has ended are met in another walk
            late = ((w.run + 1 if w.inside and any(f.lookups for f in r.index) else w.run) for r, w in known)
            at = When(max(late, default=0), False)
        self.when[box.name] = at
        return at

    def unfinished(self, name: str, run: int) -> bool:
        """Whether an array waits for a reduction of pass ``run`` (directly, or inside a later loop)."""
        at = self.when.get(name)
        if at is None:
            return False
        return at.run == run + 1 if at.inside else at.run == run

    def stage(self, name: str) -> tuple[int, Stage]:
        """Pass and stage of a box."""
        at = self.when[name]
        if at.inside or name in self.accumulators:
            return at.run, "body"
        return at.run, "tail" if at.run else "head"


def affine_expr(form: Affine) -> Expr:
    """An affine index as a value."""
    total: Expr | None = None
    parts: list[tuple[Expr, int]] = [(Index(a), c) for a, c in form.axes]
    parts += [(Size(s), c) for s, c in form.sizes] + [(lookup.expr, c) for lookup, c in form.lookups]
    for node, c in parts:
        term: Expr = node if c == 1 else Apply("mul", (Number(c), node))
        total = term if total is None else Apply("add", (total, term))
    if total is None:
        return Number(form.offset)
    return Apply("add", (total, Number(form.offset))) if form.offset else total


def at_index(box: Box, index: tuple[Affine, ...]) -> Expr:
    """The body of a map at an index, in place of a read of it."""
    names = {a: f for a, f in zip(box.axes, index, strict=True) if f.bare != a}
    return placed(box.body, names) if names else box.body


def placed(e: Expr, names: Mapping[str, Affine]) -> Expr:
    """The expression with axes replaced by affine forms."""
    if isinstance(e, Index) and e.axis in names:
        return affine_expr(names[e.axis])
    if isinstance(e, Read):
        return Read(e.array, tuple(_composed(f, names) for f in e.index))
    kids = children(e)
    return rebuild(e, tuple(placed(k, names) for k in kids)) if kids else e


def _composed(f: Affine, names: Mapping[str, Affine]) -> Affine:
    lookups = {Lookup(placed(lookup.expr, names)): c for lookup, c in f.lookups}
    total = Affine.make({}, dict(f.sizes), f.offset, lookups)
    for a, c in f.axes:
        total = total + names.get(a, Affine.axis(a)).scale(c)
    return total


def on_reads(e: Expr, f: Callable[[Read], Expr]) -> Expr:
    """The expression with ``f`` applied to every read, those that index others first; what stays is the same object."""
    if isinstance(e, Read):
        return f(_with_lookups(e, lambda inner: on_reads(inner, f)))
    if not isinstance(e, Apply):
        return e
    args = tuple(on_reads(a, f) for a in e.args)
    return e if all(a is b for a, b in zip(args, e.args, strict=True)) else Apply(e.op, args)


def _with_lookups(e: Read, f: Callable[[Expr], Expr]) -> Read:
    """The read with ``f`` applied to what it looks up."""
    inner = children(e)
    if not inner:
        return e
    new = tuple(f(i) for i in inner)
    if all(a is b for a, b in zip(inner, new, strict=True)):
        return e
    made = rebuild(e, new)
    assert isinstance(made, Read)
    return made


def inline(e: Expr, boxes: Mapping[str, Box], wanted: Callable[[Read], bool]) -> Expr:
    """The expression with every wanted read of a map replaced by what the map computes, repeatedly."""
    if isinstance(e, Read):
        if e.array not in boxes or not wanted(e):
            return e
        box = boxes[e.array]
        if box.reduction is not None or box.scan is not None:
            return e
        return inline(at_index(box, e.index), boxes, wanted)
    if not isinstance(e, Apply):
        return e
    args = tuple(inline(k, boxes, wanted) for k in e.args)
    return e if all(a is b for a, b in zip(args, e.args, strict=True)) else Apply(e.op, args)


def live(boxes: list[Box], kept: frozenset[str]) -> list[Box]:
    """The boxes that ``kept`` needs, in the same order."""
    needed = set(kept)
    out: list[Box] = []
    for b in reversed(boxes):
        if b.name in needed:
            out.append(b)
            needed.update(source(r.array) for r in (*b.reads(), *b.operands()))
            needed.update(n for n in (b.rescale, b.recentre, *(b.keys or ())) if n is not None)
    out.reverse()
    # what is carried to a box before it is made comes after it in order
    late = {source(r.array) for b in out for r in b.reads() if r.array.endswith(PREV)} - {b.name for b in out}
    return live(boxes, kept | late) if late else out


def renamed(box: Box, names: Mapping[str, str]) -> Box:
    """A box with arrays renamed, running and old reads included."""

    def new(array: str) -> str:
        base = source(array)
        return names.get(base, base) + array[len(base) :]

    return replace(
        box,
        name=names.get(box.name, box.name),
        body=on_reads(box.body, lambda r: Read(new(r.array), r.index)),
        rescale=names.get(box.rescale, box.rescale) if box.rescale else None,
        recentre=names.get(box.recentre, box.recentre) if box.recentre else None,
        keys=(names.get(box.keys[0], box.keys[0]), names.get(box.keys[1], box.keys[1])) if box.keys else None,
    )
