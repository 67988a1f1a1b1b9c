"""Trials of plans: true plans pass, plans with one thing wrong fail, and a failed plan is not printed as proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_streaming_interpreter import facts

from ioweave.derive.execution import plan_machine
from ioweave.derive.execution.trial import try_plan
from ioweave.derive.execution.trial_data import CELLS, EMPTY, KINDS, MASKED, Subject, data, small_sizes
from ioweave.derive.reporting import verdicts
from ioweave.derive.reporting.subject import inline, settle
from ioweave.derive.reporting.target import make_target
from ioweave.derive.reporting.verdicts import stream_report
from ioweave.derive.streaming.merge import merge_boxes
from ioweave.derive.streaming.plan import Plan, Stage
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import OLD, RUNNING, Box, Opened, source
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, transform
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.operators import REDUCTIONS, Reduction
from ioweave.hierarchy.verdicts import Trial, Verdict

HEADER = "q, x, d, e = 8, 16, 4, 4\n\nQ[q, d]: fp16\nK[x, d]: fp16\nV[x, e]: fp16\n"
SCORES = "S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)\n"
CASES = {
    "softmax attention": HEADER + SCORES + "O[q, e] = sum[x](softmax[x](S[q, x]) * V[x, e])\n",
    "sum-normalised": HEADER + SCORES + "N[q] = sum[x](abs(S[q, x]))\nO[q, e] = sum[x](S[q, x] / N[q] * V[x, e])\n",
    "two softmaxes": (
        HEADER + "R[x, d]: fp16\nS[q, x] = sum[d](Q[q, d] * K[x, d])\nT[q, x] = sum[d](Q[q, d] * R[x, d])\n"
        "O[q, e] = sum[x]((softmax[x](S[q, x]) - 0.8 * softmax[x](T[q, x])) * V[x, e])\n"
    ),
    "log-sum-exp": HEADER.replace("V[x, e]: fp16\n", "") + SCORES + "L[q] = logsumexp[x](S[q, x])\n",
    "masked softmax": (
        HEADER + "M[x]: bool\nS[q, x] = where(M[x], sum[d](Q[q, d] * K[x, d]), -inf)\n"
        "O[q, e] = sum[x](softmax[x](S[q, x]) * V[x, e])\n"
    ),
    "softmax in two passes": (
        HEADER.replace("V[x, e]: fp16\n", "") + SCORES + "C[x] = sum[q](softmax[x](S[q, x]))\n"
    ),
}  # fmt: skip
ONE_PASS = [name for name in CASES if "passes" not in name]


def planned(name: str) -> tuple[Diagram, Opened, Plan]:
    diagram = parse(CASES[name])
    o = open_diagram(diagram)
    return diagram, o, repair(o.boxes, frozenset("x"), frozenset(o.outputs), facts(o))


def tried(name: str, plan: Plan | None = None, draws: int = 12) -> tuple[Trial, ...]:
    diagram, o, found = planned(name)
    return try_plan(o, plan or found, diagram.values(), definitions=diagram.definitions, draws=draws)


def report_of(name: str) -> Verdict:
    streaming = stream_report(settle(inline(CASES[name])), "x", make_target()).streaming
    assert streaming is not None
    return streaming[0]


def rewritten(plan: Plan, name: str, change: Callable[[Box], Box]) -> Plan:
    return replace(plan, boxes=tuple(change(b) if b.name == name else b for b in plan.boxes))


def with_body(plan: Plan, name: str, body: Expr) -> Plan:
    return rewritten(plan, name, lambda b: replace(b, body=body))


def on_reads(e: Expr, change: Callable[[Read], Expr]) -> Expr:
    return transform(e, lambda n: change(n) if isinstance(n, Read) else n)


def mutations(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans that differ from a true one in one thing that matters."""
    factors = {b.rescale: None for b in plan.state if b.rescale}
    for b in plan.state:
        if b.rescale:
            yield f"{b.name} is not rescaled", rewritten(plan, b.name, lambda b: replace(b, rescale=None))
    for name in factors:
        box = plan.box(name)
        yield (
            f"{name} is inverted",
            rewritten(plan, name, lambda b: replace(b, body=Apply("div", (Number(1), b.body)))),
        )
        still = on_reads(box.body, lambda r: replace(r, array=source(r.array) + RUNNING))
        yield f"{name} compares a value with itself", with_body(plan, name, still)
        for other in factors:
            if other != name:
                theirs = plan.box(other).body
                yield f"{name} is {other}", with_body(plan, name, theirs)
    for b in plan.body:
        if not b.running and b.name not in factors and any(r.array.endswith(RUNNING) for r in b.reads()):
            stale = on_reads(b.body, lambda r: replace(r, array=source(r.array) + OLD) if "~" in r.array else r)
            yield f"{b.name} reads a stale value", with_body(plan, b.name, stale)
    for b in plan.tail:
        yield f"the tail lacks {b.name}", replace(plan, boxes=tuple(c for c in plan.boxes if c is not b))
        first = b.reads()[0]
        yield f"the tail leaves {b.name} as it is", with_body(plan, b.name, first)


@pytest.mark.parametrize("name", CASES)
def test_a_true_plan_passes(name: str) -> None:
    trials = tried(name)
    assert len(trials) == 12
    assert all(t.passed for t in trials), [t for t in trials if not t.passed]
    assert {t.data for t in trials} >= set(KINDS) - {MASKED, EMPTY}
    assert len({t.axes for t in trials}) > 6
    assert all(sum(t.steps) == dict(t.axes)["x"] for t in trials)
    assert any(len(set(t.steps)) > 1 for t in trials)
    assert any(t.parts > 1 for t in trials) == (name in ONE_PASS)


WRONG = [pytest.param(name, what, id=f"{name}: {what}") for name in CASES for what, _ in mutations(planned(name)[2])]


@pytest.mark.parametrize(("name", "what"), WRONG)
def test_a_wrong_plan_fails(name: str, what: str) -> None:
    wrong = dict(mutations(planned(name)[2]))[what]
    assert not all(t.passed for t in tried(name, wrong, draws=6))


@pytest.mark.parametrize("name", ONE_PASS)
def test_a_merge_without_its_factor_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(plan: Plan) -> tuple[Box, ...]:
        return merge_boxes(replace(plan, boxes=tuple(replace(b, rescale=None) for b in plan.boxes)))

    rescaled = any(b.rescale for b in planned(name)[2].state)
    monkeypatch.setattr(plan_machine, "merge_boxes", plain)
    assert all(t.passed for t in tried(name, draws=6)) == (not rescaled)


@pytest.mark.parametrize(
    ("name", "op", "identity"),
    [
        ("softmax attention", "max", 0.0),  # right over the reals: scores that are all far below 0 tell
        ("log-sum-exp", "max", 0.0),
        ("masked softmax", "max", 0.0),
        ("sum-normalised", "sum", 1e-6),
    ],
)
def test_a_wrong_identity_fails(name: str, op: str, identity: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REDUCTIONS, op, Reduction(op, identity))
    assert not all(t.passed for t in tried(name))


def test_a_cast_that_a_plan_drops_is_seen() -> None:
    text = "q, x = 4, 9\n\nS[q, x]: fp32\nA[q] = sum[x](fp16(S[q, x]))\n"
    diagram = parse(text)
    o = open_diagram(diagram)
    plan = repair(o.boxes, frozenset("x"), frozenset(o.outputs), {})
    assert all(t.passed for t in try_plan(o, plan, diagram.values()))
    bare = tuple(replace(b, body=transform(b.body, _uncast)) for b in plan.boxes)
    assert not any(t.passed for t in try_plan(o, replace(plan, boxes=bare), diagram.values(), draws=1))


def _uncast(e: Expr) -> Expr:
    return e.args[0] if isinstance(e, Apply) and e.op == "fp16" else e


def test_trials_are_the_same_for_the_same_seed() -> None:
    diagram, o, plan = planned("masked softmax")
    first = try_plan(o, plan, diagram.values(), seed=5)
    assert first == try_plan(o, plan, diagram.values(), seed=5)
    assert first != try_plan(o, plan, diagram.values(), seed=6)


TIED = """q, x, h = 8, 8, 8
g = h / 4
r = 2 * q
w = 100
k = 3

A[q + k - 1, x]: fp32
B[r, h]: fp32
D[x]: int32
U[x]: fp32 >= 2
Y[q, x] = sum[k](A[q + k, x]) * where(D[x] == q, 1, 0)
Z[q] = sum[x](where(x >= q - w, Y[q, x], 0)) + sum[r, h](B[r, h]) + max[g](g) + sum[x](U[x])
"""


def test_sizes_follow_ties_and_data_follow_declarations() -> None:
    diagram = parse(TIED)
    o = open_diagram(diagram)
    subject = Subject.of(o, (), frozenset("x"))
    for seed in range(30):
        rng = np.random.default_rng(seed)
        sizes = small_sizes(subject, diagram.values(), diagram.definitions, 9, rng)
        assert sizes is not None
        assert sizes["r"] == 2 * sizes["q"]
        assert 4 * sizes["g"] == sizes["h"]
        assert all(1 <= sizes[a] <= 9 for a in "qxk")
        for kind in KINDS:
            arrays = data(subject, sizes, kind, {"x": 1}, seed)
            assert arrays["A"].shape == (sizes["q"] + sizes["k"] - 1, sizes["x"])
            assert (arrays["U"] >= 2).all()
            assert arrays["D"].min() >= 0
            assert kind == EMPTY or arrays["D"].max() <= sizes["q"]


def test_many_axes_stay_small() -> None:
    names = "abcijklm"
    axes = ", ".join(names)
    text = f"{axes} = {', '.join(['64'] * 8)}\n\nX[{axes}]: fp32\nY[b, c] = sum[a, i, j, k, l, m](X[{axes}])\n"
    diagram = parse(text)
    o = open_diagram(diagram)
    plan = repair(o.boxes, frozenset("a"), frozenset(o.outputs), {})
    for t in try_plan(o, plan, diagram.values(), definitions=diagram.definitions):
        assert t.passed
        assert np.prod([n for _, n in t.axes]) <= CELLS


def test_rounding_is_told_from_errors() -> None:
    """A variance as the mean of squares less the squared mean loses digits where the values are near each other."""
    head = "t, m = 3, 9\n\nX[t, m]: fp32\nM[t] = mean[m](X[t, m])\n"
    o = open_diagram(parse(head + "V[t] = mean[m]((X[t, m] - M[t])**2)\nR[t] = sqrt(V[t])\n"))
    p = open_diagram(parse(head + "V[t] = mean[m](X[t, m]**2) - M[t]**2\nR[t] = sqrt(V[t])\n"))
    boxes = tuple(replace(b, running=b.reduction is not None) for b in p.boxes)
    stages: tuple[tuple[str, int, Stage], ...] = tuple((b.name, 1, "body" if b.running else "tail") for b in boxes)
    plan = Plan(boxes, frozenset("m"), stages, (), (), (), (), ())
    values = {"t": 3, "m": 9}
    assert all(t.passed for t in try_plan(o, plan, values, draws=12))
    doubled = tuple(replace(b, body=Apply("mul", (Number(1.000001), b.body))) if b.name == "R" else b for b in boxes)
    assert not any(t.passed for t in try_plan(o, replace(plan, boxes=doubled), values, draws=1))


def test_a_report_has_its_trials() -> None:
    verdict = report_of("softmax attention")
    assert verdict.verdict == "one-pass"
    assert len(verdict.trials) == 6
    assert all(t.passed for t in verdict.trials)


def test_a_plan_that_fails_is_not_printed_as_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(opened: Opened, plan: Plan, *args: Any, **more: Any) -> tuple[Trial, ...]:
        boxes = tuple(replace(b, rescale=None) for b in plan.boxes)
        return try_plan(opened, replace(plan, boxes=boxes), *args, **more)

    monkeypatch.setattr(verdicts, "try_plan", wrong)
    verdict = report_of("softmax attention")
    assert verdict.verdict == "unproved"
    assert not verdict.streams
    assert (verdict.state, verdict.body, verdict.merge) == ((), (), None)
    assert verdict.refusal is not None
    assert "fails its execution at q=" in verdict.refusal
    assert "seed" in verdict.refusal
