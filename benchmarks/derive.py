"""How long derivations take in the process: the median of three runs each, cold start apart.

python benchmarks/derive.py [NAME ...]
"""

from __future__ import annotations

import statistics
import sys
import time

from rich.console import Console
from rich.table import Table

from ioweave.derive.search.derive import derive
from ioweave.diagrams.library import load
from ioweave.hierarchy.machines import load_machine
from ioweave.hierarchy.quantities import format_seconds

KIB = 1024
LONG = {"q": 1 << 20, "x": 1 << 20}
CASES: tuple[tuple[str, dict[str, int | float], int, str], ...] = (
    ("attention", {}, 128, "same"),
    ("attention", {"d": 128}, 128, "same"),
    ("attention", {}, 128, "fp32"),
    ("attention", {"d": 128}, 128, "fp32"),
    ("attention", {"d": 512}, 32, "same"),
    ("attention", dict(LONG), 128, "same"),
    ("matmul", {}, 128, "same"),
    ("matmul_chain", {}, 128, "same"),
    ("causal_attention", {}, 128, "same"),
    ("grouped_query_attention", {}, 128, "same"),
    ("cross_entropy", {}, 128, "same"),
    ("swiglu_mlp", {}, 128, "same"),
    ("convolution", {}, 128, "same"),
    ("gpt3_block", {}, 128, "same"),
)


def main(names: list[str]) -> None:
    """Run the cases of these algorithms (all without names) and print a table."""
    machine = load_machine("h100")
    table = Table("algorithm", "sizes", "smem", "accumulate", "values", "schedules", "exact", "seconds")
    for name, sizes, capacity, accumulate in CASES:
        if names and name not in names:
            continue
        diagram = load(name)
        runs = []
        for _ in range(3):
            start = time.perf_counter()
            found = derive(diagram, diagram.values(sizes), machine, capacity=capacity * KIB, accumulate=accumulate)
            runs.append(time.perf_counter() - start)
        table.add_row(
            name,
            " ".join(f"{a}={n:,}" for a, n in sizes.items()),
            f"{capacity} KiB",
            accumulate,
            f"{found.after_counts.transfers.values:,}",
            f"{found.schedules:,}",
            "yes" if found.exact else "no",
            format_seconds(statistics.median(runs)),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
