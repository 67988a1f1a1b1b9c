"""Compulsory traffic: what any schedule must move at least once, counted so that it never exceeds the truth.

Outputs are stored once, whole. Of an input, the elements count that an output surely depends on; where that
cannot be told (a masked read with a shifted index, a part of an intermediate), they are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from ioweave.derive.bounds.cancelled import surviving
from ioweave.derive.counting.gathers import Look, whole
from ioweave.derive.program.reach import Reach, whole_reaches
from ioweave.derive.program.setting import Setting
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.boxes import Box, Opened, Operand, base_name
from ioweave.diagrams.dtypes import size_bytes
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import (
    Apply,
    Constant,
    Expr,
    Index,
    Number,
    Read,
    Size,
    children,
    is_predicate_of_indices,
    reads,
    walk,
)
from ioweave.diagrams.operators import PREDICATES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST_GRID = 1 << 24  # points at which masks are tried one by one; beyond it, witnesses alone


@dataclass(frozen=True, slots=True)
class Compulsory:
    """Each array that must be moved, with its number of values and of bytes."""

    arrays: tuple[tuple[str, int, int], ...]

    @property
    def values(self) -> int:
        """All values that must be moved."""
        return sum(v for _, v, _ in self.arrays)

    @property
    def bytes(self) -> int:
        """All bytes that must be moved."""
        return sum(b for _, _, b in self.arrays)


@dataclass(frozen=True, slots=True)
class Scope:
    """Sizes of axis components, and the numbers of sizes and constants."""

    base: Mapping[str, str]
    numbers: Mapping[str, int | float]

    def size(self, axis: str) -> int:
        """The size of an axis component."""
        return int(self.numbers[self.base.get(axis, base_name(axis))])


class _Unclear(Exception):
    """A mask in a form from which nothing is concluded."""


Mask = tuple[Expr, bool]
"""A predicate of indices, and the truth value under which the value that it guards counts."""


def scope(opened: Opened, sizes: Mapping[str, int | float]) -> Scope:
    """The scope of an opened diagram for concrete ``sizes`` (constants included)."""
    return Scope(dict(opened.base), sizes)


def compulsory(opened: Opened, sizes: Mapping[str, int | float]) -> Compulsory:
    """What any schedule moves at least: the outputs once, and the inputs' elements that they depend on once.

    ``sizes`` holds the diagram's numbers: sizes and the constants that predicates use.
    """
    where = scope(opened, sizes)
    setting = Setting.make(opened, sizes) if _looks_up(opened) else None
    rows: list[tuple[str, int, int]] = []
    boxes = demanded(opened, where)
    left = surviving(opened, boxes, sizes)
    try:
        masks = tuple(dict.fromkeys(m for b in boxes for m in _masks(b.body)))
        counted: dict[frozenset[str], int] = {}
        for operand in opened.inputs:
            # what a scan starts from may be masked away with its first element
            found = [r for b in boxes for r in (reads(b.body) if masks else b.reads()) if r.array == operand.name]
            found = [r for r in found if left is None or r in left]
            values = max((_elements(r, operand, masks, where, counted, setting) for r in found), default=0)
            if values:
                rows.append((operand.name, values, size_bytes(values, operand.dtype)))
    except (_Unclear, KeyError):  # a mask of unknown meaning, or a name without a number: no input counts
        rows = []
    for name in opened.outputs:
        box = opened.box(name)
        values = math.prod(where.size(a) for a in box.axes)
        rows.append((name, values, size_bytes(values, box.dtype)))
    return Compulsory(tuple(rows))


def demanded(opened: Opened, where: Scope) -> tuple[Box, ...]:
    """Boxes of which an output needs every element (masks aside): reached by reads of whole arrays, index for index."""
    by_name = {b.name: b for b in opened.boxes}
    wanted = [by_name[o] for o in opened.outputs]
    seen: dict[str, Box] = {}
    while wanted:
        box = wanted.pop()
        if box.name not in seen:
            seen[box.name] = box
            wanted += [by_name[r.array] for r in box.reads() if r.array in by_name and is_whole(r, by_name[r.array])]
    return tuple(b for b in opened.boxes if b.name in seen)


def is_whole(read: Read, box: Box) -> bool:
    """Whether a box is read at its own axes, one for one."""
    return tuple(form.bare for form in read.index) == box.axes


def masked(boxes: Sequence[Box]) -> bool:
    """Whether any value is guarded by a predicate of indices, or in a form that cannot be told."""
    try:
        return any(True for b in boxes for _ in _masks(b.body))
    except _Unclear:
        return True


def _masks(e: Expr) -> Iterator[Mask]:
    """The predicates of indices in a body, each with the truth value that lets its reads count."""
    if _is_predicate(e):
        raise _Unclear
    match e:
        case Apply(op="where", args=(cond, yes, no)) if is_predicate_of_indices(cond):
            yield cond, _guarded(yes, no)
            yield from _masks(yes)
            yield from _masks(no)
        case Apply(op="mul", args=args):
            if any(isinstance(a, Number) and a.value == 0 for a in args):
                raise _Unclear
            for a in args:
                if _is_predicate(a):
                    yield a, True
                else:
                    yield from _masks(a)
        case _:
            for child in children(e):
                yield from _masks(child)


def _is_predicate(e: Expr) -> bool:
    return isinstance(e, Apply) and e.op in PREDICATES and is_predicate_of_indices(e)


def _guarded(yes: Expr, no: Expr) -> bool:
    """Which branch counts: the one that reads; of two numbers, the one that is not 0 or infinite."""
    if reads(yes) and reads(no):
        raise _Unclear
    if reads(yes) or reads(no):
        return bool(reads(yes))
    weighty = [isinstance(b, Number) and b.value != 0 and math.isfinite(b.value) for b in (yes, no)]
    if not any(weighty):
        raise _Unclear
    return weighty[0]


def _elements(
    read: Read,
    operand: Operand,
    masks: tuple[Mask, ...],
    where: Scope,
    counted: dict[frozenset[str], int],
    setting: Setting | None,
) -> int:
    """Distinct elements of a read that surely count; of what is looked up the fewest that its index may name."""
    if not masks:
        reaches = () if setting is None else whole_reaches(read, setting)
        taken = {k for s in reaches for k in s.places}
        rest = tuple(f for k, f in enumerate(read.index) if k not in taken)
        return _distinct(rest, where) * math.prod(_fewest(s, setting) for s in reaches if setting is not None)
    axes = [form.bare for form in read.index]
    named = [a for a in axes if a is not None]
    if len(named) != len(axes) or len(set(named)) != len(named):
        return 0
    tied = {n.axis for cond, _ in masks for n in walk(cond) if isinstance(n, Index)}
    shared = frozenset(named) & tied
    if shared not in counted:
        counted[shared] = _count_unmasked(masks, sorted(tied), sorted(shared), where)
    return counted[shared] * math.prod(where.size(a) for a in named if a not in tied)


def _looks_up(opened: Opened) -> bool:
    return any(f.lookups for b in opened.boxes for r in b.reads() for f in r.index)


def _fewest(reach: Reach, setting: Setting) -> int:
    """The fewest elements of what is looked up; 1 where they are too many to count."""
    try:
        return max(1, whole(reach, setting.sizes, Look(least=True)))
    except Refused:
        return 1


def _distinct(index: tuple[Affine, ...], where: Scope) -> int:
    """At least so many distinct positions: dimensions that share an axis count once, by the larger."""
    groups: list[tuple[set[str], int]] = []
    for form in index:
        axes, count = set(form.names), _span(form, where)
        for other in [g for g in groups if g[0] & axes]:
            groups.remove(other)
            axes, count = axes | other[0], max(count, other[1])
        groups.append((axes, count))
    return math.prod(c for _, c in groups)


def _span(form: Affine, where: Scope) -> int:
    """At least so many distinct values of an affine form: exact where steps are filled by smaller ones."""
    reach, count = 0, 1
    for axis, step in sorted(form.axes, key=lambda t: abs(t[1])):
        n, step = where.size(axis), abs(step)
        if step > reach:  # positions of different steps never meet
            count *= n
        elif count == reach + 1:  # an interval so far, extended without a gap
            count += step * (n - 1)
        else:
            count = max(count, n)
        reach += step * (n - 1)
    return count


def _count_unmasked(masks: tuple[Mask, ...], tied: list[str], shared: list[str], where: Scope) -> int:
    """Index tuples of ``shared`` for which some index of the other axes satisfies every mask (fewer where large)."""
    import numpy as np

    sizes = {a: where.size(a) for a in tied}
    if len(shared) <= 1:
        walked = shared or tied[:1]
        n = sizes[walked[0]]
        if n <= LARGEST_GRID:
            found = _by_witnesses(masks, walked[0], sizes, where)
            if not shared and found.any():
                return 1
            if found.all():
                return n
            best = int(found.sum()) if shared else 0
        else:
            best = 0
    else:
        best = 0
    if math.prod(sizes.values()) > LARGEST_GRID:
        return best
    grid = {a: np.arange(sizes[a]).reshape([-1 if b == a else 1 for b in tied]) for a in tied}
    kept = np.broadcast_to(_kept(masks, grid, where), [sizes[a] for a in tied])
    return int(kept.any(axis=tuple(i for i, a in enumerate(tied) if a not in shared)).sum())


def _by_witnesses(masks: tuple[Mask, ...], axis: str, sizes: Mapping[str, int], where: Scope) -> NDArray[np.bool_]:
    """For each index of ``axis``, whether likely indices of the others (ends, same place, in proportion) pass."""
    import numpy as np

    here = np.arange(sizes[axis])
    others = [a for a in sizes if a != axis]
    found = np.zeros(sizes[axis], dtype=bool)
    tries = []
    for n in (sizes[a] for a in others):
        scaled = np.minimum((here * (n / sizes[axis])).astype(np.int64), n - 1)
        tries.append([np.zeros_like(here), np.full_like(here, n - 1), np.minimum(here, n - 1), scaled])
    for chosen in product(*tries):
        grid = {axis: here, **dict(zip(others, chosen, strict=True))}
        found |= np.broadcast_to(_kept(masks, grid, where), found.shape)
        if found.all() or len(others) > 3:
            break
    return found


def _kept(masks: tuple[Mask, ...], grid: Mapping[str, Any], where: Scope) -> Any:
    kept: Any = True
    for cond, truth in masks:
        value = _evaluate(cond, grid, where)
        kept = kept & (value if truth else ~value)
    return kept


def _evaluate(e: Expr, grid: Mapping[str, Any], where: Scope) -> Any:
    import numpy as np

    match e:
        case Number(value=v):
            return np.asarray(v)
        case Constant(name=name):
            return np.asarray(where.numbers[name])
        case Index(axis=axis):
            return grid[axis]
        case Size(axis=axis):
            return np.asarray(where.size(axis))
        case Apply(op=op, args=args):
            return FUNCTIONS[op](*(_evaluate(a, grid, where) for a in args))
        case _:
            raise _Unclear
