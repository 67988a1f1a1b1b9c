"""Lower bounds on the traffic of any schedule, and the largest of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ioweave.derive.bounds.needed import Scope, compulsory, is_whole, masked, scope
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Apply, Expr, Read, children, is_predicate_of_indices, reads, walk
from ioweave.diagrams.operators import CASTS

SOURCE = "Smith, Lowery, Langou and van de Geijn 2019, arXiv 1702.02017"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One lower bound in values and in bytes, and why it holds."""

    values: float
    bytes: float
    because: str
    assumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest of the candidates: no schedule moves fewer values (or bytes)."""

    values: float
    bytes: float
    because: str
    assumes: tuple[str, ...]
    candidates: tuple[Candidate, ...]

    def to_json(self, after: float | None = None) -> dict[str, Any]:
        """The report's record; ``after`` (values moved by a schedule) adds its ratio to the bound."""
        out: dict[str, Any] = {
            "values": _plain(self.values),
            "because": self.because,
            "assumes": list(self.assumes),
            "candidates": [{"values": _plain(c.values), "because": c.because} for c in self.candidates],
        }
        if after is not None and self.values > 0:
            out["ratio"] = after / self.values
        return out


def bound(opened: Opened, sizes: Mapping[str, int | float], capacity_bytes: float) -> Bound:
    """The largest lower bound on what crosses into and out of a memory of ``capacity_bytes``.

    ``sizes`` holds the diagram's numbers (sizes, and the constants that predicates use).
    """
    where = scope(opened, sizes)
    least = compulsory(opened, sizes)
    moved = " + ".join(name for name, _, _ in least.arrays)
    first = Candidate(
        least.values,
        least.bytes,
        f"compulsory: every input element that is needed and every output element crosses once ({moved})",
        ("masks by loaded values remove no load",) if _chooses_by_data(opened) else (),
    )
    candidates = (first, *contractions(opened, where, capacity_bytes))
    best = max(candidates, key=lambda c: c.values)
    return Bound(best.values, max(c.bytes for c in candidates), best.because, best.assumes, candidates)


def _chooses_by_data(opened: Opened) -> bool:
    """Whether a box takes one of two values by a condition on loaded ones."""
    return any(
        isinstance(node, Apply) and node.op == "where" and not is_predicate_of_indices(node.args[0])
        for box in opened.boxes
        for node in walk(box.body)
    )


def contractions(opened: Opened, where: Scope, capacity_bytes: float) -> Iterator[Candidate]:
    """For each product of two inputs whose result leaves: 2*n*a*b*c/sqrt(M) - 2*M, with n independent products.

    M is the capacity in values of the narrowest type of the operands and the result, so it is never too small. The
    independent products share M: in a phase of the proof sum(sqrt(a*b*c)) <= sqrt(sum(a)*sum(b)*sum(c)), so the
    bound holds for their sum.
    """
    dtypes = {i.name: i.dtype for i in opened.inputs}
    if masked(opened.boxes):
        return
    for box in opened.boxes:
        leaves = _leaves(box, opened)
        operands = _operands(box)
        if leaves is None or operands is None:
            continue
        x, y = operands
        if x.array == y.array or not {x.array, y.array} <= set(dtypes):
            continue
        axes = _roles(box, x, y)
        if axes is None:
            continue
        width = min(Fraction(DTYPES[d].bits, 8) for d in (dtypes[x.array], dtypes[y.array], box.dtype, leaves.dtype))
        room = float(Fraction(capacity_bytes) / width)
        multiplications = math.prod(where.size(a) for a in box.all_axes)
        values = 2 * multiplications / math.sqrt(room) - 2 * room
        if values > 0:
            size = {role: "*".join(names) or "1" for role, names in axes.items()}
            times = f"{size['batch']}*" if axes["batch"] else ""
            yield Candidate(
                values,
                values * float(width),
                f"{box.name} contracts {x.array} with {y.array}: 2*{times}{size['left']}*{size['sum']}*{size['right']}"
                f"/sqrt(M) - 2*M with M = {_plain(room)} values ({SOURCE})",
                ("every product of the sum is formed (no Strassen-like algorithm)",),
            )


def _leaves(box: Box, opened: Opened) -> Box | None:
    """The output that is ``box`` or an elementwise map of it alone; None if there is none."""
    if box.name in opened.outputs:
        return box
    for other in opened.boxes:
        found = other.reads()
        alone = len(found) == 1 and found[0].array == box.name and is_whole(found[0], box)
        if alone and other.reduction is None and other.axes == box.axes:
            out = _leaves(other, opened)
            if out is not None:
                return out
    return None


def _operands(box: Box) -> tuple[Read, Read] | None:
    """The two reads of a sum of products of maps of one read each; None for any other box."""
    if box.reduction != "sum":
        return None
    factors: list[Read] = []
    for factor in _factors(box.body):
        found = reads(factor)
        if len(found) > 1:
            return None
        factors.extend(found)
    return (factors[0], factors[1]) if len(factors) == 2 else None


def _factors(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Apply) and (e.op == "mul" or e.op in CASTS):
        for child in children(e):
            yield from _factors(child)
    else:
        yield e


def _roles(box: Box, x: Read, y: Read) -> dict[str, list[str]] | None:
    """The axes by role, where each operand is read at distinct bare axes; None where it is no matrix product."""
    left, right = ([form.bare for form in r.index] for r in (x, y))
    for found in (left, right):
        if None in found or len(set(found)) != len(found):
            return None
    roles: dict[str, list[str]] = {"batch": [], "left": [], "right": [], "sum": []}
    for axis in box.axes:
        if axis not in left and axis not in right:
            return None
        roles["batch" if axis in left and axis in right else "left" if axis in left else "right"].append(axis)
    for axis in box.over:
        if axis not in left or axis not in right:
            return None
        roles["sum"].append(axis)
    return roles


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else value
