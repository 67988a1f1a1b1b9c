"""Safe forms: nothing overflows in single precision for scores of 1e4, and hard cases stop at their budget."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.execution.trial_data import PLAIN, Subject, data
from ioweave.derive.streaming import budget
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams import arithmetic
from ioweave.diagrams.library import load
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram

SOFTMAXES = {
    "attention": "x", "causal_attention": "x", "alibi_attention": "x", "pair_bias_attention": "x",
    "sink_attention": "x", "attention_statistics": "x", "sliding_window_attention": "x", "document_attention": "x",
    "differential_attention": "x", "latent_decode": "x", "softmax_one_attention": "x", "l2_attention": "x",
    "grouped_query_attention": "x", "squared_weights_attention": "x", "softmax_entropy": "v",
    "cross_entropy": "v", "cross_entropy_smoothing_z_loss": "v", "talking_heads_attention": "x",
}  # fmt: skip
NO_MAXIMUM = """
q, x, d, e = 4, 9, 3, 2
Q[q, d]: fp32
K[x, d]: fp32
V[x, e]: fp32
c[q]: fp32
S[q, x] = sum[d](Q[q, d] * K[x, d])
O[q, e] = sum[x](exp(S[q, x]) * V[x, e]) / (sum[x](exp(S[q, x])) + exp(c[q]))
"""


def _single(f: Any) -> Any:
    def narrow(a: Any) -> Any:
        a = np.asarray(a)
        return a.astype(np.float32) if a.dtype == np.float64 else a

    return lambda *args: narrow(f(*(narrow(a) for a in args)))


def _streamed(text: Any, axis: str, monkeypatch: pytest.MonkeyPatch, step: int = 2) -> dict[str, Any]:
    """The outputs of the plan for an axis, in single precision, for scores of about 1e4."""
    diagram = text
    opened = open_diagram(diagram)
    plan = plan_axis(opened, axis, diagram.values())
    names = {n for n, v in diagram.values().items() if isinstance(v, int) and v > 9}
    sizes = {n: (3 if n in names else v) for n, v in diagram.values().items()}
    sizes |= {d.name: sizes[axis] for d in diagram.definitions if d.name == axis} | {axis: 9}
    for d in diagram.definitions:  # what is tied to the axis follows it
        if d.name != axis and diagram.values().get(d.name) == diagram.values().get(axis) and d.name in names:
            sizes[d.name] = 9
    subject = Subject.of(opened, (), plan.streamed)
    values = subject.sizes_of(sizes)
    arrays = data(subject, values, PLAIN, {axis: step}, 3)
    arrays = {n: (a * 60.0).astype(np.float32) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    for name, f in list(arithmetic.FUNCTIONS.items()):
        monkeypatch.setitem(arithmetic.FUNCTIONS, name, _single(f))
    machine = PlanMachine(values, arrays)
    steps = [{axis: (k, min(k + step, 9))} for k in range(0, 9, step)]
    return {n: machine.streamed(plan, steps)[n] for n in opened.outputs}


@pytest.mark.parametrize("name", SOFTMAXES)
def test_large_scores_do_not_overflow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _streamed(load(name), SOFTMAXES[name], monkeypatch)
    for output, values in found.items():
        assert np.isfinite(values).all(), output


def test_a_maximum_left_out_is_kept_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.isfinite(_streamed(parse(NO_MAXIMUM), "x", monkeypatch)["O"]).all()


def test_a_hard_case_stops_at_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "q, x = 4, 16\nA[q, x]: fp32\nw[x]: fp32\nN[q, x] = layernorm[x](A[q, x])\n"
        "R[q, x] = layernorm[x](N[q, x] * w[x])\nZ[q] = sum[x](R[q, x] * w[x])\n"
    )
    diagram = parse(text)
    opened = open_diagram(diagram)
    values = diagram.values()
    assert prove(opened, "x", values).verdict == "one-pass"
    monkeypatch.setattr(budget, "TERMS", 40)
    found = prove(opened, "x", values | {"q": 5})
    assert found.verdict == "unproved"
    assert "40 terms" in (found.refusal or "")


def test_three_norms_in_a_row_take_seconds_not_minutes() -> None:
    head = "q, x = 4, 16\nA[q, x]: fp32\nB[q, x]: fp32\nw[x]: fp32\n"
    norms = "N[q, x] = layernorm[x](A[q, x])\nR[q, x] = layernorm[x](N[q, x] * w[x] + B[q, x])\n"
    diagram = parse(
        f"{head}{norms}T[q, x] = layernorm[x](R[q, x] * w[x] + A[q, x])\nZ[q] = sum[x](T[q, x] * B[q, x])\n"
    )
    start = time.process_time()
    prove(open_diagram(diagram), "x", diagram.values())
    assert time.process_time() - start < 40
