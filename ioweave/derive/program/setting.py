"""What a program needs to know of its diagram: sizes, shapes, element types, facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.boxes import Box, Opened, base_name


@dataclass(frozen=True, eq=False)
class Setting:
    """An opened diagram at concrete sizes.

    ``sizes`` covers names and axis components; ``shapes`` and ``dtypes`` every array;
    ``accumulate`` is ``fp32`` or ``same`` (counting.md 8).
    """

    opened: Opened
    sizes: Mapping[str, int]
    constants: Mapping[str, int | float]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    facts: Mapping[str, tuple[str, float]]
    accumulate: str

    @staticmethod
    def make(opened: Opened, values: Mapping[str, int | float], accumulate: str = "fp32") -> Setting:
        """The setting of an opened diagram for the given values of its names."""
        sizes = {n: int(v) for n, v in values.items() if isinstance(v, int)}
        for axis, name in opened.base:
            sizes[axis] = sizes[base_name(name)]
        shapes = {
            i.name: tuple(sum(c * sizes[s] for s, c in form.sizes) + form.offset for form in i.dims)
            for i in opened.inputs
        }
        shapes.update({b.name: tuple(sizes[a] for a in b.axes) for b in opened.boxes})
        dtypes = {i.name: i.dtype for i in opened.inputs} | {b.name: b.dtype for b in opened.boxes}
        facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
        return Setting(opened, sizes, values, shapes, dtypes, facts, accumulate)

    def plan(self, boxes: tuple[Box, ...], streamed: frozenset[str], stored: frozenset[str]) -> Plan:
        """The prover's plan for boxes of the diagram at these sizes."""
        return repair(boxes, streamed, stored, self.facts, self.constants, self.accumulate)
