"""Reads on which no output depends because their values cancel, as a softmax over equal scores cancels the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ioweave.derive.program.setting import Setting
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Apply, Expr, Index, Read, children, is_predicate_of_indices


def surviving(opened: Opened, boxes: Sequence[Box], sizes: Mapping[str, int | float]) -> frozenset[Read] | None:
    """The reads left in every plan of a reduction whose terms are alike; None where there is no such reduction.

    ``boxes`` are those whose every element an output takes, in order. The plans are the prover's: a schedule
    that streams the axis of such a reduction runs one of them.
    """
    axes = alike(boxes)
    if not axes:
        return None
    setting = Setting.make(opened, sizes)
    left: frozenset[Read] | None = None
    for streamed in {frozenset(axes), *(frozenset({a}) for a in axes)}:
        try:
            plan = setting.plan(opened.boxes, streamed, frozenset(opened.outputs))
        except Refused:
            continue
        found = frozenset(r for b in plan.boxes for r in b.operands())
        left = found if left is None else left & found
    return left


def alike(boxes: Sequence[Box]) -> tuple[str, ...]:
    """The axes over which a box reduces terms that its index changes in no way, predicates of indices aside."""
    moves: dict[str, tuple[bool, ...]] = {}  # by box, and by position: whether the value changes along it
    found: dict[str, None] = {}
    for b in boxes:
        inside = frozenset(_moving(b.body, moves))
        found.update(dict.fromkeys(a for a in b.over if a not in inside))
        whole = b.scan is not None or b.into is not None
        moves[b.name] = tuple(whole or a in inside for a in b.axes)
    return tuple(found)


def _moving(e: Expr, moves: Mapping[str, tuple[bool, ...]]) -> Iterator[str]:
    """The axes that change a value; those of an intermediate's positions only where they change it."""
    match e:
        case Index(axis=axis):
            yield axis
        case Read(array=array, index=index):
            every = (True,) * len(index)
            for form, moving in zip(index, moves.get(array, every), strict=True):
                if moving:
                    yield from form.names
        case Apply(op="where", args=(condition, yes, no)) if is_predicate_of_indices(condition):
            yield from _moving(yes, moves)
            yield from _moving(no, moves)
        case _:
            for child in children(e):
                yield from _moving(child, moves)
