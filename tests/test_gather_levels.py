"""Counts of lookups in levels: by hand, against brute force on random files, and against execution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from brute import least, region_front
from brute_force import Unrunnable, brute_force
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ioweave.derive.bounds.needed import compulsory
from ioweave.derive.counting.explain import explain
from ioweave.derive.counting.formulas import formulas
from ioweave.derive.counting.levelled import count, place
from ioweave.derive.counting.terms import numbers, terms, total
from ioweave.derive.execution.check import check
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.program.setting import Setting
from ioweave.derive.search.derive import derive
from ioweave.derive.search.regions import Effort, Limits, best_schedule
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.machines import load_machine
from ioweave.hierarchy.notation import parse_levelled

PAGED = """
b, h, x, d = 2, 3, 10, 4
p = 4
u = 3
n = 8
Q[b, h, d]: fp16
K[n, p, d]: fp16
V[n, p, d]: fp16
page[b, u]: int32
with level("smem", group={b: 1}, stream={x: 3}):
    S[b, h, x] = sum[d](Q[b, h, d] * K[page[b, x // p], x % p, d]) / sqrt(d)
    P[b, h, x] = softmax[x](S[b, h, x])
    O[b, h, d] = sum[x](P[b, h, x] * V[page[b, x // p], x % p, d])
"""
BIAS = """
h, i, j = 2, 9, 11
n = 4
A[i, j]: fp32
B[h, n]: fp32
bucket[i + j - 1]: int32
with level("smem", group={i: 4}, stream={j: 3}):
    S[h, i, j] = A[i, j] + B[h, bucket[i - j + size(j) - 1]]
"""
COMPUTED = BIAS.replace("bucket[i + j - 1]: int32\n", "").replace(
    "bucket[i - j + size(j) - 1]", "min(abs(i - j) // 2, 3)"
)
EMBEDDING = """
t, v, m = 7, 5, 3
token[t]: int32
E[v, m]: bf16
with level("smem", group={t: 3}, stream={m: 2}):
    Y[t, m] = E[token[t], m]
"""
CAUSAL = """
q, x, n, d = 6, 10, 7, 3
Q[q, d]: fp32
K[n, d]: fp32
row[x]: int32
with level("smem", group={q: 2}, stream={x: 3}):
    S[q, x] = where(x <= q, sum[d](Q[q, d] * K[row[x], d]), -inf)
    P[q, x] = softmax[x](S[q, x])
    O[q, d] = sum[x](P[q, x] * K[row[x], d])
"""
EXPERTS = """
t, m, f, e, k = 5, 4, 6, 3, 2
X[t, m]: bf16
U[e, m, f]: bf16
D[e, f, m]: bf16
I[t, k]: int32
with level("smem", group={t: 2}, stream={f: 4}):
    H[t, k, f] = silu(sum[m](X[t, m] * U[I[t, k], m, f]))
    Y[t, m] = sum[k, f](H[t, k, f] * D[I[t, k], f, m])
"""
BLOCKS = """
a, i, u, j, d = 3, 2, 2, 4, 3
x = 16
Q[a, i, d]: fp16
K[x, d]: fp16
block[a, u]: int32 < 4
with level("smem", group={a: 2}, stream={u: 1}):
    S[a, i, u, j] = sum[d](Q[a, i, d] * K[block[a, u] * 4 + j, d])
"""
CHOSEN = """
q, x, d, k = 4, 9, 3, 2
S[q, x]: fp32
K[x, d]: fp32
I[q, k] = argtopk[x](S[q, x], into=k)
with level("smem", group={q: 2}):
    O[q, d] = sum[k](K[I[q, k], d])
"""

SPLIT = PAGED.replace("{b: 1}, stream={x: 3}", "{b: 1, x: 4}, stream={x: 3}")
NESTED = """
t, v, u, m = 6, 5, 4, 3
token[t]: int32
row[v]: int32
E[u, m]: fp32
B[t] = row[token[t]]
with level("smem", group={t: 2}):
    Y[t, m] = E[row[token[t]], m] + E[B[t], m]
"""

# loads as counted where index arrays are unknown: the most; and the least values of all that is moved
BY_HAND = {
    # x in steps 3, 3, 3, 1; every slot of a page differs within a step, so no table of pages makes it less
    "paged": (PAGED, {"Q": 24, "K": 80, "V": 80, "page": 2 * (1 + 2 + 2 + 1)}, 24 + 80 + 80 + 12 + 24),
    # i in 4, 4, 1 and j in 3, 3, 3, 2: g_i + g_j - 1 differences in a tile, of 4 entries at most
    "bias": (
        BIAS,
        {"A": 99, "bucket": (6 * 3 + 5) * 2 + (3 * 3 + 2), "B": 2 * (4 * 8 + 3 * 3 + 2)},
        99 + 57 + 2 * 12 + 2 * 99,
    ),
    # tiles of t: 3, 3, 1; two trips of m, 2 and 1 wide; token is loaded before the loop
    "embedding": (EMBEDDING, {"token": 7, "E": 21}, 7 + 3 * 3 + 21),
    # tiles of q see 2, 4 and 6 keys: steps 1, 2 and 2 of 3 (the last reaches key 5)
    "causal": (CAUSAL, {"Q": 18, "row": 3 * (1 + 2 + 2), "K": 9 * (1 + 2 + 2)}, 18 + 15 + 3 * 5 + 18),
    # 2 tokens with 2 choices may name all 3 experts; the last tile has one token
    "experts": (
        EXPERTS,
        {"X": 20, "I": 10, "U": (3 + 3 + 2) * 24, "D": (3 + 3 + 2) * 24},
        20 + 10 + 3 * 24 + 3 * 24 + 20,
    ),
    # 4 rows of each block, of one block at least
    "blocks": (BLOCKS, {"Q": 18, "block": 6, "K": (2 + 1) * 2 * 12}, 18 + 6 + 2 * 2 * 12 + 48),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_most_and_the_least_by_hand(name: str) -> None:
    text, loads, least = BY_HAND[name]
    levelled = parse_levelled(text, name)
    found = count(levelled, levelled.diagram.values()).transfers
    assert found.loads == loads
    assert found.fewest[0] == least
    assert ("least_values" in found.to_json()) == (least < found.values)


def contents(levelled: Levelled, kind: str, seed: int = 0) -> dict[str, Any]:
    """Inputs whose index arrays are all equal, count up around what they name, or are random."""
    values = levelled.diagram.values()
    arrays = draw_inputs(levelled.diagram, values, seed)
    for i in levelled.diagram.inputs:
        a = arrays[i.name]
        if a.dtype.kind == "i":
            top = int(draw_inputs(levelled.diagram, values, seed)[i.name].max()) + 1
            top = max(top, *(int(draw_inputs(levelled.diagram, values, s)[i.name].max()) + 1 for s in range(20)))
            if kind == "equal":
                arrays[i.name] = np.zeros_like(a)
            elif kind == "counting":
                arrays[i.name] = (np.arange(a.size) % top).reshape(a.shape)
    return arrays


@pytest.mark.parametrize("kind", ["equal", "counting", "random"])
@pytest.mark.parametrize("text", [PAGED, SPLIT, BIAS, COMPUTED, EMBEDDING, CAUSAL, EXPERTS, BLOCKS, CHOSEN, NESTED])
def test_execution_moves_what_is_counted(text: str, kind: str) -> None:
    held = ", ".join(f"{a}: 0" for a in ("K", "row", "page") if f"\n{a}[" in text)
    for hold in ("", f", hold={{{held}}}"):
        levelled = parse_levelled(text.replace("stream={x: 3}", "stream={x: 3}" + hold), "")
        for seed in range(2):
            (checked,) = check(levelled, inputs=contents(levelled, kind, seed))
            assert checked.row.passed, checked.row.because


@pytest.mark.parametrize("text", [PAGED, BIAS, EMBEDDING, CAUSAL, EXPERTS, BLOCKS])
def test_equal_indices_move_the_least_and_counting_ones_the_most(text: str) -> None:
    levelled = parse_levelled(text, "")
    values = levelled.diagram.values()
    unknown = count(levelled, values).transfers
    equal, counting = (
        count(levelled, values, integers=contents(levelled, kind)).transfers for kind in ("equal", "counting")
    )
    assert equal.values == unknown.fewest[0]
    assert counting.loads == unknown.loads
    assert equal.least_values in (None, equal.values)


def test_indices_of_indices_alone_are_counted_exactly() -> None:
    text = """
x = 11
K[6]: fp32
L[4]: fp32
M[3, 4]: fp32
with level("smem", group={x: 3}):
    Y[x] = K[x // 2] + L[x % 4] + M[x // 4, x % 4]
"""
    levelled = parse_levelled(text, "")
    found = count(levelled, levelled.diagram.values()).transfers
    # tiles 0-2, 3-5, 6-8, 9-10: quotients by 2 {0,1}, {1,2}, {3,4}, {4,5}
    assert found.loads == {"K": 8, "L": 11, "M": 11}
    assert found.fewest == (found.values, found.bytes)
    assert found.loads == brute_force(levelled).loads
    computed = parse_levelled(COMPUTED, "")
    assert count(computed, computed.diagram.values()).transfers.loads == brute_force(computed).loads


def test_a_large_table_of_distances_is_counted_by_distance_not_by_pair() -> None:
    text = COMPUTED.replace("2, 9, 11", "2, 40000, 40000").replace("{i: 4}", "{i: 400}").replace("{j: 3}", "{j: 400}")
    levelled = parse_levelled(text.replace("// 2", "// 8192"), "")
    # a tile of distances -399 .. 399 beside 400 * k crosses at most one multiple of 8192
    loads = count(levelled, levelled.diagram.values()).transfers.loads
    tiles = [k * 400 for k in range(100)]
    touched = {
        (i, j): len({min(abs(u) // 8192, 3) for u in (i - j - 399, i - j, i - j + 399)}) for i in tiles for j in tiles
    }
    assert loads["B"] == 2 * sum(touched.values())


MADE = """
x = 8
K[x]: fp32
a[x]: int32
with level("smem"{tiles}):
    T[x] = exp(K[x])
    Y[x] = T[a[x]]
"""


def test_a_lookup_of_what_the_region_makes_needs_it_whole() -> None:
    whole = parse_levelled(MADE.format(tiles=""), "")
    assert count(whole, whole.diagram.values()).transfers.loads == {"K": 8, "a": 8}
    (checked,) = check(whole, sizes={})
    assert checked.row.passed, checked.row.because
    cut = parse_levelled(MADE.format(tiles=", stream={x: 2}"), "")
    with pytest.raises(Refused, match="T is looked up along x, so all of it is needed at once"):
        count(cut, cut.diagram.values())


def test_places_made_in_the_region_cannot_name_what_it_loads() -> None:
    text = CHOSEN.replace('I[q, k] = argtopk[x](S[q, x], into=k)\nwith level("smem", group={q: 2}):\n', "")
    text = text.replace("    O[q", 'with level("smem"):\n    I[q, k] = argtopk[x](S[q, x], into=k)\n    O[q')
    levelled = parse_levelled(text, "")
    with pytest.raises(Refused, match="K is loaded at places that I names, which is made in this region"):
        count(levelled, levelled.diagram.values())


def test_an_index_array_is_there_before_what_it_names() -> None:
    levelled = parse_levelled(CAUSAL.replace("stream={x: 3}", "stream={x: 3}, hold={K: 0}"), "")
    with pytest.raises(Refused, match="K is held at depth 0, and row, which names its places, is loaded at depth 1"):
        count(levelled, levelled.diagram.values())


def test_a_number_that_names_no_place_is_bad_input() -> None:
    levelled = parse_levelled(EMBEDDING, "")
    arrays = contents(levelled, "equal")
    arrays["token"][3] = 5
    with pytest.raises(
        WeaveError, match="the array given for `token` leads to place 5 of E, whose places there are 0 to 4"
    ):
        check(levelled, inputs=arrays)


# -- random files against brute force

BODIES = {
    "A[i, j] * T[r[i], j]": {"A": "i, j", "T": "n, j", "r": "i"},
    "T[r[i]] + T[s[j]]": {"T": "n", "r": "i", "s": "j"},
    "A[i, j] + T[w[i, j]]": {"A": "i, j", "T": "n", "w": "i, j"},
    "T[r[i], s[j]]": {"T": "n, n", "r": "i", "s": "j"},
    "T[r[i], i] * s[j]": {"T": "n, i", "r": "i", "s": "j"},
    "T[y[i + j]]": {"T": "n", "y": "i + j - 1"},
    "T[y[i - j + size(j) - 1]] * A[i, j]": {"T": "n", "y": "i + j - 1", "A": "i, j"},
    "T[r[i // 2], i % 2, j]": {"T": "n, 2, j", "r": "i"},
    "T[r[s[j]]] + A[i, j]": {"T": "n", "r": "n", "s": "j", "A": "i, j"},
    "T[r[i] * 2 + j % 2]": {"T": "2 * n", "r": "i"},
    "T[min(abs(i - j) // 2, n - 1)] + A[i, j]": {"T": "n", "A": "i, j"},
    "T[(i + 2 * j) // 3, i]": {"T": "i + j, i"},
    "T[i % 3, j] + T[i // 3, j]": {"T": "i + 3, j"},
    "where(j <= i, T[r[j]] * A[i, j], 0)": {"T": "n", "r": "j", "A": "i, j"},
    "where(i > 0, T[r[i - 1]], 0) + A[i, j]": {"T": "n", "r": "i", "A": "i, j"},
}


@st.composite
def files(draw: st.DrawFn) -> str:
    """A levelled file of one region with a lookup."""
    body = draw(st.sampled_from(sorted(BODIES)))
    i, j, n = (draw(st.integers(1, 6)) for _ in range(3))
    lines = [f"i, j, n = {i}, {j}, {n}"]
    for name, dims in BODIES[body].items():
        integral = name in ("r", "s", "w", "y")
        lines.append(f"{name}[{dims}]: {'int32' if integral else draw(st.sampled_from(['fp32', 'fp16']))}")
    group = {a: draw(st.integers(1, 6)) for a in ("i", "j") if draw(st.booleans())}
    stream = {a: draw(st.integers(1, 6)) for a in draw(st.permutations(("i", "j"))) if draw(st.booleans())}
    held = {a: 0 for a in BODIES[body] if draw(st.integers(0, 3)) == 0} if stream else {}
    tail = draw(st.sampled_from(["", "sum"] if "where" in body else ["", "sum", "shift"]))
    if tail == "sum":
        group.pop("j", None)
    inside = [f"Y[i, j] = {body}"]
    if tail == "sum":
        inside.append("Z[i] = sum[j](Y[i, j])")
    if tail == "shift":
        inside.append("Z[i, j] = Y[i, j] + where(i > 0, Y[i - 1, j], 0)")
    parts = [
        f"{k}={{{', '.join(f'{a}: {t}' for a, t in v.items())}}}"
        for k, v in (("group", group), ("stream", stream), ("hold", held))
        if v
    ]
    head = ", ".join(['"smem"', *parts])
    return "\n".join([*lines, f"with level({head}):", *(f"    {line}" for line in inside)]) + "\n"


def indices(levelled: Levelled, seed: int) -> dict[str, Any]:
    arrays = draw_inputs(levelled.diagram, levelled.diagram.values(), seed)
    return {n: a for n, a in arrays.items() if a.dtype.kind == "i"}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(files(), st.integers(0, 3))
def test_random_files_count_as_brute_force_does(text: str, seed: int) -> None:
    levelled = parse_levelled(text, "file")
    values = levelled.diagram.values()
    known = indices(levelled, seed)
    try:
        most = count(levelled, values, "same").transfers
    except Refused:
        with pytest.raises(Unrunnable):
            brute_force(levelled, known)
        return
    forced = brute_force(levelled, known)
    found = count(levelled, values, "same", known).transfers
    assert {k: n for k, n in found.loads.items() if n} == dict(forced.loads)
    assert most.fewest[0] <= found.values <= most.values
    (checked,) = check(levelled, sizes={}, seed=seed)
    assert checked.row.passed, checked.row.because


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(files())
def test_terms_and_formulas_agree_with_the_count(text: str) -> None:
    levelled = parse_levelled(text, "file")
    try:
        counts = count(levelled, levelled.diagram.values(), "same")
    except Refused:
        assume(False)
        return
    (p,) = counts.placed[:1]
    t = terms(p.program, p.setting)
    ring = numbers(p.setting.sizes, p.tiles.group, p.tiles.stream)
    if t.exact and len(counts.placed) == 1:
        moved = total((product for _, product in (*t.loads, *t.stores)), ring, t.grouped)
        assert moved == counts.transfers.values
    whole, _ = formulas(counts)
    if whole.divides:
        value = whole.transfers.value
        assert value >= counts.transfers.values if whole.transfers.bound else value == counts.transfers.values


# -- plans, bounds, reports


def derived(text: str, capacity: int) -> Any:
    diagram = parse_levelled(text, "").diagram
    return derive(diagram, diagram.values(), load_machine("h100"), capacity=capacity)


def test_decoding_from_pages_moves_as_much_as_from_one_array() -> None:
    paged = "b, h, x, d = 4, 8, 64, 16\np = 4\nu = x // p\nn = 64\n" + PAGED.split("n = 8\n")[1].replace(
        'with level("smem", group={b: 1}, stream={x: 3}):\n', ""
    ).replace("    ", "")
    plain = paged.replace("[n, p, d]", "[b, x, d]").replace("page[b, x // p], x % p, d", "b, x, d")
    plain = plain.replace("page[b, u]: int32\n", "").replace("p = 4\nu = x // p\nn = 64\n", "")
    one, other = derived(paged, 4096), derived(plain, 4096)
    assert one is not None
    first, second = one.after_counts.transfers, other.after_counts.transfers
    assert {a: first.loads[a] for a in "QKV"} == {a: second.loads[a] for a in "QKV"}
    assert first.values == second.values + 4 * 16
    assert len(one.after_counts.regions) == len(other.after_counts.regions) == 1


SEARCHED = {
    "rows of a table": "t, v, m = 5, 3, 3\ntoken[t]: int32\nE[v, m]: fp32\nY[t, m] = E[token[t], m]\n",
    "a large table": "t, v, m = 4, 9, 3\ntoken[t]: int32\nE[v, m]: fp32\nY[t, m] = E[token[t], m]\n",
    "pages": (
        "b, x = 2, 5\np = 2\nu = 3\nn = 6\nQ[b]: fp32\nK[n, p]: fp32\npage[b, u]: int32\n"
        "S[b, x] = Q[b] * K[page[b, x // p], x % p]\n"
    ),
    "distances": "i, j, n = 5, 4, 3\nB[n]: fp32\ny[i + j - 1]: int32\nS[i, j] = B[y[i - j + size(j) - 1]]\n",
    "computed distances": "i, j, n = 5, 4, 3\nA[i, j]: fp32\nB[n]: fp32\nS[i, j] = A[i, j] + B[min(abs(i - j), 2)]\n",
    "experts": (
        "t, m, f, e = 4, 2, 3, 2\nX[t, m]: fp32\nW[e, m, f]: fp32\nI[t]: int32\n"
        "H[t, f] = sum[m](X[t, m] * W[I[t], m, f])\n"
    ),
    "causal": (
        "q, x, n = 3, 4, 2\nQ[q]: fp32\nK[n]: fp32\nrow[x]: int32\nS[q, x] = where(x <= q, Q[q] * K[row[x]], 0)\n"
    ),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_regions_are_searched_exactly(name: str) -> None:
    diagram = parse_levelled(SEARCHED[name], name).diagram
    opened = open_diagram(diagram)
    setting = Setting.make(opened, diagram.values(), "same")
    stored = frozenset(opened.outputs)
    front = region_front(opened.boxes, stored, setting)
    for capacity in sorted({b + more for b, _ in front for more in (-1, 0, 3)}):
        effort = Effort()
        found = best_schedule(name, opened.boxes, stored, setting, Limits(capacity), effort)
        assert (found.values if found else None) == least(front, capacity), capacity
        assert effort.exact


def test_no_bound_counts_more_than_an_index_must_name() -> None:
    for text in (PAGED, BIAS, EMBEDDING, EXPERTS, BLOCKS):
        levelled = parse_levelled(text, "")
        values = levelled.diagram.values()
        rows = {n: v for n, v, _ in compulsory(open_diagram(levelled.diagram), values).arrays}
        equal = count(levelled, values, integers=contents(levelled, "equal")).transfers.loads
        assert all(rows.get(a, 0) <= n for a, n in equal.items())
    levelled = parse_levelled(PAGED, "")
    rows = {n: v for n, v, _ in compulsory(open_diagram(levelled.diagram), levelled.diagram.values()).arrays}
    assert rows["K"] == 4 * 4  # the slots of one page
    computed = parse_levelled(COMPUTED, "")
    rows = {n: v for n, v, _ in compulsory(open_diagram(computed.diagram), computed.diagram.values()).arrays}
    assert rows["B"] == 2 * 4


def test_an_explanation_names_the_index_and_the_least() -> None:
    levelled = parse_levelled(EMBEDDING, "")
    counts = count(levelled, levelled.diagram.values())
    (row,) = [r for r in explain(counts) if r.name == "E" and r.total == "transfers"]
    assert "looked up in token: the most that it may name, and 9 at least" in row.rule
    assert math.isclose(row.value, 21)


def test_room_is_for_the_worst_index() -> None:
    levelled = parse_levelled(EMBEDDING, "")
    values = levelled.diagram.values()
    memories = {
        count(levelled, values, integers=contents(levelled, kind)).regions[0].memory.bytes
        for kind in ("equal", "counting", "random")
    }
    assert memories == {place_memory(levelled)}


def place_memory(levelled: Levelled) -> int:
    (p,) = place(levelled, levelled.diagram.values())
    assert p.setting.integers == {}
    return 3 * 4 + 3 * 2 * 2 + 3 * 2 * 2  # tokens; rows of E and of Y, two wide
