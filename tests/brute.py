"""Brute force over the stated space of the search: every shape, every integer tile, every partition.

Nothing here is shared with the search but the program and its counts. A *front* is a list of
(bytes, values) pairs, bytes rising and values falling: the least transfers at every capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations, permutations, product
from typing import Any

import numpy as np

from ioweave.derive.counting.memory import count_memory
from ioweave.derive.counting.region import count_loads, count_stores, trace
from ioweave.derive.counting.terms import bits, numbers, terms, transfers
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.program import Program
from ioweave.derive.program.setting import Setting
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.errors import Refused

LOOPS = 3

Front = list[tuple[int, int]]
Sizes = Callable[[int], Sequence[int]]


def subsets(items: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Every subset, smaller first."""
    return chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))


def every_shape(boxes: Sequence[Box], stored: frozenset[str], both: bool = False) -> Iterator[Shape]:
    """Every grouping, sequence of streamed axes and hold; with ``both`` an axis may be grouped and streamed."""
    axes = tuple(dict.fromkeys(a for b in boxes for a in b.all_axes))
    reduced = {a for b in boxes for a in b.over}
    kept = [a for a in axes if a not in reduced and all(a in b.axes for b in boxes if b.name in stored)]
    made = {b.name for b in boxes}
    reads = [r for b in boxes for r in b.reads() if r.array not in made]
    arrays = {r.array: [{a for f in x.index for a in f.names} for x in reads if x.array == r.array] for r in reads}
    for group in subsets(kept):
        walked = [a for a in axes if both or a not in group]
        for n in range(min(LOOPS, len(walked)) + 1):
            for loops in permutations(walked, n):
                depths = []
                for name, indexed in arrays.items():
                    natural = [max((p + 1 for p, a in enumerate(loops) if a in i), default=0) for i in indexed]
                    further = range(min(natural) + (len(set(natural)) > 1))
                    depths.append([None, *((name, p) for p in further)])
                for choice in product(*depths):
                    yield Shape(group, loops, (), tuple(c for c in choice if c is not None))


def every_tile(size: int) -> Sequence[int]:
    """Every integer tile."""
    return range(1, size + 1)


def counted(program: Program, tiles: Tiles, setting: Setting) -> tuple[int, int]:
    """Bytes and values of a program, counted exactly."""
    survive = trace(program, tiles, setting)
    values = sum(n for _, n in count_loads(program, tiles, survive))
    values += sum(n for n, _ in count_stores(program, tiles).values())
    return count_memory(program, tiles, survive).bytes, values


def points(program: Program, shape: Shape, setting: Setting, sizes_of: Sizes) -> Iterable[tuple[int, int]]:
    """(bytes, values) at every tiling: by terms where those are exact, else counted one by one."""
    options = [sizes_of(setting.sizes[a]) for a in (*shape.group, *shape.loops)]
    t = terms(program, setting)
    if t.exact:
        every = list(product(*options))
        grid = np.array(every, dtype=np.int64).reshape(len(every), len(options)).T
        n = len(shape.group)
        ring = numbers(
            setting.sizes,
            dict(zip(shape.group, grid[:n], strict=True)),
            dict(zip(shape.loops, grid[n:], strict=True)),
        )
        held = np.broadcast_to(-(-bits(t, ring) // 8), grid.shape[1:])
        moved = np.broadcast_to(transfers(t, ring), grid.shape[1:])
        return {(int(a), int(b)) for a, b in zip(held, moved, strict=True)}
    found = set()
    for tiles in product(*options):
        n = len(shape.group)
        group = dict(zip(shape.group, tiles[:n], strict=True))
        stream = dict(zip(shape.loops, tiles[n:], strict=True))
        try:
            found.add(counted(program, Tiles(group, stream, setting.sizes), setting))
        except Refused:
            continue
    return found


def front(pairs: Iterable[tuple[int, int]]) -> Front:
    """The pairs that no other beats in both."""
    result: Front = []
    for held, moved in sorted(pairs):
        if not result or moved < result[-1][1]:
            result.append((held, moved))
    return result


def region_front(
    boxes: Sequence[Box],
    stored: frozenset[str],
    setting: Setting,
    both: bool = False,
    sizes_of: Sizes = every_tile,
) -> Front:
    """The least transfers of one region at every capacity."""
    pairs: set[tuple[int, int]] = set()
    for shape in every_shape(boxes, stored, both):
        try:
            program = build("region", boxes, stored, shape, setting)
        except Refused:
            continue
        pairs = set(front(pairs | set(points(program, shape, setting, sizes_of))))
    return front(pairs)


def least(f: Front, capacity: int) -> int | None:
    """The least transfers at a capacity in bytes; None where nothing fits."""
    fitting = [moved for held, moved in f if held <= capacity]
    return fitting[-1] if fitting else None


def partitions(
    units: Sequence[tuple[Box, ...]], outputs: frozenset[str], setting: Setting, sizes_of: Sizes = every_tile
) -> Callable[[int], int | None]:
    """The least transfers of every sequence of regions over units, as a function of the capacity.

    Any set of units may be a region, connected or not, and store any of its results that
    somebody outside reads; what it computes may be computed again in another.
    """
    results = [u[-1].name for u in units]
    reads = [{r.array for b in u for r in b.reads()} for u in units]
    fronts: list[tuple[frozenset[str], frozenset[str], Front]] = []
    for chosen in subsets(range(len(units))):
        if not chosen:
            continue
        inside = {results[k] for k in chosen}
        needs = frozenset(n for k in chosen for n in reads[k] if n in results and n not in inside)
        useful = [
            results[k]
            for k in chosen
            if results[k] in outputs or any(results[k] in reads[j] for j in range(len(units)) if j not in chosen)
        ]
        boxes = tuple(b for k in chosen for b in units[k])
        for kept in subsets(useful):
            stored = frozenset(kept)
            dead = [n for k in chosen if (n := results[k]) not in stored and not any(n in reads[j] for j in chosen)]
            if kept and not dead:
                fronts.append((needs, stored, region_front(boxes, stored, setting, sizes_of=sizes_of)))

    def cheapest(capacity: int) -> int | None:
        best: dict[frozenset[str], int] = {frozenset(): 0}
        steps = [(needs, stored, h) for needs, stored, f in fronts if (h := least(f, capacity)) is not None]
        changed = True
        while changed:
            changed = False
            for state, total in list(best.items()):
                for needs, stored, h in steps:
                    if needs <= state:
                        after = state | stored
                        if total + h < best.get(after, total + h + 1):
                            best[after] = total + h
                            changed = True
        return min((h for state, h in best.items() if outputs <= state), default=None)

    return cheapest
