"""A scan in a nest with a loop that it lacks: that loop outside or innermost is fine, between it is refused."""

from __future__ import annotations

import itertools

import pytest

from ioweave.derive.execution.check import check
from ioweave.diagrams.errors import Refused
from ioweave.hierarchy.notation import parse_levelled

HEAD = (
    "t, d, e, m = 5, 2, 4, 3\nf = d\na[t]: fp32\nk[t, d]: fp32\nv[t, e]: fp32\nq[t, d]: fp32\nW[e, m]: fp32\n"
    "with level('smem', stream={%s}):\n"
)
TAIL = "    O[t, e] = sum[d](q[t, d] * A[t, d, e])\n    Y[t, m] = sum[e](O[t, e] * W[e, m])\n"
LINES = {
    "forward": "scan[t](a[t] * A[t - 1, d, e] + k[t, d] * v[t, e], start=0)",
    "backward": "scan[t, reversed=True](a[t] * A[t + 1, d, e] + k[t, d] * v[t, e], start=1)",
    "delta": "scan[t](A[t - 1, d, e] - a[t] * k[t, d] * sum[f](k[t, f] * A[t - 1, f, e]) + k[t, d] * v[t, e], start=0)",
    "cumulative": "cumsum[t](a[t] * k[t, d] * v[t, e])",
}


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("order", [o for n in (1, 2, 3) for o in itertools.permutations("tme", n)], ids="".join)
@pytest.mark.parametrize("line", LINES)
def test_a_loop_does_not_make_a_scan_again(line: str, order: tuple[str, ...], step: int) -> None:
    head = HEAD if line == "delta" else HEAD.replace("f = d\n", "")
    tiles = ", ".join(f"{a}: {step if a == 't' else 2}" for a in order)
    levelled = parse_levelled(head % tiles + f"    A[t, d, e] = {LINES[line]}\n{TAIL}")
    if order == ("t", "m", "e"):
        with pytest.raises(Refused, match=r"the loop over m would make it again in every step; put m outside of t"):
            check(levelled, {})
        return
    (run,) = check(levelled, {})
    assert run.row.passed, run.row.because
