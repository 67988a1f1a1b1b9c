"""Bad input: one line that says what is wrong and what would be right, status 2, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ioweave.cli import run

LEVELLED = str(Path(__file__).resolve().parent.parent / "examples" / "split_levels.weave")


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int = 2) -> str:
    """The one line of a refusal."""
    got = run(arguments)
    out, error = capsys.readouterr()
    assert (got, out) == (status, ""), error
    assert error.count("\n") == 1
    assert error.startswith("ioweave: ")
    assert "Traceback" not in error
    return error


SIZES = [
    ("q=0", "more than zero"),
    ("q=-4", "more than zero"),
    ("q=1.5", "whole number"),
    ("q=2Ti", "2**40"),
    ("q=1099511627777", "2**40"),
    ("q=1" + "0" * 5000, "2**40"),
    ("q=128k", "128Ki"),
    ("q=128KiB", "values, not bytes"),
    ("q=", "not a number"),
    ("q=many", "not a number"),
    ("q==4", "not a number"),
    ("=4", "axis=size"),
    ("q", "axis=size"),
    ("zz=4", "q, x, d"),
]


@pytest.mark.parametrize("command", ["derive", "cost", "check", "bound", "show"])
@pytest.mark.parametrize(("size", "words"), SIZES, ids=[s[:12] for s, _ in SIZES])
def test_sizes(capsys: pytest.CaptureFixture[str], command: str, size: str, words: str) -> None:
    assert words in refused(capsys, [command, "attention", size])


def test_a_size_is_given_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert "twice" in refused(capsys, ["derive", "attention", "q=4", "q=4"])


OPTIONS = [
    ("--machine h1000", "h100"),
    ("--machine /nonexistent.toml", "no such file"),
    ("--capacity smem=12", "12KiB"),
    ("--capacity smem", "smem=128KiB"),
    ("--capacity smem=0KiB", "more than zero"),
    ("--capacity smem=-1KiB", "more than zero"),
    ("--capacity smem=1XB", "KiB"),
    ("--capacity sme=1KiB", "smem"),
    ("--capacity smem=1KiB --capacity smem=2KiB", "twice"),
    ("--levels smem", "two levels"),
    ("--levels smem,gmem", "gmem,smem"),
    ("--levels gmem,l2,smem", "two levels"),
    ("--levels gmem,rge", "reg"),
    ("--objective time", "transfers"),
    ("--objective energy", "transfers"),
    ("--objective transfer", "transfers"),
    ("--objective transfers:reg", "transfers:smem"),
    ("--accumulate fp16", "fp32 or same"),
    ("--align q", "q=16"),
    ("--align q=0", "more than zero"),
    ("--align zz=16", "q, x, d"),
    ("--figure /nonexistent/x.svg", "/nonexistent"),
    ("--figure x.pdf", ".svg or .png"),
    ("--figure x", ".svg or .png"),
    ("--figure /", "directory"),
    ("--dtype K=fp8", "--dtype"),
    ("--rivals 3%", "--rivals"),
    ("--report out.html", "--report"),
    ("--phase decode", "--phase"),
    ("--jsn", "--json"),
    ("--machine", "argument"),
]


@pytest.mark.parametrize(("option", "words"), OPTIONS, ids=[o for o, _ in OPTIONS])
def test_options(capsys: pytest.CaptureFixture[str], option: str, words: str) -> None:
    assert words in refused(capsys, ["derive", "attention", *option.split()])


COMMANDS = [
    ("derive", "list algorithms"),
    ("derive nothing_of_this_name", "list algorithms"),
    ("derive atention", "attention"),
    ("derive /", "directory"),
    ("derive attention matmul", "axis=size"),
    ("stream attention", "--axis"),
    ("stream attention --axis zz", "q, x, d"),
    ("stream attention --axis x --direction sideways", "--direction"),
    ("stream attention --axis x --lazy 20", "at most 11.1"),
    ("derive attention q=256Mi x=256Mi", "smaller sizes"),
    ("bound attention q=4Gi x=4Gi", "smaller sizes"),
    ("stream attention --axis x --lazy -1", "above 0"),
    ("check attention --tile q", "q=16"),
    ("check attention --tile q=0", "more than zero"),
    ("check attention --seed -1", "--seed"),
    ("check attention --seed one", "--seed"),
    ("check attention --inputs /nonexistent.npz", "no such file"),
    ("check attention q=4 --save out.txt", ".npz"),
    ("check attention --save out.npz", "one run"),
    ("check attention q=1Mi x=1Mi", "--large"),
    ("draw attention", "-o figure.svg"),
    ("draw attention -o /nonexistent/x.svg", "/nonexistent"),
    ("draw attention -o x.pdf", ".svg or .png"),
    ("draw attention --graph --pair -o x.svg", "--pair"),
    ("draw attention --stack -o x.svg", "--stack"),
    ("compare attention", "name an algorithm"),
    ("compare attention a100", "machine"),
    ("compare fp16 attention", "dtype"),
    ("compare - -", "once"),
    ("list", "algorithms|machines"),
    ("list things", "machines"),
    ("list machines more", "more"),
    ("show attention --as tex", "latex"),
    ("plot skislope attention -o plot.svg", "plot"),
    ("derve attention", "derve"),
]


@pytest.mark.parametrize(("line", "words"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_commands(capsys: pytest.CaptureFixture[str], line: str, words: str) -> None:
    assert words in refused(capsys, line.split())


FILES = [
    (b"", "empty"),
    (b"  \n", "empty"),
    (b"\x00\x01\xff", "binary"),
    ("é = 3".encode("latin-1"), "UTF-8"),
    (b"q = 4\nA[q]: fp16\n", "nothing is computed"),
    (b"q = 4\nA[q]: fp16\nB[q] = A[r]\n", ":3:"),
    (b"q = 0\nA[q]: fp16\nB[q] = A[q]\n", ":1:"),
    (b"import os\n", "import"),
]


@pytest.mark.parametrize("command", ["derive", "cost", "show"])
@pytest.mark.parametrize(("data", "words"), FILES)
def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, data: bytes, words: str) -> None:
    path = tmp_path / "bad.weave"
    path.write_bytes(data)
    error = refused(capsys, [command, str(path)])
    assert words in error
    assert "bad.weave" in error


BLOCKS = [
    ('with level("smem", group={q: 0}):', ":3:"),
    ('with level("smem", group={q: -1}):', ":3:"),
    ('with level("smem", stream={x: 4}):', "x"),
    ('with level("smme"):', "smem"),
    ('with level("gmem"):', "highest"),
    ('with level("reg", group={q: 2}):', "--levels gmem,reg"),
]


@pytest.mark.parametrize(("block", "words"), BLOCKS, ids=[b for b, _ in BLOCKS])
def test_levels(capsys: pytest.CaptureFixture[str], tmp_path: Path, block: str, words: str) -> None:
    path = tmp_path / "levels.weave"
    path.write_text(f"q = 4\nA[q]: fp16\n{block}\n    B[q] = 2 * A[q]\n", "utf-8")
    assert words in refused(capsys, ["cost", str(path)])


def test_a_count_that_is_refused_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    # two instances would write one place
    lines = (
        "q, x = 4, 6\nA[q, x]: fp16\nM[q] = max[x](A[q, x])\n"
        'with level("smem", group={x: 2}):\n    B[q, x] = A[q, x]\n    C[q] = M[q] * 2\nD[q] = sum[x](B[q, x]) + C[q]'
    )
    assert "x" in refused(capsys, ["cost", "-e", lines])


def test_a_file_that_may_not_be_written_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "figure.svg"
    assert run(["draw", LEVELLED, "q=0", "-o", str(figure)]) == 2
    capsys.readouterr()
    assert list(tmp_path.iterdir()) == []
    figure.mkdir()
    assert "directory" in refused(capsys, ["draw", LEVELLED, "-o", str(figure)])


def test_inputs_must_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "in.npz"

    def given(**arrays: object) -> list[str]:
        np.savez(path, **arrays)
        return ["check", LEVELLED, "--inputs", str(path)]

    q, k = np.ones((4, 3)), np.ones((5, 3))
    assert "no array V" in refused(capsys, given(Q=q, K=k))
    assert "dimensions" in refused(capsys, given(Q=q, K=k, V=np.ones(5)))
    assert "`d`" in refused(capsys, given(Q=q, K=k, V=np.ones((5, 2))))
    assert "numbers" in refused(capsys, given(Q=q, K=k, V=np.array([["a"]])))
    np.save(tmp_path / "one.npy", q)
    assert "single array" in refused(capsys, ["check", LEVELLED, "--inputs", str(tmp_path / "one.npy")])
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, Q=np.array([{}], dtype=object))
    assert ".npz" in refused(capsys, ["check", LEVELLED, "--inputs", str(pickled)])
