"""Nests: what a region's program looks like for a sequence of loops, short of building it.

A nest lists the moments at which a box runs, with what is surely live there, and the reads of
outside arrays with the slots in which they are made. Groups and holds are added by
`ioweave.derive.search.relaxed`. Axes are bits, in the order of the frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from ioweave.derive.counting.gathers import least_over_all
from ioweave.derive.counting.lengths import length
from ioweave.derive.program.free import free_boxes
from ioweave.derive.program.held import held_dtypes
from ioweave.derive.program.reach import Reach, whole_reaches
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.slots import Nests, Slot, occurrences
from ioweave.derive.program.spans import bare, of_form
from ioweave.derive.search.density import Density
from ioweave.derive.search.shapes import Frame
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import PAST, PREV, Box, source
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.scans import coupled, lockstep, scan_axes, with_starts

Axes = int  # a set of axes


@lru_cache(maxsize=4096)
def members(axes: Axes) -> tuple[int, ...]:
    """The numbers of the axes in a set, ascending."""
    return tuple(k for k in range(axes.bit_length()) if axes >> k & 1)


@dataclass(frozen=True, slots=True)
class Tile:
    """``bits`` per value times the tiles of ``axes``, at the step of those in ``entered``."""

    bits: int
    axes: Axes
    entered: Axes


@dataclass(frozen=True, slots=True)
class Gather:
    """How much more a lookup touches in tiles than on the whole of ``axes`` at once, at least.

    That is ``scale`` over the product of their tiles, but no less than 1 and no more than ``most``. On one tile it
    touches as many as that product, ``limit`` at most (0: unsure).
    """

    axes: Axes
    scale: float
    most: float
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A read of an outside array in one slot.

    ``axes`` index it, those in ``apart`` so that their tiles do not overlap; ``tile`` are axes
    whose tiles it surely spans, ``size`` the product of their sizes; ``natural`` is its depth
    where nothing holds it. ``sure`` is False where edges or windows of windows may make it smaller.
    ``gathers`` multiply its size where tiles cut what it looks up; ``bits`` are 0 where edges cut its tiles.
    """

    read: Read
    bits: int
    axes: Axes
    apart: Axes
    tile: Axes
    size: int
    slot: Slot
    natural: int
    sure: bool
    gathers: tuple[Gather, ...]

    @property
    def array(self) -> str:
        """The array read."""
        return self.read.array


@dataclass(frozen=True, slots=True)
class Moment:
    """A box runs in a slot: the tiles that are surely live besides slabs."""

    slot: Slot
    live: tuple[Tile, ...]


@dataclass(frozen=True)
class Nest:
    """A region under a sequence of loops."""

    loops: tuple[str, ...]
    bits: tuple[Axes, ...]
    readings: tuple[Reading, ...]
    moments: tuple[Moment, ...]
    slabs: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # kept by `relaxed`
    live: dict[Axes, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that are read."""
        return tuple(dict.fromkeys(r.array for r in self.readings))

    def entered(self, slot: Slot) -> Axes:
        """The loops that are inside a slot, or a part of one."""
        return sum(x for x, t in zip(self.bits, slot, strict=False) if t is not None and t % 2 == 0)


@dataclass(frozen=True)
class Part:
    """A box of the streamed region: its reads of outside arrays, the boxes it reads, what it makes (None: unsure).

    ``takes`` tells that the result may take over the bytes of an operand.
    """

    box: Box
    reads: tuple[tuple[Read, int, Axes, Axes, Axes, int, bool, tuple[Gather, ...]], ...]  # as in Reading
    operands: tuple[str, ...]
    takes: bool
    result: tuple[int, Axes] | None


@dataclass(frozen=True)
class Basis:
    """What the bounds of all shapes of a region share; ``density`` is None where no mask removes a read."""

    frame: Frame
    boxes: tuple[Box, ...]
    stored: frozenset[str]
    setting: Setting
    sizes: tuple[int, ...]
    stores: int
    density: Density | None
    _whole: dict[Axes, int] = field(default_factory=dict, compare=False, repr=False)
    _masked: dict[Axes, tuple[tuple[int, str], ...]] = field(default_factory=dict, compare=False, repr=False)
    _places: dict[tuple[str, int, Affine], int] = field(default_factory=dict, compare=False, repr=False)
    _parts: dict[frozenset[str], tuple[Part, ...]] = field(default_factory=dict, compare=False, repr=False)
    _nests: dict[tuple[str, ...], Nest] = field(default_factory=dict, compare=False, repr=False)
    _unordered: dict[frozenset[str], Nest] = field(default_factory=dict, compare=False, repr=False)

    def whole(self, axes: Axes) -> int:
        """The product of the sizes of some axes."""
        if axes not in self._whole:
            self._whole[axes] = prod(n for k, n in enumerate(self.sizes) if axes >> k & 1)
        return self._whole[axes]

    def places(self, array: str, position: int, form: Affine) -> int:
        """How many places of an array a form touches while its axes run over the whole of themselves."""
        if (array, position, form) not in self._places:
            sizes = self.setting.sizes
            inner = {a: bare(a, sizes[a]) for a in form.names}
            span = of_form(form, inner, self.setting.shapes[array][position], sizes)
            self._places[array, position, form] = int(length(span, {a: (0, sizes[a]) for a in form.names}))
        return self._places[array, position, form]

    def masked(self, axes: Axes) -> tuple[tuple[int, str], ...]:
        """Those of some axes that a mask bears on, with their numbers."""
        if axes not in self._masked:
            hidden = self.density.axes if self.density is not None else ()
            self._masked[axes] = tuple((k, self.frame.axes[k]) for k in members(axes) if self.frame.axes[k] in hidden)
        return self._masked[axes]

    def axes(self, names: Sequence[str]) -> Axes:
        """Axes as bits."""
        return sum(1 << k for k, a in enumerate(self.frame.axes) if a in names)

    def twins(self, one: Read, other: Read) -> bool:
        """Whether two reads of an array differ in one position alone, where each walks all of it by an axis of its own.

        Their tiles meet in every element once over all pairs of tiles, so the union of what they
        touch is, summed over those, the sum of both less one array.
        """
        if one.array != other.array or self.density is not None:
            return False
        apart = [k for k, (f, g) in enumerate(zip(one.index, other.index, strict=True)) if f != g]
        if len(apart) != 1:
            return False
        names = [r.index[apart[0]].bare for r in (one, other)]
        used = [a for r in (one, other) for f in r.index for a in f.names]
        size = self.setting.shapes[one.array][apart[0]]
        return all(a is not None and used.count(a) == 1 and self.setting.sizes[a] == size for a in names)

    def nest(self, loops: tuple[str, ...]) -> Nest:
        """The nest of a sequence of loops."""
        if loops not in self._nests:
            reduced = frozenset(a for b in self.boxes for a in b.over) | scan_axes(self.boxes)
            self._nests[loops] = _nest(self, loops, self._streamed(reduced & frozenset(loops)))
        return self._nests[loops]

    def unordered(self, loops: frozenset[str]) -> Nest:
        """What all nests of these loops have in common: every box inside all of them, beside nothing that it lacks.

        Slots are numbers of boxes; boxes that only correct a state are left out, for some nests do without.
        """
        if loops not in self._unordered:
            reduced = frozenset(a for b in self.boxes for a in b.over) | scan_axes(self.boxes)
            self._unordered[loops] = _unordered(self, loops, self._streamed(reduced & loops))
        return self._unordered[loops]

    def _streamed(self, streamed: frozenset[str]) -> tuple[Part, ...]:
        if streamed not in self._parts:
            plan = self.setting.plan(self.boxes, streamed, self.stored)
            self._parts[streamed] = _parts(self, with_starts(plan.boxes, sorted(streamed)))
        return self._parts[streamed]


def basis(f: Frame, boxes: Sequence[Box], stored: frozenset[str], setting: Setting, density: Density | None) -> Basis:
    """The basis of a region."""
    stores = sum(prod(setting.shapes[b.name]) for b in boxes if b.name in stored)
    return Basis(f, tuple(boxes), stored, setting, tuple(setting.sizes[a] for a in f.axes), stores, density)


def _parts(b: Basis, boxes: Sequence[Box]) -> tuple[Part, ...]:
    made = {x.name: x for x in boxes}
    held = held_dtypes(boxes, b.setting.accumulate)
    faithful = _faithful(boxes, made, b.stored)
    free = free_boxes(boxes, b.stored)
    places: dict[str, set[tuple[Affine, ...]]] = {}
    along = lockstep(boxes)
    for r in (r for box in boxes for r in box.operands()):
        places.setdefault(r.array, set()).add(r.index)
    result = []
    for box in boxes:
        reads = []
        for r in box.operands():
            if source(r.array) not in made:
                axes = b.axes([a for form in r.index for a in form.names])
                reaches = whole_reaches(r, b.setting)
                alone = [form.names[0] for form in r.index if len(form.axes) == 1 and not form.lookups]
                alone += [a for s in reaches for a in s.plain or ()]
                apart = b.axes(alone) if len(places[r.array]) == 1 else 0
                leading, size = _leading(r, b, reaches)
                width = DTYPES[b.setting.dtypes[r.array]].bits
                sure = box.name in faithful
                if not _within(r, b.setting):
                    cut = _cut(r, b) if sure else None
                    width, size, sure = 0, size if cut is None else size // cut[0] * cut[1], cut is not None
                gathers = tuple(g for s in reaches for g in _gathers(b, s))
                reads.append((r, width, axes, apart, b.axes(leading), size, sure, gathers))
        kept = box.axes if along.get(box.name, box.name) == box.name else _one_by_one(box, made[along[box.name]])
        own = (DTYPES[held[box.name]].bits, b.axes(kept)) if box.name in faithful - free else None
        operands = tuple(dict.fromkeys(source(r.array) for r in box.operands() if source(r.array) in made))
        takes = box.reduction is None and any(set(made[n].axes) == set(box.axes) for n in operands)
        result.append(Part(box, tuple(reads), operands, takes, own))
    return tuple(result)


def _faithful(boxes: Sequence[Box], made: Mapping[str, Box], stored: frozenset[str]) -> set[str]:
    """Boxes computed on their own tiles at least: they are stored, or a reader that is so itself has them there.

    Along its own axis, and those tied to it, a scan is made on its own tiles wherever it is read.
    """
    result: set[str] = set()
    asked: set[str] = set()
    for box in reversed(boxes):
        if box.name in stored or box.name not in asked:
            result.add(box.name)
        for r in box.operands():
            name = source(r.array)
            if name in made and name != box.name:
                asked.add(name)
                if box.name in result and not r.array.endswith((PREV, PAST)) and _own(r, made[name], boxes):
                    result.add(name)
    return result


def _own(r: Read, box: Box, boxes: Sequence[Box]) -> bool:
    kept = {box.scan.axis, *coupled(box, boxes)} if box.scan is not None else set[str]()
    return all(a in kept or f == Affine.axis(a) for f, a in zip(r.index, box.axes, strict=True))


def _leading(r: Read, b: Basis, reaches: Sequence[Reach]) -> tuple[list[str], int]:
    """One axis for each position of a read, the longest, and how many elements all tiles touch together.

    A window over a tile is no shorter than the tile. Positions that share an axis with an earlier one add nothing
    for sure. Of what is looked up, all axes whose tiles tell it apart; else what is looked up over all tiles.
    """
    sizes = b.setting.sizes
    chosen: list[str] = []
    used: set[str] = set()
    size = 1
    for s in reaches:
        used |= {a for a, _ in s.inner}
        if s.plain is not None:
            chosen += s.plain
            size *= prod(sizes[a] for a in s.plain)
        else:
            size *= least_over_all(s, sizes)
    for k, form in enumerate(r.index):
        if form.axes and not used & set(form.names):
            longest = max(form.names, key=lambda a: sizes[a])
            chosen.append(longest)
            used |= set(form.names)
            n = sizes[longest] if len(form.axes) == 1 else b.places(r.array, k, form)
            apart = n == prod(sizes[a] for a in form.names)  # else a mask may leave few of them, for many reads
            size *= n if b.density is None or apart else sizes[longest]
    return chosen, size


def _gathers(b: Basis, s: Reach) -> list[Gather]:
    """What tiles add to the elements of a reach over the whole of its axes, by what tells them apart.

    Of n values, t on a tile, of which it touches ``limit`` at most, all tiles touch n * min(1, limit / t) at least;
    a quotient is touched once a tile at least.
    """
    sizes = b.setting.sizes
    if s.exact is None:
        axes = [c.axis for c in s.most]
        whole = prod(c.span.size for c in s.most)
        if None in axes or whole <= s.cap:
            return []
        return [Gather(b.axes([a for a in axes if a is not None]), whole, whole / s.cap, s.cap)]
    result = []
    for c in s.exact:
        if c.kind in ("quotient", "remainder") and c.span.bare is not None:
            n = sizes[c.span.bare]
            more = n / (-(-n // c.by)) if c.kind == "quotient" else n / min(n, c.by)
            result.append(Gather(b.axes([c.span.bare]), more if c.kind == "quotient" else n, more))
    return result


def _cut(r: Read, b: Basis) -> tuple[int, int] | None:
    """The places of a read, and those of them that are in range, where edges cut axes of one position alone.

    Under masks those of a masked axis are cut in the density. None where it is not so simple.
    """
    every = [a for form in r.index for a in form.names]
    sizes = b.setting.sizes
    places = inside = 1
    for form, size in zip(r.index, b.setting.shapes[r.array], strict=True):
        if _in_range(form, size, sizes):
            continue
        if len(form.axes) != 1 or every.count(form.axes[0][0]) > 1:
            return None
        ((axis, c),) = form.axes
        first = form.fixed(sizes) if c > 0 else size - 1 - form.fixed(sizes)
        if b.density is None or axis not in b.density.axes:
            low, high = max(0, -(first // abs(c))), min(sizes[axis], (size - 1 - first) // abs(c) + 1)
            places, inside = places * sizes[axis], inside * max(0, high - low)
    return places, inside


def _within(r: Read, setting: Setting) -> bool:
    """Whether a read stays in range at every index, so that nothing is cut off."""
    return all(_in_range(f, n, setting.sizes) for f, n in zip(r.index, setting.shapes[r.array], strict=True))


def _in_range(form: Affine, size: int, sizes: Mapping[str, int]) -> bool:
    if form.lookups:
        return True  # counted as if all of it were there
    low = high = form.fixed(sizes)
    for a, c in form.axes:
        low += min(c * (sizes[a] - 1), 0)
        high += max(c * (sizes[a] - 1), 0)
    return low >= 0 and high < size


def _nest(b: Basis, loops: tuple[str, ...], parts: Sequence[Part]) -> Nest:
    boxes = [p.box for p in parts]
    slots = occurrences(Nests(boxes, loops), b.stored)
    bits = tuple(b.axes([a]) for a in loops)
    every = sum(bits)
    results = {p.box.name: p.result for p in parts}
    shape = Nest(loops, bits, (), ())
    states: list[tuple[str, Slot, Tile]] = []
    for p in parts:
        for slot in slots[p.box.name]:
            depth = _state_depth(p.box, slot, loops)
            if depth is not None and p.result is not None:
                bits_of, axes = p.result
                carried = axes & ~bits[depth]  # of a scan the value before a step; its elements may take that over
                states.append((p.box.name, slot[: depth + 1], Tile(bits_of, carried, shape.entered(slot[:depth]))))
    readings: list[Reading] = []
    moments: list[Moment] = []
    for p in parts:
        for slot in slots[p.box.name]:
            for read, width, axes, apart, tile, size, sure, gathers in p.reads:
                natural = max((k + 1 for k, x in enumerate(bits) if x & axes), default=0)
                readings.append(Reading(read, width, axes, apart, tile, size, slot, natural, sure, gathers))
            live = {n: t for n, around, t in states if around == slot[: len(around)]}
            for name in p.operands:
                result = results[name]
                if name not in live and result is not None:
                    live[name] = Tile(*result, every)
            if p.box.name not in live and p.result is not None and not p.takes:
                live[p.box.name] = Tile(*p.result, shape.entered(slot))
            moments.append(Moment(slot, tuple(live.values())))
    return Nest(loops, bits, tuple(readings), tuple(moments))


def _unordered(b: Basis, loops: frozenset[str], parts: Sequence[Part]) -> Nest:
    order = tuple(a for a in b.frame.axes if a in loops)
    bits = tuple(b.axes([a]) for a in order)
    every = sum(bits)
    results = {p.box.name: p.result for p in parts}
    operands = {p.box.name: p.operands for p in parts}
    sure = set(b.stored & results.keys())
    frontier = list(sure)
    while frontier:
        new = set(operands[frontier.pop()]) - sure
        sure |= new
        frontier += new
    readings: list[Reading] = []
    moments: list[Moment] = []
    for number, p in enumerate(parts):
        if p.box.name in sure:
            slot = (2 * number,) * len(order)
            readings += (Reading(*read[:-2], slot, len(order), *read[-2:]) for read in p.reads)
            live = {n: Tile(*r, every) for n in p.operands if (r := results[n]) is not None}
            if p.result is not None and not p.takes:
                live[p.box.name] = Tile(*p.result, every)
            moments.append(Moment(slot, tuple(live.values())))
    return Nest(order, bits, tuple(readings), tuple(moments))


def _state_depth(box: Box, slot: Slot, loops: Sequence[str]) -> int | None:
    """The position of the outermost loop over which a box accumulates in a slot, or None."""
    for p, axis in enumerate(loops):
        t = slot[p]
        walked = axis in box.over or (box.scan is not None and box.scan.axis == axis)
        if walked and t is not None and t % 2 == 0:
            return p
    return None


def _one_by_one(box: Box, scan: Box) -> tuple[str, ...]:
    """The axes of what is held of a box that is made along with a scan: one element of the scan's axis."""
    assert scan.scan is not None
    return tuple(a for a in box.axes if a != scan.scan.axis)
