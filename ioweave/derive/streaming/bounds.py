"""Which exponentials along the streamed axis have a proved bound, and which do not.

An exponent is bounded if a proved interval keeps its exponential in range of every type that it
passes through, from above and from below, or if it is values less a maximum over them. One with no
proved bound is carried in the loop under a running maximum of its own, so that no prefix overflows
and no sum of weights vanishes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ioweave.derive.streaming.cascade import Passes
from ioweave.derive.streaming.forms import Form, make_form
from ioweave.derive.streaming.rescale import carry, read_of
from ioweave.derive.streaming.separate import monomial_atoms
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, free_axes, reads

_THROUGH = frozenset({"mul", "div", "masked_div", "neg", "add", "sub", "masked_sub", "where"})


class Bounds:
    """Bounds of exponents, by the boxes written so far."""

    def __init__(
        self,
        boxes: Mapping[str, Box],
        passes: Passes,
        nonnegative: Callable[[Expr], bool],
        full: Callable[[Expr], Form],
        stays: Callable[[Form], bool],
        small: Callable[[Expr], bool],
    ) -> None:
        self._boxes = boxes
        self._passes = passes
        self._nonnegative = nonnegative
        self._full = full
        self._stays = stays
        self._small = small
        self._loose: dict[Expr, bool] = {}

    def bounded(self, exponent: Form) -> bool:
        """Whether the exponential of a form, every map written out, neither overflows nor vanishes in every term."""
        if self._stays(exponent):
            return True
        references = {
            read_of(b): (b.reduction, self._full(b.body)) for b in self._boxes.values() if b.reduction in ("max", "min")
        }
        less = make_form({m: c for m, c in exponent if any(a in references for a in monomial_atoms(m))})
        rest = make_form({m: c for m, c in exponent if not any(a in references for a in monomial_atoms(m))})
        found = carry(rest, rest, less, references, self._nonnegative, lambda f: f) if less else None
        return found is not None and not found.rest

    def loose(self, e: Expr) -> bool:
        """Whether an expression has an exponential along the axis, as a factor of a term, with no proved bound."""
        known = self._loose.get(e)
        if known is None:
            known = self._loose[e] = self._is_loose(e) and not self._small(e)
        return known

    def _is_loose(self, e: Expr) -> bool:
        if isinstance(e, Read):
            return self.transparent(e) and self.loose(self._boxes[e.array].body)
        if not isinstance(e, Apply):
            return False
        if e.op in ("exp", "exp2") or (e.op == "pow" and isinstance(e.args[0], Number) and bool(reads(e.args[1]))):
            walks = not self._passes.axes.isdisjoint(free_axes(e.args[-1]))
            exponent = self._full(e if e.op == "pow" else Apply(e.op, e.args))
            return walks and not all(self.bounded(m.exponent) for m, _ in exponent)
        if e.op in ("pow", "sqrt", "rsqrt"):
            return self.loose(e.args[0])
        return e.op in _THROUGH and any(self.loose(a) for a in (e.args[1:] if e.op == "where" else e.args))

    def transparent(self, r: Read) -> bool:
        """Whether a read is of a map of the loop, at the loop's own place."""
        at = self._passes.when.get(r.array)
        box = self._boxes.get(r.array)
        if at is None or box is None or not at.inside or box.reduction is not None:
            return False
        return all(f.bare == a for a, f in zip(box.axes, r.index, strict=True) if a in self._passes.axes)
