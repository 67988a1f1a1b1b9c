"""What comes with the tool, and an algorithm in its notations."""

from __future__ import annotations

from itertools import groupby
from json import dumps
from typing import TYPE_CHECKING, Any

from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.library import entries
from ioweave.diagrams.notation import print_diagram
from ioweave.diagrams.notation.nearest import nearest
from ioweave.hierarchy.machines import load_machine, machine_names
from ioweave.hierarchy.notation import print_levelled

if TYPE_CHECKING:
    from ioweave.derive.reporting.subject import Subject

FORMS = ("notation", "latex", "python")


def algorithms() -> str:
    """The catalogue by family: a line for each algorithm with its name, what it is, and the paper in brackets."""
    found = entries()
    wide = max(len(e.name) for e in found) + 2
    parts = []
    for family, members in groupby(found, key=lambda e: e.family):
        rows = (f"  {e.name:{wide}}{e.sentence}{f' [{e.paper}]' if e.paper else ''}\n" for e in members)
        parts.append(f"{family}\n{''.join(rows)}")
    return "\n".join(parts)


def algorithm_records() -> str:
    """The catalogue as JSON: a list of records of name, family, sentence and paper (empty where there is none)."""
    return _records([e.to_json() for e in entries()])


def machines() -> str:
    """A paragraph for each machine: its levels and its peaks."""
    return "\n".join(_machine(n) for n in machine_names())


def machine_records() -> str:
    """The machines as JSON: a list of their records."""
    return _records([load_machine(n).to_json() for n in machine_names()])


def written(subject: Subject, form: str) -> str:
    """An algorithm as ``notation``, ``latex`` or ``python``. Raises WeaveError for another form."""
    if form == "notation":
        return print_levelled(subject.levelled) if subject.levelled else print_diagram(subject.diagram)
    if form == "latex":
        from ioweave.diagrams.notation.latex import to_latex

        return to_latex(subject.diagram).rstrip() + "\n"
    if form == "python":
        from ioweave.diagrams.notation.python import to_python

        return to_python(subject.diagram).rstrip() + "\n"
    raise WeaveError(f"unknown form `{form}`{nearest(form, FORMS)}; write --as notation, latex or python")


def _records(records: list[dict[str, Any]]) -> str:
    return dumps(records, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _machine(name: str) -> str:
    machine = load_machine(name)
    rows = [f"{name}  {machine.title}"]
    above = ""
    for level in machine.levels:
        amount = str(level.capacity) if level.capacity else "no limit"
        copies = f" × {level.instances}" if level.instances > 1 else ""
        way = f", {level.bandwidth} to {above}" if level.bandwidth else ""
        rows.append(f"  {level.name:8}{amount}{copies}{way}")
        above = level.name
    for work, rates in machine.peaks:
        rows.append(f"  {work:8}" + ", ".join(f"{dtype} {rate}" for dtype, rate in rates))
    return "\n".join(rows) + "\n"
