"""Inputs whose values cancel are not compulsory: no schedule that leaves them out beats the bound."""

from __future__ import annotations

import pytest

from ioweave.derive.bounds.lower import bound
from ioweave.derive.counting.levelled import count
from ioweave.derive.execution.check import check
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.notation import parse_levelled

HEAD = "q, x, e, n = 6, 5, 3, 4\nA[q]: fp16\nB[x]: fp16\nK[n]: fp16\nidx[q]: int32\nV[x, e]: fp16\n"
SCORES = {  # scores, and the inputs besides V on which no output depends
    "A[q]": {"A"},
    "K[idx[q]]": {"K", "idx"},
    "where(x <= q, A[q], -inf)": {"A"},
    "A[q] * K[idx[q]]": {"A", "K", "idx"},
    "A[q] * B[x]": set(),
    "A[q] * x": set(),
    "K[idx[q]] + B[x]": set(),
}


@pytest.mark.parametrize("tiles", ["stream={x: 2}", "group={q: 4}, stream={x: 5}", "stream={q: 1}", ""])
@pytest.mark.parametrize("scores", SCORES)
def test_no_schedule_beats_the_bound(scores: str, tiles: str) -> None:
    used = [line for line in HEAD.splitlines() if "[" not in line or line.split("[")[0] + "[" in scores + "V["]
    head = "\n".join(used).replace(", n = 6, 5, 3, 4", " = 6, 5, 3") if "K[" not in scores else "\n".join(used)
    levels = ", ".join(["'smem'", *([tiles] if tiles else [])])
    text = (
        f"{head}\nwith level({levels}):\n    P[q, x] = softmax[x]({scores})\n    O[q, e] = sum[x](P[q, x] * V[x, e])\n"
    )
    levelled = parse_levelled(text)
    values = levelled.diagram.values()
    least = bound(open_diagram(levelled.diagram), values, 1 << 20)
    moved = count(levelled, values).transfers
    assert least.values <= (moved.least_values or moved.values)
    loads = {"A", "B", "K", "idx", "V"} & {name for name, n in moved.loads.items() if n}
    if "x:" in tiles:  # streamed, the prover's plan is run, which leaves out what cancels
        assert loads.isdisjoint(SCORES[scores])
        named = {name for name in ("A", "B", "K", "idx") if f"{name}[" in scores} - SCORES[scores]
        assert all(f"{name} + " in least.because for name in named)  # and the bound keeps all else
    assert not any(f"{name} + " in least.because for name in SCORES[scores])
    assert all(run.row.passed for run in check(levelled, {}))
