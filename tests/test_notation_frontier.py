"""Gathers, recurrences, lists and dropout masks: text, round trips, boxes, values and errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ioweave as iw
from ioweave.derive.execution.draws import draw_sizes
from ioweave.derive.execution.inputs import draw_inputs, given_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.diagrams.arithmetic import keep
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Lookup, children, is_predicate_of_indices, operands
from ioweave.diagrams.notation import parse, print_diagram, print_expr
from ioweave.diagrams.opening import open_diagram, open_line

PAGED = """b, x, p, d, n = 2, 8, 4, 3, 5
page[b, 2]: int32
K[n, p, d]: fp16
Y[b, x, d] = K[page[b, x // p], x % p, d]
"""
BUCKETS = """i, j, h, n = 6, 8, 2, 13
bucket[n]: int32
B[h, 32]: fp16
C[h, 4]: fp32
off[h]: int32
Y[h, i, j] = B[h, min(abs(i - j), 31)] + B[h, bucket[i - j + 7]] + C[h, off[h] + j // 4] + C[h, where(i < j, 1, i % 4)]
"""
SCANS = """t, d, e = 5, 3, 2
a[t]: fp32
k[t, d]: fp32
v[t, e]: fp32
H0[d, e]: fp32
A[t, d, e] = scan[t](a[t] * A[t - 1, d, e] + k[t, d] * v[t, e], start=H0[d, e])
B[t, d, e] = scan[t, reversed=True](a[t] * B[t + 1, d, e] + k[t, d] * v[t, e], start=0)
C[t, d, e] = cumsum[t](A[t, d, e] * B[t, d, e]) - 2 * cumsum[t, reversed=True](A[t, d, e])
"""
DELTA = """t, d, e = 5, 3, 2
f = d
b[t]: fp32
k[t, d]: fp32
v[t, e]: fp32
S[t, d, e] = scan[t](S[t - 1, d, e] - b[t] * k[t, d] * sum[f](k[t, f] * S[t - 1, f, e]) + k[t, d] * v[t, e], start=0)
"""
SOLVE = """j, e = 6, 2
t = j
V[j, e]: fp32
W[j, t]: fp32
U[j, e] = scan[j](V[j, e] - sum[t](where(t < j, W[j, t] * U[t, e], 0)), start=0)
"""
SECOND = """t, d = 7, 2
X[t, d]: fp32
s[d]: fp32
F[t, d] = scan[t](X[t, d] + F[t - 1, d] - F[t - 2, d] / 2, start=s[d])
G[t, d] = scan[t, reversed=True](X[t, d] + G[t + 3, d], start=s[d])
out(F)
"""
LISTS = """q, x, k, d = 4, 9, 3, 2
S[q, x]: fp16
K[x, d]: fp16
T[q, k] = topk[x](S[q, x], into=k)
I[q, k] = argtopk[x](S[q, x], into=k, where=x >= q)
G[q, k, d] = K[I[q, k], d] * exp(topk[x](-S[q, x], into=k)) + argtopk[x](K[x, d], into=k)
out(T)
"""
DROPOUT = """q, x, drop = 8, 16, 0.25
S[q, x]: fp32
O[q] = sum[x](S[q, x] * keep(q, 2 * x + 1, p=drop)) / (1 - drop) + where(keep(q, p=0.5), 1, 0)
"""
TEXTS = (PAGED, BUCKETS, SCANS, DELTA, SOLVE, SECOND, LISTS, DROPOUT)


def run(text: str, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    d = parse(text)
    inputs = draw_inputs(d, d.values(), seed)
    return inputs, evaluate(d, d.values(), inputs)


def boxes(text: str) -> dict[str, Box]:
    return {b.name: b for b in open_diagram(parse(text)).boxes}


def body(b: Box) -> str:
    return print_expr(b.body, b.all_axes)


@pytest.mark.parametrize("text", TEXTS)
def test_printing_then_parsing_gives_an_equal_diagram(text: str) -> None:
    d = parse(text)
    assert parse(print_diagram(d)) == d
    assert print_diagram(parse(print_diagram(d))) == print_diagram(d)


@pytest.mark.parametrize("text", TEXTS)
def test_python_source_builds_an_equal_diagram(text: str) -> None:
    d = parse(text)
    bound: dict[str, Diagram] = {}
    exec(iw.to_python(d), bound)
    assert bound["algorithm"] == d


@pytest.mark.parametrize("text", TEXTS)
def test_opening_any_line_leaves_the_boxes_as_they_are(text: str) -> None:
    d = parse(text)

    def parts(d: Diagram) -> list[tuple[object, ...]]:
        return [
            (b.name, b.axes, b.over, b.body, b.reduction, b.dtype, b.scan, b.into, b.keys)
            for b in open_diagram(d).boxes
        ]

    for line in d.lines:
        opened = open_line(d, line.name)
        assert parts(opened) == parts(d)
        assert parse(print_diagram(opened)) == opened


def test_equations_of_lines() -> None:
    latex = iw.to_latex(parse(SCANS))
    assert r"A_{t - 1, d, e} + k_{t, d} \, v_{t, e}, \quad A_{-1, d, e} = \mathrm{H0}_{d, e}" in latex
    assert r"B_{|t|, d, e} = 0" in latex
    assert r"\sum_{t' \le t} A_{t', d, e} \, B_{t', d, e}" in latex
    assert r"\sum_{t' \ge t}" in latex
    paged = iw.to_latex(parse(PAGED))
    assert r"K_{\mathrm{page}_{b, \left\lfloor \frac{x}{p} \right\rfloor}, x \bmod p, d}" in paged
    lists = iw.to_latex(parse(LISTS))
    assert r"\operatorname{argtopk}^{(k)}_{x \,:\, x \ge q}\left(S_{q, x}\right)" in lists
    assert r"\operatorname{keep}_{p = 0.5}\left(q\right)" in iw.to_latex(parse(DROPOUT))


def test_options_may_stand_in_the_call() -> None:
    head = "t = 4\nX[t]: fp32\n"
    bracket = parse(head + "Y[t] = scan[t, reversed=True](Y[t + 1] + X[t], start=1)")
    assert parse(head + "Y[t] = scan[t](Y[t + 1] + X[t], start=1, reversed=True)") == bracket
    assert parse(head + "Y[t] = cumsum[t, reversed=False](X[t])") == parse(head + "Y[t] = cumsum[t](X[t])")


# --- indices ---------------------------------------------------------------------------------------------------


def test_what_is_affine_stays_affine() -> None:
    d = parse(
        "i, j = 4, 8\nX[j + 3]: fp32\nn: int32\nY[i] = X[2 * i + (j - 5) // 2 + min(1, 2)] + X[i + n] + X[j // 2 % 3]"
    )
    first, second, third = (r.index[0] for r in operands(d.lines[0].expr))
    assert (first.axes, first.sizes, first.offset, first.lookups) == ((("i", 2),), (), 2, ())
    assert second.axes == (("i", 1),)
    assert [type(lookup) for lookup, _ in second.lookups] == [Lookup]
    assert (third.names, third.offset) == ((), 1)


def test_an_index_array_does_not_widen_what_is_read() -> None:
    assert [b.dtype for b in open_diagram(parse(PAGED)).boxes] == ["fp16"]
    assert [b.dtype for b in open_diagram(parse(BUCKETS)).boxes] == ["fp32"]
    found = boxes(LISTS)
    assert {n: found[n].dtype for n in ("T", "I", "I.topk", "G.argtopk", "G.argtopk.topk", "G")} == {
        "T": "fp16",
        "I": "int32",
        "I.topk": "fp16",
        "G.argtopk": "int32",
        "G.argtopk.topk": "fp16",
        "G": "fp16",
    }


def test_values_of_gathers() -> None:
    x, r = run(PAGED)
    expected = [[[x["K"][x["page"][b, c // 4], c % 4, d] for d in range(3)] for c in range(8)] for b in range(2)]
    assert np.array_equal(r["Y"], expected)
    assert x["page"].min() >= 0
    assert x["page"].max() < 5
    x, r = run(BUCKETS)
    for h, i, j in np.ndindex(2, 6, 8):
        near = x["B"][h, min(abs(i - j), 31)] + x["B"][h, x["bucket"][i - j + 7]]
        far = x["C"][h, x["off"][h] + j // 4] + x["C"][h, 1 if i < j else i % 4]
        assert r["Y"][h, i, j] == pytest.approx(near + far)


def test_ranges_of_looked_up_positions() -> None:
    head = "i, p, n = 12, 4, 3\nX[n]: fp32\nI[i]: int32\n"
    for index in ("i // p", "i % n", "(i + 1) % n", "min(i, n - 1)", "max(2 - i, 0)", "floor(i / 4)", "2 - i // p"):
        assert parse(head + f"Y[i] = X[{index}]").lines
    for index in ("i // p + I[i]", "I[i] - 5", "I[I[i]]", "abs(I[i])"):  # what an array holds is not known
        assert parse(head + f"Y[i] = X[{index}]").lines
    assert parse(head + "Y[i] = where(i % 5 < 3, X[i % 5], 0)").lines
    assert parse(head + "Y[i] = where(i // 2 <= 2, X[i // 2], 0)").lines
    assert parse("i = 1048576\nX[8]: fp32\nY[i] = X[i // 131072]").lines
    assert parse("i = 1048576\nX[1048576]: fp32\nY[i] = X[i // 128 * 128 + i % 128]").lines
    with pytest.raises(WeaveError, match="out of range"):
        parse("i = 1048576\nX[1048575]: fp32\nY[i] = X[i // 128 * 128 + i % 128]")
    with pytest.raises(WeaveError, match="may reach 3"):
        parse(head + "Y[i] = X[i // 3]")


def test_positions_of_a_list_are_in_range_of_its_axis() -> None:
    head = "q, x, k = 2, 9, 3\nS[q, x]: fp16\nI[q, k] = argtopk[x](S[q, x], into=k)\n"
    assert parse("K[9]: fp16\n" + head + "G[q, k] = K[I[q, k]]").lines
    assert parse("K[17]: fp16\n" + head + "G[q, k] = K[2 * I[q, k]] + K[16 - I[q, k]]").lines
    with pytest.raises(WeaveError, match=r"`I\[q, k\]` may reach 8, but position 1 has 8 elements"):
        parse("K[8]: fp16\n" + head + "G[q, k] = K[I[q, k]]")


def test_given_index_arrays_are_checked() -> None:
    d = parse(
        "b, x, n = 3, 4, 9\npage[b]: int32\nK[n]: fp32\n"
        "Y[b, x] = K[page[b] * 2 + x // 2] + where(page[b] < 9, K[page[b]], 0)"
    )
    good = {"page": np.array([0, 3, 2]), "K": np.arange(9.0)}
    assert given_inputs(d, d.values(), good)["page"].tolist() == [0, 3, 2]
    for page, place in (([0, 4, 2], 9), ([0, -1, 2], -2)):
        with pytest.raises(WeaveError, match=f"`page` leads to place {place} of K"):
            given_inputs(d, d.values(), {**good, "page": np.array(page)})
    for seed in range(20):
        assert 0 <= draw_inputs(d, d.values(), seed)["page"].max() <= 3


def test_sizes_are_drawn_until_lists_fit_and_index_arrays_have_a_place_to_name() -> None:
    head = "b, x, n, k = 3, 4, 9, 2\noff[b]: int32\nK[n]: fp32\nY[b, x] = K[off[b] + x]\n"
    text = head + "T[b, k] = topk[x](Y[b, x], into=k)"
    d = parse(text)
    for seed in range(20):
        values = draw_sizes(d, np.random.default_rng(seed))
        assert values["x"] <= values["n"]
        assert values["k"] <= values["x"]
        off = draw_inputs(d, values, seed)["off"]
        assert off.min() >= 0
        assert off.max() + values["x"] <= values["n"]


def test_a_wide_table_of_integers_is_drawn_for_the_array_that_it_indexes() -> None:
    x, _ = run("i, n, m = 40, 1000, 7\nP[i]: int32\nX[n]: fp32\nZ[m]: fp32\nR[i]: int32\nY[i] = X[P[i]] + Z[R[i]]")
    assert 100 < x["P"].max() < 1000
    assert x["R"].max() < 7


# --- recurrences -----------------------------------------------------------------------------------------------


def test_a_scan_opens_into_one_box() -> None:
    a = boxes(SCANS)["A"]
    assert body(a) == "a[t] * A~prev[d, e] + k[t, d] * v[t, e]"
    assert a.scan is not None
    assert (a.scan.axis, a.scan.backward, print_expr(a.scan.start)) == ("t", False, "H0[d, e]")
    assert [r.array for r in a.reads()] == ["a", "A~prev", "k", "v", "H0"]
    backward = boxes(SCANS)["B"].scan
    assert backward is not None
    assert backward.backward
    prefix = boxes(SCANS)["C.cumsum"]
    assert body(prefix) == "C.cumsum~prev[d, e] + A[t, d, e] * B[t, d, e]"


def test_parts_that_read_the_state_run_in_its_steps() -> None:
    found = boxes(DELTA)
    assert [(b.name, b.axes, b.over, b.scan is None) for b in found.values()] == [
        ("S.sum", ("t", "e"), ("f",), True),
        ("S", ("t", "d", "e"), (), False),
    ]
    assert body(found["S.sum"]) == "k[t, f] * S~prev[f, e]"
    text = DELTA.replace("k[t, f] * S", "S").replace("b[t] * k[t, d] * ", "")
    assert boxes(text)["S.sum"].axes == ("t", "e")  # no other read has the axis of the scan
    assert body(boxes(SOLVE)["U.sum"]) == "where(t < j, W[j, t] * U~past[t, e], 0)"
    assert body(boxes(SECOND)["F"]) == "X[t, d] + F~prev[d] - where(t - 2 >= 0, F~past[t - 2, d], s[d]) / 2"


def test_values_of_scans() -> None:
    x, r = run(SCANS)
    a, k, v = x["a"], x["k"], x["v"]
    state, forward = x["H0"], np.zeros((5, 3, 2))
    for t in range(5):
        forward[t] = state = a[t] * state + np.outer(k[t], v[t])
    state, backward = np.zeros((3, 2)), np.zeros((5, 3, 2))
    for t in reversed(range(5)):
        backward[t] = state = a[t] * state + np.outer(k[t], v[t])
    assert np.allclose(r["A"], forward)
    assert np.allclose(r["B"], backward)
    assert np.allclose(r["C"], np.cumsum(forward * backward, 0) - 2 * np.cumsum(forward[::-1], 0)[::-1])


def test_values_of_a_delta_rule_and_of_a_triangular_solve() -> None:
    x, r = run(DELTA)
    state, every = np.zeros((3, 2)), np.zeros((5, 3, 2))
    for t in range(5):
        k = x["k"][t]
        every[t] = state = state - x["b"][t] * np.outer(k, k @ state) + np.outer(k, x["v"][t])
    assert np.allclose(r["S"], every)
    x, r = run(SOLVE)
    assert np.allclose(r["U"], np.linalg.solve(np.eye(6) + np.tril(x["W"], -1), x["V"]))


def test_before_the_first_step_stands_the_start() -> None:
    x, r = run(SECOND)
    f, g = np.zeros((7, 2)), np.zeros((7, 2))
    for t in range(7):
        one, two = (f[t - c] if t >= c else x["s"] for c in (1, 2))
        f[t] = x["X"][t] + one - two / 2
    for t in reversed(range(7)):
        g[t] = x["X"][t] + (g[t + 3] if t + 3 < 7 else x["s"])
    assert np.allclose(r["F"], f)
    assert np.allclose(r["G"], g)


def test_a_state_may_be_a_position() -> None:
    head = "t, n = 6, 5\nnext[n]: int32\nX[n]: fp32\n"
    x, r = run(head + "P[t]: int32 = scan[t](next[P[t - 1]], start=2)\nY[t] = X[P[t]]")
    at, seen = 2, []
    for _ in range(6):
        at = int(x["next"][at])
        seen.append(at)
    assert r["P"].tolist() == seen
    assert np.array_equal(r["Y"], x["X"][seen])


def test_a_composite_may_stand_in_a_step() -> None:
    text = (
        "t, d = 4, 3\nX[t, d]: fp32\nH[t, d] = scan[t](softmax[d](H[t - 1, d] + X[t, d]) + cumsum[d](X[t, d]), start=0)"
    )
    x, r = run(text)
    state = np.zeros(3)
    for t in range(4):
        e = np.exp(state + x["X"][t])
        state = e / e.sum() + np.cumsum(x["X"][t])
        assert np.allclose(r["H"][t], state)
    assert all(b.axes[0] == "t" for b in open_diagram(parse(text)).boxes)


def test_named_axis_arrays_build_the_same_recurrences() -> None:
    t, d, e, f = iw.axes("t d e f", t=5, d=3, e=2, f="d")
    b, k, v = iw.array("b", t, dtype="fp32"), iw.array("k", t, d, dtype="fp32"), iw.array("v", t, e, dtype="fp32")
    made = iw.scan(
        t,
        lambda S: S - b * k * iw.dot(k[t, f], S[t - 1, f, e], over=f) + k * v,
        start=0,
        axes=(d, e),
    ).named("S", t, d, e)
    assert iw.diagram(b, k, v, made) == parse(DELTA)
    plain = iw.diagram(A=iw.scan(t, lambda before: b * before + v, start=0))
    assert (
        plain.lines
        == parse(
            "t, e = 5, 2\nb[t]: fp32\nv[t, e]: fp32\nA[t, e] = scan[t](b[t] * A[t - 1, e] + v[t, e], start=0)"
        ).lines
    )


def test_boxes_of_the_algebra_walk_and_look_up() -> None:
    walk = iw.box("H[t] = scan[t](a[t] * H[t - 1] + X[t], start=0)").weave("d", only="X", at={"X": 1})
    assert str(walk) == "X[t, d], a[t] -> H[d, t]"
    d = walk.diagram({"t": 4, "d": 2})
    assert (
        d.lines[0]
        == parse(
            "t, d = 4, 2\na[t]: fp16\nX[t, d]: fp16\nH[d, t] = scan[t](a[t] * H[d, t - 1] + X[t, d], start=0)"
        ).lines[0]
    )
    look = iw.box("Y[b, x] = K[page[b, x // p], x % p]", "K[n, p]", "page[b, c]").relabel(p="r", x="z")
    sizes = {"b": 2, "z": 8, "n": 5, "r": 4, "c": 2}
    made = look.diagram(sizes, {"K": "fp16", "page": "int32"})
    assert "K[page[b, z // r], z % r]" in print_diagram(made)
    assert iw.box("Y[q] = sum[x](S[q, x] * keep(q, x, p=rate))").diagram({"q": 2, "x": 3, "rate": 0.1}).lines
    renamed = walk.rename(H="Z").diagram({"t": 4, "d": 2})
    assert renamed.lines[0].name == "Z"


# --- lists -----------------------------------------------------------------------------------------------------


def test_a_list_opens_into_keys_and_positions() -> None:
    found = boxes(LISTS)
    assert (found["T"].reduction, found["T"].over, found["T"].axes[0]) == ("topk", ("x",), "q")
    i = found["I"]
    assert (i.reduction, i.keys, i.into, i.body) == ("argtopk", ("I.topk", "I"), i.axes[1], found["I.topk"].body)
    assert body(i) == "where(x >= q, S[q, x], -inf)"


def test_values_of_lists() -> None:
    x, r = run(LISTS)
    s, k = x["S"], x["K"]
    assert np.array_equal(r["T"], -np.sort(-s, axis=1)[:, :3])
    masked = np.where(np.arange(9) >= np.arange(4)[:, None], s, -np.inf)
    order = np.argsort(-masked, axis=1, kind="stable")[:, :3]
    assert np.array_equal(r["I"], order)
    channels = np.argsort(-k, axis=0, kind="stable")[:3]
    assert np.allclose(r["G"], k[order] * np.exp(-np.sort(s, axis=1)[:, :3])[..., None] + channels[None])


def test_ties_go_to_the_lower_position() -> None:
    d = parse("x, k = 6, 4\nS[x]: fp32\nI[k] = argtopk[x](floor(S[x]), into=k)")
    values = np.array([0.5, 2.5, 2.1, 0.1, 2.9, 0.0])
    assert evaluate(d, d.values(), {"S": values})["I"].tolist() == [1, 2, 4, 0]


def test_a_list_may_be_summed_where_it_stands() -> None:
    x, r = run("q, x, y, k = 3, 4, 5, 7\nS[q, x, y]: fp32\nL[q] = sum[k](topk[x, y](S[q, x, y], into=k))")
    assert np.allclose(r["L"], -np.sort(-x["S"].reshape(3, 20), axis=1)[:, :7].sum(axis=1))


# --- dropout ---------------------------------------------------------------------------------------------------


def test_dropout_is_a_function_of_indices() -> None:
    q, x = np.meshgrid(np.arange(300), np.arange(400), indexing="ij")
    whole = keep(0.1, q, x)
    assert whole.dtype == bool
    assert np.array_equal(whole[20:50, 7:9], keep(0.1, q[20:50, 7:9], x[20:50, 7:9]))
    assert 0.895 < whole.mean() < 0.905
    assert not np.array_equal(whole[:300, :300], keep(0.1, x[:300, :300], q[:300, :300]))
    rows = whole - whole.mean()
    assert abs((rows[1:] * rows[:-1]).mean()) < 0.002
    assert abs((rows[:, 1:] * rows[:, :-1]).mean()) < 0.002
    assert keep(0.0, q, x).all()


def test_the_hash_is_that_of_its_description() -> None:
    def mix(h: int) -> int:
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        h = (h ^ (h >> 27)) * 0x94D049BB133111EB % 2**64
        return h ^ (h >> 31)

    golden = 0x9E3779B97F4A7C15
    assert mix(golden) == 0xE220A8397B1DCDAF  # the first number of splitmix64 from the seed 0
    for q, x in ((0, 0), (3, 7), (100000, 2)):
        h = 0
        for i in (q, x):
            h = mix((h + (i + 1) * golden) % 2**64)
        uniform = (h >> 11) / 2**53
        assert keep(uniform, q, x)
        assert not keep(uniform + 1e-9, q, x)


def test_values_of_dropout() -> None:
    x, r = run(DROPOUT)
    q, j = np.arange(8)[:, None], np.arange(16)[None]
    kept = np.sum(x["S"] * keep(0.25, q, 2 * j + 1), axis=1) / 0.75
    assert np.allclose(r["O"], kept + keep(0.5, np.arange(8)))


def test_dropout_is_no_mask() -> None:
    d = parse("q = 4\nX[q]: fp32\nY[q] = where(keep(q, p=0.5), X[q], 0)")
    assert not is_predicate_of_indices(children(d.lines[0].expr)[0])
    with pytest.raises(WeaveError, match="out of range"):
        parse("q = 4\nX[3]: fp32\nY[q] = where(keep(q, p=0.5), X[q], 0)")


# --- errors ----------------------------------------------------------------------------------------------------

S = "t, d, x, k = 4, 3, 8, 2\nX[t, d]: fp32\nZ[x]: fp32\nn[t]: int32\n"
ERRORS = [
    ("Y[t] = scan[t](Y[t - 1] + X[t, 0])", "5:8", ["no start", "start=0"]),
    ("Y[t] = scan[t](Y[t + 1] + X[t, 0], start=0)", "5:18", ["made after it", "scan[t, reversed=True]"]),
    ("Y[t] = scan[t, reversed=True](Y[t - 1] + X[t, 0], start=0)", "5:33", ["made before it", "read `t + 1`"]),
    ("Y[t] = scan[t](Y[t] + X[t, 0], start=0)", "5:18", ["the element being made", "Y[t - 1, ...]"]),
    ("Y[t] = scan[t](Y[3 - t] + X[t, 0], start=0)", "5:18", ["guard it", "where(-t + 3 < t"]),
    ("Y[t] = scan[t](Y[n[t]] + X[t, 0], start=0)", "5:18", ["guard it", "predicate of indices"]),
    ("u = t\nY[t] = scan[t](sum[u](Y[u]) + X[t, 0], start=0)", "6:25", ["where(u < t, Y[...], 0)"]),
    ("Y[t] = scan[t](sum[t](Y[t - 1]) + X[t, 0], start=0)", "5:23", ["another index here", "t_1 = t"]),
    ("Y[d] = scan[t](Y[d] + X[t, d], start=0)", "5:8", ["keeps its axis `t`", "Y[d, t]"]),
    ("Y[t, d] = scan[t, d](Y[t - 1, d] + X[t, d], start=0)", "5:11", ["one axis"]),
    ("Y[t] = scan[t](X[t, 0], start=0)", "5:8", ["does not read `Y`"]),
    ("Y[t] = scan[t](Y[t - 1] + X[t, 0], start=X[t, 0])", "5:42", ["no `t`"]),
    ("Y[t] = scan[t](Y[t - 1] + X[t, 0], start=Y[0])", "5:42", ["reads itself"]),
    ("Y[t] = scan[t](Y[t - 1], X[t, 0], start=0)", "5:8", ["one formula"]),
    ("Y[t] = scan[t](Y[t - 1] + X[t, 0], begin=0, start=0)", "5:36", ["no option `begin`"]),
    ("Y[t] = scan[t, reversed=1](Y[t + 1] + X[t, 0], start=0)", "5:16", ["True or False"]),
    ("Y[t] = scan[t, reversed=d](Y[t + 1] + X[t, 0], start=0)", "5:16", ["True or False"]),
    ("Y[t] = 2 * scan[t](X[t, 0], start=0)", "5:12", ["whole right side", "read `A` in `Y`"]),
    ("Y[t] = scan(Y[t - 1] + X[t, 0], start=0)", "5:8", ["needs the axes"]),
    ("Y[t, d] = scan[t](Y[t - 1, d - 1] + X[t, d], start=0)", "5:28", ["out of range", "reaches -1"]),
    ("Y[t] = scan[t](softmax[t](Y[t - 1] + X[t, 0]), start=0)", "5:16", ["every step of the scan"]),
    ("Y[t] = scan[t](Y + X[t, 0], start=0)", "5:16", ["1 axis [t]", "`Y[t]`"]),
    ("Y[t, d] = scan[t](Y[t - 1] + X[t, 0], start=0)", "5:19", ["2 axes [t, d] but 1 index"]),
    ("Y[t] = scan[reversed=True](X[t, 0], start=0)", "5:8", ["needs an axis in its bracket"]),
    ("Y[t] = Y[t - 1] + X[t, 0]", "5:8", ["reads itself", "scan[t]"]),
    ("Y[t] = X[t, reversed=True]", "5:13", ["`reversed=` is an option"]),
    ("Y[t] = X[t:2, 0]", "5:10", ["slice"]),
    ("Y[d] = cumsum[t](X[t, d])", "5:8", ["keeps its axis `t`"]),
    ("Y[t, d] = cumsum[t, d](X[t, d])", "5:11", ["one axis", "cumsum[t](cumsum[d](...))"]),
    ("Y[t] = cumsum[t, start=1](X[t, 0])", "5:18", ["no option `start`"]),
    ("Y[t, k] = topk[x](Z[x])", "5:11", ["into=k"]),
    ("Y[t] = topk[x](Z[x], into=k)", "5:22", ["`k`, the axis of the list, is not on the left", "Y[t, k]"]),
    ("Y[x] = topk[x](Z[x], into=x)", "5:22", ["takes from"]),
    ("Y[k] = topk[x](Z[x], into=2)", "5:22", ["names the axis of the list"]),
    ("Y[k] = topk[x](Z[x] * k, into=k)", "5:8", ["numbers the places"]),
    ("Y[k] = topk[x](Z[x], into=k, by=x)", "5:30", ["no option `by`", "into="]),
    ("Y[k] = sum[x](Z[x], into=k)", "5:21", ["no option `into`"]),
    ("Y[k] = argtopk[t, d](X[t, d], into=k)", "5:8", ["one axis", "no single index"]),
    ("m = 9\nY[m] = topk[x](Z[x], into=m)", "6:22", ["`m` has 9 places", "`x` has 8 elements", "at most 8"]),
    ("m = 13\nY[m] = topk[t, d](X[t, d], into=m)", "6:28", ["13 places", "together have 12"]),
    ("Y[t] = X[t, 0] * keep(t)", "5:18", ["needs the probability"]),
    ("Y[t] = X[t, 0] * keep(t, p=1)", "5:26", ["`p` is 1", "less than 1"]),
    ("Y[t] = X[t, 0] * keep(t, p=-0.5)", "5:26", ["`p` is -0.5"]),
    ("Y[t] = X[t, 0] * keep(t, p=X[0, 0])", "5:26", ["number or the name of a constant"]),
    ("Y[t] = X[t, 0] * keep(n[t], p=0.1)", "5:23", ["draws for indices", "arrays"]),
    ("Y[t] = X[t, 0] * keep(t / 2, p=0.1)", "5:23", ["whole numbers"]),
    ("Y[t] = X[t, 0] * keep(p=0.1)", "5:18", ["needs the indices"]),
    ("Y[t] = X[t, 0] * keep(t, q=0.1)", "5:26", ["no option `q`"]),
    ("Y[t] = X[t, 0] * keep[t](t, p=0.1)", "5:18", ["takes no axes"]),
    ("Y[t] = X[keep(t, p=0.1), 0]", "5:10", ["keep", "says not where to read"]),
    ("Y[t] = X[n[t] < 2, 0]", "5:10", ["truth value"]),
    ("Y[t] = X[(n[t] < 2) + 1 == 1, 0]", "5:10", ["truth value"]),
    ("Y[t] = X[bool(n[t]), 0]", "5:10", ["truth value"]),
    ("Y[t] = X[max[t](n[t]), 0]", "5:10", ["`max` inside an index", "line of its own"]),
    ("Y[t] = X[n[t] / 2, 0]", "5:10", ["`//`"]),
    ("Y[t] = X[floor(Z[t]) + Z[t], 0]", "5:24", ["`Z` does not hold whole numbers"]),
    ("Y[t] = X[n[t + 1], 0]", "5:12", ["out of range", "`n`"]),
    ("Y[t] = topk", "5:8", ["needs its argument", "into=k"]),
]


@pytest.mark.parametrize(("line", "place", "parts"), ERRORS)
def test_errors_teach(line: str, place: str, parts: list[str]) -> None:
    with pytest.raises(WeaveError) as caught:
        parse(S + line)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"<text>:{place}:"), text
    for part in parts:
        assert part in text


# --- random round trips ----------------------------------------------------------------------------------------


def positions(arrays: list[str]) -> st.SearchStrategy[str]:
    """Texts of whole numbers made of the axes i and j, the size p and integer arrays."""
    leaves = st.sampled_from(["i", "j", "2", "size(p)", "size(i)", *(f"{a}[i]" for a in arrays), "7", "i + 1"])

    def deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("({} + {})".format, inner, inner),
            st.builds("({} - {})".format, inner, inner),
            st.builds("{} * ({})".format, st.sampled_from(["2", "-3", "size(p)"]), inner),
            st.builds("({}) // {}".format, inner, st.sampled_from(["2", "size(p)", "3"])),
            st.builds("({}) % {}".format, inner, st.sampled_from(["2", "size(p)"])),
            st.builds("abs({})".format, inner),
            st.builds("min({}, {})".format, inner, inner),
            st.builds("where(i < {}, {}, {})".format, inner, inner, inner),
            st.builds("-({})".format, inner),
            st.builds("n[({}) % 4]".format, inner),
        )

    return st.recursive(leaves, deeper, max_leaves=8)


@settings(max_examples=60, deadline=None)
@given(index=positions(["n", "m"]))
def test_any_whole_number_is_an_index(index: str) -> None:
    head = "i, j, p = 4, 3, 5\nn[i]: int32\nm[i]: int32\nX[64]: fp32\n"
    text = head + f"Y[i, j] = X[min(max({index}, 0), 63)] + n[i] + m[i]\n"
    d = parse(text)
    assert parse(print_diagram(d)) == d
    bound: dict[str, Diagram] = {}
    exec(iw.to_python(d), bound)
    assert bound["algorithm"] == d
    inputs = draw_inputs(d, d.values(), 0)
    made = evaluate(d, d.values(), inputs)["Y"]
    n, m, x = (inputs[a] for a in ("n", "m", "X"))
    scope = {"size": int, "abs": abs, "min": min, "max": max, "where": lambda c, a, b: a if c else b}
    source = index.replace("size(p)", "5").replace("size(i)", "4")
    for i, j in np.ndindex(4, 3):
        place = eval(source, dict(scope), {"i": i, "j": j, "n": n, "m": m})
        assert made[i, j] == pytest.approx(x[min(max(int(place), 0), 63)] + n[i] + m[i])
