"""One column's wiring: which slot each axis takes, what joins, what is contracted, what leaves.

A column's operands lie under each other; every axis of an operand gets a *slot* (a row inside
the operation, counted from the top). Axes that are contracted with the operand below lie at the
bottom of their operand, those contracted with the one above at its top, so that a cup joins
neighbours and nested cups do not cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from ioweave.render.figure.names import POINT
from ioweave.render.figure.spec import ColumnSpec, OperandSpec

FED = ""  # the axis of a wire that ends where it says what is read


@dataclass(frozen=True, slots=True)
class Wire:
    """An axis of an operand: ``source`` is the dimension it comes from, ``slot`` where it goes.

    ``branch`` marks a further axis of one dimension (it leaves the wire at a node).
    """

    operand: int
    source: int
    axis: str
    slot: int
    branch: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """The wiring of a column. ``counts`` gives the slots of each operand; pairs are of slots.

    ``joins`` (from, to): a shared axis runs into the first operand's wire; ``cups`` (upper,
    lower): contracted; ``ends``: removed axes with one carrier, which end in a box; ``fixed``:
    (operand, dimension) read at one position; ``late`` the slots of the joins that come after the
    operation; ``result``: for each axis of the result the slot it
    leaves from and the slot it leaves at, -1 where it starts inside; ``feeds`` (slot, operand, dimension):
    a wire of an array of positions ends at the dimension that is read there.
    """

    counts: tuple[int, ...]
    wires: tuple[Wire, ...]
    joins: tuple[tuple[int, int], ...]
    cups: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]
    fixed: tuple[tuple[int, int], ...]
    late: frozenset[int]
    result: tuple[tuple[int, int], ...]
    feeds: tuple[tuple[int, int, int], ...] = ()

    def slot(self, axis: str) -> int:
        """The slot on which ``axis`` runs after the joins; KeyError if no operand has it."""
        joined = {a for a, _ in self.joins}
        for w in self.wires:
            if w.axis == axis and w.slot not in joined:
                return w.slot
        raise KeyError(axis)


def plan_operation(column: ColumnSpec, operands: Sequence[OperandSpec]) -> Operation:
    """The wiring of ``column`` with its operands in drawing order, top to bottom."""
    over = set(column.over)
    carriers: dict[str, list[int]] = {}
    for k, operand in enumerate(operands):
        for axis in dict.fromkeys(a for dim in operand.axes for a in dim if operand.feeds is None):
            carriers.setdefault(axis, []).append(k)
    upper = {a: ks for a, ks in carriers.items() if a in over and len(ks) >= 2}
    orders = _nests(upper, operands)

    wires: list[Wire] = []
    counts: list[int] = []
    fixed: list[tuple[int, int]] = []
    feeds: list[tuple[int, int, int]] = []
    place = {o.key: k for k, o in enumerate(operands)}
    base = 0
    for k, operand in enumerate(operands):
        if operand.feeds is not None:
            key, dimension = operand.feeds
            feeds.extend((base + p, place[key], dimension) for p in range(len(operand.axes)))
            wires.extend(Wire(k, p, FED, base + p, False) for p in range(len(operand.axes)))
            counts.append(len(operand.axes))
            base += counts[-1]
            continue
        seen: list[tuple[int, str, bool]] = []
        loose = len(operand.axes) - 1 if not any(operand.axes) else -1
        for p, dim in enumerate(operand.axes):
            if not dim and p == loose:
                seen.append((p, POINT, False))
            if not dim:
                fixed.append((k, p))
            lead = next((a for a in dim if a not in over), dim[0] if dim else "")
            seen.extend((p, a, a != lead) for a in sorted(dim, key=lambda a: a != lead))
        first = [w for a in orders for w in seen if w[1] == a and k == carriers[a][-1] and len(carriers[a]) >= 2]
        last = [w for a in reversed(orders) for w in seen if w[1] == a and k == carriers[a][0]]
        rest = [w for w in seen if w not in first and w not in last]
        # a wire that joins another keeps its place: it leaves before the others change theirs
        joining = {w for w in seen if _joins(w[1], k, carriers, over, operands)}
        moving = iter([w for w in (*first, *rest, *last) if w not in joining])
        for n, wire in enumerate(seen):
            p, axis, branch = wire if wire in joining else next(moving)
            wires.append(Wire(k, p, axis, base + n, branch))
        counts.append(max(len(seen), len(operand.axes)))
        base += counts[-1]

    meeting = [w for w in wires if w.axis != FED]
    joins, cups, ends = _meet(meeting, carriers, over, operands)
    kept = _kept(meeting, joins, over)
    late = frozenset(w.slot for w in wires if operands[w.operand].late)
    result = _leave(column, kept, base)
    return Operation(tuple(counts), tuple(wires), joins, cups, ends, tuple(fixed), late, result, tuple(feeds))


def _main(ks: list[int], operands: Sequence[OperandSpec]) -> int:
    """The operand whose wire a shared axis follows: the one of most axes, else the upper one."""
    return max(ks, key=lambda k: (len(operands[k].axes), -k))


def _joins(axis: str, k: int, carriers: dict[str, list[int]], over: set[str], operands: Sequence[OperandSpec]) -> bool:
    """Whether the axis of operand ``k`` runs into another operand's wire."""
    ks = carriers.get(axis)
    if ks is None:  # a single value
        return True
    if axis in over and len(ks) >= 2:
        return k not in (ks[0], ks[-1])
    return k != _main(ks, operands)


def _nests(pairs: dict[str, list[int]], operands: Sequence[OperandSpec]) -> tuple[str, ...]:
    """Contracted axes from the innermost cup outwards, with the fewest exchanges of wires."""
    axes = tuple(pairs)
    if len(axes) < 2:
        return axes

    def exchanges(order: tuple[str, ...]) -> tuple[float, float]:
        total = [0.0, 0.0]
        for side, pick in ((0, 0), (1, -1)):
            for k in range(len(operands)):
                seen = [a for dim in operands[k].axes for a in dim]
                branch = {a for dim in operands[k].axes if len(dim) > 1 for a in dim}
                mine = [a for a in (order if side else reversed(order)) if pairs[a][pick] == k]
                for i, a in enumerate(mine):
                    for b in mine[i + 1 :]:
                        if seen.index(a) > seen.index(b):
                            total[side] += 0.5 if {a, b} & branch else 1.0
        return total[0] + total[1], total[1]

    return min(permutations(axes) if len(axes) <= 5 else [axes], key=exchanges)


def _meet(
    wires: list[Wire], carriers: dict[str, list[int]], over: set[str], operands: Sequence[OperandSpec]
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], tuple[int, ...]]:
    joins: list[tuple[int, int]] = []
    cups: list[tuple[int, int]] = []
    ends: list[int] = []
    for axis, ks in carriers.items():
        mine = [w for w in wires if w.axis == axis]
        if axis in over and len(ks) >= 2:
            head = next(w for w in mine if w.operand == ks[0])
            tail = next(w for w in mine if w.operand == ks[-1])
            cups.append((head.slot, tail.slot))
            joins.extend((w.slot, head.slot) for w in mine if w is not head and w is not tail)
        else:
            head = next(w for w in mine if w.operand == _main(ks, operands))
            joins.extend((w.slot, head.slot) for w in mine if w is not head)
            if axis in over:
                ends.append(head.slot)
    _touch(wires, joins, cups, ends, operands)
    cups.sort(key=lambda c: c[1] - c[0])
    return tuple(joins), tuple(cups), tuple(sorted(ends))


def _touch(
    wires: list[Wire],
    joins: list[tuple[int, int]],
    cups: list[tuple[int, int]],
    ends: list[int],
    operands: Sequence[OperandSpec],
) -> None:
    """A single value among arrays runs into a wire of the largest of them."""
    busy = {a for a, _ in joins} | {s for c in cups for s in c} | set(ends)
    free = [w for w in wires if w.axis != POINT and w.slot not in busy]
    if not free:
        return
    target = max(free, key=lambda w: (len(operands[w.operand].axes), w.slot)).slot
    joins.extend((w.slot, target) for w in wires if w.axis == POINT and w.slot not in busy)


def _kept(wires: list[Wire], joins: tuple[tuple[int, int], ...], over: set[str]) -> dict[str, int]:
    gone = {a for a, _ in joins}
    return {w.axis: w.slot for w in wires if w.axis not in over and w.slot not in gone}


def _leave(column: ColumnSpec, kept: dict[str, int], slots: int) -> tuple[tuple[int, int], ...]:
    """Where each axis of the result leaves: in place if their order allows it."""
    have = [kept.get(a, -1) for a in column.axes]
    placed = sorted(s for s in have if s >= 0)
    if -1 in have:  # an axis made inside: take free slots, from the top
        free = [s for s in range(slots + len(have)) if s not in placed]
        placed = sorted([*placed, *free[: len(have) - len(placed)]])
    return tuple(zip(have, placed, strict=True))
