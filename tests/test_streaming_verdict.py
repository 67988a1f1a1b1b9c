"""Verdicts on whole diagrams, against the report's schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from test_streaming_interpreter import opened

from ioweave.derive.streaming.verdict import prove
from ioweave.diagrams.errors import WeaveError
from ioweave.hierarchy.verdicts import Verdict

ROOT = Path(__file__).parent.parent / "ioweave"
SCHEMA = json.loads((ROOT / "hierarchy" / "report.schema.json").read_text())


def verdict(name: str, axis: str, accumulate: str = "fp32") -> Verdict:
    o, values = opened((ROOT / "diagrams" / "catalogue" / f"{name}.weave").read_text())
    v = prove(o, axis, values, accumulate)
    jsonschema.validate(v.to_json(), {"$defs": SCHEMA["$defs"], **SCHEMA["$defs"]["verdict"]})
    return v


@pytest.mark.parametrize(
    ("name", "axis", "expected", "values"),
    [
        ("attention", "x", "one-pass", 66),
        ("causal_attention", "x", "one-pass", 66),
        ("grouped_query_attention", "x", "one-pass", 130),
        ("cross_entropy", "v", "one-pass", 3),
        ("rmsnorm_matmul", "m", "one-pass", 6145),
        ("spherical_attention", "x", "one-pass", 65),
        ("matmul", "b", "one-pass", 1),
        ("swiglu_mlp", "f", "one-pass", 1),
        ("column_sums", "x", "k-pass(2)", 2),
        ("column_sums", "q", "one-pass", 1),
        ("layernorm", "m", "k-pass(2)", 2),
        ("attention", "q", "one-pass", 0),
    ],
)
def test_catalogue(name: str, axis: str, expected: str, values: int) -> None:
    v = verdict(name, axis)
    assert (v.verdict, v.state_values) == (expected, values)
    assert v.streams == (expected == "one-pass")
    assert (v.refusal is None) == v.streams
    assert (v.merge is None) == (not v.streams)


def test_attention_in_formulas() -> None:
    v = verdict("attention", "x")
    assert v.body == (
        "S.sum = sum[d](Q * K)",
        "S = S.sum / sqrt(d)",
        "P.max = max(P.max, max[x](S))",
        "P.max.delta = exp(old(P.max) - P.max)",
        "P.exp = exp(S - P.max)",
        "P.sum = P.max.delta * P.sum + sum[x](P.exp)",
        "O.acc = P.max.delta * O.acc + sum[x](P.exp * V)",
    )
    assert v.head == ("P.max = -inf", "P.sum = 0", "O.acc = 0")
    assert v.tail == ("O = O.acc / P.sum",)
    assert v.merge is not None
    assert v.merge.startswith("P.max = max(P.max₁, P.max₂); P.sum = exp(P.max₁ - P.max) * P.sum₁ +")
    assert [s.repair for s in v.state] == ["none", "rescale", "rescale"]
    assert v.state_bytes == 4 * 66
    assert v.whole == ("d",)
    assert not any(".step" in i for i in v.identities)


def test_state_in_the_dtype_of_its_array() -> None:
    assert verdict("attention", "x", "same").state_bytes == 2 * 66


def test_column_sums_say_why() -> None:
    assert verdict("column_sums", "x").refusal == "C is indexed by x and needs the finished P.sum over x"


def test_a_reduction_that_stops_the_pass_is_named() -> None:
    o, values = opened(
        "q, x = 3, 9\n\nS[q, x]: fp32\nP[q, x] = softmax[x](S[q, x])\nO[q] = sum[x](round(127 * P[q, x] + 0.6))\n"
    )
    v = prove(o, "x", values)
    assert v.verdict == "k-pass(2)"
    assert v.refusal is not None
    assert v.refusal.startswith("O over x needs the finished P.max and P.sum over x: ")


def test_a_mapped_axis_has_no_state() -> None:
    v = verdict("attention", "q")
    assert v.state == ()
    assert v.merge == "nothing to merge: q is mapped, its steps are independent"


def test_an_unknown_axis() -> None:
    o, _ = opened("q = 3\n\nS[q]: fp32\nL = sum[q](S[q])\n")
    with pytest.raises(WeaveError, match="the axes are q"):
        prove(o, "z")
