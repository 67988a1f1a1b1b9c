"""A progress bar for work that takes longer than two seconds, on a terminal's standard error alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that ``what`` is being done, once it has taken long."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    shown = threading.Thread(target=_show, args=(what, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _show(what: str, done: threading.Event) -> None:
    if done.wait(PATIENCE):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        done.wait()
