"""The command line as a user types it: what each command prints, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ioweave import parse, parse_levelled
from ioweave.cli import run

ROOT = Path(__file__).resolve().parent.parent
LEVELLED = str(ROOT / "examples" / "split_levels.weave")
SMALL = ["q=64", "x=96", "d=8"]
TIGHT = ["--capacity", "smem=2KiB", "--accumulate", "same"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints, done with status 0 and nothing on standard error."""
    status = run(arguments)
    out, error = capsys.readouterr()
    assert (status, error) == (0, "")
    return out


def shell(*arguments: str, text: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    line = [sys.executable, "-m", "ioweave", *arguments]
    return subprocess.run(
        line, input=text, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **more}
    )


def test_help_is_quick_and_names_the_commands() -> None:
    spent = []
    for _ in range(3):
        start = time.perf_counter()
        done = shell("--help")
        spent.append(time.perf_counter() - start)
        assert done.returncode == 0
    for command in ("derive", "stream", "cost", "check", "bound", "draw", "list", "show", "compare"):
        assert f"\n  {command} " in done.stdout
    assert min(spent) < 1.0


def test_no_command_is_help() -> None:
    done = shell()
    assert "Usage: ioweave" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version").startswith("ioweave 0.")


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line for line in said(capsys, "list", "algorithms").splitlines() if line.startswith("  ")]
    assert sorted(row.split()[0] for row in rows) == sorted(
        p.stem for p in (ROOT / "ioweave/diagrams/catalogue").glob("*.weave")
    )
    machines = said(capsys, "list", "machines")
    assert "163.0 KiB" in machines
    assert "227.0 KiB" in machines


def test_show_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(said(capsys, "show", "attention")).lines[-1].name == "O"
    assert r"\operatorname{softmax}" in said(capsys, "show", "attention", "--as", "latex")
    assert "dot(" in said(capsys, "show", "attention", "--as", "python")
    written = said(capsys, "show", LEVELLED)
    assert parse_levelled(written) == parse_levelled(Path(LEVELLED).read_text("utf-8"))
    assert "q, x, d = 7, 4096, 64" in said(capsys, "show", "attention", "q=7")


def test_cost_counts_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(said(capsys, "cost", LEVELLED, "--accumulate", "same", "--json"))
    assert report["after"]["transfers"]["smem"]["values"] == 147_456
    assert report["after"]["memory"]["smem"]["values"] == 6_752
    assert report["axes"] == {"q": 128, "x": 256, "d": 64}
    assert "before" not in report
    page = said(capsys, "cost", LEVELLED, "--accumulate", "same")
    for words in ("147,456", "6,752", "q 32", "x 16", "= 2q·d + 2q·x·d/g_q", "DRAM sees at most this"):
        assert words in page


def test_sizes_have_suffixes(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(said(capsys, "cost", LEVELLED, "q=1Ki", "x=2Ki", "--json"))
    assert report["axes"] == {"q": 1024, "x": 2048, "d": 64}


def test_an_algorithm_is_given_inline_or_on_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    lines = "q, x = 64, 96; S[q, x]: fp16; Z[q] = logsumexp[x](S[q, x])"
    page = said(capsys, "stream", "-e", lines, "--axis", "x")
    assert "x: one-pass" in page
    assert "Z.sum" in page
    done = shell("stream", "-", "q=32", "--axis", "x", "--json", text=lines.replace("; ", "\n"))
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["algorithm"] == "stdin"
    assert report["axes"]["q"] == 32


def test_a_refusal_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    page = said(capsys, "stream", "column_sums", "--axis", "x")
    assert "k-pass(2)" in page
    assert "P.sum" in page
    report = json.loads(said(capsys, "stream", "column_sums", "--axis", "x", "--json"))
    assert report["streaming"][0]["refusal"]


def test_a_name_that_covers_two_axes_has_two_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(said(capsys, "stream", "attention", "--axis", "d", "--json"))
    assert [v["axis"] for v in report["streaming"]] == ["d", "d'"]
    report = json.loads(said(capsys, "stream", "attention", "--axis", "d'", "--json"))
    assert [v["axis"] for v in report["streaming"]] == ["d'"]


def test_derive_sets_before_beside_after(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "pair.svg"
    page = said(capsys, "derive", "attention", *SMALL, *TIGHT, "--steps", "--figure", str(figure))
    for words in ("before", "after", "napkin", "bound", "streaming", "derivation", "schedule", "schedules searched"):
        assert words in page
    assert figure.read_text("utf-8").startswith("<svg")
    code = page.partition("schedule\n")[2].partition("\nH is")[0]
    again = "\n".join(line.removeprefix("  ") for line in code.splitlines()) + "\n"
    saved = tmp_path / "derived.weave"
    saved.write_text(again, "utf-8")
    derived = json.loads(said(capsys, "derive", "attention", *SMALL, *TIGHT, "--json"))
    counted = json.loads(said(capsys, "cost", str(saved), "--accumulate", "same", "--json"))
    (a,), (b,) = (side["after"]["transfers"].values() for side in (counted, derived))
    assert all(a[key] == b[key] for key in ("values", "bytes", "loads", "stores"))
    assert parse_levelled(derived["notation"]) == parse_levelled(again)


def test_alignment_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(said(capsys, "derive", "attention", *SMALL, *TIGHT, "--align", "q=16,x=8", "--json"))
    for region in report["after"]["regions"]:
        tiles = [*region["group"].items(), *region["stream"]]
        assert all(n % {"q": 16, "x": 8}.get(a, 1) == 0 or n == report["axes"][a.rstrip("'")] for a, n in tiles)


def test_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "attention", "--capacity", "smem=4B"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert any(word.strip(",").replace(",", "").isdecimal() for word in error.split())


def test_bound_tells_the_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(said(capsys, "bound", "matmul", "--capacity", "smem=128KiB", "--accumulate", "same", "--json"))
    assert report["bound"]["values"] == pytest.approx(2 * 4096**3 / 65536**0.5 - 2 * 65536)
    assert 1 <= report["bound"]["ratio"] < 1.1
    assert "bound" in said(capsys, "bound", "attention", *SMALL)


def test_check_passes_and_saves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "out.npz"
    page = said(capsys, "check", LEVELLED, "q=33", "x=17", "d=4", "--tile", "x=5", "--save", str(saved))
    assert "1 of 1 passed" in page
    with np.load(saved) as arrays:
        assert set(arrays) >= {"Q", "K", "V", "O"}
        assert arrays["O"].shape == (33, 4)
    report = json.loads(said(capsys, "check", LEVELLED, "--inputs", str(saved), "--json"))
    (row,) = report["check"]
    assert row["passed"]
    assert row["axes"] == {"q": 33, "x": 17, "d": 4}


def test_check_draws_ten_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(said(capsys, "check", LEVELLED, "--seed", "3", "--json"))
    assert [row["seed"] for row in report["check"]] == list(range(3, 13))
    assert all(row["passed"] for row in report["check"])


def test_check_takes_the_tiles_of_a_derived_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    page = said(capsys, "check", "attention", *SMALL, "--tile", "q=7")
    assert "q=7" in page


def test_a_failed_check_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", LEVELLED, "q=64", "--capacity", "smem=1KiB"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_compare_says_what_differs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "other.weave"
    other.write_text(Path(LEVELLED).read_text("utf-8").replace("q: 32", "q: 64"), "utf-8")
    report = json.loads(said(capsys, "compare", LEVELLED, str(other), "--json"))
    rows = {row["what"]: (row["a"], row["b"]) for row in report["compare"]}
    assert rows["loads.K"] == (65_536, 32_768)
    assert "loads.Q" not in rows
    assert report["algorithm"] == "split_levels"
    assert "2.00× more" in said(capsys, "compare", LEVELLED, str(other))
    assert "nothing differs" in said(capsys, "compare", LEVELLED, LEVELLED)


def test_compare_takes_machines_and_dtypes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(said(capsys, "compare", "a100", "h100", "--json"))["compare"]
    assert {"what": "smem.capacity", "a": 163 * 1024, "b": 227 * 1024} in rows
    rows = json.loads(said(capsys, "compare", "fp16", "fp8", "--json"))["compare"]
    assert {"what": "bits", "a": 16, "b": 8} in rows


def test_compare_gives_sizes_to_whom_they_belong(capsys: pytest.CaptureFixture[str]) -> None:
    one = "i, j = 4, 5; A[i, j]: fp16; B[i] = sum[j](A[i, j])"
    two = "i, k = 4, 5; A[i, k]: fp16; B[i] = sum[k](A[i, k])"
    report = json.loads(said(capsys, "compare", "-e", one, "-e", two, "j=8", "--json"))
    rows = {row["what"]: (row["a"], row["b"]) for row in report["compare"]}
    assert rows["loads.A"] == (32, 20)


@pytest.mark.parametrize("which", ["--before", "--after", "--pair"])
def test_draw_writes_svg(capsys: pytest.CaptureFixture[str], tmp_path: Path, which: str) -> None:
    figure = tmp_path / "figure.svg"
    assert said(capsys, "draw", "attention", *SMALL, which, "-o", str(figure)) == ""
    assert figure.read_text("utf-8").startswith("<svg")
    assert [p.name for p in tmp_path.iterdir()] == ["figure.svg"]


def test_draw_writes_png_and_dot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert said(capsys, "draw", LEVELLED, "-o", str(tmp_path / "figure.png")) == ""
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert said(capsys, "draw", LEVELLED, "--graph", "-o", str(tmp_path / "graph.dot")) == ""
    assert (tmp_path / "graph.dot").read_text("utf-8").startswith("digraph")


def test_a_file_is_replaced_whole_and_keeps_its_mode(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "figure.svg"
    figure.write_text("old", "utf-8")
    figure.chmod(0o640)
    assert said(capsys, "draw", LEVELLED, "-o", str(figure)) == ""
    assert figure.read_text("utf-8").startswith("<svg")
    assert figure.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["transfers", "memory", "flops"])
def test_explained_terms_add_up(capsys: pytest.CaptureFixture[str], name: str) -> None:
    report = json.loads(said(capsys, "cost", LEVELLED, "--json", "--explain"))
    side = report["after"]
    total = {
        "transfers": side["transfers"]["smem"]["values"],
        "memory": side["memory"]["smem"]["bytes"],
        "flops": sum(side["flops"][kind] for kind in ("mma", "vector", "special")),
    }
    assert sum(row["value"] for row in report["explain"] if row["total"] == name) == total[name]


@pytest.mark.parametrize(
    "arguments",
    [
        ["cost", LEVELLED],
        ["stream", "attention", "--axis", "x"],
        ["bound", "attention", *SMALL],
        ["check", LEVELLED, "q=8", "x=8", "d=4"],
        ["compare", LEVELLED, LEVELLED, "q=64"],
        ["derive", "attention", *SMALL, *TIGHT],
    ],
    ids=lambda a: a[0],
)
def test_every_report_explains_itself(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    page = said(capsys, *arguments, "--explain")
    assert "explained" in page
    assert " = " in page.partition("explained")[2]


def test_a_reader_that_goes_away_is_no_error() -> None:
    line = f"'{sys.executable}' -m ioweave cost '{LEVELLED}' --json --explain | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_output_that_cannot_be_written_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no full device here")
    with open("/dev/full", "w", encoding="utf-8") as full:
        line = [sys.executable, "-m", "ioweave", "list", "machines"]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_an_interrupt_ends_without_a_traceback() -> None:
    line = [sys.executable, "-m", "ioweave", "check", "attention", "q=512", "x=512", "d=64", "--tile", "q=1,x=1"]
    for wait in (1.0, 3.0):
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            try:
                _, error = process.communicate(timeout=30)
            finally:
                process.kill()
        assert process.returncode == 130
        assert "Traceback" not in error


def test_an_error_of_its_own_is_one_line_unless_debugged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ioweave.render.report.lists.entries", broken)
    assert run(["list", "algorithms"]) == 70
    _, error = capsys.readouterr()
    assert error.count("\n") == 1
    assert "report it" in error
    monkeypatch.setenv("IOWEAVE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["list", "algorithms"])


def test_no_colours_unless_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in said(capsys, "cost", LEVELLED)
    assert "\x1b" not in shell("cost", LEVELLED, FORCE_COLOR="1").stdout


def test_an_encoding_without_the_signs_is_no_error() -> None:
    done = shell("cost", LEVELLED, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert "147" in done.stdout
