"""The equations that a plan rests on, as pairs of expressions, found again from its boxes.

- ``step``: the terms of an accumulator at the new references are its terms at the old ones times (for a
  maximum: plus) the correction, ``f(x, r') = c(r, r') f(x, r)``, for every x that the old references have
  seen; with no correction they do not change.
- ``value``: an array of the diagram, as its box makes it, is what a finished box of the plan makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ioweave.derive.certificate.structure import Layout
from ioweave.diagrams.boxes import OLD, RUNNING, Box, Opened, source
from ioweave.diagrams.expressions import Apply, Expr, Read, Reduce, Scan, reads, transform


@dataclass(frozen=True, slots=True)
class Identity:
    """``left = right`` over the reals, for the accumulator or array ``of``, at every index of ``axes``.

    Arrays on the right are the plan's; on the left they are the plan's too (``step``), or the diagram's.
    """

    kind: Literal["step", "value"]
    of: str
    axes: tuple[str, ...]
    left: Expr
    right: Expr


def identities(layout: Layout, opened: Opened) -> tuple[Identity, ...]:
    """Every equation, steps first, in order of evaluation."""
    return (*_steps(layout), *_values(layout, opened))


def _steps(layout: Layout) -> Iterator[Identity]:
    for b in layout.state:
        if b.reduction not in ("sum", "max", "min") or b.recentre is not None:
            continue  # the correction of a product, or a recentred sum, is one of all its terms together
        new = written_out(b.body, layout)
        if not any(r.array.endswith(RUNNING) for r in reads(new)):
            continue
        before = transform(new, _as_old)
        if b.rescale is not None:
            factor = written_out(layout.read(b.rescale), layout)
            before = Apply("mul" if b.reduction == "sum" else "add", (factor, before))
        yield Identity("step", b.name, b.all_axes, new, before)


def written_out(e: Expr, layout: Layout) -> Expr:
    """An expression with the maps of the loop that follow running values written in.

    A read at other indices than the map's own axes stays as it is.
    """

    def step(node: Expr) -> Expr:
        if not isinstance(node, Read) or source(node.array) != node.array or node.array not in layout.by_name:
            return node
        box = layout.by_name[node.array]
        if not layout.stirred(node.array) or box.reduction is not None or node != layout.read(node.array):
            return node
        return written_out(box.body, layout)

    return transform(e, step)


def _as_old(e: Expr) -> Expr:
    if isinstance(e, Read) and e.array.endswith(RUNNING):
        return Read(e.array.removesuffix(RUNNING) + OLD, e.index)
    return e


def _values(layout: Layout, opened: Opened) -> Iterator[Identity]:
    for b in opened.boxes:
        made = layout.by_name.get(b.name)
        if made is None or layout.stirred(b.name) or made.axes != b.axes or _formula(made) == _formula(b):
            continue
        yield Identity("value", b.name, b.axes, _formula(b), _formula(made))


def _formula(b: Box) -> Expr:
    value = b.body if b.reduction is None else Reduce(b.reduction, b.over, b.body, into=b.into)
    return value if b.scan is None else Scan(b.scan.axis, value, b.scan.start, b.scan.backward)
