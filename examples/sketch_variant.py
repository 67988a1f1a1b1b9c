"""Sketch a variant of attention: does it stream, what does it cost, and does the schedule compute it?

Run it from anywhere: ``python examples/sketch_variant.py``.
"""

from __future__ import annotations

import ioweave

INPUTS = """
q, x, d = 4096, 4096, 64
Q[q, d]: fp16
K[x, d]: fp16
V[x, d]: fp16
"""

# Scores are capped, and a key counts less the further away it is: a softcap and ALiBi.
VARIANT = f"""{INPUTS}
S[q, x] = 30 * tanh(sum[d](Q[q, d] * K[x, d]) / sqrt(d) / 30) - abs(q - x) / 512
P[q, x] = softmax[x](S[q, x])
O[q, d] = sum[x](P[q, x] * V[x, d])
"""

# A change too far: each key's weights are normalised over the queries as well.
TWICE = f"""{INPUTS}
S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)
P[q, x] = softmax[x](S[q, x])
R[x] = sum[q](P[q, x])
O[q, d] = sum[x](P[q, x] / R[x] * V[x, d])
"""

SMEM = {"smem": "128KiB"}


def verdict(title: str, algorithm: str) -> None:
    """Print whether the keys can be streamed, with the state or the reason."""
    (answer,) = ioweave.stream(algorithm, "x").streaming or ()
    print(f"{title}: {answer.verdict}")
    for entry in answer.state if answer.streams else ():
        print(f"  carries {entry.name}[{', '.join(entry.axes)}] from {entry.identity}, repair: {entry.repair}")
    if answer.refusal:
        print(f"  {answer.refusal}")
        print(f"  nearest: {answer.nearest}")


def cost(title: str, algorithm: str) -> None:
    """Print what the algorithm costs as written, and in the best schedule."""
    report = ioweave.search(algorithm, capacity=SMEM)
    assert report.before is not None
    assert report.after is not None
    before, after = report.before.tally, report.after.tally
    print(
        f"{title}: {ioweave.format_bytes(before.transfers.bytes)} moved as written, "
        f"{ioweave.format_bytes(after.transfers.bytes)} in the best schedule, "
        f"which holds {ioweave.format_bytes(after.memory.bytes)} and does {ioweave.format_count(after.flops.total)}FLOP"
    )
    for region in report.after.regions:
        group, stream = ([f"{a} in {n}s" for a, n in tiles] for tiles in (region.group, region.stream))
        print(f"  {region.name}: grouped {', '.join(group) or 'nothing'}, streamed {', '.join(stream) or 'nothing'}")


def main() -> None:
    """Print verdicts, costs, what differs, and a check."""
    for title, algorithm in (("attention", "attention"), ("the variant", VARIANT), ("normalised twice", TWICE)):
        verdict(title, algorithm)
    print()
    for title, algorithm in (("attention", "attention"), ("the variant", VARIANT)):
        cost(title, algorithm)
    print()
    for row in ioweave.compare(VARIANT, "attention", capacity=SMEM).compare or ():
        if isinstance(row.a, int | float) and isinstance(row.b, int | float):
            print(f"{row.what}: {row.a:.4g} against attention's {row.b:.4g}")
    print()
    runs = ioweave.check(VARIANT).check or ()
    print(f"the variant, run in counted memory: {sum(run.passed for run in runs)} of {len(runs)} draws passed")


if __name__ == "__main__":
    main()
