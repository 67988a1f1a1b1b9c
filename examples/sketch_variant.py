"""Sketch a variant of attention: does it stream, what does it cost, and does the schedule compute it?

Run it from anywhere: ``python examples/sketch_variant.py``.
"""

from __future__ import annotations

import ioweave

SIZES = {"q": 4096, "x": 4096, "d": 64}

HEADER = """
q, x, d = 4096, 4096, 64
Q[q, d]: fp16
K[x, d]: fp16
V[x, d]: fp16
"""

ATTENTION = """
S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)
P[q, x] = softmax[x](S[q, x])
O[q, d] = sum[x](P[q, x] * V[x, d])
"""

# The sketch: scores are capped, and a key that is far away counts less.
VARIANT = """
S[q, x] = 30 * tanh(sum[d](Q[q, d] * K[x, d]) / sqrt(d) / 30) - abs(q - x) / 512
P[q, x] = softmax[x](S[q, x])
O[q, d] = sum[x](P[q, x] * V[x, d])
"""

# A change too far: the weights are normalised over the queries as well.
TWICE = """
S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)
P[q, x] = softmax[x](S[q, x])
R[x] = sum[q](P[q, x])
O[q, d] = sum[x](P[q, x] / R[x] * V[x, d])
"""

SCHEDULE = 'with level("smem", group={q: 128}, stream={x: 64}):'


def verdict(title: str, lines: str) -> None:
    """Print whether the keys of a variant can be streamed."""
    answer = ioweave.prove(ioweave.open_diagram(ioweave.parse(HEADER + lines)), "x", SIZES)
    print(f"{title}: {answer.verdict}")
    for entry in answer.state:
        print(f"  state {entry.name}[{', '.join(entry.axes)}], from {entry.identity}, repair: {entry.repair}")
    if answer.refusal:
        print(f"  {answer.refusal}")


def cost(title: str, lines: str) -> None:
    """Print what the one fixed schedule costs for a variant."""
    block = "\n".join(f"    {line}" for line in lines.strip().splitlines())
    counts = ioweave.count(ioweave.parse_levelled(f"{HEADER}{SCHEDULE}\n{block}\n"), SIZES)
    print(
        f"{title}: {ioweave.format_bytes(counts.transfers.bytes)} moved, {ioweave.format_bytes(counts.memory)} held, "
        f"{ioweave.format_count(counts.flops.mma)}FLOP in products, "
        f"{ioweave.format_count(counts.flops.vector + counts.flops.special)}FLOP otherwise"
    )


def main() -> None:
    """Print verdicts, costs and a check."""
    for title, lines in (("attention", ATTENTION), ("the variant", VARIANT), ("normalised twice", TWICE)):
        verdict(title, lines)
    print()
    for title, lines in (("attention", ATTENTION), ("the variant", VARIANT)):
        cost(title, lines)
    print()
    runs = ioweave.check(HEADER + VARIANT).check or ()
    print(f"the variant, run in counted memory: {sum(run.passed for run in runs)} of {len(runs)} draws passed")


if __name__ == "__main__":
    main()
