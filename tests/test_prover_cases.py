"""Variants as researchers write them: each verdict and state as theory says, each plan executed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram

FILE = Path(__file__).parent / "prover_cases.toml"
CASES = {case["name"]: case for case in tomllib.loads(FILE.read_text("utf-8"))["case"]}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_what_theory_says(name: str) -> None:
    case = CASES[name]
    axis = case["axis"]
    diagram = parse(case["text"])
    opened = open_diagram(diagram)
    found = prove(opened, axis, diagram.values())
    assert (found.verdict, found.state_values) == (case["verdict"], case["values"]), found.refusal
    trials = try_plan(opened, plan_axis(opened, axis, diagram.values()), diagram.values(), draws=8)
    assert trials
    assert all(t.passed for t in trials), [t for t in trials if not t.passed]
