"""What comes with the tool, and an algorithm in its notations."""

from __future__ import annotations

from ioweave.derive.reporting.subject import Subject
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.library import load, names
from ioweave.diagrams.notation import print_diagram
from ioweave.diagrams.notation.nearest import nearest
from ioweave.hierarchy.machines import load_machine, machine_names
from ioweave.hierarchy.notation import print_levelled

FORMS = ("notation", "latex", "python")


def algorithms() -> str:
    """A line for each algorithm of the catalogue: its name and what it is."""
    wide = max(len(n) for n in names()) + 2
    return "".join(f"{n:{wide}}{_first(load(n).doc)}\n" for n in names())


def machines() -> str:
    """A paragraph for each machine: its levels and its peaks."""
    return "\n".join(_machine(n) for n in machine_names())


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


def _first(doc: str) -> str:
    return (doc.strip().splitlines() or [""])[0]


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
