"""Cascades with a known answer: the passes they need, and that each plan computes the diagram."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_streaming_interpreter import Machine, facts, inputs, opened, trial

from ioweave.derive.streaming.forms import express
from ioweave.derive.streaming.gate import Sample, agree
from ioweave.derive.streaming.merge import merge_boxes
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Apply, Expr, Number, Read

HEADER = """q, x, d = 3, 9, 2
beta = 0.7

Q[q, d]: fp32
K[x, d]: fp32
V[x, d]: fp32
M[q, x]: bool
B[q]: fp32
"""
SCORES = "S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)\n"
SOFTMAX = "P[q, x] = softmax[x](S[q, x])\n"
OUTPUT = "O[q, d] = sum[x](P[q, x] * V[x, d])\n"
ROW = "t, m, n = 3, 7, 2\neps = 1e-5\n\nX[t, m]: fp32\nG[m]: fp32\nW[m, n]: fp32\nC[t, m]: bool\n"
WEIGHTS = "l[q] = sum[x](E[q, x])\nO[q, d] = sum[x](E[q, x] / l[q] * V[x, d])\n"

# name: (text after the header, passes over x)
CASES: dict[str, tuple[str, int]] = {
    "attention": (SCORES + SOFTMAX + OUTPUT, 1),
    "mask in the scores": ("S[q, x] = where(M[q, x], sum[d](Q[q, d] * K[x, d]), -inf)\n" + SOFTMAX + OUTPUT, 1),
    "causal": ("S[q, x] = where(x <= 2 * q, sum[d](Q[q, d] * K[x, d]), -inf)\n" + SOFTMAX + OUTPUT, 1),
    "mask added": (SCORES + "P[q, x] = softmax[x](S[q, x] + where(M[q, x], 0, -inf))\n" + OUTPUT, 1),
    "mask in the weights": (
        SCORES + "m[q] = max[x](S[q, x])\nE[q, x] = where(M[q, x], exp(S[q, x] - m[q]), 0)\n" + WEIGHTS,
        1,
    ),
    "mask after the weights": (
        SCORES + "m[q] = max[x](where(M[q, x], S[q, x], -inf))\nF[q, x] = exp(S[q, x] - m[q])\n"
        "l[q] = sum[x](where(M[q, x], F[q, x], 0))\n"
        "O[q, d] = sum[x](where(M[q, x], F[q, x] / l[q], 0) * V[x, d])\n",
        1,
    ),
    "mask as a factor": (
        SCORES + "m[q] = max[x](S[q, x])\nE[q, x] = exp(S[q, x] - m[q]) * where(M[q, x], 1, 0)\n" + WEIGHTS,
        1,
    ),
    "log-sum-exp": (SCORES + "L[q] = logsumexp[x](S[q, x])\n", 1),
    "weights from log-sum-exp": (
        SCORES + "L[q] = logsumexp[x](S[q, x])\nO[q, d] = sum[x](exp(S[q, x] - L[q]) * V[x, d])\n",
        1,
    ),
    "a sink": (
        SCORES + "m[q] = max[x](S[q, x])\nn[q] = max(m[q], B[q])\nE[q, x] = exp(S[q, x] - n[q])\n"
        "l[q] = sum[x](E[q, x]) + exp(B[q] - n[q])\nO[q, d] = sum[x](E[q, x] * V[x, d]) / l[q]\n",
        1,
    ),
    "a sink in the log": (
        SCORES + "L[q] = log(exp(logsumexp[x](S[q, x])) + exp(B[q]))\n"
        "O[q, d] = sum[x](exp(S[q, x] - L[q]) * V[x, d])\n",
        1,
    ),
    "without a maximum": (SCORES + "E[q, x] = exp(S[q, x])\n" + WEIGHTS, 1),
    "powers of two": (
        SCORES + "m[q] = max[x](S[q, x])\nE[q, x] = exp2(S[q, x] - m[q])\n" + WEIGHTS,
        1,
    ),
    "powers of a number": (SCORES + "E[q, x] = 2**S[q, x]\n" + WEIGHTS, 1),
    "scaled after the maximum": (
        SCORES + "m[q] = max[x](S[q, x])\nE[q, x] = exp((S[q, x] - m[q]) / sqrt(size(d)))\n" + WEIGHTS,
        1,
    ),
    "a temperature": (
        SCORES + "m[q] = max[x](beta * S[q, x])\nE[q, x] = exp(beta * S[q, x] - m[q])\n" + WEIGHTS,
        1,
    ),
    "a minimum": (SCORES + "m[q] = min[x](S[q, x])\nE[q, x] = exp(m[q] - S[q, x])\n" + WEIGHTS, 1),
    "shift by the mean": (SCORES + "m[q] = mean[x](S[q, x])\nE[q, x] = exp(S[q, x] - m[q])\n" + WEIGHTS, 1),
    "the maximum of something else": (
        SCORES + "T[q, x] = sum[d](Q[q, d] * V[x, d])\nm[q] = max[x](T[q, x])\nE[q, x] = exp(S[q, x] - m[q])\n"
        + WEIGHTS,
        1,
    ),
    "two softmaxes": (
        SCORES + "P[q, x] = softmax[x](S[q, x])\nR[q, x] = softmax[x](2 * S[q, x] + 1)\n"
        "O[q, d] = sum[x]((P[q, x] - 0.5 * R[q, x]) * V[x, d])\n",
        1,
    ),
    "a product of softmaxes": (
        SCORES + "T[q, x] = sum[d](Q[q, d] * V[x, d])\nP[q, x] = softmax[x](S[q, x])\nR[q, x] = softmax[x](T[q, x])\n"
        "O[q, d] = sum[x](P[q, x] * R[q, x] * V[x, d])\n",
        1,
    ),
    "softmax of softmax": (SCORES + SOFTMAX + "R[q, x] = softmax[x](P[q, x])\n" + OUTPUT.replace("P[", "R["), 2),
    "rounded weights": (SCORES + SOFTMAX + "O[q, d] = sum[x](round(127 * P[q, x] + B[q]) * V[x, d])\n", 2),
    "cast weights": (SCORES + SOFTMAX + "O[q, d] = sum[x](fp8(P[q, x]) * V[x, d])\n", 2),
    "small weights": (SCORES + SOFTMAX + "O[q, d] = sum[x](where(P[q, x] < 0.1, P[q, x], 0) * V[x, d])\n", 1),
    "weights below their mean": (
        SCORES + SOFTMAX + "O[q, d] = sum[x](where(P[q, x] < 1 / size(x), P[q, x], 0) * V[x, d])\n",
        2,
    ),
    "column sums": (SCORES + SOFTMAX + "C[x] = sum[q](P[q, x])\n", 2),
    "weights too": (SCORES + SOFTMAX + OUTPUT + "out(P)\n", 2),
    "spherical": (
        SCORES + "N[q] = sqrt(sum[x](S[q, x] * S[q, x]))\nO[q, d] = sum[x](S[q, x] / N[q] * V[x, d])\n",
        1,
    ),
    "entropy": (
        "S[q, x] = where(M[q, x], sum[d](Q[q, d] * K[x, d]), -inf)\nL[q] = logsumexp[x](S[q, x])\n"
        "E[q] = sum[x](where(M[q, x], exp(S[q, x] - L[q]) * (L[q] - S[q, x]), 0))\n",
        1,
    ),
    "shift under max": (
        SCORES + "L[q] = logsumexp[x](S[q, x])\nA[q] = max[x](S[q, x] - L[q])\n"
        "D[q] = sum[x](exp(S[q, x] - L[q] - A[q]))\n",
        1,
    ),
    "largest weight": (SCORES + SOFTMAX + "A[q] = max[x](P[q, x])\n", 1),
    "least multiple": (SCORES + SOFTMAX + "A[q] = min[x](-3 * P[q, x])\n", 1),
    "scaling through max": (
        SCORES + "N[q] = sum[x](abs(S[q, x]))\nA[q] = max[x](where(M[q, x], S[q, x] / N[q], -inf))\n",
        1,
    ),
    "scaling through relu": (SCORES + "N[q] = sum[x](abs(S[q, x]))\nA[q] = sum[x](relu(S[q, x] / N[q]))\n", 1),
    "a factor of unknown sign": (SCORES + "N[q] = sum[x](S[q, x])\nA[q] = max[x](S[q, x] * N[q])\n", 1),
    "moments of the weights": (
        SCORES + SOFTMAX + "u[q] = sum[x](P[q, x] * S[q, x])\nw[q] = sum[x](P[q, x] * (S[q, x] - u[q])**2)\n"
        "O[q, d] = sum[x](P[q, x] * (S[q, x] - u[q]) / sqrt(w[q]) * V[x, d])\n",
        1,
    ),
    "an exponent that multiplies": (
        SCORES + "u[q] = sum[x](S[q, x])\nO[q, d] = sum[x](exp(S[q, x] * u[q]) * V[x, d])\n",
        2,
    ),
    "a shifted read": (SCORES + SOFTMAX + "A[q] = sum[x](where(x > 0, P[q, x - 1], 0) * S[q, x])\n", 2),
    "a product": (SCORES + "m[q] = max[x](S[q, x])\nA[q] = prod[x](S[q, x] - m[q])\n", 2),
    "hidden inverse": (
        SCORES + "m[q] = max[x](S[q, x])\nN[q] = sum[x](B[q] / where(M[q, x], exp(S[q, x] - m[q]), 0))\n"
        "O[q, d] = sum[x](S[q, x] / N[q] * V[x, d])\n",
        2,
    ),
}  # fmt: skip
ROWS: dict[str, tuple[str, int]] = {
    "variance from the mean": ("M[t] = mean[m](X[t, m])\nR[t] = mean[m]((X[t, m] - M[t])**2)\n", 1),
    "masked variance": (
        "M[t] = mean[m](X[t, m], where=C[t, m])\nR[t] = mean[m]((X[t, m] - M[t])**2, where=C[t, m])\n",
        1,
    ),
    "skewness": (
        "M[t] = mean[m](X[t, m])\nR[t] = mean[m]((X[t, m] - M[t])**2)\n"
        "Y[t] = mean[m](((X[t, m] - M[t]) / sqrt(R[t]))**3)\n",
        1,
    ),
    "rmsnorm into a matmul": ("Y[t, n] = sum[m](rmsnorm[m](X[t, m]) * G[m] * W[m, n])\n", 1),
    "layernorm into a matmul": ("Y[t, n] = sum[m](layernorm[m](X[t, m]) * G[m] * W[m, n])\n", 1),
    "l2norm into a matmul": ("Y[t, n] = sum[m](l2norm[m](X[t, m]) * W[m, n])\n", 1),
    "layernorm": ("Y[t, m] = layernorm[m](X[t, m]) * G[m]\n", 2),
}


def plan_of(o: Opened, axes: str) -> Plan:
    return repair(o.boxes, frozenset(axes), frozenset(o.outputs), facts(o))


def run(text: str, axes: str, passes: int) -> None:
    o, values = opened(text)
    plan = plan_of(o, axes)
    assert plan.passes == passes, plan.refusals
    assert bool(plan.refusals) <= (passes > 1)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        arrays = inputs(o, values, rng)
        for name, a in arrays.items():
            if a.dtype == bool and a.ndim == 2 and seed % 3:
                arrays[name] = a & (np.arange(a.shape[1]) >= (a.shape[1] - 3 if seed % 3 == 1 else a.shape[1]))
        assert trial(o, values, plan, axes, arrays, rng) == "", (text, seed)


@pytest.mark.parametrize("name", CASES)
def test_cascade_over_keys(name: str) -> None:
    run(HEADER + CASES[name][0], "x", CASES[name][1])


@pytest.mark.parametrize("name", ROWS)
def test_cascade_over_features(name: str) -> None:
    run(ROW + ROWS[name][0], "m", ROWS[name][1])


@pytest.mark.parametrize(
    "line",
    [
        "L[t] = logsumexp[v](Z[t, v]) - sum[v](where(v == label[t], Z[t, v], 0))",
        "P[t, v] = softmax[v](Z[t, v])\nL[t] = -log(sum[v](where(v == label[t], P[t, v], 0)))",
        "P[t, v] = softmax[v](Z[t, v])\nL[t] = -sum[v](where(v == label[t], log(P[t, v]), 0))",
    ],
)
def test_cross_entropy(line: str) -> None:
    run(f"t, v = 3, 4\n\nZ[t, v]: fp32\nlabel[t]: int32\n{line}\n", "v", 1)


JOINT = "q, x, y, d = 3, 4, 5, 2\n\nS[q, x, y]: fp32\nV[x, y, d]: fp32\n"


@pytest.mark.parametrize("axes", ["x", "y", "xy"])
def test_a_softmax_over_two_axes(axes: str) -> None:
    run(JOINT + "O[q, d] = sum[x, y](softmax[x, y](S[q, x, y]) * V[x, y, d])\n", axes, 1)


def test_a_factor_leaves_a_sum_inside_the_loop() -> None:
    lines = "P[q, x, y] = softmax[x, y](S[q, x, y])\nA[q, x] = sum[y](P[q, x, y])\nO[q] = sum[x](A[q, x] * x)\n"
    run(JOINT.replace("V[x, y, d]: fp32\n", "") + lines, "x", 1)


@pytest.mark.parametrize(
    "lines",
    [
        "P[q, x, y] = softmax[x](S[q, x, y])\nA[q, x] = sum[y](P[q, x, y])\nO[q] = sum[x](A[q, x] * x)\n",
        "P[q, x, y] = softmax[x](S[q, x, y])\nO[q] = sum[y, x](P[q, x, y] * x)\n",
    ],
)
def test_finite_sums_are_interchanged(lines: str) -> None:
    run(JOINT.replace("V[x, y, d]: fp32\n", "") + lines, "x", 1)


def test_attention_is_the_online_softmax() -> None:
    o, _ = opened(HEADER + SCORES + SOFTMAX + OUTPUT)
    plan = plan_of(o, "x")
    assert [b.name for b in plan.boxes] == ["S.sum", "S", "P.max", "P.max.delta", "P.exp", "P.sum", "O.acc", "O"]
    assert [(b.name, b.rescale) for b in plan.state] == [
        ("P.max", None),
        ("P.sum", "P.max.delta"),
        ("O.acc", "P.max.delta"),
    ]
    assert [b.name for b in plan.tail] == ["O"]
    assert [(m.op, m.factor) for m in plan.merges] == [("max", None), ("sum", "P.max.delta"), ("sum", "P.max.delta")]


def test_boxes_that_are_kept_stay() -> None:
    o, _ = opened(HEADER + SCORES + SOFTMAX + OUTPUT)
    plan = repair(o.boxes, frozenset("x"), frozenset({"O", "S", "P.sum"}), {})
    assert plan.passes == 1
    assert {"S", "P.sum", "O"} <= {b.name for b in plan.boxes}


def test_equal_accumulators_are_shared() -> None:
    o, _ = opened(ROW + ROWS["variance from the mean"][0])
    assert [b.name for b in plan_of(o, "m").state] == ["M.sum", "R.count", "R.sum"]


def test_a_declared_fact_proves_a_sign() -> None:
    text = "q, x = 3, 9\n\nU[q, x]: fp32 > 0\nN[q] = sum[x](U[q, x])\nA[q] = max[x](U[q, x] * N[q])\n"
    run(text, "x", 1)
    o, _ = opened(text)
    state = repair(o.boxes, frozenset("x"), frozenset("A"), {"U": (">", 0.0)}).state
    assert [b.reduction for b in state] == ["sum", "max"]
    assert sorted(b.reduction or "" for b in plan_of(opened(text.replace(" > 0", ""))[0], "x").state) == [
        "max",
        "min",
        "sum",
    ]  # where the sign is not known, both extremes are kept


def test_masked_first_blocks_leave_no_nan_in_the_state() -> None:
    o, values = opened(HEADER + CASES["mask in the scores"][0])
    plan = plan_of(o, "x")
    arrays = inputs(o, values, np.random.default_rng(0))
    arrays["M"][:] = np.arange(9) >= 6
    got = Machine(values, arrays)
    for stop in range(1, 10):
        got.loop(plan, [{"x": np.arange(i, i + 1)} for i in range(stop)], 1)
        assert all(not np.isnan(got.arrays[b.name]).any() for b in plan.state)


def test_scores_beyond_the_range_of_exp() -> None:
    o, values = opened(HEADER + CASES["shift by the mean"][0])
    plan = plan_of(o, "x")
    arrays = inputs(o, values, np.random.default_rng(1))
    arrays["Q"] *= 40.0
    assert trial(o, values, plan, "x", arrays, np.random.default_rng(0)) == ""


@pytest.mark.parametrize(
    "lines",
    [
        CASES["without a maximum"][0],
        SCORES + "l[q] = sum[x](exp(S[q, x]))\nO[q, d] = sum[x](exp(S[q, x]) * V[x, d]) / l[q]\n",
        SCORES + "L[q] = log(sum[x](exp(S[q, x])))\n",
    ],
)
def test_exponentials_without_a_bound_get_a_running_maximum(lines: str) -> None:
    o, values = opened(HEADER + lines)
    plan = plan_of(o, "x")
    arrays = inputs(o, values, np.random.default_rng(1))
    arrays["K"] = np.abs(arrays["K"]) + 20
    arrays["Q"] = np.abs(arrays["Q"]) + 80
    got = Machine(values, arrays).streamed(plan, [{"x": np.arange(i, i + 1)} for i in range(9)])
    for name in ("O", "L"):
        assert name not in o.outputs or np.isfinite(got[name]).all()
    assert "max" in [b.reduction for b in plan.state]


def test_a_bounded_exponent_needs_no_maximum() -> None:
    lines = "D[q, x] = tanh(sum[d](Q[q, d] * K[x, d]))\nE[q, x] = exp(3 * D[q, x])\n"
    o, _ = opened(HEADER + lines + WEIGHTS)
    assert [b.reduction for b in plan_of(o, "x").state] == ["sum", "sum"]


def test_weights_that_may_all_vanish_keep_their_maximum() -> None:
    lines = "D[q, x] = sum[d]((Q[q, d] - K[x, d])**2)\nE[q, x] = exp(-D[q, x])\n"
    o, _ = opened(HEADER + lines + WEIGHTS)
    plan = plan_of(o, "x")
    assert [b.reduction for b in plan.state] == ["max", "sum", "sum"]
    o, _ = opened(HEADER + lines + "O[q, d] = sum[x](E[q, x] * V[x, d])\n")
    assert [b.reduction for b in plan_of(o, "x").state] == ["sum"]  # a sum that nothing divides by may vanish


def test_several_passes_have_no_merge() -> None:
    o, _ = opened(HEADER + CASES["column sums"][0])
    with pytest.raises(Refused, match="2 passes"):
        merge_boxes(plan_of(o, "x"))


def test_the_gate_refuses_what_is_false() -> None:
    s, r = Read("S"), Read("r")
    wrong = (Apply("exp", (Apply("mul", (s, r)),)), Apply("mul", (Apply("exp", (s,)), r)))
    assert not agree(*wrong, Sample(lambda n: False))


S, T, L = Read("S"), Read("T"), Read("L")


def ap(op: str, *args: Expr | int) -> Expr:
    return Apply(op, tuple(Number(a) if isinstance(a, int) else a for a in args))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ap("div", S, T), ap("mul", S, ap("div", 1, T))),
        (ap("exp2", S), ap("exp", ap("mul", S, ap("log", 2)))),
        (ap("rsqrt", S), ap("div", 1, ap("sqrt", S))),
        (ap("exp", ap("sub", S, ap("add", T, ap("log", L)))), ap("div", ap("exp", ap("sub", S, T)), L)),
        (ap("pow", ap("sub", S, T), 2), ap("mul", ap("sub", T, S), ap("sub", T, S))),
        (ap("masked_sub", S, T), ap("add", S, ap("neg", T))),
        (ap("exp2", ap("log2", S)), S),
        (ap("mul", ap("exp", S), ap("exp", T)), ap("exp", ap("add", S, T))),
        (ap("pow", 2, S), ap("exp2", S)),
    ],
)
def test_equal_mathematics_has_one_normal_form(a: Expr, b: Expr) -> None:
    form = Canonical().form
    assert form(a) == form(b)
    assert form(express(form(a))) == form(a)


def test_a_root_of_a_square_keeps_its_sign() -> None:
    form = Canonical().form
    assert form(ap("sqrt", ap("mul", S, S))) != form(S)
    assert Canonical(nonnegative=lambda e: True).form(ap("sqrt", ap("mul", S, S))) == form(S)


def test_the_catalogue_is_planned_fast() -> None:
    names = sorted(p.stem for p in Path(__file__).parent.parent.glob("ioweave/diagrams/catalogue/*.weave"))
    for name in names:
        text = (Path(__file__).parent.parent / f"ioweave/diagrams/catalogue/{name}.weave").read_text()
        o, _ = opened(text)
        for axis in dict.fromkeys(a for b in o.boxes for a in b.all_axes):
            assert plan_of(o, axis).passes <= 4
