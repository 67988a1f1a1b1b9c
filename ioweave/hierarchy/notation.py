"""Levels in the notation: blocks to regions, and regions back to blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import reads
from ioweave.diagrams.notation.elaborate import elaborate
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.diagrams.notation.parser import parse_text
from ioweave.diagrams.notation.printer import footer, header, print_line
from ioweave.diagrams.notation.scalars import constant
from ioweave.diagrams.notation.syntax import Assign, Block, Entry, Node, Statement, Text
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.sizes import LARGEST, Value, axis_names, evaluate
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.separate import separate

KNOWN_LEVELS = ("gmem", "l2", "smem", "reg")


def parse_levelled(
    text: str,
    file: str = "<text>",
    overrides: Mapping[str, Value] | None = None,
    levels: tuple[str, ...] = ("gmem", "smem"),
) -> Levelled:
    """The levelled diagram of a text: each block a region, each line outside one a region by itself.

    ``levels`` are the levels in use, highest first; further known ones are added where a block
    names them. Raises `WeaveError` with the place for anything that is not a levelled diagram.
    """
    tree = parse_text(text, file)
    done = elaborate(tree, overrides)
    used = _levels(tree, levels)
    builder = _Builder(done.diagram, open_diagram(done.diagram), done.values, used)
    regions: list[Region] = []
    for s in tree.statements:
        if isinstance(s, Block):
            regions.append(builder.region(s, used[0]))
        elif (name := builder.line(s)) is not None:
            regions.append(Region(name, used[-1], (name,), implicit=True))
    return Levelled(done.diagram, tuple(regions), used)


def _levels(tree: Text, levels: tuple[str, ...]) -> tuple[str, ...]:
    """The given levels, and known ones that blocks name, in their places."""
    known = tuple(dict.fromkeys((*KNOWN_LEVELS, *levels)))
    used = list(levels)
    for block in _blocks(tree.statements):
        places = [(block.level, block.position), *((str(e.value), e.position) for e in block.place)]
        for level, position in places:
            if level not in known:
                raise WeaveError(
                    f"unknown level `{level}`{nearest(level, known)}; the levels are {listed(known)}", position
                )
            if level not in used:
                rank = KNOWN_LEVELS.index(level)
                below = [i for i, u in enumerate(used) if u in KNOWN_LEVELS and KNOWN_LEVELS.index(u) > rank]
                used.insert(below[0] if below else len(used), level)
    return tuple(used)


def _blocks(statements: tuple[Statement, ...]) -> tuple[Block, ...]:
    found: list[Block] = []
    for s in statements:
        if isinstance(s, Block):
            found.extend((s, *_blocks(s.body)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Builder:
    diagram: Diagram
    opened: Opened
    values: Mapping[str, Value]
    levels: tuple[str, ...]

    def line(self, s: Statement) -> str | None:
        """The name of a computed line; None for sizes, inputs and out(...)."""
        return s.name if isinstance(s, Assign) and any(n.name == s.name for n in self.diagram.lines) else None

    def region(self, block: Block, parent: str) -> Region:
        depth = self.levels.index(block.level)
        if depth == 0:
            raise WeaveError(
                f"`{block.level}` is the highest level, and a region needs one above it; "
                f'write level("{self.levels[min(1, len(self.levels) - 1)]}")',
                block.position,
            )
        if depth <= self.levels.index(parent):
            lower = self.levels[self.levels.index(parent) + 1 :]
            remedy = f"write one of {listed(lower)}" if lower else "end that block first"
            raise WeaveError(
                f"level `{block.level}` is not below `{parent}`, the level of the block around it; {remedy}",
                block.position,
            )
        members: list[str | Region] = []
        for s in block.body:
            if isinstance(s, Block):
                members.append(self.region(s, block.level))
            elif (name := self.line(s)) is not None:
                members.append(name)
        region = Region("", block.level, tuple(members))
        lines = region.lines()
        if not lines:
            raise WeaveError("this block computes nothing; put at least one line into it", block.position)
        components = region_axes(self.opened, lines)
        stream = tuple(self.tile(e, components, lines) for e in block.stream)
        return Region(
            lines[-1],
            block.level,
            tuple(members),
            tuple(self.tile(e, components, lines) for e in block.group),
            stream,
            tuple(self.hold(e, lines, len(stream)) for e in block.hold),
            tuple(self.place(e, lines, block.level) for e in block.place),
            1 if block.buffers is None else self.positive(block.buffers, "buffers"),
        )

    def positive(self, node: Node, what: str) -> int:
        value = evaluate(constant(node, frozenset(self.values)), self.values, node.position)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
            shown = "beyond 2**40" if value > LARGEST else str(value)
            raise WeaveError(f"{what} is {shown}; it is a whole number from 1 to 2**40", node.position)
        return value

    def tile(self, entry: Entry, components: tuple[str, ...], lines: tuple[str, ...]) -> tuple[str, int]:
        """The axis component that a tile's name means in the region, and the tile."""
        base = dict(self.opened.base)
        mine = [c for c in components if base[c] == entry.key]
        if not mine:
            known = dict.fromkeys(base[c] for c in components)
            raise WeaveError(
                f"no line of this block has an axis `{entry.key}`{nearest(entry.key, known)}; "
                f"its axes are {listed(known)}",
                entry.position,
            )
        if len(mine) > 1:
            new = f"{entry.key}_1"
            raise WeaveError(
                f"`{entry.key}` is {len(mine)} axes of one size in this block: {self.uses(mine, lines)}; rename one, "
                f"e.g. to `{new}` with `{new} = {entry.key}`",
                entry.position,
            )
        assert not isinstance(entry.value, str)
        return mine[0], self.positive(entry.value, f"the tile of `{entry.key}`")

    def uses(self, components: list[str], lines: tuple[str, ...]) -> str:
        """Each component with the lines of the region that have it."""
        said = []
        for c in components:
            where = dict.fromkeys(b.line for b in self.opened.boxes if b.line in lines and c in b.all_axes)
            said.append(f"{c} in {listed(where)}")
        return ", ".join(said)

    def array(self, entry: Entry, lines: tuple[str, ...], option: str) -> str:
        """An array that the block reads or makes."""
        every = (*(i.name for i in self.diagram.inputs), *(n.name for n in self.diagram.lines))
        if entry.key not in every:
            raise WeaveError(
                f"unknown array `{entry.key}` in `{option}`{nearest(entry.key, every)}; the arrays are {listed(every)}",
                entry.position,
            )
        near = dict.fromkeys((*(r.array for n in lines for r in reads(self.diagram.line(n).expr)), *lines))
        if entry.key not in near:
            raise WeaveError(
                f"`{entry.key}` is neither read nor made in this block; `{option}` names one of {listed(near)}",
                entry.position,
            )
        return entry.key

    def hold(self, entry: Entry, lines: tuple[str, ...], loops: int) -> tuple[str, int]:
        array = self.array(entry, lines, "hold")
        assert not isinstance(entry.value, str)
        value = evaluate(constant(entry.value, frozenset(self.values)), self.values, entry.position)
        if array in lines:
            raise WeaveError(f"`{array}` is made in this block; `hold` is for arrays it loads", entry.position)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= loops:
            raise WeaveError(
                f"`{array}` is held at depth {value}; depths go from 0, before all loops, to {loops}", entry.position
            )
        return array, value

    def place(self, entry: Entry, lines: tuple[str, ...], level: str) -> tuple[str, str]:
        array = self.array(entry, lines, "place")
        where = str(entry.value)
        if self.levels.index(where) > self.levels.index(level):
            raise WeaveError(
                f"`{array}` is placed at `{where}`, below the block's `{level}`; place it at that level or above",
                entry.position,
            )
        return array, where


def region_axes(opened: Opened, lines: tuple[str, ...]) -> tuple[str, ...]:
    """The axis components on the boxes of some lines, in order of appearance."""
    return tuple(dict.fromkeys(a for b in opened.boxes if b.line in lines for a in b.all_axes))


def print_levelled(levelled: Levelled) -> str:
    """The text of a levelled diagram; parsing it gives an equal one.

    Where a tile must tell apart two axes of one name, the second is renamed (``d_1``, with
    ``d_1 = d``), in the diagram too.
    """
    diagram, regions = separate(levelled)
    base = dict(open_diagram(diagram).base)
    axes = frozenset(axis_names(diagram))
    text: list[str] = []
    for region in regions:
        text.extend(_region(region, diagram, base, axes, levelled.levels, 0))
    head = header(diagram)
    gap = [""] if diagram.inputs else []
    return "\n".join([*head, *gap, *text, *footer(diagram)]) + "\n"


def _region(
    region: Region, diagram: Diagram, base: Mapping[str, str], axes: frozenset[str], levels: tuple[str, ...], depth: int
) -> list[str]:
    if region.implicit and depth == 0:
        return [print_line(diagram.line(name), axes) for name in region.lines()]
    pad = "    " * depth
    parts = [f'"{region.level}"']
    for option, tiles in (("group", region.group), ("stream", region.stream)):
        if tiles:
            parts.append(f"{option}={{{', '.join(f'{base.get(a, a)}: {n}' for a, n in tiles)}}}")
    if region.hold:
        parts.append(f"hold={{{', '.join(f'{a}: {n}' for a, n in region.hold)}}}")
    if region.place:
        placed = ", ".join(f'{a}: "{where}"' for a, where in region.place)
        parts.append(f"place={{{placed}}}")
    if region.buffers != 1:
        parts.append(f"buffers={region.buffers}")
    text = [f"{pad}with level({', '.join(parts)}):"]
    for member in region.members:
        if isinstance(member, Region):
            text.extend(_region(member, diagram, base, axes, levels, depth + 1))
        else:
            text.append(f"{pad}    {print_line(diagram.line(member), axes)}")
    return text
