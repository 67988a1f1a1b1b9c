"""Listing: the boxes of lists that values need, with the user's own wherever they have the order that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ioweave.derive.streaming.forms import ONE, Form, atom, express, multiply
from ioweave.derive.streaming.parting import without
from ioweave.derive.streaming.plan import Repair
from ioweave.derive.streaming.rescale import read_of
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.expressions import Apply, Read
from ioweave.diagrams.lists import KEYED, KEYS, PAYLOAD, POSITIONS

if TYPE_CHECKING:
    from ioweave.derive.streaming.emission import Emission
    from ioweave.derive.streaming.values import Irreducible

WHOLE = "int32"  # the element type of positions


def listing(e: Emission, known: Irreducible, run: int) -> Form:
    """The finished list of an irreducible one, written by the emission ``e``: values, or the positions beside them."""
    if known.op == KEYS:
        return _values(e, known, run)
    inner, beside = known.inner, None
    if known.op == PAYLOAD:
        keyed = known.inner[0][0].factors[0][0]
        assert isinstance(keyed, Apply)
        inner, beside = e.values.form(keyed.args[0]), keyed.args[1]
    keys = _leader(e, KEYS, inner, known)
    own = _own(e, known)
    home = e.home(known.name)
    if beside is None:
        name = own.name if own is not None else e.shop.fresh(f"{home.line}.at")
        made = Box(name, keys.axes, keys.body, POSITIONS, known.over, WHOLE, home.line, into=keys.into)
        return _written(e, replace(made, keys=(keys.name, name)), home.name, run)
    at = _leader(e, POSITIONS, inner, known)
    name = own.name if own is not None else e.shop.fresh(f"{home.line}.pick")
    body = Apply(KEYED, (keys.body, e.expression(e.values.form(beside))))
    axes = own.axes if own is not None else (*e.ordered(known.axes[:-1]), known.axes[-1])
    dtype = own.dtype if own is not None else home.dtype
    made = Box(name, axes, body, PAYLOAD, known.over, dtype, home.line, into=keys.into, keys=(keys.name, at.name))
    return _written(e, made, home.name, run)


def _leader(e: Emission, op: str, inner: Form, known: Irreducible) -> Box:
    """The list of keys, or of their positions, that orders another."""
    name = e.values.irreducible(op, known.over, inner, known.into).array
    e.homes.setdefault(name, e.home(known.name))
    return e.shop.boxes[_leading(e.finish(name))]


def _leading(finished: Form) -> str:
    """The list of keys that a finished one is a multiple of."""
    return next(a.array for m, _ in finished for a, _ in m.factors if isinstance(a, Read) and a.index)


def _own(e: Emission, known: Irreducible) -> Box | None:
    """The user's list that has this value, where it has just its axes."""
    whole = atom(Read(known.name, tuple(Affine.axis(a) for a in known.axes)))
    for box in e.source.values():
        if box.reduction == known.op and e.settled.of(box.name) == whole and set(box.axes) == set(known.axes):
            return box
    return None


def _values(e: Emission, known: Irreducible, run: int) -> Form:
    held = Read(known.name, tuple(Affine.axis(a) for a in known.axes))
    for box in e.source.values():
        clean = all(e.clean(r.array) for r in box.reads()) and set(box.axes) == set(known.axes)
        form = e.settled.of(box.name) if box.reduction == KEYS and clean else ()
        if len(form) != 1 or dict(form[0][0].factors).get(held) != 1:
            continue
        ratio = (without(form[0][0], held), form[0][1])
        if e.steady(ratio[0]):
            for r in box.reads():
                e.use(r.array)
            e.shop.repairs.append(Repair(box.name, box.name, "list"))
            made = e.shop.accumulate(box, run)
            return multiply(atom(read_of(made)), e.plain.power(e.code((ratio,)), -ONE))
    home = e.home(known.name)
    name = e.shop.fresh(f"{home.line}.top")
    body = express(e.code(known.inner), guarded=e.guarded())
    made = Box(name, (*e.ordered(known.axes[:-1]), known.axes[-1]), body, KEYS, known.over, home.dtype, home.line)
    return _written(e, replace(made, into=known.into), home.name, run)


def _written(e: Emission, box: Box, reduction: str, run: int) -> Form:
    made = e.shop.accumulate(box, run)
    if made.name == box.name:
        e.shop.repairs.append(Repair(reduction, box.name, "list"))
    return atom(read_of(made))


def led(box: Box, boxes: Mapping[str, Box]) -> Box:
    """The list with those that order it where they are: an equal list may have taken the place of one."""
    if box.keys is None:
        return box

    def now(name: str) -> str:
        stands = boxes.get(name)
        if stands is None or name == box.name or stands.reduction is not None or not isinstance(stands.body, Read):
            return name
        return stands.body.array

    return replace(box, keys=(now(box.keys[0]), now(box.keys[1])))
