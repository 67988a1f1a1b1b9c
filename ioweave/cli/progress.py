"""A progress bar for work that takes longer than two seconds, on a terminal's standard error alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show that ``what`` is being done, once it has taken long; gives a function to tell what is next."""
    latest = [what]

    def tell(part: str) -> None:
        latest[0] = f"{what}: {part}"

    if not sys.stderr.isatty():
        yield tell
        return
    done = threading.Event()
    shown = threading.Thread(target=_show, args=(latest, done), daemon=True)
    shown.start()
    try:
        yield tell
    finally:
        done.set()
        shown.join()


def _show(latest: list[str], done: threading.Event) -> None:
    if done.wait(PATIENCE):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(latest[0], total=None)
        while not done.wait(0.1):
            progress.update(task, description=latest[0])
