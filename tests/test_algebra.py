"""The diagram algebra: the paper's order, the catalogue, the axioms, what weaving means, and errors."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from first import FIRST
from hypothesis import given, settings
from hypothesis import strategies as st

from ioweave import Diagram, Term, WeaveError, axes, box, dot, identity, parse, print_diagram, term
from ioweave.derive.execution.reference import evaluate
from ioweave.diagrams import algebra
from ioweave.diagrams.library import names

CATALOGUE = resources.files("ioweave.diagrams") / "catalogue"
DOC = Path(__file__).parent.parent / "docs" / "algebra.md"


def catalogue(name: str) -> Diagram:
    return parse((CATALOGUE / f"{name}.weave").read_text("utf-8"), f"{name}.weave")


def one_head() -> Term:
    """Attention in the paper's order, from the softmax-contraction."""
    seed = box("P[x] = softmax[x](S[x])") >> box("O = sum[x](P[x] * V[x])")
    values = seed.weave("d", only="V", at=-1)
    scores = box("S = sum[d](Q[d] * K[d]) / sqrt(d)").weave("x", only="K")
    return (scores >> values).weave("q", only="Q")


def product(out: str, left: str, right: str, over: str) -> Term:
    return box(f"{out} = sum[{over}]({left} * {right})")


def mask() -> Term:
    return box("S[q, x] = where(x <= q, sum[d](Q[q, d] * K[x, d]) / sqrt(d), -inf)")


def rebuilt() -> dict[str, Term]:
    """The entries of `FIRST` by boxes, `>>`, `|` and weaving."""
    attention = one_head()
    plain = box("S = sum[d](Q[d] * K[d])").weave("x", only="K")
    softmax = box("P[x] = softmax[x](S[x])").weave("q")
    after = box("P[x] = softmax[x](S[x])") >> box("O = sum[x](P[x] * V[x])").weave("d", only="V", at=-1)
    scores = box("S = sum[d](Q[d] * K[d]) / sqrt(d)").weave("x", only="K").weave("q", only="Q")
    normed = box("N = sqrt(sum[x](S[x] * S[x]))") >> box("O = sum[x](S[x] / N * V[x])", "N").weave("d", "V", at=-1)
    heads = (plain >> after).weave("q", only="Q").weave("h").rename(O="A")
    project = (
        product("Q[h, q, d]", "X[q, m]", "WQ[m, h, d]", "m")
        | product("K[h, x, d]", "X[x, m]", "WK[m, h, d]", "m")
        | product("V[h, x, d]", "X[x, m]", "WV[m, h, d]", "m")
    )
    block = (
        identity("X[q, m]")
        >> project
        >> heads
        >> product("Z[q, m]", "A[h, q, d]", "WO[h, d, m]", "h, d")
        >> box("F[q, f] = relu(sum[m](Z[q, m] * W1[m, f]))")
        >> product("Y[q, m]", "F[q, f]", "W2[f, m]", "f")
    )
    matmul = box("Z = sum[b](X[b] * Y[b])").weave("c", only="Y", at={"Y": 1}).weave("a", only="X")
    return {
        "attention": attention,
        "causal_attention": mask() >> after.weave("q", only="S"),
        "column_sums": scores >> softmax >> box("C = sum[q](P[q])").weave("x", at=-1),
        "convolution": box(
            "Y[b, y, x, o] = sum[r, s, c](X[b, y + r, x + s, c] * W[r, s, c, o])", "X[b, y + r - 1, x + s - 1, c]"
        ),
        "cross_entropy": product("Z[t, v]", "X[t, m]", "W[v, m]", "m")
        >> box("L = logsumexp[v](Z[v]) - sum[v](where(v == label, Z[v], 0))", "label: int32").weave("t"),
        "gpt3_block": block,
        "grouped_query_attention": attention.weave("g", only="Q").weave("k"),
        "layernorm": (
            box("M = mean[m](X[m])")
            >> box("R = mean[m]((X[m] - M)**2)", "M")
            >> box("Y[m] = (X[m] - M) * rsqrt(R + eps) * G[m] + B[m]", "M", "R")
        ).weave("t", only="X"),
        "matmul": matmul,
        "matmul_chain": product("H[t, f]", "X[t, i]", "U[i, f]", "i") >> product("Y[t, o]", "H[t, f]", "D[f, o]", "f"),
        "multi_head_attention": attention.weave("h"),
        "rmsnorm_matmul": box("R = mean[m](X[m]**2)").weave("t")
        >> box("N[m] = X[m] * rsqrt(R + eps) * G[m]", "R").weave("t", only=("X", "R"))
        >> product("Y[t, n]", "N[t, m]", "W[m, n]", "m"),
        "spherical_attention": (plain >> normed).weave("q", only="Q"),
        "swiglu_mlp": (product("A[t, f]", "X[t, m]", "G[m, f]", "m") | product("B[t, f]", "X[t, m]", "U[m, f]", "m"))
        >> box("H = silu(A) * B", "A", "B").weave("f").weave("t")
        >> product("Y[t, m]", "H[t, f]", "D[f, m]", "f"),
    }


@pytest.mark.parametrize("name", FIRST)
def test_catalogue_is_rebuilt(name: str) -> None:
    wanted = catalogue(name)
    built = rebuilt()[name].diagram(wanted.definitions)
    assert built == wanted
    assert parse(print_diagram(built)) == wanted


@pytest.mark.parametrize("name", names())
def test_a_diagram_is_a_term(name: str) -> None:
    wanted = catalogue(name)
    assert term(wanted).diagram(wanted.definitions) == wanted


def test_sizes_by_name_ties_and_facts() -> None:
    built = box("Y[q] = log(X[q]) * eps").diagram(
        {"q": 8, "p": "q", "eps": 0.5}, dtypes={"X": "fp32 > 0"}, name="logs", doc="Logs."
    )
    assert built == parse("q = 8\np = q\neps = 0.5\nX[q]: fp32 > 0\nY[q] = log(X[q]) * eps")
    assert (built.name, built.doc) == ("logs", "Logs.")


def test_outputs_follow_the_notation() -> None:
    f = box("S[q] = exp(X[q])") >> box("Y[q] = S[q] + 1")
    assert f.diagram({"q": 4}).outputs == ("Y",)
    assert f.diagram({"q": 4}, out=("S",)) == parse("q = 4\nX[q]: fp16\nS[q] = exp(X[q])\nY[q] = S[q] + 1\nout(S)")
    both = box("S[q] = exp(X[q])") | box("T[q] = X[q] + 1")
    assert both.diagram({"q": 4}).outputs == ("S", "T")


def test_matching_by_position() -> None:
    f = box("A[i] = exp(X[i])") | box("B[i] = X[i] + 1")
    assert f >> box("C[i] = _1[i] - _2[i]") == f >> box("C[i] = A[i] - B[i]")
    assert f >> box("C[i] = _[i] * 2") == f >> box("C[i] = A[i] * 2")
    with pytest.raises(WeaveError, match="takes output 3"):
        f >> box("C[i] = _3[i] * 2")
    with pytest.raises(WeaveError, match="joined to nothing"):
        box("C[i] = _3[i] * 2").diagram({"i": 2})


def test_boxes_from_functions() -> None:
    (d,) = axes("d")
    scores = box(lambda Q, K: dot(Q, K, over=d) / d.size, "Q[q, d]", "K[x, d]", out="S[x, q]")
    assert scores == box("S[x, q] = sum[d](Q[q, d] * K[x, d]) / d")
    assert scores.diagram({"q": 2, "x": 3, "d": 4}) == parse(
        "q, x, d = 2, 3, 4\nQ[q, d]: fp16\nK[x, d]: fp16\nS[x, q] = sum[d](Q[q, d] * K[x, d]) / d"
    )
    two = box(lambda X: ((2 * X).named("T"), X + 1), "X[i]: fp32", out=("T", "U[i]"))
    assert two == box("T[i] = 2 * X[i]", "X[i]: fp32") | box("U[i] = X[i] + 1")
    inner = box(lambda X: (2 * X).named("T") + 1, "X[i]", out="U")
    assert inner == box("T[i] = 2 * X[i]") >> box("U[i] = T[i] + 1")


def test_relabel_renames_sizes_too() -> None:
    f = box("S[q] = sum[d](Q[q, d]) / sqrt(d)")
    assert f.relabel(d="e", q="r") == box("S[r] = sum[e](Q[r, e]) / sqrt(e)")
    with pytest.raises(WeaveError, match="two axes of S"):
        f.relabel(d="q")


# -- the axioms, on random terms --------------------------------------------------------------------------------

SHAPES = {"A": ("i",), "B": ("i", "j"), "C": ("j",), "W": ("k", "i")}


@st.composite
def stages(draw: st.DrawFn, count: int, prefix: str = "L", every: bool = False) -> list[Term]:
    """Terms that compose in sequence: each begins with a box that reads the last line of the one before."""
    shapes = {prefix + n: s for n, s in SHAPES.items()} if prefix != "L" else dict(SHAPES)
    last: str | None = None
    number = 0
    found: list[Term] = []
    for _ in range(count):
        made: Term | None = None
        for _ in range(1 if every else draw(st.integers(1, 3))):
            first = last if last and (made is None or every) else draw(st.sampled_from(sorted(shapes)))
            read = list(dict.fromkeys([first, *draw(st.lists(st.sampled_from(sorted(shapes)), max_size=2))]))
            axes = tuple(dict.fromkeys(a for r in read for a in shapes[r]))
            axes = tuple(draw(st.permutations(axes)))
            scalars = [r for r in read if not shapes[r]]
            body = " * ".join(f"{r}[{', '.join(shapes[r])}]" if shapes[r] else r for r in read)
            over = draw(st.sampled_from([None, *axes]))
            op = draw(st.sampled_from(["sum", "max", "mean"]))
            if over:
                body, axes = f"{op}[{over}]({body})", tuple(a for a in axes if a != over)
            name = f"{prefix}{number}"
            number += 1
            left = f"{name}[{', '.join(axes)}]" if axes else name
            new = box(f"{left} = {body} + {draw(st.integers(0, 2))}", *scalars)
            shapes[name] = axes
            last = name
            try:
                made = new if made is None else made >> new
            except WeaveError:
                assert made is not None
                made = made | new
        assert made is not None
        found.append(made)
    return found


@settings(max_examples=30, deadline=None)
@given(stages(3))
def test_sequence_is_associative(terms: list[Term]) -> None:
    f, g, h = terms
    assert (f >> g) >> h == f >> (g >> h)
    assert hash((f >> g) >> h) == hash(f >> (g >> h))


@settings(max_examples=30, deadline=None)
@given(stages(1, "a"), stages(1, "b"), stages(1, "c"))
def test_parallel_is_associative_with_a_unit(f: list[Term], g: list[Term], h: list[Term]) -> None:
    assert (f[0] | g[0]) | h[0] == f[0] | (g[0] | h[0])
    assert identity() | f[0] == f[0] == f[0] | identity()
    assert identity() >> f[0] == f[0] == f[0] >> identity()


@settings(max_examples=30, deadline=None)
@given(stages(2, "a", every=True), stages(2, "b", every=True))
def test_interchange(a: list[Term], b: list[Term]) -> None:
    assert (a[0] >> a[1]) | (b[0] >> b[1]) == (a[0] | b[0]) >> (a[1] | b[1])


@settings(max_examples=30, deadline=None)
@given(stages(2), st.sampled_from([0, -1]))
def test_weaving_distributes(terms: list[Term], at: int) -> None:
    f, g = terms
    assert (f >> g).weave("t", at=at) == f.weave("t", at=at) >> g.weave("t", at=at)
    assert f.weave("s").weave("t") == f.weave("t").weave(
        "s", at={**dict.fromkeys(f.inputs, 1), **{n.name: 1 for n in f.lines}}
    )


@settings(max_examples=30, deadline=None)
@given(stages(2, every=True), st.data())
def test_weaving_what_only_the_second_takes(terms: list[Term], data: st.DataObject) -> None:
    f, g = terms
    mine = sorted(set(g.inputs) - set(f.inputs) - {n.name for n in f.lines})
    only = tuple(data.draw(st.lists(st.sampled_from(mine), unique=True))) if mine else ()
    assert (f >> g).weave("t", only=only) == f >> g.weave("t", only=only)


@settings(max_examples=30, deadline=None)
@given(stages(2), st.data())
def test_weaving_is_a_map(terms: list[Term], data: st.DataObject) -> None:
    """One slice of the woven diagram is the diagram on one slice of its woven inputs."""
    f = terms[0] >> terms[1]
    only = tuple(data.draw(st.lists(st.sampled_from(sorted(f.inputs)), unique=True)))
    sizes: dict[str, int | float | str] = {"i": 2, "j": 3, "k": 2, "t": 3}
    plain, woven = f.diagram(sizes), f.weave("t", only=only).diagram(sizes)
    rng = np.random.default_rng(0)
    values = woven.values()
    arrays = {
        i.name: rng.standard_normal([d.fixed({k: int(v) for k, v in values.items()}) for d in i.dims])
        for i in woven.inputs
    }
    whole = evaluate(woven, values, arrays)
    for t in range(3):
        part = evaluate(plain, values, {n: a[t] if n in only else a for n, a in arrays.items()})
        for name in f.outputs:
            np.testing.assert_allclose(whole[name][t], part[name])


# -- errors -----------------------------------------------------------------------------------------------------

F = "S[q, x] = sum[d](Q[q, d] * K[x, d])"


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: box(F) >> box("P[q, x] = exp(T[q, x])"), "joins nothing: f gives S, g takes T"),
        (lambda: box(F) >> box("P[q, x] = exp(S[x, q])"), "another order"),
        (lambda: box(F) >> box("P[q, e] = exp(S[q, e])"), "g takes S\\[q, e\\]"),
        (lambda: box(F) >> box("P[q] = exp(S[q])"), "lacks an axis"),
        (lambda: box(F) >> box(F), "both terms make S"),
        (lambda: box("S = sum[d](Q[d])") >> box("Y[i] = X[i] / S"), "declare it as an input"),
        (lambda: box("B[i] = A[i] + 1") >> box("A[i] = B[i] + 1"), "cycle|g >> f"),
        (lambda: box(F) | box("P[q, x] = exp(S[q, x])"), "use >>"),
        (lambda: box("B[i] = A[i] + 1") | box("C[i, j] = A[i, j] + 1"), "1 and 2 axes"),
        (lambda: box("B[i] = A[i] + 1", "A[i]: fp32") | box("C[i] = A[i] + 1", "A[i]: fp16"), "fp32 and with fp16"),
        (
            lambda: box("B[i] = A[i] + 1", "A[i]") | box("C[j] = A[j] + 1", "A[j]"),
            "declared as A\\[i\\] and as A\\[j\\]",
        ),
        (lambda: box(F).weave("h", only="V"), "V is no input; the inputs are Q, K"),
        (lambda: box(F).weave("d"), "has an axis d already"),
        (lambda: box(F).weave("h", at=3), "0 to 2"),
        (lambda: box(F).weave("h", at={"Z": 1}), "no array"),
        (lambda: identity("V[x]").weave("d", only=()), "passes through"),
        (lambda: box(F).weave("not a name"), "no name"),
        (lambda: box(F).rename(Z="Y"), "rename: Z is no array"),
        (lambda: box(F).rename(Q="S"), "two arrays would be called S"),
        (lambda: box("q = 4\nY[q] = X[q]"), "a box is one line"),
        (lambda: box("Y[q] = X[q]", "Z[q]"), "does not read Z"),
        (lambda: box("Y[q] = X[q, d]"), "axis `d` is neither on the left side nor reduced"),
        (lambda: box("Y[q] = X[q"), "never closed"),
        (lambda: box("Y[q] = X[n * m + q]"), "multiplies or divides"),
        (lambda: box("Y[q] = X[q]", "X[q]: fp17"), "fp16"),
        (lambda: box("Y[q] = X[q]", "X[q * q]"), "not affine"),
        (lambda: box("Y[i] = A[i] + A[i + 1]").diagram({"i": 4}), "declare them"),
        (lambda: box(F).diagram({"q": 4, "x": 4}), "axis d has no size"),
        (lambda: box(F).diagram({"q": 4, "x": 4, "d": 0}), "1 or more"),
        (lambda: box("Y[q] = X[q] * eps").diagram({"q": 4}), "eps is used but has no value"),
        (lambda: box(F).diagram({"q": 4, "x": 4, "d": 2}, dtypes={"Q": "fp16"}), "K has no dtype"),
        (lambda: box(F).diagram({"q": 4, "x": 4, "d": 2}, out=("T",)), "no line"),
        (lambda: identity("V[x]").diagram({"x": 4}), "nothing is computed"),
        (lambda: box(lambda X: X + 1, "X[i]"), "has no name"),
        (lambda: box(lambda X: (X, X), "X[i]", out="Y"), "gives 2 arrays"),
        (lambda: box(lambda X: X + 1, "X[i]", out="Y[j]"), "depends on i"),
    ],
)
def test_errors_teach(make: Callable[[], object], said: str) -> None:
    with pytest.raises(WeaveError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_doctests() -> None:
    assert doctest.testmod(algebra).failed == 0


def test_tutorial() -> None:
    source = "\n".join(re.findall(r"```python\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(source, {}, DOC.name, str(DOC), 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
