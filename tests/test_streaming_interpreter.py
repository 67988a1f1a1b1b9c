"""A small interpreter of plans: chunked, in passes, and merged from pieces; used by the tests of the prover."""

from __future__ import annotations

from typing import Any

import numpy as np

from ioweave.derive.streaming.merge import merge_boxes, state_name
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.arithmetic import FUNCTIONS, REDUCERS
from ioweave.diagrams.boxes import Box, Opened, base_name
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.operators import REDUCTIONS

Arrays = dict[str, Any]


class Machine:
    """Evaluates boxes on arrays; ``values`` are the sizes and constants of the diagram."""

    def __init__(self, values: dict[str, float], arrays: Arrays) -> None:
        self.values = dict(values)
        self.arrays = dict(arrays)

    def size(self, axis: str) -> int:
        return int(self.values[base_name(axis)])

    def evaluate(self, box: Box, ranges: dict[str, np.ndarray]) -> Any:
        """The box on a sub-grid, reduced over its axes."""
        axes = box.all_axes
        grid = {
            a: ranges.get(a, np.arange(self.size(a))).reshape([-1 if i == k else 1 for i in range(len(axes))])
            for k, a in enumerate(axes)
        }

        def affine(f: Affine) -> Any:
            total: Any = f.offset + sum(c * int(self.values[s]) for s, c in f.sizes)
            for a, c in f.axes:
                total = total + c * grid[a]
            return total

        def of(e: Expr) -> Any:
            match e:
                case Number(value=v):
                    return v
                case Constant(name=n):
                    return self.values[n]
                case Size(axis=a):
                    return self.size(a)
                case Index(axis=a):
                    return grid[a]
                case Read(array=n, index=index):
                    array = self.arrays[n]
                    if not index:
                        return array
                    places = tuple(np.clip(affine(f), 0, s - 1) for f, s in zip(index, array.shape, strict=True))
                    return array[places]
                case Apply(op=op, args=args):
                    return FUNCTIONS[op](*(of(a) for a in args))
                case _:
                    raise AssertionError(e)

        with np.errstate(all="ignore"):
            shape = tuple(g.size for g in grid.values())
            value = np.broadcast_to(np.asarray(of(box.body)), shape)
            if box.reduction is None:
                return value
            value = np.asarray(value, dtype=float)
            where = tuple(range(len(box.axes), len(axes)))
            if value.size == 0:
                return np.full(shape[: len(box.axes)], REDUCTIONS[box.reduction].identity)
            return REDUCERS[box.reduction](value, axis=where)

    def direct(self, boxes: tuple[Box, ...]) -> Arrays:
        """Every box, whole."""
        for b in boxes:
            self.arrays[b.name] = self.evaluate(b, {})
        return self.arrays

    def loop(self, plan: Plan, chunks: list[dict[str, np.ndarray]], run: int) -> None:
        """One pass over the chunks."""
        boxes = [b for b in plan.boxes if plan.pass_of(b.name) == run and b in plan.body]
        for b in boxes:
            if b.running:
                shape = tuple(self.size(a) for a in b.axes)
                self.arrays[b.name + "~"] = np.full(shape, REDUCTIONS[b.reduction or ""].identity)
        for chunk in chunks:
            for b in boxes:
                value = self.evaluate(b, chunk)
                if b.running:
                    before = self.arrays[b.name + "~"]
                    self.arrays[b.name + "~old"] = before
                    if b.rescale is not None:
                        delta = self.evaluate(Box("", b.axes, _read(plan.box(b.rescale)), None, (), "fp64", ""), chunk)
                        assert b.reduction == "sum"
                        with np.errstate(all="ignore"):
                            before = before * delta
                    self.arrays[b.name + "~"] = _combine(b.reduction or "", before, value)
                else:
                    shape = tuple(self.size(a) for a in b.axes)
                    if b.name not in self.arrays:
                        self.arrays[b.name] = np.full(shape, np.nan)
                    places = np.ix_(*(chunk.get(a, np.arange(self.size(a))) for a in b.axes))
                    self.arrays[b.name][places] = value
        for b in boxes:
            if b.running:
                self.arrays[b.name] = self.arrays[b.name + "~"]

    def streamed(self, plan: Plan, chunks: list[dict[str, np.ndarray]]) -> Arrays:
        """The whole plan, chunk by chunk in as many passes as it needs."""
        for b in plan.head:
            self.arrays[b.name] = self.evaluate(b, {})
        for run in range(1, plan.passes + 1):
            self.loop(plan, chunks, run)
            for b in plan.tail:
                if plan.pass_of(b.name) == run:
                    self.arrays[b.name] = self.evaluate(b, {})
        return self.arrays

    def merged(self, plan: Plan, pieces: list[list[dict[str, np.ndarray]]]) -> Arrays:
        """The state of every piece by itself, merged, then the tail."""
        for b in plan.head:
            self.arrays[b.name] = self.evaluate(b, {})
        states = []
        for chunks in pieces:
            self.loop(plan, chunks, 1)
            states.append({b.name: self.arrays[b.name] for b in plan.state})
        for b in plan.state:
            self.arrays[state_name(b.name)] = np.stack([s[b.name] for s in states])
        self.values["part"] = len(pieces)
        return self.direct(merge_boxes(plan))


def _read(box: Box) -> Read:
    return Read(box.name, tuple(Affine.axis(a) for a in box.axes))


@np.errstate(all="ignore")
def _combine(op: str, a: Any, b: Any) -> Any:
    match op:
        case "sum":
            return a + b
        case "prod":
            return a * b
        case "max" | "any":
            return np.maximum(a, b)
        case _:
            return np.minimum(a, b)


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


def close(a: Any, b: Any) -> bool:
    """Equal to 1e-9 wherever the reference ``b`` is finite."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    finite = np.isfinite(b)
    scale = max(1.0, float(np.max(np.abs(b[finite]), initial=0)))
    return bool(np.all(np.isfinite(a[finite])) and np.all(np.abs(a[finite] - b[finite]) <= 1e-9 * scale))


def trial(o: Opened, values: dict[str, float], plan: Plan, axes: str, arrays: Arrays, rng: np.random.Generator) -> str:
    """Run a plan in random chunks, and merged from two pieces, against direct evaluation; what is wrong, or ``""``."""
    reference = dict(Machine(values, arrays).direct(o.boxes))

    def chunks() -> list[dict[str, np.ndarray]]:
        out: list[dict[str, np.ndarray]] = [{}]
        for a in axes:
            out = [{**c, a: part} for c in out for part in chunked(int(values[a]), rng)]
        return out

    got = Machine(values, arrays).streamed(plan, chunks())
    wrong = [f"streamed {n}" for n in o.outputs if not close(got[n], reference[n])]
    if plan.passes == 1 and plan.state:
        steps = chunks()
        cut = int(rng.integers(0, len(steps) + 1))
        got = Machine(values, arrays).merged(plan, [p for p in (steps[:cut], steps[cut:]) if p])
        wrong += [f"merged {n}" for n in o.outputs if not close(got[n], reference[n])]
    return ", ".join(wrong)


def facts(o: Opened) -> dict[str, tuple[str, float]]:
    """The declared facts of the inputs."""
    return {i.name: i.fact for i in o.inputs if i.fact is not None}


def test_direct_evaluation_is_the_definition() -> None:
    o, values = opened("q, x = 3, 5\n\nS[q, x]: fp32\nP[q, x] = softmax[x](S[q, x])\n")
    s = np.random.default_rng(0).standard_normal((3, 5))
    out = Machine(values, {"S": s}).direct(o.boxes)["P"]
    e = np.exp(s - s.max(axis=1, keepdims=True))
    assert np.allclose(out, e / e.sum(axis=1, keepdims=True))
