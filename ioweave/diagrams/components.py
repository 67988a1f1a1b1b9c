"""Axes as components (counting.md 5).

The uses of one name are one axis where they are linked: through a box that uses the name for
both, or through a position of an array where both use it. A name that covers several unlinked
components is several axes of one size: ``d``, ``d'``, ``d''`` in order of appearance.
"""

from __future__ import annotations

from dataclasses import replace

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import PREV, Box, Recurrence, source
from ioweave.diagrams.expressions import Read, rename_axes

_Key = tuple[str, ...] | tuple[str, int, str]


class _Links:
    """Union-find over uses of axis names."""

    def __init__(self) -> None:
        self.parent: dict[_Key, _Key] = {}

    def find(self, key: _Key) -> _Key:
        self.parent.setdefault(key, key)
        while self.parent[key] != key:
            self.parent[key] = self.parent[self.parent[key]]
            key = self.parent[key]
        return key

    def link(self, a: _Key, b: _Key) -> None:
        self.parent[self.find(b)] = self.find(a)


def rename_components(boxes: tuple[Box, ...]) -> tuple[Box, ...]:
    """The boxes with every axis renamed to its component."""
    links = _Links()
    walks = {b.name: b.axes.index(b.scan.axis) for b in boxes if b.scan is not None}
    for box in boxes:
        for place, axis in enumerate(box.axes):
            links.link((box.name, place, axis), (box.name, axis))
        for read in box.reads():
            for place, form in _places(read, walks):
                for axis in form.names:
                    links.link((source(read.array), place, axis), (box.name, axis))
        for name in box.keys or ():  # lists of one order have the axes of their keys
            for axis in box.all_axes:
                links.link((name, axis), (box.name, axis))
    order: dict[str, dict[_Key, str]] = {}
    renamed = []
    for box in boxes:
        names: dict[str, str] = {}
        for axis in (*(a for r in box.reads() for f in r.index for a in f.names), *box.all_axes):
            of_name = order.setdefault(axis, {})
            root = links.find((box.name, axis))
            names[axis] = of_name.setdefault(root, axis + "'" * len(of_name))
        renamed.append(
            replace(
                box,
                axes=tuple(names[a] for a in box.axes),
                over=tuple(names[a] for a in box.over),
                into=None if box.into is None else names[box.into],
                body=rename_axes(box.body, names),
                scan=box.scan and _walked(box.scan, names),
            )
        )
    return tuple(renamed)


def _walked(scan: Recurrence, names: dict[str, str]) -> Recurrence:
    """The recurrence over renamed axes."""
    return replace(scan, axis=names[scan.axis], start=rename_axes(scan.start, names))


def _places(read: Read, walks: dict[str, int]) -> list[tuple[int, Affine]]:
    """The positions of a read in its array; the element of the step before has none along the scan's axis."""
    place = walks.get(source(read.array)) if read.array.endswith(PREV) else None
    return [(k + (place is not None and k >= place), form) for k, form in enumerate(read.index)]
