"""What is known from positions alone, and so costs nothing: no load, no memory, no arithmetic (counting.md 22).

A box is free if every array that it reads is: predicates, numbers and sizes of indices, and reductions of
those, such as a running count of the terms so far. One that leaves the region is an array like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ioweave.derive.program.lists import priced_list
from ioweave.derive.program.slots import corrections
from ioweave.diagrams.boxes import Box, source
from ioweave.diagrams.expressions import Apply, Expr, Index, Number, Read, transform
from ioweave.diagrams.lists import is_list


def free_boxes(boxes: Sequence[Box], stored: frozenset[str], given: frozenset[str] = frozenset()) -> frozenset[str]:
    """The arrays that positions alone decide: ``given`` ones, and boxes of those that are not ``stored``."""
    free = set(given)
    for b in boxes:
        decided = b.scan is None and not corrections(b) and all(source(r.array) in free for r in b.reads())
        if decided and b.name not in stored:
            free.add(b.name)
    return frozenset(free)


def priced(box: Box, free: frozenset[str]) -> Box:
    """The box as its arithmetic is counted: a free one has none, and what is free stands for its indices."""
    if box.name in free:
        return replace(box, body=Number(0), reduction=None, over=())
    if is_list(box):
        box = priced_list(box)
    if not any(source(r.array) in free for r in box.reads()):
        return box
    return replace(box, body=transform(box.body, lambda e: _indices(e) if _is_free(e, free) else e))


def _is_free(e: Expr, free: frozenset[str]) -> bool:
    return isinstance(e, Read) and source(e.array) in free


def _indices(e: Expr) -> Expr:
    """A value of the same axes that is made of indices alone."""
    axes = dict.fromkeys(a for form in e.index for a in form.names) if isinstance(e, Read) else {}
    value: Expr = Number(1)
    for a in axes:
        value = Apply("add", (value, Index(a)))
    return value
