"""Execution in counted memory: values equal the reference, counts equal the cases and the analytic counter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from first import FIRST
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import diagrams

from ioweave.derive.counting.levelled import place
from ioweave.derive.counting.region import count_region
from ioweave.derive.execution.check import check, check_once
from ioweave.derive.execution.draws import draw_schedule
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.run import execute
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import DoesNotFit, Refused
from ioweave.diagrams.expressions import reads
from ioweave.diagrams.library import load
from ioweave.diagrams.notation import parse
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.notation import parse_levelled, print_levelled

HERE = Path(__file__).resolve().parent
CASES = sorted((HERE / "cases").glob("*.weave"))

ATTENTION = """
q, x, d = 128, 256, 64

Q[q, d]: fp16
K[x, d]: fp16
V[x, d]: fp16
with level("smem", group={q: 32}, stream={x: 16}):
    S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)
    P[q, x] = softmax[x](S[q, x])
    O[q, d] = sum[x](P[q, x] * V[x, d])
"""

VARIANTS = {
    "window": """
q, x, d = 9, 9, 4

Q[q, d]: fp16
K[x, d]: fp16
V[x, d]: fp16
S[q, x] = where(0 <= q - x < 3, sum[d](Q[q, d] * K[x, d]) / sqrt(d), -inf)
P[q, x] = softmax[x](S[q, x])
O[q, d] = sum[x](P[q, x] * V[x, d])
""",
    "future": """
q, x, d, e = 9, 9, 4, 3

Q[q, d]: fp16
K[x, d]: fp16
V[x, e]: fp32
R[q]: fp32
S[q, x] = sum[d](Q[q, d] * K[x, d])
M[q, x] = where(x >= q + 2, S[q, x], -inf)
P[q, x] = softmax[x](M[q, x])
O[q, e] = sum[x](P[q, x] * V[x, e])
Y[q, e] = O[q, e] * R[q]
""",
    "blocks": """
q, x, d = 9, 9, 4

Q[q, d]: fp16
K[x, d]: fp16
V[x, d]: fp16
S[q, x] = sum[d](Q[q, d] * K[x, d]) - 0.25 * abs(q - x)
L[q] = logsumexp[x](where(x // 4 == q // 4, S[q, x], -inf))
E[q, x] = (x <= q) * exp(S[q, x] - L[q])
O[q, d] = sum[x](E[q, x] * V[x, d])
""",
    "shift": """
i, c, n = 9, 3, 12

X[n, c]: fp16
W[c]: fp32
T[i, c] = where(i >= 2, X[i - 2, c], 0) + X[i, c] * W[c]
U[i, c] = where(i >= 1, T[i - 1, c], 0) + T[i, c]
Z[c] = max[i](U[i, c])
""",
    "labels": """
t, v, m = 6, 9, 3

Z[t, v]: fp32
keep[t, v]: bool
label[t]: int32
W[v, m]: fp16
H[t] = any[v](keep[t, v] and v != label[t])
F[t, v] = where(keep[t, v], Z[t, v], -inf)
P[t, v] = softmax[v](F[t, v])
Y[t, m] = sum[v](P[t, v] * W[v, m])
C[t] = mean[v](Z[t, v], where=v <= label[t])
out(H, Y, C)
""",
    "norms": """
t, m, n = 5, 7, 4

X[t, m]: fp16
W[m, n]: fp16
A[t, m] = rmsnorm[m](X[t, m])
B[t, m] = layernorm[m](X[t, m], eps=1e-3)
Y[t, n] = sum[m](A[t, m] * W[m, n]) + sum[m](B[t, m] * W[m, n]) * 2
D[t, m] = l2norm[m](X[t, m])
out(Y, D)
""",
    "positive": """
q, d = 6, 3

X[q, d]: fp32
G[q]: fp32 > 0
S[q] = sum[d](X[q, d] * where(q >= 1, X[q - 1, d], 1))
N[q] = mean[d](X[q, d]**2) / G[q]
A = max[q](S[q] + N[q])
Y[q] = exp(S[q] - A) * G[q]
""",
}


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
@pytest.mark.parametrize("accumulate", ["same", "fp32"])
def test_a_case_moves_what_it_says(path: Path, accumulate: str) -> None:
    want = json.loads(path.with_suffix(".json").read_text("utf-8"))
    levelled = parse_levelled(path.read_text("utf-8"), path.name)
    values = levelled.diagram.values()
    inputs = draw_inputs(levelled.diagram, values, 0)
    done = execute(place(levelled, values, accumulate), inputs)
    assert {k: n for k, n in done.loads.items() if n} == want["loads"]
    assert done.stores == want["stores"]
    row = check_once(levelled, values, inputs, 0, accumulate).row
    assert row.passed, row.because


@pytest.mark.parametrize("name", FIRST)  # the others run at three, in test_catalogue.py
def test_an_entry_checks_at_ten_draws(name: str) -> None:
    rows = [c.row for c in check(load(name))]
    assert len(rows) == 10
    assert all(max(row.axes.values()) <= 64 for row in rows)
    assert not [(row.axes, row.tiles, row.because) for row in rows if not row.passed]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("accumulate", ["same", "fp32"])
def test_variants_check_at_ten_draws(name: str, accumulate: str) -> None:
    rows = [c.row for c in check(parse(VARIANTS[name], name), seed=11, accumulate=accumulate)]
    assert not [(row.axes, row.tiles, row.because) for row in rows if not row.passed]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams(tame=True, most_lines=4, depth=2), st.integers(0, 10_000))
def test_random_diagrams_by_random_schedules(diagram: Diagram, seed: int) -> None:
    if any(_ties_positions(diagram)):
        return
    values = diagram.values()
    levelled = draw_schedule(diagram, values, np.random.default_rng(seed), {})
    try:
        for p in place(levelled, values):
            count_region(p.program, p.tiles, p.setting, p.buffers)
    except Refused:
        return
    row = check_once(levelled, values, draw_inputs(diagram, values, seed), seed).row
    assert row.passed, f"{row.because}\n{print_levelled(levelled)}"


def _ties_positions(diagram: Diagram) -> list[bool]:
    """Whether each read has an axis in two positions: a diagonal through a window is counted as a block."""
    found = []
    for line in diagram.lines:
        for r in reads(line.expr):
            axes = [a for form in r.index for a in form.names]
            found.append(len(axes) != len(set(axes)))
    return found


def test_attention_holds_what_the_paper_counts() -> None:
    levelled = parse_levelled(ATTENTION)
    values = levelled.diagram.values()
    (region,) = execute(place(levelled, values, "same"), draw_inputs(levelled.diagram, values, 0)).regions
    assert region.transfers.values == 147_456
    assert region.memory.values == 6_752
    assert region.memory.bytes == 2 * 6_752
    assert region.memory.column == "P.max"
    assert region.flops.mma == 2 * 2 * 128 * 256 * 64
    trips = 4 * 16
    # exp of the scores and of the change of the maximum in each trip, and the division by the sum
    assert region.flops.special == 128 * 256 + trips * 32 + 128 * 64


def test_attention_in_parts_moves_the_state() -> None:
    text = ATTENTION.replace("128, 256, 64", "4, 8, 3").replace("group={q: 32}, stream={x: 16}", "group={q: 2, x: 4}")
    levelled = parse_levelled(text)
    values = levelled.diagram.values()
    done = execute(place(levelled, values, "same"), draw_inputs(levelled.diagram, values, 0))
    assert [r.name for r in done.regions] == ["O", "merge(O)"]
    assert sum(r.transfers.values for r in done.regions) == 212
    assert done.stores == {"state(O)": 40, "O": 12}
    assert done.loads["state(O)"] == 40
    assert check_once(levelled, values, draw_inputs(levelled.diagram, values, 3)).row.passed


def test_what_does_not_fit_is_refused() -> None:
    levelled = parse_levelled(ATTENTION)
    values = levelled.diagram.values()
    inputs = draw_inputs(levelled.diagram, values, 0)
    placed = place(levelled, values, "same")
    execute(placed, inputs, capacity=13_504)
    with pytest.raises(DoesNotFit) as refused:
        execute(placed, inputs, capacity=13_503)
    assert refused.value.least == 13_504
    row = check_once(levelled, values, inputs, accumulate="same", capacity=13_503).row
    assert not row.passed
    assert "13,504 bytes" in row.because


def test_a_skipped_first_tile_leaves_the_state_at_its_identity() -> None:
    text = """
q, x, e = 4, 8, 2

A[q, x]: fp32
V[x, e]: fp32
with level("smem", stream={x: 2}):
    P[q, x] = softmax[x](where(x >= 4, A[q, x], -inf))
    O[q, e] = sum[x](P[q, x] * V[x, e])
"""
    levelled = parse_levelled(text)
    values = levelled.diagram.values()
    done = execute(place(levelled, values), draw_inputs(levelled.diagram, values, 0))
    assert done.loads == {"A": 16, "V": 8}
    assert check_once(levelled, values, draw_inputs(levelled.diagram, values, 1)).row.passed


def test_a_loop_inside_a_step_repeats_it_from_the_same_state() -> None:
    diagram = parse(ATTENTION.replace('with level("smem", group={q: 32}, stream={x: 16}):', "").replace("    ", ""))
    region = Region("O", "smem", ("S", "P", "O"), stream=(("x", 3), ("d'", 2), ("q", 2)))
    levelled = Levelled(diagram, (region,))
    values = diagram.values({"q": 5, "x": 8, "d": 4})
    row = check_once(levelled, values, draw_inputs(diagram, values, 0)).row
    assert row.passed, row.because


def test_a_fully_masked_row_is_zero_and_free() -> None:
    text = """
q, x = 4, 3

A[q, x]: fp32
P[q, x] = softmax[x](where(x < q, A[q, x], -inf))
L[q] = logsumexp[x](where(x < q, A[q, x], -inf))
out(P)
"""
    diagram = parse(text)
    values = diagram.values()
    (checked,) = check(diagram, sizes={})
    assert checked.row.passed
    assert checked.row.not_finite == 1
    assert np.array_equal(checked.arrays["P"][0], np.zeros(3))
    assert checked.arrays["L"][0] == -np.inf
    assert values["q"] == 4
