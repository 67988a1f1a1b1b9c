"""The counts of one region: loads and stores per array, memory, FLOPs (counting.md 13 to 30)."""

from __future__ import annotations

from ioweave.derive.counting.entries import Entries, list_entries
from ioweave.derive.counting.flops import count_flops
from ioweave.derive.counting.footprints import Mask, total
from ioweave.derive.counting.gathers import Look
from ioweave.derive.counting.masks import Survival, decides, mask_axes, predicates, survival
from ioweave.derive.counting.memory import count_memory
from ioweave.derive.counting.predicates import Atom, compile_predicate, forms
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.program import Load, Program
from ioweave.derive.program.reach import Reach
from ioweave.derive.program.setting import Setting
from ioweave.diagrams.dtypes import size_bytes
from ioweave.hierarchy.counts import Flops, RegionCount, Transfers


def trace(program: Program, tiles: Tiles, setting: Setting, whole: bool = False) -> Survival | None:
    """Which reads survive in which tiles; None where nothing in the region can fix a value.

    With ``whole`` every tile is an entry of its own, none stands for several.
    """
    if not any(decides(b) for b in program.boxes):
        return None
    axes = sorted(mask_axes(program))
    entries = list_entries(axes, tiles, None) if whole else _entries(program, axes, tiles, setting)
    return survival(program, entries, setting)


def _entries(program: Program, axes: list[str], tiles: Tiles, setting: Setting) -> Entries:
    atoms: list[Atom] | None = []
    for b in program.boxes:
        for p in predicates(b):
            compiled = compile_predicate(p, {**setting.constants, **setting.sizes})
            if compiled is None:
                atoms = None
            elif atoms is not None:
                atoms.extend(forms(compiled))
    return list_entries(axes, tiles, atoms)


def count_loads(
    program: Program, tiles: Tiles, survive: Survival | None, look: Look | None = None
) -> list[tuple[Load, int]]:
    """Every load with its values over all instances and trips; ``look`` tells what is known of index arrays."""
    return [(load, load_values(load, program, tiles, survive, look)) for load in program.loads()]


def load_values(load: Load, program: Program, tiles: Tiles, survive: Survival | None, look: Look | None = None) -> int:
    """Values of one load over all instances and trips."""
    v = program.variable(load.variable)
    look = look or Look()
    if survive is None:
        return total(v.pieces, v.entered, tiles, None, look)
    flags = []
    loaded = survive.loaded(load)
    for piece in v.pieces:
        alive = survive.entries.weight < 0
        for key, of_piece in zip(load.reads, load.pieces, strict=True):
            if of_piece == piece:
                alive = alive | loaded[key]
        flags.append(alive)
    return total(v.pieces, v.entered, tiles, Mask(survive.entries, tuple(flags)), look)


def least_values(load: Load, program: Program, tiles: Tiles, setting: Setting, survive: Survival | None) -> int | None:
    """The fewest values that a load may be of, where that hangs on what an index array holds; else None."""
    look = Look(setting.integers, least=True)
    pieces = program.variable(load.variable).pieces
    if all(look.knows(s) for p in pieces for s in p if isinstance(s, Reach)):
        return None
    return load_values(load, program, tiles, survive, look)


def count_stores(program: Program, tiles: Tiles) -> dict[str, tuple[int, str]]:
    """Values stored per label, with the array they belong to: once per instance, whole (counting.md 23, 24)."""
    stores: dict[str, tuple[int, str]] = {}
    for s in program.stores:
        n = 1
        box = next(b for b in program.boxes if b.name == program.variable(s.variable).array)
        for a in box.axes:
            n *= tiles.sizes[a]
        for a in tiles.group:
            if a not in box.axes:
                n *= tiles.number(a, False)
        stores[s.array] = (n, s.label)
    return stores


def count_region(program: Program, tiles: Tiles, setting: Setting, buffers: int = 1) -> RegionCount:
    """Everything that one region moves, holds and computes.

    ``tiles`` holds the sizes of its group tiles and steps. The merge of a split reduction is
    not among it: it is a region of its own (`count_merge`).
    """
    survive = trace(program, tiles, setting)
    loads: dict[str, int] = {}
    stores: dict[str, int] = {}
    values = moved = 0
    spare = spare_bytes = 0  # what index arrays may save
    for load, n in count_loads(program, tiles, survive, Look(setting.integers)):
        loads[load.label] = loads.get(load.label, 0) + n
        values += n
        moved += size_bytes(n, setting.dtypes[load.array])
        fewer = least_values(load, program, tiles, setting, survive)
        if fewer is not None:
            spare += n - fewer
            spare_bytes += size_bytes(n, setting.dtypes[load.array]) - size_bytes(fewer, setting.dtypes[load.array])
    for array, (n, label) in count_stores(program, tiles).items():
        stores[label] = stores.get(label, 0) + n
        values += n
        dtype = setting.dtypes.get(array)
        if dtype is None:  # a partial state leaves in the type in which it is held
            dtype = next(program.variable(s.variable).dtype for s in program.stores if s.array == array)
        moved += size_bytes(n, dtype)
    flops: Flops = count_flops(program, tiles, setting, survive)
    return RegionCount(
        program.name,
        Transfers(values, moved, loads, stores, values - spare, moved - spare_bytes),
        count_memory(program, tiles, survive, buffers),
        flops,
        tiles.instances,
        program.passes,
    )


def merge_tiles(program: Program, tiles: Tiles) -> Tiles:
    """The tiles of a region's merge: as many parts as instances along the split axes, steps of 1."""
    assert program.merge is not None
    parts = 1
    for a in program.split:
        parts *= tiles.number(a, False)
    return Tiles({}, dict.fromkeys(program.merge.loops, 1), {**tiles.sizes, "part": parts})
