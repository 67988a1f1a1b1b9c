"""Witnesses as text: two prefixes with one state and different answers, late answers, growing ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ioweave.hierarchy.verdicts import Verdict


def witness_rows(v: Verdict) -> Iterator[tuple[str, RenderableType]]:
    """The witness of a refusal, and the ranks that grow with the prefix."""
    w = v.witness
    if w is not None and w["kind"] == "pair":
        yield "witness", Text(_pair(w))
    elif w is not None and w["kind"] == "late-output":
        yield "witness", Text(_late(w))
    if not v.streams and v.ranks:
        label = "rank" if w is None or w["kind"] != "growing-rank" else "witness"
        yield label, Text(_ranks(v.ranks))


def _pair(w: Mapping[str, Any]) -> str:
    a, b = w["answers"]
    state = _listed(list(w["state"]))
    return (
        f"two prefixes of {w['steps']} steps leave {state} the same; followed by one suffix they give "
        f"{_element(w)} = {a:.6g} and {b:.6g} ({_sizes(w)}; the numbers are in --json)"
    )


def _late(w: Mapping[str, Any]) -> str:
    a, b = w["answers"]
    return (
        f"{_element(w)} is passed within {w['steps']} steps, and two suffixes make it {a:.6g} and {b:.6g} "
        f"({_sizes(w)}; the numbers are in --json)"
    )


def _ranks(ranks: Sequence[tuple[int, int]]) -> str:
    numbers = ", ".join(str(r) for _, r in ranks)
    steps = ", ".join(str(n) for n, _ in ranks)
    return f"after {steps} steps the answers depend on {numbers} numbers of the prefix"


def _element(w: Mapping[str, Any]) -> str:
    return f"{w['output']}[{', '.join(str(i) for i in w['index'])}]" if w["index"] else str(w["output"])


def _sizes(w: Mapping[str, Any]) -> str:
    sizes = ", ".join(f"{a} = {n}" for a, n in w["sizes"].items() if isinstance(n, int))
    at = ", ".join(f"at {a} = {k}" for a, k in w["at"].items())
    return f"{sizes}; {at}" if at else sizes


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names) or "no reduction"
    return f"{', '.join(names[:-1])} and {names[-1]}"
