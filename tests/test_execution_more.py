"""Execution against counts where they are most easily apart: arrays in two roles, two nests of loops, free counts."""

from __future__ import annotations

import random
import re
from itertools import permutations, product

import pytest
from brute_force import Unrunnable, brute_force
from generated import FAMILIES, generated
from hypothesis import given, settings
from hypothesis import strategies as st

from ioweave.derive.counting.levelled import Counts, count
from ioweave.derive.execution.check import check
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled


def written(head: str, lines: str, schedule: str) -> str:
    """A file with all its lines in one block."""
    block = "\n".join("    " + line for line in lines.strip().splitlines())
    return f'{head.strip()}\n\nwith level("smem"{schedule}):\n{block}\n'


def agrees(text: str, accumulates: tuple[str, ...] = ("fp32", "same")) -> bool:
    """Run a file, and hold values and counts against each other; False where the region is refused."""
    levelled = parse_levelled(text, "file")
    for accumulate in accumulates:
        try:
            rows = [c.row for c in check(levelled, sizes={}, accumulate=accumulate)]
        except Refused:
            return False
        assert all(r.passed for r in rows), (text, [r.because for r in rows])
    return True


def schedules(axes: str, sizes: dict[str, int], seed: int, groups: str = "") -> list[str]:
    """Every order of two or three of the axes as loops, each with drawn steps: some ragged, some of one trip."""
    rng = random.Random(seed)
    found = []
    for n in (2, 3):
        for loops in permutations(axes, n):
            for _ in range(2):
                stream = ", ".join(f"{a}: {rng.randint(1, sizes[a])}" for a in loops)
                group = ", ".join(f"{a}: {rng.randint(1, sizes[a])}" for a in groups if rng.random() < 0.4)
                found.append(f", stream={{{stream}}}" + (f", group={{{group}}}" if group else ""))
    return found


SHARED = {
    "keys are values": (
        "h, x, c = 2, 6, 3\nA[h, c]: fp32\nC[x, c]: fp32",
        "S[h, x] = sum[c](A[h, c] * C[x, c])\nP[h, x] = softmax[x](S[h, x])\nO[h, c] = sum[x](P[h, x] * C[x, c])",
        "h",
    ),
    "keys are values, masked, with heads": (
        "h, q, x, c = 2, 5, 4, 3\nA[h, q, c]: fp16\nC[h, x, c]: fp16",
        "S[h, q, x] = sum[c](A[h, q, c] * C[h, x, c])\n"
        "O[h, q, c] = sum[x](softmax[x](where(x <= q, S[h, q, x], -inf)) * C[h, x, c])",
        "h",
    ),
    "two softmaxes over two loops": (
        "q, x, d, e = 5, 5, 6, 2\nQ[q, d]: fp16\nK[x, d]: fp16\nV[x, e]: fp16",
        "A[q, d] = softmax[d](Q[q, d])\nB[x, d] = softmax[x](K[x, d])\n"
        "G[d, e] = sum[x](B[x, d] * V[x, e])\nO[q, e] = sum[d](A[q, d] * G[d, e])",
        "q",
    ),
    "two softmaxes with two contracted axes": (
        "q, x, d, c = 2, 3, 5, 4\nQ[q, d]: bf16\nK[x, d]: bf16\nR[q, c]: bf16\nL[x, c]: bf16\nV[x]: bf16",
        "S[q, x] = sum[d](Q[q, d] * K[x, d])\nT[q, x] = sum[c](R[q, c] * L[x, c])\n"
        "O[q] = sum[x]((softmax[x](S[q, x]) - 2 * softmax[x](T[q, x])) * V[x])",
        "q",
    ),
    "an array with itself": (
        "q, x, d = 5, 5, 3\nX[q, d]: fp32",
        "S[q, x] = sum[d](X[q, d] * X[x, d])\nP[q, x] = softmax[x](S[q, x] * 0.5)\nO[q, d] = sum[x](P[q, x] * X[x, d])",
        "q",
    ),
    "a normed row is projected and scales itself": (
        "t, m = 4, 6\nX[t, m]: fp32\nG[m]: fp32",
        "S[t] = sum[m](X[t, m]**2)\nY[t] = sum[m](X[t, m] * G[m]) / sqrt(S[t] + 1)\nZ[t, m] = Y[t] * X[t, m] * G[m]",
        "t",
    ),
    "statistics of the scores of what they weigh": (
        "h, x, c = 3, 5, 4\nA[h, c]: fp32\nC[x, c]: fp32",
        "S[h, x] = sum[c](A[h, c] * C[x, c])\nM[h] = mean[x](S[h, x])\nW[h] = mean[x]((S[h, x] - M[h])**2)\n"
        "O[h, c] = sum[x]((S[h, x] - M[h]) * C[x, c]) / sqrt(W[h] + 1)",
        "h",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_arrays_in_two_roles_inside_several_loops(name: str) -> None:
    head, lines, groups = SHARED[name]
    names, numbers = head.splitlines()[0].split(" = ")
    sizes = dict(zip(names.split(", "), map(int, numbers.split(", ")), strict=True))
    every = schedules("".join(sizes), sizes, 7, groups)
    chosen = random.Random(name).sample(every, min(len(every), 26))
    assert sum(agrees(written(head, lines, s), ("fp32",)) for s in chosen) > len(chosen) // 2


def test_a_reference_of_another_nest_is_finished_there() -> None:
    head, lines, _ = SHARED["keys are values"]
    levelled = parse_levelled(written(head, lines, ", stream={c: 1, x: 2}"), "shared")
    (counted,) = count(levelled, levelled.diagram.values()).regions
    # in each of 3 trips of c: exp of 2 * 6 scores anew; beside them the first exp, its rescaling, and the tail
    assert counted.flops.special == 3 * 12 + 12 + 3 * 2 + 6
    assert agrees(written(head, lines, ", stream={c: 1, x: 2}"))


def test_a_result_that_a_loop_repeats_is_live_from_its_making() -> None:
    """A value that the next trip makes anew is not read later: it is not live before (counting.md 28)."""
    head = "h, q, d, c, e, x = 1, 2, {d}, {c}, 6, 2\n" + "".join(
        f"{n}: bf16\n" for n in ("A[h, q, d]", "B[h, x, d]", "Q[h, q, c]", "K[h, x, c]", "V[h, x, e]")
    )
    lines = (
        "S[h, q, x] = sum[d](A[h, q, d] * B[h, x, d])\nT[h, q, x] = sum[c](Q[h, q, c] * K[h, x, c])\n"
        "O[h, q, e] = sum[x]((softmax[x](S[h, q, x]) - 2 * softmax[x](T[h, q, x])) * V[h, x, e])"
    )
    for d, c in ((5, 5), (6, 8)):  # ragged steps hold what full ones do
        text = written(head.format(d=d, c=c), lines, ", group={q: 1}, stream={c: 4, d: 3}")
        levelled = parse_levelled(text, "two streams")
        (counted,) = count(levelled, levelled.diagram.values()).regions
        assert counted.memory.bytes == 82
        assert agrees(text, ("fp32",))


@pytest.mark.parametrize("steps", ["x: 5, d: 1", "x: 2, d: 1", "x: 3, d: 4", "d: 1, x: 2", "d: 4, x: 4"])
@pytest.mark.parametrize("d", [1, 6])
def test_ragged_steps_of_two_softmaxes(steps: str, d: int) -> None:
    _, lines, _ = SHARED["two softmaxes over two loops"]
    head = f"q, x, d, e = 5, 5, {d}, 2\nQ[q, d]: fp16\nK[x, d]: fp16\nV[x, e]: fp16"
    assert agrees(written(head, lines, f", group={{q: 4}}, stream={{{steps}}}"))


def test_a_neighbour_reads_a_state_that_is_corrected_as_it_grows() -> None:
    # the first tile of q needs nothing of row -1, the others the state of one row more than their own
    levelled = parse_levelled(
        "q, x = 6, 8\nS[q, x]: fp32\nwith level('smem', group={q: 2}, stream={x: 3}):\n"
        "    R[q] = logsumexp[x](S[q, x])\n    J[q] = where(q >= 1, R[q - 1], 0)\n"
    )
    for checked in (*check(levelled, {}), *check(levelled)):
        assert checked.row.passed, checked.row.because


def test_a_hold_serves_the_readers_inside_its_loop() -> None:
    head, lines, _ = SHARED["two softmaxes over two loops"]
    text = written(head, lines, ", group={d: 1}, stream={x: 1, d: 1, q: 5}, hold={Q: 1}")
    levelled = parse_levelled(text, "held")
    loads = count(levelled, levelled.diagram.values()).regions[0].transfers.loads
    assert loads["Q"] == 5 * 30 + 30  # in each of 5 trips of x, and once before for what runs after them
    assert agrees(text)


@pytest.mark.parametrize("hold", ["", ", hold={X: 0}", ", hold={X: 1}"])
@pytest.mark.parametrize("mask", ["x <= q", "q - x >= 2", "x // 2 == q // 2"])
def test_two_reads_that_are_held_outside_a_masked_loop(mask: str, hold: str) -> None:
    lines = f"P[q, x] = where({mask}, X[q] * X[x], 0)"
    head = "q, x = 6, 6\nX[q]: fp32"
    for stream in ("x: 1, q: 2", "q: 4, x: 3", "q: 1, x: 1"):
        text = written(head, lines, f", stream={{{stream}}}{hold}")
        agrees(text)
        levelled = parse_levelled(text, "held")
        assert count(levelled, levelled.diagram.values()).transfers.loads == dict(brute_force(levelled).loads)


# -- what positions alone decide

POSITIONS = {
    "variance": (
        "t, m = {t}, {m}\nX[t, m]: fp16",
        "A[t] = mean[m](X[t, m])\nB[t] = mean[m](X[t, m]**2) - A[t]**2\nY[t] = B[t] + 1",
    ),
    "variance of what a mask leaves": (
        "t, m = {t}, {m}\nX[t, m]: fp32",
        "W[t, m] = where(m <= t, 1, 0)\nN[t] = sum[m](W[t, m])\nA[t] = sum[m](W[t, m] * X[t, m]) / N[t]\n"
        "B[t] = sum[m](W[t, m] * X[t, m]**2) / N[t] - A[t]**2\nY[t] = B[t] * N[t]",
    ),
    "weights and bounds by position": (
        "t, m = {t}, {m}\nX[t, m]: fp32",
        "M[t, m] = where(m <= t, 0.5, 1)\nN[t] = max[m](M[t, m] * m)\nA[t, m] = softmax[m](X[t, m] * M[t, m])\n"
        "Y[t] = sum[m](A[t, m] * X[t, m]) + N[t]",
    ),
}
TILINGS = (
    "", ", stream={m: 3}", ", stream={m: 2, t: 2}", ", stream={t: 2, m: 4}", ", group={m: 3}", ", group={t: 2}",
    ", group={m: 4}, stream={m: 3}", ", group={t: 3, m: 5}, stream={m: 2}", ", group={t: 2}, stream={m: 2}",
    ", group={m: 2}, stream={t: 2}", ", group={m: 4}, stream={t: 3, m: 2}",
)  # fmt: skip


@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("name", POSITIONS)
def test_what_positions_decide_costs_nothing(name: str, tiling: str) -> None:
    head, lines = POSITIONS[name]
    for t, m in ((4, 7), (5, 6), (1, 3)):
        text = written(head.format(t=t, m=m), lines, tiling)
        assert agrees(text)
        levelled = parse_levelled(text, name)
        for p in count(levelled, levelled.diagram.values()).placed:
            held = {v.array for v in p.program.variables for c, _ in p.program.columns() if v.name in c.live}
            assert not held & p.program.free


def test_a_running_count_is_no_partial_state() -> None:
    head, lines = POSITIONS["variance"]
    text = written(head.format(t=4, m=7), lines, ", group={m: 4}, stream={m: 3}")
    levelled = parse_levelled(text, "variance")
    region, merge = count(levelled, levelled.diagram.values()).regions
    assert region.transfers.stores == {"state(Y)": 2 * 2 * 4}  # two parts: the sum and the centred moment of 4 rows
    assert merge.transfers.loads == {"state(Y)": 2 * 2 * 4}
    assert region.flops.special == 0


def test_a_map_of_indices_takes_no_memory_unless_it_leaves() -> None:
    head, lines = (
        "q, x = 4, 6\nA[q, x]: fp32",
        "M[q, x] = where(x <= q, 1.5, 0.5)\nO[q] = sum[x](exp(A[q, x]) * M[q, x])",
    )
    inside = parse_levelled(written(head, lines, ", group={q: 2}"), "inside")
    leaves = parse_levelled(written(head, lines, ", group={q: 2}") + "out(M)\n", "leaves")
    (one,), (two,) = (count(f, f.diagram.values()).regions for f in (inside, leaves))
    assert two.memory.bytes - one.memory.bytes == 2 * 6 * 4
    assert one.flops == two.flops
    assert agrees(written(head, lines, ", group={q: 2}") + "out(M)\n")


# -- random files in which two inputs are one


def merged(text: str, rng: random.Random) -> str | None:
    """A file with one input in place of two of one rank, and their axes joined; None if it has no such two."""
    declared = re.findall(r"^([A-Z]\w*)\[([^\]]*)\]: \w+$", text, re.M)
    pairs = [(a, b) for a, b in product(declared, repeat=2) if a != b and a[1].count(",") == b[1].count(",")]
    if not pairs:
        return None
    (kept, own), (gone, other) = rng.choice(pairs)
    text = re.sub(rf"^{gone}\[[^\]]*\]: \w+\n", "", text, flags=re.M)
    text = re.sub(rf"\b{gone}\b", kept, text)
    for new, old in zip(own.split(", "), other.split(", "), strict=True):
        text = re.sub(rf"\b{old}\b", new, text)
    lines = text.split("\n")
    k = next(i for i, line in enumerate(lines) if re.fullmatch(r"[a-z, ]+ = [0-9, ]+", line))
    names, values = (side.split(", ") for side in lines[k].split(" = "))
    sizes = dict(zip(reversed(names), reversed(values), strict=True))
    lines[k] = f"{', '.join(sizes)} = {', '.join(sizes.values())}"
    return "\n".join(lines)


def parsed(seed: int) -> Levelled | None:
    rng = random.Random(seed)
    text = merged(generated(seed, rng.choice(list(FAMILIES)), seed % 3 == 2), rng)
    try:
        return None if text is None else parse_levelled(text, f"seed {seed}")
    except WeaveError:  # joined axes of unequal sizes, or tiled twice
        return None


def counted(levelled: Levelled | None) -> Counts | None:
    try:
        return None if levelled is None else count(levelled, levelled.diagram.values(), "same")
    except Refused:
        return None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 20))
def test_random_files_with_an_array_in_two_roles(seed: int) -> None:
    levelled = parsed(seed)
    if levelled is None or counted(levelled) is None:
        return
    for accumulate in ("fp32", "same"):
        for checked in check(levelled, sizes={}, seed=seed, accumulate=accumulate):
            assert checked.row.passed, checked.row.because


def test_they_move_what_brute_force_moves() -> None:
    compared = 0
    for seed in range(150):
        levelled = parsed(seed)
        counts = counted(levelled)
        if levelled is None or counts is None or any(p.program.merge is not None for p in counts.placed):
            continue
        try:
            moved = brute_force(levelled)
        except Unrunnable:
            continue
        loads = {array: n for array, n in counts.transfers.loads.items() if n}
        assert (loads, counts.transfers.stores) == (moved.loads, moved.stores), seed
        compared += 1
    assert compared > 15
