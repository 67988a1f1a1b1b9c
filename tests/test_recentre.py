"""Second moments about the running mean: one state for all forms, exact counts, and no lost digits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from test_streaming_interpreter import facts, inputs, opened, trial

from ioweave.derive.counting.levelled import place
from ioweave.derive.counting.region import count_region
from ioweave.derive.execution.check import check, check_once
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.notation import parse
from ioweave.hierarchy.notation import parse_levelled

ROWS = "t, m = 3, 11\n\nX[t, m]: fp32\n"
PAIR = "t, m = 3, 11\n\nX[t, m]: fp32\nZ[t, m]: fp32\n"
KEYS = "q, x, e = 3, 11, 2\n\nS[q, x]: fp32\nV[x, e]: fp32\nP[q, x] = softmax[x](S[q, x])\n"

VARIANCE = {
    "two passes": "M[t] = mean[m](X[t, m])\nR[t] = mean[m]((X[t, m] - M[t])**2)\n",
    "the square less the square": "M[t] = mean[m](X[t, m])\nR[t] = mean[m](X[t, m]**2) - M[t]**2\n",
    "one factor centred": "R[t] = sum[m]((X[t, m] - mean[m](X[t, m])) * X[t, m]) / size(m)\n",
    "expanded": (
        "M[t] = mean[m](X[t, m])\nR[t] = (sum[m](X[t, m] * X[t, m]) - 2 * M[t] * sum[m](X[t, m])) / m + M[t] * M[t]\n"
    ),
    "sums alone": "A[t] = sum[m](X[t, m])\nR[t] = (sum[m](X[t, m]**2) - A[t]**2 / m) / m\n",
    "a centred line": (
        "C[t, m] = X[t, m] - mean[m](X[t, m])\nU[t] = sum[m](C[t, m] * C[t, m])\nR[t] = U[t] * (1 / size(m))\n"
    ),
    "a mean of quotients": "M[t] = sum[m](X[t, m] / size(m))\nR[t] = mean[m]((X[t, m] - M[t])**2)\n",
    "a scaled difference": "R[t] = mean[m]((2 * X[t, m] - 2 * mean[m](X[t, m]))**2) / 4\n",
}
COVARIANCE = {
    "centred": (
        "A[t] = mean[m](X[t, m])\nB[t] = mean[m](Z[t, m])\nR[t] = mean[m]((X[t, m] - A[t]) * (Z[t, m] - B[t]))\n"
    ),
    "one centred": (
        "A[t] = mean[m](X[t, m])\nB[t] = mean[m](Z[t, m])\nR[t] = mean[m]((X[t, m] - A[t]) * Z[t, m])\nout(B, R)\n"
    ),
    "raw": "R[t] = mean[m](X[t, m] * Z[t, m]) - mean[m](X[t, m]) * mean[m](Z[t, m])\n",
}
WEIGHTED = {
    "raw": "A[q, e] = sum[x](P[q, x] * V[x, e])\nR[q, e] = sum[x](P[q, x] * V[x, e]**2) - A[q, e]**2\n",
    "centred": "A[q, e] = sum[x](P[q, x] * V[x, e])\nR[q, e] = sum[x](P[q, x] * (V[x, e] - A[q, e])**2)\n",
    "one centred": "A[q, e] = sum[x](P[q, x] * V[x, e])\nR[q, e] = sum[x](P[q, x] * V[x, e] * (V[x, e] - A[q, e]))\n",
}
MASKED = (
    "q, x = 4, 11\n\nX[q, x]: fp32\nkeep[q, x]: bool\nN[q] = sum[x](where(keep[q, x], 1, 0))\n"
    "M[q] = sum[x](where(keep[q, x], X[q, x], 0)) / N[q]\n"
)
COUNTED = {
    "centred": MASKED + "R[q] = sum[x](where(keep[q, x], (X[q, x] - M[q])**2, 0)) / N[q]\n",
    "raw": MASKED + "R[q] = sum[x](where(keep[q, x], X[q, x]**2, 0)) / N[q] - M[q]**2\n",
    "means": (
        "q, x = 4, 11\n\nX[q, x]: fp32\nkeep[q, x]: bool\nM[q] = mean[x](X[q, x], where=keep[q, x])\n"
        "R[q] = mean[x](X[q, x]**2, where=keep[q, x]) - M[q]**2\n"
    ),
}
OTHER = {
    "layernorm": (ROWS + "Y[t, m] = layernorm[m](X[t, m])\n", "m", 2),
    "statistics": (ROWS + "M[t] = mean[m](X[t, m])\nR[t] = rsqrt(mean[m](X[t, m]**2) - M[t]**2 + 0.01)\n", "m", 1),
    "two axes": (ROWS + "M = mean[t, m](X[t, m])\nR = mean[t, m]((X[t, m] - M)**2)\n", "m", 1),
    "layernorm and matmul": (
        "t, m, n = 3, 9, 4\n\nX[t, m]: fp32\nW[m, n]: fp32\n"
        "Y[t, n] = sum[m](layernorm[m](X[t, m]) * W[m, n])\n", "m", 1,
    ),
    "a matrix of covariances": (
        "t, m, n = 3, 9, 4\n\nX[t, m]: fp32\nZ[n, m]: fp32\n"
        "R[t, n] = mean[m]((X[t, m] - mean[m](X[t, m])) * (Z[n, m] - mean[m](Z[n, m])))\n", "m", 1,
    ),
    "correlation": (
        PAIR + "A[t] = mean[m](X[t, m])\nB[t] = mean[m](Z[t, m])\n"
        "R[t] = sum[m]((X[t, m] - A[t]) * (Z[t, m] - B[t]))"
        " * rsqrt(sum[m]((X[t, m] - A[t])**2) * sum[m]((Z[t, m] - B[t])**2))\n", "m", 1,
    ),
    "kept raw": (
        ROWS + "M[t] = mean[m](X[t, m])\nU[t] = sum[m](X[t, m]**2)\n"
        "R[t] = U[t] / size(m) - M[t]**2\nout(U, R)\n", "m", 1,
    ),
    "positive weights": (
        "q, x = 3, 11\n\nG[q, x]: fp32 > 0\nX[q, x]: fp32\nL[q] = sum[x](G[q, x])\n"
        "A[q] = sum[x](G[q, x] * X[q, x]) / L[q]\n"
        "R[q] = sum[x](G[q, x] * (X[q, x] - A[q])**2) / L[q]\n", "x", 1,
    ),
    "masked keys": (
        "q, x, e = 3, 11, 2\n\nS[q, x]: fp32\nV[x, e]: fp32\nU[q, x] = where(x >= q + 5, S[q, x], -inf)\n"
        "P[q, x] = softmax[x](U[q, x])\nA[q, e] = sum[x](P[q, x] * V[x, e])\n"
        "R[q, e] = sum[x](P[q, x] * (V[x, e] - A[q, e])**2)\n", "x", 1,
    ),
}  # fmt: skip
RAW = {
    "rmsnorm": ROWS + "Y[t, m] = rmsnorm[m](X[t, m])\n",
    "a half": ROWS + "R[t] = mean[m](X[t, m]**2) - 0.5 * mean[m](X[t, m])**2\n",
    "a sum of both": ROWS + "M[t] = mean[m](X[t, m])\nR[t] = mean[m](X[t, m]**2) + M[t]**2\n",
    "cosine": PAIR + "R[t] = sum[m](X[t, m] * Z[t, m]) * rsqrt(sum[m](X[t, m]**2) * sum[m](Z[t, m]**2))\n",
    "weights of either sign": (
        PAIR + "L[t] = sum[m](Z[t, m])\nA[t] = sum[m](Z[t, m] * X[t, m]) / L[t]\n"
        "R[t] = sum[m](Z[t, m] * X[t, m]**2) / L[t] - A[t]**2\n"
    ),
    "a third moment": ROWS + "M[t] = mean[m](X[t, m])\nR[t] = mean[m]((X[t, m] - M[t])**3)\n",
}


def planned(text: str, axis: str) -> tuple[Opened, dict[str, float], Plan]:
    o, values = opened(text)
    return o, values, repair(o.boxes, frozenset({axis}), frozenset(o.outputs), facts(o))


def state(text: str, axis: str) -> list[tuple[tuple[str, ...], bool, bool]]:
    plan = planned(text, axis)[2]
    assert plan.passes == 1
    return sorted((b.axes, b.rescale is not None, b.recentre is not None) for b in plan.state)


def runs(text: str, axis: str, passes: int) -> None:
    o, values, plan = planned(text, axis)
    assert plan.passes == passes
    for seed in range(6):
        rng = np.random.default_rng(seed)
        arrays = inputs(o, values, rng)
        assert trial(o, values, plan, axis, arrays, rng) == ""


@pytest.mark.parametrize(
    ("forms", "head", "axis", "expected"),
    [
        (VARIANCE, ROWS, "m", [(("t",), False, False)] * 2 + [(("t",), False, True)]),
        (COVARIANCE, PAIR, "m", [(("t",), False, False)] * 3 + [(("t",), False, True)]),
        (
            WEIGHTED, KEYS, "x",
            [(("q",), False, False), (("q",), True, False), (("q", "e"), True, False), (("q", "e"), True, True)],
        ),
        (COUNTED, "", "x", [(("q",), False, False)] * 2 + [(("q",), False, True)]),
    ],
    ids=["variance", "covariance", "weighted", "counted"],
)  # fmt: skip
def test_all_forms_have_one_state(
    forms: dict[str, str], head: str, axis: str, expected: list[tuple[tuple[str, ...], bool, bool]]
) -> None:
    assert {name: state(head + text, axis) for name, text in forms.items()} == dict.fromkeys(forms, expected)


FORMS = [
    *(pytest.param(ROWS + t, "m", 1, id=f"variance, {n}") for n, t in VARIANCE.items()),
    *(pytest.param(PAIR + t, "m", 1, id=f"covariance, {n}") for n, t in COVARIANCE.items()),
    *(pytest.param(KEYS + t, "x", 1, id=f"weighted, {n}") for n, t in WEIGHTED.items()),
    *(pytest.param(t, "x", 1, id=f"counted, {n}") for n, t in COUNTED.items()),
    *(pytest.param(*case, id=n) for n, case in OTHER.items()),
]


@pytest.mark.parametrize(("text", "axis", "passes"), FORMS)
def test_steps_and_merges_equal_the_reference(text: str, axis: str, passes: int) -> None:
    assert any(b.recentre for b in planned(text, axis)[2].state)
    runs(text, axis, passes)


@pytest.mark.parametrize("name", RAW)
def test_what_loses_no_mean_is_left_as_it_is(name: str) -> None:
    plan = planned(RAW[name], "m")[2]
    assert not any(b.recentre for b in plan.state)
    runs(RAW[name], "m", plan.passes)


def test_layernorm_carries_count_sum_and_centred_squares() -> None:
    plan = planned(ROWS + "Y[t, m] = layernorm[m](X[t, m])\n", "m")[2]
    assert [b.name for b in plan.state] == ["Y.sum", "Y.count", "Y.sum2"]
    assert plan.box("Y.sum2").recentre == "Y.sum2.recentre"
    moments = [r for r in plan.repairs if r.kind == "moments"]
    assert [(r.reduction, r.accumulator) for r in moments] == [("Y.sum2", "Y.sum2")]
    assert moments[0].identity == "sum[m](X**2) = sum[m]((X - a)**2) + Y.sum**2 / m with a = Y.sum / m"


def test_a_raw_sum_that_is_wanted_too_is_made_of_the_centred_one() -> None:
    plan = planned(OTHER["kept raw"][0], "m")[2]
    assert sum(b.recentre is not None for b in plan.state) == 1
    assert "U" in {b.name for b in plan.tail}


def test_one_count_serves_all_moments() -> None:
    plan = planned(OTHER["correlation"][0], "m")[2]
    assert len(plan.state) == 6
    assert sum(not b.reads() for b in plan.state) == 1


def test_a_contraction_stays_one() -> None:
    plan = planned(OTHER["layernorm and matmul"][0], "m")[2]
    centred = next(b for b in plan.state if b.recentre and "n" in b.axes)
    assert {r.array for r in centred.reads()} >= {"X", "W"}
    assert "n" not in {a for r in centred.reads() if r.array not in ("X", "W") for f in r.index for a in f.names}


@pytest.mark.parametrize("form", VARIANCE)
def test_no_digits_are_lost_in_any_chunking(form: str) -> None:
    o, values = opened("t, m = 2, 600\n\nX[t, m]: fp64\n" + VARIANCE[form])
    plan = repair(o.boxes, frozenset("m"), frozenset(o.outputs), {})
    rng = np.random.default_rng(1)
    x = 1e4 + 1e-2 * rng.standard_normal((2, 600))
    exact = np.var(x.astype(np.longdouble), axis=1)
    raw = np.mean(x**2, axis=1) - np.mean(x, axis=1) ** 2
    assert np.max(np.abs(raw - exact) / exact) > 1e-5
    for step in (1, 7, 64, 599, 600):
        steps = [{"m": (lo, min(lo + step, 600))} for lo in range(0, 600, step)]
        got = PlanMachine(values, {"X": x}).streamed(plan, steps)["R"]
        assert np.max(np.abs(got - exact) / exact) < 1e-9
    for cuts in ((300,), (1, 2, 3, 500), tuple(range(50, 600, 50))):
        pieces = [[{"m": p}] for p in pairwise((0, *cuts, 600))]
        got = PlanMachine(values, {"X": x}).merged(plan, pieces)["R"]
        assert np.max(np.abs(got - exact) / exact) < 1e-9


@pytest.mark.parametrize("form", WEIGHTED)
def test_weighted_moments_lose_no_digits(form: str) -> None:
    o, values = opened(KEYS.replace("11", "200").replace("fp32", "fp64") + WEIGHTED[form])
    plan = repair(o.boxes, frozenset("x"), frozenset(o.outputs), {})
    rng = np.random.default_rng(2)
    s, v = 5 * rng.standard_normal((3, 200)), 1e4 + 1e-2 * rng.standard_normal((200, 2))
    p = np.exp(s - s.max(axis=1, keepdims=True)).astype(np.longdouble)
    p /= p.sum(axis=1, keepdims=True)
    mean = p @ v.astype(np.longdouble)
    exact = np.sum(p[:, :, None] * (v - mean[:, None]) ** 2, axis=1)
    for step in (1, 13, 200):
        steps = [{"x": (lo, min(lo + step, 200))} for lo in range(0, 200, step)]
        machine = PlanMachine(values, {"S": s, "V": v})
        assert np.max(np.abs(machine.streamed(plan, steps)["R"] - exact) / exact) < 1e-7
        merged = PlanMachine(values, {"S": s, "V": v}).merged(plan, [[x] for x in steps])
        assert np.max(np.abs(merged["R"] - exact) / exact) < 1e-7


TILES = (
    "stream={AXIS: 3}",
    "group={AXIS: 5}",
    "group={AXIS: 7}, stream={AXIS: 3}",
    "group={OTHER: 2, AXIS: 6}, stream={AXIS: 4}",
    "stream={OTHER: 2, AXIS: 3}",
)


def levelled(text: str, tiles: str) -> str:
    lines = text.rstrip("\n").split("\n")
    first = next(i for i, line in enumerate(lines) if "[" in line.split("=")[0] and ":" not in line.split("=")[0])
    body = [f"    {line}" for line in lines[first:] if not line.startswith("out(")]
    outs = [line for line in lines[first:] if line.startswith("out(")]
    return "\n".join([*lines[:first], f'with level("smem", {tiles}):', *body, *outs]) + "\n"


LEVELLED = {
    "variance": (ROWS + VARIANCE["two passes"], "m", "t"),
    "raw variance": (ROWS + VARIANCE["the square less the square"], "m", "t"),
    "covariance": (PAIR + COVARIANCE["centred"], "m", "t"),
    "weighted": (KEYS + WEIGHTED["raw"], "x", "q"),
    "masked keys": (OTHER["masked keys"][0], "x", "q"),
    "counted": (COUNTED["centred"], "x", "q"),
    "layernorm and matmul": (OTHER["layernorm and matmul"][0], "m", "t"),
    "covariances": (OTHER["a matrix of covariances"][0], "m", "t"),
}


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("name", LEVELLED)
def test_levelled_files_count_what_they_do(name: str, tiles: str) -> None:
    text, axis, other = LEVELLED[name]
    file = parse_levelled(levelled(text, tiles.replace("AXIS", axis).replace("OTHER", other)), name)
    values = file.diagram.values()
    for seed, kind, accumulate in ((0, "plain", "fp32"), (1, "zeros", "same")):
        arrays = draw_inputs(file.diagram, values, seed, "plain" if kind == "plain" else "zeros")
        row = check_once(file, values, arrays, seed, accumulate).row
        assert row.passed, row.because


@pytest.mark.parametrize("name", ["layernorm", "statistics", "two axes", "correlation"])
def test_random_schedules_count_what_they_do(name: str) -> None:
    rows = [c.row for c in check(parse(OTHER[name][0], name), seed=5, draws=6)]
    assert not [(row.axes, row.tiles, row.because) for row in rows if not row.passed]


def test_the_work_of_a_variance_by_hand() -> None:
    text = 't, m = 4, 12\n\nX[t, m]: fp32\nwith level("smem", group={t: 2}, stream={m: 3}):\n'
    text += "    M[t] = mean[m](X[t, m])\n    R[t] = mean[m]((X[t, m] - M[t])**2)\n"
    file = parse_levelled(text, "variance")
    values = file.diagram.values()
    checked = check_once(file, values, draw_inputs(file.diagram, values, 0), 0, "fp32").row
    assert checked.passed, checked.because
    (p,) = place(file, values, "fp32")
    count = count_region(p.program, p.tiles, p.setting, p.buffers)
    each, steps = 4 * 12, 4 * 4  # elements; rows times trips
    # sum 1, (x - a)**2 and its sum 3; per row and trip W (a - a')**2 3 and its addition 1; 4 divisions after. The count
    # is known from positions: it costs nothing, and the means after the step and before it are divided by a constant
    assert count.flops.vector == each * 4 + steps * (4 + 2) + 4
    assert count.flops.special == 0
    assert count.transfers.loads == {"X": each}
