"""Formulas of counts: readable, read by sympy, and equal to the integers wherever tiles divide."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ioweave.derive.counting.explain import Explained, explain
from ioweave.derive.counting.formulas import (
    SideFormulas,
    array_formulas,
    flops_formula,
    formulas,
    memory_formula,
    transfer_formula,
)
from ioweave.derive.counting.levelled import Counts, count
from ioweave.derive.counting.symbolic import Term, add, expand, gather, text
from ioweave.derive.counting.symbols import Formula
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.library import catalogue_text
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.counts import RegionCount
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled

CASES = sorted((Path(__file__).parent / "cases").glob("*.weave"))

GROUPED = {
    "attention": "group={q: 8}, stream={x: 4}",
    "matmul": "group={a: 8, c: 4}, stream={b: 2}",
    "convolution": "group={b: 1, y: 2, x: 2, o: 4}, stream={c: 2}",
    "layernorm": "group={t: 2}, stream={m: 4}",
    "grouped_query_attention": "group={k: 1, g: 2, q: 4}, stream={x: 4}",
    "matmul_chain": "group={t: 4}, stream={f: 2}",
    "cross_entropy": "group={t: 4}, stream={v: 2, m: 4}",
    "swiglu_mlp": "group={t: 4}, stream={f: 2}",
}


def in_one_region(name: str, options: str) -> str:
    """The text of a catalogue entry with all its lines in one region."""
    head, lines = [], []
    for line in catalogue_text(name).splitlines():
        if "=" in line and "[" in line.split("=")[0]:
            lines.append("    " + line)
        else:
            head.append(line)
    return "\n".join([*head, f'with level("smem", {options}):', *lines]) + "\n"


def counted(text_: str, sizes: Mapping[str, int] | None = None, accumulate: str = "same") -> Counts:
    levelled = parse_levelled(text_, overrides=dict(sizes or {}))
    return count(levelled, levelled.diagram.values(dict(sizes or {})), accumulate)


def side(counts: Counts) -> SideFormulas:
    return formulas(counts)[0]


def agrees(f: Formula, number: int) -> None:
    """A formula is the number, or says that it is a bound and is above it."""
    assert f.value > number if f.bound else f.value == number, (f.text, f.value, number)


def region_agrees(f: SideFormulas, c: RegionCount) -> None:
    agrees(f.transfers, c.transfers.values)
    for label, part in f.arrays.loads:
        agrees(part, c.transfers.loads[label])
    for label, part in f.arrays.stores:
        agrees(part, c.transfers.stores[label])
    agrees(f.flops.mma, c.flops.mma)
    agrees(f.flops.vector, c.flops.vector)
    agrees(f.flops.special, c.flops.special)
    agrees(f.flops.total, c.flops.total)
    if f.memory is not None:
        memory = c.memory.bytes if f.memory_unit == "bytes" else c.memory.values
        assert memory is not None
        agrees(f.memory, memory)


def whole_agrees(counts: Counts) -> SideFormulas:
    together, regions = formulas(counts)
    for f, c in zip(regions, counts.regions, strict=True):
        if f.divides:
            region_agrees(f, c)
    if together.divides:
        agrees(together.transfers, counts.transfers.values)
        agrees(together.flops.total, counts.flops.total)
    return together


def explained(counts: Counts) -> tuple[Explained, ...]:
    """The rows, which add up to every total."""
    rows = explain(counts)
    assert sum(r.value for r in rows if r.total == "transfers") == counts.transfers.values
    for kind in ("mma", "vector", "special"):
        assert sum(r.value for r in rows if r.total == "flops" and r.kind == kind) == getattr(counts.flops, kind)
    for c in counts.regions:
        assert sum(r.value for r in rows if r.total == "memory" and r.region == c.name) == c.memory.bytes
    assert json.loads(json.dumps([r.to_json() for r in rows]))[0]["region"] == rows[0].region
    return rows


def tiled(levelled: Levelled, pick: random.Random) -> Levelled:
    """The same regions at random tiles that divide."""
    base, sizes = dict(open_diagram(levelled.diagram).base), levelled.diagram.values()

    def divisor(n: int) -> int:
        return pick.choice([k for k in range(1, n + 1) if n % k == 0])

    regions = []
    for r in levelled.regions:
        group = {a: divisor(int(sizes[base[a]])) for a, _ in r.group}
        stream = tuple((a, divisor(group.get(a, int(sizes[base[a]])))) for a, _ in r.stream)
        regions.append(replace(r, group=tuple(group.items()), stream=stream))
    return replace(levelled, regions=tuple(regions))


def test_attention() -> None:
    c = counted(in_one_region("attention", "group={q: 32}, stream={x: 16}"), {"q": 128, "x": 256, "d": 64})
    f = side(c)
    assert f.transfers.text == "2*q*d + 2*q*x*d/g_q"
    assert f.transfers.latex == r"2 q d + \frac{2 q x d}{g_{q}}"
    assert f.transfers.value == 147_456
    assert f.transfers.symbols == (("q", 128), ("g_q", 32), ("x", 256), ("d", 64))
    assert f.memory is not None
    assert (f.memory.text, f.memory.value) == ("2*g_q*d + 2*s_x*d + g_q*s_x + 3*g_q", Fraction(6752))
    assert f.memory_unit == "values"
    assert [(a, x.text) for a, x in f.arrays.loads] == [("Q", "q*d"), ("K", "q*x*d/g_q"), ("V", "q*x*d/g_q")]
    assert [(a, x.text) for a, x in f.arrays.stores] == [("O", "q*d")]
    assert f.flops.mma.text == "4*q*x*d"
    whole_agrees(c)


def test_memory_is_in_bytes_where_types_are_mixed() -> None:
    f = side(counted(in_one_region("attention", "group={q: 32}, stream={x: 16}"), accumulate="fp32"))
    assert f.memory is not None
    assert (f.memory_unit, f.memory.text) == ("bytes", "6*g_q*d + 4*s_x*d + 4*g_q*s_x + 12*g_q")


def test_matmul() -> None:
    c = counted(in_one_region("matmul", "group={a: 8, c: 8}, stream={b: 4}"), {"a": 64, "b": 32, "c": 64})
    assert transfer_formula(c).text == "a*b*c/g_c + a*b*c/g_a + a*c"
    assert transfer_formula(c).value == 36_864
    memory = memory_formula(c)
    assert memory is not None
    assert (memory.text, memory.value) == ("g_a*s_b + s_b*g_c + g_a*g_c", Fraction(128))
    assert (flops_formula(c).total.text, flops_formula(c).vector.text) == ("2*a*b*c", "0")
    assert [a for a, _ in array_formulas(c.placed[0]).loads] == ["X", "Y"]


def test_windows_stay_products() -> None:
    f = side(counted(in_one_region("convolution", "group={b: 1, y: 8, x: 8, o: 64}, stream={c: 16}")))
    assert "b*y*x*c*o*(g_x + s - 1)*(g_y + r - 1)/(g_y*g_x*g_o)" in f.transfers.text
    assert not f.transfers.bound


def test_tiles_of_two_regions_are_told_apart() -> None:
    apart = """q, x, d = 8, 8, 4
Q[q, d]: fp16
K[x, d]: fp16
with level("smem", group={q: 4}, stream={x: 2}):
    S[q, x] = sum[d](Q[q, d] * K[x, d])
with level("smem", group={q: 2}, stream={x: 2}):
    T[q] = sum[x](S[q, x] * S[q, x])
"""
    c = counted(apart)
    assert transfer_formula(c).text == "q*d + q*x*d/g_q_S + 2*q*x + q"
    assert transfer_formula(c.placed[0]).text == "q*d + q*x*d/g_q + q*x"
    assert transfer_formula(counted(apart.replace("{q: 2}", "{q: 4}"))).text == "q*d + q*x*d/g_q + 2*q*x + q"
    whole_agrees(c)


def test_a_split_reduction_counts_its_parts() -> None:
    c = counted(in_one_region("attention", "group={q: 2, x: 4}"), {"q": 4, "x": 8, "d": 3})
    f = whole_agrees(c)
    assert f.transfers.value == 212
    assert dict(f.arrays.stores)["state(O)"].text == "2*q*x/g_x + q*x*d/g_x"


def test_a_mask_makes_a_bound() -> None:
    c = counted(in_one_region("causal_attention", "group={q: 8}, stream={x: 4}"), {"q": 32})
    f = whole_agrees(c)
    bounds = {a: x.bound for a, x in (*f.arrays.loads, *f.arrays.stores)}
    assert bounds == {"Q": False, "K": True, "V": True, "O": False}
    assert f.transfers.bound
    assert any(r.bound and "counting.md 19, 26: " in r.rule for r in explained(c))


@pytest.mark.parametrize(
    ("body", "transfers", "bound"),
    [
        ("X[i]: fp32\nwith level('smem', group={i: 4}):\n    Y[i] = X[i] + where(i >= 1, X[i - 1], 0)\n", 26, True),
        ("X[i + 1]: fp32\nwith level('smem', group={i: 4}):\n    Y[i] = X[i] + X[i + 1]\n", 27, False),
        ("X[i, i]: fp32\nwith level('smem', group={i: 4}):\n    Y[i] = X[i, i] * 2\n", 24, True),
        ("X[3*i]: fp32\nwith level('smem', group={i: 4}):\n    Y[i] = sum[k](X[3*i + k])\n", 36, True),
        ("X[i + k]: fp32\nwith level('smem', group={i: 4}, stream={k: 1}):\n    Y[i] = sum[k](X[i + k])\n", 36, False),
    ],
)
def test_cut_and_joined_windows(body: str, transfers: int, bound: bool) -> None:
    c = counted("i, k = 12, 2\n" + body.replace("'", '"'))
    assert c.transfers.values == transfers
    assert whole_agrees(c).transfers.bound is bound
    explained(c)


def test_symbols_do_not_clash_with_sizes() -> None:
    c = counted('q, g_q = 8, 4\nQ[q, g_q]: fp16\nwith level("smem", group={q: 4}):\n    S[q] = sum[g_q](Q[q, g_q])\n')
    memory = whole_agrees(c).memory
    assert memory is not None
    assert memory.text == "g_q_*g_q + g_q_"


def test_values_of_half_a_byte_have_no_formula_of_memory() -> None:
    c = counted('a, b = 3, 5\nX[a, b]: fp4\nwith level("smem", group={a: 1}):\n    Z[a] = sum[b](X[a, b])\n')
    assert memory_formula(c) is None or side(c).memory_unit == "values"
    whole_agrees(c)


def test_sympy_reads_them() -> None:
    sympy = pytest.importorskip("sympy")
    for name, options in GROUPED.items():
        c = counted(in_one_region(name, options), accumulate="fp32")
        f = side(c)
        assert f.memory is not None
        for part in (f.transfers, f.memory, f.flops.total):
            symbols = {s: sympy.Symbol(s) for s, _ in part.symbols}
            read = sympy.parse_expr(part.text, local_dict=symbols)
            assert read.free_symbols == set(symbols.values())
            assert Fraction(str(read.subs(dict(part.symbols)))) == part.value
        assert f.transfers.value == c.transfers.values


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(GROUPED)), st.randoms(use_true_random=False), st.sampled_from(["same", "fp32"]))
def test_equal_to_the_counts_at_random_sizes(name: str, pick: random.Random, accumulate: str) -> None:
    text_ = in_one_region(name, GROUPED[name])
    levelled = parse_levelled(text_)
    named = [d.name for d in levelled.diagram.definitions if isinstance(levelled.diagram.values()[d.name], int)]
    sizes = {n: pick.choice([1, 2, 3, 4, 6, 8, 12]) for n in named}
    at_sizes = tiled(parse_levelled(text_, overrides=sizes), pick)
    f = whole_agrees(counts := count(at_sizes, at_sizes.diagram.values(sizes), accumulate))
    assert (f.divides, f.transfers.bound, f.flops.total.bound) == (True, False, False)
    explained(counts)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_never_a_wrong_equality(path: Path) -> None:
    levelled = parse_levelled(path.read_text("utf-8"))
    pick = random.Random(path.stem)
    for given_ in (levelled, tiled(levelled, pick), tiled(levelled, pick)):
        try:
            counts = count(given_, given_.diagram.values(), pick.choice(["same", "fp32"]))
        except WeaveError:
            continue
        whole_agrees(counts)
        explained(counts)


def test_every_number_says_why() -> None:
    c = counted(in_one_region("attention", "group={q: 32}, stream={x: 16}"), {"q": 128, "x": 256, "d": 64})
    rows = {(r.total, r.name, r.kind): r for r in explained(c)}
    keys = rows["transfers", "K", "load"]
    assert (keys.value, keys.unit, keys.formula, keys.lines) == (65_536, "values", "q*x*d/g_q", ("S",))
    assert keys.rule == (
        "counting.md 19: loaded at depth 1, in each step of x (x/s_x of them), in each of q/g_q instances"
    )
    assert rows["memory", "O.acc", "state"].at == "P.max"
    assert rows["memory", "S", "value"].formula == "2*g_q*s_x"
    assert rows["flops", "O.acc", "vector"].rule.startswith("counting.md 30")
    assert rows["flops", "S.sum", "mma"].value == 2 * 128 * 256 * 64


def test_algebra() -> None:
    q, g = Term.symbol("q"), Term.symbol("g")
    window = add([g, Term.number(2), Term.number(-1)])
    assert text([q / g * window], ["q", "g"]) == "q*(g + 1)/g"
    assert text([q * q / (g * g), Term.number(Fraction(-3, 2)) * q], ["q", "g"]) == "q**2/g**2 - 3*q/2"
    assert text(expand([window * window]), ["g"]) == "g**2 + 2*g + 1"
    assert text(gather([q, Term.number(-1) * q]), ["q"]) == "0"
    assert gather([window, g]) == (Term.number(2) * g, Term.number(1))
    assert (q / g * window).evaluate({"q": 6, "g": 4}) == Fraction(15, 2)


def test_a_formula_is_a_sympy_expression() -> None:
    text = """
a, b, c = 64, 32, 64
X[a, b]: fp16
Y[b, c]: fp16
with level("smem", group={a: 8, c: 8}, stream={b: 4}):
    Z[a, c] = sum[b](X[a, b] * Y[b, c])
"""
    levelled = parse_levelled(text, "matmul")
    counts = count(levelled, levelled.diagram.values(), "same")
    formula = transfer_formula(counts)
    by_name = {s.name: s for s in formula.expression.free_symbols}
    number = formula.expression.subs({by_name[n]: v for n, v in formula.symbols if n in by_name})
    assert number == counts.transfers.values == 36_864
    assert formula.expression.diff(by_name["g_a"]).subs(dict.fromkeys(by_name.values(), 8)) < 0
