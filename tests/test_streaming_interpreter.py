"""Running plans on given arrays: what the tests of the prover share, and the interpreter itself on known cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.execution.trial import TOLERANCE, Bench
from ioweave.derive.execution.trial_data import Subject
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.repair import repair
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, Opened, old, running
from ioweave.diagrams.expressions import Apply, Expr, Number, Read
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram

Arrays = dict[str, Any]
Chunk = Mapping[str, Any]  # the indices of each streamed axis: consecutive


class Machine(PlanMachine):
    """The interpreter, with the indices of a step given as arrays."""

    def loop(self, plan: Plan, steps: Sequence[Chunk], run: int) -> None:
        super().loop(plan, [_bounds(s) for s in steps], run)


def _bounds(step: Chunk) -> dict[str, tuple[int, int]]:
    return {a: (int(i[0]), int(i[-1]) + 1) if isinstance(i, np.ndarray) else i for a, i in step.items()}


def opened(text: str) -> tuple[Opened, dict[str, float]]:
    """A text opened into boxes, and its sizes and constants."""
    diagram = parse(text)
    return open_diagram(diagram), dict(diagram.values())


def inputs(o: Opened, values: dict[str, float], rng: np.random.Generator) -> Arrays:
    """Random inputs: normal, positive where a fact says so, integers below 4, bools."""
    arrays: Arrays = {}
    for i in o.inputs:
        shape = tuple(f.fixed({k: int(v) for k, v in values.items()}) for f in i.dims)
        a = rng.standard_normal(shape)
        if i.fact is not None:
            a = np.abs(a) + 0.1
        if i.dtype.startswith("int"):
            a = rng.integers(0, 4, shape)
        if i.dtype == "bool":
            a = rng.integers(0, 2, shape) > 0
        arrays[i.name] = a
    return arrays


def chunked(size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The indices of an axis in consecutive chunks of random lengths."""
    cuts = np.sort(rng.integers(0, size + 1, int(rng.integers(0, 4))))
    return [c for c in np.split(np.arange(size), cuts) if c.size]


def trial(o: Opened, values: dict[str, float], plan: Plan, axes: str, arrays: Arrays, rng: np.random.Generator) -> str:
    """Run a plan in random chunks, and merged from pieces in any order, beside the reference.

    Gives the error where the plan is wrong, or nothing.
    """

    def chunks() -> list[dict[str, tuple[int, int]]]:
        out: list[dict[str, tuple[int, int]]] = [{}]
        for a in axes:
            out = [{**c, **_bounds({a: part})} for c in out for part in chunked(int(values[a]), rng)]
        return out

    pieces: list[list[dict[str, tuple[int, int]]]] = []
    if plan.passes == 1 and plan.state:
        steps = chunks()
        cuts = sorted(int(n) for n in rng.integers(0, len(steps) + 1, 2))
        parts = (steps[: cuts[0]], steps[cuts[0] : cuts[1]], steps[cuts[1] :])
        pieces = [parts[k] for k in rng.permutation(3) if parts[k]]
    bench = Bench(o, plan, Subject.of(o, (), plan.streamed), values, arrays)
    error = bench.error(chunks(), pieces, rng)
    return "" if error <= TOLERANCE else f"error {error:.2e} of {len(pieces)} pieces"


def facts(o: Opened) -> dict[str, tuple[str, float]]:
    """The declared facts of the inputs."""
    return {i.name: i.fact for i in o.inputs if i.fact is not None}


def test_direct_evaluation_is_the_definition() -> None:
    o, values = opened("q, x = 3, 5\n\nS[q, x]: fp32\nP[q, x] = softmax[x](S[q, x])\n")
    s = np.random.default_rng(0).standard_normal((3, 5))
    out = Machine(values, {"S": s}).direct(o.boxes)["P"]
    e = np.exp(s - s.max(axis=1, keepdims=True))
    assert np.allclose(out, e / e.sum(axis=1, keepdims=True))


def _at(name: str, *axes: str) -> Read:
    return Read(name, tuple(Affine.axis(a) for a in axes))


def _box(name: str, axes: tuple[str, ...], body: Expr, over: tuple[str, ...] = (), **more: Any) -> Box:
    return Box(name, axes, body, "sum" if over else None, over, "fp32", name, **more)


def test_a_recentred_accumulator_in_steps_and_merged() -> None:
    """The mean and the sum of squares about it as Chan, Golub and LeVeque update them (1983)."""
    text = "t, m = 2, 7\n\nX[t, m]: fp32\nM[t] = mean[m](X[t, m])\nV[t] = sum[m]((X[t, m] - M[t])**2)\n"
    o, values = opened(text)
    one = Number(1)

    def square(e: Expr) -> Expr:
        return Apply("mul", (e, e))

    def mean(form: Any) -> Expr:  # 0 before anything has come
        total, count = _at(form("s"), "t"), _at(form("n"), "t")
        return Apply("div", (total, Apply("max", (count, one))))

    moved = Apply("sub", (mean(running), mean(old)))
    boxes = (
        _box("n", ("t",), one, ("m",), running=True),
        _box("s", ("t",), _at("X", "t", "m"), ("m",), running=True),
        _box("moved", ("t",), Apply("mul", (_at(old("n"), "t"), square(moved)))),
        _box(
            "V", ("t",), square(Apply("sub", (_at("X", "t", "m"), mean(running)))), ("m",), running=True,
            recentre="moved",
        ),
        _box("M", ("t",), Apply("div", (_at("s", "t"), _at("n", "t")))),
    )  # fmt: skip
    stages = (("n", 1, "body"), ("s", 1, "body"), ("moved", 1, "body"), ("V", 1, "body"), ("M", 1, "tail"))
    plan = Plan(boxes, frozenset("m"), stages, (), (), (), (), ())
    for seed in range(8):
        rng = np.random.default_rng(seed)
        arrays = inputs(o, values, rng)
        arrays["X"] += 1e3
        both = replace(o, outputs=("M", "V"))
        assert trial(both, values, plan, "m", arrays, rng) == ""
        wrong = replace(plan, boxes=tuple(replace(b, recentre=None) for b in boxes))
        assert trial(both, values, wrong, "m", arrays, np.random.default_rng(0)) != ""


def test_a_nest_of_two_streamed_axes() -> None:
    text = "q, x, y = 2, 5, 4\n\nS[q, x, y]: fp32\nA[q, x] = sum[y](S[q, x, y])\nB[q] = max[x, y](S[q, x, y])\nout(A)\n"
    o, values = opened(text)
    plan = repair(o.boxes, frozenset("xy"), frozenset(o.outputs), {})
    rng = np.random.default_rng(3)
    assert plan.passes == 1
    assert trial(o, values, plan, "xy", inputs(o, values, rng), rng) == ""
