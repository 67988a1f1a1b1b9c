"""Witnesses: every one is computed again from its record by the reference, which knows neither boxes nor the search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_cases import KNOWN, LATE, REFUSED, Asked, ask
from rich.console import Console

from ioweave.derive.evidence.bench import Bench, sliceable, sliced, woven
from ioweave.derive.evidence.witness import find_pair, verified
from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.execution.reference import evaluate
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.render.report.witness import witness_rows

CATALOGUE = Path(__file__).parent.parent / "ioweave" / "diagrams" / "catalogue"


def inputs(diagram: Diagram, w: Mapping[str, Any], *sides: tuple[Mapping[str, Any], slice]) -> dict[str, np.ndarray]:
    """Whole inputs from what a record gives: what neither side holds, and blocks along the axis."""
    sizes = w["sizes"]
    arrays = {k: np.array(v) for k, v in w["given"].items()}
    for parts, span in sides:
        for name, block in parts.items():
            declared = diagram.input(name)
            assert declared is not None
            dims = [form.sizes[0][0] for form in declared.dims]
            shape = [int(sizes[d]) for d in dims]
            whole = arrays.setdefault(name, np.zeros(shape))
            if w["axis"] not in dims:
                continue
            place = tuple(
                span if d == w["axis"] else slice(w["at"][d], w["at"][d] + 1) if d in w["at"] else slice(None)
                for d in dims
            )
            whole[place] = np.array(block).reshape(whole[place].shape)
    return arrays


def answer(diagram: Diagram, w: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> float:
    """The answer that a record names, by the reference."""
    found = evaluate(diagram, w["sizes"], arrays)[w["output"]]
    index = list(w["index"])
    line = diagram.line(w["output"])
    for place, axis in enumerate(line.axes):
        if axis in w["at"]:
            index.insert(place, w["at"][axis])
    return float(found[tuple(index)])


def again(asked: Asked, w: Mapping[str, Any]) -> tuple[float, float]:
    """The two answers of a pair, computed again."""
    n, whole = w["steps"], int(w["sizes"][w["axis"]])
    suffix = (w["suffix"], slice(n, whole))
    first, second = (inputs(asked.diagram, w, (w[side], slice(0, n)), suffix) for side in ("first", "second"))
    return answer(asked.diagram, w, first), answer(asked.diagram, w, second)


@pytest.mark.parametrize("name", REFUSED)
def test_two_prefixes_with_one_state_have_different_answers(name: str) -> None:
    asked = ask(*REFUSED[name])
    w = asked.weighed.witness
    assert w is not None
    assert w["kind"] == "pair"
    assert w["first"] != w["second"]
    assert again(asked, w) == pytest.approx(w["answers"], rel=1e-9)
    assert w["difference"] > 1e-6 * max(map(abs, w["answers"]))


@pytest.mark.parametrize("name", REFUSED)
def test_the_two_prefixes_do_have_one_state(name: str) -> None:
    asked = ask(*REFUSED[name])
    w = asked.weighed.witness
    assert w is not None
    n = w["steps"]
    short = {**w, "sizes": {**w["sizes"], w["axis"]: n}}
    ends = [
        evaluate(asked.diagram, short["sizes"], inputs(asked.diagram, short, (w[side], slice(0, n))))
        for side in ("first", "second")
    ]
    last = asked.diagram.outputs[-1]
    line = asked.diagram.line(last)
    index = tuple(w["at"].get(a, slice(None)) for a in line.axes)
    assert ends[0][last][index] == pytest.approx(ends[1][last][index], rel=1e-9, abs=1e-10)
    assert len(w["state"]) >= 2


@pytest.mark.parametrize("name", LATE)
def test_an_output_that_was_passed_is_changed_by_the_suffix(name: str) -> None:
    asked = ask(*LATE[name])
    w = asked.weighed.witness
    assert w is not None
    assert w["kind"] == "late-output"
    axes = [a for a in asked.opened.box(w["output"]).axes if a not in w["at"]]
    assert w["index"][axes.index(w["axis"])] < w["steps"]
    n, whole = w["steps"], int(w["sizes"][w["axis"]])
    found = [
        answer(asked.diagram, w, inputs(asked.diagram, w, (w["prefix"], slice(0, n)), (s, slice(n, whole))))
        for s in w["suffixes"]
    ]
    assert found == pytest.approx(w["answers"], rel=1e-9)
    assert found[0] != pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize(
    "name", ["softmax_of_softmax", "column_sums", "sinkhorn_attention", "quantised_matmul", "rmsnorm"]
)
def test_refusals_of_the_catalogue_have_a_witness(name: str) -> None:
    text = (CATALOGUE / f"{name}.weave").read_text("utf-8")
    axis = {"quantised_matmul": "k", "rmsnorm": "m"}.get(name, "x")
    found = ask(text, axis).weighed
    assert found.verdict == "k-pass(2)"
    assert found.witness is not None
    assert json.loads(json.dumps(found.to_json()))["witness"] == found.witness


THRESHOLD = """
x = 6
S[x]: fp32
V[x]: fp32
P[x] = softmax[x](S[x])
A = sum[x](P[x] * V[x])
O = sum[x](max(P[x] - 0.1, 0) * V[x])
out(A)
"""


def thresholded() -> tuple[Bench, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Scores log {1, 1/2, 1/2} and log {1, 1/4, 1/4, 1/4, 1/4}, then a key of weight 0.2; weights of 0 fill up."""
    question = ask(THRESHOLD, "x").question
    bench = Bench(question.subject, ("O",), "x", {"x": 6})
    with np.errstate(divide="ignore"):
        first = {"S": np.log([1, 0.5, 0.5, 0, 0, 0.2]), "V": np.array([0.0, 1, 1, 0, 0, 0])}
        second = {"S": np.log([1, 0.25, 0.25, 0.25, 0.25, 0.2]), "V": np.array([0.0, 1, 1, 1, 1, 0])}
    return bench, first, second


def test_thresholded_attention_is_more_than_the_plain_triple() -> None:
    bench, first, second = thresholded()
    pair = verified(bench, 5, first, second, ("P.max", "P.sum", "A"))
    assert pair is not None
    assert {k: float(v) for k, v in pair.state.items()} == pytest.approx({"P.max": 0.0, "P.sum": 2.0, "A": 0.5})
    assert pair.difference == pytest.approx(0.2)


def test_a_pair_whose_states_differ_is_no_witness() -> None:
    bench, first, second = thresholded()
    assert verified(bench, 5, first, second) is None  # the thresholded sums differ after the prefix
    assert verified(bench, 5, first, first) is None
    moved = second | {"S": second["S"] + np.array([0.1, 0, 0, 0, 0, 0])}
    assert verified(bench, 5, first, moved, ("P.max", "P.sum", "A")) is None


def test_no_pair_is_found_for_what_streams() -> None:
    for name in ("log-sum-exp", "sum", "mean and variance"):
        text, axis, _ = KNOWN[name]
        question = ask(text, axis).question
        sizes = {**question.values, axis: 8, "q": 2}
        assert find_pair(Bench(question.subject, question.outputs, axis, sizes), True) is None


def test_a_witness_is_told_in_words() -> None:
    def words(name: str, cases: Mapping[str, tuple[str, str]]) -> str:
        console = Console(width=200, record=True, file=StringIO())
        for label, text in witness_rows(ask(*cases[name]).weighed):
            console.print(label, text)
        return console.export_text()

    assert "two prefixes of" in words("tanh of weights", REFUSED)
    assert "two suffixes make it" in words("column sums", LATE)
    assert "the answers depend on" in words("column sums", LATE)


def test_weaving_computes_every_draw_as_if_alone() -> None:
    text, _, _ = KNOWN["two softmaxes over one value"]
    opened = open_diagram(parse(text))
    rng = np.random.default_rng(3)
    sizes = {"q": 2, "x": 5, "e": 3}
    arrays = {"S": rng.normal(size=(2, 5)), "T": rng.normal(size=(2, 5)), "V": rng.normal(size=(5, 3))}
    draws = rng.normal(size=(4, 5, 3))
    boxes, names = woven(opened.boxes, frozenset({"V"}))
    assert opened.outputs[-1] in names
    many = PlanMachine(sizes | {"draw~": 4}, arrays | {"V": draws}).direct(boxes)[opened.outputs[-1]]
    for k in range(4):
        alone = PlanMachine(sizes, arrays | {"V": draws[k]}).direct(opened.boxes)[opened.outputs[-1]]
        assert many[k] == pytest.approx(alone)


def test_one_index_computes_what_the_whole_has_there() -> None:
    text, _, _ = KNOWN["causal attention"]
    opened = open_diagram(parse(text))
    rng = np.random.default_rng(4)
    sizes = {"q": 4, "x": 6, "d": 2, "e": 3, "d'": 2}
    arrays = {"Q": rng.normal(size=(4, 2)), "K": rng.normal(size=(6, 2)), "V": rng.normal(size=(6, 3))}
    assert sliceable(opened.boxes, "q")
    assert not sliceable(opened.boxes, "x")
    whole = PlanMachine(sizes, arrays).direct(opened.boxes)[opened.outputs[-1]]
    for k in range(4):
        one = PlanMachine(sizes, arrays).direct(sliced(opened.boxes, "q", k))[opened.outputs[-1]]
        assert one == pytest.approx(whole[k])
