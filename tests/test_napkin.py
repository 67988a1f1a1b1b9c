"""The napkin formula: closed forms, regimes, and their agreement with the continuous optimum."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ioweave.derive.bounds.napkin import Napkin, napkin
from ioweave.derive.bounds.optimum import optimum
from ioweave.derive.bounds.posynomial import Monomial, Shape, make_shape, parse
from ioweave.derive.bounds.product import Product, add
from ioweave.derive.bounds.writing import pretty, text

ATTENTION = make_shape("2*q*d + 2*q*x*d/g_q", ["2*g_q*d + 2*s_x*d + g_q*s_x + 3*g_q"], {"g_q": "q"}, {"s_x": "x"})
HEADS = make_shape(
    "2*h*q*d + 2*h*q*x*d/g_q",
    ["2*g_h*g_q*d + 2*g_h*s_x*d + g_h*g_q*s_x + 3*g_h*g_q"],
    {"g_h": "h", "g_q": "q"},
    {"s_x": "x"},
)
GROUPED = make_shape(
    "2*k*g*q*d + 2*k*g*q*x*d/g_q/g_g",
    ["2*g_g*g_q*d + 2*s_x*d + g_g*g_q*s_x + 3*g_g*g_q"],
    {"g_k": "k", "g_g": "g", "g_q": "q"},
    {"s_x": "x"},
)


def product_shape(a: str, b: str, c: str) -> Shape:
    """A matrix product a x b times b x c, a and c grouped, b streamed."""
    return make_shape(
        f"{a}*{b}*{c}/g_{c} + {a}*{b}*{c}/g_{a} + {a}*{c}",
        [f"g_{a}*s_{b} + s_{b}*g_{c} + g_{a}*g_{c}"],
        {f"g_{a}": a, f"g_{c}": c},
        {f"s_{b}": b},
    )


def found(
    structure: Sequence[Shape],
    sizes: dict[str, int],
    memory: float,
    others: Sequence[Sequence[Shape]] = (),
    bytes_per_unit: float = 2,
    level: str = "smem",
) -> Napkin:
    result = napkin(structure, sizes, memory, others=others, bytes_per_unit=bytes_per_unit, level=level)
    assert result is not None
    return result


def holds(where: str, values: Mapping[str, float]) -> bool:
    return bool(eval(where, {"sqrt": math.sqrt}, dict(values)))


def test_attention() -> None:
    n = found([ATTENTION], {"q": 4096, "x": 4096, "d": 128}, 114688)
    assert n.formula == "2*q*d + 4*q*x*d**2/M"
    assert n.pretty == "2qd + 4qxd²/M"
    assert n.latex == r"2 q d + \frac{4 q x d^{2}}{M}"
    assert n.exponents == {"2*q*d": 0.0, "4*q*x*d**2/M": 1.0}
    assert n.holds_where == "M >= 2*d and q >= M/(2*d) and x >= M/(2*d)"
    assert n.values == pytest.approx(10_635_556.6, abs=0.05)
    assert [f for f, _ in n.other_regimes] == ["2*q*d + 2*x*d"]


def test_worth_of_a_byte_is_the_slope() -> None:
    q, x, d, m = 4096, 4096, 128, 114688
    n = found([ATTENTION], {"q": q, "x": x, "d": d}, m)
    assert n.worth_of_a_byte == {"smem": pytest.approx(-4 * q * x * d**2 / m**2, rel=1e-6)}
    wide = found([ATTENTION], {"q": q, "x": x, "d": d}, m, level="reg", bytes_per_unit=1)
    assert wide.worth_of_a_byte == {"reg": pytest.approx(-8 * q * x * d**2 / m**2, rel=1e-6)}


def test_attention_whose_rows_or_keys_fit_moves_only_what_it_must() -> None:
    few_rows = found([ATTENTION], {"q": 64, "x": 4096, "d": 128}, 114688)
    assert few_rows.formula == "2*q*d + 2*x*d"
    assert few_rows.holds_where == "M >= 2*q*d"
    few_keys = found([ATTENTION], {"q": 4096, "x": 64, "d": 128}, 114688)
    assert few_keys.formula == "2*q*d + 2*x*d"
    assert "M >= 2*x*d" in few_keys.holds_where
    assert few_keys.worth_of_a_byte["smem"] == 0


def test_heads_and_grouped_queries() -> None:
    n = found([HEADS], {"h": 32, "q": 8192, "x": 8192, "d": 128}, 65536)
    assert n.formula == "2*h*q*d + 4*h*q*x*d**2/M"
    assert n.holds_where == "M >= 2*d and q >= M/(2*d) and x >= M/(2*d)"
    n = found([GROUPED], {"k": 8, "g": 4, "q": 8192, "x": 8192, "d": 128}, 65536)
    assert n.formula == "2*k*g*q*d + 4*k*g*q*x*d**2/M"
    assert "2*k*g*q*d + 2*k*x*d" in [f for f, _ in n.other_regimes]


def test_large_matmul() -> None:
    n = found([product_shape("a", "b", "c")], {"a": 4096, "b": 4096, "c": 4096}, 65536)
    assert n.formula == "2*a*b*c/sqrt(M) + a*c"
    assert n.pretty == "2abc/√M + ac"
    assert n.exponents == {"2*a*b*c/sqrt(M)": 0.5, "a*c": 0.0}
    assert n.holds_where == "a >= sqrt(M) and c >= sqrt(M) and b >= 2*sqrt(M)"
    assert n.values == 553_648_128


@pytest.mark.parametrize(
    ("sizes", "formula"),
    [
        ({"a": 4096, "b": 4096, "c": 64}, "a*b + a*b*c**2/M + a*c"),  # c fits: the strip of X is held
        ({"a": 64, "b": 4096, "c": 4096}, "a**2*b*c/M + b*c + a*c"),
        ({"a": 4096, "b": 64, "c": 8192}, "a*b + a*b**2*c/M + a*c"),  # a short sum: a whole strip of X stays
        ({"a": 128, "b": 128, "c": 128}, "a*b + b*c + a*c"),
        ({"a": 65536, "b": 16, "c": 16}, "a*b + b*c + a*c"),
    ],
)
def test_matmul_with_a_small_axis(sizes: dict[str, int], formula: str) -> None:
    n = found([product_shape("a", "b", "c")], sizes, 65536)
    assert set(n.formula.split(" + ")) == set(formula.split(" + "))
    assert holds(n.holds_where, {**sizes, "M": 65536})


def test_what_is_moved_once_does_not_depend_on_memory() -> None:
    row = make_shape("2*q*x", ["2*g_q*x + 3*g_q"], {"g_q": "q"})
    n = found([row], {"q": 4096, "x": 4096}, 65536)
    assert (n.formula, n.exponents, n.holds_where) == ("2*q*x", {"2*q*x": 0.0}, "M >= 2*x")
    assert napkin([row], {"q": 4096, "x": 65536}, 65536) is None
    streamed = make_shape("3*q*x", ["g_q*s_x + 2*g_q"], {"g_q": "q"}, {"s_x": "x"})
    n = found([streamed], {"q": 4096, "x": 65536}, 65536)
    assert (n.formula, n.holds_where) == ("3*q*x", "True")


def test_two_regions_add_up() -> None:
    apart = [product_shape("t", "i", "f"), product_shape("t", "f", "o")]
    fused = make_shape(
        "t*i + t*i*f/g_t + t*f*o/g_t + t*o",
        ["g_t*i + i*s_f + g_t*s_f + g_t*o + s_f*o"],
        {"g_t": "t"},
        {"s_f": "f"},
    )
    sizes = {"t": 4096, "i": 1024, "f": 4096, "o": 1024}
    n = found(apart, sizes, 65536, others=[[fused]])
    assert n.formula == "2*t*i*f/sqrt(M) + t*f + 2*t*f*o/sqrt(M) + t*o"
    assert n.values == pytest.approx(2 * 2 * 4096 * 1024 * 4096 / 256 + 4096 * 4096 + 4096 * 1024)
    n = found([fused], sizes, 65536)
    assert n.formula == "t*i + t*f*(i + o)**2/M + t*o"
    assert n.holds_where == "M >= (i + o) and t >= M/(i + o)"


def test_rows_wider_than_the_root_of_memory_prefer_two_products() -> None:
    scores = make_shape(
        "q*x*d/g_x + q*x*d/g_q + q*x", ["g_q*s_d + s_d*g_x + g_q*g_x"], {"g_q": "q", "g_x": "x"}, {"s_d": "d"}
    )
    values = make_shape(
        "q*x*d/g_d + q*x*d/g_q + q*d",
        ["g_q*s_x + s_x*g_d + g_q*g_d + 3*g_q"],
        {"g_q": "q", "g_d": "d"},
        {"s_x": "x"},
    )
    wide = found([ATTENTION], {"q": 4096, "x": 4096, "d": 512}, 16384, others=[[scores, values]])
    assert wide.formula == "4*q*x*d/sqrt(M) + q*x + q*d"
    assert wide.values < 293_601_280
    assert "2*q*d + 4*q*x*d**2/M" in [f for f, _ in wide.other_regimes]
    narrow = found([ATTENTION], {"q": 4096, "x": 4096, "d": 64}, 65536, others=[[scores, values]])
    assert narrow.formula == "2*q*d + 4*q*x*d**2/M"
    assert "4*q*x*d/sqrt(M) + q*x + q*d" in [f for f, _ in narrow.other_regimes]


def test_windows_count_as_constants() -> None:
    convolution = make_shape(
        "b*y*x*c*o/g_o + b*y*x*c*o*r/g_o/g_y + b*y*x*c*o*s/g_o/g_x + b*y*x*c*o*r*s/g_o/g_y/g_x"
        " + b*y*x*o*c*r*s/g_b/g_y/g_x + b*y*x*o",
        ["g_b*g_y*g_x*g_o + g_b*g_y*g_x*s_c + g_b*g_y*r*s_c + g_b*g_x*s*s_c + g_b*r*s*s_c + r*s*s_c*g_o"],
        {"g_b": "b", "g_y": "y", "g_x": "x", "g_o": "o"},
        {"s_c": "c"},
    )
    n = found([convolution], {"b": 32, "y": 56, "x": 56, "r": 3, "s": 3, "c": 512, "o": 512}, 65536)
    assert n.formula == "2*b*y*x*c*o*sqrt(r*s)/sqrt(M) + b*y*x*o"
    assert set(n.exponents.values()) == {0.5, 0.0}


@pytest.mark.parametrize("shape", [ATTENTION, HEADS, product_shape("a", "b", "c")])
def test_the_optimum_tends_to_the_closed_form(shape: Shape) -> None:
    ratios = []
    for scale in (4, 8, 12):
        n = 1 << (scale + 8)
        sizes = {"q": n, "x": n, "d": 1 << scale, "h": 4, "a": n, "b": n, "c": n}
        used = {s: v for s, v in sizes.items() if any(m.power(s) for m in shape.traffic.terms)}
        memory = (1 << scale) * (1 << scale + 2)
        best = optimum(shape, used, memory)
        assert best is not None
        ratios.append(best.traffic / found([shape], used, memory).values)
    assert ratios[0] > ratios[1] > ratios[2] >= 1 - 1e-6
    assert ratios[2] < 1.01


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.integers(16, 1 << 20)] * 3), st.integers(1 << 10, 1 << 22))
def test_never_above_the_optimum_and_true_where_it_says(sizes: tuple[int, int, int], memory: int) -> None:
    shape = product_shape("a", "b", "c")
    named = dict(zip("abc", sizes, strict=True))
    n = found([shape], named, memory)
    best = optimum(shape, named, memory)
    assert best is not None
    assert 2 * math.prod(sizes) / math.sqrt(memory) - 2 * memory <= n.values <= best.traffic * (1 + 1e-6)
    assert holds(n.holds_where, {**named, "M": memory * (1 + 1e-9)}) or holds(n.holds_where, {**named, "M": memory})


def test_formulas_read_back() -> None:
    sympy = pytest.importorskip("sympy")
    n = found([product_shape("a", "b", "c")], {"a": 4096, "b": 4096, "c": 4096}, 65536)
    value = sympy.sympify(n.formula).subs({"a": 4096, "b": 4096, "c": 4096, "M": 65536})
    assert float(value) == n.values
    keys = {"formula", "latex", "exponents", "holds_where", "other_regimes", "worth_of_a_byte", "memory_unit"}
    assert set(n.to_json()) == keys


def test_an_axis_called_m_leaves_the_name_of_memory_free() -> None:
    shape = make_shape("2*M*d + 2*M*x*d/g", ["2*g*d"], {"g": "M"})
    n = found([shape], {"M": 4096, "x": 4096, "d": 64}, 65536)
    assert n.formula == "2*M*d + 4*M*x*d**2/M_"


def test_it_is_quick() -> None:
    start = time.perf_counter()
    napkin([ATTENTION], {"q": 4096, "x": 4096, "d": 128}, 114688)
    assert time.perf_counter() - start < 0.3


def test_products_are_exact() -> None:
    half = Product.number(Fraction(1, 2)) ** Fraction(1, 2)
    assert half * half == Product.number(Fraction(1, 2))
    assert text(half, ()) == "sqrt(2)/2"
    total = Product.total(parse("2*i*d + 4*o*d").terms)
    assert text(total, ("d", "i", "o")) == "2*d*(i + 2*o)"
    assert total / total == Product.number(1)
    assert add([total, total]) == (total * Product.number(2),)


def test_posynomials() -> None:
    p = parse("2*q*d + q*d + q**2/d")
    assert p.terms == (Monomial.make(3, {"q": 1, "d": 1}), Monomial.make(1, {"q": 2, "d": -1}))
    assert p.evaluate({"q": 4, "d": 2}) == 32
    assert (p * p).evaluate({"q": 4, "d": 2}) == 1024
    assert pretty("2*rows*d**12/sqrt(M)") == "2·rows·d¹²/√M"


def test_optimum_of_attention_with_scores_and_state() -> None:
    best = optimum(ATTENTION, {"q": 4096, "x": 4096, "d": 64}, 65536)
    assert best is not None
    g = (65536 - 128) / (2 * 64 + 1 + 3)  # the stream at one key
    assert dict(best.tiles)["g_q"] == pytest.approx(g, rel=1e-4)
    assert dict(best.tiles)["s_x"] == pytest.approx(1, rel=1e-4)
    assert best.traffic == pytest.approx(2 * 4096 * 64 * (1 + 4096 / g), rel=1e-6)
    assert optimum(ATTENTION, {"q": 4096, "x": 4096, "d": 64}, 256) is None
