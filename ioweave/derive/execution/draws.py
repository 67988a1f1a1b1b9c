"""Seeded draws for a check: sizes up to 64 that the file allows, and schedules to run it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ioweave.derive.counting.levelled import place, region_boxes
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.execution.inputs import integer_range
from ioweave.diagrams.boxes import Opened, source
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.diagrams.expressions import Number
from ioweave.diagrams.notation import parse
from ioweave.diagrams.notation.printer import print_diagram
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.sizes import axis_names
from ioweave.hierarchy.levelled import Levelled, Region

LARGEST = 64
WORK = 1 << 19  # elements of one box's index space
TRIPS = 128  # tiles of one region
MANY = 2000  # trips of all regions, merges among them
ATTEMPTS = 400

Sizes = dict[str, int | float]


def draw_sizes(diagram: Diagram, rng: np.random.Generator, fixed: Mapping[str, int | float] | None = None) -> Sizes:
    """Every size and constant with its value: free sizes drawn, ``fixed`` ones kept, ties followed.

    A draw that makes the file an error is drawn again; raises WeaveError with the last error if
    none of many is valid.
    """
    axes = set(axis_names(diagram))
    free = [d.name for d in diagram.definitions if d.name in axes and isinstance(d.value, Number)]
    free = [n for n in free if n not in (fixed or {})]
    text = print_diagram(diagram)
    error = WeaveError("no sizes up to 64 make this file valid")
    for attempt in range(ATTEMPTS):
        # small sizes are as likely as large ones; late attempts stay near the sizes as written
        top = int(rng.choice([4, 8, 16, 32, LARGEST]))
        drawn: dict[str, int | float] = {n: int(rng.integers(1, int(rng.integers(1, top + 1)) + 1)) for n in free}
        if attempt > ATTEMPTS // 2:
            written = diagram.values()
            drawn = {n: int(rng.integers(1, min(int(written[n]), LARGEST) + 1)) for n in free}
        try:
            values = diagram.values({**drawn, **(fixed or {})})
            if not fixed and any(values[a] > LARGEST for a in axes):
                continue
            made = parse(text, "<draw>", {**drawn, **(fixed or {})})
            for i in made.inputs:
                if DTYPES[i.dtype].kind == "int":
                    integer_range(i.name, made, values)
        except WeaveError as e:
            error = e
            continue
        if fixed or _work(open_diagram(diagram), values) <= WORK:
            return values
    raise error


def _work(opened: Opened, values: Mapping[str, int | float]) -> int:
    base = dict(opened.base)
    most = 0
    for b in opened.boxes:
        n = 1
        for a in b.all_axes:
            n *= int(values[base[a]])
        most = max(most, n)
    return most


def draw_tiles(
    levelled: Levelled, values: Mapping[str, int | float], rng: np.random.Generator, given: Mapping[str, int]
) -> Levelled:
    """The same regions with tile sizes drawn; ``given`` ones are kept, by name of axis."""
    regions = tuple(_retiled(r, values, rng, given) for r in levelled.regions)
    return replace(levelled, regions=regions)


def with_tiles(levelled: Levelled, given: Mapping[str, int]) -> Levelled:
    """The same regions with the tiles of these axes replaced wherever they are tiled."""
    regions = []
    for r in levelled.regions:
        group = tuple((a, _given(a, given) or n) for a, n in r.group)
        stream = tuple((a, _given(a, given) or n) for a, n in r.stream)
        regions.append(replace(r, group=group, stream=stream))
    return replace(levelled, regions=tuple(regions))


def _given(axis: str, given: Mapping[str, int]) -> int | None:
    return given.get(axis, given.get(axis.rstrip("'")))


def _retiled(
    region: Region, values: Mapping[str, int | float], rng: np.random.Generator, given: Mapping[str, int]
) -> Region:
    budget = TRIPS
    group: list[tuple[str, int]] = []
    stream: list[tuple[str, int]] = []
    for entries, out in ((region.group, group), (region.stream, stream)):
        for axis, _ in entries:
            size = int(values[axis.rstrip("'")])
            tile = _given(axis, given) or draw_tile(size, budget, rng)
            budget = max(1, budget // -(-size // tile))
            out.append((axis, tile))
    return replace(region, group=tuple(group), stream=tuple(stream))


def trips(tiles: Tiles) -> int:
    """How many trips of its innermost loops a region makes, over all instances."""
    n = tiles.instances
    for axis in tiles.stream:
        n *= -(-min(tiles.group.get(axis, tiles.sizes[axis]), tiles.sizes[axis]) // tiles.stream[axis])
    return n


def draw_tile(size: int, budget: int, rng: np.random.Generator) -> int:
    """A tile of an axis that leaves at most ``budget`` tiles; ragged ones and 1 are likely."""
    least = -(-size // budget)
    return int(rng.integers(least, max(least, int(rng.integers(least, size + 1))) + 1))


def draw_schedule(
    diagram: Diagram, values: Mapping[str, int | float], rng: np.random.Generator, given: Mapping[str, int]
) -> Levelled:
    """A schedule of a plain diagram: its lines in some regions, each with axes grouped, streamed and held.

    Shapes that are refused are drawn again; after many, every line is a region by itself.
    """
    opened = open_diagram(diagram)
    names = [line.name for line in diagram.lines]
    whole = rng.random() < 0.5
    for _ in range(30):
        cuts = [0, *(k for k in range(1, len(names)) if not whole and rng.random() < 0.5), len(names)]
        blocks = [tuple(names[a:b]) for a, b in pairwise(cuts)]
        regions = tuple(_region(opened, block, values, rng, given) for block in blocks)
        levelled = Levelled(diagram, regions)
        try:
            place(levelled, values)
        except Refused:
            continue
        return levelled
    return Levelled(diagram, tuple(Region(n, "smem", (n,)) for n in names))


def _region(
    opened: Opened,
    lines: Sequence[str],
    values: Mapping[str, int | float],
    rng: np.random.Generator,
    given: Mapping[str, int],
) -> Region:
    region = Region(lines[-1], "smem", tuple(lines))
    boxes = region_boxes(opened, region)
    axes = list(dict.fromkeys(a for b in boxes for a in b.all_axes))
    group = [a for a in axes if rng.random() < 0.35]
    stream = [a for a in axes if rng.random() < 0.4]
    rng.shuffle(stream)
    hold: list[tuple[str, int]] = []
    made = {b.name for b in boxes}
    for array in dict.fromkeys(source(r.array) for b in boxes for r in b.reads()):
        if array not in made and stream and rng.random() < 0.15:
            hold.append((array, _depth(array, stream, opened, lines, rng)))
    shape = Region(
        lines[-1], "smem", tuple(lines), tuple((a, 1) for a in group), tuple((a, 1) for a in stream), tuple(hold)
    )
    return _retiled(shape, values, rng, given)


def _depth(array: str, stream: Sequence[str], opened: Opened, lines: Sequence[str], rng: np.random.Generator) -> int:
    """A depth at which an array may be held: that of its innermost loop, or further out."""
    deepest = len(stream)
    for b in opened.boxes:
        if b.line in lines:
            for r in b.reads():
                if r.array == array:
                    axes = {a for form in r.index for a in form.names}
                    deepest = min(deepest, max((p + 1 for p, a in enumerate(stream) if a in axes), default=0))
    return int(rng.integers(0, deepest + 1))
