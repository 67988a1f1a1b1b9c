"""Verdicts as text: the cascade, the state with its bytes, head, body, merge and tail, and what they rest on."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

import ioweave
from ioweave.derive.streaming.cascade_rows import cascade_rows, kept_between
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.report import Report
from ioweave.hierarchy.verdicts import Alternative, CascadeRow, StateEntry, Trial, Verdict
from ioweave.render.report import text
from ioweave.render.report.cascade import symbolic
from ioweave.render.report.equations import broken

ATTENTION = """\
x: one-pass  in either direction, exact over the reals
  cascade     reduction  formula                             needs         repair   carried by
              P.max      max[x](S)                           –             none     P.max
              P.sum      sum[x](exp(S - P.max))              P.max         rescale  P.sum
              O          sum[x](exp(S - P.max) / P.sum * V)  P.sum, P.max  rescale  O.acc, P.sum
  state       array         dtype  from  values  bytes
              P.max[q]      fp32   -inf       1      4
              P.sum[q]      fp32      0       1      4
              O.acc[q, d']  fp32      0      64    256
              d + 2 = 66 values, 264 B for each row of q
  head        P.max = -inf, P.sum = 0, O.acc = 0
  body        S.sum       = sum[d](Q * K)
              S           = S.sum / sqrt(d)
              P.max       = max(P.max, max[x](S))
              P.max.delta = exp(old(P.max) - P.max)
              P.exp       = exp(S - P.max)
              P.sum       = P.max.delta * P.sum + sum[x](P.exp)
              O.acc       = P.max.delta * O.acc + sum[x](P.exp * V)
  tail        O           = O.acc / P.sum
  merge       P.max       = max(P.max₁, P.max₂)
              P.sum       = exp(P.max₁ - P.max) * P.sum₁ + exp(P.max₂ - P.max) * P.sum₂
              O.acc       = exp(P.max₁ - P.max) * O.acc₁ + exp(P.max₂ - P.max) * O.acc₂
              associative: pieces may be merged in any order
  whole       d in every instance
  identities  exp(s - r') = exp(r - r') * exp(s - r) with r = P.max
              sum[x](P * V) = O.acc / P.sum
"""

NARROW = """\
  cascade     reduction  formula                             needs   repair
              P.max      max[x](S)                           –       none
              P.sum      sum[x](exp(S - P.max))              P.max   rescale
              O          sum[x](exp(S - P.max) / P.sum * V)  P.sum,  rescale
                                                             P.max
"""

SCORES = "q, x, d = 4, 6, 2; Q[q, d]: fp32; K[x, d]: fp32; V[x, d]: fp32; S[q, x] = sum[d](Q[q, d] * K[x, d]);"
CASCADE = (
    CascadeRow("M", "max[x](S)", (), "none", ("M",), "", 1),
    CascadeRow("L", "sum[x](exp(S - M))", ("M",), "rescale", ("L",), "", 1),
)
HAND = Verdict(
    "x",
    "one-pass",
    1,
    state=(StateEntry("M", ("q",), "fp32", "-inf", "none"), StateEntry("L", ("q",), "fp32", "0", "rescale")),
    state_values=2,
    state_bytes=8,
    head=("M = -inf", "L = 0"),
    body=("M = max(M, max[x](S))", "L = M.delta * L + sum[x](exp(S - M))"),
    merge="M = max(M1, M2); L = exp(M1 - M) * L1 + exp(M2 - M) * L2",
    cascade=CASCADE,
)


def page(v: Verdict, width: int = 100, colour: bool = False) -> str:
    return text(Report("hand", (("q", 4), ("x", 6), ("d", 2)), streaming=(v,)), width, colour)


def block(page: str, label: str) -> list[str]:
    """The lines beside a label, without the margin."""
    lines = page.splitlines()
    start = next(k for k, line in enumerate(lines) if re.match(rf"  {label}(  |$)", line))
    column = re.match(rf"  {label} +", lines[start])
    assert column is not None
    rest = lines[start + 1 :]
    end = next((k for k, line in enumerate(rest) if line[: column.end()].strip()), len(rest))
    return [line[column.end() :] for line in (lines[start], *rest[:end])]


@cache
def planned(source: str, axis: str = "x") -> tuple[Opened, Plan]:
    opened = open_diagram(parse(source.replace("; ", "\n").replace(";", "\n")))
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    return opened, repair(opened.boxes, frozenset({axis}), frozenset(opened.outputs), facts)


def of(source: str, axis: str = "x") -> dict[str, CascadeRow]:
    opened, plan = planned(source, axis)
    return {r.name: r for r in cascade_rows(opened, plan, axis)}


@cache
def streamed(algorithm: str, axis: str) -> Report:
    """The report of ``ioweave stream ALGORITHM --axis AXIS``."""
    report: Report = ioweave.stream(algorithm, axis)
    return report


def attention() -> Report:
    """The report of ``ioweave stream attention --axis x``, of what concerns the plan alone."""
    report = streamed("attention", "x")
    assert report.streaming is not None
    (v,) = report.streaming
    plain = replace(v, trials=(), safe=(), plans=(), warnings=(), least=None, least_note="")
    return replace(report, streaming=(plain,))


def test_attention_is_told_as_the_paper_does() -> None:
    assert text(attention(), 100).partition("\n\n")[2] == ATTENTION


def test_a_narrow_page_keeps_the_formulas() -> None:
    narrow = text(attention(), 80)
    assert NARROW in narrow
    assert max(len(line) for line in narrow.splitlines()) <= 80


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize(
    ("algorithm", "axis"), [("attention", "x"), ("column_sums", "x"), ("layernorm", "m"), ("cross_entropy", "v")]
)
def test_no_line_is_wider_than_the_page(algorithm: str, axis: str, width: int) -> None:
    lines = text(streamed(algorithm, axis), width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert not any(line != line.rstrip() for line in lines)


class TestCascade:
    def test_what_waits_is_written_out(self) -> None:
        rows = of(f"{SCORES} P[q, x] = softmax[x](S[q, x]); O[q, d] = sum[x](P[q, x] * V[x, d])")
        assert [(r.name, r.needs, r.repair) for r in rows.values()] == [
            ("P.max", (), "none"),
            ("P.sum", ("P.max",), "rescale"),
            ("O", ("P.sum", "P.max"), "rescale"),
        ]
        assert rows["O"].formula == "sum[x](exp(S - P.max) / P.sum * V)"
        assert rows["O"].accumulators == ("O.acc", "P.sum")
        assert rows["O"].identity.endswith("sum[x](P * V) = O.acc / P.sum")

    def test_a_long_formula_stays_as_it_was_written(self) -> None:
        weight = "P[q, x] = exp(S[q, x] - M[q]) * exp(S[q, x] - M[q]) * exp(S[q, x] - M[q])"
        rows = of(f"{SCORES} M[q] = max[x](S[q, x]); {weight}; O[q, d] = sum[x](P[q, x] * P[q, x] * V[x, d])")
        assert rows["O"].formula == "sum[x](P * P * V)"
        assert rows["O"].needs == ("M",)

    def test_needs_pass_through_reductions_over_other_axes(self) -> None:
        inputs = "p, q, x, d = 3, 4, 6, 2; T[p, x]: fp32; W[q, p]: fp32; V[x, d]: fp32"
        mixed = "P[p, x] = softmax[x](T[p, x]); R[q, x] = sum[p](W[q, p] * P[p, x])"
        rows = of(f"{inputs}; {mixed}; O[q, d] = sum[x](R[q, x] * V[x, d])")
        assert rows["O"].needs == ("P.sum", "P.max")

    def test_needs_do_not_pass_through_other_rows(self) -> None:
        rows = of("t, m = 4, 6; X[t, m]: fp32; M[t] = mean[m](X[t, m]); V[t] = mean[m]((X[t, m] - M[t])**2)", "m")
        assert rows["V.sum"].needs == ("M.sum",)
        assert rows["V.sum"].repair in ("separate", "moments")

    def test_only_what_the_outputs_need_has_a_row(self) -> None:
        opened, _ = planned(f"{SCORES} A[q] = sum[x](S[q, x]); B[q] = max[x](S[q, x]); out(A); out(B)")
        alone = replace(opened, outputs=("B",))
        plan = repair(alone.boxes, frozenset({"x"}), frozenset({"B"}), {})
        assert [r.name for r in cascade_rows(alone, plan, "x")] == ["B"]

    def test_a_value_that_the_plan_does_without_says_so(self) -> None:
        centred = "C[q, x] = S[q, x] - mean[x](S[q, x]); P[q, x] = softmax[x](C[q, x])"
        rows = of(f"{SCORES} {centred}; O[q, d] = sum[x](P[q, x] * V[x, d])")
        assert rows["C.sum"].repair == "dropped"
        assert rows["C.sum"].accumulators == ()
        assert rows["P.max"].repair == "shift"

    def test_a_value_held_by_other_rows_says_so(self) -> None:
        rows = of(f"{SCORES} P[q, x] = softmax[x](S[q, x]); H[q] = max[x](P[q, x])")
        assert rows["H"].accumulators == ("P.sum",)
        assert page(replace(HAND, cascade=tuple(rows.values())))

    def test_a_mapped_axis_has_no_cascade(self) -> None:
        assert of(f"{SCORES} A[q] = sum[x](S[q, x])", "q") == {}

    def test_a_row_tells_its_pass_and_what_is_kept(self) -> None:
        source = f"{SCORES} M[q] = mean[x](S[q, x]); B[q] = sum[x](relu(S[q, x] - M[q]))"
        rows = of(source)
        assert [(r.name, r.run, r.repair) for r in rows.values()] == [("M.sum", 1, "none"), ("B", 2, "none")]
        assert kept_between(planned(source)[1]) == ("M[q]",)

    def test_one_pass_keeps_nothing(self) -> None:
        assert kept_between(planned(f"{SCORES} A[q] = sum[x](S[q, x])")[1]) == ()

    def test_what_a_factor_of_a_later_pass_reads_is_kept(self) -> None:
        _, plan = planned(f"{SCORES} P[q, x] = softmax[x](S[q, x]); C[x] = sum[q](P[q, x])")
        assert kept_between(plan) == ("P.max[q]", "P.sum[q]")


class TestPage:
    def test_a_row_that_waits_for_a_pass(self) -> None:
        later = CascadeRow("N", "sum[x](relu(S - L))", ("L",), "none", ("N",), "", 2)
        v = replace(
            HAND,
            verdict="k-pass(2)",
            passes=2,
            cascade=(*CASCADE, later),
            state=(*HAND.state, StateEntry("N", ("q",), "fp32", "0", "none")),
            body=(*(f"pass 1: {line}" for line in HAND.body), "pass 2: N = N + sum[x](relu(S - L))"),
            tail=("pass 1: K = L / x",),
            merge=None,
            kept=("L[q]",),
            refusal="N over x needs the finished L over x: relu is not linear; and another",
            nearest="keep L",
            least="no single pass: two inputs have the same state",
        )
        shown = page(v)
        assert shown.splitlines()[3].endswith("k-pass(2)  2 passes in either direction, exact over the reals")
        assert block(shown, "cascade")[-1].split() == ["2", "N", "sum[x](relu(S", "-", "L))", "L", "waits", "N"]
        assert [line.split()[0] for line in block(shown, "state")[1:4]] == ["1", "1", "2"]
        assert block(shown, "kept") == ["L[q] between the passes"]
        assert block(shown, "pass 1 body")[0] == "M = max(M, max[x](S))"
        assert block(shown, "pass 1 tail") == ["K = L / x"]
        assert block(shown, "pass 2 body") == ["N = N + sum[x](relu(S - L))"]
        assert len(block(shown, "because")) == 2
        assert "least" in shown
        assert "merge" not in shown

    def test_each_pass_has_its_merge(self) -> None:
        v = replace(HAND, merge="pass 1: M = max(M1, M2); pass 2: L = L1 + L2", passes=2)
        assert block(page(v), "pass 1 merge") == ["M = max(M1, M2)"]
        assert block(page(v), "pass 2 merge")[0] == "L = L1 + L2"

    def test_a_merge_in_order_says_so(self) -> None:
        assert block(page(HAND), "merge")[-1] == "associative: pieces may be merged in any order"
        ordered = page(replace(HAND, commutative=False, direction="forward"))
        assert block(ordered, "merge")[-1] == "associative: pieces may be merged in the order of the axis"
        assert "one-pass  forward only" in ordered

    def test_head_has_real_boxes_before_what_the_state_starts_from(self) -> None:
        assert block(page(replace(HAND, head=("W = A + B", *HAND.head))), "head") == ["W = A + B", "M = -inf, L = 0"]

    def test_conditions_and_evidence(self) -> None:
        trials = (
            Trial((("q", 3), ("x", 7)), (1,) * 7, 1, "normal", 0, 0.0, True),
            Trial((("q", 5), ("x", 4)), (3, 1), 3, "normal", 1, 2e-15, True),
            Trial((("q", 2), ("x", 4)), (4,), 1, "masked", 2, 1e-16, True),
            Trial((("q", 2), ("x", 7)), (2, 4, 1), 1, "normal", 3, 0.0, True),
        )
        v = replace(
            HAND,
            exact="casts",
            whole=("d",),
            safe=("exponents are at most 0",),
            warnings=("a raw sum of squares cancels",),
            assumes=("L > 0",),
            trials=trials,
            plans=(Alternative(1, 66, 264, 1024, ("M", "L"), "rescaled"), Alternative(2, 2, 8, 2048, ("M", "L"), "")),
        )
        shown = page(v)
        assert "exact over the casts written" in shown
        for label, line in (
            ("whole", "d in every instance"),
            ("safe", "exponents are at most 0"),
            ("warnings", "a raw sum of squares cancels"),
            ("assumes", "L > 0"),
        ):
            assert block(shown, label) == [line]
        assert " ".join(block(shown, "trials")) == (
            "executed beside the reference 4 times: sizes up to q 5, x 7; steps 1, 3, whole, uneven; merged from "
            "up to 3 pieces; largest error 2e-15"
        )
        assert [line.split() for line in block(shown, "plans")[1:]] == [
            ["1", "66", "264", "1,024", "rescaled"],
            ["2", "2", "8", "2,048", "M,", "L"],
        ]
        told = replace(v, plans=(Alternative(1, 2, 8, 1024, ("M", "L"), "as it is"), v.plans[0]))
        assert block(page(told), "plans")[1].endswith("this plan: as it is")
        failed = page(replace(v, trials=(replace(trials[0], passed=False),)))
        assert " ".join(block(failed, "trials")).endswith("1 of 1 failed")

    def test_one_plan_is_not_listed(self) -> None:
        assert "plans" not in page(replace(HAND, plans=(Alternative(1, 2, 8, 9, ("M",), ""),)))

    def test_colours_are_for_terminals(self) -> None:
        v = replace(HAND, warnings=("it cancels",))
        assert "\x1b" not in page(v)
        assert "\x1b[" in page(v, colour=True)

    def test_brief_is_short(self) -> None:
        derived = ioweave.search("attention", {"q": 64, "x": 96, "d": 8}, capacity={"smem": "2KiB"}, accumulate="same")
        report = replace(derived, streaming=(replace(HAND, warnings=("it cancels",)),))
        section = text(report).partition("streaming\n")[2].partition("\n\n")[0].splitlines()
        assert section == [
            "  x: one-pass  in either direction, exact over the reals",
            "    state M[q] fp32, L[q] fp32 (rescale); 2 values a row",
            "    warning: it cancels",
        ]


class TestState:
    def test_sizes_are_named_in_the_total(self) -> None:
        assert symbolic([(), ("d",), ()]) == "d + 2"
        assert symbolic([("n", "head"), ("head", "n"), ()]) == "2head·n + 1"
        assert symbolic([("d", "d"), ("d",)]) == "d² + d"

    def test_without_a_shared_axis_it_counts_all(self) -> None:
        state = (StateEntry("A", ("d",), "fp16", "0", "none"), StateEntry("B", (), "fp32", "0", "none"))
        shown = page(replace(HAND, state=state, state_values=3, state_bytes=8))
        assert block(shown, "state")[1:] == [
            "A[d]   fp16      0       2      4",
            "B[]    fp32      0       1      4",
            "d + 1 = 3 values, 8 B in all",
        ]

    def test_without_counts_the_arrays_are_named(self) -> None:
        shown = page(replace(HAND, state_values=None, state_bytes=None))
        assert block(shown, "state")[0].split() == ["array", "dtype", "from"]

    def test_without_a_cascade_each_array_has_its_repair(self) -> None:
        shown = page(replace(HAND, cascade=()))
        assert block(shown, "state")[2].split() == ["L[q]", "fp32", "0", "rescale", "1", "4"]


class TestLines:
    def test_a_line_breaks_at_the_loosest_operator(self) -> None:
        assert broken("aaaa * bbbb + cccc * dddd", 18) == ["aaaa * bbbb", "  + cccc * dddd"]
        assert broken("exp(aaa + bbb) * exp(ccc + ddd)", 20) == ["exp(aaa + bbb)", "  * exp(ccc + ddd)"]

    def test_a_list_breaks_at_commas(self) -> None:
        assert broken("A = 0, B = 0, C = 0", 15, 0) == ["A = 0, B = 0,", "C = 0"]

    def test_what_runs_on_is_elided(self) -> None:
        lines = broken(" + ".join(["abcdef"] * 40), 30, 2, 3)
        assert len(lines) == 3
        assert lines[-1].endswith(" …")
        assert max(map(len, lines)) <= 30

    def test_what_has_no_break_is_cut(self) -> None:
        assert broken("a" * 25, 10) == ["a" * 10, "  " + "a" * 8, "  " + "a" * 7]
