"""Reaches: what the looked-up positions of a read touch, as a function of the tile.

A position that holds a lookup touches no interval: ``page[b, x // p]`` may be any page. Positions that share
an axis with it are taken together as one *reach*. What tells its elements apart are its *arguments*: the places
at which index arrays are read, and what is made of indices alone. There are at most as many elements as there
are tuples of arguments on a tile, and no more than the array has there; an index that is made of indices alone
gives its elements exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ioweave.derive.program.arguments import arguments, filled, written
from ioweave.derive.program.coordinates import UNCUT, Coordinate, Coordinates
from ioweave.derive.program.setting import Setting
from ioweave.derive.program.slots import Slot
from ioweave.derive.program.spans import Span, bare, of_form
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import source
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Expr, Read, free_axes, reads


@dataclass(frozen=True, slots=True)
class Reach:
    """What a read touches at ``places`` of its array, of ``sizes`` elements each.

    ``forms`` are the indices there, sizes and constants filled in; ``inner`` the span of each axis in them.
    ``most`` tells elements apart at most, whatever index arrays hold; ``exact`` exactly, and ``least`` at least
    (None where only the index arrays tell).
    """

    places: tuple[int, ...]
    forms: tuple[Affine, ...]
    sizes: tuple[int, ...]
    inner: tuple[tuple[str, Span], ...]
    axes: tuple[tuple[str, int], ...]
    most: tuple[Coordinate, ...]
    exact: tuple[Coordinate, ...] | None
    least: tuple[tuple[Coordinate, ...], ...]
    cap: int

    @property
    def bare(self) -> None:
        """A reach is never just the tile of an axis."""
        return None

    @property
    def arrays(self) -> tuple[str, ...]:
        """The index arrays that it is looked up in, inner ones included."""
        return tuple(dict.fromkeys(r.array for f in self.forms for lookup, _ in f.lookups for r in reads(lookup.expr)))

    @property
    def plain(self) -> tuple[str, ...] | None:
        """The axes whose tiles tell its elements apart, where nothing else does and the array has room for all."""
        if self.exact is not None and self.exact != self.most:
            return None
        axes = tuple(c.axis for c in self.most)
        whole = prod(c.span.size for c in self.most if c.axis is not None)
        return tuple(str(a) for a in axes) if None not in axes and whole <= self.cap else None


Place = Span | Reach
"""What a read touches at one position of its array, or at several together."""


def places(read: Read, inner: Mapping[str, Span], setting: Setting) -> tuple[Place, ...]:
    """What a read touches while the axes of its box run over ``inner`` spans.

    One span per position without lookups; a reach for those with, and for what shares an axis with them.
    """
    sizes, shape = setting.sizes, setting.shapes[read.array]
    if not any(f.lookups for f in read.index):
        return tuple(of_form(f, inner, n, sizes) for f, n in zip(read.index, shape, strict=True))
    result: list[tuple[int, Place]] = []
    for group in _groups(read.index, inner):
        if any(read.index[k].lookups for k in group):
            forms = tuple(filled(read.index[k], sizes, setting.constants) for k in group)
            made = _reach(tuple(group), forms, tuple(shape[k] for k in group), inner, setting)
            result.append((group[0], made))
        else:
            result.extend((k, of_form(read.index[k], inner, shape[k], sizes)) for k in group)
    return tuple(place for _, place in sorted(result, key=lambda kp: kp[0]))


def whole_reaches(read: Read, setting: Setting) -> tuple[Reach, ...]:
    """What is looked up in a read while all axes run over the whole of themselves."""
    if not any(f.lookups for f in read.index):
        return ()
    inner = {a: bare(a, setting.sizes[a]) for f in read.index for a in f.names}
    return tuple(s for s in places(read, inner, setting) if isinstance(s, Reach))


def _groups(index: Sequence[Affine], inner: Mapping[str, Span]) -> list[list[int]]:
    """Positions that share an axis of the tiles with one that holds a lookup, together."""
    used = [{t for a in form.names for t, _ in inner[a].axes} for form in index]
    groups: list[tuple[list[int], set[str]]] = []
    for k, axes in enumerate(used):
        members, joined = [k], set(axes)
        for other in [g for g in groups if g[1] & axes]:
            groups.remove(other)
            members, joined = [*other[0], *members], joined | other[1]
        groups.append((sorted(members), joined))
    return [g for g, _ in groups]


def _reach(
    at: tuple[int, ...],
    forms: tuple[Affine, ...],
    sizes: tuple[int, ...],
    inner: Mapping[str, Span],
    setting: Setting,
) -> Reach:
    names = tuple(dict.fromkeys(a for f in forms for a in f.names))
    mine = {a: inner[a] for a in names}
    axes = tuple(sorted({(t, 1) for span in mine.values() for t, _ in span.axes}))
    maker = Coordinates(mine, setting.sizes)
    most = maker.coordinates([x for f in forms for x in arguments(f)], None)
    whole = [written(f) for f in forms]
    exact: tuple[Coordinate, ...] | None = None
    least: list[tuple[Coordinate, ...]] = []
    if not any(reads(e) for e in whole):
        exact = maker.exactly(whole, sizes)
    else:
        kept = [k for k, e in enumerate(whole) if not reads(e)]
        if kept:
            least.append(maker.exactly([whole[k] for k in kept], tuple(sizes[k] for k in kept)))
        least.append(maker.coordinates(_free_parts(forms), None))
    cap = prod(min(n, _values(f, setting.shapes)) for f, n in zip(forms, sizes, strict=True))
    return Reach(at, forms, sizes, tuple(mine.items()), axes, most, exact, tuple(least), cap)


def _values(form: Affine, shapes: Mapping[str, Sequence[int]]) -> int:
    """How many values a form may have: those of its index array, where it is one element of one."""
    if not form.axes and len(form.lookups) == 1 and isinstance(form.lookups[0][0].expr, Read):
        return prod(shapes[form.lookups[0][0].expr.array])
    return UNCUT


def _free_parts(forms: Sequence[Affine]) -> list[Expr]:
    """Of each form the part that moves while its index arrays are read at one place: linear in the other axes."""
    held = {a for f in forms for lookup, _ in f.lookups for a in lookup.names}
    parts = (written(Affine.make({a: c for a, c in f.axes if a not in held})) for f in forms)
    return [p for p in parts if free_axes(p)]


def refuse_inner(read: Read, made: Collection[str]) -> None:
    """Refuse a load at places that an array of the region itself names: loads come before boxes."""
    for form in read.index:
        for lookup, _ in form.lookups:
            for r in reads(lookup.expr):
                if source(r.array) in made:
                    raise Refused(
                        f"{read.array} is loaded at places that {source(r.array)} names, which is made in this "
                        f"region, after its loads; put {source(r.array)} in a region of its own"
                    )


def refuse_late(depths: Mapping[tuple[str, Read, Slot], tuple[str, int, Slot]]) -> None:
    """Refuse an index array that is loaded further in than what it is looked up for.

    ``depths`` gives for every box, read and slot the array with the depth at which it is loaded there.
    """
    for (box, read, slot), (array, depth, _) in depths.items():
        for form in read.index:
            for r in (r for lookup, _ in form.lookups for r in reads(lookup.expr)):
                inner = depths.get((box, r, slot))
                if inner is not None and inner[1] > depth:
                    raise Refused(
                        f"{array} is held at depth {depth}, and {r.array}, which names its places, is loaded at depth "
                        f"{inner[1]}; hold {r.array} there too, or {array} no further out"
                    )
