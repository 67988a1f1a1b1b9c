"""Recurrences of named-axis arrays: `scan`.

>>> from ioweave.diagrams.named import array, axes, diagram
>>> t, d = axes("t d", t=64, d=8)
>>> a, X = array("a", t), array("X", t, d)
>>> H = scan(t, lambda before: a * before + X, start=0).named("H", t, d)
>>> print(diagram(H).lines[0].expr.start)
Number(value=0)
"""

from __future__ import annotations

from collections.abc import Callable

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Read, Scan, free_axes
from ioweave.diagrams.named import OWN, Array, Axis, Operand, Scope, lift


def scan(
    axis: Axis,
    step: Callable[[Array], Operand],
    *,
    start: Operand,
    reversed: bool = False,
    axes: Axis | tuple[Axis, ...] | None = None,
) -> Array:
    """A recurrence along ``axis``: ``step`` gives each element from those before it, ``start`` stands before the first.

    ``step`` takes one array: by itself it is the element of the step before; with an index it is any
    earlier element, ``S[t - 1, f]``, the scan's axis first and then ``axes``. Without ``axes`` those of
    the values that it meets, in order of appearance. ``reversed`` walks from the last element to the first,
    and the step before is at ``t + 1``. The result is a line of its own: name it before it is used further.

    Raises WeaveError if ``start`` depends on the axis, or an index needs ``axes`` that are not given.
    """
    if not isinstance(axis, Axis):
        raise WeaveError("scan runs along one axis, e.g. scan(t, lambda before: before + X, start=0)")
    first = lift(start)
    if axis.name in first.axes:
        raise WeaveError(f"scan: the start is what stands before the first step, so it does not depend on {axis.name}")
    before = Affine.make({axis.name: 1}, {}, 1 if reversed else -1)
    scope = Scope(axis.space)
    if axes is None:
        tried = lift(step(Array(Read(OWN, (before,)), scope, OWN)))
        found = (*free_axes(tried.expr), *first.axes)
        state = tuple(a for a in dict.fromkeys(found) if a != axis.name)
    else:
        given = axes if isinstance(axes, tuple) else (axes,)
        state = tuple(a.name for a in given)
        for a in given:
            scope = scope | Scope(a.space)
    others = tuple(Affine.axis(a) for a in state)
    value = lift(step(Array(Read(OWN, (before, *others)), scope, OWN, (Affine.axis(axis.name), *others))))
    if missing := [a for a in free_axes(value.expr) if a not in (axis.name, *state)]:
        raise WeaveError(f"scan: the values depend on {missing[0]}, which axes= leaves out")
    body = Scan(axis.name, value.expr, first.expr, reversed)
    return Array(body, scope | value.scope | first.scope, None, (Affine.axis(axis.name), *others))
