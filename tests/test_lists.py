"""Lists: the k largest of a streamed axis, sums that only large weights count in, and lists that grow with the axis."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ioweave.derive.certificate.write import certify
from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming import thresholds
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.spans import Span, simplest
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.lists import is_list
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.verdicts import Trial, Verdict

SIZES = "q, x, d, e, k = 64, 80, 8, 4, 4\n"
INPUTS = "Q[q, e]: fp32\nK[x, e]: fp32\nV[x, d]: fp32\nS[q, x] = sum[e](Q[q, e] * K[x, e]) / sqrt(e)\n"
SCORES = SIZES + INPUTS
SOFTMAX = SCORES + "P[q, x] = softmax[x](S[q, x])\n"
BY_HAND = SCORES + "M[q] = max[x](S[q, x])\nL[q] = sum[x](exp(S[q, x] - M[q]))\n"
TOP = "T[q, k] = topk[x](S[q, x], into=k)\n"
AT = "I[q, k] = argtopk[x](S[q, x], into=k)\n"

# program, verdict, values of state
SELECTIONS: dict[str, tuple[str, str, int]] = {
    "values": (SCORES + TOP, "one-pass-list(4)", 4),
    "positions": (SCORES + AT, "one-pass-list(4)", 8),
    "values and positions share a list": (
        SCORES + TOP + AT + "P[q, k] = softmax[k](T[q, k])\nO[q, d] = sum[k](P[q, k] * V[I[q, k], d])\n",
        "one-pass-list(4)",
        8,
    ),
    "the first slot is the maximum": (SCORES + TOP + "O[q] = T[q, 0]\n", "one-pass", 1),
    "the second largest": (
        SIZES.replace("k = 64, 80, 8, 4, 4", "k = 64, 80, 8, 4, 2") + INPUTS + TOP + "O[q] = T[q, 1]\n",
        "one-pass-list(2)",
        2,
    ),
    "the smallest": (SCORES + "T[q, k] = topk[x](-S[q, x], into=k)\nO[q, k] = -T[q, k]\n", "one-pass-list(4)", 4),
    "of a softmax": (SOFTMAX + "T[q, k] = topk[x](P[q, x], into=k)\n", "one-pass-list(4)", 6),
    "positions of a softmax": (SOFTMAX + "I[q, k] = argtopk[x](P[q, x], into=k)\n", "one-pass-list(4)", 8),
    "weights of a softmax with their rows": (
        SOFTMAX + "T[q, k] = topk[x](P[q, x], into=k)\nI[q, k] = argtopk[x](P[q, x], into=k)\n"
        "O[q, d] = sum[k](T[q, k] * V[I[q, k], d])\n",
        "one-pass-list(4)",
        10,
    ),
    "of a masked softmax": (
        SCORES + "P[q, x] = softmax[x](where(x <= q, S[q, x], -inf))\nT[q, k] = topk[x](P[q, x], into=k)\n",
        "one-pass-list(4)",
        6,
    ),
    "of scaled and shifted scores": (
        SCORES + "B[q]: fp32\nT[q, k] = topk[x](3 * S[q, x] + B[q], into=k)\nU[q, k] = topk[x](S[q, x], into=k)\n"
        "O[q, k] = T[q, k] + U[q, k]\n",
        "one-pass-list(4)",
        4,
    ),
    "scores over their largest size": (
        SCORES + "M[q] = max[x](abs(S[q, x]))\nT[q, k] = topk[x](S[q, x] / M[q], into=k)\n",
        "one-pass-list(4)",
        5,
    ),
    "of a gate that rises": (
        SCORES + "T[q, k] = topk[x](sigmoid(S[q, x]), into=k)\nI[q, k] = argtopk[x](sigmoid(S[q, x]), into=k)\n"
        "O[q, d] = sum[k](T[q, k] * V[I[q, k], d])\n",
        "one-pass-list(4)",
        8,
    ),
    "two orders, two lists": (
        SCORES + "B[x]: fp32\n" + TOP + "U[q, k] = topk[x](S[q, x] + B[x], into=k)\nO[q, k] = T[q, k] * U[q, k]\n",
        "one-pass-list(4)",
        8,
    ),
    "masked keys": (
        SCORES + "T[q, k] = topk[x](where(x <= q, S[q, x], -inf), into=k)\n"
        "I[q, k] = argtopk[x](where(x <= q, S[q, x], -inf), into=k)\n"
        "P[q, k] = softmax[k](T[q, k])\nO[q, d] = sum[k](P[q, k] * V[I[q, k], d])\n",
        "one-pass-list(4)",
        8,
    ),
    "rows made in the loop ride along": (
        SCORES + "U[e, d]: fp32\nW[x, d] = sum[e](K[x, e] * U[e, d])\n" + AT + "O[q, d] = sum[k](W[I[q, k], d])\n",
        "one-pass-list(4)",
        8 + 4 * 8,
    ),
    "maps of rows are worked out again": (
        SCORES + "W[x, d] = relu(V[x, d]) + K[x, 0]\n" + AT + "O[q, d] = sum[k](W[I[q, k], d])\n",
        "one-pass-list(4)",
        8,
    ),
    "rows made in the loop by masked keys": (
        SCORES + "U[e, d]: fp32\nW[x, d] = sum[e](K[x, e] * U[e, d])\n"
        "I[q, k] = argtopk[x](where(x <= q, S[q, x] + W[x, 0], -inf), into=k)\nO[q, d] = sum[k](W[I[q, k], d])\n",
        "unproved",
        8,
    ),
    "terms at the positions alone": (
        SCORES + AT + "P[q, x] = softmax[x](where(any[k](I[q, k] == x), S[q, x], -inf))\n"
        "O[q, d] = sum[x](P[q, x] * V[x, d])\n",
        "one-pass-list(4)",
        8,
    ),
    "terms counted at the positions": (
        SCORES + AT + "O[q] = sum[x](sum[k](where(I[q, k] == x, 1, 0)) * exp(S[q, x]))\n",
        "one-pass-list(4)",
        4,
    ),
    # which is the square of the maximum
    "the term at the first position": (
        SCORES + AT + "O[q] = sum[x](where(x == I[q, 0], S[q, x]**2, 0))\n",
        "one-pass",
        1,
    ),
    "terms at the other places": (
        SCORES + AT + "O[q] = sum[x](where(any[k](I[q, k] == x), 0, S[q, x]**2))\n",
        "k-pass(2)",
        9,
    ),
    "weights read at positions": (
        SOFTMAX + AT + "O[q, d] = sum[k](P[q, I[q, k]] * V[I[q, k], d])\n",
        "one-pass-list(4)",
        10,
    ),
    "blocks by their means": (
        "q, d, x, w, k = 16, 8, 16, 4, 2\nz = x * w\n\nQ[q, d]: fp32\nK[z, d]: fp32\nV[z, d]: fp32\n"
        "M[x, d] = mean[w](K[x * 4 + w, d])\nG[q, x] = sum[d](Q[q, d] * M[x, d])\n"
        "B[q, k] = argtopk[x](G[q, x], into=k)\n"
        "S[q, k, w] = sum[d](Q[q, d] * K[B[q, k] * 4 + w, d])\nP[q, k, w] = softmax[k, w](S[q, k, w])\n"
        "O[q, d] = sum[k, w](P[q, k, w] * V[B[q, k] * 4 + w, d])\n",
        "one-pass-list(2)",
        4,
    ),
    "compressed blocks beside the chosen ones": (
        "q, d, x, w, k = 16, 8, 16, 4, 2\nz = x * w\n\nQ[q, d]: fp32\nK[z, d]: fp32\n"
        "M[x, d] = mean[w](K[x * 4 + w, d])\nG[q, x] = sum[d](Q[q, d] * M[x, d])\nA[q, x] = softmax[x](G[q, x])\n"
        "C[q, d] = sum[x](A[q, x] * M[x, d])\nB[q, k] = argtopk[x](G[q, x], into=k)\n"
        "O[q, d] = C[q, d] + sum[k, w](K[B[q, k] * 4 + w, d])\n",
        "one-pass-list(2)",
        4 + 2 + 8,
    ),
    "the k-th largest as a threshold": (
        SCORES + TOP + "O[q, d] = sum[x](where(S[q, x] >= T[q, 3], exp(S[q, x] - T[q, 0]) * V[x, d], 0))\n",
        "k-pass(2)",
        12,
    ),
    "an output along the axis": (
        SCORES + TOP + "O[q, x] = where(S[q, x] >= T[q, 3], S[q, x], 0)\n",
        "k-pass(2)",
        4,
    ),
}

# program, slots, values of state beside the lists of keys and positions for each slot
THRESHOLDS: dict[str, tuple[str, int]] = {
    "relu": (SOFTMAX + "O[q, d] = sum[x](relu(P[q, x] - 0.1) * V[x, d])\n", 9),
    "relu squared": (SOFTMAX + "O[q, d] = sum[x](relu(P[q, x] - 0.1)**2 * V[x, d])\n", 9),
    "above": (SOFTMAX + "O[q, d] = sum[x](where(P[q, x] > 0.05, P[q, x], 0) * V[x, d])\n", 19),
    "at least": (SOFTMAX + "O[q, d] = sum[x](where(P[q, x] >= 0.05, P[q, x], 0) * V[x, d])\n", 20),
    "the difference is above 0": (
        SOFTMAX + "O[q, d] = sum[x](where(P[q, x] - 0.125 > 0, P[q, x] - 0.125, 0) * V[x, d])\n",
        7,
    ),
    "a maximum with 0": (SOFTMAX + "O[q, d] = sum[x](max(P[q, x] - 0.25, 0) * V[x, d])\n", 3),
    "a maximum less the threshold": (SOFTMAX + "O[q, d] = sum[x]((max(P[q, x], 0.25) - 0.25) * V[x, d])\n", 3),
    "what a minimum leaves": (SOFTMAX + "O[q, d] = sum[x]((P[q, x] - min(P[q, x], 0.25)) * V[x, d])\n", 3),
    "what is not above": (SOFTMAX + "O[q, d] = sum[x](where(P[q, x] < 0.1, P[q, x], 0) * V[x, d])\n", 10),
    "another value below": (SOFTMAX + "O[q, d] = sum[x](where(P[q, x] > 0.1, P[q, x], 0.5) * V[x, d])\n", 9),
    "capped": (SOFTMAX + "O[q, d] = sum[x](min(P[q, x], 0.1) * V[x, d])\n", 9),
    "capped on a line of its own": (
        SOFTMAX + "C[q, x] = min(0.1, P[q, x])\nO[q, d] = sum[x](C[q, x] * V[x, d])\n",
        9,
    ),
    "the room below": (SOFTMAX + "O[q, d] = sum[x](relu(0.1 - P[q, x]) * V[x, d])\n", 9),
    "clamped to both sides": (SOFTMAX + "O[q, d] = sum[x](max(min(P[q, x], 0.5), 0.1) * V[x, d])\n", 9),
    "squares below": (SOFTMAX + "O[q, d] = sum[x](where(P[q, x] > 0.1, P[q, x], P[q, x]**2) * V[x, d])\n", 9),
    "rounded": (SOFTMAX + "O[q, d] = sum[x](round(127 * P[q, x]) * V[x, d]) / 127\n", 253),
    "rounded with an offset too small to count": (
        SOFTMAX + "O[q, d] = sum[x](round(15 * P[q, x] + 0.2) * V[x, d])\n",
        49,
    ),
    "cast to whole numbers": (SOFTMAX + "O[q, d] = sum[x](int8(15 * P[q, x]) * V[x, d])\n", 29),
    "floor": (SOFTMAX + "O[q, d] = sum[x](floor(10 * P[q, x]) * V[x, d])\n", 10),
    "the log of the weight": (
        SCORES + "Z[q] = logsumexp[x](S[q, x])\n"
        "O[q, d] = sum[x](where(S[q, x] - Z[q] > -3, exp(S[q, x] - Z[q]) * V[x, d], 0))\n",
        20,
    ),
    "by hand": (BY_HAND + "O[q, d] = sum[x](relu(exp(S[q, x] - M[q]) / L[q] - 0.1) * V[x, d])\n", 9),
    "by hand, the divisor last": (
        BY_HAND + "O[q, d] = sum[x](relu(exp(S[q, x] - M[q]) - 0.1 * L[q]) * V[x, d]) / L[q]\n",
        9,
    ),
    "a named threshold": ("t0 = 0.125\n" + SOFTMAX + "O[q, d] = sum[x](relu(P[q, x] - t0) * V[x, d])\n", 7),
    "the number of large weights": (SOFTMAX + "N[q] = sum[x](where(P[q, x] > 0.1, 1, 0))\n", 9),
    "the sum of their places": (SOFTMAX + "N[q] = sum[x](where(P[q, x] > 0.1, x, 0))\n", 9),
    "normalised again": (
        SOFTMAX + "W[q, x] = relu(P[q, x] - 0.1)\nN[q] = sum[x](W[q, x])\nO[q, d] = sum[x](W[q, x] * V[x, d]) / N[q]\n",
        9,
    ),
    "a mask and a threshold": (
        SOFTMAX + "O[q, d] = sum[x](where(P[q, x] > 0.1 and x <= q, P[q, x], 0) * V[x, d])\n",
        9,
    ),
    "of a masked softmax": (
        SCORES
        + "P[q, x] = softmax[x](where(x <= q, S[q, x], -inf))\nO[q, d] = sum[x](relu(P[q, x] - 0.1) * V[x, d])\n",
        9,
    ),
    "a sink takes its share": (
        SCORES
        + "B[q]: fp32\nM[q] = max(max[x](S[q, x]), B[q])\nL[q] = sum[x](exp(S[q, x] - M[q])) + exp(B[q] - M[q])\n"
        "O[q, d] = sum[x](relu(exp(S[q, x] - M[q]) / L[q] - 0.1) * V[x, d])\n",
        9,
    ),
    "shares of positive parts": (
        SCORES + "A[q, x] = relu(S[q, x])\nL[q] = sum[x](A[q, x])\n"
        "O[q, d] = sum[x](relu(A[q, x] / L[q] - 0.1) * V[x, d])\n",
        9,
    ),
    "shares of squares": (
        SCORES + "A[q, x] = S[q, x] * S[q, x]\nL[q] = sum[x](A[q, x])\n"
        "O[q, d] = sum[x](where(A[q, x] / L[q] > 0.1, S[q, x], 0) * V[x, d])\n",
        9,
    ),
    "over the norm, of either sign": (
        SCORES + "N[q] = sqrt(sum[x](S[q, x]**2))\n"
        "O[q, d] = sum[x](where(abs(S[q, x] / N[q]) > 0.5, S[q, x] / N[q], 0) * V[x, d])\n",
        3,
    ),
    "over the norm, positive ones": (
        SCORES + "W[q, x] = l2norm[x](S[q, x])\nO[q, d] = sum[x](relu(W[q, x] - 0.5) * V[x, d])\n",
        3,
    ),
    "the weight squared": (SOFTMAX + "O[q, d] = sum[x](relu(P[q, x]**2 - 0.01) * V[x, d])\n", 9),
    "the root of the weight": (SOFTMAX + "O[q, d] = sum[x](relu(sqrt(P[q, x]) - 0.5) * V[x, d])\n", 3),
    "beside a plain sum": (SOFTMAX + "O[q, d] = sum[x]((P[q, x] + relu(P[q, x] - 0.1)) * V[x, d])\n", 9),
    "a maximum of what counts": (SOFTMAX + "O[q, d] = max[x](where(P[q, x] > 0.1, V[x, d], -inf))\n", 9),
    "whether one counts": (SOFTMAX + "C[x]: bool\nO[q] = any[x](P[q, x] > 0.3 and C[x])\n", 3),
    "times what is not bounded": (
        SOFTMAX + "U[q, x]: fp32\nO[q, d] = sum[x](relu(P[q, x] - 0.1) * exp(U[q, x]) * V[x, d])\n",
        9,
    ),
}

# look-alikes that no list is long enough for
NO_LISTS: dict[str, str] = {
    "no threshold": "O[q, d] = sum[x](sqrt(P[q, x]) * exp(P[q, x]) * V[x, d])\n",
    "a threshold of 0": "O[q, d] = sum[x](where(P[q, x] > 0, exp(P[q, x]), 0) * V[x, d])\n",
    "the small ones count": "O[q, d] = sum[x](where(P[q, x] < 0.1, sqrt(P[q, x]) * exp(P[q, x]), 0) * V[x, d])\n",
    "the small ones count by a kink of each key": "B[x]: fp32\nO[q, d] = sum[x](min(P[q, x], B[x]) * V[x, d])\n",
    "an offset of each key": "B[x]: fp32\nO[q, d] = sum[x](round(127 * P[q, x] + B[x]) * V[x, d])\n",
    "an offset that rounds up": "O[q, d] = sum[x](round(127 * P[q, x] + 0.6) * V[x, d])\n",
    "against the largest weight": (
        "N[q] = max[x](P[q, x])\nO[q, d] = sum[x](where(P[q, x] > 0.1 * N[q], P[q, x], 0) * V[x, d])\n"
    ),
    "against the mean weight": "O[q, d] = sum[x](relu(P[q, x] - 1 / size(x)) * V[x, d])\n",
    "a threshold of each row": "t[q]: fp32\nO[q, d] = sum[x](relu(P[q, x] - t[q]) * V[x, d])\n",
    "weights that do not sum to 1": (
        "M[q] = max[x](S[q, x])\nO[q, d] = sum[x](relu(exp(S[q, x] - M[q]) - 0.1) * V[x, d])\n"
    ),
    "shares of any sign": "L[q] = sum[x](S[q, x])\nO[q, d] = sum[x](relu(S[q, x] / L[q] - 0.1) * V[x, d])\n",
    "over the root of the mean square": (
        "N[q] = sqrt(mean[x](S[q, x]**2))\n"
        "O[q, d] = sum[x](where(abs(S[q, x] / N[q]) > 0.5, S[q, x] / N[q], 0) * V[x, d])\n"
    ),
}


def proved(text: str, axis: str = "x", draws: int = 4) -> tuple[Verdict, Plan, tuple[Trial, ...]]:
    """The verdict, its plan, and trials of it."""
    diagram = parse(text)
    opened = open_diagram(diagram)
    values = diagram.values()
    plan = plan_axis(opened, axis, values)
    trials = try_plan(opened, plan, values, draws=draws, definitions=diagram.definitions)
    return prove(opened, axis, values, definitions=diagram.definitions), plan, trials


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections(name: str) -> None:
    text, verdict, state = SELECTIONS[name]
    found, plan, trials = proved(text)
    assert found.verdict == verdict, found.refusal
    assert found.state_values == state, found.state
    assert trials
    assert all(t.passed for t in trials), trials
    if verdict.startswith("one-pass"):
        assert max(t.parts for t in trials) > 1  # pieces were merged
    assert {s.repair for s in found.state if plan.box(s.name).into is not None} <= {"list"}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_thresholds(name: str) -> None:
    text, slots = THRESHOLDS[name]
    found, plan, trials = proved(text)
    assert found.verdict == f"one-pass-list({slots})", found.refusal
    assert dict(plan.lengths) == {f"slot{slots}": slots}
    assert len(trials) == 4
    assert all(t.passed for t in trials), trials
    assert max(dict(t.axes)["x"] for t in trials) > slots  # the list had to choose
    assert [p.passes for p in found.plans] == [1, 2]  # a second walk is the plan with less state
    assert any("at most" in i and f"{slots} largest" in i for i in found.identities)


@pytest.mark.parametrize("name", NO_LISTS)
def test_what_has_no_threshold_has_no_list(name: str) -> None:
    found, plan, trials = proved((SOFTMAX if "P[" in NO_LISTS[name] else SCORES) + NO_LISTS[name], draws=2)
    assert not any(is_list(b) for b in plan.boxes)
    assert plan.passes == 2
    assert found.verdict in ("k-pass(2)", "unproved")
    assert all(t.passed for t in trials)


def test_a_threshold_that_follows_the_axis_is_none() -> None:
    found, plan, _ = proved("t0 = 1 / x\n" + SOFTMAX + "O[q, d] = sum[x](relu(P[q, x] - t0) * V[x, d])\n", draws=1)
    assert found.verdict == "k-pass(2)"
    assert plan.lengths == ()


@pytest.mark.parametrize(
    "name", ["relu", "above", "rounded", "the number of large weights", "over the norm, of either sign"]
)
def test_a_list_that_is_too_short_fails_its_trials(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = thresholds.Threshold.slots.fget
    assert right is not None
    monkeypatch.setattr(thresholds.Threshold, "slots", property(lambda t: right(t) - 1))
    text, slots = THRESHOLDS[name]
    _, plan, trials = proved(text.replace("80", "81"))  # another plan than is remembered
    assert dict(plan.lengths) == {f"slot{slots - 1}": slots - 1}
    assert not all(t.passed for t in trials)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (
            "k = x\nX[q, x]: fp32\nZ[q, k] = topk[x](X[q, x], into=k)\n"
            "O[q] = sum[k](where(k == size(k) // 2, Z[q, k], 0))\n",
            80,
        ),
        ("k = x // 4\nX[q, x]: fp32\nZ[q, k] = topk[x](X[q, x], into=k)\nO[q] = mean[k](Z[q, k])\n", 20),
        (
            "k = x\nX[q, x]: fp32\nZ[q, k] = topk[x](X[q, x], into=k)\nC[q, k] = cumsum[k](Z[q, k])\n"
            "N[q] = sum[k](where(1 + (k + 1) * Z[q, k] > C[q, k], 1, 0))\n"
            "T[q] = (sum[k](where(1 + (k + 1) * Z[q, k] > C[q, k], Z[q, k], 0)) - 1) / N[q]\n"
            "O[q] = sum[x](relu(X[q, x] - T[q]))\n",
            81,
        ),
    ],
    ids=["median", "a quarter", "sparsemax"],
)  # fmt: skip
def test_a_list_that_grows_with_the_axis_is_no_state(text: str, whole: int) -> None:
    found, _, trials = proved("q, x = 64, 80\n" + text)
    assert found.verdict == "unbounded"
    assert found.refusal is not None
    assert found.refusal.startswith("Z is a list of k slots, and k grows with x")
    assert found.nearest is not None
    assert "does not follow x" in found.nearest
    assert found.state_values == whole
    assert all(t.passed for t in trials)  # the plan is right; its state is what grows
    with pytest.raises(Refused, match="x is unbounded, which no certificate can hold"):
        certify(parse("q, x = 64, 80\n" + text), found)


def test_a_list_of_a_number_of_its_own_is_a_state() -> None:
    found, _, _ = proved("q, x, k = 64, 80, 80\nX[q, x]: fp32\nZ[q, k] = topk[x](X[q, x], into=k)\n", draws=1)
    assert found.verdict == "one-pass-list(80)"


def test_without_sizes_the_axis_stands_for_the_length() -> None:
    found = prove(open_diagram(parse(SCORES + TOP)), "x")
    assert found.verdict == "one-pass-list(k)"


def test_the_words_of_a_list() -> None:
    found, _, _ = proved(SOFTMAX + "O[q, d] = sum[x](relu(P[q, x] - 0.25) * V[x, d])\n", draws=1)
    assert "O.top = topk[slot3](O.top, S)" in found.body
    assert "O.at = argtopk[slot3](O.at, x by S)" in found.body
    assert "V.pick = pick[slot3](V.pick, V by S)" in found.body
    assert found.merge is not None
    assert "V.pick = pick[slot3](V.pick₁, V.pick₂ by O.top)" in found.merge
    assert found.lists == (("slot3", 3),)
    assert [r.repair for r in found.cascade] == ["none", "rescale", "list"]
    starts = {s.name: s.identity for s in found.state}
    assert (starts["O.top"], starts["O.at"], starts["V.pick"]) == ("-inf", "size(x)", "0")


def test_ties_go_to_the_lower_position_in_any_order_of_the_steps() -> None:
    diagram = parse("q, x, k = 1, 6, 3\nX[q, x]: fp32\nI[q, k] = argtopk[x](X[q, x], into=k)\n")
    opened = open_diagram(diagram)
    plan = plan_axis(opened, "x", diagram.values())
    data = {"X": np.array([[1.0, 2.0, 2.0, 0.0, 2.0, 2.0]])}
    for steps in ([4, 0, 2], [2, 4, 0], [0, 2, 4]):
        walk = [{"x": (n, n + 2)} for n in steps]
        assert PlanMachine(diagram.values(), data).streamed(plan, walk)["I"].tolist() == [[1, 2, 4]]
        assert PlanMachine(diagram.values(), data).merged(plan, [[s] for s in walk])["I"].tolist() == [[1, 2, 4]]


def test_spans_keep_their_ends() -> None:
    half = Fraction(1, 2)
    below = Span(Fraction(0), half, hi_open=True)
    assert Span(Fraction(0), half).rounded() == Span.point(0)  # half to even
    assert Span(Fraction(0), 3 * half).rounded() == Span(Fraction(0), Fraction(2))
    assert Span(Fraction(0), 3 * half, hi_open=True).rounded() == Span(Fraction(0), Fraction(1))
    assert below.times(Fraction(2)).floored() == Span.point(0)
    assert Span(Fraction(0), Fraction(1)).floored() == Span(Fraction(0), Fraction(1))
    assert below.times(Fraction(-1)) == Span(-half, Fraction(0), lo_open=True)
    assert Span(Fraction(-2), Fraction(1), True, False).size() == Span(Fraction(0), Fraction(2), False, True)
    assert (below + Span.point(-half)).below_zero
    assert Span(Fraction(-2), Fraction(1)).power(Fraction(2)) == Span(Fraction(0), Fraction(4))


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [("0.0999999", "0.1000001", "1/10"), ("2/509", "2/507", "1/254"), ("0.3", "0.4", "1/3"), ("2", "3", "2")],
)
def test_the_simplest_fraction_between_two(low: str, high: str, found: str) -> None:
    assert simplest(Fraction(low), Fraction(high)) == Fraction(found)
