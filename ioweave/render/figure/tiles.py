"""Symbols for tiles and steps: ``g_q`` and ``s_x`` in the last panel, primed ones for other sizes elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ioweave.derive.counting.levelled import Placed
from ioweave.derive.counting.terms import At
from ioweave.derive.counting.tiles import Tiles
from ioweave.diagrams.boxes import base_name
from ioweave.render.figure.names import maths_name
from ioweave.render.figure.spec import Partition, PartitionSpec

KINDS: tuple[Partition, ...] = ("group", "stream")


class TileNames:
    """One symbol for each different tile of an axis: ``g_q``, then ``g_q'`` for another size."""

    def __init__(self) -> None:
        self.sizes: dict[tuple[str, Partition], list[int]] = {}

    def symbol(self, axis: str, kind: Partition, size: int) -> str:
        """The symbol of a tile, a new one if the size is new."""
        known = self.sizes.setdefault((axis, kind), [])
        if size not in known:
            known.append(size)
        k = known.index(size)
        letter, name = "g" if kind == "group" else "s", maths_name(axis)
        return f"{letter}_{{{name}}}{chr(39) * k}" if k < 4 else f"{letter}_{{{name},{k + 1}}}"

    def listing(self, order: Sequence[str]) -> list[str]:
        """``g_q = 128`` for every symbol, groups first, axes in ``order``."""
        out: list[str] = []
        known = sorted(self.sizes.items(), key=lambda i: (order.index(base_name(i[0][0])), i[0][0]))
        for kind in KINDS:
            for (axis, which), sizes in known:
                if which == kind:
                    out.extend(f"${self.symbol(axis, kind, s)} = {s}$" for s in sizes)
        return out


def whole(tiles: Tiles, axis: str, at: At) -> bool:
    """Whether the tile (or step) of an axis is all that it divides."""
    tile = tiles.stream.get(axis) if at == "step" else tiles.group.get(axis) if at == "tile" else None
    around = tiles.group.get(axis, tiles.sizes[axis]) if at == "step" else tiles.sizes[axis]
    return tile is None or tile >= around


def tile_symbols(placed: Placed, names: TileNames) -> Callable[[str, At], str | None]:
    """How the formulas of a region write its tiles: None where a tile is the whole axis."""

    def symbol(axis: str, at: At) -> str | None:
        if at == "whole" or whole(placed.tiles, axis, at):
            if at == "step" and not whole(placed.tiles, axis, "tile"):
                return symbol(axis, "tile")
            return None
        if at == "step":
            return names.symbol(axis, "stream", placed.tiles.stream[axis])
        return names.symbol(axis, "group", placed.tiles.group[axis])

    return symbol


def partitions(placed: Placed, names: TileNames) -> tuple[PartitionSpec, ...]:
    """The partitions of a region with what their brackets say; a tile that is the whole axis is none."""
    out: list[PartitionSpec] = []
    for axis, g in placed.tiles.group.items():
        if not whole(placed.tiles, axis, "tile"):
            s, a = names.symbol(axis, "group", g), maths_name(axis)
            blocks = f"${a}/{s}$ blocks"
            texts = (f"group ${s}$ of ${a}$: {blocks} in parallel", f"${s}$ of ${a}$: {blocks}", blocks)
            out.append(PartitionSpec(axis, "group", f"${s}$", texts))
    for axis, step in placed.tiles.stream.items():
        if not whole(placed.tiles, axis, "step"):
            s, a = names.symbol(axis, "stream", step), maths_name(axis)
            of = a
            if axis in placed.tiles.group and not whole(placed.tiles, axis, "tile"):
                of = names.symbol(axis, "group", placed.tiles.group[axis])
            steps = f"${of}/{s}$ steps"
            out.append(PartitionSpec(axis, "stream", f"${s}$", (f"stream ${s}$ of ${of}$: {steps}", steps)))
    return tuple(out)
