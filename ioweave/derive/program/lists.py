"""Lists in a program: the axis of their slots stays whole, their arithmetic is that of their keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ioweave.derive.program.slots import corrections
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import RUNNING, Box, source
from ioweave.diagrams.expressions import Number, Read, reads
from ioweave.diagrams.lists import KEYS, PAYLOAD, is_list, leaders, payload


def leader_reads(box: Box, made: Mapping[str, Box]) -> tuple[Read, ...]:
    """The reads of the lists that order this one, which are held while it changes."""
    return tuple(Read(n + RUNNING, tuple(Affine.axis(a) for a in made[n].axes)) for n in leaders(box) if n in made)


def alongside(box: Box, made: Mapping[str, Box]) -> tuple[Read, ...]:
    """What a box needs at its own indices besides its operands: what orders its list, what corrects its state."""
    by = (Read(n, tuple(Affine.axis(a) for a in made[n].axes)) for n in corrections(box))
    return (*leader_reads(box, made), *by)


def priced_list(box: Box) -> Box:
    """A list as its arithmetic is counted: keys cost 1 for each term, positions and payloads ride along."""
    axes = tuple(a for a in box.axes if a != box.into)
    if box.reduction == KEYS:
        return replace(box, axes=axes, into=None, keys=None)
    body = payload(box) if box.reduction == PAYLOAD else Number(0)
    return replace(box, axes=axes, body=body, reduction=None, into=None, keys=None)


def with_leaders(names: Iterable[str], made: Mapping[str, Box]) -> frozenset[str]:
    """The names with those of the lists that order them."""
    found = frozenset(names)
    return found.union(*(leaders(made[n]) for n in found if n in made))


def widens(box: Box, wide: Collection[str]) -> bool:
    """Whether a narrow result is held in fp32: that of a reduction or a scan; a payload as what it is taken from."""
    if box.reduction == PAYLOAD:
        return any(source(r.array) in wide for r in reads(payload(box)))
    return box.reduction is not None or box.scan is not None or any(source(r.array) in wide for r in box.reads())


def slot_axes(boxes: Sequence[Box]) -> frozenset[str]:
    """The axes of the lists that these boxes make."""
    return frozenset(b.into for b in boxes if is_list(b) and b.into is not None)
