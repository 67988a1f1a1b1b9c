"""Lazy references: rescaled only where a maximum crosses a multiple of the step, and equal all the same."""

from __future__ import annotations

import pytest

from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, walk
from ioweave.diagrams.library import load
from ioweave.diagrams.opening import open_diagram

NAMES = (
    "attention",
    "causal_attention",
    "cross_entropy",
    "differential_attention",
    "sink_attention",
    "talking_heads_attention",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [0.5, 8.0])
def test_a_lazy_plan_computes_the_same(name: str, step: float) -> None:
    diagram = load(name)
    opened = open_diagram(diagram)
    axis = "v" if name == "cross_entropy" else "x"
    plan = plan_axis(opened, axis, diagram.values(), lazy=step)
    floors = [
        n for b in plan.boxes if b.name.endswith(("delta", "delta2")) for n in walk(b.body) if isinstance(n, Apply)
    ]
    assert any(n.op == "floor" for n in floors)
    trials = try_plan(opened, plan, diagram.values(), definitions=diagram.definitions)
    assert trials
    assert all(t.passed for t in trials)


@pytest.mark.parametrize("name", NAMES)
def test_a_lazy_plan_needs_no_more_state(name: str) -> None:
    diagram = load(name)
    opened = open_diagram(diagram)
    axis = "v" if name == "cross_entropy" else "x"
    eager, lazy = (prove(opened, axis, diagram.values(), lazy=s) for s in (0.0, 8.0))
    assert (lazy.verdict, lazy.state_values) == (eager.verdict, eager.state_values)


@pytest.mark.parametrize(("step", "said"), [(-1.0, "above 0"), (12.0, "at most 11.1"), (float("nan"), "at most")])
def test_a_step_out_of_range_is_refused(step: float, said: str) -> None:
    diagram = load("attention")
    with pytest.raises(WeaveError, match=said):
        plan_axis(open_diagram(diagram), "x", diagram.values(), lazy=step)
