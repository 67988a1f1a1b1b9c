"""Verdicts as text: the cascade, its repairs, the state, head, body, merge and tail."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ioweave.hierarchy.quantities import format_bytes
from ioweave.hierarchy.verdicts import Verdict
from ioweave.render.report.words import numbered


def headline(v: Verdict) -> Text:
    """The answer in one line."""
    line = Text()
    line.append(f"{v.axis}: ", style="bold")
    line.append(v.verdict, style="bold green" if v.streams else "bold yellow")
    words = []
    if v.streams:
        ways = {"both": "in either direction", "forward": "forward only", "backward": "backward only"}
        words.append(ways[v.direction])
    else:
        words.append(f"{v.passes} passes")
    words.append("exact over the reals" if v.exact == "reals" else "exact over the casts written")
    line.append("  " + ", ".join(words), style="dim")
    return line


def brief(v: Verdict) -> RenderableType:
    """The verdict with its state on a line each."""
    rows: list[RenderableType] = [headline(v)]
    if v.state:
        held = ", ".join(f"{s.name}[{', '.join(s.axes)}] {s.dtype}{_repair(s.repair)}" for s in v.state)
        size = f"; {numbered(v.state_values, 'value')} a row" if v.state_values is not None else ""
        rows.append(Padding(Text(f"state {held}{size}"), (0, 0, 0, 2)))
    if v.refusal:
        rows.append(Padding(Text(v.refusal), (0, 0, 0, 2)))
    return Group(*rows)


def full(v: Verdict) -> RenderableType:
    """Everything that the prover says of an axis."""
    rows: list[RenderableType] = [headline(v)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    if v.refusal:
        grid.add_row("because", v.refusal)
    if v.nearest:
        grid.add_row("nearest", v.nearest)
    if v.state:
        grid.add_row("state", _state(v))
    for name, lines in (("head", v.head), ("body", v.body), ("tail", v.tail)):
        for k, line in enumerate(lines):
            grid.add_row(name if k == 0 else "", Text(line))
    for k, line in enumerate(v.merge.split("; ") if v.merge else ()):
        grid.add_row("merge" if k == 0 else "", Text(line))
    if v.whole:
        grid.add_row("whole", Text(f"{', '.join(v.whole)} in every instance"))
    for k, identity in enumerate(v.identities):
        grid.add_row("identities" if k == 0 else "", Text(identity))
    for k, fact in enumerate(v.assumes):
        grid.add_row("assumes" if k == 0 else "", Text(fact))
    rows.append(Padding(grid, (0, 0, 0, 2)))
    return Group(*rows)


def _state(v: Verdict) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for s in v.state:
        repair = "needs no repair" if s.repair == "none" else f"repaired by {s.repair}"
        table.add_row(f"{s.name}[{', '.join(s.axes)}]", s.dtype, f"from {s.identity}", repair)
    if v.state_values is None:
        return table
    size = f" ({format_bytes(v.state_bytes)})" if v.state_bytes is not None else ""
    return Group(
        table,
        Text(f"{numbered(v.state_values, 'value')}{size} for each row of the axes that all of it shares", style="dim"),
    )


def _repair(kind: str) -> str:
    return "" if kind == "none" else f" ({kind})"
