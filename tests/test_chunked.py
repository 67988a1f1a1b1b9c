"""The chunked form: equal to the scan that it was made from, in any size of chunk, and counted as matrix products."""

from __future__ import annotations

import json
from pathlib import Path

import console
import numpy as np
import pytest

from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.derive.streaming.chunked import chunked
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import Scan
from ioweave.diagrams.library import catalogue_text, load, names
from ioweave.diagrams.notation import parse, print_diagram

HEAD = """t, d, e = 12, 3, 2
K[t, d]: fp32
V[t, e]: fp32
"""
READ = "O[t, e] = sum[d](Q[t, d] * S[t, d, e])\n"
QUERY, GATE, GATES, BETA, START = (
    "Q[t, d]: fp32\n",
    "A[t]: fp32\n",
    "G[t, d]: fp32\n",
    "B[t]: fp32\n",
    "H[d, e]: fp32\n",
)
DELTA = "S[t - 1, d, e] - B[t] * K[t, d] * sum[f](K[t, f] * S[t - 1, f, e])"
WRITE = "K[t, d] * V[t, e]"


def scan(body: str, start: str = "0") -> str:
    """A state of rows and columns."""
    return f"S[t, d, e] = scan[t]({body}, start={start})\n"


PROGRAMS = {
    "linear attention": HEAD + QUERY + scan(f"S[t - 1, d, e] + {WRITE}") + READ,
    "retention": HEAD + QUERY + scan(f"0.9 * S[t - 1, d, e] + {WRITE}") + READ,
    "a scalar gate that may be 0": HEAD
    + QUERY
    + GATE
    + START
    + scan(f"where(A[t] > 0, sigmoid(A[t]), 0) * S[t - 1, d, e] + {WRITE}", "H[d, e]")
    + READ,
    "an exponential gate": HEAD + QUERY + GATE + scan(f"exp(-A[t]**2) * S[t - 1, d, e] + {WRITE}") + READ,
    "gates of rows": HEAD + QUERY + GATES + scan(f"exp(-G[t, d]**2) * S[t - 1, d, e] + {WRITE}") + READ,
    "gates of rows of any sign": HEAD + QUERY + GATES + scan(f"tanh(G[t, d]) * S[t - 1, d, e] + {WRITE}") + READ,
    "the delta rule": HEAD + QUERY + BETA + "f = d\n" + scan(f"{DELTA} + B[t] * {WRITE}") + READ,
    "the delta rule, its axis shadowed": HEAD
    + QUERY
    + BETA
    + scan("S[t - 1, d, e] + B[t] * K[t, d] * (V[t, e] - sum[d](K[t, d] * S[t - 1, d, e]))")
    + READ,
    "a gated delta rule": HEAD
    + QUERY
    + BETA
    + GATE
    + START
    + "f = d\n"
    + scan(f"exp(-A[t]**2) * ({DELTA}) + B[t] * {WRITE}", "H[d, e]")
    + READ,
    "a delta rule with gates of rows": HEAD
    + QUERY
    + BETA
    + GATES
    + "f = d\n"
    + scan(
        "sigmoid(G[t, d]) * S[t - 1, d, e] "
        f"- B[t] * K[t, d] * sum[f](K[t, f] * sigmoid(G[t, f]) * S[t - 1, f, e]) + {WRITE}"
    )
    + READ,
    "a delta rule in heads": "t, h, d, e = 12, 2, 3, 2\nf = d\nK[t, h, d]: fp32\nV[t, h, e]: fp32\nB[t, h]: fp32\n"
    "S[t, h, d, e] = scan[t](0.9 * S[t - 1, h, d, e] "
    "+ B[t, h] * K[t, h, d] * (V[t, h, e] - sum[f](K[t, h, f] * S[t - 1, h, f, e])), start=0)\n"
    "O[t, h, e] = sum[d](K[t, h, d] * S[t, h, d, e])\n",
    "levels that empty into the next": "t, l, d, e = 12, 5, 3, 2\nm = l\nK[t, d]: fp32\nV[t, e]: fp32\nW[t, l]: fp32\n"
    "S[t, l, d, e] = scan[t](where(l == 0, K[t, d] * V[t, e], where(t % 2**l == 0, 0, where(t % 2**(l - 1) == 0, "
    "sum[m](where(t % 2**m == 0, S[t - 1, m, d, e], 0)), S[t - 1, l, d, e]))), start=0)\n"
    "O[t, e] = sum[l, d](W[t, l] * K[t, d] * S[t, l, d, e])\n",
    "two scans and a quotient": HEAD
    + QUERY
    + "P[t, d] = exp(K[t, d])\nR[t, d] = exp(Q[t, d])\n"
    + scan("0.9 * S[t - 1, d, e] + P[t, d] * V[t, e]")
    + "Z[t, d] = scan[t](0.9 * Z[t - 1, d] + P[t, d], start=1)\n"
    + "O[t, e] = sum[d](R[t, d] * S[t, d, e]) / sum[d](R[t, d] * Z[t, d])\n",
    "one scan in another": "t, d = 12, 3\nX[t, d]: fp32\nS[t, d] = cumsum[t](X[t, d])\n"
    "R[t, d] = scan[t](0.25 * R[t - 1, d] + S[t, d], start=0)\nO[d] = sum[t](R[t, d] * X[t, d])\n",
    "decays alone": "t, d = 12, 3\nX[t, d]: fp32\nS[t, d] = scan[t](S[t - 1, d] * X[t, d], start=1)\n",
    "a state that is read whole": "t, d = 12, 3\nX[t, d]: fp32\n"
    "S[t, d] = scan[t](0.5 * S[t - 1, d] + X[t, d], start=1)\nO[t, d] = tanh(S[t, d])\n",
}


@pytest.mark.parametrize("size", [1, 3, 4, 12])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_to_the_scan(name: str, size: int) -> None:
    diagram = parse(PROGRAMS[name], name)
    made = parse(print_diagram(chunked(diagram, "t", size)), name)  # as it is printed, so as it is read back
    assert made.values()["t"] == 12
    assert not any(isinstance(x.expr, Scan) and x.expr.axis == "t" for x in made.lines)
    arrays = draw_inputs(diagram, diagram.values(), 7)
    whole, parts = evaluate(diagram, diagram.values(), arrays), evaluate(made, made.values(), arrays)
    for out in diagram.outputs:
        np.testing.assert_allclose(parts[out].reshape(whole[out].shape), whole[out], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in names() if "scan[" in catalogue_text(n) or "cumsum[" in catalogue_text(n)])
def test_what_is_printed_reads_back(name: str) -> None:
    diagram = load(name)
    axes = [a for a in diagram.values() if isinstance(diagram.values()[a], int)]
    made = []
    for axis in axes:
        try:
            made.append(chunked(diagram, axis, min(k for k in (2, 3, 5, 7) if diagram.values()[axis] % k == 0)))
        except (Refused, ValueError):  # no scan there, or a length of none of these
            continue
    for found in made:
        assert parse(print_diagram(found), name) == found


def test_strong_decays_stay_in_range() -> None:
    """Cumulative sums of large negative exponents give 0, where quotients of cumulative products are 0 / 0."""
    diagram = parse(PROGRAMS["an exponential gate"], "strong")
    made = chunked(diagram, "t", 6)
    arrays = draw_inputs(diagram, diagram.values(), 1) | {"A": np.full(12, 30.0)}
    whole, parts = evaluate(diagram, diagram.values(), arrays), evaluate(made, made.values(), arrays)
    assert np.isfinite(parts["O"]).all()
    np.testing.assert_allclose(parts["O"].reshape(12, 2), whole["O"], rtol=1e-11)


@pytest.mark.parametrize(
    ("text", "axis", "size", "says"),
    [
        (PROGRAMS["retention"], "t", 5, "t = 12 is no multiple of 5: give a size that divides it, as t=4"),
        (PROGRAMS["retention"], "d", 3, "scans along d, and there is none"),
        ("t = 4\nX[t]: fp32\nS[t] = scan[t](tanh(S[t - 1]) + X[t], start=0)\n", "t", 2, "not affine in S"),
        ("t = 4\nX[t]: fp32\nS[t] = scan[t](max(S[t - 1], X[t]), start=0)\n", "t", 2, "no sum of products"),
        (
            "t = 4\nX[t]: fp32\nS[t] = scan[t](S[t - 1] + X[t], start=0)\nO[t] = where(t > 0, S[t - 1], 0)\n",
            "t",
            2,
            "S is read at t - 1",
        ),
        (
            "x = 4\nt = x\nX[x]: fp32\nZ[t] = topk[x](X[x], into=t)\nS[t] = cumsum[t](Z[t])\n",
            "t",
            2,
            "Z is a list along t, which is made whole",
        ),
        (
            "t, d = 4, 2\nf = d\nW[t, d, d]: fp32\nS[t, d] = scan[t](sum[f](W[t, d, f] * S[t - 1, f]), start=1)\n",
            "t",
            2,
            "mixes what it carries",
        ),
    ],
)
def test_refusals(text: str, axis: str, size: int, says: str) -> None:
    with pytest.raises(Refused) as found:
        chunked(parse(text, "no"), axis, size)
    assert says in str(found.value)
    assert "\n" not in str(found.value)


RETENTION = PROGRAMS["retention"].replace("12, 3, 2", "256, 16, 8")
STICKS = """i, j, d, e = 16, 16, 4, 4
Q[i, d]: fp32
K[j, d]: fp32
V[j, e]: fp32
B[i, j] = sigmoid(sum[d](Q[i, d] * K[j, d]))
C[i, j] = scan[j, reversed=True](C[i, j + 1] * (1 - B[i, j]), start=1)
O[i, e] = sum[j](B[i, j] / (1 - B[i, j]) * C[i, j] * V[j, e])
"""


def _done(folder: Path, command: str, text: str) -> console.Done:
    (folder / "mine.weave").write_text(text)
    return console.run(command, folder)


def test_show_prints_the_chunked_form_and_cost_counts_it(tmp_path: Path) -> None:
    """The products of a chunk are multiply-adds of matrices: four of them, where the scan as written has one."""
    shown = _done(tmp_path, "ioweave show mine.weave --chunk t=32", RETENTION)
    assert shown.returncode == 0
    counted = json.loads(_done(tmp_path, "ioweave cost mine.weave --json", shown.stdout).stdout)
    t, d, e, c = 256, 16, 8, 32
    adds, scores, intra, inter = 2 * t * d * e, 2 * t * c * d, 2 * t * c * e, 2 * t * d * e
    assert counted["after"]["flops"]["mma"] == adds + scores + intra + inter
    plain = json.loads(_done(tmp_path, "ioweave cost mine.weave --json", RETENTION).stdout)
    assert plain["after"]["flops"]["mma"] == 0  # a vector times a state for each element


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        ("t=33", "give a size that divides it, as t=32"),
        ("x=4", "there is no such axis"),
        ("t", "write axis=size, as t=64"),
        ("t=4,d=2", "takes one axis"),
    ],
)
def test_a_wrong_chunk_is_one_line(tmp_path: Path, chunk: str, says: str) -> None:
    done = _done(tmp_path, f"ioweave show mine.weave --chunk {chunk}", RETENTION)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_stream_shows_merge_and_chunks(tmp_path: Path) -> None:
    record = json.loads(_done(tmp_path, "ioweave stream mine.weave --axis t --json", RETENTION).stdout)
    (verdict,) = record["streaming"]
    assert (verdict["verdict"], verdict["direction"]) == ("one-pass", "forward")
    assert "S = S₂ + S.map₂ * S₁" in verdict["merge"]
    assert any(line.startswith("S_state[c, d, e] = scan[c](") for line in verdict["chunked"])
    assert max(trial["parts"] for trial in verdict["trials"]) > 1


@pytest.mark.parametrize(("way", "state"), [("backward", ["C", "O"]), ("forward", ["O.seen"])])
def test_the_direction_asked_for_is_the_plan_shown(tmp_path: Path, way: str, state: list[str]) -> None:
    done = _done(tmp_path, f"ioweave stream mine.weave --axis j --direction {way} --json", STICKS)
    (verdict,) = json.loads(done.stdout)["streaming"]
    assert verdict["direction"] == "both"
    assert [s["name"] for s in verdict["state"]] == state
    assert verdict["trials"]
    assert all(trial["passed"] for trial in verdict["trials"])
    said = _done(tmp_path, f"ioweave stream mine.weave --axis j --direction {way}", STICKS).stdout
    assert said.splitlines()[-1] == f"j as asked: {way}; the plan walks either way"


def test_a_direction_that_no_plan_walks_is_told_why(tmp_path: Path) -> None:
    done = _done(tmp_path, "ioweave stream mine.weave --axis t --direction backward", RETENTION)
    assert done.returncode == 0
    last = done.stdout.splitlines()[-1]
    assert last.startswith("t not as asked: the plan walks forward alone, not backward: O is indexed by t")
