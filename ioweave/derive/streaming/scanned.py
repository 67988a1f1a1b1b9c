"""The verdict on an axis with recurrences: one way or both, merged or not, and what of the state grows with the axis.

Statement. A loop over a scan's axis is a plan of one pass whatever the scan computes; what tells such
plans apart is whether pieces can be joined (`carry`, `segments`), whether the axis can be walked the other
way (`direction`), and whether the size of what is carried is bounded, follows the logarithm of the axis's
length, or the length itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log2

from ioweave.derive.streaming.equations import equation
from ioweave.derive.streaming.merge import merge_lines
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.segments import carry_of
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Constant, walk
from ioweave.diagrams.groups import carried_axes, groups, past
from ioweave.diagrams.sizes import resolve
from ioweave.hierarchy.verdicts import Direction, Verdict

LOG, GROWS = "log", "grows"
_LENGTHS = (2**6, 2**9, 2**12, 2**15)  # of the axis, where sizes tied to it are compared


def endless(opened: Opened, axis: str, definitions: Sequence[Definition] = ()) -> tuple[str, str | None] | None:
    """Why what a scan carries along an axis has no bound, with the nearest change; None where it has one."""
    grown = growth(definitions, axis)
    mixed = _whole_axes(opened, axis)
    for group in groups(opened.boxes):
        scan = group.scan
        if group.axis != axis:
            continue
        if group.past:
            reader = next(b for b in group.members if any(r.array == past(scan.name) for r in b.reads()))
            said = (
                f"{reader.name} reads every earlier element of {scan.name} along {axis}, and no running value is "
                f"known to sum them up: the state is all of {scan.name} so far"
            )
            return said, "weigh earlier elements by a sum of products, one factor from each of the two places"
        for a in carried_axes(scan):
            if grown.get(base_name(a)) == GROWS and a in mixed:
                said = f"the state {scan.name}[{', '.join(carried_axes(scan))}] has the axis {a}, as long as {axis} is"
                return f"{said}: it grows with {axis}", f"give {a} a size of its own, or one that follows log2({axis})"
    return None


def _whole_axes(opened: Opened, axis: str) -> frozenset[str]:
    """Axes that something reduces over, or reads at other places than its own: no instance has a part of them."""
    found: set[str] = set()
    for b in opened.boxes:
        found |= set(b.over)
        for r in b.reads():
            made = next((x for x in opened.boxes if x.name == r.array), None)
            if made is not None:
                found |= {a for a, f in zip(made.axes, r.index, strict=True) if f.bare != a}
    return frozenset(found - {axis})


def growth(definitions: Sequence[Definition], axis: str) -> dict[str, str]:
    """The names whose numbers follow the size of an axis: `LOG` where they grow as its logarithm, else `GROWS`."""
    name = base_name(axis)
    table = {d.name: d for d in definitions}
    if name not in table:
        return {}
    roots = _roots(name, table)
    try:
        runs = [resolve(definitions, dict.fromkeys(roots, n)) for n in _LENGTHS]
    except WeaveError:
        return {}
    found: dict[str, str] = {}
    for other in table:
        values = [float(run[other]) for run in runs]
        if other == name or other in roots or values[-1] <= values[0]:
            continue
        few = values[-1] <= values[0] + 2 * (log2(_LENGTHS[-1]) - log2(_LENGTHS[0])) * max(1.0, values[0] / 4)
        found[other] = LOG if few else GROWS
    for other in roots:
        if other != name:
            found[other] = GROWS
    return found


def _roots(name: str, table: Mapping[str, Definition]) -> tuple[str, ...]:
    """The names with numbers of their own that a name is worked out from: itself, where it has one."""
    behind = [n.name for n in walk(table[name].value) if isinstance(n, Constant) and n.name in table]
    return tuple(dict.fromkeys(r for b in behind for r in _roots(b, table))) or (name,)


def least_of_scans(plan: Plan, axis: str) -> str | None:
    """Why a plan with scans of several passes has so many."""
    if not plan.recurrences or plan.passes < 2:
        return None
    if len({w for w in plan.walks if w != "both"}) > 1:
        return f"{plan.passes} passes: one loop walks {axis} one way"
    late = [b.name for b in plan.recurrences if plan.pass_of(b.name) > 1]
    if not late:
        return None
    return f"{plan.passes} passes are least: the first element of {' and '.join(late)} needs a finished result"


def recurrent(
    verdict: Verdict,
    opened: Opened,
    plan: Plan,
    axis: str,
    definitions: Sequence[Definition] = (),
    other: Plan | str | None = None,
) -> Verdict:
    """The verdict with what its recurrences change: the word, the direction, the merge and why there is none.

    ``other`` is the plan that walks the axis the other way, or why there is none.
    """
    if not plan.recurrences:
        return replace(verdict, direction="both")
    walk = _way(plan)
    made = replace(verdict, direction=walk, commutative=False)
    if plan.passes > 1:
        return replace(made, directed=f"{axis} is walked {' and then '.join(w for w in plan.walks if w != 'both')}")
    unbounded = endless(opened, axis, definitions)
    if unbounded is not None:
        return replace(made, verdict="unbounded", merge=None, refusal=unbounded[0], nearest=unbounded[1])
    grown = growth(definitions, axis)
    logs = any(grown.get(base_name(a)) == LOG for s in plan.recurrences for a in carried_axes(s))
    word = "one-pass-states(log)" if logs else made.verdict
    found = plan.segments
    if found is None:
        why = f"no merge: {carry_of(plan).why}; {axis} is walked {walk}"
        return replace(made, verdict=word if logs else "one-pass-directed", merge=None, directed=why)
    made = replace(made, verdict=word, merge=merge_lines(plan, found))
    if isinstance(other, Plan):
        lines = tuple(equation(b) for b in (*other.body, *other.tail))
        return replace(made, direction="both", opposite=lines)
    return replace(made, directed=f"{walk} alone: {other}" if other else None)


def _way(plan: Plan) -> Direction:
    return "backward" if plan.direction == "backward" else "forward"
