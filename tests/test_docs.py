"""The documentation holds: its commands run and print what it shows, its Python passes doctest, the site builds."""

from __future__ import annotations

import doctest
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
            assert done.returncode == 0, f"{command.text}: {done.stderr}"
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


@pytest.mark.parametrize("script", ["tour.sh", "sketch_variant.py"])
def test_examples_run(script: str, tmp_path: Path) -> None:
    runner = "bash" if script.endswith(".sh") else "python"
    done = run(f"{runner} examples/{script}", prepare(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
