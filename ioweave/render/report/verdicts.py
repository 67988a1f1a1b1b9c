"""Verdicts as text: the cascade with its repairs, the state, then head, body, merge and tail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ioweave.hierarchy.approximation import Approximation, above
from ioweave.hierarchy.verdicts import Verdict
from ioweave.render.report import cascade
from ioweave.render.report.changes import changes_rows
from ioweave.render.report.equations import Formula, equations, longest_name
from ioweave.render.report.witness import witness_rows

Row = tuple[str, RenderableType]


def headline(v: Verdict) -> Text:
    """The answer in one line."""
    line = Text()
    line.append(f"{v.axis}: ", style="bold")
    line.append(v.verdict, style="bold green" if v.streams else "bold yellow")
    ways = {"both": "in either direction", "forward": "forward only", "backward": "backward only"}
    words = [
        ways[v.direction] if v.streams else f"{v.passes} {'pass' if v.passes == 1 else 'passes'} {ways[v.direction]}"
    ]
    words.append(_exactness(v))
    line.append("  " + ", ".join(words), style="dim")
    return line


def _exactness(v: Verdict) -> str:
    if v.approximation is not None:
        return f"not exact: within {above(v.approximation.proved)}, proved over the reals"
    return "exact over the reals" if v.exact == "reals" else "exact over the casts written"


def brief(v: Verdict) -> RenderableType:
    """The verdict, its state and what it warns of, on a line each."""
    lines: list[Text] = []
    if v.state:
        held = ", ".join(f"{s.name}[{', '.join(s.axes)}] {s.dtype}{_repair(s.repair)}" for s in v.state)
        size = f"; {cascade.counted(v)}" if v.state_values is not None else ""
        lines.append(Text(f"state {held}{size}"))
    if v.refusal:
        lines.append(Text(v.refusal))
    lines += [Text(f"warning: {w}", style="yellow") for w in v.warnings]
    return Group(headline(v), *(Padding(line, (0, 0, 0, 2)) for line in lines))


def _repair(kind: str) -> str:
    return "" if kind == "none" else f" ({kind})"


def full(v: Verdict, sizes: Mapping[str, int] | None = None) -> RenderableType:
    """Everything that the prover says of an axis; ``sizes`` are those of the axes, for the state's count."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for label, part in (*_answer(v), *_tables(v, sizes or {}), *_stages(v), *_conditions(v), *_evidence(v)):
        grid.add_row(label, part)
    return Group(headline(v), Padding(grid, (0, 0, 0, 2)))


def _answer(v: Verdict) -> Iterator[Row]:
    if v.refusal:
        yield from _listed("because", v.refusal.split("; "))
    yield from changes_rows(v)
    if v.least:
        yield "least", Text(v.least)
    yield from witness_rows(v)
    if v.directed:
        yield "direction", Text(v.directed)
    if v.approximation is not None:
        yield from _approximation(v.approximation)


def _approximation(a: Approximation) -> Iterator[Row]:
    """What was replaced by what, the error proved and the largest one seen."""
    for k, f in enumerate(a.functions):
        lo, hi = f.interval
        kind = "relative" if f.relative else "absolute"
        yield (
            "in place of" if k == 0 else "",
            Text(
                f"{f.function} in {f.line}: a polynomial of degree {f.degree} in {f.weight}, which is in "
                f"[{lo:.6g}, {hi:.6g}]; its {kind} error is proved to be at most {above(f.error)}"
            ),
        )
        yield "", Formula(f.equation)
    yield from ((("error" if k == 0 else ""), Formula(s)) for k, s in enumerate(a.statements))
    yield "", Text(f"asked for {a.asked:g}; the largest of {a.runs} executions is {a.observed:.1e}")


def _tables(v: Verdict, sizes: Mapping[str, int]) -> Iterator[Row]:
    if v.cascade:
        yield "cascade", cascade.Cascade(v)
    if v.state:
        yield "state", cascade.state(v, {**sizes, **dict(v.lists)})
    if v.kept:
        yield "kept", Text(f"{', '.join(v.kept)} between the passes")


def _stages(v: Verdict) -> Iterator[Row]:
    """Head, then body, tail and merge of each pass, as blocks of equations that are all aligned."""
    starts = {f"{s.name} = {s.identity}" for s in v.state}
    joins = v.merge.split("; ") if v.merge and " = " in v.merge else []
    merge = [line for line in joins if " = " in line]
    body, tail, merged = _by_pass(v.body), _by_pass(v.tail), _by_pass(merge)
    blocks: list[tuple[str, Sequence[str]]] = [("head", [line for line in v.head if line not in starts])]
    for run in dict.fromkeys((*body, *tail, *merged)):
        for label, lines in (("body", body), ("tail", tail), ("merge", merged)):
            blocks.append((f"{run} {label}" if run else label, lines.get(run, ())))
    names = longest_name(block for _, block in blocks)
    last = next((label for label, block in reversed(blocks) if label.endswith("merge") and block), None)
    for label, block in blocks:
        parts: list[RenderableType] = [equations(block, names)] if block else []
        if label == "head" and v.state:
            parts.append(Formula(", ".join(line for line in v.head if line in starts), 0))
        if label == last:
            parts += [Text(line) for line in joins if " = " not in line]
            order = "any order" if v.commutative else "the order of the axis"
            parts.append(Text(f"associative: pieces may be merged in {order}", style="dim"))
        if parts:
            yield label, Group(*parts)
    if v.merge and not merge:
        yield "merge", Text(v.merge)
    if v.opposite:
        yield "other way", equations(v.opposite, longest_name([v.opposite]))
    if v.chunked:
        yield "chunked", Group(*(Formula(line) for line in v.chunked))


def _by_pass(lines: Sequence[str]) -> dict[str, list[str]]:
    """Lines ``pass 1: name = formula`` by their pass; those that name none under the empty word."""
    found: dict[str, list[str]] = {}
    for line in lines:
        run, _, equation = line.partition(": ") if line.startswith("pass ") else ("", "", line)
        found.setdefault(run, []).append(equation)
    return found


def _conditions(v: Verdict) -> Iterator[Row]:
    if v.whole:
        yield "whole", Text(f"{', '.join(v.whole)} in every instance")
    yield from _listed("safe", v.safe)
    yield from _listed("warnings", v.warnings, "yellow")
    yield from _listed("assumes", v.assumes)


def _evidence(v: Verdict) -> Iterator[Row]:
    for k, identity in enumerate(v.identities):
        yield "identities" if k == 0 else "", Formula(identity)
    if len(v.plans) > 1:
        yield "plans", cascade.plans(v)
    if v.trials:
        yield "trials", cascade.trials(v.trials)
    if v.least_note:
        yield "minimum", Text(v.least_note)


def _listed(label: str, lines: Sequence[str], style: str = "") -> Iterator[Row]:
    for k, line in enumerate(lines):
        yield label if k == 0 else "", Text(line, style=style)
