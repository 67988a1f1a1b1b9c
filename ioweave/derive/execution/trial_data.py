"""Small sizes and hostile data for trials of plans: what a plan may not survive is drawn on purpose.

A cast rounds here to a multiple of a fixed step: coarse, so that one that a plan moved or dropped
shows, and monotone, as every cast is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ioweave.derive.execution.grid import Values
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.streaming.formats import largest_finite
from ioweave.diagrams.boxes import Box, Opened, Operand, base_name
from ioweave.diagrams.diagram import Definition, Diagram, Input
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Expr, Number, transform, walk
from ioweave.diagrams.opening import as_line
from ioweave.diagrams.operators import CASTS
from ioweave.diagrams.sizes import as_size, resolve

Sizes = dict[str, int | float]
PLAIN, ZEROS, MASKED, LARGE, FAR, CONSTANT, NEGATIVE, EMPTY = (
    "standard normal",
    "first block zero",
    "first block masked",
    "exponents to 1000",
    "exponents to 3000, of one sign",
    "first block constant",
    "all negative",
    "rows masked whole",
)
LEVEL = "the same all along the axis"
KINDS = (PLAIN, ZEROS, LARGE, EMPTY, MASKED, FAR, CONSTANT, NEGATIVE)
CELLS = 20_000  # of the largest array of a trial
MOST_CELLS = 1_000_000  # where literal dimensions leave no choice
ATTEMPTS = 40
_EXPONENTS = frozenset({"exp", "exp2"})
_REACH = (3e3, 1e3, 300.0, 100.0)  # of exponents; the first at which the reference does not overflow


_STEPS = {"fp32": 20, "tf32": 10, "fp16": 10, "bf16": 6, "fp8": 3, "fp8_e5m2": 2, "fp4": 1}  # bits after the point


def with_casts(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """The boxes with every cast of their bodies written as the rounding that trials give it."""
    return tuple(b if (body := transform(b.body, _cast)) == b.body else replace(b, body=body) for b in boxes)


def _cast(e: Expr) -> Expr:
    if not isinstance(e, Apply) or e.op not in CASTS or e.op == "fp64":
        return e
    if e.op == "bool":
        return Apply("ne", (e.args[0], Number(0)))
    unit = Number(2.0 ** _STEPS.get(e.op, 0))
    return Apply("div", (Apply("round", (Apply("mul", (e.args[0], unit)),)), unit))


@dataclass(frozen=True)
class Subject:
    """What is tried: ``boxes`` make the reference, the streamed axes walk in steps, ``inputs`` are drawn."""

    boxes: tuple[Box, ...]
    inputs: tuple[Operand, ...]
    streamed: frozenset[str]
    base: Mapping[str, str]

    @staticmethod
    def of(opened: Opened, before: Sequence[Box], streamed: frozenset[str]) -> Subject:
        """The subject of a diagram, or of a part of it with the boxes ``before`` that it reads."""
        boxes = with_casts((*before, *opened.boxes))
        base = {a: base_name(a) for b in boxes for a in b.all_axes} | dict(opened.base)
        read = {r.array for b in boxes for r in b.reads()}
        return Subject(boxes, tuple(i for i in opened.inputs if i.name in read), streamed, base)

    def sizes_of(self, values: Mapping[str, int | float]) -> dict[str, int | float]:
        """The values with the size of every component beside those of the names."""
        return {**values, **{a: values[n] for a, n in self.base.items()}}

    def kinds(self) -> tuple[str, ...]:
        """The kinds of data that differ for these inputs, in the order in which they are tried."""
        masks = any(DTYPES[i.dtype].kind != "float" for i in self.inputs)
        return tuple(k for k in KINDS if k not in (MASKED, EMPTY) or masks)


def small_sizes(
    subject: Subject,
    values: Mapping[str, int | float],
    definitions: Sequence[Definition],
    largest: int,
    rng: np.random.Generator,
    wanted: Mapping[str, int] | None = None,
) -> Sizes | None:
    """Sizes of 1 to ``largest`` for every free axis, every array below `CELLS` where that can be had.

    Ties among ``definitions`` are followed; without them, axes of equal size stay equal. Large whole
    constants that are no axis, such as the width of a window, are small at times too. ``wanted`` are
    sizes to try first, such as that which fills a list. None if no draw is valid, or only one of huge arrays.
    """
    axes = set(subject.base.values())
    tied = {d.name for d in definitions if not isinstance(d.value, Number)}
    best: tuple[int, Sizes] | None = None
    for attempt in range(ATTEMPTS):
        top = max(1, min(largest, ATTEMPTS // 2 + 2 - attempt)) if attempt < ATTEMPTS // 2 else largest
        drawn: Sizes = {}
        for name, value in values.items():
            if name in tied:
                continue
            if wanted and name in wanted and attempt < ATTEMPTS // 2:
                drawn[name] = wanted[name]
            elif name in axes:
                of_loop = any(subject.base[a] == name for a in subject.streamed)
                limit = top if of_loop else max(1, (2 * top + 2) // 3)
                drawn[name] = max(int(n) for n in rng.integers(1, limit + 1, 1 + of_loop))
                if attempt >= ATTEMPTS // 2:  # ties by division want powers of two
                    drawn[name] = 1 << int(rng.integers(0, 4))
            elif definitions and isinstance(value, int) and value > largest and rng.random() < 0.5:
                drawn[name] = int(rng.integers(1, largest))
        found = _settled(drawn, values, definitions)
        cells = _cells(subject, found)
        if cells is not None and (best is None or cells < best[0]):
            best = cells, found
            if cells <= CELLS:
                break
    cells = _cells(subject, dict(values))
    if best is None and cells is not None:
        best = cells, dict(values)
    return best[1] if best and best[0] <= MOST_CELLS else None


def _settled(drawn: Sizes, values: Mapping[str, int | float], definitions: Sequence[Definition]) -> Sizes:
    if definitions:
        defined = {d.name for d in definitions}
        try:
            return {**values, **drawn, **resolve(definitions, {n: v for n, v in drawn.items() if n in defined})}
        except WeaveError:
            return {}
    same: dict[int | float, int | float] = {}
    return {n: same.setdefault(v, drawn[n]) if n in drawn else v for n, v in values.items()}


def _cells(subject: Subject, values: Sizes) -> int | None:
    """The elements of the largest array at these sizes; None if they are no sizes."""
    whole = {n: int(v) for n, v in values.items()}
    try:
        extents = {a: as_size(a, values[n]) for a, n in subject.base.items()}
        shapes = [tuple(form.fixed(whole) for form in i.dims) for i in subject.inputs]
    except (WeaveError, KeyError):
        return None
    if any(n < 1 for shape in shapes for n in shape):
        return None
    if any(b.into is not None and extents[b.into] > prod(extents[a] for a in b.over) for b in subject.boxes):
        return None  # a list longer than its axis
    return max([1, *(prod(s) for s in shapes), *(prod(extents[a] for a in b.all_axes) for b in subject.boxes)])


def data(
    subject: Subject, values: Mapping[str, int | float], kind: str, first: Mapping[str, int], seed: int
) -> dict[str, Values]:
    """Arrays for the inputs, as `draw_inputs` draws them and then of one kind.

    ``first`` is the length of the first block along each streamed axis; declared facts hold whatever
    the kind.
    """
    whole = any(DTYPES[i.dtype].kind == "int" for i in subject.inputs)
    lines = tuple(as_line(b) for b in subject.boxes) if whole else ()  # integers are drawn from what they meet
    declared = tuple(Input(i.name, i.dims, i.dtype, i.fact) for i in subject.inputs)
    arrays = draw_inputs(Diagram("", (), declared, lines, ()), values, seed)
    rng = np.random.default_rng(seed)
    if kind == LARGE:
        return _large(subject, values, arrays, _REACH[1:])
    if kind == FAR:
        return _large(subject, values, _of_one_sign(subject, arrays, seed), _REACH)
    for i in subject.inputs:
        array = arrays[i.name]
        real = DTYPES[i.dtype].kind == "float"
        places = _first_block(subject, i.name, array.ndim, first)
        sign, bound = i.fact or ("", 0.0)
        if kind == NEGATIVE and real and not sign:
            arrays[i.name] = -np.abs(array)
        elif kind == ZEROS and real and places and (not sign or (sign in (">=", "<=") and bound == 0)):
            array[places] = 0.0
        elif kind == LEVEL and real and places and array.size:
            array[...] = array[tuple(slice(0, 1) if p != slice(None) else p for p in places)]
        elif kind == CONSTANT and real and places and array.size:
            array[places] = array.reshape(-1)[0]
        elif kind == EMPTY and not real and array.ndim:
            # whole rows of either value: which one masks is the diagram's business
            rows = np.arange(array.shape[0]).reshape(-1, *[1] * (array.ndim - 1)) % 2 == seed % 2
            array[...] = rows if array.dtype == bool else array + rows * (int(array.max(initial=0)) + 1)
        elif kind == MASKED and not real and places:
            array[places] = rng.random() < 0.2 if array.dtype == bool else int(array.max(initial=0)) + 1
    return arrays


def _first_block(subject: Subject, name: str, rank: int, first: Mapping[str, int]) -> tuple[slice, ...] | None:
    """Where an input lies in the first block of the streamed axes; None if it lies along none of them."""
    places = [slice(None)] * rank
    for b in subject.boxes:
        for r in b.reads():
            if r.array == name:
                for k, form in enumerate(r.index):
                    for a in form.names:
                        if a in first:
                            places[k] = slice(0, first[a])
    return tuple(places) if any(p != slice(None) for p in places) else None


def _of_one_sign(subject: Subject, arrays: dict[str, Values], seed: int) -> dict[str, Values]:
    """Inputs positive and negative by turns, so that products of two have one sign."""
    free = [i.name for i in subject.inputs if DTYPES[i.dtype].kind == "float" and i.fact is None]
    return arrays | {n: np.abs(arrays[n]) * (1 if (k + seed) % 2 else -1) for k, n in enumerate(free)}


def _large(
    subject: Subject, values: Mapping[str, int | float], arrays: dict[str, Values], reaches: Sequence[float]
) -> dict[str, Values]:
    """The inputs scaled until some exponent is as large as one of ``reaches``, the first that overflows nothing."""
    one, calm = _exponent(subject, values, arrays)
    two, _ = _exponent(subject, values, _scaled(subject, arrays, 2.0))
    if not one:
        return _scaled(subject, arrays, 1e3)
    if not two:
        return _scaled(subject, arrays, 30.0)
    degree = np.log2(two / one)
    if degree < 0.1:  # the exponents do not follow the scale
        return _scaled(subject, arrays, 30.0)
    for reach in reaches:
        scaled = _scaled(subject, arrays, float((reach / one) ** (1 / degree)))
        if not calm or _exponent(subject, values, scaled)[1]:
            return scaled
    return arrays


def _scaled(subject: Subject, arrays: Mapping[str, Values], factor: float) -> dict[str, Values]:
    """Every array of numbers times a factor, where its fact allows, within the range of its dtype."""
    result = dict(arrays)
    for i in subject.inputs:
        if DTYPES[i.dtype].kind == "float" and (i.fact is None or i.fact[1] == 0):
            top = largest_finite(i.dtype)
            result[i.name] = np.clip(arrays[i.name] * factor, -top, top)
    return result


def _exponent(subject: Subject, values: Mapping[str, int | float], arrays: Mapping[str, Values]) -> tuple[float, bool]:
    """The largest finite argument of an exponential, and whether nothing overflows in the reference."""
    machine = PlanMachine(subject.sizes_of(values), arrays)
    made = machine.direct(subject.boxes)
    largest = 0.0
    with np.errstate(all="ignore"):
        for b in subject.boxes:
            for e in _exponents(b.body):
                found = np.abs(machine.value(e, machine.grid(b.all_axes, {}))).astype(float)
                largest = max(largest, float(np.max(found[np.isfinite(found)], initial=0)))
    calm = not any(np.any(np.isnan(a) | (a == np.inf)) for a in (made[b.name].astype(float) for b in subject.boxes))
    return largest, calm


def _exponents(e: Expr) -> list[Expr]:
    return [n.args[0] for n in walk(e) if isinstance(n, Apply) and n.op in _EXPONENTS]
