"""The least state by a rank: what theory knows, growth where no state serves, and screening both ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_cases import KNOWN, LATE, REFUSED, UNBOUNDED, ask

from ioweave.derive.evidence import Question, weigh
from ioweave.derive.evidence.least import find, grows
from ioweave.derive.evidence.sizes import small
from ioweave.derive.streaming.verdict import plan_axis


@pytest.mark.parametrize("name", KNOWN)
def test_the_rank_is_the_least_state_that_theory_knows(name: str) -> None:
    text, axis, least = KNOWN[name]
    asked = ask(text, axis)
    found = asked.weighed
    assert found.verdict == asked.verdict.verdict
    assert found.least_state == least
    assert found.state_values is not None
    assert found.state_values >= least


@pytest.mark.parametrize("name", UNBOUNDED)
def test_the_rank_grows_where_no_state_serves(name: str) -> None:
    found = ask(*UNBOUNDED[name]).weighed
    assert found.verdict == "unbounded"
    assert found.least_state is None
    assert found.witness is not None
    assert found.witness["kind"] == "growing-rank"
    ranks = found.witness["rank"]
    assert ranks == sorted(ranks)
    assert ranks[-1] > 2 * ranks[0]
    assert "answers depend on" in (found.refusal or "")


@pytest.mark.parametrize("name", {**REFUSED, **LATE})
def test_more_passes_stay_more_passes(name: str) -> None:
    asked = ask(*{**REFUSED, **LATE}[name])
    found = asked.weighed
    assert found.verdict.startswith("k-pass")
    assert found.least_state is None
    ranks = [r for _, r in found.ranks]
    assert not ranks or ranks[-1] > ranks[0]


def test_what_a_plan_keeps_for_safety_is_said() -> None:
    found = ask(*KNOWN["attention"][:2]).weighed
    maximum = next(s.name for s in found.state if s.name.endswith("max"))
    assert found.state_values == 26
    assert found.least_note == f"e + 1 = 25 values; this plan keeps 26: {maximum} is for safety"
    assert ask(*KNOWN["sum"][:2]).weighed.least_note == "1 value, which this plan keeps"


def test_what_could_be_combined_is_said() -> None:
    text = (
        "t, v = 8, 4096\nZ[t, v]: fp32\nL[t] = logsumexp[v](Z[t, v])\n"
        "Y[t] = L[t] - 0.1 * sum[v](Z[t, v]) + min[v](Z[t, v])"
    )
    found = ask(text, "v").weighed
    assert found.least_state == 3
    assert "is for safety" in found.least_note


def test_a_plan_with_too_small_a_state_is_withdrawn() -> None:
    for name in ("attention", "kurtosis", "delta rule"):
        text, axis, _ = KNOWN[name]
        asked = ask(text, axis)
        short = asked.verdict.state[:1]
        if name == "delta rule":  # one row of the state in place of all of it
            short = (replace(short[0], axes=short[0].axes[1:]),)
        wrong = replace(asked.verdict, state=short, state_values=1)
        found = weigh(wrong, replace(asked.question, state=short))
        assert found.verdict == "unproved"
        assert "keeps" in (found.refusal or "")
        assert found.body == ()


def test_a_one_pass_plan_of_what_has_none_is_withdrawn() -> None:
    for name in ("tanh of weights", "softmax of softmax"):
        asked = ask(*REFUSED[name])
        found = weigh(replace(asked.verdict, verdict="one-pass", passes=1), asked.question)
        assert found.verdict == "unproved"
        assert "its answers depend on" in (found.refusal or "")


def test_a_refusal_of_what_has_a_small_state_is_left_open() -> None:
    asked = ask(*KNOWN["attention"][:2])
    refused = replace(asked.verdict, verdict="unbounded", refusal="no plan was found")
    assert weigh(refused, asked.question).verdict == "unproved"
    passes = weigh(replace(asked.verdict, verdict="k-pass(2)", passes=2, least="2 passes are least"), asked.question)
    assert passes.verdict == "k-pass(2)"
    assert passes.witness is None
    assert passes.least is None
    assert any("a smooth state of 3 values at" in w for w in passes.warnings)  # e = 2


def test_growing_ranks_settle_an_open_question() -> None:
    asked = ask(*REFUSED["tanh of weights"])
    found = weigh(replace(asked.verdict, verdict="unproved"), asked.question)
    assert found.verdict == "k-pass(2)"
    assert "2 passes are least" in (found.least or "")


@pytest.mark.parametrize(
    "line",
    [
        "T[q, k] = topk[x](S[q, x] / sum[x](S[q, x]), into=k)",  # the sign of the sum picks one of two lists
        "T[q, k] = topk[x](abs(S[q, x] - mean[x](S[q, x])), into=k)",  # the ends of the order are two lists
    ],
)
def test_a_rank_that_a_longer_list_explains_settles_nothing(line: str) -> None:
    found = ask(f"q, x, k = 6, 40, 3\nS[q, x]: fp32\n{line}", "x").weighed
    assert found.verdict == "unproved"
    assert found.least is None


def test_rounding_has_no_rank() -> None:
    asked = ask(*REFUSED["rounding under a late maximum"])
    found = find(asked.question)
    assert found.trend == "none"
    assert "rounded" in found.why


def test_integers_alone_have_no_rank() -> None:
    asked = ask("x = 64\nX[x]: int32\nY = sum[x](X[x])", "x")
    assert find(asked.question).trend == "none"
    assert asked.weighed.verdict == "one-pass"
    assert asked.weighed.least_state is None


def test_the_number_is_at_the_sizes_asked_for() -> None:
    text, axis, _ = KNOWN["attention"]
    asked = ask(text, axis)
    values = dict(asked.question.values) | {"e": 100}
    plan = plan_axis(asked.opened, axis, values)
    found = find(replace(asked.question, values=values, plan=plan))
    assert (found.state, found.formula) == (101, "e + 1")


def test_a_symmetric_state_counts_its_pairs_once() -> None:
    text = (
        "x, d = 4096, 6\ne = d\nX[x, d]: fp32\nC[d, e] = sum[x](X[x, d] * X[x, e])\n"
        "Z = sum[d, e](exp(C[d, e]) * (C[d, e] + d * e))"
    )
    found = find(ask(text, "x").question)
    assert found.formula == "(d * d / 2 + d / 2) / (d * d)"
    assert found.most == 3
    assert found.held == 4


def test_the_rank_is_that_of_the_direction_walked() -> None:
    text = (
        "i, j, d = 64, 64, 12\nS[i, j]: fp32\nV[j, d]: fp32\n"
        "C[i, j] = scan[j, reversed=True](C[i, j + 1] + where(j <= i, sigmoid(S[i, j]), 0), start=0)\n"
        "O[i, d] = sum[j](softmax[j](where(j <= i, S[i, j] + tanh(C[i, j]), -inf)) * V[j, d])"
    )
    asked = ask(text, "j")
    assert asked.question.backward
    assert asked.weighed.least_state == 14  # the sum of later gates, l, o
    assert find(replace(asked.question, backward=False)).trend == "growing"


def test_positions_of_a_list_are_counted_apart() -> None:
    text = (
        "q, x, k, d = 8, 4096, 5, 6\nS[q, x]: fp32\nV[x, d]: fp32\nI[q, k] = argtopk[x](S[q, x], into=k)\n"
        "T[q, k] = topk[x](S[q, x], into=k)\nO[q, d] = sum[k](softmax[k](T[q, k]) * V[I[q, k], d])"
    )
    asked = ask(text, "x")
    assert asked.question.selects
    assert "values of whole numbers" in asked.weighed.least_note


def test_keys_that_choose_rows_are_not_spare() -> None:
    text = (
        "t, d, k = 4096, 4, 3\nX[t, d]: fp32\nS[t, d] = cumsum[t](X[t, d])\n"
        "I[d, k] = argtopk[t](X[t, d], into=k)\nO[k, d] = S[I[d, k], d]"
    )
    found = ask(text, "t").weighed
    assert found.verdict == "one-pass-list(3)"
    assert found.least_state is None  # the rank sees the rows, not what decided between them
    assert found.least_note == ""


def test_a_state_that_depends_on_the_place_of_the_cut_has_no_number() -> None:
    text = (
        "q, x, d = 64, 64, 4\nS[q, x]: fp32\nF[x]: fp32\nV[x, d]: fp32\nC[x] = cumsum[x](log(sigmoid(F[x])))\n"
        "P[q, x] = softmax[x](where(x <= q, S[q, x] - C[x], -inf))\nO[q, d] = sum[x](P[q, x] * V[x, d])"
    )
    found = ask(text, "x").weighed
    assert found.verdict == "one-pass"
    assert found.least_state is None


def test_evidence_is_the_same_every_time() -> None:
    asked = ask(*REFUSED["tanh of weights"])
    assert asked.weighed == asked.weighed


def test_small_sizes_cut_ties_that_only_repeat() -> None:
    text = (
        "q, d = 512, 16\nx = q\nQ[q, d]: fp32\nK[x, d]: fp32\nS[q, x] = sum[d](Q[q, d] * K[x, d])\n"
        "L[q] = logsumexp[x](S[q, x])\nY = sum[q](L[q])"
    )
    asked = ask(text, "x")
    q = asked.question
    sizes = small(q.subject, "x", q.values, q.definitions, {"q": 2}, 20)
    assert sizes is not None
    assert (sizes["q"], sizes["x"]) == (2, 20)
    assert not grows(q)
    assert asked.weighed.least_state == 1


def test_small_sizes_keep_ties_of_one_array() -> None:
    text = "x = 64\ny = x\nX[x]: fp32\nR[x] = sum[y](where(X[y] < X[x], X[y], 0))"
    q: Question = ask(text, "y").question
    sizes = small(q.subject, "y", q.values, q.definitions, {}, 20)
    assert sizes is not None
    assert sizes["x"] == sizes["y"]
