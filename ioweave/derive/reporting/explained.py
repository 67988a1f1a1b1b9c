"""Every number of a report, asked why: terms with their rule and the lines they come from."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ioweave.derive.bounds.needed import compulsory
from ioweave.derive.counting.explain import explain
from ioweave.derive.counting.levelled import Counts
from ioweave.diagrams.boxes import base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.report import ExplainRow
from ioweave.hierarchy.verdicts import Verdict


def explain_counts(side: str, counts: Counts, diagram: Diagram) -> tuple[ExplainRow, ...]:
    """The terms of every total of a side: transfers, memory and FLOPs, region by region."""
    return tuple(
        ExplainRow(
            side,
            e.total,
            e.region,
            e.name,
            e.kind,
            e.value,
            e.unit,
            e.formula,
            e.rule,
            tuple(_place(diagram, name) for name in e.lines),
            e.bound,
            e.at,
        )
        for e in explain(counts)
    )


def explain_state(verdict: Verdict, diagram: Diagram, values: Mapping[str, int | float]) -> tuple[ExplainRow, ...]:
    """The terms of ``state_values``: each array of the state, tile 1 on the axes that all of them share."""
    shared = set(verdict.state[0].axes) if verdict.state else set()
    for s in verdict.state:
        shared &= set(s.axes)
    shared -= {a for a, _ in verdict.lists}
    values = {**values, **dict(verdict.lists)}
    line_of = {b.name: b.line for b in open_diagram(diagram).boxes}
    rows = []
    for s in verdict.state:
        own = [a for a in s.axes if a not in shared]
        said = (
            f"tile 1 on {', '.join(sorted(shared))}, which all of the state shares" if shared else "no axis is shared"
        )
        name = s.name if s.name in line_of else s.name.partition(".")[0]
        rows.append(
            ExplainRow(
                verdict.axis,
                "state",
                "",
                s.name,
                s.repair,
                prod(int(values[base_name(a)]) for a in own),
                "values",
                "*".join(base_name(a) for a in own) or "1",
                f"{said}; held in {s.dtype} from {s.identity}",
                (_place(diagram, line_of.get(name, name)),),
            )
        )
    return tuple(rows)


def explain_bound(diagram: Diagram, values: Mapping[str, int | float]) -> tuple[ExplainRow, ...]:
    """The terms of the compulsory traffic: every input element that is needed, and every output element, once."""
    opened = open_diagram(diagram)
    outputs = set(opened.outputs)
    formulas = {i.name: "*".join(f"({d})" if d.offset else str(d) for d in i.dims) for i in diagram.inputs}
    formulas |= {line.name: "*".join(line.axes) for line in diagram.lines}
    rows = []
    for name, moved, _ in compulsory(opened, values).arrays:
        whole = prod(_sizes(diagram, name, values))
        rule = "every element of an output is stored" if name in outputs else "every element that is needed is loaded"
        rows.append(
            ExplainRow(
                "any schedule",
                "bound",
                "",
                name,
                "store" if name in outputs else "load",
                moved,
                "values",
                formulas[name] or "1",
                f"{rule}, once at least",
                (_place(diagram, name),) if name in outputs else (),
                moved != whole,
            )
        )
    return tuple(rows)


def _sizes(diagram: Diagram, name: str, values: Mapping[str, int | float]) -> list[int]:
    whole = {n: int(v) for n, v in values.items()}
    given = diagram.input(name)
    if given is not None:
        return [form.fixed(whole) for form in given.dims]
    return [whole[a] for a in diagram.line(name).axes]


def _place(diagram: Diagram, name: str) -> str:
    """A line with its place in its file, if it has one."""
    found = next((line for line in diagram.lines if line.name == name), None)
    position = found.position if found is not None else None
    return f"{name}, line {position.line}" if position is not None else name
