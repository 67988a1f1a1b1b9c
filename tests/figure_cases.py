"""Levelled diagrams of the whole catalogue for the tests of figures: each line alone, and in larger regions."""

from __future__ import annotations

from importlib import resources

from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled
from ioweave.render.figure.from_counts import pair_spec
from ioweave.render.figure.spec import FigureSpec

# for each file: options of the block of each line alone, and blocks of several lines with their options
TILES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "attention": (
        {"S": "group={q: 128}, stream={x: 64}", "P": "group={q: 1}", "O": "group={q: 128}, stream={x: 64}"},
        {"S P O": "group={q: 128}, stream={x: 64}"},
    ),
    "causal_attention": (
        {"S": "group={q: 128}, stream={x: 64}", "P": "group={q: 8}", "O": "group={q: 128}, stream={x: 64}"},
        {"S P O": "group={q: 128}, stream={x: 64}"},
    ),
    "column_sums": (
        {"S": "group={q: 128}, stream={x: 64}", "P": "group={q: 4}", "C": "group={x: 64}, stream={q: 16}"},
        {"S P": "group={q: 16}", "C": "group={x: 64}, stream={q: 16}"},
    ),
    "convolution": ({"Y": "group={b: 1}"}, {"Y": "group={b: 1, y: 8, o: 64}, stream={c: 32}"}),
    "cross_entropy": (
        {"Z": "group={t: 128, v: 128}, stream={m: 32}", "L": "group={t: 1}, stream={v: 4096}"},
        {"Z L": "group={t: 16}, stream={v: 16}"},
    ),
    "gpt3_block": (
        {
            "Q": "group={q: 128, h: 1}, stream={m: 32}",
            "K": "group={x: 128, h: 1}, stream={m: 32}",
            "V": "group={x: 128, h: 1}, stream={m: 32}",
            "S": "group={h: 1, q: 128}, stream={x: 64}",
            "P": "group={h: 1, q: 8}",
            "A": "group={h: 1, q: 128}, stream={x: 64}",
            "Z": "group={q: 128, m': 128}, stream={d': 32, h: 1}",
            "F": "group={q: 128, f: 128}, stream={m': 32}",
            "Y": "group={q: 128, m'': 128}, stream={f: 32}",
        },
        {
            "Q": "group={q: 128, h: 1}, stream={m: 32}",
            "K": "group={x: 128, h: 1}, stream={m: 32}",
            "V": "group={x: 128, h: 1}, stream={m: 32}",
            "S P A": "group={h: 1, q: 128}, stream={x: 64}",
            "Z": "group={q: 128}, stream={h: 1}",
            "F Y": "group={q: 8}, stream={f: 4}",
        },
    ),
    "grouped_query_attention": (
        {
            "S": "group={k: 1, q: 64}, stream={x: 64}",
            "P": "group={k: 1, g: 1, q: 2}",
            "O": "group={k: 1, q: 64}, stream={x: 64}",
        },
        {"S P O": "group={k: 1, q: 64}, stream={x: 64}"},
    ),
    "layernorm": (
        {"M": "group={t: 64}, stream={m: 64}", "R": "group={t: 64}, stream={m: 64}", "Y": "group={t: 4}"},
        {"M R Y": "group={t: 4}"},
    ),
    "matmul": ({"Z": "group={a: 128, c: 128}, stream={b: 32}"}, {"Z": "group={a: 254, c: 254}, stream={b: 1}"}),
    "matmul_chain": (
        {"H": "group={t: 128, f: 128}, stream={i: 32}", "Y": "group={t: 128, o: 128}, stream={f: 32}"},
        {"H Y": "group={t: 32}, stream={f: 4}"},
    ),
    "multi_head_attention": (
        {
            "S": "group={h: 1, q: 128}, stream={x: 64}",
            "P": "group={h: 1, q: 2}",
            "O": "group={h: 1, q: 128}, stream={x: 64}",
        },
        {"S P O": "group={h: 1, q: 128}, stream={x: 64}"},
    ),
    "rmsnorm_matmul": (
        {
            "R": "group={t: 64}, stream={m: 64}",
            "N": "group={t: 4}",
            "Y": "group={t: 128, n: 128}, stream={m: 32}",
        },
        {"R N Y": "group={t: 64, n: 128}, stream={m: 32}"},
    ),
    "spherical_attention": (
        {
            "S": "group={q: 128}, stream={x: 64}",
            "N": "group={q: 64}, stream={x: 64}",
            "O": "group={q: 128}, stream={x: 64}",
        },
        {"S N O": "group={q: 128}, stream={x: 64}"},
    ),
    "swiglu_mlp": (
        {
            "A": "group={t: 128, f: 128}, stream={m: 32}",
            "B": "group={t: 128, f: 128}, stream={m: 32}",
            "H": "group={t: 4}, stream={f: 64}",
            "Y": "group={t: 128, m': 128}, stream={f: 32}",
        },
        {"A B H": "group={t: 64, f: 64}, stream={m: 32}", "Y": "group={t: 128, m': 128}, stream={f: 32}"},
    ),
}


def source(name: str) -> str:
    """The text of a catalogue file."""
    return (resources.files("ioweave.diagrams") / "catalogue" / f"{name}.weave").read_text("utf-8")


def levelled(name: str, blocks: dict[str, str]) -> Levelled:
    """A catalogue file with its lines in blocks: names of lines (in order) to the block's options."""
    of = {line: (names.split()[0], options) for names, options in blocks.items() for line in names.split()}
    out: list[str] = []
    for text in source(name).splitlines():
        made = text.split("[")[0].strip()
        if " = " in text and made in of and "[" in text.split("=")[0]:
            first, options = of[made]
            if made == first:
                out.append(f'with level("smem"{", " if options else ""}{options.replace(chr(39), "")}):')
            out.append(f"    {text}")
        else:
            out.append(text)
    return parse_levelled("\n".join(out) + "\n", f"{name}.weave")


def pair(name: str, accumulate: str = "same") -> FigureSpec:
    """The pair of a catalogue file at its default sizes."""
    before, after = (levelled(name, blocks) for blocks in TILES[name])
    return pair_spec(name, before, after, before.diagram.values(), accumulate)
