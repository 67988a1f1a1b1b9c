"""Recurrences: verdicts on programs of every kind, each plan executed with its merge, both ways where it has both."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.verdict import plan_axis, prove, prove_opposite
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.groups import groups
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.verdicts import Trial, Verdict

SEQUENCE = """t, d, e = 16, 4, 4
f = d
K[t, d]: fp32
V[t, e]: fp32
Q[t, d]: fp32
A[t]: fp32
B[t]: fp32
G[t, d]: fp32
X[t, d]: fp32
W[t, d, d]: fp32
H0[d, e]: fp32
"""
KEYS = """i, j, d, e = 16, 16, 4, 4
Q[i, d]: fp32
K[j, d]: fp32
V[j, e]: fp32
G[j]: fp32
Z[i, j] = sum[d](Q[i, d] * K[j, d])
"""


@dataclass(frozen=True)
class Case:
    """A program with what is to be found: the word, the direction, whether there is a merge, and the state."""

    name: str
    lines: str
    verdict: str
    direction: str
    merged: bool
    state: tuple[str, ...]
    says: str = ""
    head: str = SEQUENCE
    axis: str = "t"


def outer(
    name: str, body: str, out: str, verdict: str = "one-pass", direction: str = "forward", says: str = ""
) -> Case:
    """A state with a row for each key and a column for each value, read along ``t`` or at the end."""
    lines = f"S[t, d, e] = scan[t]({body}, start=H0[d, e])\n{out}"
    state = ("S",) if "O[t" in out else ("S", "O")
    return Case(name, lines, verdict, direction, verdict == "one-pass", state, says)


ALONG = "O[t, e] = sum[d](Q[t, d] * S[t, d, e])"
ENDED = "O[e] = sum[t](sum[d](Q[t, d] * S[t, d, e]))"
WRITE = "K[t, d] * V[t, e]"
ERASE = "sum[f](K[t, f] * S[t - 1, f, e])"


def row(name: str, body: str, out: str, verdict: str, direction: str, says: str = "", start: str = "0") -> Case:
    """A state of one row."""
    lines = f"S[t, d] = scan[t]({body}, start={start})\n{out}"
    state = ("S",) if "O[t" in out else ("S", "O")
    return Case(name, lines, verdict, direction, verdict == "one-pass", state, says)


READ = "O[d] = sum[t](X[t, d] * S[t, d])"
EACH = "O[t, d] = X[t, d] * S[t, d]"

CASES = (
    # affine, written in many ways
    outer("linear attention", f"S[t - 1, d, e] + {WRITE}", ALONG),
    outer("a constant decay", f"0.9 * S[t - 1, d, e] + {WRITE}", ENDED, direction="both"),
    outer(
        "a scalar gate, factored", f"sigmoid(A[t]) * (S[t - 1, d, e] + {WRITE}) - {WRITE} / 2", ENDED, direction="both"
    ),
    outer("a gate for each row", f"exp(-G[t, d]**2) * S[t - 1, d, e] + {WRITE}", ALONG),
    outer("a gate as a choice", f"where(A[t] > 0, S[t - 1, d, e] / 2, {WRITE})", ENDED, direction="both"),
    outer("the delta rule", f"S[t - 1, d, e] - B[t] * K[t, d] * {ERASE} + B[t] * {WRITE}", ALONG),
    outer(
        "the delta rule, one bracket", f"S[t - 1, d, e] + B[t] * K[t, d] * (V[t, e] - {ERASE})", ENDED, direction="both"
    ),
    outer(
        "a gated delta rule",
        f"sigmoid(A[t]) * (S[t - 1, d, e] - B[t] * K[t, d] * {ERASE}) + {WRITE}",
        ENDED,
        direction="both",
    ),
    outer("a square that cancels", f"(S[t - 1, d, e] + 1)**2 - S[t - 1, d, e]**2 + {WRITE}", ALONG),
    row(
        "a matrix for each step",
        "sum[f](W[t, d, f] * S[t - 1, f]) + X[t, d]",
        READ,
        "one-pass",
        "both",
        start="X[0, d]",
    ),
    row("a product", "S[t - 1, d] * tanh(X[t, d])", EACH, "one-pass", "forward", start="1"),
    Case("a sum of a prefix sum", f"S[t, d] = cumsum[t](X[t, d])\n{READ}", "one-pass", "both", True, ("S", "O")),
    Case(
        "two scans, one feeding the other",
        "P[t, d] = scan[t](A[t] * P[t - 1, d] + X[t, d], start=0)\n"
        f"S[t, d] = scan[t](0.5 * S[t - 1, d] + B[t] * P[t, d], start=1)\n{READ}",
        "one-pass",
        "both",
        True,
        ("P", "S", "O"),
    ),
    Case(
        "a second scan of the value before",
        "P[t, d] = scan[t](A[t] * P[t - 1, d] + X[t, d], start=0)\n"
        f"S[t, d] = scan[t](0.5 * S[t - 1, d] + where(t > 0, P[t - 1, d], 0), start=1)\n{EACH}",
        "one-pass",
        "forward",
        True,
        ("P", "S"),
    ),
    # extrema of what is carried
    row("a running maximum", "max(S[t - 1, d], X[t, d])", EACH, "one-pass", "forward", start="-inf"),
    row("a queue that never falls below 0", "relu(S[t - 1, d] + X[t, d])", READ, "one-pass", "forward"),
    row("a leaking maximum", "max(sigmoid(G[t, d]) * S[t - 1, d] - 1, X[t, d])", EACH, "one-pass", "forward"),
    row("a running minimum with steps", "min(X[t, d], S[t - 1, d] + A[t])", EACH, "one-pass", "forward", start="inf"),
    # not affine, though some look so
    row("a square", "0.1 * S[t - 1, d] * S[t - 1, d] + X[t, d]", READ, "one-pass-directed", "forward", "S**2"),
    row(
        "a gate by its own sign",
        "0.1 * S[t - 1, d] * max(S[t - 1, d], 0) + X[t, d]",
        EACH,
        "one-pass-directed",
        "forward",
    ),
    row(
        "a choice by the state",
        "where(S[t - 1, d] > 0, 0.5 * S[t - 1, d], X[t, d])",
        EACH,
        "one-pass-directed",
        "forward",
    ),
    row(
        "a simple network",
        "tanh(sum[f](W[0, d, f] * S[t - 1, f]) + X[t, d])",
        EACH,
        "one-pass-directed",
        "forward",
        "tanh",
    ),
    row(
        "a gate that reads the state",
        "sigmoid(A[t] * S[t - 1, d]) * S[t - 1, d] + X[t, d]",
        READ,
        "one-pass-directed",
        "forward",
    ),
    row(
        "a norm of the state",
        "S[t - 1, d] / (1 + sum[f](S[t - 1, f]**2)) + X[t, d]",
        EACH,
        "one-pass-directed",
        "forward",
    ),
    outer(
        "a model trained inside",
        f"S[t - 1, d, e] - K[t, d] * (tanh({ERASE}) - V[t, e])",
        ALONG,
        "one-pass-directed",
        says="tanh",
    ),
    Case(
        "a product of two states",
        "P[t, d] = scan[t](A[t] * P[t - 1, d] + X[t, d], start=0)\n"
        f"S[t, d] = scan[t](P[t, d] * S[t - 1, d] + B[t], start=1)\n{READ}",
        "one-pass-directed",
        "forward",
        False,
        ("P", "S", "O"),
        "P * S",
    ),
    # from the other end
    Case(
        "stick-breaking",
        "B[i, j] = sigmoid(Z[i, j])\n"
        "C[i, j] = scan[j, reversed=True](C[i, j + 1] * (1 - B[i, j]), start=1)\n"
        "O[i, e] = sum[j](B[i, j] * where(j < m - 1, C[i, j + 1], 1) * V[j, e])\nm = j",
        "one-pass",
        "both",
        True,
        ("C", "O"),
        head=KEYS,
        axis="j",
    ),
    Case(
        "decays of later keys in a softmax",
        "C[j] = cumsum[j, reversed=True](-G[j]**2)\n"
        "P[i, j] = softmax[j](Z[i, j] + C[j])\nO[i, e] = sum[j](P[i, j] * V[j, e])",
        "one-pass",
        "both",
        True,
        ("C", "P.max", "P.sum", "O.acc"),
        head=KEYS,
        axis="j",
    ),
    Case(
        "a count of later keys in a score",
        "C[i, j] = scan[j, reversed=True](C[i, j + 1] + sigmoid(Z[i, j]), start=0)\n"
        "P[i, j] = softmax[j](Z[i, j] + sin(C[i, j]))\nO[i, e] = sum[j](P[i, j] * V[j, e])",
        "one-pass",
        "backward",
        True,
        ("C", "P.max", "P.sum", "O.acc"),
        "sin(C)",
        head=KEYS,
        axis="j",
    ),
    # waits
    Case(
        "a scan of what a maximum scales",
        "M[d] = max[t](X[t, d])\nS[t, d] = scan[t](S[t - 1, d] + exp(X[t, d] - M[d]), start=0)",
        "k-pass(2)",
        "forward",
        False,
        ("S", "M"),
        "never repaired",
    ),
    Case(
        "both directions",
        "S[t, d] = scan[t](0.5 * S[t - 1, d] + X[t, d], start=0)\n"
        "R[t, d] = scan[t, reversed=True](A[t] * R[t + 1, d] + X[t, d], start=0)\nO[d] = sum[t](S[t, d] * R[t, d])",
        "k-pass(2)",
        "forward",
        False,
        ("S", "R", "O"),
        "the other way",
    ),
    # lists beside a scan
    Case(
        "the largest of what is carried",
        "k = 3\nS[t, d] = cumsum[t](X[t, d])\nO[d, k] = topk[t](S[t, d], into=k)",
        "one-pass-list(3)",
        "forward",
        True,
        ("S", "O"),
        "O is a list of what depends on S",
    ),
    Case(
        "rows of a scan at the places of the largest inputs",
        "k = 3\nS[t, d] = cumsum[t](X[t, d])\nI[d, k] = argtopk[t](X[t, d], into=k)\nO[d, k] = S[I[d, k], d]",
        "one-pass-list(3)",
        "both",
        True,
        ("S", "I.topk", "I", "S.pick"),
    ),
    Case(
        "rows of a scan of weights above a threshold",
        "S[t, d] = cumsum[t](X[t, d])\nP[t] = softmax[t](A[t])\nO[d] = sum[t](relu(P[t] - 0.25) * S[t, d])",
        "one-pass-list(3)",
        "both",
        True,
        ("S", "P.max", "P.sum", "O.top", "O.at", "S.pick"),
    ),
    # states that grow
    Case(
        "levels of a Fenwick tree",
        "l = floor(log2(t)) + 1\nm = l\nL[t, l]: fp32\n"
        "S[t, l, e] = scan[t](where(l == 0, V[t, e], where(t % 2**l == 0, 0, where(t % 2**(l - 1) == 0, "
        "sum[m](where(m < l, S[t - 1, m, e], 0)), S[t - 1, l, e]))), start=0)\n"
        "O[t, e] = sum[l](L[t, l] * S[t, l, e])",
        "one-pass-states(log)",
        "forward",
        True,
        ("S",),
    ),
    Case(
        "a place for every element",
        "m = t\nS[t, m, e] = scan[t](where(m == t, V[t, e], S[t - 1, m, e]), start=0)\n"
        "O[t, e] = sum[m](tanh(S[t, m, e] * V[t, e]))",
        "unbounded",
        "forward",
        False,
        ("S",),
        "grows with t",
    ),
    Case(
        "all earlier results, weighed by exponentials",
        "x = t\nU[t, e] = scan[t]("
        "V[t, e] - sum[x](where(x < t, exp(sum[d](K[t, d] * K[x, d])) * U[x, e], 0)), start=0)",
        "unbounded",
        "forward",
        False,
        ("U",),
        "all of U so far",
    ),
    Case(
        "all earlier results, weighed by products",
        "x = t\nU[t, e] = scan[t]("
        "V[t, e] - sum[x](where(x < t, A[t] * sum[d](K[t, d] * K[x, d]) * U[x, e], 0)), start=0)",
        "one-pass",
        "forward",
        True,
        ("U.past",),
    ),
)


def program(case: Case) -> tuple[Opened, dict[str, int | float], tuple[Definition, ...]]:
    """The boxes of a case, its sizes, and its definitions; inputs that it does not read are left out."""
    used = [x for x in case.head.splitlines() if ": fp32" not in x or f"{x.split('[')[0]}[" in case.lines + kept(case)]
    diagram = parse("\n".join([*used, *case.lines.splitlines()]) + "\n", case.name)
    return open_diagram(diagram), diagram.values(), diagram.definitions


def kept(case: Case) -> str:
    """The lines of a head that are no inputs, which read some."""
    return "".join(x for x in case.head.splitlines() if "] = " in x)


def proved(case: Case) -> tuple[Verdict, Plan, tuple[Trial, ...]]:
    """The verdict on a case, its plan, and trials of it."""
    opened, values, definitions = program(case)
    plan = plan_axis(opened, case.axis, values)
    verdict = prove(opened, case.axis, values, definitions=definitions)
    trials = try_plan(opened, plan, values, draws=4, definitions=definitions, largest=6)
    return verdict, plan, trials


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_verdict(case: Case) -> None:
    verdict, plan, trials = proved(case)
    assert (verdict.verdict, verdict.direction) == (case.verdict, case.direction), verdict.directed or verdict.refusal
    assert tuple(s.name for s in verdict.state) == case.state
    assert (verdict.merge is not None) == case.merged
    assert case.says in f"{verdict.directed} {verdict.refusal}"
    assert len(trials) == 4
    assert all(t.passed for t in trials)
    assert not verdict.commutative
    if case.merged:
        assert plan.segments is not None
        assert any(t.parts > 1 for t in trials)  # pieces walked apart and joined in order
    elif case.verdict != "unbounded":
        assert all(t.parts == 1 for t in trials)


@pytest.mark.parametrize("case", [c for c in CASES if c.direction == "both"], ids=lambda c: c.name)
def test_other_way(case: Case) -> None:
    """Where both directions are said, the plan of the other one walks the other way and passes its trials."""
    opened, values, definitions = program(case)
    found = prove_opposite(opened, case.axis, values, definitions=definitions)
    assert found is not None
    verdict, plan = found
    walk = plan_axis(opened, case.axis, values).direction
    assert {walk, plan.direction} == {"forward", "backward"}
    assert all(g.direction == plan.direction for g in groups(plan.recurrences))
    assert verdict.passes == 1
    trials = try_plan(opened, plan, values, draws=4, definitions=definitions, largest=6)
    assert len(trials) == 4
    assert all(t.passed for t in trials)


def case_of(name: str) -> Case:
    """A case by name."""
    return next(c for c in CASES if c.name == name)


def test_stick_breaking_forward_is_the_textbook_recurrence() -> None:
    opened, values, definitions = program(case_of("stick-breaking"))
    lines = "B[i, j] = sigmoid(Z[i, j])\n"
    lines += "C[i, j] = scan[j, reversed=True](C[i, j + 1] * (1 - B[i, j]), start=1)\n"
    lines += "O[i, e] = sum[j](B[i, j] / (1 - B[i, j]) * C[i, j] * V[j, e])"
    opened, values, definitions = program(Case("inclusive", lines, "one-pass", "both", True, (), head=KEYS, axis="j"))
    found = prove_opposite(opened, "j", values, definitions=definitions)
    assert found is not None
    assert [(s.name, s.axes) for s in found[0].state] == [("O.seen", ("i", "e"))]  # no product of sticks is carried


def test_an_affine_map_is_no_longer_than_it_mixes() -> None:
    """The map of a diagonal decay has the axes of the decay; that of a delta rule has the key's axis twice."""
    sizes = {}
    for name in ("a constant decay", "a gate for each row", "the delta rule"):
        opened, values, _ = program(case_of(name))
        found = plan_axis(opened, "t", values).segments
        assert found is not None
        sizes[name] = next(m.axes for m in found.maps if m.name == "S.map")
    assert sizes == {
        "a constant decay": ("t",),
        "a gate for each row": ("t", "d"),
        "the delta rule": ("t", "d", "d'"),
    }


def test_a_wrong_map_fails_its_trial() -> None:
    """A merge that forgets the map of the later piece is caught: the trial is of the merge that is printed."""
    opened, values, definitions = program(case_of("a constant decay"))
    plan = plan_axis(opened, "t", values)
    assert plan.segments is not None
    forgetful = replace(plan.segments, lifts=tuple(b for b in plan.segments.lifts if b.name != "O"))
    plan = replace(plan, segments=forgetful)
    trials = try_plan(opened, plan, values, draws=4, definitions=definitions, largest=6)
    assert not all(t.passed for t in trials)


def test_an_axis_that_a_scan_mixes_is_not_walked() -> None:
    opened, values, definitions = program(case_of("the delta rule"))
    verdict = prove(opened, "d", values, definitions=definitions)
    assert verdict.verdict == "unproved"
    assert verdict.refusal is not None
    assert "whole" in verdict.refusal
    assert prove(opened, "e", values, definitions=definitions).verdict == "one-pass"
