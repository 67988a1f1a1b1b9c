"""One reduction under repair: its terms, with the maps of the loop that wait for earlier results written in."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping

from ioweave.derive.streaming.cascade import Passes, inline
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.plan import Unrepairable
from ioweave.derive.streaming.separate import Part, View, form_atoms, split
from ioweave.diagrams.boxes import OLD, RUNNING, Box
from ioweave.diagrams.expressions import Apply, Expr, Read, reads, walk

_DEPTH = 8  # results of results in one exponent


class Job:
    """The reduction ``box``, to run in pass ``run`` beside the results that it depends on.

    ``parts`` are its terms; ``candidates`` the maps of the loop that it reads, directly or not;
    ``inner`` turns a sum inside the loop into a map of sums that wait for nothing, or gives None.
    ``loose`` says which expressions hold an exponential with no proved bound, and ``lifted`` names the
    results whose tail multiplies by one: both are written out, so that they can be carried and cancel.
    ``order`` ranks sub-expressions by first appearance; ``guarded`` holds what `masked_div` divides by.
    """

    def __init__(
        self,
        box: Box,
        run: int,
        boxes: Mapping[str, Box],
        passes: Passes,
        nonnegative: Callable[[Expr], bool],
        inner: Callable[[Box], Box | None],
        loose: Callable[[Expr], bool],
        lifted: Collection[str],
    ) -> None:
        self.box = box
        self.run = run
        self._opened: dict[str, Box] = {}
        self.boxes: Mapping[str, Box] = ChainMap(self._opened, dict(boxes))
        self._inner = inner
        self._loose = loose
        self._lifted = lifted
        self.passes = passes
        self.view = View(lambda name: passes.unfinished(name, run), passes.axes)
        self.candidates: dict[str, None] = {}
        self._waits: dict[Expr, bool] = {}
        self.canonical = Canonical(self._opaque, nonnegative)
        self.body = inline(box.body, self.boxes, self._in_loop)
        if any(r.array.endswith((RUNNING, OLD)) for r in reads(self.body)):
            raise Unrepairable("its terms change within the loop of another axis")
        self.parts = self._refine()
        self.order = {n: i for i, n in enumerate(dict.fromkeys(walk(self.body)))}
        self.guarded = guarded_divisors(self.body, self.canonical)

    def _opaque(self, e: Expr) -> bool:
        known = self._waits.get(e)
        if known is None:
            known = self._waits[e] = not self.view.waits(e) and not self._loose(e)
        return known

    def _in_loop(self, r: Read) -> bool:
        if self._loose(r) and not self.view.unfinished(r.array):
            return True
        at = self.passes.when.get(r.array)
        if at is None or not at.inside or not self.view.unfinished(r.array):
            return False
        box = self.boxes.get(r.array)  # what a scan makes is no box of the shop's
        if box is None:
            return False
        if any(a in self.passes.axes and f.bare != a for a, f in zip(box.axes, r.index, strict=True)):
            return False
        if box.reduction is not None:
            opened = self._inner(box) if box.reduction == "sum" else None
            if opened is None:
                return False
            self._opened[r.array] = opened
            return True
        if r.array not in self._opened:
            self.candidates[r.array] = None
        return True

    def _refine(self) -> tuple[Part, ...]:
        """The parts; results of the tail that stand in an exponent are written out down to accumulators."""
        for _ in range(_DEPTH):
            parts = tuple(split(t, self.view) for t in self.canonical.form(self.body))
            waiting = [r for p in parts for a in form_atoms(p.outer_exponent) for r in reads(a)]
            names = frozenset(r.array for r in waiting if self._is_tail_map(r.array))
            names |= {r.array for p in parts for r in self._factors(p) if r.array in self._lifted}
            if not names:
                return parts
            self.body = inline(self.body, self.boxes, _among(names))
        raise Unrepairable("its exponent depends on too long a chain of results")

    def _factors(self, part: Part) -> Iterator[Read]:
        """Reads that are factors of the tail, or stand alone in a logarithm there."""
        for a, _ in part.outer.factors:
            inside = a.args[0] if isinstance(a, Apply) and a.op == "log" else a
            if isinstance(inside, Read):
                yield inside

    def _is_tail_map(self, name: str) -> bool:
        waits = self.view.unfinished(name) and name not in self.passes.accumulators
        return waits and self.boxes[name].reduction is None


def _among(names: frozenset[str]) -> Callable[[Read], bool]:
    return lambda r: r.array in names


def guarded_divisors(e: Expr, canonical: Canonical) -> frozenset[Expr]:
    """The atoms that `masked_div` divides by somewhere in an expression."""
    divisors = [n.args[1] for n in walk(e) if isinstance(n, Apply) and n.op == "masked_div"]
    return frozenset(a for d in divisors for m, _ in canonical.form(d) for a, _ in m.factors)
