"""Setting a panel that is too wide in several rows, cut between plates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from ioweave.render.figure.spec import ArraySpec, CellSpec, PanelSpec, RowSpec


def part(panel: PanelSpec, first: int, last: int) -> PanelSpec:
    """The plates ``first`` to ``last - 1`` as a panel of their own.

    What it reads from elsewhere enters it as an input does; what is read later leaves it as an
    output does. Totals stand in the last part.
    """
    regions = panel.regions[first:last]
    chosen = [c for r in regions for c in r.columns]
    number = {c: k for k, c in enumerate(chosen)}
    columns = tuple(panel.columns[c] for c in chosen)
    made = {c.result for c in columns}
    read = {o.array for c in columns for o in c.operands}
    elsewhere = {o.array for k, c in enumerate(panel.columns) if k not in number for o in c.operands}
    arrays: list[ArraySpec] = []
    for a in panel.arrays:
        if a.name in made:
            arrays.append(replace(a, is_input=False, is_output=a.is_output or a.name in elsewhere))
        elif a.name in read:
            arrays.append(replace(a, is_input=True, is_output=False))
    final = last == len(panel.regions)
    return replace(
        panel,
        arrays=tuple(arrays),
        columns=columns,
        regions=tuple(replace(r, columns=tuple(number[c] for c in r.columns)) for r in regions),
        rows=tuple(_row(row, number, final) for row in panel.rows),
    )


def _row(row: RowSpec, number: dict[int, int], final: bool) -> RowSpec:
    cells: list[CellSpec] = []
    for cell in row.cells:
        inside = [number[c] for c in range(cell.first, cell.last + 1) if c in number]
        if inside:
            cells.append(replace(cell, first=inside[0], last=inside[-1]))
    return replace(row, cells=tuple(cells), total=row.total if final else "", remark=row.remark if final else "")


def wrapped(panel: PanelSpec, limit: float, measure: Callable[[PanelSpec], float]) -> tuple[PanelSpec, ...]:
    """The panel in as few rows as keep within ``limit`` where plates allow it, about equally wide."""
    if len(panel.regions) < 2 or measure(panel) <= limit:
        return (panel,)
    widths: dict[tuple[int, int], float] = {}

    def wide(a: int, b: int) -> float:
        if (a, b) not in widths:
            widths[a, b] = measure(part(panel, a, b))
        return widths[a, b]

    def cuts(bound: float) -> list[int]:
        out = [0]
        n = len(panel.regions)
        while out[-1] < n:
            end = out[-1] + 1
            while end < n and wide(out[-1], end + 1) <= bound:
                end += 1
            out.append(end)
        return out

    best = cuts(limit)
    for share in (0.9, 0.8, 0.7, 0.6):
        tighter = cuts(limit * share)
        if len(tighter) == len(best):
            best = tighter
    return tuple(part(panel, a, b) for a, b in pairwise(best))
