"""What was proved and searched, in words: bounds, the derivation, notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ioweave.hierarchy.quantities import format_count, format_seconds
from ioweave.hierarchy.report import Report, Side
from ioweave.hierarchy.steps import Step
from ioweave.render.report.words import formula_words, times


def bounds(report: Report) -> Iterator[RenderableType]:
    """The napkin formula and the lower bound, as label and text."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    napkin, bound = report.napkin, report.bound
    if napkin is not None:
        sign = "≤" if napkin.without_mask else "≈"
        line = Text(f"H {sign} {napkin.pretty}", style="green")
        line.append(f"  {napkin.values:,.0f} values", style="dim")
        grid.add_row("napkin", line)
        where = f"where {formula_words(napkin.holds_where)}; " if napkin.holds_where != "True" else ""
        mask = ", masks left out" if napkin.without_mask else ""
        grid.add_row("", Text(f"{where}with M in {napkin.memory_unit}{mask}", style="dim"))
        for level, worth in napkin.worth_of_a_byte:
            if worth:
                more = "less" if worth < 0 else "more"
                grid.add_row("", Text(f"a byte more of {level} moves {abs(worth):.3g} bytes {more}", style="dim"))
    if bound is not None:
        words = f"{bound.values:,.0f} values at least"
        if bound.ratio is not None:
            words += (
                f": {report.algorithm} moves {times(bound.ratio)} that"
                if report.after is None
                else (f"; after is {times(bound.ratio)} that")
            )
        grid.add_row("bound", Text(words, style="green"))
        grid.add_row("", Text(bound.because, style="dim"))
        for assumption in bound.assumes:
            grid.add_row("", Text(f"assumes: {assumption}", style="dim"))
        for values, because in bound.candidates:
            if because != bound.because and report.after is None:
                grid.add_row("", Text(f"also {values:,.0f}: {because}", style="dim"))
    yield grid


def rival(side: Side, report: Report) -> str:
    """What a schedule that computes no product twice costs beside the chosen one."""
    assert report.after is not None
    mine, other = report.after, side
    more = other.tally.transfers.values / mine.tally.transfers.values - 1
    words = (
        f"the least transfers take some products twice; without that {other.tally.transfers.values:,} values move "
        f"({100 * more:.2g}% more), with {format_count(other.tally.flops.total)} FLOPs for "
        f"{format_count(mine.tally.flops.total)}"
    )
    if other.seconds is not None and mine.seconds is not None:
        words += f", in {format_seconds(other.seconds.total.value)} for {format_seconds(mine.seconds.total.value)}"
    return words


def derivation(steps: Sequence[Step]) -> RenderableType:
    """The steps in words, numbered."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column()
    for k, step in enumerate(steps, 1):
        grid.add_row(f"{k}.", Text(step.sentence()))
        if step.identity:
            grid.add_row("", Text(step.identity, style="dim"))
    return grid if steps else Text("no step: the algorithm as written is the schedule")


def notes(report: Report) -> Iterator[RenderableType]:
    """What the numbers are, what was searched, and warnings."""
    if report.after is not None and report.levels:
        upper, lower = report.levels[0], report.levels[-1]
        if (upper, lower) == ("gmem", "smem"):
            yield Text("H is what the SMs ask of L2: DRAM sees at most this.", style="dim")
        else:
            yield Text(f"H is what crosses between {upper} and {lower}.", style="dim")
    searched = report.searched
    if searched is not None:
        sure = "the best of" if searched.exact else "the best found in"
        yield Text(
            f"{searched.schedules:,} schedules searched in {format_seconds(searched.seconds)}: "
            f"{sure} {searched.space}.",
            style="dim",
        )
    for warning in report.warnings:
        yield Text(f"warning: {warning}", style="yellow")
