"""Hold: an array is loaded further out than its index demands.

Statement: loading is a copy, and copying more of an array earlier than it is used changes no
value; loads inside a loop that the array lacks fetch the same elements in every trip, and one
load outside of it serves them all (counting.md 2 and 18). It buys transfers for memory.
"""

from __future__ import annotations

from dataclasses import replace

from ioweave.derive.rewrites.regions import Check, boxes_of, checked, position, unchecked
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.steps import Step, and_list, depth_words


def hold(levelled: Levelled, region: str, array: str, depth: int, check: Check = unchecked) -> tuple[Levelled, Step]:
    """Array ``array`` loaded inside the ``depth`` outermost loops of ``region``; 0 is before all of them.

    Raises Refused for an array that the region does not load, one held already, and a depth
    beyond the loops.
    """
    at = position(levelled, region)
    before = levelled.regions[at]
    boxes = boxes_of(open_diagram(levelled.diagram), before)
    made = {b.name for b in boxes}
    loaded = tuple(dict.fromkeys(r.array for b in boxes for r in b.reads() if r.array not in made))
    if array not in loaded:
        raise Refused(f"{region} does not load {array}; it loads {and_list(loaded) or 'nothing'}")
    if not 0 <= depth <= len(before.stream):
        raise Refused(f"{array} cannot be held at depth {depth}: {region} has {len(before.stream)} loops")
    if array in dict(before.hold):
        raise Refused(f"{array} is held at depth {dict(before.hold)[array]} already")
    after = levelled.with_region(at, replace(before, hold=(*before.hold, (array, depth)), implicit=False))
    used = {a for b in boxes for r in b.reads() if r.array == array for f in r.index for a in f.names}
    inner = [a for a, _ in before.stream[depth:]]
    same = [a for a in inner if a not in used]
    whole = [a for a in inner if a in used]
    said = [f"a load moves values and changes none; loaded {depth_words(depth)}, {array}"]
    if same:
        said[0] += f" is not loaded again for {and_list(same)}, which it lacks"
    if whole:
        said.append(f"{'and' if same else ''} is kept for all of {and_list(whole)}".strip())
    because = " ".join(said) if same or whole else f"{said[0]} stands where its index puts it"
    return checked(after, region, check), Step("hold", because, region, size=depth, arrays=(array,))
