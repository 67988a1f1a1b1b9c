"""Numbers to check a plan on: sizes, inputs, cuts of the axis into steps and pieces, and comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from ioweave.derive.certificate.machine import direct
from ioweave.derive.certificate.values import Step, Values
from ioweave.derive.execution.inputs import Kind, draw_inputs
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Constant, Expr, Number, walk
from ioweave.diagrams.notation import parse
from ioweave.diagrams.notation.printer import print_diagram
from ioweave.diagrams.sizes import axis_names

TOLERANCE = 1e-9
WORK = 1 << 18  # elements of one box's index space
KINDS: tuple[Kind, ...] = ("plain", "zeros", "constant")
_ATTEMPTS = 300
Sizes = Mapping[str, int | float]


@dataclass(frozen=True)
class Case:
    """A diagram at drawn sizes on drawn inputs; ``arrays`` are all its boxes."""

    sizes: Sizes
    kind: Kind
    seed: int
    inputs: Mapping[str, Values]
    arrays: Mapping[str, Values]


def draw_sizes(
    diagram: Diagram, opened: Opened, rng: np.random.Generator, wanted: tuple[str, int] | None = None
) -> dict[str, int | float]:
    """Sizes of every axis, small ones as likely as larger ones; ``wanted`` is an axis with a size that it must have.

    Raises WeaveError if none of many makes the file valid.
    """
    axes = set(axis_names(diagram))
    free = [d.name for d in diagram.definitions if d.name in axes and isinstance(d.value, Number)]
    tied = {n.name for d in diagram.definitions if d.name in axes for n in walk(d.value) if isinstance(n, Constant)}
    counts = [d.name for d in diagram.definitions if d.name in tied - axes and _whole(d.value)]
    written = diagram.values()
    text = print_diagram(diagram)
    error = WeaveError("no small sizes make this algorithm valid")
    for attempt in range(_ATTEMPTS):
        top = int(rng.choice([3, 6, 12, 24]))
        most = [min(int(written[n]), 64) if attempt > _ATTEMPTS // 2 else top for n in free]
        drawn = {n: int(rng.integers(1, m + 1)) for n, m in zip(free, most, strict=True)}
        # a constant that an axis is worked out from, as the length of a block, is small as well
        drawn |= {n: int(rng.integers(1, min(top, int(written[n])) + 1)) for n in counts if attempt % 2 == 0}
        if wanted is not None and wanted[0] in drawn:
            drawn[wanted[0]] = wanted[1]
        try:
            values = diagram.values(drawn)
            if work(opened, values) > WORK or (wanted is not None and values[wanted[0]] != wanted[1]):
                continue
            parse(text, "<certificate>", drawn)
        except WeaveError as e:
            error = e
            continue
        return values
    raise error


def _whole(e: Expr) -> bool:
    return isinstance(e, Number) and isinstance(e.value, int) and e.value >= 1


def work(opened: Opened, sizes: Sizes) -> int:
    """The elements of the largest index space of a box."""
    return max((prod(int(sizes[base_name(a)]) for a in b.all_axes) for b in opened.boxes), default=1)


def make_case(diagram: Diagram, opened: Opened, sizes: Sizes, kind: Kind, seed: int) -> Case:
    """The case of these sizes, with inputs drawn from the seed."""
    inputs = draw_inputs(diagram, sizes, seed, kind)
    return Case(sizes, kind, seed, inputs, direct(opened.boxes, inputs, sizes))


def levelled(case: Case, opened: Opened, axis: str) -> Case:
    """The case with inputs of numbers that are the same all along an axis: as many terms count as can."""
    inputs = dict(case.inputs)
    for i in opened.inputs:
        if DTYPES[i.dtype].kind != "float":
            continue
        array = inputs[i.name]
        for b in opened.boxes:
            for r in b.reads():
                for k, form in enumerate(r.index if r.array == i.name else ()):
                    if axis in form.names and array.shape[k]:
                        array = np.repeat(np.take(array, [0], axis=k), array.shape[k], axis=k)
        inputs[i.name] = array
    return Case(case.sizes, case.kind, case.seed, inputs, direct(opened.boxes, inputs, case.sizes))


def cut(size: int, rng: np.random.Generator) -> list[Step]:
    """An axis in consecutive steps of random lengths, at most five."""
    ends = sorted({0, size, *(int(k) for k in rng.integers(0, size + 1, int(rng.integers(1, 5))))})
    return list(pairwise(ends))


def pieces(steps: Sequence[Step], rng: np.random.Generator) -> list[list[Step]]:
    """Consecutive steps in two or three pieces, as far as there are that many."""
    ends = sorted({0, len(steps), *(int(k) for k in rng.integers(0, len(steps) + 1, 2))})
    return [list(steps[a:b]) for a, b in pairwise(ends)]


def in_turn(size: int, rng: np.random.Generator, backward: bool) -> list[list[Step]]:
    """An axis in two to four pieces one after another in a direction, each of one or two steps; else one."""
    inner = rng.permutation(np.arange(1, size))[: int(rng.integers(1, 4))] if size > 1 else ()
    made = []
    for lo, hi in pairwise(sorted({0, size, *map(int, inner)})):
        middle = int(rng.integers(lo, hi))
        made.append([(a, b) for a, b in ((lo, middle), (middle, hi)) if a < b])
    return made[::-1] if backward else made


def difference(a: Values, b: Values) -> float:
    """The largest |a - b| where the reference ``b`` is finite, over the largest |b| or 1; inf where a is not finite."""
    b = np.asarray(b, dtype=float)
    a = np.asarray(a, dtype=float)
    finite = np.isfinite(b)
    if not np.all(np.isfinite(a[finite])):
        return float("inf")
    scale = max(1.0, float(np.max(np.abs(b[finite]), initial=0.0)))
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale


def agree(a: Values, b: Values, tolerance: float = TOLERANCE) -> bool:
    """Whether two arrays are equal wherever both are finite."""
    a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    both = np.isfinite(a) & np.isfinite(b)
    scale = max(1.0, float(np.max(np.abs(b[both]), initial=0.0)))
    return float(np.max(np.abs(a[both] - b[both]), initial=0.0)) <= tolerance * scale
