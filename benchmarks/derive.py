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
from ioweave.derive.search.regions import _basis
from ioweave.derive.streaming.repair import _repair
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
    # those of the catalogue that take longest, as they stand
    ("contrastive_loss", {}, 227, "fp32"),
    ("talking_heads_attention", {}, 227, "fp32"),
    ("gpt3_block", {}, 227, "fp32"),
    ("latent_attention", {}, 227, "fp32"),
    ("differential_attention", {}, 227, "fp32"),
    ("cross_entropy_smoothing_z_loss", {}, 227, "fp32"),
    ("document_attention", {}, 227, "fp32"),
    ("sink_attention", {}, 227, "fp32"),
    ("rotary_attention", {}, 227, "fp32"),
    ("qk_norm_attention", {}, 227, "fp32"),
)


def main(names: list[str]) -> None:
    """Run the cases of these algorithms (all without names) and print a table."""
    machine = load_machine("h100")
    table = Table("algorithm", "sizes", "smem", "accumulate", "values", "schedules", "exact", "seconds", "CPU")
    for name, sizes, capacity, accumulate in CASES:
        if names and name not in names:
            continue
        diagram = load(name)
        runs, cpu = [], []
        for _ in range(3):
            _repair.cache_clear()  # or the second run has the plans of the first
            _basis.cache_clear()
            start, used = time.perf_counter(), time.process_time()
            found = derive(diagram, diagram.values(sizes), machine, capacity=capacity * KIB, accumulate=accumulate)
            runs.append(time.perf_counter() - start)
            cpu.append(time.process_time() - used)
        table.add_row(
            name,
            " ".join(f"{a}={n:,}" for a, n in sizes.items()),
            f"{capacity} KiB",
            accumulate,
            f"{found.after_counts.transfers.values:,}",
            f"{found.schedules:,}",
            "yes" if found.exact else "no",
            format_seconds(statistics.median(runs)),
            format_seconds(statistics.median(cpu)),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
