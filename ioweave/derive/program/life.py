"""When each variable is live, and so the memory of every column (counting.md 28)."""

from __future__ import annotations

from dataclasses import replace

from ioweave.derive.program.program import Column, Loop, Program, Variable
from ioweave.diagrams.dtypes import DTYPES


def with_lives(program: Program) -> Program:
    """The program with the live variables of every column, and what each result takes over."""
    flat = list(program.columns())
    paths = [path for _, path in flat]
    start, end = _ranges(program, flat, paths)
    stored = {s.variable for s in program.stores}
    kept = {c.title: _needed_along(c, flat) for c, _ in flat}
    table = {v.name: v for v in program.variables}
    result: dict[int, Column] = {}
    for k, (column, _) in enumerate(flat):
        live = [
            n for n in table if table[n].array not in program.free and start.get(n, len(flat)) <= k <= end.get(n, -1)
        ]
        taken = _taken(column, k, live, table, end, stored | kept[column.title])
        if taken is not None:
            live.remove(column.variable or "")
        result[id(column)] = replace(column, live=tuple(live), taken=taken)

    def rebuild(nodes: tuple[Column | Loop, ...]) -> tuple[Column | Loop, ...]:
        return tuple(replace(n, body=rebuild(n.body)) if isinstance(n, Loop) else result[id(n)] for n in nodes)

    return replace(program, body=rebuild(program.body))


def _ranges(
    program: Program, flat: list[tuple[Column, tuple[Loop, ...]]], paths: list[tuple[Loop, ...]]
) -> tuple[dict[str, int], dict[str, int]]:
    """First and last column of every variable's life."""
    table = {v.name: v for v in program.variables}
    home: dict[str, tuple[Loop, ...]] = {}
    start: dict[str, int] = {}
    end: dict[str, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for k, path in enumerate(paths):
        for loop in path:
            first.setdefault(id(loop), k)
            last[id(loop)] = k

    def begin(name: str, path: tuple[Loop, ...], k: int) -> None:
        v = table[name]
        home[name] = tuple(loop for loop in path if loop.axis in v.entered)
        # filled part by part over further loops that index it; in any other it is made anew
        parts = filled_over(v, path)
        start[name] = first[id(parts[0])] if parts else k

    def use(name: str, k: int) -> None:
        shared = sum(a is b for a, b in zip(home[name], paths[k], strict=False))
        until = last[id(paths[k][shared])] if len(paths[k]) > shared else k  # read in every trip of the rest
        end[name] = max(end.get(name, -1), until)

    ends = _last_of_walks(flat)
    for k, (column, path) in enumerate(flat):
        if column.walk is not None and not column.walk.begins and column.walk.tile not in start:
            begin(column.walk.tile, path, k)  # elements are made one by one, by all columns that go along
        for loop_depth, loop in enumerate(path):
            for name in loop.starts:
                if name not in start:
                    begin(name, path[:loop_depth], k)
        for load in column.loads:
            start[load.variable], home[load.variable] = k, path
            end[load.variable] = last[id(path[-1])] if path else len(flat) - 1
        for _, name in column.sources:
            if table[name].array in program.free or (table[name].role == "old" and name not in start):
                continue
            use(name, max(k, ends.get((column.walk.tile, name), k)) if column.walk is not None else k)
        if column.variable is not None:
            if column.variable not in start:
                begin(column.variable, path, k)
            use(column.variable, k)
            previous = column.variable + "~old"
            if previous in table:
                start[previous], home[previous] = k, path
                use(previous, k)
        for name in column.stores:
            use(name, k)
    return start, end


def _last_of_walks(flat: list[tuple[Column, tuple[Loop, ...]]]) -> dict[tuple[str, str], int]:
    """For every tile of a scan, and each variable that its columns read, the last of them where it is from elsewhere.

    Columns along a scan come again for every element, and with them what they read.
    """
    last: dict[str, int] = {}
    made: dict[str, set[str]] = {}
    for k, (c, _) in enumerate(flat):
        if c.walk is not None and not c.walk.begins:
            last[c.walk.tile] = k
            made.setdefault(c.walk.tile, set()).add(c.variable or "")
    return {
        (c.walk.tile, name): last[c.walk.tile]
        for c, _ in flat
        if c.walk is not None and c.walk.tile in last
        for _, name in c.sources
        if name not in made[c.walk.tile]
    }


def _needed_along(column: Column, flat: list[tuple[Column, tuple[Loop, ...]]]) -> set[str]:
    """What no result may take over: the elements that a later box looks back to, and what a scan reads out of order."""
    found: set[str] = set()
    tiles = {c.walk.tile for c, _ in flat if c.walk is not None}
    for r, name in column.sources:
        if name in tiles and column.walk is None and any(f.bare is None for f in r.index):
            found.add(name)
    if column.walk is not None:
        for c, _ in flat:
            if c.walk is not None and c.walk.tile == column.walk.tile:
                found |= {n for r, n in c.sources if all(f.bare != column.walk.axis for f in r.index)}
    return found


def filled_over(v: Variable, path: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops around its making that fill a variable part by part: they index it and it is held over them whole."""
    own = {a for span in v.pieces[0] for a, _ in span.axes}
    return tuple(loop for loop in path if loop.axis in own and loop.axis not in v.entered)


def _taken(
    column: Column, k: int, live: list[str], table: dict[str, Variable], end: dict[str, int], stored: set[str]
) -> str | None:
    """The operand whose bytes an elementwise result takes over: same axes, dying here, no narrower."""
    box = column.box
    if box is None or box.reduction is not None or column.variable is None:
        return None
    own = table[column.variable]
    best = None
    for _, name in column.sources:
        v = table[name]
        if v.role == "slab" or name not in live or end[name] != k or name in stored or name == column.variable:
            continue
        same = _extent(v) == _extent(own)
        if same and DTYPES[v.dtype].bits >= DTYPES[own.dtype].bits:
            best = name
            break
    return best


def _extent(v: Variable) -> tuple[list[str], set[str]]:
    """What tells the extents of two results apart: their spans, and which of their axes are at their step."""
    used = {a for span in v.pieces[0] for a, _ in span.axes}
    return sorted(map(repr, v.pieces[0])), set(v.entered) & used
