"""The nearest changes: every edit listed reads back, takes one pass, and computes what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ioweave.derive.changes.nearest import MOST, nearest_changes
from ioweave.derive.changes.view import View
from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.reporting.verbs import stream
from ioweave.derive.streaming.verdict import prove
from ioweave.diagrams.library import source
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.changes import Change
from ioweave.hierarchy.verdicts import Verdict

HEAD = """q, x, d = 64, 64, 16

S[q, x]: fp32
V[x, d]: fp32
t[q]: fp32
"""
WEIGHTS = HEAD + "P[q, x] = softmax[x](S[q, x])\n"
ROUNDED = WEIGHTS + "O[q, d] = sum[x](round(127 * P[q, x] + t[q]) * V[x, d])\n"
ABOVE_MEAN = HEAD + "M[q] = mean[x](S[q, x])\nO[q, d] = sum[x](where(S[q, x] > M[q], V[x, d], 0))\n"
SCALED = (
    HEAD
    + "M[q] = rsqrt(mean[x](S[q, x]**2))\nP[q, x] = softmax[x](S[q, x] * M[q])\nO[q, d] = sum[x](P[q, x] * V[x, d])\n"
)
QUANTISED = HEAD + "A[q] = max[x](abs(S[q, x]))\nO[q, d] = sum[x](round(S[q, x] * 127 / A[q]) * V[x, d]) * A[q] / 127\n"


def changes(text: str, axis: str = "x") -> tuple[Change, ...]:
    d = parse(text)
    verdict = prove(open_diagram(d), axis, d.values())
    assert not verdict.streams
    return nearest_changes(d, verdict, d.values(), "fp32")


def verdict_of(name: str, axis: str) -> Verdict:
    (v,) = stream(name, axis).streaming or ()
    return v


def named(found: tuple[Change, ...], start: str) -> Change:
    return next(c for c in found if c.edit.startswith(start))


@pytest.mark.parametrize(
    "text", [ROUNDED, ABOVE_MEAN, SCALED, QUANTISED], ids=("rounded", "mean", "scaled", "quantised")
)
def test_every_change_is_proved(text: str) -> None:
    found = changes(text)
    assert 0 < len(found) <= MOST
    assert len({c.edit for c in found}) == len(found)
    for c in found:
        assert c.verdict.startswith(("one-pass", "approximate"))
        assert c.state_values is not None
        assert "\n" not in c.edit + c.note
        assert c.lines or c.axis != "x"


def test_a_rounding_goes_before_the_normalisation() -> None:
    v = (stream(ROUNDED, "x").streaming or ())[0]
    assert v.verdict == "k-pass(2)"
    assert v.nearest == "apply round to S[q, x], before normalising"
    assert v.changes[0].lines == (
        "P[q, x] = softmax[x](round(S[q, x]))",
        "O[q, d] = sum[x]((127 * P[q, x] + t[q]) * V[x, d])",
    )
    assert not v.changes[0].same_function


def test_a_rounding_may_be_left_out() -> None:
    found = named(changes(ROUNDED), "leave out round in O")
    assert found.lines == ("O[q, d] = sum[x]((127 * P[q, x] + t[q]) * V[x, d])",)


def test_the_scale_of_a_quantisation_is_given() -> None:
    found = named(changes(QUANTISED), "keep A[q]")
    assert found.same_function
    assert found.lines[0] == "A[q]: fp32"
    assert found.note == "the same results; a pass before it makes 1 value of each row"


def test_a_condition_on_a_result_is_left_out() -> None:
    found = named(changes(ABOVE_MEAN), "leave out the condition S[q, x] > M[q] in O")
    assert found.lines == ("O[q, d] = sum[x](V[x, d])",)


def test_the_fewest_statistics_are_kept() -> None:
    """A softmax of scores scaled by a mean square needs the mean square alone."""
    found = named(changes(SCALED), "keep")
    assert found.edit == "keep M[q]: given as an input, one pass is left"
    assert found.lines == ("M[q]: fp32",)


def test_the_log_sum_exp_takes_the_place_of_its_parts() -> None:
    v = verdict_of("column_sums", "x")
    assert v.nearest == "keep the log-sum-exp P.lse[q]: given as an input, one pass is left"
    assert v.changes[0].lines == ("P.lse[q]: fp32", "P[q, x] = exp(masked_sub(S[q, x], P.lse[q]))")
    assert v.changes[0].same_function


def test_a_given_log_sum_exp_makes_the_same_results() -> None:
    text, file = source("column_sums")
    before = parse(text, file)
    v = verdict_of("column_sums", "x")
    entered, changed = v.changes[0].lines
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("P["))
    lines[at : at + 1] = [entered, changed]
    after = parse("\n".join(lines) + "\n")
    rng = np.random.default_rng(5)
    sizes = {"q": 5, "x": 7, "d": 3}
    arrays = {"Q": rng.standard_normal((5, 3)), "K": rng.standard_normal((7, 3))}
    s = arrays["Q"] @ arrays["K"].T / np.sqrt(3)
    first = PlanMachine(sizes, arrays).direct(open_diagram(before).boxes)["C"]
    given = PlanMachine(sizes, {**arrays, "P.lse": np.log(np.exp(s).sum(axis=1))})
    assert np.allclose(given.direct(open_diagram(after).boxes)["C"], first, rtol=1e-12)


def test_statistics_that_need_each_other_take_more_passes() -> None:
    v = verdict_of("sinkhorn_attention_twice", "x")
    kept = named(v.changes, "keep A.lse[q] and C.sum[q]")
    assert "2 passes before it make 2 values" in kept.note


def test_an_output_along_the_axis_is_left_to_its_reader() -> None:
    found = named(verdict_of("layernorm", "m").changes, "return M and R")
    assert found.lines == ("out(M)",)
    assert not found.same_function
    assert found.state_values == 2


def test_other_axes_are_said_with_their_state() -> None:
    found = named(verdict_of("column_sums", "x").changes, "stream q in place of x")
    assert (found.axis, found.verdict, found.same_function, found.lines) == ("q", "one-pass", True, ())
    assert "d, x whole in every instance" in found.note


def test_a_polynomial_is_offered_with_its_error() -> None:
    v = verdict_of("softmax_of_softmax", "x")
    assert v.verdict == "k-pass(2)"
    found = named(v.changes, "allow an error with --approximate 1e-06")
    assert found.verdict == "approximate(1e-06)"
    assert not found.same_function
    assert named(v.changes, "keep the log-sum-exp P.lse[q]").verdict == "one-pass"


def test_a_list_in_place_of_all_scores() -> None:
    found = named(changes(ROUNDED), "keep the k largest S")
    assert found.verdict == "one-pass-list(32)"
    assert found.lines[:3] == (
        "k = 32",
        "S.top[q, k] = topk[x](S[q, x], into=k)",
        "S.at[q, k] = argtopk[x](S[q, x], into=k)",
    )


def test_what_does_not_stream_after_an_edit_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ioweave.derive.changes import nearest

    true = nearest.try_plan

    def failing(*args: object, **more: object) -> object:
        return tuple(replace(t, passed=False) for t in true(*args, **more))

    assert changes(ABOVE_MEAN)
    monkeypatch.setattr(nearest, "try_plan", failing)
    assert changes(ABOVE_MEAN) == ()


def test_an_axis_that_streams_has_no_changes() -> None:
    v = verdict_of("attention", "x")
    assert v.changes == ()
    assert v.nearest is None
    assert v.to_json()["changes"] == []


def test_the_record_of_a_change() -> None:
    record = verdict_of("column_sums", "x").to_json()
    assert record["nearest"] == record["changes"][0]["edit"]
    assert set(record["changes"][0]) == {
        *("edit", "lines", "axis", "verdict", "state_values", "same_function", "note"),
    }


def test_what_waits_and_what_walks() -> None:
    view = View(parse(ABOVE_MEAN), "x")
    assert view.waiting == {"M", "O"}
    assert view.frontier == ("M",)
    assert View(parse(WEIGHTS + "O[q] = sum[x](P[q, x])\n"), "x").holders == ("P",)


@pytest.mark.parametrize("sums", ["cumsum[t](P[t, d])", "scan[t](0.5 * S[t - 1, d] + P[t, d], start=0)"])
def test_no_list_is_proposed_where_a_scan_would_walk_it_by_size(sums: str) -> None:
    text = "t, d = 40, 4\nA[t, d]: fp32\nP[t, d] = softmax[t](A[t, d])\n"
    found = changes(f"{text}S[t, d] = {sums}\nO[d] = sum[t](S[t, d]**3 * A[t, d])\n", "t")
    assert found
    assert not any("largest" in c.edit for c in found)


@pytest.mark.parametrize(
    "lines",
    [
        "M[d] = mean[t](A[t, d])\nS[t, d] = scan[t](sigmoid(M[d]) * S[t - 1, d] + A[t, d], start=0)\n",
        "P[t, d] = softmax[t](A[t, d])\nS[t, d] = cumsum[t](P[t, d])\n",
    ],
)
def test_a_scan_that_waits_for_a_result_is_answered(lines: str) -> None:
    assert changes(f"t, d = 40, 4\nA[t, d]: fp32\n{lines}", "t")
