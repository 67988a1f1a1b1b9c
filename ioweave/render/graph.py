"""The dependency graph of boxes and regions, for Graphviz: text always, a picture where `dot` is installed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ioweave.diagrams.boxes import PAST, PREV, Box, Opened, base_name, source
from ioweave.diagrams.dtypes import size_bytes
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Read
from ioweave.diagrams.notation.printer import print_affine
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.quantities import format_bytes

BEFORE = ", the value before"  # behind the name of an array that a recurrence reads
FORMATS = ("svg", "png", "pdf")
MISSING = (
    "Graphviz's `dot` is not installed: install the package graphviz (apt install graphviz, brew install graphviz), "
    "or ask for the text with -o FILE.dot"
)


class DotMissing(WeaveError):
    """`dot` is needed for a picture and is not there; the DOT text can be written without it."""

    def __init__(self) -> None:
        super().__init__(MISSING)


def graph_source(levelled: Levelled, values: Mapping[str, int | float] | None = None) -> str:
    """The graph as DOT text: inputs, boxes in a cluster per region, an edge per array read.

    An edge bears the array, its shape and its bytes at ``values`` (the diagram's own without them).
    """
    from graphviz import Digraph

    opened = open_diagram(levelled.diagram)
    shapes = _shapes(opened, levelled.diagram.values() if values is None else values)
    g = Digraph(levelled.diagram.name or "diagram", graph_attr={"rankdir": "LR", "fontname": "sans-serif"})
    g.attr("node", fontname="sans-serif", fontsize="11", shape="box", style="rounded,filled", fillcolor="white")
    g.attr("edge", fontname="sans-serif", fontsize="10")
    for i in opened.inputs:
        g.node(_id(i.name), f"{i.name}[{', '.join(str(d) for d in i.dims)}]: {i.dtype}", shape="plaintext", style="")
    for k, region in enumerate(levelled.regions):
        with g.subgraph(name=f"cluster_{k}") as cluster:
            cluster.attr(label=_region(region), style="rounded,filled", color="#c2410c", fillcolor="#fdeee4")
            for b in opened.boxes:
                if b.line in region.lines():
                    cluster.node(_id(b.name), _box(b), peripheries="2" if b.name in opened.outputs else "1")
    for origin, target, label in edges(opened):
        shape = shapes[origin + PREV if label == BEFORE else origin]
        g.edge(_id(origin), _id(target), label=f"{origin}{label}\\n{shape}")
    return str(g.source)


def _shapes(opened: Opened, values: Mapping[str, int | float]) -> dict[str, str]:
    """``4096 × 64, 512 KiB`` for every array, and for the value before of every recurrence."""
    sizes = {a: int(n) for a, n in values.items()}
    found: dict[str, tuple[tuple[int, ...], str]] = {
        i.name: (tuple(d.fixed(sizes) for d in i.dims), i.dtype) for i in opened.inputs
    }
    for b in opened.boxes:
        found[b.name] = (tuple(sizes[base_name(a)] for a in b.axes), b.dtype)
        if b.scan is not None:
            kept = (a for a in b.axes if a != b.scan.axis)
            found[b.name + PREV] = (tuple(sizes[base_name(a)] for a in kept), b.dtype)
    out: dict[str, str] = {}
    for name, (shape, dtype) in found.items():
        size = format_bytes(size_bytes(prod(shape), dtype)).replace(".0 ", " ")
        out[name] = f"{' × '.join(str(n) for n in shape)}, {size}" if shape else f"one value, {size}"
    return out


def edges(opened: Opened) -> tuple[tuple[str, str, str], ...]:
    """Who reads whom: source, reader, and where, as it stands behind the name; equal edges once."""
    found: dict[tuple[str, str, str], None] = {}
    for b in opened.boxes:
        for r in b.reads():
            found.setdefault((source(r.array), b.name, _places(r)))
    return tuple(found)


def _places(r: Read) -> str:
    """Where an array is read, in brackets; earlier values of a recurrence by their own word."""
    if r.array.endswith((PREV, PAST)):
        return BEFORE if r.array.endswith(PREV) else ", values before"
    return f"[{', '.join(print_affine(f) for f in r.index)}]" if r.index else ""


def _id(name: str) -> str:
    # a colon or a dot in a node's name would be read as a port or need quoting
    return "n_" + "".join(c if c.isalnum() else f"_{ord(c)}_" for c in name)


def _box(b: Box) -> str:
    what = f"{b.reduction} over {', '.join(b.over)}" if b.reduction else "elementwise"
    if b.into is not None:
        what += f" into {b.into}"
    if b.scan is not None:
        what = f"scan along {b.scan.axis}{', backward' if b.scan.backward else ''}"
    made = f"{b.name}[{', '.join(b.axes)}]" if b.axes else b.name
    return f"{made}\\n{what}"


def _region(region: Region) -> str:
    parts = [f"{region.name} at {region.level}"]
    tiles: tuple[tuple[str, Mapping[str, int]], ...] = (("group", dict(region.group)), ("stream", dict(region.stream)))
    for word, sizes in tiles:
        if sizes:
            parts.append(f"{word} " + ", ".join(f"{a}: {n}" for a, n in sizes.items()))
    return "\\n".join(parts)


def graph_image(source: str, format: str) -> bytes:
    """The graph as a picture in one of `FORMATS`.

    Raises DotMissing where `dot` is not installed, and WeaveError for another format.
    """
    from graphviz import ExecutableNotFound, Source

    if format not in FORMATS:
        raise WeaveError(f"a graph is written as {', '.join(FORMATS)} or dot, not {format}")
    try:
        return bytes(Source(source).pipe(format=format))
    except ExecutableNotFound:
        raise DotMissing from None
