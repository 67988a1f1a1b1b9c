"""Console blocks of the documentation: find them, run them, and write their output back.

``python tests/console.py FILE...`` runs the blocks of each file and puts the real output under every
command that shows some which is no longer true; a line ``...`` keeps its place. To show the output of a
command for the first time, write ``?`` under it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ioweave.cli

ROOT = Path(__file__).resolve().parent.parent
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1"}
_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """One command of a block, with the lines of output shown under it."""

    text: str
    shown: tuple[str, ...]


def commands(block: str) -> Iterator[Command]:
    """The commands of a block: lines with ``$``, going on in lines with ``>``, each with its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        text, *shown = part.rstrip("\n").split("\n")
        while shown and shown[0].startswith("> "):
            text += "\n" + shown.pop(0).removeprefix("> ")
        yield Command(text, tuple(shown))


def blocks(page: Path) -> list[str]:
    """The text of the console blocks of a page."""
    return _BLOCK.findall(page.read_text("utf-8"))


@dataclass(frozen=True)
class Done:
    """What a command gave."""

    returncode: int
    stdout: str
    stderr: str


def run(command: str, folder: Path) -> Done:
    """Run a command in ``folder``: one of ``ioweave`` alone in this process, where it starts at once; else a shell."""
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    if words[0] != "ioweave" or any(set(word) <= set("();<>|&") for word in words):
        return _in_shell(command, folder)
    out, err = io.StringIO(), io.StringIO()
    before = dict(os.environ)
    os.environ.update(PLAIN)
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = ioweave.cli.run(shlex.split(command)[1:])
    finally:
        os.environ.clear()
        os.environ.update(before)
    return Done(status, out.getvalue(), err.getvalue())


def _in_shell(command: str, folder: Path) -> Done:
    """The same with this environment's ``ioweave`` and ``python`` first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = ["bash", "-o", "pipefail", "-c", command]
    environment = {**os.environ, **PLAIN, "PATH": path}
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    return Done(done.returncode, done.stdout, done.stderr)


def prepare(folder: Path) -> Path:
    """A folder to run a page's commands in: the examples are there, as in a clone."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def shown_in(shown: tuple[str, ...], output: str) -> str | None:
    """The first shown line that is not true, or None.

    What is shown is the whole output, line by line; a line ``...`` stands for any lines, and ``...``
    within a line for any characters. Nothing shown claims nothing.
    """
    if not any(line.strip() for line in shown):
        return None
    real = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
    if re.fullmatch(_pattern(shown), real):
        return None
    for n in range(1, len(shown) + 1):
        if not re.match(_pattern(shown[:n]), real):
            return shown[n - 1]
    return "(the end)"


def _pattern(shown: tuple[str, ...]) -> str:
    return "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else r".*".join(re.escape(p) for p in line.rstrip().split("...")) + r"\n"
        for line in shown
    )


def shortened(shown: tuple[str, ...], output: str) -> list[str]:
    """The output, cut as what is shown was: as many lines before its first ``...`` and after its last."""
    real = [line.rstrip() for line in output.rstrip().splitlines()]
    cuts = [k for k, line in enumerate(shown) if line.strip() == "..."]
    if not cuts:
        return real
    after = len(shown) - 1 - cuts[-1]
    return [*real[: cuts[0]], "...", *real[len(real) - after :]]


def refreshed(page: Path, folder: Path) -> str:
    """The text of the page with real output under each command whose output is shown and not true."""

    def block(found: re.Match[str]) -> str:
        lines: list[str] = []
        for command in commands(found[0]):
            done = run(command.text, folder)
            if done.returncode:
                raise SystemExit(f"{page}: {command.text}: exit {done.returncode}: {done.stderr.strip()}")
            true = shown_in(command.shown, done.stdout) is None
            typed = command.text.replace("\n", "\n> ")
            lines += [f"$ {typed}", *(command.shown if true else shortened(command.shown, done.stdout))]
        return "\n".join(lines) + "\n"

    return _BLOCK.sub(block, page.read_text("utf-8"))


if __name__ == "__main__":
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            Path(name).write_text(refreshed(Path(name), prepare(Path(place))), "utf-8")
