"""Random cascades: whatever the prover plans must compute what the diagram says. No false proof."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from test_streaming_interpreter import facts

from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram

HEADER = """h, q, x, d = 2, 2, 6, 2
w = 3

S[q, x]: fp32
T[q, x]: fp32
V[x, d]: fp32
B[q]: fp32
U[q, x]: fp32 > 0
C[q, x]: bool
D[x]: int32
H[h, q, x]: fp32
M[h]: fp32
"""
FIRST = ("S[q, x]", "T[q, x]", "U[q, x]")
OF_ROWS = (
    "({a} + {b})", "({a} * {b})", "({a} - {b})", "sqrt(abs({a}) + 1)", "log(abs({b}) + 1)", "max({a}, {b})",
    "rsqrt(abs({a}) + 0.5)", "({a})**2", "exp(-abs({a}))", "min({a}, 2)", "where({a} > {b}, {a}, 1)",
)  # fmt: skip
OF_GRIDS = (
    # products, quotients, sums
    "({a} * {b})", "({a} * {b})", "({a} - {b})", "({a} + {b})", "({a} / (abs({b}) + 1))", "({a} / {b})", "({a})**2",
    "({a} - {b})**2", "(1 + {a})**3", "({a} - {a}**2)", "0.5 * {a}", "-{a}",
    # exponentials, logarithms, roots
    "exp({a} - {b})", "exp({a})", "exp2({a} - {b})", "exp(-abs({a}))", "exp(0.5 * {a})", "exp({a} + log(abs({b}) + 1))",
    "log(abs({a}) + 1)", "log(U[q, x])", "sqrt(abs({a}))", "rsqrt(abs({a}) + 0.1)", "abs({a})**1.5", "2**{a}",
    # masks
    "where(C[q, x], {a}, 0)", "where(C[q, x], {a}, -inf)", "where(C[q, x], {a}, {b})", "where(x < 2, {a}, 0)",
    "where(x <= q + w, {a}, -inf)", "where(D[x] == 1, {a}, 0)", "where({a} > {b}, {a}, 0)", "{a} * (x >= w)",
    # other maps
    "relu({a})", "tanh({a})", "sigmoid({a})", "max({a}, {b})", "min({a}, {b})", "abs({a} * {b})", "round({a})",
    "fp16({a})", "fp8({a})", "floor({a})",
)  # fmt: skip
REDUCTIONS = ("sum", "sum", "sum", "sum", "max", "min", "mean", "prod")
OF_WEIGHTS = ("{a}", "{a}", "{a}**2", "(1 - {a})", "({a} - 0.5 * {a}**2)", "(1 + {a})**3", "{a} * log({a} + 1e-3)")


@st.composite
def cascades(draw: st.DrawFn) -> str:
    """Lines that mix reductions over x, maps along x and functions of finished results."""
    rows = ["B[q]", "2", "size(x)"]  # values of one row
    grids = list(FIRST)  # values along x

    def row(depth: int) -> str:
        a = draw(st.sampled_from(rows))
        if depth == 0 or draw(st.integers(0, 3)) == 0:
            return a
        return draw(st.sampled_from(OF_ROWS)).format(a=a, b=row(depth - 1))

    def grid(depth: int) -> str:
        if depth == 0:
            return draw(st.sampled_from(grids))
        a = grid(depth - 1)
        b = draw(st.one_of(st.just(row(1)), st.just(grid(depth - 1))))
        return draw(st.sampled_from(OF_GRIDS)).format(a=a, b=b)

    lines: list[str] = []
    for i in range(draw(st.integers(1, 5))):
        kind = draw(st.integers(0, 9))
        name = f"n{i}"
        if kind == 0:
            lines.append(f"{name}[q, x] = {grid(2)}")
            grids.append(f"{name}[q, x]")
        elif kind == 1:
            lines.append(f"{name}[q] = {row(2)}")
            rows.append(f"{name}[q]")
        elif kind == 2:
            a = grid(1)
            lines += [f"{name}m[q] = max[x]({a})", f"{name}[q, x] = exp({a} - {name}m[q])"]
            grids.append(f"{name}[q, x]")
            rows.append(f"{name}m[q]")
        elif kind == 3:
            op = draw(st.sampled_from(("softmax", "softmax", "rmsnorm", "l2norm", "layernorm")))
            lines.append(f"{name}[q, x] = {op}[x]({draw(st.sampled_from(grids))})")
            grids.append(draw(st.sampled_from(OF_WEIGHTS)).format(a=f"{name}[q, x]"))
        elif kind == 4:  # heads mixed between the weights and what reads them
            score = draw(st.sampled_from(("H[h, q, x]", "H[h, q, x] + S[q, x]", "where(C[q, x], H[h, q, x], -inf)")))
            lines.append(f"{name}p[h, q, x] = {draw(st.sampled_from(('softmax[x]', 'exp', 'l2norm[x]')))}({score})")
            lines.append(f"{name}[q, x] = sum[h](M[h] * {name}p[h, q, x])")
            grids.append(f"{name}[q, x]")
        elif kind == 5:
            op = draw(st.sampled_from(("any", "all")))
            lines.append(f"{name}[q] = where({op}[x]({grid(1)} > {row(1)}), {row(1)}, {row(1)})")
            rows.append(f"{name}[q]")
        else:
            op = draw(st.sampled_from(REDUCTIONS))
            mask = draw(st.sampled_from(("", "", ", where=C[q, x]", ", where=x % 2 == 0")))
            lines.append(f"{name}[q] = {op}[x]({grid(draw(st.integers(0, 2)))}{mask})")
            rows.append(f"{name}[q]")
            if draw(st.booleans()):  # a chain: what follows depends on this
                rows[:] = rows[-2:]
                grids[:] = [g for g in grids if "n" in g][-1:] + grids[:1]
    last = draw(st.sampled_from(grids))
    lines.append(f"O[q, d] = sum[x]({last} / {row(1)} * V[x, d])")
    lines.append(f"out({', '.join(line.split('[')[0] for line in lines)})")
    return HEADER + "\n".join(lines) + "\n"


def check(text: str, seed: int, draws: int = 4) -> str:
    """What is wrong with the plan of a text, in trials from a seed, or nothing."""
    diagram = parse(text)
    o = open_diagram(diagram)
    if seed % 5:  # most often only results of rows are wanted, so that what they make needless is dropped
        o = replace(o, outputs=tuple(n for n in o.outputs if "x" not in o.box(n).axes))
    plan = repair(o.boxes, frozenset("x"), frozenset(o.outputs), facts(o))
    trials = try_plan(o, plan, diagram.values(), definitions=diagram.definitions, draws=draws, seed=seed)
    assert trials
    return "; ".join(str(t) for t in trials if not t.passed)


@settings(max_examples=60, deadline=None)
@given(cascades(), st.integers(0, 1000))
def test_a_plan_computes_what_the_diagram_says(text: str, seed: int) -> None:
    assert check(text, seed) == "", text
