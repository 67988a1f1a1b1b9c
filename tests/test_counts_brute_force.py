"""The analytic counter against brute force, on the cases and on generated files; and against execution."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from brute_force import Unrunnable, brute_force
from generated import FAMILIES, Draft, generated

from ioweave.derive.counting.levelled import count
from ioweave.derive.execution.check import check
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled

CASES = sorted((Path(__file__).resolve().parent / "cases").glob("*.weave"))
SEEDS = range(14)
Moves = tuple[dict[str, int], dict[str, int]]


CORNERS = {
    "a state that an inner loop repeats is read after the outer one": (
        "q, x, y = 4, 6, 6\nA[q, y]: fp32\nB[q, x]: fp32\nwith level('smem', stream={x: 2, y: 3}):\n"
        "    N[q] = max[y](A[q, y])\n    R[q] = sum[x](B[q, x])\n    U[q] = N[q] * R[q]\n",
        {"A": 72, "B": 24},
    ),
    "a finished outer reduction is not run again for two passes of an inner loop": (
        "q, x, d = 5, 4, 3\nQ[q, d]: fp32\nK[x, d]: fp32\nwith level('smem', stream={d: 3, x: 1}):\n"
        "    S[q, x] = sum[d](Q[q, d] * K[x, d])\n    P[q, x] = softmax[x](S[q, x] * 0.5)\n",
        {"Q": 15, "K": 12},
    ),
    "a masked second pass beside a first that stores": (
        "q, x, d = 6, 6, 4\nQ[q, d]: fp32\nK[x, d]: fp32\nwith level('smem', stream={x: 1, q: 4}):\n"
        "    S[q, x] = sum[d](Q[q, d] * K[x, d])\n    P[q, x] = softmax[x](where(x + q < 6, S[q, x], -inf))\nout(S)\n",
        {"Q": 256, "K": 48},
    ),
    "a halo cut at both ends": (
        "i = 5\nX[i]: fp32\nwith level('smem', group={i: 5}):\n    T[i] = exp(where(i >= 1, X[i - 1], 0))\n"
        "    U[i] = where(i < 4, T[i + 1], 0) + T[i]\n",
        {"X": 4},
    ),
    "a halo that a ragged tile does not reach": (
        "i = 9\nX[i]: fp32\nwith level('smem', group={i: 7}, stream={i: 3}):\n    T[i] = exp(X[i])\n"
        "    U[i] = where(i < 6, T[i + 3], 0) + T[i]\n",
        {"X": 15},
    ),
    "windows held outside a guarded loop": (
        "i = 7\nX[i]: fp32\nwith level('smem', group={i: 4}, stream={i: 2}, hold={X: 0}):\n"
        "    T[i] = where(i < 6, X[i + 1], 0)\n",
        {"X": 6},
    ),
    "nothing is held further in than it belongs": (
        "q, x = 4, 6\nA[q]: fp32\nB[x]: fp32\nwith level('smem', stream={x: 2}, hold={A: 1}):\n"
        "    T[q, x] = A[q] * B[x]\n",
        {"A": 4, "B": 6},
    ),
    "two masks, one in the other, that leave nothing": (
        "q, x = 5, 5\nA[q, x]: fp32\nwith level('smem', group={q: 2}):\n"
        "    T[q] = sum[x](where(2 * x <= q, where(x > q + 2, A[q, x], 0), 0))\n",
        {},
    ),
    "a merge loads what its tail reads once": (
        "a, b, c = 4, 9, 2\nA[a, b, c]: fp32\nF[c]: fp32\nwith level('smem', group={b: 3}):\n"
        "    T[a, c] = max[b](A[a, b, c])\n    U[a, c] = T[a, c] + F[c]\n",
        {"A": 72, "F": 2, "state": 24},
    ),
}


def counted(levelled: Levelled) -> Moves | None:
    """Loads and stores as the counter has them, every state under one name; None where it refuses."""
    try:
        transfers = count(levelled, levelled.diagram.values(), "same").transfers
    except Refused:
        return None
    loads, stores = Counter[str](), Counter[str]()
    for side, found in ((transfers.loads, loads), (transfers.stores, stores)):
        for array, n in side.items():
            found["state" if array.startswith("state(") else array] += n
    assert transfers.values == loads.total() + stores.total()
    return dict(+loads), dict(+stores)


def forced(levelled: Levelled) -> Moves | None:
    """Loads and stores by brute force; None where the rules refuse."""
    try:
        moved = brute_force(levelled)
    except Unrunnable:
        return None
    return dict(moved.loads), dict(moved.stores)


def parsed(seed: int, family: Callable[[Draft], None], wild: bool) -> Levelled | None:
    """A generated file; None where a tile is given to a name that is two axes there."""
    try:
        return parse_levelled(generated(seed, family, wild), f"{family.__name__} {seed}")
    except WeaveError as e:
        assert "axes of one size" in str(e)
        return None


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_brute_force_gives_the_counts_of_the_cases(path: Path) -> None:
    want = json.loads(path.with_suffix(".json").read_text())
    levelled = parse_levelled(path.read_text(), path.name)
    moved = brute_force(levelled)
    assert (moved.loads, moved.stores, moved.values) == (want["loads"], want["stores"], want["values"])
    assert counted(levelled) == (want["loads"], want["stores"])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_counts_are_those_of_brute_force(family: Callable[[Draft], None], seed: int) -> None:
    levelled = parsed(seed, family, seed % 3 == 2)
    if levelled is not None:
        assert counted(levelled) == forced(levelled)


@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str) -> None:
    text, loads = CORNERS[name]
    levelled = parse_levelled(text, name)
    moves = counted(levelled)
    assert moves is not None
    assert moves == forced(levelled)
    assert moves[0] == loads
    for checked in check(levelled, sizes={}):
        assert checked.row.passed, checked.row.because


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_execution_moves_holds_and_computes_what_is_counted(family: Callable[[Draft], None]) -> None:
    for seed in range(100, 104):
        levelled = parsed(seed, family, seed % 2 == 1)
        if levelled is None or counted(levelled) is None:
            continue
        for accumulate in ("same", "fp32"):
            for checked in check(levelled, sizes={}, seed=seed, accumulate=accumulate):
                assert checked.row.passed, checked.row.because


def test_a_mask_over_too_many_tiles_is_refused_not_misjudged() -> None:
    text = """
x = {}
X[x]: fp16
with level("smem", group={{x: {}}}):
    Y[x] = where(x < 750000, X[x], 0)
"""
    coarse = parse_levelled(text.format(1_500_000, 2), "mask")
    assert count(coarse, coarse.diagram.values(), "same").transfers.loads == {"X": 750_000}
    fine = parse_levelled(text.format(1_500_000, 1), "mask")
    with pytest.raises(Refused, match="1,500,000 tiles of x are tied by a mask"):
        count(fine, fine.diagram.values(), "same")
