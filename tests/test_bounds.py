"""Lower bounds: never above what the best schedule moves, and no less than what is plainly needed."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ioweave.derive.bounds.lower import Bound, bound
from ioweave.derive.bounds.needed import compulsory
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.library import load, names
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram


def bound_of(text: str, capacity: float = 1 << 17) -> Bound:
    diagram = parse(text)
    return bound(open_diagram(diagram), diagram.values(), capacity)


def needed(text: str) -> dict[str, int]:
    diagram = parse(text)
    return {name: values for name, values, _ in compulsory(open_diagram(diagram), diagram.values()).arrays}


def test_matmul() -> None:
    diagram = load("matmul")
    found = bound(open_diagram(diagram), diagram.values(), 128 * 1024)
    assert found.values == 2 * 4096**3 / 256 - 2 * 65536 == 536_739_840
    assert found.bytes == 2 * found.values
    record = found.to_json(after=570_425_344)
    assert record["ratio"] == pytest.approx(570_425_344 / 536_739_840)
    assert [c["values"] for c in record["candidates"]] == [3 * 4096**2, 536_739_840]
    assert record["assumes"]


def test_attention_needs_each_array_once() -> None:
    diagram = load("attention")
    found = bound(open_diagram(diagram), diagram.values(), 128 * 1024)
    assert found.values == 4 * 4096 * 64
    assert "compulsory" in found.because


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.integers(1, 24)] * 3), st.integers(3, 200))
def test_no_tiling_of_a_small_product_beats_the_bound(sizes: tuple[int, int, int], memory: int) -> None:
    a, b, c = sizes
    text = f"a, b, c = {a}, {b}, {c}\nX[a, b]: fp16\nY[b, c]: fp16\nZ[a, c] = sum[b](X[a, b] * Y[b, c])"
    found = bound_of(text, 2 * memory).values
    outer = [
        a * b * math.ceil(c / gc) + b * c * math.ceil(a / ga) + a * c
        for ga, gc in product(range(1, a + 1), range(1, c + 1))
        if ga + gc + ga * gc <= memory
    ]
    strips = [  # a strip of X stays, Y and Z pass by
        a * b + b * c * math.ceil(a / ga) + a * c for ga in range(1, a + 1) if ga * b + b + 1 <= memory
    ]
    assert found <= min(outer + strips)


def test_batches_share_the_memory() -> None:
    text = "h, a = 8, 1024\nb, c = a, a\nX[h, a, b]: fp16\nY[h, b, c]: fp16\n" + (
        "Z[h, a, c] = sum[b](X[h, a, b] * Y[h, b, c])"
    )
    assert bound_of(text, 2 * 4096).values == 2 * 8 * 1024**3 / 64 - 2 * 4096


def test_a_map_of_the_product_alone_keeps_the_bound() -> None:
    head = "a = 1024\nb, c = a, a\nX[a, b]: fp16\nY[b, c]: fp16\n"
    plain = bound_of(head + "Z[a, c] = sum[b](X[a, b] * Y[b, c])", 8192).values
    assert bound_of(head + "Z[a, c] = relu(sum[b](X[a, b] * Y[b, c]) * 2)", 8192).values == plain
    reduced = bound_of(head + "Z[a, c] = sum[b](X[a, b] * Y[b, c])\nR[a] = max[c](Z[a, c])", 8192)
    assert len(reduced.candidates) == 1  # the product never has to leave
    square = bound_of("a, b = 1024, 1024\nX[a, b]: fp16\nc = a\nZ[a, c] = sum[b](X[a, b] * X[c, b])", 8192)
    assert len(square.candidates) == 1  # a symmetric product has a lower bound of its own


def test_memory_counts_in_the_narrowest_type() -> None:
    text = "a = 1024\nb, c = a, a\nX[a, b]: fp16\nY[b, c]: fp8\nZ[a, c]: fp32 = sum[b](X[a, b] * Y[b, c])"
    assert bound_of(text, 4096).values == 2 * 1024**3 / 64 - 2 * 4096


def test_windows_count_the_elements_they_reach() -> None:
    counted = needed("i, k = 10, 3\nX[i + k - 1]: fp32\nW[k]: fp32\nY[i] = sum[k](X[i + k] * W[k])")
    assert counted == {"X": 12, "W": 3, "Y": 10}
    strided = needed("i, k = 5, 2\nX[3 * i]: fp32\nY[i] = sum[k](X[3 * i + k])")
    assert strided == {"X": 10, "Y": 5}
    diagonal = needed("i = 7\nX[i, i]: fp32\nY[i] = X[i, i] * 2")
    assert diagonal == {"X": 7, "Y": 7}


def test_masks() -> None:
    causal = "q, x, d = {}, {}, 8\nQ[q, d]: fp16\nK[x, d]: fp16\nV[x, d]: fp16\n" + (
        "S[q, x] = where(x <= q, sum[d](Q[q, d] * K[x, d]), -inf)\n"
        "P[q, x] = softmax[x](S[q, x])\nO[q, d] = sum[x](P[q, x] * V[x, d])"
    )
    assert needed(causal.format(64, 64)) == {"Q": 512, "K": 512, "V": 512, "O": 512}
    assert needed(causal.format(16, 64)) == {"Q": 128, "K": 128, "V": 128, "O": 128}
    assert needed(causal.format(1 << 20, 1 << 20))["K"] == 1 << 23
    triangle = "q, x = 5, 7\nA[q, x]: fp32\nY[q] = sum[x](where(x <= q, A[q, x], 0))"
    assert needed(triangle) == {"A": 15, "Y": 5}
    factor = "q, x = 5, 7\nA[x]: fp32\nY[q] = sum[x](A[x] * (x < q))"
    assert needed(factor) == {"A": 4, "Y": 5}
    never = "q, x = 5, 7\nA[x]: fp32\nY[q] = sum[x](where(x > 9, A[x], 0))"
    assert needed(never) == {"Y": 5}


def test_what_cannot_be_told_is_left_out() -> None:
    either = "q, x = 5, 7\nA[x]: fp32\nB[x]: fp32\nY[q] = sum[x](where(x <= q, A[x], B[x]))"
    assert needed(either) == {"Y": 5}
    shifted = "q = 9\nA[q]: fp32\nY[q] = where(q > 0, A[q - 1], 0)"
    assert needed(shifted) == {"Y": 9}
    part = "q = 9\nA[q, q]: fp32\nS[q, x] = A[q, x] * 2\nx = q\nY[q] = S[q, q]"
    assert needed(part) == {"Y": 9}


def test_every_catalogue_entry_has_a_bound() -> None:
    for name in names():
        diagram = load(name)
        opened, sizes = open_diagram(diagram), diagram.values()
        outputs = sum(math.prod(int(sizes[base_name(a)]) for a in opened.box(o).axes) for o in opened.outputs)
        assert bound(opened, sizes, 128 * 1024).values >= outputs
