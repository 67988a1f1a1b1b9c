"""The contract: what every command prints with --json holds to the published schema, and counts the cases rightly."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ioweave import parse_levelled, print_levelled
from ioweave.cli import run

ROOT = Path(__file__).resolve().parent.parent
LEVELLED = str(ROOT / "examples" / "split_levels.weave")
CASES = sorted((ROOT / "tests" / "cases").glob("*.weave"))
SCHEMA = json.loads((resources.files("ioweave.hierarchy") / "report.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SMALL = ["q=64", "x=96", "d=8", "--capacity", "smem=2KiB"]
COMPUTED = {"warnings", "algorithm", "axes"}


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The report that a command prints, valid against the schema."""
    assert run([*arguments, "--json"]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    VALIDATOR.validate(record)
    return record


COMMANDS = {
    "derive": (
        ["derive", "attention", *SMALL, "--steps"],
        "machine levels objective accumulate before after streaming derivation napkin bound searched notation",
    ),
    "derive explained": (
        ["derive", "attention", *SMALL, "--explain"],
        "machine levels objective accumulate before after streaming derivation napkin bound searched notation explain",
    ),
    "cost": (["cost", LEVELLED], "machine levels accumulate after notation"),
    "cost of lines": (["cost", "attention", "q=8", "x=8"], "machine levels accumulate after notation"),
    "stream": (["stream", "attention", "--axis", "x"], "levels accumulate streaming"),
    "refusal": (["stream", "column_sums", "--axis", "x"], "levels accumulate streaming"),
    "check": (["check", LEVELLED, "q=8", "x=8", "d=4"], "machine levels accumulate check"),
    "draws": (["check", LEVELLED], "machine levels accumulate check"),
    "bound": (["bound", "attention", *SMALL], "machine levels accumulate napkin bound searched"),
    "compare": (["compare", LEVELLED, "attention", *SMALL], "machine levels accumulate compare"),
    "machines": (["compare", "a100", "h100"], "machine compare"),
    "dtypes": (["compare", "fp16", "fp8"], "machine compare"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_report_is_valid_and_has_the_keys_it_computes(capsys: pytest.CaptureFixture[str], name: str) -> None:
    arguments, keys = COMMANDS[name]
    assert set(report(capsys, *arguments)) == {*keys.split(), *COMPUTED}


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_cases(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    want = json.loads(path.with_suffix(".json").read_text("utf-8"))
    record = report(capsys, "cost", str(path), "--levels", "gmem,smem", "--accumulate", "same")
    moved = record["after"]["transfers"]["smem"]
    assert {key: moved[key] for key in ("values", "loads", "stores")} == {
        key: want[key] for key in ("values", "loads", "stores")
    }
    assert all(record["axes"][axis] == n for axis, n in want["axes"].items() if axis in record["axes"])
    assert print_levelled(parse_levelled(record["notation"])) == record["notation"]


@pytest.mark.parametrize("path", CASES[::4], ids=lambda p: p.stem)
def test_regions_add_up_to_the_side(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    side = report(capsys, "cost", str(path))["after"]
    regions = side["regions"]
    for key in ("values", "bytes"):
        assert side["transfers"]["smem"][key] == sum(r["transfers"]["smem"][key] for r in regions)
    for kind in ("mma", "vector", "special"):
        assert side["flops"][kind] == sum(r["flops"][kind] for r in regions)
    assert side["memory"]["smem"]["bytes"] == max(r["memory"]["smem"]["bytes"] for r in regions)
    moved = side["transfers"]["smem"]
    assert moved["values"] == sum(moved["loads"].values()) + sum(moved["stores"].values())
    assert side["seconds"]["least"] <= side["seconds"]["total"]
