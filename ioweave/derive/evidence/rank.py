"""Rank: how many numbers of a prefix the answers to all suffixes depend on.

Statement. If a state of s numbers, smooth in the prefix, decides every answer, the answers factor
through it, so that the derivative of any set of answers by the prefix has rank at most s. The rank of
``d(answers to many random suffixes) / d(prefix)`` is thus a lower bound on the least smooth state.
Source. The chain rule; as minimal realisations by the rank of a Hankel matrix (Ho and Kalman, 1966).
Method. Central differences of fourth order along random directions, so that one run of the woven
boxes gives all of them. Answers whose differences at two steps disagree, as at a kink, are left out.
Singular values below `TOLERANCE` of the largest are rounding where a gap lies below them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ioweave.derive.evidence.bench import Bench, Split
from ioweave.derive.execution.grid import Values

STEP = 1e-4  # of a difference, times the scale of the data
STENCIL = (1, -1, 2, -2)  # in steps
PROBE = 1e-5  # in steps: so short that an answer moves by its rounding alone
TOLERANCE = 1e-9  # of the largest singular value
GAP = 1e-3  # the first singular value below the tolerance over the last above it, where the rank is clear
KINK = 1e-4  # of the largest slope: how far the differences at two steps may disagree
NOISE = 1e-9  # of the largest slope: the rounding up to which an answer is used
MARGIN = 100  # of the tolerance over the rounding of the slopes used
CHANGE = 1e-9  # of an answer: what is no rounding of its value
EPS = 2.0**-52
TRIED = 24  # directions at first
WORK = 3_000_000  # elements of the largest array of one run
SCALES = (1.0, 0.3, 0.05, 3.0)
FACTORS = (1.0, 1.0, 2.0, 0.5)  # of the scale of suffixes, by turns
MOVES = (0.0, 3.0, -3.0, 0.0, 1.5, -1.5)  # in scales


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank found, whether a gap of singular values makes it clear, and the directions that were tried.

    ``late``: answers at positions of the prefix that the suffix still changes.
    """

    value: int
    clear: bool
    tried: int
    late: int = 0


def rank(bench: Bench, n: int, scale: float, expected: int, seed: int = 0) -> Rank | None:
    """The rank after a prefix of ``n`` steps on data of one scale; None where there is nothing to differentiate.

    ``expected`` is the state of a plan: as many directions are tried and some more, and twice as
    many where these are not enough.
    """
    most = min(max(14, expected + 6), TRIED)
    found = _tried(bench, n, scale, most, seed)
    if found is not None and found.value == most and expected < 2 * most:
        found = _tried(bench, n, scale, 2 * most, seed) or found
    return found


def _tried(bench: Bench, n: int, scale: float, most: int, seed: int) -> Rank | None:
    arrays = bench.drawn(scale, seed)
    split = bench.split(arrays, n)
    if not split.held or not any(m.any() for m in split.suffix.values()):
        return None
    tried = min(split.held, most)
    cells = max([1, *(int(np.prod([bench.sizes[a] for a in b.all_axes])) for b in bench.subject.boxes)])
    answers = sum(int(np.prod([bench.sizes[a] for a in bench.subject_axes(o)])) for o in bench.outputs)
    draws = int(np.clip(2 * tried // max(answers, 1) + 4, 6, 24))
    points = made_points(tried)
    draws = max(3, min(draws, WORK // (cells * points)))
    if draws * cells * points > 4 * WORK:
        return None
    stacks = suffixes(bench, split, arrays, draws, scale, seed)
    rng = np.random.default_rng([seed, n])
    moves = {k: rng.standard_normal((tried, *m.shape)) * m for k, m in split.prefix.items() if k in stacks}
    step = STEP * scale
    moved = {}
    for k, s in stacks.items():
        move = step * moves[k]
        delta = np.concatenate([np.zeros((1, *s.shape[1:])), *(c * move for c in STENCIL), *_probes(move)])
        moved[k] = (s[:, None] + delta[None]).reshape(-1, *s.shape[1:])
    made = bench.run(arrays, moved)
    return _rank(bench, n, made, draws, tried, step, split.held)


def made_points(tried: int) -> int:
    """The points about one prefix: itself, the stencil in every direction, and four probes of rounding."""
    return 1 + len(STENCIL) * tried + 4


def _probes(step: Values) -> tuple[Values, ...]:
    """Points a hair to either side along the first and the last direction: their differences are rounding."""
    return (PROBE * step[:1], -PROBE * step[:1], PROBE * step[-1:], -PROBE * step[-1:])


def suffixes(
    bench: Bench, split: Split, arrays: Mapping[str, Values], count: int, scale: float, seed: int
) -> dict[str, Values]:
    """The inputs that vary with ``count`` suffixes drawn beside one prefix: an index for each draw first.

    Most suffixes are moved as a whole, up or down, so that some stand on one side of the prefix.
    """
    turns = np.arange(count)
    factor = scale * np.array(FACTORS)[turns % len(FACTORS)]
    moved = scale * np.array(MOVES)[turns % len(MOVES)]
    stacks = {}
    for k, fresh in bench.many(split.names, count, seed).items():
        along = (-1, *[1] * arrays[k].ndim)
        if bench.scales(k):
            fresh = fresh * factor.reshape(along)
        if bench.free(k):
            fresh = fresh + moved.reshape(along)
        stacks[k] = np.where(split.suffix[k], fresh, arrays[k].astype(float))
    return stacks


def answers_of(bench: Bench, made: Mapping[str, Values], n: int, groups: int) -> list[tuple[str, Values, Values]]:
    """The answers of every output, flattened.

    An output along the axis answers at positions of the suffix, and at those of the prefix that
    the suffix still changes, which ``groups`` (draws with suffixes of their own) tell. Of each output:
    its name, the answers by draw, and which of them stand at positions of the prefix.
    """
    found = []
    for o in bench.outputs:
        array = made[o].astype(float)
        axes = bench.subject_axes(o)
        if array.ndim != len(axes) + 1:
            continue  # does not vary
        early = np.zeros(array.shape[1:], dtype=bool)
        keep = ~early
        if bench.axis in axes:
            place = axes.index(bench.axis)
            lo, hi = bench.before(n)
            early[tuple(slice(lo, hi) if k == place else slice(None) for k in range(len(axes)))] = True
            by_group = array.reshape(groups, -1, *array.shape[1:])[:, 0]
            with np.errstate(invalid="ignore"):
                spread = np.ptp(by_group, axis=0)
                moves = spread > CHANGE * np.abs(by_group).max(axis=0)
            keep = ~early | moves
        found.append((o, array[:, keep], early[keep]))
    return found


def _slopes(table: Values, tried: int, step: float) -> tuple[Values, Values]:
    """Central differences at one step and at two: a row for each draw and answer, a column for each direction."""
    up, down, up2, down2 = (table[:, k * tried : (k + 1) * tried] for k in range(len(STENCIL)))
    near, far = (up - down) / (2 * step), (up2 - down2) / (4 * step)
    count = table.shape[0] * table.shape[2]
    return near.transpose(0, 2, 1).reshape(count, tried), far.transpose(0, 2, 1).reshape(count, tried)


def _rounding(table: Values, slopes: Values, step: float) -> Values:
    """How far the rounding of the answers moves a slope, for each draw and answer."""
    size = np.abs(table[:, 0]).reshape(-1)
    first, second = (table[:, -4] - table[:, -3]).reshape(-1), (table[:, -2] - table[:, -1]).reshape(-1)
    true = 2 * PROBE * step * slopes[:, [0, -1]]
    moved = np.maximum(np.abs(first - true[:, 0]), np.abs(second - true[:, 1]))
    return np.asarray(np.maximum(moved, EPS * size) / step)


def _block(table: Values, tried: int, step: float) -> tuple[Values, float] | None:
    """Slopes, each answer's over the largest of its own, and their rounding over the same.

    Answers whose slopes are rounding are left out: no rows where all are, None if rounding hides the rest.
    """
    with np.errstate(all="ignore"):
        near, far = _slopes(table[:, 1:], tried, step)
        slopes = (4 * near - far) / 3
        noise = _rounding(table, slopes, step)
        most = np.abs(slopes).max(axis=1, initial=0)
        apart = np.abs(near - far).max(axis=1, initial=0)
    good = np.isfinite(slopes).all(axis=1) & np.isfinite(noise)
    slopes, noise, most, apart = slopes[good], noise[good], most[good], apart[good]
    moves = most > MARGIN * noise
    if not moves.any():
        return slopes[:0], 0.0
    good = moves & (apart <= KINK * most) & (noise <= NOISE * most)
    if not good.any():
        return None
    return slopes[good] / most[good, None], float((noise[good] / most[good]).max())


def _rank(
    bench: Bench, n: int, made: Mapping[str, Values], draws: int, tried: int, step: float, whole: int
) -> Rank | None:
    late, points = 0, made_points(tried)
    blocks: list[Values] = []
    noise = 0.0
    hidden = False
    for _, values, early in answers_of(bench, made, n, draws):
        late += int(early.sum())
        block = _block(values.reshape(draws, points, -1), tried, step)
        hidden = hidden or block is None
        if block is not None and len(block[0]):
            blocks.append(block[0])
            noise = max(noise, block[1])
    if not blocks:
        return None if hidden else Rank(0, True, tried, late)
    rows = np.concatenate(blocks)
    values = np.linalg.svd(rows, compute_uv=False)
    found = int((values > max(TOLERANCE, MARGIN * noise) * values[0]).sum())
    clear = found < len(values) and values[found] <= GAP * values[found - 1]
    return Rank(found, found < len(rows) and (bool(clear) or found == whole), tried, late)
