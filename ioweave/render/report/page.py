"""A report as a page of text: the sections that it has, one under the other."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ioweave.hierarchy.quantities import format_bytes
from ioweave.hierarchy.report import Report
from ioweave.render.report import found, tables, verdicts

WIDTH = 100


def text(report: Report, width: int = WIDTH, colour: bool = False, steps: bool = False) -> str:
    """The report as text of at most ``width`` columns (code alone may be wider)."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="auto" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        legacy_windows=False,
    )
    console.print(page(report, steps))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def on_screen(report: Report, steps: bool = False) -> str:
    """The report as wide and as colourful as standard output can show it."""
    if sys.stdout is None or not sys.stdout.isatty():
        return text(report, steps=steps)
    console = Console()
    return text(report, min(console.width, 120), console.color_system is not None and not console.no_color, steps)


def page(report: Report, steps: bool = False) -> RenderableType:
    """The sections of a report."""
    parts: list[RenderableType] = [header(report)]
    for section in _sections(report, steps):
        parts += [Text(), section]
    return Group(*parts)


def heading(words: str) -> Text:
    """The title of a section."""
    return Text(words, style="bold")


def under(words: str, *parts: RenderableType) -> RenderableType:
    """A section: its title, and what stands under it, indented."""
    return Group(heading(words), *(Padding(p, (0, 0, 0, 2)) for p in parts))


def header(report: Report) -> RenderableType:
    """What was asked: the algorithm, its sizes, the machine."""
    name = Text(report.algorithm, style="bold")
    if report.other:
        name.append(" against ", style="not bold")
        name.append(report.other)
    lines: list[RenderableType] = [name]
    if report.title and not report.other:
        if len(report.algorithm) + len(report.title) < WIDTH - 2:
            name.append(f"  {report.title}", style="not bold dim")
        else:
            lines.append(Padding(Text(report.title, style="dim"), (0, 0, 0, 2)))
    if report.axes and len(report.check or ()) < 2:
        lines.append(Text("  " + ", ".join(f"{a} = {n:,}" for a, n in report.axes)))
    target = []
    if report.machine and report.levels:
        capacity = f" of {format_bytes(report.capacity)}" if report.capacity is not None else ""
        target.append(f"{report.machine}, {report.levels[0]} → {report.levels[-1]}{capacity}")
    if report.accumulate:
        target.append("results held in fp32" if report.accumulate == "fp32" else "results held in their array's dtype")
    if report.objective:
        target.append(f"least {report.objective.partition(':')[0]}")
    if target:
        lines.append(Text("  " + "; ".join(target), style="dim"))
    return Group(*lines)


def _sections(report: Report, steps: bool) -> Iterator[RenderableType]:
    if report.after is not None:
        yield tables.sides(report)
        yield tables.formulas(report.after)
        yield tables.regions(report.after.regions)
    for rival in report.rivals:
        yield under("rival", Text(found.rival(rival, report)), tables.regions(rival.regions))
    if report.napkin is not None or report.bound is not None:
        yield Group(*found.bounds(report))
    if report.streaming is not None and report.after is None:
        for verdict in report.streaming:
            yield verdicts.full(verdict, dict(report.axes))
    elif report.streaming:
        yield under("streaming", *(verdicts.brief(v) for v in report.streaming))
    if steps and report.derivation is not None:
        yield under("derivation", found.derivation(report.derivation))
    if report.explain is not None:
        yield under("explained", tables.explained(report.explain))
    if report.notation is not None:
        yield under(
            "schedule" if report.derivation is not None else "as read", Text(report.notation.rstrip(), no_wrap=True)
        )
    if report.compare is not None:
        yield tables.compared(report)
    if report.check is not None:
        yield tables.checked(report)
    notes = list(found.notes(report))
    if notes:
        yield Group(*notes)
