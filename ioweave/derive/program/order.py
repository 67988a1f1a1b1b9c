"""The order of boxes within a line: a copy of an operand is made once nothing else of the line needs it.

Lines run as they are written. Of the parts of one line, a map that could take over an operand's
bytes waits for the other readers of that operand.
"""

from __future__ import annotations

from collections.abc import Sequence

from ioweave.derive.program.slots import corrections
from ioweave.diagrams.boxes import Box, source
from ioweave.diagrams.lists import leaders


def within_lines(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """The boxes with the parts of every line so ordered; operands still come before their readers."""
    made = {b.name: b for b in boxes}
    needs = {
        b.name: {source(r.array) for r in b.operands() if source(r.array) in made and source(r.array) != b.name}
        | set(corrections(b))
        | {n for n in leaders(b) if n in made}
        for b in boxes
    }
    result: list[Box] = []
    waiting = list(boxes)
    done: set[str] = set()
    while waiting:
        line = waiting[0].line
        ready = [b for b in waiting if b.line == line and needs[b.name] <= done] or [waiting[0]]
        chosen = next((b for b in ready if not _premature(b, waiting, made)), ready[0])
        waiting.remove(chosen)
        done.add(chosen.name)
        result.append(chosen)
    return tuple(result)


def _premature(b: Box, waiting: Sequence[Box], made: dict[str, Box]) -> bool:
    """Whether another part of the line still reads an operand that this map could take over."""
    if b.reduction is not None:
        return False
    for r in b.reads():
        o = made.get(r.array)
        if o is None or set(o.axes) != set(b.axes):
            continue
        for other in waiting:
            waits = other is not b and other.line == b.line and other.reduction is not None
            if waits and any(s.array == r.array for s in other.reads()):
                return True
    return False
