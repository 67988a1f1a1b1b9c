"""Composites: operators with a definition in the notation, in ``definitions/*.weave``.

A definition is written for one row: its axis stands for the bracketed axes, its one input for
the argument, its constants for options, its last line for the result. Opening weaves it over
every other axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from ioweave.diagrams.diagram import Line
from ioweave.diagrams.expressions import Number


@dataclass(frozen=True)
class Definition:
    """One composite: the name of its argument and axis, its options' defaults, its part lines."""

    name: str
    argument: str
    axis: str
    options: Mapping[str, float]
    lines: tuple[Line, ...]


@lru_cache(maxsize=64)
def definition(name: str) -> Definition:
    """The definition of composite ``name``, read from its file."""
    from ioweave.diagrams.notation import parse

    path = resources.files("ioweave.diagrams") / "definitions" / f"{name}.weave"
    d = parse(path.read_text(encoding="utf-8"), f"{name}.weave")
    argument = d.inputs[0]
    axis = argument.dims[0].sizes[0][0]
    options = {c.name: float(c.value.value) for c in d.definitions if c.name != axis and isinstance(c.value, Number)}
    return Definition(name, argument.name, axis, options, d.lines)
