"""The element type in which a region holds each result (counting.md 8).

The result of a reduction over values of 16 bits or fewer, and what is computed from it
elementwise, is held in fp32 until it is stored or used as an operand of a contraction. What is picked
beside the keys of a list is moved, not computed: it keeps the type of what it is taken from.
"""

from __future__ import annotations

from collections.abc import Sequence

from ioweave.derive.program.contraction import is_contraction
from ioweave.derive.program.lists import widens
from ioweave.diagrams.boxes import Box, source
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Apply
from ioweave.diagrams.operators import CASTS


def held_dtypes(boxes: Sequence[Box], accumulate: str) -> dict[str, str]:
    """The type in which the result of every box is held inside the region."""
    if accumulate == "same":
        return {b.name: b.dtype for b in boxes}
    fed = {source(r.array) for b in boxes if is_contraction(b) for r in b.reads()}
    result: dict[str, str] = {}
    wide: set[str] = set()
    for b in boxes:
        own = DTYPES[b.dtype]
        narrow = own.kind == "float" and own.bits <= 16
        cast = isinstance(b.body, Apply) and b.body.op in CASTS
        widened = narrow and widens(b, wide) and not (cast and b.reduction is None)
        if widened and b.reduction is None and b.scan is None and b.name in fed:
            widened = False
        if widened:
            wide.add(b.name)
        result[b.name] = "fp32" if widened else b.dtype
    return result
