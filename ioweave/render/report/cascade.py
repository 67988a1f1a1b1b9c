"""The tables of a verdict: the cascade of reductions, the state with its bytes, other plans, trials."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from math import prod

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.dtypes import size_bytes
from ioweave.hierarchy.quantities import format_bytes
from ioweave.hierarchy.verdicts import CascadeRow, StateEntry, Trial, Verdict
from ioweave.render.report.equations import Formula
from ioweave.render.report.words import formula_words, numbered

GAP = 2  # columns between two columns of a table


class Cascade:
    """The reductions over the axis: what each is, what it needs, how it is repaired, what carries it.

    The last column is left out where the page is too narrow for it.
    """

    def __init__(self, v: Verdict) -> None:
        self.verdict = v

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        many = self.verdict.passes > 1
        titles = ["reduction", "formula", "needs", "repair", "carried by"]
        rows = [_cells(r, self.verdict) for r in self.verdict.cascade]
        if many:
            titles.insert(0, "pass")
            rows = [[str(r.run), *cells] for r, cells in zip(self.verdict.cascade, rows, strict=True)]
        widths = [max(len(t), *(len(r[k]) for r in rows)) for k, t in enumerate(titles)]
        if _spare(widths, options.max_width) < 0:
            titles.pop()
            widths.pop()
        spare = _spare(widths, options.max_width)
        if spare < 0:
            # the names wrap first, so that the formula has the room
            k = titles.index("needs")
            for cells in rows:
                cells[k] = "\n".join(textwrap.wrap(cells[k], max(widths[k] + spare, 1), break_long_words=False))
        table = _table(*titles)
        for cells in rows:
            table.add_row(*(Formula(c, 2, 2) if t == "formula" else c for c, t in zip(cells, titles, strict=False)))
        yield table


def _spare(widths: list[int], room: int) -> int:
    """What columns of these widths leave of the room."""
    return room - sum(widths) - GAP * (len(widths) - 1)


def _cells(row: CascadeRow, v: Verdict) -> list[str]:
    runs = {r.name: r.run for r in v.cascade}
    waits = row.repair == "none" and any(runs.get(n, row.run) < row.run for n in row.needs)
    repair = "waits" if waits else row.repair
    return [row.name, row.formula, ", ".join(row.needs) or "–", repair, ", ".join(row.accumulators) or "–"]


def state(v: Verdict, sizes: Mapping[str, int]) -> RenderableType:
    """The state: each array, its dtype, what it starts from, and its values and bytes for one row."""
    shared = _shared(v)
    inner = [tuple(base_name(a) for a in s.axes if a not in shared) for s in v.state]
    known = v.state_values is not None and all(a in sizes for axes in inner for a in axes)
    runs = _passes(v) if v.passes > 1 else {}
    titles = ["array", "dtype", "from", *(["repair"] if not v.cascade else [])]
    right = ["from"]
    if known:
        titles += ["values", "bytes"]
        right += ["values", "bytes"]
    if runs:
        titles.insert(0, "pass")
    table = _table(*titles, right=right)
    for s, axes in zip(v.state, inner, strict=True):
        cells = [f"{s.name}[{', '.join(s.axes)}]", s.dtype, s.identity, *([s.repair] if not v.cascade else [])]
        if known:
            n = prod(sizes[a] for a in axes)
            cells += [f"{n:,}", f"{size_bytes(n, s.dtype):,}"]
        if runs:
            cells.insert(0, runs.get(s.name, ""))
        table.add_row(*cells)
    total = _total(v, inner if known else [], sizes)
    return Group(table, Text(total, style="dim")) if total else table


def shared_axes(entries: tuple[StateEntry, ...], slots: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The axes that every part of a state has, in the order of the first; ``slots`` of lists are whole."""
    first = entries[0].axes if entries else ()
    return tuple(a for a in first if a not in slots and all(a in s.axes for s in entries))


def _total(v: Verdict, inner: list[tuple[str, ...]], sizes: Mapping[str, int]) -> str:
    """``d + 2 = 66 values, 264 B for each row of q``."""
    if v.state_values is None:
        return ""
    words = numbered(v.state_values, "value")
    if any(inner) and sum(prod(sizes[a] for a in axes) for axes in inner) == v.state_values:
        words = f"{symbolic(inner)} = {words}"
    if v.state_bytes is not None:
        words += f", {format_bytes(v.state_bytes)}"
    shared = _shared(v)
    return f"{words} for each row of {shared[0]}" if len(shared) == 1 else f"{words} {_per(shared)}"


def counted(v: Verdict) -> str:
    """``66 values a row``, where the state has been counted."""
    shared = _shared(v)
    words = numbered(v.state_values or 0, "value")
    return f"{words} a row" if len(shared) == 1 else f"{words} {_per(shared)}"


def _shared(v: Verdict) -> tuple[str, ...]:
    return shared_axes(v.state, frozenset(a for a, _ in v.lists))


def _per(shared: tuple[str, ...]) -> str:
    return f"for each ({', '.join(shared)})" if shared else "in all"


def symbolic(products: list[tuple[str, ...]]) -> str:
    """The sum of products of sizes: ``d + 2``, ``2d·n + 1``."""
    terms: dict[tuple[str, ...], int] = {}
    for axes in products:
        terms[tuple(sorted(axes))] = terms.get(tuple(sorted(axes)), 0) + 1
    words = []
    for axes, n in sorted(terms.items(), key=lambda t: (-len(t[0]), t[0])):
        powers = [f"{a}**{axes.count(a)}" if axes.count(a) > 1 else a for a in dict.fromkeys(axes)]
        words.append("*".join([str(n)] if not axes else ([str(n)] if n > 1 else []) + powers))
    return formula_words(" + ".join(words))


def _passes(v: Verdict) -> dict[str, str]:
    """The pass in which each accumulator runs, as the body's lines say it."""
    found: dict[str, str] = {}
    for line in v.body:
        run, _, equation = line.removeprefix("pass ").partition(": ")
        if line.startswith("pass "):
            found[equation.partition(" = ")[0]] = run
    return found


def plans(v: Verdict) -> Table:
    """The plans among which passes, state and traffic trade; the one that the verdict tells of is marked."""
    table = _table("passes", *_COUNTS, "how", right=["passes", *_COUNTS])
    for p in v.plans:
        told = (p.passes, p.state_values, p.state_bytes) == (v.passes, v.state_values, v.state_bytes)
        counts = [f"{n:,}" for n in (p.passes, p.state_values, p.state_bytes, p.loads)]
        table.add_row(*counts, f"{'this plan: ' if told else ''}{p.how or ', '.join(p.state)}")
    return table


_COUNTS = ("state values", "bytes", "values loaded")


def trials(runs: tuple[Trial, ...]) -> Text:
    """The executions beside the reference in one sentence."""
    largest: dict[str, int] = {}
    for t in runs:
        for a, n in t.axes:
            largest[a] = max(n, largest.get(a, 0))
    ordered = sorted(runs, key=lambda t: max(t.steps, default=0))
    steps = sorted(dict.fromkeys(_steps(t) for t in ordered if t.steps), key=lambda s: not s.isdigit())
    words = [f"executed beside the reference {f'{len(runs)} times' if len(runs) > 1 else 'once'}"]
    if largest:
        words[0] += f": sizes up to {', '.join(f'{a} {n}' for a, n in largest.items())}"
    if steps:
        words.append(f"steps {', '.join(steps)}")
    parts = max(t.parts for t in runs)
    if parts > 1:
        words.append(f"merged from up to {parts} pieces")
    error = max(t.error for t in runs)
    words.append(f"largest error {error:.0e}" if error else "no error")
    line = Text("; ".join(words))
    failed = sum(not t.passed for t in runs)
    if failed:
        line.append(f"; {failed} of {len(runs)} failed", style="bold red")
    return line


def _steps(t: Trial) -> str:
    """The steps of a trial: their one length, ``whole`` or ``uneven``."""
    if len(t.steps) < 2:
        return "whole"
    *before, last = t.steps
    return str(before[0]) if len(set(before)) == 1 and last <= before[0] else "uneven"


def _table(*headers: str, right: list[str] | None = None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for h in headers:
        table.add_column(h, justify="right" if h in (right or ()) else "left", no_wrap=h in ("reduction", "array"))
    return table
