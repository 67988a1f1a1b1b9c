"""Parsing and printing are inverse, and each reading of a text is the one the fine print decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import diagrams, levelled

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Composite, Constant, Index, Number, Read, Reduce, Size
from ioweave.diagrams.library import load, names, source
from ioweave.diagrams.notation import parse, parse_with_warnings, print_diagram, print_expr, warnings
from ioweave.diagrams.opening import can_open, open_diagram, open_line
from ioweave.diagrams.sizes import axis_sizes, resolve
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.notation import parse_levelled, print_levelled

CASES = sorted((Path(__file__).parent / "cases").glob("*.weave"))
HEAD = "q, x, d = 4, 8, 3\neps = 1e-5\nQ[q, d]: fp16\nK[x, d]: fp16\nW: fp32\n"
SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def only(right: str, left: str = "Y[q, d]") -> object:
    """The expression of one line over the inputs of HEAD."""
    return parse(f"{HEAD}{left} = {right}").lines[0].expr


# printing and parsing


@SLOW
@given(diagrams())
def test_printing_then_parsing_is_the_identity(diagram: Diagram) -> None:
    text = print_diagram(diagram)
    again = parse(text)
    assert again == diagram
    assert print_diagram(again) == text  # 1 == 1.0 == True, but they print apart


@SLOW
@given(diagrams(tame=True))
def test_tame_diagrams_open_and_print_their_parts(diagram: Diagram) -> None:
    assert parse(print_diagram(diagram)) == diagram
    for line in diagram.lines:
        if can_open(line):
            opened = open_line(diagram, line.name)
            assert print_diagram(parse(print_diagram(opened))) == print_diagram(opened)


@SLOW
@given(levelled())
def test_levelled_printing_then_parsing(given_levels: Levelled) -> None:
    text = print_levelled(given_levels)
    again = parse_levelled(text)
    assert print_levelled(again) == text
    if again.diagram.definitions == given_levels.diagram.definitions:  # nothing was renamed
        assert again == given_levels
    else:
        assert [b.reduction for b in open_diagram(again.diagram).boxes] == [
            b.reduction for b in open_diagram(given_levels.diagram).boxes
        ]
        for mine, theirs in zip(again.regions, given_levels.regions, strict=True):
            assert [n for _, n in mine.group + mine.stream] == [n for _, n in theirs.group + theirs.stream]


@pytest.mark.parametrize("name", names())
def test_the_catalogue_prints_as_it_is_written(name: str) -> None:
    text, file = source(name)
    diagram = parse(text, file)
    assert print_diagram(diagram) == text
    assert diagram.name == name
    assert diagram.doc


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_the_cases_parse(path: Path) -> None:
    text = path.read_text()
    done = parse_levelled(text, str(path))
    assert parse_levelled(print_levelled(done)) == done
    assert parse(text) == done.diagram


@pytest.mark.parametrize(
    "text",
    [
        "a - (b - c)",
        "a / (b * c)",
        "(a + b) * c",
        "-(a + b)",
        "-a * b",
        "-(a * b)",
        "(-a)**2",
        "-a**2",
        "a**-b",
        "(a**b)**c",
        "a**b**c",
        "a * -1",
        "neg(1)",
        "--1",
        "a < b <= c",
        "a < b and c < b",
        "(a < b) < c",
        "(a < b) + c",
        "not a < b",
        "(not a) < b",
        "not (a and b) or c",
        "a and (b and c)",
        "a and (b or c)",
        "a or b and c",
        "a // b % c",
        "a % (b // c)",
        "min(a, b) + max(a, -inf)",
        "where(a < b, 1e-5, -0.5)",
        "1e300 * a + 2.0",
        "True and a",
        "fp8(a) + round(b)",
        "masked_div(masked_sub(a, b), c)",
    ],
)
def test_parentheses_are_few_and_enough(text: str) -> None:
    diagram = parse(f"a: fp32\nb: fp32\nc: fp32\nY = {text} + a + b + c")
    assert (
        print_diagram(diagram).splitlines()[-1].removeprefix("Y = ")
        in (
            f"{text} + a + b + c",
            f"({text}) + a + b + c",
        )
        or parse(print_diagram(diagram)) == diagram
    )
    expr = parse(f"a: fp32\nb: fp32\nc: fp32\nY[()] = {text}").lines[0].expr
    assert print_expr(expr) == text


def test_many_arguments_and_chains_fold_to_the_left() -> None:
    assert only("min(1, 2, W)") == Apply("min", (Apply("min", (Number(1), Number(2))), Read("W")))
    a, b, c = (
        Apply("le", (Number(0), Index("q"))),
        Apply("lt", (Index("q"), Number(3))),
        Apply("ne", (Number(3), Number(4))),
    )
    assert only("0 <= q < 3 != 4") == Apply("and", (Apply("and", (a, b)), c))
    assert only("(0 <= q) & (q < 3) | ~(3 != 4)") == Apply("or", (Apply("and", (a, b)), Apply("not", (c,))))


def test_long_headers_wrap() -> None:
    many = [f"size_of_axis_{n}" for n in range(20)]
    sizes, zeros = ", ".join(["7"] * 20), ", ".join(["0"] * 20)
    text = f"{', '.join(many)} = {sizes}\nX[{', '.join(many)}]: fp16\nY[{many[0]}] = X[{zeros}]"
    printed = print_diagram(parse(text))
    assert max(len(line) for line in printed.splitlines()[:3]) <= 120
    assert parse(printed) == parse(text)


@pytest.mark.parametrize(
    "doc", ["plain", 'with "quotes"', 'ends in "', "two\nlines", 'three """ of them', "back\\slash"]
)
def test_descriptions_survive(doc: str) -> None:
    diagram = replace(parse(HEAD + "Y[q, d] = Q[q, d]"), doc=doc)
    assert parse(print_diagram(diagram)).doc == doc


# what names mean (counting.md 1 to 9)


def test_a_bound_axis_is_its_index_and_its_size_elsewhere() -> None:
    assert only("q + x + size(q)") == Apply("add", (Apply("add", (Index("q"), Size("x"))), Size("q")))
    read = Read("Q", (Affine.axis("q"), Affine.axis("d")))
    assert only("sum[x](Q[q, d] * x)") == Reduce("sum", ("x",), Apply("mul", (read, Index("x"))))
    assert only("eps") == Constant("eps")
    printed = print_diagram(parse(HEAD + "Y[q] = sum[d](Q[q, d] / size(d)) / sqrt(d) + size(q)"))
    assert printed.splitlines()[-1] == "Y[q] = sum[d](Q[q, d] / size(d)) / sqrt(d) + size(q)"


def test_an_inner_binding_shadows() -> None:
    e = only("sum[q](Q[q, d]) + q")
    assert e == Apply("add", (Reduce("sum", ("q",), Read("Q", (Affine.axis("q"), Affine.axis("d")))), Index("q")))


def test_indices_are_affine_with_constant_coefficients() -> None:
    text = "n, i, k, s = 12, 4, 3, 2\nX[n]: fp16\nX2[s * i + k]: fp16\nY[i, k] = X[s * i + k] + X[size(n) - 1 - i]"
    text += " + X2[2 * (i + 1) - 2 + k]"
    diagram = parse(text)
    assert diagram.inputs[1].dims == (Affine.make({}, {"i": 2, "k": 1}),)  # declared: sizes alone
    assert [r.index[0] for r in _reads(diagram)] == [
        Affine.make({"i": 2, "k": 1}),
        Affine.make({"i": -1}, {"n": 1}, -1),
        Affine.make({"i": 2, "k": 1}),
    ]
    for product in ("s * i", "i * s"):
        strided = f"i, s = 4, 2\nX[{product}]: fp16\nY[i] = X[{product}]"
        assert parse(strided, overrides={"s": 3}).inputs[0].dims == (Affine.make({}, {"i": 3}),)


def _reads(diagram: Diagram) -> list[Read]:
    from ioweave.diagrams.expressions import walk

    return [n for line in diagram.lines for n in walk(line.expr) if isinstance(n, Read)]


def test_dimensions_may_be_arithmetic_of_sizes() -> None:
    diagram = parse("h, d, n = 4, 8, 9\nX[h * d, n // 2, 3]: fp16\nY[d] = X[d, 0, 2]")
    assert [d.fixed({"h": 4, "d": 8, "n": 9}) for d in diagram.inputs[0].dims] == [32, 4, 3]


def test_a_plain_name_that_reads_is_a_single_value() -> None:
    diagram = parse(HEAD + "scale = 1 / sqrt(4)\nL = sum[q, d](Q[q, d])\nM = L * scale\nN = W + M")
    assert [n.name for n in diagram.lines] == ["L", "M", "N"]
    assert diagram.values()["scale"] == 0.5
    assert diagram.lines[1].expr == Apply("mul", (Read("L"), Constant("scale")))


def test_dotted_names_are_lines() -> None:
    text = HEAD + "P.max[q] = max[d](Q[q, d])\nP.all = max[q](P.max[q])\nP[q, d] = Q[q, d] - P.max[q] + P.all\n"
    diagram = parse(text)
    assert [n.name for n in diagram.lines] == ["P.max", "P.all", "P"]
    assert parse(print_diagram(diagram)) == diagram


def test_facts_dtypes_and_casts() -> None:
    diagram = parse("q = 4\nX[q]: fp32 > 0\nZ[q]: fp8_e5m2 <= -1.5\nY[q]: bf16 = fp8(X[q]) + Z[q]")
    assert [i.fact for i in diagram.inputs] == [(">", 0.0), ("<=", -1.5)]
    assert diagram.lines[0].dtype == "bf16"
    assert "X[q]: fp32 > 0\n" in print_diagram(diagram)


def test_composites_take_options_and_bind_as_they_must() -> None:
    assert only("rmsnorm[d](Q[q, d], eps=eps)") == Composite(
        "rmsnorm", ("d",), (Read("Q", (Affine.axis("q"), Affine.axis("d"))),), (("eps", Constant("eps")),)
    )
    assert isinstance(only("logsumexp[x, d](K[x, d])", "Y[q]"), Composite)


def test_masked_reductions() -> None:
    e = only("mean[d](Q[q, d], where=d > 0)", "Y[q]")
    assert isinstance(e, Reduce)
    assert e.where == Apply("gt", (Index("d"), Number(0)))


def test_outputs_are_marked_and_the_last_line_is_one() -> None:
    text = HEAD + "A[q, d] = Q[q, d]\nB[x, d] = K[x, d]\nC[q] = sum[d](A[q, d])\nout(B, A)\n"
    diagram = parse(text)
    assert diagram.outputs == ("B", "A", "C")
    assert "\nout(B, A)\n" in print_diagram(diagram)
    assert parse(text.replace("out(B, A)", "out(C, B)")).outputs == ("C", "B")


def test_inputs_may_come_late_but_before_their_first_read() -> None:
    diagram = parse("A[i] = 2 * i\nX[i]: fp16\nB[i] = A[i] * X[i]\ni = 4")
    assert [i.name for i in diagram.inputs] == ["X"]


# sizes


def test_ties_follow_and_overrides_cut_them() -> None:
    text = "x = q\nq, d = 4, 3\nn = 2 * x + d // 2\nX[n]: fp16\nY[q] = X[q]"
    assert parse(text).values() == {"x": 4, "q": 4, "d": 3, "n": 9}
    assert parse(text).values({"q": 5}) == {"x": 5, "q": 5, "d": 3, "n": 11}
    assert parse(text).values({"q": 5, "x": 4}) == {"x": 4, "q": 5, "d": 3, "n": 9}
    diagram = parse(text, overrides={"q": 5})
    assert diagram.values()["n"] == 11
    assert "q, d = 5, 3" in print_diagram(diagram)


def test_an_axis_may_get_its_size_from_the_caller_alone() -> None:
    assert axis_sizes(parse("X[i]: fp16\nY[i] = X[i]", overrides={"i": 6})) == {"i": 6}


def test_unknown_overrides_name_the_known_sizes() -> None:
    with pytest.raises(WeaveError, match="`zz` is not a size or constant here; these are: q, x, d, eps"):
        parse(HEAD + "Y[q, d] = Q[q, d]", overrides={"zz": 4})
    with pytest.raises(WeaveError, match="did you mean `eps`"):
        resolve(parse(HEAD + "Y[q, d] = Q[q, d]").definitions, {"epss": 4})


@pytest.mark.parametrize("size", [0, -4, 2**41, 1.5, float("nan"), float("inf"), True])
def test_sizes_are_whole_numbers_of_one_to_two_to_the_forty(size: float) -> None:
    diagram = parse(HEAD + "Y[q, d] = Q[q, d]")
    with pytest.raises(WeaveError, match="the size of axis `q`"):
        parse(HEAD + "Y[q, d] = Q[q, d]", overrides={"q": size})
    with pytest.raises(WeaveError, match="the size of axis `q`"):
        axis_sizes(diagram, {"q": size})


# reads stay in range (counting.md 6)


@pytest.mark.parametrize(
    "right",
    [
        "where(i >= 1, X[i - 1], 0)",
        "where(i < 1, 0, X[i - 1])",
        "where(not i < 1, X[i - 1], 0)",
        "where(i > 0 and i < LAST, X[i - 1] + X[i + 1], 0)",
        "where(0 <= i - j < N, X[i - j], 0)",
        "where((j <= i) & (i < LAST - 1), X[i - j + 2], 0)",
        "where(j > i, 0, X[i - j])",
        "where(i < j or i == j, 0, X[i - j - 1])",
        "where(i // 4 == j // 4, X[i - j + 3], 0)",
        "where(i // 4 == j // 4 and j % 4 == 0, X[i - j], 0)",
        "where(i != 0, X[i - 1], 0)",
        "where(i == 0, 0, X[i - 1])",
        "sum[k](X[i - k], where=k <= i) + j",
        "sum[k](where(k <= i, X[i - k], 0)) + j",
        "X[size(n) - 1 - i] + j",
        "where(2 * i < n, X[2 * i], 0) + j",
    ],
)
@pytest.mark.parametrize("size", [10, 2**30])
def test_guarded_reads_are_in_range(right: str, size: int) -> None:
    right = right.replace("LAST", str(size - 1)).replace("N", str(size))
    parse(f"n = {size}\ni, j, k = n, n, n\nX[n]: fp16\nY[i, j] = {right} + 0 * j")


def test_small_grids_are_tried_element_by_element() -> None:
    parse("i, j = 9, 9\nX[i]: fp16\nY[i, j] = where(abs(i - j) < 1, X[i - j], 0)")


@pytest.mark.parametrize(
    ("right", "column"),
    [
        ("X[i - 1]", 13),
        ("where(i >= 1, X[i - 2], 0)", 27),
        ("where(i >= 1, 0, X[i - 1])", 30),
        ("where(j >= 1, X[i - 1], 0)", 27),
        ("where(i >= 1 or j >= 1, X[i - 1], 0)", 37),
        ("where(i >= 1, sum[i](X[i - 1]), 0)", 34),
        ("where(X[i] > 0, X[i - 1], 0)", 29),
        ("where(i // 4 == j // 4, X[i - j], 0)", 37),
    ],
)
@pytest.mark.parametrize("size", [10, 2**30])
def test_reads_out_of_range_are_errors(right: str, column: int, size: int) -> None:
    with pytest.raises(WeaveError, match="out of range") as error:
        parse(f"n = {size}\ni, j = n, n\nX[n]: fp16\nY[i, j] = {right}")
    assert (error.value.position.line, error.value.position.column) == (4, column)


# warnings


def test_unread_inputs_and_constants_are_warned_of() -> None:
    diagram, said = parse_with_warnings(HEAD + "s = 2\nY[q, d] = Q[q, d] + W + 0 * size(x)", "f")
    assert [w.split(";")[0] for w in said] == [
        "f:2:1: constant `eps` is never read",
        "f:4:1: input `K` is never read",
        "f:6:1: constant `s` is never read",
    ]
    assert sorted(warnings(diagram)) == sorted(said)


# levels

LEVELS = (
    HEAD
    + """V[x, d]: fp16
with level("smem", group={q: t}, stream={x: 2 * t}, hold={Q: 0}, place={S: "gmem"}, buffers=2):
    S[q, x] = sum[d](Q[q, d] * K[x, d])
    O[q, d] = sum[x](S[q, x] * V[x, d])
R[q] = sum[d](O[q, d])
t = 2
"""
)


def test_blocks_are_regions() -> None:
    done = parse_levelled(LEVELS)
    block = Region("O", "smem", ("S", "O"), (("q", 2),), (("x", 4),), (("Q", 0),), (("S", "gmem"),), 2)
    assert done.regions == (block, Region("R", "smem", ("R",), implicit=True))
    assert done.levels == ("gmem", "smem")
    assert parse_levelled(print_levelled(done)) == done
    assert parse(LEVELS) == done.diagram


def test_blocks_nest_and_name_their_levels() -> None:
    text = (
        HEAD
        + """with level("smem", group={q: 2}):
    with level("reg", stream={d: 1}):
        S[q, x] = sum[d](Q[q, d] * K[x, d])
    P[q, x] = exp(S[q, x])
R[q] = sum[x](P[q, x])
"""
    )
    done = parse_levelled(text)
    assert done.levels == ("gmem", "smem", "reg")
    inner = Region("S", "reg", ("S",), (), (("d", 1),))
    assert done.regions[0] == Region("P", "smem", (inner, "P"), (("q", 2),))
    assert done.regions[1].level == "reg"
    assert parse_levelled(print_levelled(done)) == done
    assert parse_levelled(text, levels=("gmem", "l2", "smem")).levels == ("gmem", "l2", "smem", "reg")


@pytest.mark.parametrize("component", ["d", "d'"])
def test_a_tile_of_one_of_two_axes_of_a_name_gives_it_a_name(component: str) -> None:
    done = parse_levelled(LEVELS)
    text = print_levelled(done.with_region(0, replace(done.regions[0], group=((component, 2),))))
    assert "\nd_1 = d\n" in text
    assert "O[q, d_1] = sum[x](S[q, x] * V[x, d_1])" in text
    assert f"group={{{'d' if component == 'd' else 'd_1'}: 2}}" in text
    assert print_levelled(parse_levelled(text)) == text


# the library


def test_sizes_of_an_entry_may_be_given() -> None:
    assert load("attention", {"q": 128}).values()["q"] == 128


def test_texts_come_from_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.weave"
    path.write_text("\ufeff" + HEAD + "Y[q, d] = Q[q, d]\r\n")
    assert load(str(path)).name == "mine"
