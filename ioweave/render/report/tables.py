"""The tables of a report: the sides, regions, comparisons, checks, explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ioweave.hierarchy.quantities import format_bytes, format_count, format_seconds
from ioweave.hierarchy.report import CheckLine, CompareRow, ExplainRow, RegionRow, Report, Side
from ioweave.render.report.words import change, formula_words

LONGEST = 84  # characters of a formula that is shown


def _table(*headers: str, right: str = "") -> Table:
    """A table without lines; ``right`` names the columns that are set to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for h in headers:
        table.add_column(h, justify="right" if h in right.split() else "left", overflow="fold")
    return table


def sides(report: Report) -> RenderableType:
    """Before and after, or the one side that there is: transfers, memory, FLOPs, time."""
    after, before = report.after, report.before
    assert after is not None
    table = _table("", "", *(("before", "after", "") if before else ("counts",)), right="before after counts")
    for name, part, read, write, compared in _lines(after, before):
        new = read(after)
        old = read(before) if before is not None else None
        if new is None and old is None:
            continue
        cells = [write(new)] if before is None else [write(old), write(new)]
        note = ""
        if compared and old is not None and new is not None:
            note = change(old, new) or "unchanged"
        style = "bold" if name in ("H", "M", "F", "T") else ""
        table.add_row(name, part, *cells, *([note] if before is not None else []), style=style)
    return table


Number = int | float
Line = tuple[str, str, Callable[[Side], Number | None], Callable[[Number | None], str], bool]


def _lines(after: Side, before: Side | None) -> Iterator[Line]:
    """Every line of the table of sides: its names, what it reads, how it is written, whether it is compared."""

    def whole(n: Number | None) -> str:
        return f"{n:,}" if n is not None else "–"

    def sized(n: Number | None) -> str:
        return format_bytes(int(n)) if n is not None else "–"

    def counted(n: Number | None) -> str:
        return format_count(n) if n is not None else "–"

    def timed(n: Number | None) -> str:
        return format_seconds(n) if n is not None else "–"

    both = [s for s in (before, after) if s is not None]
    yield "H", "bytes", lambda s: s.tally.transfers.bytes, sized, True
    yield "", "values", lambda s: s.tally.transfers.values, whole, False
    for way in ("loads", "stores"):
        arrays = dict.fromkeys(a for s in both for a, n in getattr(s.tally.transfers, way).items() if n)
        for k, array in enumerate(arrays):
            yield f"  {way}" if k == 0 else "", array, partial(_moved, way=way, array=array), whole, False
    yield "M", "bytes", lambda s: s.tally.memory.bytes, sized, False
    if any(s.tally.memory.values is not None for s in both):
        yield "", "values", lambda s: s.tally.memory.values, whole, False
    yield "F", "FLOPs", lambda s: s.tally.flops.total, counted, True
    for kind in ("mma", "vector", "special"):
        if any(getattr(s.tally.flops, kind) for s in both):
            yield "", kind, partial(_work, kind=kind), counted, False
    if all(s.seconds is not None for s in both):
        yield "T", "at most", lambda s: s.seconds.total.value if s.seconds else None, timed, True
        yield "", "at least", lambda s: s.seconds.least.value if s.seconds else None, timed, False


def _work(side: Side, kind: str) -> int:
    work: int = getattr(side.tally.flops, kind)
    return work


def _moved(side: Side, way: str, array: str) -> int | None:
    table = side.tally.transfers.loads if way == "loads" else side.tally.transfers.stores
    return table.get(array) or None


def formulas(side: Side) -> RenderableType:
    """The formulas of a side, where they are short, and what its memory and time are bound by."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    f, memory = side.tally.formulas, side.tally.memory
    for name, formula, note in (
        ("H", f.transfers, "values"),
        ("M", f.memory, f"{f.unit}, at {memory.column}"),
        ("F", f.flops, "FLOPs"),
    ):
        fewest, most = side.tally.transfers.fewest[0], side.tally.transfers.values
        if name == "H" and fewest < most:
            grid.add_row(name, Text(f"is {fewest:,} to {most:,} values, by what the index holds", style="dim"))
        if formula.text and len(formula_words(formula.text)) <= LONGEST:
            line = Text(("≤ " if formula.bound else "= ") + formula_words(formula.text))
            line.append(f"  {note}" + ("" if f.divides else ", where tiles divide"), style="dim")
            grid.add_row(name, line)
        elif name == "M":
            grid.add_row(name, Text(f"is largest at {memory.column}", style="dim"))
    if side.seconds is not None:
        grid.add_row("T", Text(f"is bound by {bound_by(side)}", style="dim"))
    return grid


def bound_by(side: Side) -> str:
    """What takes longest, in words."""
    assert side.seconds is not None
    key = side.seconds.bound_by
    return f"the transfers into {key}" if key == side.level else f"{key} FLOPs"


def regions(rows: Sequence[RegionRow]) -> RenderableType:
    """A line for each region: what it computes and how it is tiled."""
    table = _table("region", "group", "stream", "instances", "passes", "H", "M", right="instances passes H M")
    for r in rows:
        stream = ", ".join(f"{a} {n}" for a, n in r.stream)
        if r.hold:
            stream += "; hold " + ", ".join(f"{a} at {n}" for a, n in r.hold)
        table.add_row(
            ", ".join(r.boxes),
            ", ".join(f"{a} {n}" for a, n in r.group) or "–",
            stream or "–",
            f"{r.instances:,}",
            str(r.passes),
            format_bytes(r.tally.transfers.bytes),
            format_bytes(r.tally.memory.bytes),
        )
    return table


def compared(report: Report) -> RenderableType:
    """What differs between A and B, term by term."""
    rows = report.compare or ()
    if not rows:
        return Text(f"nothing differs between {report.algorithm} and {report.other}")
    table = _table("", report.algorithm, report.other, " ", right="")
    table.columns[1].justify = table.columns[2].justify = "right"
    for row in rows:
        note = ""
        if isinstance(row.a, int | float) and isinstance(row.b, int | float) and not row.what.startswith("axes."):
            note = change(row.b, row.a)
        table.add_row(row.what, _cell(row, row.a), _cell(row, row.b), note)
    return table


def _cell(row: CompareRow, value: int | float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return formula_words(value) if row.what == "napkin" else value
    if row.what.startswith("seconds."):
        return format_seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def checked(report: Report) -> RenderableType:
    """A line for each run, and how many passed."""
    rows = report.check or ()
    passed = sum(r.passed for r in rows)
    table = _table("", "sizes", "tiles", "seed", "max error", "not finite", right="seed error finite")
    for r in rows:
        mark = Text("pass", style="green") if r.passed else Text("FAIL", style="bold red")
        table.add_row(
            mark,
            " ".join(f"{a}={n}" for a, n in r.axes),
            _tiles(r),
            str(r.seed),
            f"{r.error:.1e}" if r.error else "0",
            f"{r.not_finite:,}" if r.not_finite else "–",
        )
    failed = [Text(f"seed {r.seed}: {r.because}", style="red") for r in rows if not r.passed]
    total = Text(f"{passed} of {len(rows)} passed", style="bold green" if passed == len(rows) else "bold red")
    total.append(": values are those of the mathematics, counts those of the report" if passed == len(rows) else "")
    return Group(table, *failed, total)


def _tiles(row: CheckLine) -> str:
    parts = []
    for name, tiles in row.tiles.items():
        words = [f"{kind} " + ",".join(f"{a}={n}" for a, n in t.items()) for kind, t in tiles.items()]
        parts.append(f"{name}: {' '.join(words)}" if len(row.tiles) > 1 else " ".join(words))
    return "; ".join(parts) or "–"


def explained(rows: Sequence[ExplainRow]) -> RenderableType:
    """Beside each total its terms, the rule that counts them and the lines they come from."""
    parts: list[RenderableType] = []
    totals: dict[tuple[str, str, str], list[ExplainRow]] = {}
    for r in rows:
        totals.setdefault((r.side, r.region, r.total), []).append(r)
    for (side, region, total), terms in totals.items():
        where = " ".join(w for w in (side, region) if w)
        title = Text(f"{where}: {total} {sum(t.value for t in terms):,} {terms[0].unit}", style="bold")
        title.append(f"  at {terms[0].at}" if terms[0].at else "", style="not bold dim")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column()
        for t in terms:
            formula = Text((("≤ " if t.bound else "= ") + formula_words(t.formula)) if t.formula else "")
            why = Text(f"{t.rule} ({'; '.join(t.lines)})" if t.lines else t.rule, style="dim")
            table.add_row(f"  {t.kind} {t.name}", f"{t.value:,}", Group(formula, why))
        parts += [title, table]
    return Group(*parts) if parts else Text("there is no total to explain")
