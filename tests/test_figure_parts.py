"""The parts of the renderer: setting of text, wiring of columns, wrapping, and the dependency graph."""

from __future__ import annotations

import shutil

import pytest
from figure_cases import OTHERS, TILES, levelled, one_plate, pair

from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation import parse
from ioweave.hierarchy.notation import parse_levelled
from ioweave.render.figure.describe import describe_diagram
from ioweave.render.figure.names import math
from ioweave.render.figure.operation import plan_operation
from ioweave.render.figure.plan import make_plan
from ioweave.render.figure.rows import part
from ioweave.render.figure.spec import ColumnSpec, OperandSpec
from ioweave.render.figure.table import wrap
from ioweave.render.figure.theme import PAPER
from ioweave.render.figure.typeset import extent, strip, typeset, width
from ioweave.render.graph import DotMissing, graph_image, graph_source


def read(array: str, *axes: str) -> OperandSpec:
    return OperandSpec(array, tuple((a,) for a in axes))


# text


def test_subscripts_hang_and_superscripts_stand() -> None:
    _, height, depth = extent("$x$", 10)
    _, height_sub, depth_sub = extent("$x_q$", 10)
    _, height_sup, _ = extent("$x^2$", 10)
    assert depth_sub > depth
    assert height_sub == pytest.approx(height)
    assert height_sup > height


def test_sub_and_superscript_share_their_place() -> None:
    assert width("$g_q'$", 10) < width("$g_q$", 10) + width("$'$", 10)


def test_a_sign_before_a_term_is_not_binary() -> None:
    assert width("$-a$", 10) < width("$b-a$", 10) - width("$b$", 10)


def test_text_scales() -> None:
    assert width("group $g_q$ of $q$", 20) == pytest.approx(2 * width("group $g_q$ of $q$", 10))
    assert typeset("").glyphs == ()


def test_plain_text_of_markup() -> None:
    assert strip(r"$xd\cdot q/g_{q}$ in \text{gmem}") == "xd· q/g_q in gmem"


@pytest.mark.parametrize(
    ("name", "markup"),
    [
        ("q", "$q$"),
        ("d'", "$d'$"),
        ("W1", "$W_{1}$"),
        ("d_1", "$d_{1}$"),
        ("batch", r"$\text{batch}$"),
        ("P.max", r"$\text{P.max}$"),
        ("projected_scores", r"$\text{projected_scores}$"),
        ("a_b_c", r"$\text{a_b_c}$"),
        ("seq_1", r"$\text{seq}_{1}$"),
    ],
)
def test_names(name: str, markup: str) -> None:
    assert math(name) == markup


def test_formulas_break_before_a_sign() -> None:
    lines = wrap(("aaaaaa", "bbbbbb", "cccccc"), 10, 60)
    assert len(lines) == 3
    assert lines[1].startswith("${}+")


# columns


def test_contracted_axes_become_neighbours() -> None:
    spec = ColumnSpec("S", ("q", "x"), (read("Q", "q", "d"), read("K", "x", "d")), "", "contract", ("d",))
    op = plan_operation(spec, spec.operands)
    assert op.cups == ((1, 2),)
    assert [(w.axis, w.slot) for w in op.wires] == [("q", 0), ("d", 1), ("d", 2), ("x", 3)]
    assert op.result == ((0, 0), (3, 3))
    assert op.slot("x") == 3


def test_cups_nest() -> None:
    spec = ColumnSpec("Z", ("q", "m"), (read("A", "h", "q", "d"), read("W", "h", "d", "m")), "", "contract", ("h", "d"))
    op = plan_operation(spec, spec.operands)
    (a, b), (c, d) = op.cups
    assert c < a < b < d


def test_shared_axes_join_the_larger_operand() -> None:
    spec = ColumnSpec("Y", ("t", "m"), (read("R", "t"), read("X", "t", "m")), "", "elementwise")
    op = plan_operation(spec, spec.operands)
    assert op.joins == ((0, 1),)


def test_an_axis_of_one_operand_ends_in_a_box() -> None:
    spec = ColumnSpec("M", ("t",), (read("X", "t", "m"),), "", "reduce", ("m",), reduction="max")
    assert plan_operation(spec, spec.operands).ends == (1,)


def test_a_window_branches() -> None:
    text = "i, k = 8, 3\nX[i + k - 1]: fp16\nW[k]: fp16\nY[i] = sum[k](X[i + k] * W[k])\n"
    column = describe_diagram(parse(text)).columns[0]
    op = plan_operation(column, column.operands)
    assert [(w.axis, w.branch) for w in op.wires if w.operand == 0] == [("i", False), ("k", True)]


def test_glyphs_follow_the_structure() -> None:
    d = parse(
        "q, x, d = 8, 8, 4\nQ[q, d]: fp16\nK[x, d]: fp16\nB[q]: fp16\n"
        "S[q, x] = where(x <= q, sum[d](Q[q, d] * K[x, d]) / sqrt(d), -inf)\n"
        "T[q, x] = relu(S[q, x]) + B[q]\nP[q, x] = softmax[x](T[q, x])\nM[q] = max[x](P[q, x] ** 2)\n"
    )
    s, t, p, m = describe_diagram(d).columns
    assert (s.glyph, s.mask, s.factor) == ("contract", True, r"$\cdot\,d^{-1/2}$")
    assert (t.glyph, t.reduction) == ("elementwise", "relu +")
    assert (p.glyph, p.works) == ("softmax", ("x",))
    assert (m.glyph, m.before, m.reduction) == ("reduce", "square", "max")


def test_numbers_of_titles() -> None:
    d = parse("a = 8\nX[a]: fp16\nY[a] = X[a] + 0.00001\nZ[a] = Y[a] * 0.000025\nT[a] = Z[a] * 1.5\n")
    assert [c.title for c in describe_diagram(d).columns] == [
        "$X+10^{-5}$",
        r"$2.5\cdot 10^{-5}\,Y$",
        r"$1.5\,Z$",
    ]


def test_a_transpose_is_no_copy() -> None:
    d = parse("a, b = 8, 4\nX[a, b]: fp16\nY[b, a] = X[a, b]\nZ[b, a] = Y[b, a]\n")
    assert [c.title for c in describe_diagram(d).columns] == ["transpose", "copy"]


def test_rows_of_attention_are_those_of_the_papers() -> None:
    """Scores keep the row of q and take over the lower row of K; the values' rows never move."""
    plan = make_plan(pair("attention").panels[1], PAPER)
    y = {plan.array[s]: [plan.y[r] for r in rows] for s, rows in enumerate(plan.rows)}
    assert y["Q"] == [0, 20]
    assert y["K"] == [52, 72]
    assert y["V"] == [104, 124]
    assert y["S"] == y["P"] == [0, 72]
    assert y["O"] == [104, 124]


def test_a_part_of_a_panel_stands_alone() -> None:
    panel = pair("gpt3_block").panels[0]
    tail = part(panel, 4, 9)
    assert [c.result for c in tail.columns] == ["P", "A", "Z", "F", "Y"]
    assert [a.name for a in tail.arrays if a.is_input] == ["WO", "W1", "W2", "V", "S"]
    assert tail.rows[0].total == panel.rows[0].total
    assert part(panel, 0, 4).rows[0].total == ""
    assert [a.name for a in part(panel, 0, 4).arrays if a.is_output] == ["V", "S"]


# the dependency graph


def test_graph_has_boxes_in_regions() -> None:
    source = graph_source(levelled("attention", TILES["attention"][1]))
    assert source.count("subgraph cluster_") == 1
    assert "group q: 128" in source
    assert "stream x: 64" in source
    assert 'n_Q -> n_S_46_sum [label="Q[q, d]\\n4096 × 64, 512 KiB"]' in source
    assert source == graph_source(levelled("attention", TILES["attention"][1]))


@pytest.mark.parametrize("name", OTHERS)
def test_graph_of_other_shapes(name: str) -> None:
    """Every region is a cluster, every array that is read an edge with its name and size."""
    for lev in (parse_levelled(OTHERS[name]), one_plate(name)):
        source = graph_source(lev)
        assert source.count("subgraph cluster_") == len(lev.regions)
        arrows = [line for line in source.splitlines() if " -> " in line]
        assert arrows
        assert all(line.rstrip(']"').endswith("B") for line in arrows)


def test_graph_of_a_single_value() -> None:
    source = graph_source(parse_levelled(OTHERS["a single value"]))
    assert 'n_L -> n_M [label="L\\none value, 2 B"]' in source
    assert 'n_L [label="L\\nsum over q"' in source


def test_graph_at_other_sizes() -> None:
    lev = levelled("attention", {})
    assert "8 × 64, 1 KiB" in graph_source(lev, lev.diagram.values({"q": 8}))


def test_graph_of_awkward_names() -> None:
    source = graph_source(parse_levelled("node, x = 3, 4\nedge[node, x]: fp16\ngraph[node] = sum[x](edge[node, x])\n"))
    assert "n_edge -> n_graph" in source


@pytest.mark.skipif(shutil.which("dot") is not None, reason="Graphviz is installed")
def test_a_missing_dot_is_one_sentence() -> None:
    with pytest.raises(DotMissing, match=r"install the package graphviz .*-o FILE\.dot"):
        graph_image(graph_source(levelled("matmul", {})), "svg")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_a_picture_of_the_graph() -> None:
    assert b"<svg" in graph_image(graph_source(levelled("matmul", {})), "svg")


def test_an_unknown_format_of_graph() -> None:
    with pytest.raises(WeaveError, match="svg, png, pdf or dot, not gif"):
        graph_image("digraph {}", "gif")
