"""What a program needs to know of its diagram: sizes, shapes, element types, facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Box, Opened, base_name
from ioweave.diagrams.lists import slots


@dataclass(frozen=True, eq=False)
class Setting:
    """An opened diagram at concrete sizes.

    ``sizes`` covers names and axis components; ``shapes`` and ``dtypes`` every array;
    ``accumulate`` is ``fp32`` or ``same`` (counting.md 8). ``integers`` are arrays of whole numbers that are known,
    by name: what is looked up in them is counted exactly.
    """

    opened: Opened
    sizes: Mapping[str, int]
    constants: Mapping[str, int | float]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    facts: Mapping[str, tuple[str, float]]
    accumulate: str
    integers: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def make(opened: Opened, values: Mapping[str, int | float], accumulate: str = "fp32") -> Setting:
        """The setting of an opened diagram for the given values of its names."""
        sizes = {n: int(v) for n, v in values.items() if isinstance(v, int)}
        for axis, name in opened.base:
            sizes[axis] = sizes[base_name(name)]
        sizes.update({slots(b.into): sizes[b.into] for b in opened.boxes if b.into is not None})
        shapes = {
            i.name: tuple(sum(c * sizes[s] for s, c in form.sizes) + form.offset for form in i.dims)
            for i in opened.inputs
        }
        shapes.update({b.name: tuple(sizes[a] for a in b.axes) for b in opened.boxes})
        dtypes = {i.name: i.dtype for i in opened.inputs} | {b.name: b.dtype for b in opened.boxes}
        facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
        return Setting(opened, sizes, values, shapes, dtypes, facts, accumulate)

    def with_lengths(self, lengths: Iterable[tuple[str, int]]) -> Setting:
        """The setting with the axes of lists that a plan makes, each with its number of slots."""
        found = dict(lengths)
        if not found:
            return self
        sizes = {**self.sizes, **found, **{slots(a): n for a, n in found.items()}}
        return replace(self, sizes=sizes)

    def plan(self, boxes: tuple[Box, ...], streamed: frozenset[str], stored: frozenset[str]) -> Plan:
        """The prover's plan for boxes of the diagram at these sizes."""
        ties = self.opened.ties
        return repair(boxes, streamed, stored, self.facts, self.constants, self.accumulate, ties=ties)
