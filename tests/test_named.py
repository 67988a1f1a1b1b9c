"""Named-axis arrays: the catalogue in formulas, the printers to Python and LaTeX, and errors."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from importlib import import_module, resources
from typing import Any

import pytest
from first import FIRST
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import diagrams

import ioweave as iw
from ioweave import Diagram, Input, Line, WeaveError, parse
from ioweave.diagrams import assemble, functions, named
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.expressions import Apply, Composite, Constant, Expr, Index, Number, Read, Reduce, Size
from ioweave.diagrams.library import names
from ioweave.diagrams.operators import CASTS, OPERATORS

CATALOGUE = resources.files("ioweave.diagrams") / "catalogue"
LATEX = r"""\begin{aligned}
  Q &\in \mathbb{R}^{q \times d} \\
  K &\in \mathbb{R}^{x \times d} \\
  V &\in \mathbb{R}^{x \times d} \\
  S_{q, x} &= \frac{\sum_{d} Q_{q, d} \, K_{x, d}}{\sqrt{d}} \\
  P_{q, x} &= \operatorname{softmax}_{x}\left(S_{q, x}\right) \\
  O_{q, d} &= \sum_{x} P_{q, x} \, V_{x, d}
\end{aligned}
"""


def catalogue(name: str) -> Diagram:
    return parse((CATALOGUE / f"{name}.weave").read_text("utf-8"), f"{name}.weave")


def attention() -> Diagram:
    q, x, d = iw.axes("q x d", q=4096, x=4096, d=64)
    Q, K, V = iw.array("Q", q, d), iw.array("K", x, d), iw.array("V", x, d)
    S = iw.dot(Q, K, over=d) / iw.sqrt(d.size)
    P = iw.softmax(S, over=x)
    return iw.diagram(S=S, P=P, O=iw.dot(P, V, over=x))


def causal_attention() -> Diagram:
    q, d, x = iw.axes("q d x", q=4096, d=64, x="q")
    Q, K, V = iw.array("Q", q, d), iw.array("K", x, d), iw.array("V", x, d)
    S = iw.where(x <= q, iw.dot(Q, K, over=d) / iw.sqrt(d.size), -iw.inf).named("S", q, x)
    P = iw.softmax(S, over=x)
    return iw.diagram(S, P=P, O=iw.dot(P, V, over=x))


def column_sums() -> Diagram:
    q, x, d = iw.axes("q x d", q=4096, x=4096, d=64)
    S = iw.dot(iw.array("Q", q, d), iw.array("K", x, d), over=d) / iw.sqrt(d.size)
    P = iw.softmax(S, over=x)
    return iw.diagram(C=iw.sum_(P, over=q), S=S, P=P)


def convolution() -> Diagram:
    b, y, x, r, s, c, o = iw.axes("b y x r s c o", b=32, y=56, x=56, r=3, s=3, c=128, o=256)
    X = iw.array("X", b, y + r - 1, x + s - 1, c)
    W = iw.array("W", r, s, c, o)
    return iw.diagram(iw.dot(X[b, y + r, x + s, c], W, over=(r, s, c)).named("Y", b, y, x, o))


def cross_entropy() -> Diagram:
    t, m, v = iw.axes("t m v", t=8192, m=4096, v=128256)
    X, W, label = iw.array("X", t, m), iw.array("W", v, m), iw.array("label", t, dtype="int32")
    Z = iw.dot(X, W, over=m)
    L = iw.logsumexp(Z, over=v) - iw.sum_(iw.where(v == label, Z, 0), over=v)
    return iw.diagram(Z=Z, L=L)


def gpt3_block() -> Diagram:
    q, m, h, d, f, x = iw.axes("q m h d f x", q=2048, m=4096, h=32, d=128, f=16384, x="q")
    X = iw.array("X", q, m)
    WQ, WK, WV = (iw.array(n, m, h, d) for n in ("WQ", "WK", "WV"))
    WO, W1, W2 = iw.array("WO", h, d, m), iw.array("W1", m, f), iw.array("W2", f, m)
    Q = iw.dot(X, WQ, over=m).named("Q", h, q, d)
    K = iw.dot(X[x, m], WK, over=m).named("K", h, x, d)
    V = iw.dot(X[x, m], WV, over=m).named("V", h, x, d)
    S = iw.dot(Q, K, over=d)
    P = iw.softmax(S, over=x)
    A = iw.dot(P, V, over=x)
    Z = iw.dot(A, WO, over=(h, d))
    F = iw.relu(iw.dot(Z, W1, over=m))
    return iw.diagram(X, WQ, WK, WV, WO, W1, W2, Q, K, V, S=S, P=P, A=A, Z=Z, F=F, Y=iw.dot(F, W2, over=f))


def grouped_query_attention() -> Diagram:
    k, g, q, x, d = iw.axes("k g q x d", k=8, g=4, q=8192, x=8192, d=128)
    Q, K, V = iw.array("Q", k, g, q, d), iw.array("K", k, x, d), iw.array("V", k, x, d)
    S = iw.dot(Q, K, over=d) / iw.sqrt(d.size)
    P = iw.softmax(S, over=x)
    return iw.diagram(S=S, P=P, O=iw.dot(P, V, over=x))


def layernorm() -> Diagram:
    t, m = iw.axes("t m", t=8192, m=4096)
    eps = iw.constant("eps", 1e-5)
    X, G, B = iw.array("X", t, m), iw.array("G", m), iw.array("B", m)
    M = iw.mean(X, over=m).named("M")
    R = iw.mean((X - M) ** 2, over=m).named("R")
    return iw.diagram(Y=(X - M) * iw.rsqrt(R + eps) * G + B)


def matmul() -> Diagram:
    a, b, c = iw.axes("a b c", a=4096, b=4096, c=4096)
    return iw.diagram(Z=iw.dot(iw.array("X", a, b), iw.array("Y", b, c), over=b))


def matmul_chain() -> Diagram:
    t, i, f, o = iw.axes("t i f o", t=4096, i=1024, f=4096, o=1024)
    H = iw.dot(iw.array("X", t, i), iw.array("U", i, f), over=i)
    return iw.diagram(H=H, Y=iw.dot(H, iw.array("D", f, o), over=f))


def multi_head_attention() -> Diagram:
    h, q, x, d = iw.axes("h q x d", h=32, q=8192, x=8192, d=128)
    Q, K, V = iw.array("Q", h, q, d), iw.array("K", h, x, d), iw.array("V", h, x, d)
    S = iw.dot(Q, K, over=d) / iw.sqrt(d.size)
    P = iw.softmax(S, over=x)
    return iw.diagram(S=S, P=P, O=iw.dot(P, V, over=x))


def rmsnorm_matmul() -> Diagram:
    t, m, n = iw.axes("t m n", t=8192, m=4096, n=6144)
    X, G, W = iw.array("X", t, m), iw.array("G", m), iw.array("W", m, n)
    R = iw.mean(X**2, over=m)
    N = X * iw.rsqrt(R + iw.constant("eps", 1e-5)) * G
    return iw.diagram(R=R, N=N, Y=iw.dot(N, W, over=m))


def spherical_attention() -> Diagram:
    q, x, d = iw.axes("q x d", q=4096, x=4096, d=64)
    Q, K, V = iw.array("Q", q, d), iw.array("K", x, d), iw.array("V", x, d)
    S = iw.dot(Q, K, over=d)
    N = iw.sqrt(iw.sum_(S * S, over=x))
    return iw.diagram(S=S, N=N, O=iw.dot(S / N, V, over=x))


def swiglu_mlp() -> Diagram:
    t, m, f = iw.axes("t m f", t=8192, m=4096, f=14336)
    X, G, U, D = iw.array("X", t, m), iw.array("G", m, f), iw.array("U", m, f), iw.array("D", f, m)
    A, B = iw.dot(X, G, over=m), iw.dot(X, U, over=m)
    H = iw.silu(A) * B
    return iw.diagram(A=A, B=B, H=H, Y=iw.dot(H, D, over=f))


@pytest.mark.parametrize("name", FIRST)
def test_catalogue_in_formulas(name: str) -> None:
    assert globals()[name]() == catalogue(name)


def run(source: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(source, "<to_python>", "exec"), space)
    return space["algorithm"]


@pytest.mark.parametrize("name", names())
def test_python_rebuilds_the_catalogue(name: str) -> None:
    wanted = catalogue(name)
    built = run(iw.to_python(wanted))
    assert built == wanted
    assert (built.name, built.doc) == (wanted.name, wanted.doc)


@pytest.mark.parametrize(
    "text",
    [
        "p, q = 2, 3\nn = 2 * q + 1\nX[q + n]: fp16 >= 0\nY[q] = X[q + n - 1]\nZ[p, q] = Y[q] / n + p",
        "eps = 0.5\nq = 4\nunused = 7\nX[q]: fp32 > -1\nY[q]: fp16 = fp8(X[q] + eps) * size(eps)\nZ[q] = 3\nout(Y, Z)",
        "q = 4\nX[q]: fp16\nY.max = max[q](X[q])\nY.exp[q] = exp(masked_sub(X[q], Y.max))\nout(Y.max)",
        "sum, max, dot = 2, 3, 4\nX[sum, max]: fp16\nlambda_[sum] = mean[max](X[sum, max], where=max < size(sum))",
        "q = 4\nc: fp16\nX[q]: fp16\nL = sum[q](X[q]) - c\nY[q] = q - rmsnorm[q](X[q] * L, eps=1e-6)",
    ],
)
def test_python_rebuilds_corners(text: str) -> None:
    assert run(iw.to_python(parse(text))) == parse(text)


AT_I, AT_J = Affine.axis("i"), Affine.axis("j")
LEAVES: list[Expr] = [
    *(Number(v) for v in (0, 1, 2, -3, 0.5, -1e-5, 1e30, float("inf"), float("-inf"), -0.0, True, False)),
    Constant("eps"),
    Size("eps"),
    Index("i"),
    Index("j"),
    Size("i"),
    Read("A", (AT_I, AT_J)),
    Read("A", (AT_J, AT_I)),
    Read("A", (AT_I + Affine((), (), -1), Affine((), (("j", 1),), 0))),
    Read("B", (AT_J.scale(2) + AT_I + Affine((), (("eps", -1),), 3),)),
    Read("c"),
]
BINARY = [o.name for o in OPERATORS.values() if o.arity == 2]
UNARY = [o.name for o in OPERATORS.values() if o.arity == 1]


def deeper(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    axes = st.sampled_from([("i",), ("j",), ("j", "i")])
    reductions = st.sampled_from(["sum", "max", "min", "prod", "any", "all", "mean"])
    composites = st.sampled_from(["softmax", "logsumexp", "l2norm"])
    return st.one_of(
        st.builds(lambda op, a, b: Apply(op, (a, b)), st.sampled_from(BINARY), inner, inner),
        st.builds(lambda op, a: Apply(op, (a,)), st.sampled_from(UNARY), inner),
        st.builds(lambda a, b, c: Apply("where", (a, b, c)), inner, inner, inner),
        st.builds(Reduce, reductions, axes, inner, st.none() | inner),
        st.builds(lambda op, x, a: Composite(op, x, (a,)), composites, axes, inner),
        st.builds(lambda x, a: Composite("layernorm", x, (a,), (("eps", Constant("eps")),)), axes, inner),
    )


def exact(e: object) -> str:
    """Text that tells 1 from 1.0 and True, which are equal in Python."""
    return repr(e)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(e=st.recursive(st.sampled_from(LEAVES), deeper, max_leaves=12))
def test_python_rebuilds_every_expression(monkeypatch: pytest.MonkeyPatch, e: Expr) -> None:
    """Every tree, also those that the notation refuses, for the sake of operators and parentheses."""
    monkeypatch.setattr(assemble, "check_as_text", lambda diagram: None)
    size = Affine((), (("i", 1),)), Affine((), (("j", 1),))
    wanted = Diagram(
        "",
        tuple(Definition(n, Number(v)) for n, v in (("i", 2), ("j", 3), ("eps", 1))),
        (Input("A", size, "fp16"), Input("B", (Affine((), (), 40),), "fp32"), Input("c", (), "fp16")),
        (Line("Y", ("j", "i"), e),),
        ("Y",),
    )
    built = run(iw.to_python(wanted))
    assert exact(built.lines[0].expr) == exact(e)
    assert built == wanted
    assert balanced(iw.to_latex(wanted))


@settings(max_examples=60, deadline=None)
@given(diagrams())
def test_python_rebuilds_every_diagram(wanted: Diagram) -> None:
    built = run(iw.to_python(wanted))
    assert built == wanted
    assert exact(built.lines[-1].expr) == exact(wanted.lines[-1].expr)
    assert iw.term(wanted).diagram(wanted.definitions, out=wanted.outputs) == wanted
    assert balanced(iw.to_latex(wanted))


def balanced(text: str) -> bool:
    bare = text.replace(r"\{", "").replace(r"\}", "")
    pairs = (("{", "}"), (r"\left", r"\right"), (r"\begin", r"\end"), (r"\lfloor", r"\rfloor"))
    return all(bare.count(a) - (bare.count(r"\leftarrow") if a == r"\left" else 0) == bare.count(b) for a, b in pairs)


def test_latex_of_attention() -> None:
    assert iw.to_latex(catalogue("attention")) == LATEX


@pytest.mark.parametrize(
    "line, wanted",
    [
        ("Y[i] = (A[i] + 1) * A[i] - (A[i] - 2)", r"Y_{i} &= \left(A_{i} + 1\right) \, A_{i} - \left(A_{i} - 2\right)"),
        ("Y[i] = sum[j](B[i, j]) * A[i]", r"Y_{i} &= \left(\sum_{j} B_{i, j}\right) \, A_{i}"),
        ("Y[i] = sum[j](B[i, j] + 1)", r"Y_{i} &= \sum_{j} \left(B_{i, j} + 1\right)"),
        ("Y[i] = -A[i]**2 / eps", r"Y_{i} &= \frac{-A_{i}^{2}}{\mathrm{eps}}"),
        ("Y[i] = A[i] * size(i) + j", r"Y_{i} &= A_{i} \, |i| + j"),
        (
            "Y[i] = mean[j](B[i, j], where=j <= i)",
            r"Y_{i} &= \operatorname{mean}_{j \,:\, j \le i}\left(B_{i, j}\right)",
        ),
        ("Y[i] = 2 * 3 * 1e-5", r"Y_{i} &= 2 \cdot 3 \cdot 10^{-5}"),
        ("Y[i] = max[j](fp8(B[i, j]))", r"Y_{i} &= \max_{j} \mathrm{fp8}\left(B_{i, j}\right)"),
        ("Y[i] = A[i] < 2 and not A[i] < 1", r"Y_{i} &= A_{i} < 2 \land \lnot \left(A_{i} < 1\right)"),
    ],
)
def test_latex_of_lines(line: str, wanted: str) -> None:
    d = parse(f"i, j = 2, 3\neps = 0.5\nA[i]: fp16\nB[i, j]: fp16\n{line}\nZ[i] = A[i] + B[i, 0]\nout(Y)")
    assert f"  {wanted} \\\\\n" in iw.to_latex(d)


def test_arrays_print_as_formulas() -> None:
    assert repr(S3 * 2) == "<S[q, x] * 2, axes [q, x]>"
    assert repr(iw.array("A", Q3 + X3 - 1)) == "<A[q + x - 1]>"


def test_latex_names() -> None:
    d = parse("q, d_1 = 2, 3\nalpha[q]: int8\nW_K[d_1, q + 1]: fp16 > 0\nP.max[q] = alpha[q] * W_K[0, q + 1]")
    text = iw.to_latex(d)
    assert r"\alpha &\in \mathbb{Z}^{q}" in text
    assert r"{W_{K}} &\in \mathbb{R}_{> 0}^{{d_{1}} \times (q + 1)}" in text
    assert r"\mathrm{P.max}_{q} &= \alpha_{q} \, {W_{K}}_{0, q + 1}" in text


def test_broadcasting_is_by_name() -> None:
    i, j = iw.axes("i, j", i=2, j=3)
    A, B = iw.array("A", i, j), iw.array("B", j)
    assert (A * B).axes == ("i", "j")
    assert (B + A).axes == ("j", "i")
    assert iw.max_(A, over=(i, j)).axes == ()
    assert iw.softmax(A, over=j).axes == ("i", "j")
    assert iw.logsumexp(A, over=j).axes == ("i",)


def test_lines_go_by_what_they_read() -> None:
    (i,) = iw.axes("i", i=4)
    A = iw.array("A", i)
    B = A + 1
    C = iw.exp(B) * B
    assert [n.name for n in iw.diagram(C=C, B=B).lines] == ["B", "C"]
    assert [n.name for n in iw.diagram(C=C, B=B, D=C - B).lines] == ["B", "C", "D"]
    assert iw.diagram(B=B, twin=A + 1).line("twin").expr == Read("B", (Affine.axis("i"),))


def test_sizes_at_the_end() -> None:
    i, j = iw.axes("i j")
    made = iw.diagram(Y=iw.array("A", i) * iw.array("B", j), sizes={"j": 3, "i": "j"})
    assert made == parse("j = 3\ni = j\nA[i]: fp16\nB[j]: fp16\nY[i, j] = A[i] * B[j]")
    k, n = iw.axes("k n", k=2, n=2 * iw.axes("m", m=8)[0].size)
    assert iw.diagram(Y=iw.array("A", k, n), sizes={"k": 5}).values() == {"k": 5, "m": 8, "n": 16}


Q3, X3 = iw.axes("q x", q=3, x=3)
S3 = iw.array("S", Q3, X3)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: iw.axes("q x", d=3), "no axis d"),
        (lambda: iw.axes("q x", q=True), "no number"),
        (lambda: iw.axes("if"), "no name"),
        (lambda: iw.array("A", Q3, dtype="fp15"), "unknown dtype fp15; did you mean fp16"),
        (lambda: iw.array("A", Q3, fact="positive"), "'> 0'"),
        (lambda: iw.array("A", Q3 * X3), "not affine"),
        (lambda: S3[Q3], "2 axes, not 1"),
        (lambda: iw.diagram(Y=S3[Q3 * X3, X3]), "`q \\* x` may reach 4"),
        (lambda: iw.diagram(Y=S3[S3, X3]), "`S` does not hold whole numbers"),
        (lambda: iw.scan(Q3, lambda before: before + S3, start=0) + 1, "name it before it is used"),
        (lambda: iw.scan(Q3, lambda before: before[Q3 - 1, X3] + S3, start=0), "give them, e.g. scan"),
        (lambda: iw.scan(Q3, lambda before: before + S3, start=0, axes=()), "depend on x, which axes= leaves out"),
        (lambda: iw.scan(Q3, lambda before: before + S3, start=S3), "does not depend on q"),
        (lambda: iw.topk(S3, over=X3, into=3), "into= takes the axis"),
        (lambda: iw.diagram(Y=iw.topk(S3, over=X3, into=Q3)), "cannot depend on it"),
        (lambda: iw.keep(p=0.1), "which, e.g. keep"),
        (lambda: iw.diagram(Y=S3 * iw.keep(Q3, p=1)), "at least 0 and less than 1"),
        (lambda: (S3 + 1)[Q3, X3], r"write \.named"),
        (lambda: iw.array("A", Q3 + X3 - 1) * 2, "write the index"),
        (lambda: S3.named("T", Q3), "depends on x"),
        (lambda: S3.named("T U"), "no name"),
        (lambda: S3.named("T", dtype="half"), "unknown dtype"),
        (lambda: iw.where(1 if S3 < 0 else 0, S3, 0), "where"),
        (lambda: list(S3), "not a sequence"),
        (lambda: S3 + "1", "cannot stand in a formula"),
        (lambda: iw.dot(S3, S3, over=iw.axes("d")[0]), "no operand has it"),
        (lambda: iw.sum_(S3, over=()), "over="),
        (lambda: iw.cast(S3, "half"), "unknown dtype"),
        (lambda: iw.diagram(S3 + 1), "without a name"),
        (lambda: iw.diagram(S3), "nothing is computed"),
        (lambda: iw.diagram(S=S3 + 1), "two arrays are called S"),
        (lambda: iw.diagram(Y=S3 + iw.axes("q", q=4)[0]), "q is defined twice"),
        (lambda: iw.diagram(Y=iw.array("A", *iw.axes("i"))), "axis i has no size"),
        (lambda: iw.diagram(Y=iw.array("A", *iw.axes("i", i=0))), "1 or more"),
        (lambda: iw.diagram(Y=S3, out=("Z",)), "no line"),
        (lambda: iw.diagram(Y=S3[Q3 + 1, X3]), "range"),
        (lambda: iw.diagram(Y=iw.softmax(iw.array("B", X3), over=Q3)), "keeps its axis `q`"),
        (lambda: iw.diagram(Y=S3 / Q3), "divides by the index"),
        (lambda: iw.diagram(Y=iw.array("A", *iw.axes("i", i="j"))), "j is used but has no value"),
    ],
)
def test_errors_teach(make: Callable[[], object], said: str) -> None:
    with pytest.raises(WeaveError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("module", [named, functions, import_module("ioweave.diagrams.display")])
def test_doctests(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_casts_have_functions() -> None:
    names = {"min": "minimum", "max": "maximum", "round": "round_", "abs": "abs"}
    plain = {o.name for o in OPERATORS.values() if o.symbol is None} - CASTS
    assert {names.get(n, n) for n in plain} - {"abs"} <= set(dir(iw))
