"""The certificate: everything that a check without the prover needs, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ioweave.derive.certificate.codec import LARGEST_FILE, decode, encode, read_json, reported
from ioweave.derive.certificate.identities import Identity
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.errors import WeaveError
from ioweave.hierarchy.verdicts import Direction, Trial, Verdict

FORMAT, VERSION = "ioweave-certificate", 1
_MOST = {"boxes": 2000, "identities": 4000, "trials": 64}


@dataclass(frozen=True, slots=True)
class Fact:
    """A declared fact of an input that the plan may use: every value of ``array`` is ``sign`` ``bound``."""

    array: str
    sign: str
    bound: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """A plan for streaming ``axis`` through the algorithm ``source``, with what it rests on.

    ``source`` is the algorithm in the notation, sizes included; ``sizes`` are its sizes and constants, at
    which the state is counted. ``direction`` is the one asked for; ``tool`` the version that wrote it.
    ``opposite`` is the plan that walks an axis with recurrences the other way, where the verdict says both.
    The trials of the verdict are ``trials``, and stand once in the file.
    """

    tool: str
    name: str
    source: str
    axis: str
    direction: Direction
    accumulate: str
    sizes: tuple[tuple[str, int | float], ...]
    verdict: Verdict
    plan: Plan
    identities: tuple[Identity, ...]
    facts: tuple[Fact, ...]
    assumes: tuple[str, ...]
    trials: tuple[Trial, ...]
    opposite: Plan | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as the file has it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "tool": self.tool,
            "name": self.name,
            "source": self.source,
            "axis": self.axis,
            "direction": self.direction,
            "accumulate": self.accumulate,
            "sizes": {n: encode(v) for n, v in self.sizes},
            "verdict": {k: v for k, v in self.verdict.to_json().items() if k != "trials"},
            "plan": encode(self.plan),
            "identities": encode(self.identities),
            "facts": encode(self.facts),
            "assumes": list(self.assumes),
            "trials": [t.to_json() for t in self.trials],
            "opposite": encode(self.opposite),
        }

    def to_bytes(self) -> bytes:
        """The file."""
        return (json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


@dataclass(frozen=True, slots=True)
class _File:
    """The outermost object of a file; what has a form of its own is looked at after."""

    format: str
    version: int
    tool: str
    name: str
    source: str
    axis: str
    direction: Direction
    accumulate: str
    sizes: Any
    verdict: Any
    plan: Plan
    identities: tuple[Identity, ...]
    facts: tuple[Fact, ...]
    assumes: tuple[str, ...]
    trials: Any
    opposite: Plan | None = None


def from_bytes(data: bytes) -> Certificate:
    """The certificate in a file. Raises WeaveError, one line, for anything that is not one."""
    if len(data) > LARGEST_FILE:
        raise WeaveError(f"a certificate has at most {LARGEST_FILE} bytes; this file has {len(data)}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WeaveError(f"this is not UTF-8: byte {error.start} has no meaning") from None
    record = read_json(text)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise WeaveError(f'this is no certificate: a certificate has `"format": "{FORMAT}"`')
    if record.get("version") != VERSION or isinstance(record["version"], bool):
        shown = json.dumps(record.get("version"))[:20]
        raise WeaveError(f"version: {shown} is not known here; this is ioweave for version {VERSION}")
    f = decode(_File, record)
    trials = decode(tuple[Trial, ...], _with_pairs(f.trials), "trials")
    other = f.opposite.boxes if f.opposite is not None else ()
    for what, many in (("boxes", f.plan.boxes), ("boxes", other), ("identities", f.identities), ("trials", trials)):
        if len(many) > _MOST[what]:
            raise WeaveError(f"{what}: {len(many)} are too many; {_MOST[what]} at most")
    if f.accumulate not in ("fp32", "same"):
        raise WeaveError("accumulate: fp32 or same is right")
    return Certificate(
        f.tool,
        f.name,
        f.source,
        f.axis,
        f.direction,
        f.accumulate,
        decode(tuple[tuple[str, int | float], ...], _pairs(f.sizes, "sizes"), "sizes"),
        replace(_verdict(f.verdict), trials=trials),
        f.plan,
        f.identities,
        f.facts,
        f.assumes,
        trials,
        f.opposite,
    )


def _pairs(value: Any, path: str) -> list[list[Any]]:
    if not isinstance(value, Mapping):
        raise WeaveError(f"{path}: names with their numbers are right, as an object")
    return [[k, v] for k, v in value.items()]


def _with_pairs(trials: Any) -> Any:
    """Trials with their sizes as pairs, as the record has them."""
    if not isinstance(trials, list):
        return trials
    return [{**t, "axes": _pairs(t.get("axes"), "trials.axes")} if isinstance(t, dict) else t for t in trials]


def _verdict(value: Any) -> Verdict:
    """A verdict from the form that reports give it."""
    if isinstance(value, dict) and "trials" in value:
        raise WeaveError("verdict.trials: the trials stand beside the verdict, not in it")
    return decode(Verdict, reported(Verdict, value), "verdict")
