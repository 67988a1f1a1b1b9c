"""The documentation holds: its commands run and print what it shows, its Python passes doctest, the site builds."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from console import ROOT, blocks, commands, prepare, run, shown_in

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=_name)
def test_commands_run_and_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    for block in blocks(page):
        for command in commands(block):
            done = run(command.text, folder)
            assert done.returncode == 0, f"{command.text}: {done.stderr or done.stdout}"
            missing = shown_in(command.shown, done.stdout)
            assert missing is None, f"{command.text}: does not print {missing!r}; python tests/console.py {_name(page)}"


@pytest.mark.parametrize("page", [p for p in PAGES if ">>>" in p.read_text("utf-8")], ids=_name)
def test_python_passes_doctest(page: Path) -> None:
    code = "\n".join(found for found in _PYTHON.findall(page.read_text("utf-8")) if ">>>" in found)
    test = doctest.DocTestParser().get_doctest(code, {}, _name(page), str(page), 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_lead_somewhere(name: str) -> None:
    # those under docs/ are checked as the site builds
    text = re.sub(r"```.*?```|`[^`]*`", "", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (ROOT / target).exists(), target


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "gallery" / "index.html").is_file()


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(listed) == sorted(p.relative_to(ROOT / "docs").as_posix() for p in PAGES[1:])


@pytest.mark.parametrize("page", [p for p in PAGES if "`" in p.read_text("utf-8")], ids=_name)
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in re.findall(r"`((?:ioweave|examples|docs|tests)/[\w./]+)`", text):
        assert "NAME" in name or (ROOT / name).exists(), name
    # in the theory, files of derive/ are named from there or without their folder, after one with it
    known = {p.relative_to(ROOT / "ioweave" / "derive").as_posix() for p in (ROOT / "ioweave" / "derive").rglob("*.py")}
    if page.parent.name == "theory":
        for name in re.findall(r"`([\w/]+\.py)`", text):
            assert name.startswith("ioweave/") or any(k.endswith(name) for k in known), name


def test_the_tour_runs(tmp_path: Path) -> None:
    done = run("bash examples/tour.sh", prepare(tmp_path))
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("$ ioweave")]
    assert len(told) >= 10
    assert "10 of 10 passed" in done.stdout


def test_the_sketch_tells_what_a_variant_does(tmp_path: Path) -> None:
    done = run("python examples/sketch_variant.py", prepare(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "the variant: one-pass" in done.stdout
    assert "normalised twice: k-pass(2)" in done.stdout
    assert "10 of 10 draws passed" in done.stdout


def test_the_levelled_example_is_counted_and_runs(tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    counted = run("ioweave cost examples/split_levels.weave --accumulate same --json", folder)
    assert counted.returncode == 0, counted.stderr
    after = json.loads(counted.stdout)["after"]
    assert after["transfers"]["smem"]["values"] == 147456
    assert after["memory"]["smem"]["values"] == 6752
    checked = run("ioweave check examples/split_levels.weave", folder)
    assert checked.returncode == 0, checked.stdout
    assert "10 of 10 passed" in checked.stdout
