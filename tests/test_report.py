"""Reports: records that encode themselves, text that people read, and what notebooks show."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path

import pytest
import sympy

import ioweave
from ioweave import DoesNotFit, Report, WeaveError
from ioweave.derive.execution.check import check
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.reporting.checked import as_mathematics
from ioweave.derive.rewrites.unfused import unfused
from ioweave.hierarchy.counts import Flops, Memory, Transfers
from ioweave.hierarchy.report import BoundRow, CheckLine, CompareRow, RegionRow, Side, Tally, Written
from ioweave.hierarchy.steps import Step
from ioweave.render.report import text
from ioweave.render.report.words import change, formula_words, numbered, times

LEVELLED = Path(__file__).resolve().parent.parent / "examples" / "split_levels.weave"
SMALL = {"q": 64, "x": 96, "d": 8}
TIGHT = {"smem": "2KiB"}


@pytest.fixture(scope="module")
def derived() -> Report:
    return ioweave.search("attention", SMALL, capacity=TIGHT, accumulate="same")


def tally(values: int = 3) -> Tally:
    return Tally(Transfers(values, 2 * values, {"A": values, "B": 0}, {}), Memory(8, None, "C"), Flops(2, 0, 1))


def test_absent_fields_are_absent_keys() -> None:
    assert Report("a", (("q", 4),)).to_json() == {"algorithm": "a", "axes": {"q": 4}, "warnings": []}


def test_a_side_is_keyed_by_the_lower_level() -> None:
    row = RegionRow("R", "l2", (("q", 2),), (("x", 3), ("y", 1)), (), (), ("A", "B"), 2, 1, tally())
    record = Side("l2", tally(), (row,)).to_json()
    assert record["transfers"] == {"l2": {"values": 3, "bytes": 6, "loads": {"A": 3}, "stores": {}}}
    assert record["memory"] == {"l2": {"bytes": 8, "column": "C"}}
    assert record["regions"][0]["stream"] == [["x", 3], ["y", 1]]
    assert "place" not in record["regions"][0]
    assert "seconds" not in record


def test_a_formula_that_is_a_bound_says_so() -> None:
    record: dict[str, object] = {}
    Written("q*d", "q d", bound=True).put(record, latex=True)
    assert record == {"formula": "<= q*d", "latex": r"\le q d"}


def test_rows_encode_what_they_have() -> None:
    assert CompareRow("flops.mma", 3, None).to_json() == {"what": "flops.mma", "a": 3, "b": None}
    assert "ratio" not in BoundRow(3, "because").to_json()
    assert "because" not in CheckLine((("q", 4),), {}, 0, 0.0, 0, True).to_json()
    assert Step("fuse", "it holds").to_json() == {"step": "fuse", "because": "it holds"}


def test_formulas_come_to_the_counts() -> None:
    report = ioweave.cost(str(LEVELLED), accumulate="same")
    assert report.after is not None
    side = report.after.tally
    for written, value in (
        (side.formulas.transfers, side.transfers.values),
        (side.formulas.memory, side.memory.values),
        (side.formulas.flops, side.flops.total),
    ):
        assert sympy.sympify(written.text).subs(dict(written.symbols)) == value


def test_text_is_narrow_and_plain(derived: Report) -> None:
    for report in (derived, ioweave.stream("attention", "x"), ioweave.cost("attention", {"q": 8})):
        prose = text(report, width=100, steps=True).partition("schedule\n")[0].partition("as read\n")[0]
        assert max(len(line) for line in prose.splitlines()) <= 100
        assert "\x1b" not in prose
        assert not re.search(r"[ \t]$", prose, re.MULTILINE)


def test_text_has_colours_on_a_terminal(derived: Report) -> None:
    assert "\x1b[" in text(derived, colour=True)


def test_a_report_prints_itself(derived: Report) -> None:
    page = str(derived)
    for words in (
        "attention",
        "before",
        "after",
        "napkin",
        "bound",
        "one-pass",
        "with level",
        "DRAM sees at most this",
    ):
        assert words in page
    assert "q = 64, x = 96, d = 8" in page


def test_steps_are_told_when_asked(derived: Report) -> None:
    assert "derivation" not in text(derived)
    told = text(derived, steps=True)
    assert derived.derivation
    assert "1. " in told.partition("derivation")[2]


def test_stream_tells_state_and_stages() -> None:
    page = str(ioweave.stream("attention", "x"))
    for words in (
        "P.max[q]",
        "rescale",
        "d + 2 = 66 values, 264 B for each row of q",
        "head",
        "body",
        "merge",
        "tail",
        "O.acc / P.sum",
    ):
        assert words in page


def test_a_missing_array_is_a_dash() -> None:
    page = str(ioweave.search("attention", SMALL, capacity=TIGHT, accumulate="same"))
    line = next(line for line in page.splitlines() if line.split()[:1] == ["P"])
    assert line.split() == ["P", "6,144", "–"]


def test_levels_that_do_not_fit_are_a_warning() -> None:
    report = ioweave.cost(str(LEVELLED), capacity="smem=1KiB")
    assert any("more than the 1.0 KiB of smem" in w for w in report.warnings)
    assert "warning: " in str(report)


def test_the_levels_of_a_file_are_left_out_of_a_search() -> None:
    report = ioweave.search(LEVELLED.read_text("utf-8"), {"q": 16, "x": 16, "d": 4})
    assert any("left out" in w for w in report.warnings)


def test_reports_and_figures_in_a_notebook(derived: Report) -> None:
    figure = derived._repr_svg_()
    assert figure is not None
    assert figure.startswith("<svg")
    html = derived._repr_html_()
    assert html is not None
    assert html.startswith("<pre")
    address = html.partition('src="data:image/svg+xml;base64,')[2].partition('"')[0]
    assert b64decode(address).decode() == figure
    verdict = ioweave.stream("attention", "x")
    assert verdict._repr_svg_() is None
    assert "<img" not in (verdict._repr_html_() or "<img")


def test_diagrams_in_a_notebook() -> None:
    diagram = ioweave.load("attention")
    levelled = ioweave.parse_levelled(LEVELLED.read_text("utf-8"))
    for value in (diagram, levelled):
        figure = value._repr_svg_()
        assert figure is not None
        assert figure.startswith("<svg")
        assert value._repr_html_() is None


def test_verbs_take_names_texts_and_diagrams() -> None:
    lines = "i, j = 4, 5\nA[i, j]: fp16\nB[i] = sum[j](A[i, j])"
    sources = (lines, ioweave.parse(lines), ioweave.parse_levelled(lines))
    costs = [ioweave.cost(source, {"j": 7}).to_json()["after"] for source in sources]
    assert costs[0] == costs[1] == costs[2]
    assert costs[0]["transfers"]["smem"]["loads"] == {"A": 28}
    assert ioweave.check(lines, {"i": 3}).passed
    assert ioweave.compare(lines, lines).compare == ()
    rows = ioweave.compare("a100", "h100").compare or ()
    assert CompareRow("smem.instances", 108, 132) in rows


def test_draw_from_python(tmp_path: Path, derived: Report) -> None:
    path = tmp_path / "pair.svg"
    assert ioweave.draw(derived, str(path)) is None
    assert path.read_text("utf-8") == ioweave.draw(derived)
    assert "<svg" in (ioweave.draw("attention", which="after", sizes=SMALL) or "")
    with pytest.raises(WeaveError, match="pair"):
        ioweave.draw(derived, which="pear")


def test_bad_input_from_python() -> None:
    with pytest.raises(WeaveError, match="1 or more"):
        ioweave.search("attention", {"q": 0})
    with pytest.raises(WeaveError, match="did you mean"):
        ioweave.cost(ioweave.load("attention"), {"qq": 4})
    with pytest.raises(WeaveError, match="needs a unit"):
        ioweave.search("attention", capacity={"smem": "12"})
    with pytest.raises(WeaveError, match="alignment"):
        ioweave.search("attention", align={"q": 0})
    with pytest.raises(DoesNotFit) as caught:
        ioweave.search("attention", SMALL, capacity={"smem": 4})
    assert caught.value.least > 4


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(4, 4, ""), (0, 4, ""), (13, 1, "13.0× less"), (1, 250, "250× more"), (100, 99, "1% less"), (2, 4, "2.00× more")],
)
def test_changes_in_words(before: int, after: int, words: str) -> None:
    assert change(before, after) == words


def test_numbers_in_words() -> None:
    assert times(1.254) == "1.25×"
    assert numbered(1, "value") == "1 value"
    assert numbered(1200, "value") == "1,200 values"
    assert formula_words("2*q*d + 4*q*x*d**2/M") == "2qd + 4qxd²/M"
    assert formula_words("2*q*d/g_q + sqrt(M)") == "2q·d/g_q + √M"


def test_a_check_holds_a_rewritten_schedule_to_the_mathematics() -> None:
    lines = "q, x = 5, 7\nS[q, x]: fp16\nP[q, x] = softmax[x](S[q, x])"
    diagram = ioweave.parse(lines)
    other = ioweave.parse(lines.replace("softmax[x](S[q, x])", "S[q, x]"))
    arrays = draw_inputs(diagram, diagram.values(), 0)
    (run,) = check(unfused(other), diagram.values(), inputs=arrays)
    assert run.row.passed
    held = as_mathematics(run, diagram, arrays)
    assert not held.row.passed
    assert "differs from the mathematics" in held.row.because
    opened = ioweave.open_line(diagram, "P")
    (run,) = check(unfused(opened), diagram.values(), inputs=arrays)
    assert as_mathematics(run, diagram, arrays).row.passed
