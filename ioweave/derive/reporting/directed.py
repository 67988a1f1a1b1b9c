"""Directions of an axis with recurrences: the plan against its scans, executed before it is spoken of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ioweave.derive.execution.trial import try_plan
from ioweave.derive.reporting.subject import Subject
from ioweave.derive.streaming.verdict import prove_opposite
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.report import Report
from ioweave.hierarchy.verdicts import Direction, Verdict


def both_ways(
    verdict: Verdict,
    opened: Opened,
    values: Mapping[str, int | float],
    accumulate: str,
    definitions: Sequence[Definition] = (),
    before: Sequence[Box] = (),
    draws: int = 3,
    largest: int = 6,
) -> Verdict:
    """The verdict, with the plan of the other direction taken back where it fails its execution."""
    if not verdict.opposite:
        return verdict
    found = prove_opposite(opened, verdict.axis, values, accumulate, definitions)
    if found is not None:
        _, plan = found
        trials = try_plan(
            opened, plan, values, draws=draws, definitions=definitions, before=before, largest=largest, seed=1
        )
        if all(t.passed for t in trials):
            return verdict
    walk: Direction = "forward" if found is None or found[1].direction == "backward" else "backward"
    why = f"{walk} alone: the plan found for the other direction fails its execution"
    return replace(verdict, direction=walk, opposite=(), directed=why)


def towards(report: Report, subject: Subject, accumulate: str, asked: Direction) -> Report:
    """The report with the plans that walk in the direction asked for, where one is known for that alone."""
    return replace(report, streaming=tuple(_towards(v, subject, accumulate, asked) for v in report.streaming or ()))


def _towards(verdict: Verdict, subject: Subject, accumulate: str, asked: Direction) -> Verdict:
    if asked == "both" or verdict.direction != "both" or not verdict.opposite:
        return verdict
    opened = open_diagram(subject.diagram)
    definitions = subject.diagram.definitions
    found = prove_opposite(opened, verdict.axis, subject.values, accumulate, definitions)
    if found is None or found[1].direction != asked:
        return verdict
    other, plan = found
    trials = try_plan(opened, plan, subject.values, definitions=definitions)
    return replace(other, trials=trials, least_state=verdict.least_state)
