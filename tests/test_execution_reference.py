"""The reference and the draws of inputs: what execution is compared with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from ioweave.derive.execution.draws import draw_sizes
from ioweave.derive.execution.inputs import draw_inputs, given_inputs, integer_range
from ioweave.derive.execution.reference import evaluate
from ioweave.derive.program.arithmetic_cost import operand_axes, operations, product_operations
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram


def run(text: str, **arrays: object) -> dict[str, np.ndarray]:
    diagram = parse(text)
    return evaluate(diagram, diagram.values(), {k: np.asarray(a) for k, a in arrays.items()})


def test_causal_attention_is_what_numpy_says() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 7, 5))
    text = """
q, d = 7, 5
x = q
Q[q, d]: fp16
K[x, d]: fp16
V[x, d]: fp16
S[q, x] = where(x <= q, sum[d](Q[q, d] * K[x, d]) / sqrt(d), -inf)
P[q, x] = softmax[x](S[q, x])
O[q, d] = sum[x](P[q, x] * V[x, d])
"""
    scores = np.where(np.tri(7, dtype=bool), q @ k.T / np.sqrt(5), -np.inf)
    found = run(text, Q=q, K=k, V=v)
    assert np.allclose(found["O"], softmax(scores, axis=1) @ v, rtol=1e-13)


def test_composites_over_joint_axes_and_guarded_reads() -> None:
    a = np.arange(12.0).reshape(3, 4)
    text = """
i, j = 3, 4
A[i, j]: fp32
P[i, j] = softmax[i, j](A[i, j])
L = logsumexp[i, j](A[i, j])
B[i, j] = where(i >= 1, A[i - 1, j], 0) + where(j < 3, A[i, j + 1], -1)
N[i, j] = layernorm[j](A[i, j], eps=0)
M[i] = mean[j](A[i, j], where=j >= i)
T[j, i] = A[i, j] - max[i](A[i, j])
out(P, L, B, N, M)
"""
    found = run(text, A=a)
    assert np.allclose(found["P"], np.exp(a - logsumexp(a)))
    assert np.allclose(found["L"], logsumexp(a))
    up = np.vstack([np.zeros((1, 4)), a[:-1]])
    right = np.hstack([a[:, 1:], -np.ones((3, 1))])
    assert np.array_equal(found["B"], up + right)
    assert np.allclose(found["N"], (a - a.mean(1, keepdims=True)) / a.std(1, keepdims=True))
    assert np.allclose(found["M"], [a[0].mean(), a[1, 1:].mean(), a[2, 2:].mean()])
    assert np.array_equal(found["T"], (a - a.max(0)).T)


def test_large_bodies_are_taken_in_parts() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((60, 60, 40)), rng.standard_normal((60, 40))
    text = """
i, j, k, n = 60, 60, 40, 60
A[i, j, k]: fp32
B[n, k]: fp32
Y[i, n] = max[j, k](abs(A[i, j, k] - B[n, k]))
"""
    found = run(text, A=a, B=b)["Y"]
    for n in (0, 31, 59):
        assert np.array_equal(found[:, n], np.abs(a - b[n]).max(axis=(1, 2)))


def test_inputs_are_drawn_in_order_of_declaration() -> None:
    text = """
t, v = 5, 9
Z[t, v]: fp16
label[t]: int32
G[v]: fp32 > 0
keep[t]: bool
L[t] = sum[v](where(v == label[t] and keep[t], Z[t, v] * G[v], 0))
"""
    diagram = parse(text)
    values = diagram.values()
    found = draw_inputs(diagram, values, 3)
    rng = np.random.default_rng(3)
    assert np.array_equal(found["Z"], rng.standard_normal((5, 9)))
    assert np.array_equal(found["label"], rng.integers(0, 9, 5))
    assert np.array_equal(found["G"], np.abs(rng.standard_normal(9)) + 0.1)
    assert np.array_equal(found["keep"], rng.integers(0, 2, 5).astype(bool))
    assert integer_range("label", diagram, values) == 9


@pytest.mark.parametrize("seed", range(6))
def test_blocks_keep_facts(seed: int) -> None:
    diagram = parse("i, j = 6, 5\nA[i, j]: fp32\nG[i]: fp32 > 0\nY[i, j] = A[i, j] / G[i]\n")
    zeros = draw_inputs(diagram, diagram.values(), seed, "zeros")
    assert (zeros["A"] == 0).any()
    assert (zeros["G"] > 0).all()
    constant = draw_inputs(diagram, diagram.values(), seed, "constant")
    assert (constant["A"] != 0).all()


def test_drawn_sizes_keep_ties_and_make_the_file_valid() -> None:
    diagram = parse("i, n = 4, 8\nm = i\nX[n]: fp32\nW[m]: fp32\nY[i] = X[i + 2]\nZ = sum[i](Y[i]) * sum[m](W[m])\n")
    for seed in range(20):
        values = draw_sizes(diagram, np.random.default_rng(seed))
        assert values["m"] == values["i"]
        assert values["n"] >= values["i"] + 2
        assert values["n"] <= 64
    with pytest.raises(WeaveError):
        draw_sizes(diagram, np.random.default_rng(0), {"n": 2})


def test_given_arrays_must_fit() -> None:
    diagram = parse("i, j = 3, 2\nA[i, j]: fp32\nn[i]: int32\nY[i] = sum[j](A[i, j]) * (n[i] > 0)\n")
    a, n = np.ones((3, 2), np.float32), np.arange(3)
    assert given_inputs(diagram, diagram.values(), {"A": a, "n": n})["A"].dtype == np.float64
    for wrong, message in (
        ({"A": a}, "no array is given"),
        ({"A": a, "n": n, "m": n}, "is no input"),
        ({"A": a.T, "n": n}, r"\(2, 3\)"),
        ({"A": a, "n": n * 1.0}, "declared int32"),
    ):
        with pytest.raises(WeaveError, match=message):
            given_inputs(diagram, diagram.values(), wrong)


COSTS = [
    ("A[i] + B[i]", (1, 0)),
    ("A[i] / sqrt(i + 1)", (1, 0)),
    ("A[i] / B[i]", (0, 1)),
    ("exp(A[i] - B[i])", (1, 1)),
    ("-A[i]", (1, 0)),
    ("-2 * A[i]", (1, 0)),
    ("A[i] ** 2", (1, 0)),
    ("A[i] ** 3", (2, 0)),
    ("A[i] ** 8", (3, 0)),
    ("A[i] ** 0.5", (0, 1)),
    ("A[i] ** -1", (0, 1)),
    ("fp16(A[i]) * 3", (1, 0)),
    ("where(i > 2, A[i], 0)", (1, 0)),
    ("where(A[i] > 2, A[i], 0)", (2, 0)),
    ("max(A[i], 0) + relu(B[i])", (3, 0)),
    ("A[i] * (i // 2 + 1)", (1, 0)),
]


@pytest.mark.parametrize("text, cost", COSTS, ids=[c[0] for c in COSTS])
def test_operations_of_one_element(text: str, cost: tuple[int, int]) -> None:
    diagram = parse(f"i = 5\nA[i]: fp32\nB[i]: fp32\nY[i] = {text}\nZ[i] = A[i] + B[i]\nout(Y)\n")
    assert operations(open_diagram(diagram).box("Y").body) == cost


def test_operands_of_a_contraction_cost_over_their_own_axes() -> None:
    text = "q, x, d = 4, 5, 6\nQ[q, d]: fp16\nK[x, d]: fp16\nS[q, x] = sum[d](exp(Q[q, d]) * 0.5 * K[x, d])\n"
    box = open_diagram(parse(text)).box("S")
    sides = operand_axes(box)
    assert {axes for _, axes in sides} == {("q", "d"), ("x", "d")}
    assert {axes: product_operations(factors) for factors, axes in sides}[("x", "d")] in {(0, 0), (1, 0)}
    assert sum(product_operations(f)[0] for f, _ in sides) == 1
    assert operand_axes(open_diagram(parse("i = 3\nA[i]: fp32\nY = sum[i](A[i])\n")).box("Y")) == ()
