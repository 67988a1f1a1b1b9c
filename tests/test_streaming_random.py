"""Random cascades: whatever the prover plans must compute what the diagram says. No false proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_streaming_interpreter import facts, inputs, opened, trial

from ioweave.derive.streaming.repair import repair

HEADER = (
    "q, x, d = 2, 6, 2\n\nS[q, x]: fp32\nT[q, x]: fp32\nV[x, d]: fp32\nB[q]: fp32\nU[q, x]: fp32 > 0\nC[q, x]: bool\n"
)


@st.composite
def cascades(draw: st.DrawFn) -> str:
    """Lines that mix reductions over x, maps along x and functions of finished results."""
    rows = ["B[q]", "2", "size(x)"]  # values of one row
    grids = ["S[q, x]", "T[q, x]", "U[q, x]"]  # values along x

    def row(depth: int) -> str:
        kind = draw(st.integers(0, 6 if depth else 0))
        a = draw(st.sampled_from(rows))
        if kind <= 1:
            return a
        b = row(depth - 1)
        forms = ("({a} + {b})", "({a} * {b})", "sqrt(abs({a}) + 1)", "log(abs({b}) + 1)", "max({a}, {b})")
        return draw(st.sampled_from(forms)).format(a=a, b=b)

    def grid(depth: int) -> str:
        if depth == 0:
            return draw(st.sampled_from(grids))
        a = grid(depth - 1)
        b = draw(st.one_of(st.just(row(1)), st.just(grid(depth - 1))))
        forms = (
            "({a} * {b})", "({a} * {b})", "({a} - {b})", "({a} + {b})", "({a} / (abs({b}) + 1))", "({a} / {b})",
            "exp({a} - {b})", "exp({a})", "exp2({a} - {b})", "exp(-abs({a}))", "({a})**2", "where(C[q, x], {a}, 0)",
            "where(C[q, x], {a}, -inf)", "where(C[q, x], {a}, {b})", "relu({a})", "sqrt(abs({a}))", "tanh({a})",
            "log(abs({a}) + 1)", "max({a}, {b})", "where(x < 2, {a}, 0)", "round({a})", "abs({a} * {b})",
        )  # fmt: skip
        return draw(st.sampled_from(forms)).format(a=a, b=b)

    lines: list[str] = []
    for i in range(draw(st.integers(2, 5))):
        kind = draw(st.integers(0, 5))
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
            lines.append(f"{name}[q, x] = softmax[x]({draw(st.sampled_from(grids))})")
            grids.append(f"{name}[q, x]")
        else:
            op = draw(st.sampled_from(("sum", "sum", "sum", "max", "min", "mean")))
            lines.append(f"{name}[q] = {op}[x]({grid(2)})")
            rows.append(f"{name}[q]")
            if draw(st.booleans()):
                rows[:] = rows[-2:]
                grids[:] = [g for g in grids if g.startswith("n")][-1:] + grids[:1]
    last = draw(st.sampled_from(grids))
    lines.append(f"O[q, d] = sum[x]({last} / {row(1)} * V[x, d])")
    lines.append(f"out({', '.join(line.split('[')[0] for line in lines)})")
    return HEADER + "\n".join(lines) + "\n"


def check(text: str, seed: int) -> str:
    """What is wrong with the plan of a text on the inputs of a seed, or nothing."""
    o, values = opened(text)
    if seed % 5:  # most often only results of rows are wanted, so that what they make needless is dropped
        o = replace(o, outputs=tuple(n for n in o.outputs if "x" not in o.box(n).axes))
    plan = repair(o.boxes, frozenset("x"), frozenset(o.outputs), facts(o))
    rng = np.random.default_rng(seed)
    arrays = inputs(o, values, rng)
    if seed % 4 == 0:
        arrays["C"][:, :3] = False
    if seed % 4 == 1:
        arrays["C"][0] = False
    return trial(o, values, plan, "x", arrays, rng)


@settings(max_examples=60, deadline=None)
@given(cascades(), st.integers(0, 1000))
def test_a_plan_computes_what_the_diagram_says(text: str, seed: int) -> None:
    assert check(text, seed) == "", text
