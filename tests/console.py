"""Console blocks of the documentation: find them, run them, and write their output back.

``python tests/console.py FILE...`` runs the blocks of each file and puts the real output under
every command, up to a line ``...`` where the block had one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """One command of a block, with the lines of output shown under it."""

    text: str
    shown: tuple[str, ...]


def commands(block: str) -> Iterator[Command]:
    """The commands of a block: lines that begin with ``$``, each with what follows it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        text, *shown = part.rstrip("\n").split("\n")
        yield Command(text, tuple(shown))


def blocks(page: Path) -> list[str]:
    """The text of the console blocks of a page."""
    return _BLOCK.findall(page.read_text("utf-8"))


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder``, with this environment's ``ioweave`` first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    shell = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def prepare(folder: Path) -> Path:
    """A folder to run a page's commands in: the examples are there, as in a clone."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def shown_in(shown: tuple[str, ...], output: str) -> str | None:
    """The first shown line that is not in the output in order, or None; ``...`` stands for any lines."""
    left = iter(output.splitlines())
    for line in shown:
        if line.strip() not in ("", "...") and not any(line.rstrip() == real.rstrip() for real in left):
            return line
    return None


def refreshed(page: Path, folder: Path) -> str:
    """The text of the page with real output under each command."""

    def block(found: re.Match[str]) -> str:
        lines: list[str] = []
        for command in commands(found[0]):
            done = run(command.text, folder)
            if done.returncode:
                raise SystemExit(f"{page}: {command.text}: exit {done.returncode}: {done.stderr.strip()}")
            output = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
            if "..." in command.shown:
                output = [*output[: command.shown.index("...")], "..."]
            lines += [f"$ {command.text}", *output]
        return "\n".join(lines) + "\n"

    return _BLOCK.sub(block, page.read_text("utf-8"))


if __name__ == "__main__":
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            Path(name).write_text(refreshed(Path(name), prepare(Path(place))), "utf-8")
