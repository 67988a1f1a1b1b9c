"""Witnesses: prefixes, a suffix and answers that show why one pass is not enough, found by search.

A pair: two prefixes after which every reduction over the axis has the same value, and one suffix
after which the answers differ. What a walk keeps has then to be more than these values. A late
output: an answer at a position of the prefix that the suffix still changes.
Method. From a random prefix along a direction that the reductions do not see to first order but an
answer does, then back to equal reductions by Newton's method; where values are rounded, by trying
steps. Every witness is checked by running the boxes on the whole inputs in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ioweave.derive.evidence.bench import Bench, Split
from ioweave.derive.evidence.rank import answers_of, suffixes
from ioweave.derive.execution.grid import Values
from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.diagrams.dtypes import DTYPES

EQUAL = 1e-12  # of the largest value: how far equal states may differ
APART = 1e-6  # of the largest answer: how far answers must differ
SUFFIXES = 8
SEEDS = 2
LENGTHS = (4, 6)  # of the prefix
STEPS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
WORK = 12_000_000  # elements computed in one search
BOX = 4_000  # elements in whose time a box of any size is looked up
_MOST = 48  # numbers of a prefix that are moved
_ROUNDS = 8
_DELTA = 1e-6


@dataclass(frozen=True, slots=True)
class Pair:
    """Two prefixes with one suffix, as whole inputs, with the state that they share and the answers."""

    length: int
    first: Mapping[str, Values]
    second: Mapping[str, Values]
    state: Mapping[str, Values]
    output: str
    index: tuple[int, ...]
    answers: tuple[float, float]

    @property
    def difference(self) -> float:
        """How far the answers are apart."""
        return abs(self.answers[0] - self.answers[1])


def verified(
    bench: Bench,
    n: int,
    first: Mapping[str, Values],
    second: Mapping[str, Values],
    state: Sequence[str] | None = None,
) -> Pair | None:
    """The pair of two inputs that differ in the first ``n`` steps alone, or None if it shows nothing.

    The reductions named in ``state`` (all over the axis, unless given) have to agree after the
    prefix, the answers must not.
    """
    names = [k for k in first if not np.array_equal(first[k], second[k])]
    stacks = {k: np.stack([first[k], second[k]]).astype(float) for k in names}
    if not names:
        return None
    held = bench.on_prefix(first, stacks, n)
    kept = {k: v for k, v in held.items() if state is None or k in state}
    if not all(_agree(v[0], v[1]) for v in kept.values()):
        return None
    best: Pair | None = None
    ends = [PlanMachine(bench.sizes, side).direct(bench.subject.boxes) for side in (first, second)]
    for o in bench.outputs:
        a, b = (end[o].astype(float) for end in ends)
        if bench.axis in bench.subject_axes(o):
            cut = [slice(None)] * a.ndim
            cut[bench.subject_axes(o).index(bench.axis)] = slice(*bench.before(n))
            a, b = a.copy(), b.copy()
            a[tuple(cut)] = b[tuple(cut)] = 0.0  # what stands at the prefix may differ with it
        gap = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), 0.0)
        size = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
        at = np.unravel_index(int(np.argmax(gap)), gap.shape) if gap.ndim else ()
        if float(gap[at]) > APART * size and (best is None or float(gap[at]) > best.difference):
            index = tuple(int(i) for i in at)
            values = {k: v[0] for k, v in kept.items()}
            best = Pair(n, first, second, values, o, index, (float(a[at]), float(b[at])))
    return best


def _agree(a: Values, b: Values) -> bool:
    a, b = a.astype(float), b.astype(float)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    size = max(1.0, float(np.max(np.abs(a), where=finite, initial=0.0)))
    with np.errstate(invalid="ignore"):
        return bool(np.all(same | (finite & (np.abs(a - b) <= EQUAL * size))))


class _Spent(Exception):
    """The search has computed as many elements as it may."""


class _Work:
    """What a search may still compute: points of the prefix, each of all boxes."""

    def __init__(self, bench: Bench) -> None:
        self.each = sum(int(np.prod([bench.sizes[a] for a in b.all_axes])) for b in bench.subject.boxes)
        self.start = BOX * len(bench.subject.boxes)
        self.left = WORK

    def spend(self, points: int) -> None:
        """Count points computed. Raises `_Spent` past the budget."""
        self.left -= self.start + points * self.each
        if self.left < 0:
            raise _Spent


def find_pair(bench: Bench, smooth: bool) -> Pair | None:
    """A pair found by search, or None within the budget; ``smooth`` where no value is rounded."""
    try:
        return _found(bench, smooth, _Work(bench))
    except _Spent:
        return None


def _found(bench: Bench, smooth: bool, work: _Work) -> Pair | None:
    for seed in range(SEEDS):
        arrays = _plain(bench, seed)
        for n in LENGTHS:
            if n >= bench.length:
                continue
            split = bench.split(arrays, n)
            if not split.held:
                return None
            pair = _search(bench, n, arrays, split, smooth, seed, work)
            if pair is not None:
                return pair
    return None


def _plain(bench: Bench, seed: int) -> dict[str, Values]:
    """Drawn inputs with two digits after the point, where their facts allow."""
    arrays = bench.drawn(1.0, seed)
    for i in bench.subject.inputs:
        if DTYPES[i.dtype].kind == "float":
            arrays[i.name] = np.round(arrays[i.name], 2)
    return arrays


@dataclass(frozen=True)
class _Prefix:
    """The numbers of a prefix that are moved: where they stand, and what the rest of the inputs is."""

    bench: Bench
    length: int
    arrays: Mapping[str, Values]
    places: tuple[tuple[str, int], ...]
    work: _Work

    def stacks(self, points: Values) -> dict[str, Values]:
        """The inputs that vary, for each point first."""
        names = dict.fromkeys(k for k, _ in self.places)
        found = {k: np.repeat(self.arrays[k].reshape(1, -1), len(points), axis=0).astype(float) for k in names}
        for column, (k, at) in enumerate(self.places):
            found[k][:, at] = points[:, column]
        return {k: v.reshape(-1, *self.arrays[k].shape) for k, v in found.items()}

    @property
    def start(self) -> Values:
        """The point that the inputs have."""
        return np.array([self.arrays[k].reshape(-1)[at] for k, at in self.places], dtype=float)

    def state(self, points: Values) -> Values:
        """The reductions over the axis after the prefix, a row for each point."""
        self.work.spend(len(points))
        found = self.bench.on_prefix(self.arrays, self.stacks(points), self.length)
        rows = [v.reshape(len(points), -1).astype(float) for v in found.values()]
        return np.concatenate(rows, axis=1) if rows else np.zeros((len(points), 0))

    def state_slopes(self, point: Values) -> tuple[Values, Values]:
        """The state at a point, and its derivative: a row for each of its values."""
        made = self.state(np.concatenate([point[None], _around(point)]))
        count = len(point)
        return made[0], ((made[1 : 1 + count] - made[1 + count :]) / (2 * _DELTA)).T


def _around(point: Values) -> Values:
    move = _DELTA * np.eye(len(point))
    return np.concatenate([point + move, point - move])


def _search(
    bench: Bench, n: int, arrays: Mapping[str, Values], split: Split, smooth: bool, seed: int, work: _Work
) -> Pair | None:
    rng = np.random.default_rng([seed, n])
    places = [(k, int(at)) for k, m in split.prefix.items() for at in np.flatnonzero(m)]
    if len(places) > _MOST:
        places = [places[i] for i in sorted(rng.choice(len(places), _MOST, replace=False))]
    prefix = _Prefix(bench, n, arrays, tuple(places), work)
    start = prefix.start
    value, slopes = prefix.state_slopes(start)
    if not np.isfinite(value).all() or not np.isfinite(slopes).all():
        return None
    unseen = _null(slopes)
    if not unseen.shape[1]:
        return None
    ends = suffixes(bench, split, arrays, SUFFIXES, 1.0, seed)
    ends = {k: np.round(v, 2) for k, v in ends.items()}
    for direction in _directions(prefix, ends, unseen, rng):
        for step in STEPS:
            moved = start + step * direction
            point = _returned(prefix, moved, value) if smooth else moved
            pair = None if point is None else _tried(prefix, point, ends, n)
            if pair is not None:
                return pair
    return None


def _null(slopes: Values) -> Values:
    """A basis of the directions that no row sees, as columns."""
    if not slopes.shape[0]:
        return np.eye(slopes.shape[1])
    _, values, right = np.linalg.svd(slopes)
    seen = int((values > 1e-6 * max(float(values[0]), 1e-300)).sum())
    return np.asarray(right[seen:].T)


def _directions(
    prefix: _Prefix, ends: Mapping[str, Values], unseen: Values, rng: np.random.Generator
) -> Iterator[Values]:
    """Unit directions that the state does not see: first those that move an answer most, then random ones."""
    points = np.concatenate([prefix.start[None], _around(prefix.start)])
    answers = _answers(prefix, points, ends)
    count = len(prefix.start)
    slopes = (answers[:, 1 : 1 + count] - answers[:, 1 + count :]) / (2 * _DELTA)
    slopes = slopes.transpose(0, 2, 1).reshape(-1, count)
    slopes = slopes[np.isfinite(slopes).all(axis=1)]
    if len(slopes):
        _, values, right = np.linalg.svd(slopes @ unseen, full_matrices=False)
        for row in right[:2][values[:2] > 1e-6 * max(1.0, float(np.abs(slopes).max()))]:
            yield unseen @ row
    for _ in range(3):
        row = rng.standard_normal(unseen.shape[1])
        yield unseen @ (row / np.linalg.norm(row))


def _answers(prefix: _Prefix, points: Values, ends: Mapping[str, Values]) -> Values:
    """Answers of every suffix at every point: suffixes, points, answers."""
    count = len(next(iter(ends.values())))
    stacks = {}
    for k, end in ends.items():
        at = [i for i, (name, _) in enumerate(prefix.places) if name == k]
        flat = np.repeat(end.reshape(count, 1, -1), len(points), axis=1)
        for column in at:
            flat[:, :, prefix.places[column][1]] = points[:, column]
        stacks[k] = flat.reshape(-1, *prefix.arrays[k].shape)
    prefix.work.spend(count * len(points))
    made = prefix.bench.run(prefix.arrays, stacks)
    found = []
    for _, values, early in answers_of(prefix.bench, made, prefix.length, count):
        found.append(values[:, ~early].reshape(count, len(points), -1))
    return np.concatenate(found, axis=2) if found else np.zeros((count, len(points), 0))


def _returned(prefix: _Prefix, point: Values, value: Values) -> Values | None:
    """The point moved by Newton's method to where the state has this value."""
    for _ in range(_ROUNDS):
        now, slopes = prefix.state_slopes(point)
        if not np.isfinite(now).all() or not np.isfinite(slopes).all():
            return None
        off = value - now
        if float(np.abs(off).max(initial=0.0)) <= EQUAL * max(1.0, float(np.abs(value).max(initial=0.0))) / 4:
            return point
        point = point + np.linalg.lstsq(slopes, off, rcond=1e-8)[0]
    return None


def _tried(prefix: _Prefix, point: Values, ends: Mapping[str, Values], n: int) -> Pair | None:
    """The pair of the start and a point under the suffix that tells them apart best."""
    both = np.stack([prefix.start, point])
    now = prefix.state(both)
    if not _agree(now[0], now[1]) or float(np.abs(both[0] - both[1]).max()) == 0:
        return None
    answers = _answers(prefix, both, ends)
    gaps = np.abs(answers[:, 0] - answers[:, 1])
    gaps = np.where(np.isfinite(gaps), gaps, 0.0)
    if not gaps.size or float(gaps.max()) == 0:
        return None
    turn = int(np.unravel_index(int(np.argmax(gaps)), gaps.shape)[0])
    sides = []
    for p in both:
        side = dict(prefix.arrays) | {k: v[turn].copy() for k, v in ends.items()}
        for x, (k, at) in zip(p, prefix.places, strict=True):
            side[k].reshape(-1)[at] = x
        sides.append(side)
    return verified(prefix.bench, n, sides[0], sides[1])


def find_late(bench: Bench, n: int) -> dict[str, Any] | None:
    """An answer at a position of the prefix that two suffixes give two values, as a record."""
    arrays = _plain(bench, 0)
    split = bench.split(arrays, n)
    if not any(m.any() for m in split.suffix.values()):
        return None
    ends = {k: np.round(v, 2) for k, v in suffixes(bench, split, arrays, SUFFIXES, 1.0, 0).items()}
    made = bench.run(arrays, ends)
    for o in bench.outputs:
        axes = bench.subject_axes(o)
        if bench.axis not in axes or made[o].ndim != len(axes) + 1:
            continue
        cut = tuple(slice(*bench.before(n)) if a == bench.axis else slice(None) for a in axes)
        early = made[o][(slice(None), *cut)].astype(float)
        early = np.where(np.isfinite(early), early, 0.0)
        spread = np.ptp(early, axis=0)
        at = np.unravel_index(int(np.argmax(spread)), spread.shape)
        if float(spread[at]) <= APART * float(np.abs(early).max(initial=0.0)):
            continue
        values = early.reshape(len(early), -1)[:, int(np.argmax(spread))]
        low, high = int(np.argmin(values)), int(np.argmax(values))
        first, second = ({**arrays, **{k: v[t] for k, v in ends.items()}} for t in (low, high))
        place = tuple(int(i) + (cut[k].start or 0) for k, i in enumerate(at))
        return {
            "kind": "late-output",
            "axis": bench.axis,
            "sizes": sizes_of(bench),
            "at": dict(bench.at),
            "steps": n,
            "prefix": parts(bench, first, split.prefix),
            "suffixes": [parts(bench, side, split.suffix) for side in (first, second)],
            "given": given(bench, first, split),
            "output": o,
            "index": list(place),
            "answers": [float(values[low]), float(values[high])],
            "difference": float(spread[at]),
        }
    return None


def record(bench: Bench, pair: Pair) -> dict[str, Any]:
    """A pair as a record: the numbers of the prefixes and of the suffix, the state they share, the answers."""
    split = bench.split(pair.first, pair.length)
    return {
        "kind": "pair",
        "axis": bench.axis,
        "sizes": sizes_of(bench),
        "at": dict(bench.at),
        "steps": pair.length,
        "state": {k: v.tolist() for k, v in pair.state.items()},
        "first": parts(bench, pair.first, split.prefix),
        "second": parts(bench, pair.second, split.prefix),
        "suffix": parts(bench, pair.first, split.suffix),
        "given": given(bench, pair.first, split),
        "output": pair.output,
        "index": list(pair.index),
        "answers": list(pair.answers),
        "difference": pair.difference,
    }


def sizes_of(bench: Bench) -> dict[str, int | float]:
    """The sizes and constants of a bench by the names of the diagram."""
    return {k: v for k, v in bench.values.items() if "'" not in k}


def parts(bench: Bench, arrays: Mapping[str, Values], masks: Mapping[str, Values]) -> dict[str, Any]:
    """What masks leave of the inputs: a block as it lies in its array, else its numbers in order."""
    found: dict[str, Any] = {}
    for k, mask in masks.items():
        if mask.any():
            spans = [
                np.flatnonzero(mask.any(axis=tuple(d for d in range(mask.ndim) if d != a))) for a in range(mask.ndim)
            ]
            block = mask[np.ix_(*spans)] if mask.ndim else mask
            found[k] = arrays[k][np.ix_(*spans)].tolist() if block.all() and mask.ndim else arrays[k][mask].tolist()
    return found


def given(bench: Bench, arrays: Mapping[str, Values], split: Split) -> dict[str, Any]:
    """The inputs that belong to neither side."""
    sides = {k for side in (split.prefix, split.suffix) for k, m in side.items() if m.any()}
    return {i.name: arrays[i.name].tolist() for i in bench.subject.inputs if i.name not in sides}
