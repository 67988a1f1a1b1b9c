"""When each box runs in a region's loops (counting.md 14 and 18).

For each loop a box has a *time*: ``2k`` inside pass k of the loop, ``2k + 1`` after that pass.
A box that needs a reduction over the loop to be finished comes after the pass that finishes
it, or in the next pass if it walks the loop itself. A slot is the tuple of times over the
loops, outermost first, with None for a loop that the box does not enter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ioweave.diagrams.boxes import OLD, RUNNING, Box, source
from ioweave.diagrams.lists import leaders
from ioweave.diagrams.scans import lockstep, members, starts

Slot = tuple[int | None, ...]


def times(boxes: Sequence[Box], loops: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The earliest time of every box at every loop."""
    made = {b.name: b for b in boxes}
    result: dict[str, tuple[int, ...]] = {}
    together = members(boxes)
    for b in boxes:
        row = []
        for p, axis in enumerate(loops):
            t = 0
            for array, plain in _operands(b, made):
                o = made[array]
                if plain and any(a in o.over for a in loops[:p]):
                    continue  # finished by a loop further out, whatever its passes of this one
                after = plain and axis in o.over
                t = max(t, _after(result[array][p]) if after else result[array][p])
            if axis in b.all_axes and t % 2:
                t += 1
            row.append(t)
        result.update(dict.fromkeys(together.get(b.name, (b.name,)), tuple(row)))
    return result


def _after(time: int) -> int:
    return time + 1 if time % 2 == 0 else time


def _operands(b: Box, made: dict[str, Box]) -> list[tuple[str, bool]]:
    """Boxes that ``b`` reads, each with whether it is read finished (not as a running value)."""
    out: dict[tuple[str, bool], None] = {}
    for r in b.operands():
        name = source(r.array)
        if name in made and name != b.name:
            out.setdefault((name, name == r.array))
    for name in corrections(b):
        out.setdefault((name, True))
    for name in leaders(b):  # lists of one order are made together, in every step
        if name in made:
            out.setdefault((name, False))
    return list(out)


def corrections(b: Box) -> tuple[str, ...]:
    """The boxes by which every step corrects the old value of a running box: what is added, then what multiplies."""
    return tuple(name for name in (b.recentre, b.rescale) if name is not None)


def references(name: str, made: Mapping[str, Box]) -> tuple[Box, ...]:
    """The running boxes that a correction follows, read by it or by the maps that it reads."""
    found: dict[str, Box] = {}
    for r in made[name].reads():
        o = made.get(source(r.array))
        if o is None:
            continue
        inner = (o,) if o.reduction is not None else references(o.name, made)
        found.update({b.name: b for b in inner})
    return tuple(found.values())


def following(boxes: Sequence[Box], loops: Sequence[str]) -> dict[str, bool]:
    """The boxes whose values change with an unfinished reduction, each with whether they need its old value."""
    found: dict[str, bool] = {}
    for b in boxes:
        if any(a in loops for a in b.over):
            continue
        for r in b.reads():
            if r.array.endswith((OLD, RUNNING)) or r.array in found:
                found[b.name] = found.get(b.name, False) or r.array.endswith(OLD) or found.get(r.array, False)
    return found


def references_of(boxes: Sequence[Box], follow: Mapping[str, bool]) -> dict[str, frozenset[str]]:
    """The reductions that every box reads unfinished, by itself or through maps, corrections among them."""
    found: dict[str, frozenset[str]] = {}
    for b in boxes:
        own = {source(r.array) for r in b.reads() if r.array.endswith((OLD, RUNNING))}
        through = [name for name in (*(r.array for r in b.reads()), *corrections(b)) if name in follow]
        found[b.name] = frozenset(own).union(*(found.get(name, ()) for name in through))
    return found


def companions(references: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Every reduction that is read unfinished, with those that some box reads so beside it."""
    groups: dict[str, frozenset[str]] = {}
    for names in references.values():
        whole = names.union(*(groups.get(name, ()) for name in names))
        groups.update(dict.fromkeys(whole, whole))
    return groups


class Nests:
    """Where the boxes of a region run in its loops: their own slots, and those of operands for a reader.

    What follows an unfinished reduction is made again beside a reader in another nest of the loops,
    where that reduction is finished. Reductions that one box relates are all finished there, or all run there again.
    """

    def __init__(self, boxes: Sequence[Box], loops: Sequence[str]) -> None:
        self.loops = loops
        self.made = {b.name: b for b in boxes}
        early = times(boxes, loops)
        enters: dict[str, list[bool]] = {}
        for b in boxes:
            enters[b.name] = inside(b, loops, self.made, early, enters)
        self.own = {name: _at(early[name], row) for name, row in enters.items()}
        self.following = following(boxes, loops)
        self.references = references_of(boxes, self.following)
        self.companions = companions(self.references)
        self.together = lockstep(boxes)
        self.starts = starts(boxes)
        self._contexts: dict[tuple[str, bool, Slot], Slot] = {}

    def context(self, name: str, plain: bool, reader: Slot) -> Slot:
        """The slot in which an operand must run to serve a reader at ``reader``; ``plain`` if it is read finished."""
        key = name, plain, reader
        if key not in self._contexts:
            self._contexts[key] = self._context(*key)
        return self._contexts[key]

    def _context(self, name: str, plain: bool, reader: Slot) -> Slot:
        scan = self.starts.get(name)
        if scan is not None and scan.scan is not None and scan.scan.axis in self.loops:
            return start_slot(scan, reader, self.loops)
        if self.together.get(name, name) != name:
            return reader  # it is made element by element along with its reader
        at = _context(self.made[name], plain, reader, self.loops, self.own[name], self.following.get(name))
        if name in self.following:
            beside = [n for r in self.references[name] if self.unfinished(r, reader) and (n := self._depth(r))]
        else:
            beside = [] if plain else [self._depth(r) for r in self.companions.get(name, ()) if self._beside(r, reader)]
        n = max(beside, default=0)
        return at if at[:n] == reader[:n] else (*reader[:n], *at[n:])

    def _depth(self, name: str) -> int:
        """How many loops there are down to the innermost one that a reduction reduces over."""
        return max((p + 1 for p, a in enumerate(self.loops) if a in self.made[name].over), default=0)

    def _beside(self, name: str, reader: Slot) -> bool:
        at = _context(self.made[name], False, reader, self.loops, self.own[name], None)
        return at[: self._depth(name)] == reader[: self._depth(name)]

    def unfinished(self, name: str, reader: Slot) -> bool:
        """Whether a running or old value read at ``reader`` is one: in another nest its reduction is finished."""
        n = self._depth(name)
        return self.context(name, False, reader)[:n] == reader[:n]

    def corrected(self, b: Box, slot: Slot) -> Box:
        """The box as it runs in a slot: nothing corrects it where all that it is relative to is finished."""
        by = corrections(b)
        if not by or any(self.unfinished(o.name, slot) for name in by for o in references(name, self.made)):
            return b
        return replace(b, rescale=None, recentre=None)


def start_slot(scan: Box, slot: Slot, loops: Sequence[str]) -> Slot:
    """Where the state of a streamed scan at ``slot`` is set: before the pass of its loop."""
    assert scan.scan is not None
    p = loops.index(scan.scan.axis)
    t = slot[p]
    return (*slot[:p], t - 1 if t else None, *[None] * (len(loops) - p - 1))


def occurrences(nests: Nests, stored: frozenset[str]) -> dict[str, tuple[Slot, ...]]:
    """The slots in which every box runs: its sinks at their earliest, operands where they are wanted.

    A box inside a loop that is wanted in a later pass runs again in that pass.
    """
    wanted: dict[str, dict[Slot, None]] = {name: {} for name in nests.made}
    for name in stored:
        if name in wanted:
            wanted[name].setdefault(nests.own[name])
    for b in reversed(nests.made.values()):
        for slot in tuple(wanted[b.name]):
            for array, plain in _operands(nests.corrected(b, slot), nests.made):
                wanted[array].setdefault(nests.context(array, plain, slot))
    return {name: tuple(sorted(slots, key=_order)) for name, slots in wanted.items()}


def _order(slot: Slot) -> tuple[int, ...]:
    return tuple(-1 if t is None else t for t in slot)


def inside(
    b: Box,
    loops: Sequence[str],
    made: dict[str, Box],
    early: dict[str, tuple[int, ...]],
    known: dict[str, list[bool]] | None = None,
) -> list[bool]:
    """For each loop, whether the box runs inside it (walks it, a loop further in, or an operand's).

    ``known`` may hold the answers for its operands.
    """
    t = early[b.name]
    result = []

    def row(name: str) -> list[bool]:
        return known[name] if known is not None else inside(made[name], loops, made, early)

    for p, axis in enumerate(loops):
        if t[p] % 2:
            result.append(False)
            continue
        after_outer = any(x % 2 for x in t[:p])
        deeper = axis in b.all_axes or (
            not after_outer and any(loops[k] in b.all_axes and t[k] % 2 == 0 for k in range(p + 1, len(loops)))
        )
        if not deeper:
            deeper = any(
                not (plain and axis in made[o].over) and row(o)[p]
                for o, plain in _operands(b, made)
                if not (after_outer and axis not in made[o].all_axes)
            )
        result.append(deeper)
    return result


def _at(t: tuple[int, ...], enters: Sequence[bool]) -> Slot:
    """The slot of a box that runs at these times, in the loops that it enters."""
    return tuple(x if x % 2 else (x if e else None) for x, e in zip(t, enters, strict=True))


def _context(o: Box, plain: bool, reader: Slot, loops: Sequence[str], own: Slot, follows: bool | None) -> Slot:
    """As `Nests.context`; ``follows`` is None for what follows no unfinished reduction, else if it needs old values."""
    slot: list[int | None] = []
    finished = False
    for p, axis in enumerate(loops):
        mine, his = own[p], reader[p]
        if finished:
            slot.append(mine)  # one loop further out has finished it: its reader's passes of this one are others
            continue
        finished = plain and axis in o.over
        walks = any(a in o.axes for a in loops[p:])
        if mine is not None and mine % 2 == 0 and his is not None and his % 2 and not walks and not follows:
            finished = True  # repeated in that loop and the same in every trip: its reader takes the last
            slot.append(mine)
            continue
        if his is None and axis not in o.all_axes and any(t is not None and t % 2 for t in slot):
            slot.append(None)  # it runs after a loop with its reader, and need not be repeated
        elif mine is None and his is not None and his % 2 == 0 and any(t is not None and t % 2 == 0 for t in own[p:]):
            slot.append(his)  # it walks a loop further in, which is one nest with its reader's
        elif follows is not None and (follows or walks) and mine is not None and his is not None:
            slot.append(max(his, mine))  # made again beside its reader, from finished results
        elif (plain and axis in o.over) or mine is None or his is None or mine % 2:
            slot.append(mine)
        else:
            slot.append(max(his, mine))
    return tuple(slot)
