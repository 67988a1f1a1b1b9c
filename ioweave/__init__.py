"""ioweave: algorithms as neural-circuit diagrams, streamed, counted, searched and drawn.

Every public object is importable from here; its module is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ioweave.diagrams import display

__version__ = "0.1.0"

_MODULES: dict[str, tuple[str, ...]] = {
    # the model
    "ioweave.diagrams.affine": ("Affine",),
    "ioweave.diagrams.diagram": ("Definition", "Diagram", "Input", "Line", "Position"),
    "ioweave.diagrams.dtypes": ("DTYPES", "DType"),
    "ioweave.diagrams.errors": ("DoesNotFit", "Refused", "WeaveError"),
    "ioweave.diagrams.boxes": ("Box", "Opened"),
    "ioweave.diagrams.opening": ("open_diagram", "open_line"),
    "ioweave.diagrams.library": ("load",),
    "ioweave.diagrams.notation": ("parse", "print_diagram"),
    "ioweave.diagrams.notation.latex": ("to_latex",),
    "ioweave.diagrams.notation.python": ("to_python",),
    # the diagram algebra
    "ioweave.diagrams.algebra": ("Term", "box", "identity", "term"),
    # named-axis arrays
    "ioweave.diagrams.named": ("Array", "Axis", "array", "axes", "constant", "diagram", "number"),
    "ioweave.diagrams.functions": (
        "all_",
        "any_",
        "argtopk",
        "cast",
        "cos",
        "cumsum",
        "dot",
        "erf",
        "exp",
        "exp2",
        "floor",
        "gelu",
        "inf",
        "keep",
        "l2norm",
        "layernorm",
        "log",
        "log2",
        "logsumexp",
        "masked_div",
        "masked_sub",
        "max_",
        "maximum",
        "mean",
        "min_",
        "minimum",
        "prod_",
        "relu",
        "rmsnorm",
        "round_",
        "rsqrt",
        "scan",
        "sigmoid",
        "silu",
        "sin",
        "softmax",
        "sqrt",
        "sum_",
        "tanh",
        "topk",
        "where",
    ),
    # levels and machines
    "ioweave.hierarchy.counts": ("Flops", "Memory", "RegionCount", "Transfers"),
    "ioweave.hierarchy.levelled": ("Levelled", "Region"),
    "ioweave.hierarchy.machines": ("Machine", "load_machine", "machine_names", "with_capacity"),
    "ioweave.hierarchy.notation": ("parse_levelled", "print_levelled"),
    "ioweave.hierarchy.quantities": (
        "Bytes",
        "format_bytes",
        "format_count",
        "format_seconds",
        "parse_bytes",
        "parse_size",
    ),
    "ioweave.hierarchy.time": ("TimeEstimate", "estimate_time"),
    "ioweave.hierarchy.verdicts": ("StateEntry", "Verdict"),
    # proofs, counts and checks
    "ioweave.derive.bounds.lower": ("Bound", "bound"),
    "ioweave.derive.bounds.napkin": ("Napkin", "napkin"),
    "ioweave.derive.counting.levelled": ("Counts", "count"),
    "ioweave.derive.execution.check": ("Checked",),
    "ioweave.derive.execution.reference": ("evaluate",),
    "ioweave.derive.search.found": ("Found",),
    "ioweave.derive.streaming.verdict": ("prove",),
    # reports and figures
    "ioweave.derive.reporting.verbs": ("check", "compare", "cost", "search", "stream"),
    "ioweave.hierarchy.report": ("Report",),
    "ioweave.render.drawing": ("draw",),
}

_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_HOMES]

# the renderer is imported when a picture, or the text of a report, is first asked for
display.register("svg", "ioweave.render.notebook:svg")
display.register("html", "ioweave.render.notebook:html")
display.register("text", "ioweave.render.notebook:text")


def __getattr__(name: str) -> Any:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module 'ioweave' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
