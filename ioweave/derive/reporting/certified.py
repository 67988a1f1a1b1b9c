"""Certificates on the command line: what is written for a verdict, and what a check of one found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ioweave.derive.certificate.codec import LARGEST_FILE
from ioweave.derive.certificate.record import Certificate, from_bytes
from ioweave.derive.certificate.verify import Verified, verify
from ioweave.derive.reporting.subject import Subject
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.hierarchy.report import CheckLine, Report
from ioweave.hierarchy.verdicts import Direction, Trial, Verdict

_DIRECTIONS: dict[str, Direction] = {"both": "both", "forward": "forward", "backward": "backward"}


def parse_direction(text: str) -> Direction:
    """A direction by name. Raises WeaveError, one line, for any other text."""
    if text not in _DIRECTIONS:
        raise WeaveError(f"--direction is forward, backward or both, not {text!r}")
    return _DIRECTIONS[text]


def as_asked(verdict: Verdict, direction: Direction) -> str:
    """Whether a plan walks its axis in the direction asked for, in words."""
    if verdict.direction in ("both", direction):
        ways = "either way" if verdict.direction == "both" else "this way alone"
        return f"{verdict.axis} as asked: {direction}; the plan walks {ways}"
    why = f": {verdict.directed.partition(': ')[2]}" if verdict.directed and ": " in verdict.directed else ""
    return f"{verdict.axis} not as asked: the plan walks {verdict.direction} alone, not {direction}{why}"


def certified(
    subject: Subject, report: Report, axis: str, accumulate: str, direction: Direction, lazy: float = 0.0
) -> tuple[Report, bytes | None, bool]:
    """The file for the verdict of a report on ``axis``, which has passed the check that a reader may run.

    The report has a warning where no file can be written (None), or where it has verdicts on further
    axes of the name; the last value is False where a plan failed its own check.
    """
    from ioweave.derive.certificate.write import certify

    verdicts = report.streaming or ()
    verdict = next((v for v in verdicts if v.axis == axis), verdicts[0])
    try:
        data = certify(subject.diagram, verdict, accumulate, direction, lazy=lazy).to_bytes()
    except Refused as why:
        return _noted(report, f"no certificate is written: {why}"), None, True
    failure = verify(from_bytes(data)).failure
    if failure:
        return _noted(report, f"no certificate is written: it does not pass its own check: {failure}"), None, False
    others = [v.axis for v in verdicts if v is not verdict]
    if others:
        report = _noted(report, f"the certificate is of {verdict.axis}; name {' or '.join(others)} for another")
    return report, data, True


def _noted(report: Report, note: str) -> Report:
    return replace(report, warnings=(*report.warnings, note))


def read_certificate(path: str) -> Certificate:
    """The certificate in a file. Raises WeaveError, one line, for a file that is none."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise WeaveError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    try:
        return from_bytes(data)
    except WeaveError as error:
        raise WeaveError(f"{path}: {error}") from None


def verified_report(path: str) -> tuple[Report, str]:
    """What a check of the certificate in a file found: a report with its verdict and runs, and a table for people.

    Where the certificate does not hold, the table is one line that names what fails, and
    ``report.passed`` is False. Raises WeaveError for a file that is no certificate.
    """
    certificate = read_certificate(path)
    try:
        found = verify(certificate)
    except WeaveError as error:
        raise WeaveError(f"{path}: {error}") from None
    subject = Subject(certificate.name, found.diagram, None)
    rows = [_line(t) for t in found.trials]
    if found.failure:
        rows.append(CheckLine(subject.axes, {}, 0, 0.0, 0, False, found.failure))
    report = Report(
        algorithm=subject.name,
        axes=subject.axes,
        accumulate=certificate.accumulate,
        streaming=(certificate.verdict,),
        check=tuple(rows),
        title=subject.title,
        values=subject.values,
    )
    return report, _table(path, found)


def _line(t: Trial) -> CheckLine:
    walked = {"steps": list(t.steps), "parts": t.parts, "data": t.data}
    return CheckLine(t.axes, walked, t.seed, t.error, 0, t.passed)


def _table(path: str, found: Verified) -> str:
    c = found.certificate
    if found.failure:
        return f"{path} does not hold: {found.failure}\n"
    wide = max(len(r.what) for r in found.rows)
    lines = [f"{path} holds: {c.name} over {c.axis}, {c.verdict.verdict}, checked without the prover", ""]
    lines += [f"  {r.what:<{wide}}  {r.found}" for r in found.rows]
    lines += [f"  {'assumes':<{wide}}  {a}" for a in c.assumes]
    return "\n".join(lines) + "\n"
