"""The chunked form on the command line and beside a verdict."""

from __future__ import annotations

from dataclasses import replace

from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import assignments, check_axes
from ioweave.derive.streaming.chunked import chunked
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.diagrams.notation.printer import print_diagram
from ioweave.hierarchy.verdicts import Verdict

USUAL = 64  # elements of a chunk, where nobody says


def in_chunks(subject: Subject, text: str) -> Subject:
    """The subject with the scan along an axis in chunks, ``t=64``.

    Raises WeaveError for text that is no size of one axis, for a diagram with levels, and for a scan
    without a chunked form.
    """
    given = assignments([text], "the chunk of", "t=64")
    if len(given) != 1:
        raise WeaveError(f"--chunk takes one axis with its size, as t=64, not {text!r}")
    if subject.levelled is not None:
        raise WeaveError("--chunk writes the lines anew; give it an algorithm without levels")
    check_axes(given, [a for a, _ in subject.axes], "--chunk names")
    ((axis, size),) = given.items()
    return replace(subject, diagram=chunked(subject.diagram, axis, size))


def with_chunks(verdict: Verdict, diagram: Diagram) -> Verdict:
    """The verdict with the chunked form of its axis, where its scan has one."""
    if verdict.merge is None or not any(s.repair == "recurrence" for s in verdict.state):
        return verdict
    return replace(verdict, chunked=chunked_lines(diagram, verdict.axis))


def chunked_lines(diagram: Diagram, axis: str) -> tuple[str, ...]:
    """The chunked form's lines at a usual size, empty where there is none."""
    length = int(diagram.values().get(axis, 0))
    size = max((k for k in range(2, USUAL + 1) if length and length % k == 0 and k < length), default=0)
    if not size:
        return ()
    try:
        found = chunked(diagram, axis, size)
    except Refused:
        return ()
    return tuple(line for line in print_diagram(found).splitlines() if " = " in line and "[" in line.split(" = ")[0])
