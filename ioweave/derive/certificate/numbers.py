"""Numbers to check a plan on: sizes, inputs, cuts of the axis into steps and pieces, and comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from ioweave.derive.certificate.machine import Step, direct
from ioweave.derive.execution.grid import Values
from ioweave.derive.execution.inputs import Kind, draw_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Number
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
    """A diagram at drawn sizes on drawn inputs; ``arrays`` are all its boxes, ``outputs`` as its lines make them."""

    sizes: Sizes
    kind: Kind
    seed: int
    inputs: Mapping[str, Values]
    arrays: Mapping[str, Values]
    outputs: Mapping[str, Values]


def draw_sizes(diagram: Diagram, opened: Opened, rng: np.random.Generator) -> dict[str, int | float]:
    """Sizes of every axis, small ones as likely as larger ones; WeaveError if none of many makes the file valid."""
    axes = set(axis_names(diagram))
    free = [d.name for d in diagram.definitions if d.name in axes and isinstance(d.value, Number)]
    written = diagram.values()
    text = print_diagram(diagram)
    error = WeaveError("no small sizes make this algorithm valid")
    for attempt in range(_ATTEMPTS):
        top = int(rng.choice([3, 6, 12, 24]))
        most = [min(int(written[n]), 64) if attempt > _ATTEMPTS // 2 else top for n in free]
        drawn = {n: int(rng.integers(1, m + 1)) for n, m in zip(free, most, strict=True)}
        try:
            values = diagram.values(drawn)
            parse(text, "<certificate>", drawn)
        except WeaveError as e:
            error = e
            continue
        if work(opened, values) <= WORK:
            return values
    raise error


def work(opened: Opened, sizes: Sizes) -> int:
    """The elements of the largest index space of a box."""
    return max((prod(int(sizes[base_name(a)]) for a in b.all_axes) for b in opened.boxes), default=1)


def make_case(diagram: Diagram, opened: Opened, sizes: Sizes, kind: Kind, seed: int) -> Case:
    """The case of these sizes, with inputs drawn from the seed."""
    inputs = draw_inputs(diagram, sizes, seed, kind)
    lines = evaluate(diagram, sizes, inputs)
    arrays = direct(opened.boxes, inputs, sizes)
    return Case(sizes, kind, seed, inputs, arrays, {n: lines[n] for n in opened.outputs})


def cut(size: int, rng: np.random.Generator) -> list[Step]:
    """An axis in consecutive steps of random lengths, at most five."""
    ends = sorted({0, size, *(int(k) for k in rng.integers(0, size + 1, int(rng.integers(1, 5))))})
    return list(pairwise(ends))


def pieces(steps: Sequence[Step], rng: np.random.Generator) -> list[list[Step]]:
    """Consecutive steps in two or three pieces, as far as there are that many."""
    ends = sorted({0, len(steps), *(int(k) for k in rng.integers(0, len(steps) + 1, 2))})
    return [list(steps[a:b]) for a, b in pairwise(ends)]


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
