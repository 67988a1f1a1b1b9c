"""MkDocs hooks: the gallery is drawn, and the tables of the reference are made, when the site is built."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ioweave.derive.rewrites.unfused import unfused
from ioweave.derive.streaming import prove
from ioweave.diagrams.library import Entry, catalogue_text, entries, load
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.machines import load_machine, machine_names
from ioweave.hierarchy.quantities import format_bytes
from ioweave.render.drawing import draw, draw_levelled

DERIVED = (  # these are searched for their cheapest schedule, which is what takes time
    *("attention", "causal_attention", "column_sums", "convolution", "cross_entropy", "gpt3_block"),
    *("grouped_query_attention", "layernorm", "matmul", "matmul_chain", "multi_head_attention", "rmsnorm_matmul"),
    *("spherical_attention", "swiglu_mlp"),
)
_URL = re.compile(r"https://\S+")
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5}|[a-z-]+/\d{7})")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a figure for every algorithm of the catalogue."""
    for e in entries():
        files.append(File.generated(config, f"gallery/{e.name}.svg", content=_figure(e.name)))
    return files


@cache
def _figure(name: str) -> str:
    """An algorithm as written at its own sizes, or before and after; once for all rebuilds of `mkdocs serve`."""
    if name in DERIVED:
        figure = draw(name)
        assert figure is not None
        return figure
    diagram = load(name)
    return draw_levelled(name, [unfused(diagram)], diagram.values(), "fp32", "svg").decode()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put what the package says of itself in place of the markers."""
    makers = {
        "<!-- gallery -->": _gallery,
        "<!-- report keys -->": _report_keys,
        "<!-- machines -->": _machines,
    }
    for marker, make in makers.items():
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    # MathML needs no script and no network
    return re.sub(r"\$\$(.+?)\$\$", lambda m: convert(m[1].strip(), display="block"), markdown, flags=re.DOTALL)


def _gallery() -> str:
    parts = []
    for family, members in groupby(entries(), key=lambda e: e.family):
        parts.append(f"## {family.capitalize()}")
        parts += [_card(e) for e in members]
    return "\n\n".join(parts)


def _card(e: Entry) -> str:
    """An algorithm's sentence, paper, verdicts, figure and text."""
    drawn = "before and after" if e.name in DERIVED else "as written"
    paper = _URL.sub(r"<\g<0>>", html.escape(e.paper, quote=False))
    paper = _ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", paper)
    parts = [
        f"### {e.name}",
        " ".join(p for p in (html.escape(e.sentence, quote=False), f"{paper}." if paper else "") if p),
        f"Streams: {_verdicts(e.name)}.",
        f"![{e.name}, {drawn}](gallery/{e.name}.svg){{ loading=lazy }}",
        f"```python\n{catalogue_text(e.name).strip()}\n```",
    ]
    return "\n\n".join(parts)


@cache
def _verdicts(name: str) -> str:
    """The verdict on every axis that is reduced over, or walked by a scan."""
    diagram = load(name)
    opened = open_diagram(diagram)
    axes = dict.fromkeys(a for b in opened.boxes for a in (*b.over, *((b.scan.axis,) if b.scan is not None else ())))
    found = (prove(opened, a, diagram.values(), definitions=diagram.definitions) for a in axes)
    return ", ".join(f"`{v.axis}` {v.verdict}" for v in found) or "no axis is reduced over"


def _report_keys() -> str:
    schema = json.loads((resources.files("ioweave.hierarchy") / "report.schema.json").read_text("utf-8"))
    parts = ["## The report", _keys({"properties": schema["properties"], "required": schema["required"]})]
    for name, definition in schema["$defs"].items():
        parts += [f"## {name}", _keys(definition)]
    return "\n\n".join(parts)


def _keys(node: dict[str, Any]) -> str:
    about = node.get("description", "")
    lead = f"{about[0].upper()}{about[1:]}.\n\n" if about else ""
    if "properties" not in node:
        inner = node.get("additionalProperties", {})
        return f"{lead}{_keys(inner)}" if "properties" in inner else lead
    rows = ["| key | type | |", "|---|---|---|"]
    for key, value in node["properties"].items():
        needed = "always" if key in node.get("required", ()) else ""
        rows.append(f"| `{key}` | {_type(value)} | {html.escape(value.get('description', '')) or needed} |")
        item = value.get("items", value)
        if "properties" in item:
            for inner, told in item["properties"].items():
                rows.append(f"| `{key}.{inner}` | {_type(told)} | {html.escape(told.get('description', ''))} |")
    return lead + "\n".join(rows)


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name})"
    if "enum" in value:
        return ", ".join(f"`{v}`" for v in value["enum"])
    if "anyOf" in value:
        return " or ".join(_type(v) for v in value["anyOf"])
    kind = str(value.get("type", "any"))
    if kind == "array" and "items" in value:
        return f"list of {_type(value['items'])}"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"name to {_type(value['additionalProperties'])}"
    return kind


def _machines() -> str:
    parts = []
    for name in machine_names():
        machine = load_machine(name)
        parts.append(f"## {name}\n\n{machine.title}.\n")
        parts.append("| level | capacity of one | instances | to the level above |\n|---|---|---|---|")
        for level in machine.levels:
            capacity = format_bytes(level.capacity.value) if level.capacity else "no limit"
            parts.append(f"| `{level.name}` | {capacity} | {level.instances} | {level.bandwidth or ''} |")
        parts.append("\n| arithmetic | peak by dtype |\n|---|---|")
        for work, rates in machine.peaks:
            parts.append(f"| {work} | {', '.join(f'{dtype} {rate}' for dtype, rate in rates)} |")
        parts.append("")
    return "\n".join(parts)
