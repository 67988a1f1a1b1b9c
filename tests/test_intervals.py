"""Proved bounds: no value ever outside them, and the bounds that a row's shape proves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_streaming_interpreter import Machine

from ioweave.derive.execution.draws import draw_sizes
from ioweave.derive.streaming.formats import cast_error, largest_finite, smallest_positive
from ioweave.derive.streaming.intervals import Interval, Intervals, fits, fits_above
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Apply, Constant, Expr, Number, Read, Size
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.diagrams.operators import OPERATORS

CATALOGUE = sorted((Path(__file__).parent.parent / "ioweave" / "diagrams" / "catalogue").glob("*.weave"))
HEADER = "q, x, d, e = 5, 6, 4, 3\nc = 2\neps = 1e-5\n\nQ[q, d]: fp32\nK[x, d]: fp32\nV[x, e]: fp32\nG[d]: fp32\n"
SCORES = "S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(size(d))\n"

# scalar expressions: each leaf reads an array of its own range
FACTS = {"B": (">", 0.0), "D": ("<=", -1.0)}
OPS = sorted(OPERATORS)


def leaves() -> st.SearchStrategy[Expr]:
    """Arrays and literals."""
    arrays = st.sampled_from([Read(n) for n in "ABD"])
    numbers = st.sampled_from([Number(v) for v in (-2, -1, 0, 0.5, 1, 2, 3, 1e3, True)])
    return st.one_of(arrays, arrays, numbers)


def larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """An operator on smaller expressions; masks among them."""

    def apply(op: str) -> st.SearchStrategy[Expr]:
        return st.tuples(*[inner] * OPERATORS[op].arity).map(lambda a: Apply(op, a))

    masked = st.tuples(inner, inner, inner).map(
        lambda t: Apply("where", (Apply("lt", (t[0], t[1])), t[2], Number(-math.inf)))
    )
    return st.one_of(st.sampled_from(OPS).flatmap(apply), st.sampled_from(OPS).flatmap(apply), masked)


EXPRESSIONS = st.recursive(leaves(), larger, max_leaves=9)


class Undefined(Exception):
    """A division by 0, or a result that is no number."""


def value(e: Expr, at: dict[str, float]) -> Any:
    """The value of an expression; raises Undefined where the reals have none."""
    match e:
        case Number(value=v):
            return np.float64(v)
        case Read(array=n):
            return np.float64(at[n])
        case Apply(op=op, args=args):
            parts = [value(a, at) for a in args]
            divides = op in ("div", "mod", "floordiv", "masked_div")
            root = op in ("rsqrt", "log", "log2") and parts[0] == 0
            if (divides and parts[1] == 0) or root or (op == "pow" and parts[0] == 0 and not parts[1] >= 0):
                raise Undefined
            if op == "neg" and np.asarray(parts[0]).dtype == bool:
                raise Undefined
            with np.errstate(all="ignore"):
                result = FUNCTIONS[op](*parts)
            # an overflow of finite values is no value of the reals
            if np.isnan(result) or (np.isinf(result) and all(np.isfinite(p) for p in parts)):
                raise Undefined
            return result
    raise AssertionError(e)


def holds(bound: Interval, v: float, slack: float = 0.0) -> bool:
    """Whether a value is in an interval."""
    if v == -math.inf and bound.masked:
        return True
    if v == math.inf and bound.infinite:
        return True
    room = slack * max(1.0, abs(v) if math.isfinite(v) else 0.0)
    return bound.lo - room <= v <= bound.hi + room and math.isfinite(v)


POINTS = st.fixed_dictionaries(
    {
        "A": st.one_of(st.floats(-5, 5), st.floats(-1e6, 1e6), st.integers(-3, 3).map(float)),
        "B": st.one_of(st.floats(1e-6, 5), st.floats(1, 1e6), st.just(1.0)),
        "D": st.one_of(st.floats(-5, -1), st.floats(-1e6, -1), st.just(-1.0)),
    }
)


@settings(max_examples=250, deadline=None)
@given(EXPRESSIONS, st.lists(POINTS, min_size=3, max_size=6))
def test_values_lie_within_the_interval(e: Expr, points: list[dict[str, float]]) -> None:
    bound = Intervals({}, FACTS, {}).of(e)
    for at in points:
        try:
            v = float(value(e, at))
        except (Undefined, OverflowError):
            continue
        assert holds(bound, v, 1e-9), (e, at, v, bound)


def bounds(text: str, **over: float) -> tuple[Intervals, Opened, dict[str, float]]:
    """The bounds of a diagram's arrays, and what it opens to."""
    diagram = parse(text)
    opened = open_diagram(diagram)
    values = dict(diagram.values(over))
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    return Intervals({b.name: b for b in opened.boxes}, facts, values), opened, values


def draw(opened: Opened, values: dict[str, float], rng: np.random.Generator, spread: float) -> dict[str, Any]:
    """Inputs that satisfy their facts; where the spread is 0, ones in a few places, the same in every array."""
    arrays: dict[str, Any] = {}
    for i in opened.inputs:
        shape = tuple(f.fixed({k: int(v) for k, v in values.items()}) for f in i.dims)
        if DTYPES[i.dtype].kind == "bool":
            arrays[i.name] = rng.integers(0, 2, shape).astype(bool)
        elif DTYPES[i.dtype].kind == "int":
            arrays[i.name] = rng.integers(0, 4, shape)
        else:
            a = rng.standard_normal(shape) * spread if spread else np.indices(shape).sum(0) % 3 == 1
            arrays[i.name] = np.abs(a) + 0.1 if i.fact is not None else np.asarray(a, dtype=float)
    return arrays


def violations(text: str, seed: int, *, sizes: bool = True, divides: bool = False) -> list[tuple[str, float, Interval]]:
    """Elements of arrays that lie outside their intervals, on random inputs of several spreads.

    Where a division by 0 is possible (``divides``) an infinity that is not expected ends a run.
    """
    diagram = parse(text)
    rng = np.random.default_rng(seed)
    values = dict(draw_sizes(diagram, rng))
    opened = open_diagram(diagram)
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    found = Intervals({b.name: b for b in opened.boxes}, facts, values if sizes else {})
    wrong: list[tuple[str, float, Interval]] = []
    for spread in (0.0, 0.01, 1.0, 30.0):
        arrays = Machine(dict(values), draw(opened, values, rng, spread)).direct(opened.boxes)
        for b in opened.boxes:
            bound = found.array(b.name)
            all_of_it = np.asarray(arrays[b.name], dtype=float).ravel()
            if divides and np.isinf(all_of_it).any() and not (bound.masked or bound.infinite):
                break
            finite = all_of_it[np.isfinite(all_of_it)]
            extremes = [finite.min(), finite.max()] if finite.size else []
            extremes += [-math.inf] if bound.lo > -math.inf and np.isneginf(all_of_it).any() else []
            wrong += [(b.name, float(v), bound) for v in extremes if not holds(bound, float(v), 1e-9)]
    return wrong


@pytest.mark.parametrize("path", CATALOGUE, ids=lambda p: p.stem)
def test_every_array_of_the_catalogue_lies_within_its_interval(path: Path) -> None:
    text = path.read_text("utf-8")
    assert violations(text, 0) == []
    assert violations(text, 1, sizes=False) == []


# a row over what may or may not bound it: most of these prove nothing, and must claim nothing
SEVERAL = """q, x, d, c = 4, 5, 3, 3
Q[q, d]: fp32
K[x, d]: fp32
G[d]: fp32
M[q, d]: bool
W[d, c]: fp32
mu[q] = mean[d](Q[q, d])
top[q] = max[d](Q[q, d])
low[q] = min[d](Q[q, d])
"""
ROWS = (
    *("Q[q, d]", "Q[q, d] - mu[q]", "abs(Q[q, d])", "Q[q, d] * G[d]", "Q[q, d]**2", "relu(Q[q, d])", "tanh(Q[q, d])"),
    *("exp(Q[q, d])", "exp(Q[q, d] - top[q])", "exp(low[q] - Q[q, d])", "where(d < 2, Q[q, d], 0)", "Q[q, d] * mu[q]"),
    *("where(M[q, d], Q[q, d], 0)", "where(M[q, d], exp(Q[q, d]), 0)", "where(M[q, d], Q[q, d], -inf)"),
    *("exp(where(M[q, d], Q[q, d], -inf))", "top[q] - Q[q, d]", "fp16(Q[q, d])", "Q[q, d] + 1", "sqrt(abs(Q[q, d]))"),
    *("where(M[q, d], Q[q, d]**2, -inf)", "sum[c](Q[q, c] * W[d, c])", "Q[q, d]**3", "abs(Q[q, d] - top[q])"),
)
DIVISORS = (
    *("sqrt(sum[d]({0}**2) + {e})", "sqrt(mean[d]({0}**2) + {e})", "(sum[d]({0}) + {e})", "(max[d]({0}) + {e})"),
    *("max[d](abs({0}))", "(sum[d](abs({0})) + {e})", "max(sqrt(sum[d]({0}**2)), 0.001)", "max(sum[d]({0}), 1)"),
    *("sqrt(sum[q]({0}**2) + {e})", "sum[q](abs({0}))", "exp(logsumexp[d]({0}))", "(max[d]({0}) - min[d]({0}) + {e})"),
    *("sqrt(mean[d]({0}**2) - mean[d]({0})**2 + {e})", "min[d](abs({0}))", "(sum[d]({0}**2) + {e})", "1"),
)


@st.composite
def cascades(draw: st.DrawFn) -> str:
    """Rows, divided and contracted; the divisor is mostly that of the row itself."""
    row = draw(st.sampled_from(ROWS))
    other = draw(st.one_of(st.just(row), st.just(row), st.sampled_from(ROWS)))
    e = draw(st.sampled_from(("0", "1e-5", "0.5", "-0.01")))
    divisor = draw(st.sampled_from(DIVISORS)).format(f"({other})", e=e)
    scale = draw(st.sampled_from(("1", "2", "-3", "G[d]", "tanh(G[d])", "mu[q]", "sqrt(size(d))")))
    then = draw(
        st.sampled_from(
            (
                "sum[d](A[q, d] * tanh(K[x, d]))",
                "sum[d](A[q, d] * K[x, d]) / sqrt(sum[d](K[x, d]**2))",
                "sum[d](A[q, d] * A[q, d])",
                "sum[d](A[q, d]) - max[d](A[q, d])",
                "sum[d](A[q, d] * Q[q, d]) / sum[d](Q[q, d]**2)",
                "sum[d](A[q, d]**2) / sum[d](abs(A[q, d]))**2",
                "sum[d](exp(A[q, d] - max[d](A[q, d])))",
                "2 * sum[d](A[q, d] * K[x, d]) - sum[d](A[q, d]**2) - sum[d](K[x, d]**2)",
                "max[d](A[q, d]) - min[d](A[q, d])",
                "sum[d](fp16(A[q, d]) * l2norm[d](K[x, d]))",
                "sum[d](where(d > 0, A[q, d - 1], A[q, d]) * l2norm[d](K[x, d]))",
                "sum[d](softmax[d](A[q, d]) * tanh(K[x, d]))",
            )
        )
    )
    axes = "q, x" if "x" in then.replace("max", "").replace("exp", "") else "q"
    outputs = "".join(f"out({n})\n" for n in ("A", "Z", "mu", "top", "low"))
    return f"{SEVERAL}A[q, d] = ({row}) * {scale} / {divisor}\nZ[{axes}] = {then}\n{outputs}"


@settings(max_examples=80, deadline=None)
@given(cascades(), st.integers(0, 99))
def test_rows_over_anything_lie_within_their_intervals(text: str, seed: int) -> None:
    assert violations(text, seed, divides=True) == []


ROOT_D = math.sqrt(4)
NORMED = "B[x, d] = K[x, d] / sqrt(sum[d](K[x, d]**2))\n"
DOT = "Z[q, x] = sum[d](A[q, d] * B[x, d])\n"
UNKNOWN = (-math.inf, math.inf)

# what the text after the header makes of Z: its bounds, attained or nearly
SHAPES: dict[str, tuple[str, tuple[float, float]]] = {
    "unit rows": ("A[q, d] = Q[q, d] / sqrt(sum[d](Q[q, d]**2))\n" + NORMED + DOT, (-1, 1)),
    "unit rows by the composite": ("A[q, d] = l2norm[d](Q[q, d])\nB[x, d] = l2norm[d](K[x, d])\n" + DOT, (-1, 1)),
    "unit rows, divided after": (
        "n[q] = sum[d](Q[q, d] * Q[q, d])\nm[x] = sqrt(sum[d](K[x, d]**2))\n"
        "Z[q, x] = sum[d](Q[q, d] * K[x, d]) * rsqrt(n[q]) / m[x]\n",
        (-1, 1),
    ),
    "unit rows, clamped": (
        "A[q, d] = Q[q, d] / max(sqrt(sum[d](Q[q, d]**2)), 1e-6)\n" + NORMED + DOT,
        (-1, 1),
    ),
    "unit rows, eps outside the root": (
        "A[q, d] = Q[q, d] / (sqrt(sum[d](Q[q, d]**2)) + 1e-6)\n" + NORMED + DOT,
        (-1, 1),
    ),
    "a temperature": ("A[q, d] = l2norm[d](Q[q, d])\n" + NORMED + DOT.replace("B[x, d])", "B[x, d]) * 8"), (-8, 8)),
    "root mean squares": ("A[q, d] = rmsnorm[d](Q[q, d])\nB[x, d] = rmsnorm[d](K[x, d])\n" + DOT, (-4, 4)),
    "standard deviations": (
        "A[q, d] = layernorm[d](Q[q, d])\nB[x, d] = rmsnorm[d](K[x, d])\n" + DOT.replace("sum", "0.5 * sum"),
        (-2, 2),
    ),
    "a variance from two moments": (
        "u[q] = mean[d](Q[q, d])\nv[q] = mean[d](Q[q, d]**2) - u[q]**2\n"
        "A[q, d] = (Q[q, d] - u[q]) / sqrt(v[q] + eps)\n" + NORMED + DOT,
        (-2, 2),
    ),
    "a bounded gain": ("A[q, d] = l2norm[d](Q[q, d]) * tanh(G[d])\n" + NORMED + DOT, (-1, 1)),
    "an unknown gain": ("A[q, d] = l2norm[d](Q[q, d]) * G[d]\n" + NORMED + DOT, UNKNOWN),
    "an unknown scale": ("A[q, d] = l2norm[d](Q[q, d]) * Q[q, 0]\n" + NORMED + DOT, UNKNOWN),
    "a divisor used twice": (
        "A[q, d] = Q[q, d] / sum[d](Q[q, d]**2)\nZ[q] = sum[d](A[q, d] * A[q, d])\n",
        (0, math.inf),
    ),
    "over another axis": ("A[q, d] = Q[q, d] / sqrt(sum[q](Q[q, d]**2))\n" + NORMED + DOT, (-2, 2)),
    "another row's length": ("A[q, d] = Q[q, d] / sqrt(sum[d](K[q, d]**2))\n" + NORMED + DOT, UNKNOWN),
    "a negative eps": ("A[q, d] = Q[q, d] / sqrt(sum[d](Q[q, d]**2) - eps)\n" + NORMED + DOT, UNKNOWN),
    "one row only": ("A[q, d] = l2norm[d](Q[q, d])\nB[x, d] = K[x, d]\n" + DOT, UNKNOWN),
    "rotated rows": (
        "N[q, d] = l2norm[d](Q[q, d])\n"
        "A[q, d] = N[q, d] * cos(G[d]) + where(d < c, -N[q, d + c], N[q, d - c]) * sin(G[d])\n" + NORMED + DOT,
        (-1 - math.sqrt(2), 1 + math.sqrt(2)),
    ),
    "below the maximum": (SCORES + "Z[q, x] = S[q, x] - max[x](S[q, x])\n", (-math.inf, 0)),
    "below the maximum, scaled": (SCORES + "Z[q, x] = 3 * S[q, x] - 3 * max[x](S[q, x])\n", (-math.inf, 0)),
    "below the maximum and another": (SCORES + "Z[q, x] = S[q, x] - max(max[x](S[q, x]), Q[q, 0])\n", (-math.inf, 0)),
    "below another maximum": (SCORES + "Z[q, x] = S[q, x] - max[q](S[q, x])\n", (-math.inf, 0)),
    "below a maximum of something else": (SCORES + "Z[q, x] = 2 * S[q, x] - max[x](S[q, x])\n", UNKNOWN),
    "below a minimum": (SCORES + "Z[q, x] = S[q, x] - min[x](S[q, x])\n", (0, math.inf)),
    "softmax": (SCORES + "Z[q, x] = softmax[x](S[q, x])\n", (0, 1)),
    "softmax without a maximum": (SCORES + "Z[q, x] = exp(S[q, x]) / sum[x](exp(S[q, x]))\n", (0, 1)),
    "softmax by logarithms": (SCORES + "Z[q, x] = exp(S[q, x] - logsumexp[x](S[q, x]))\n", (0, 1)),
    "softmax with a sink": (
        SCORES + "Z[q, x] = exp(S[q, x]) / (sum[x](exp(S[q, x])) + exp(Q[q, 0]))\n",
        (0, 1),
    ),
    "softmax over another axis": (SCORES + "Z[q, x] = exp(S[q, x]) / sum[d](exp(Q[q, d]))\n", (0, math.inf)),
    "more than the sum": (SCORES + "Z[q, x] = 5 * softmax[x](S[q, x])\n", (0, 5)),
    "weights of bounded values": (
        SCORES + "P[q, x] = softmax[x](S[q, x])\nZ[q, e] = sum[x](P[q, x] * tanh(V[x, e]))\n",
        (-1, 1),
    ),
    "weights divided after": (
        SCORES + "Z[q, e] = sum[x](exp(S[q, x]) * tanh(V[x, e])) / sum[x](exp(S[q, x]))\n",
        (-1, 1),
    ),
    "over the largest": ("Z[q, d] = Q[q, d] * 127 / max[d](abs(Q[q, d]))\n", (-127, 127)),
    "over the largest of other places": ("Z[q, d] = Q[q, d] / max[d](abs(Q[q, d] + 1))\n", UNKNOWN),
    "over the largest that is not hidden": (
        "h[q] = max[d](where(K[q, d] > 0, Q[q, d]**2, -inf))\nZ[q, d] = Q[q, d]**2 / (h[q] + 1)\n",
        (0, math.inf),
    ),
    "a distance": ("Z[q, x] = -sum[d]((Q[q, d] - K[x, d])**2)\n", (-math.inf, 0)),
    "a distance, expanded": (
        "Z[q, x] = 2 * sum[d](Q[q, d] * K[x, d]) - sum[d](Q[q, d]**2) - sum[d](K[x, d]**2)\n",
        (-math.inf, 0),
    ),
    "less than a distance": (
        "Z[q, x] = 2 * sum[d](Q[q, d] * K[x, d]) - 0.9 * sum[d](Q[q, d]**2) - sum[d](K[x, d]**2)\n",
        UNKNOWN,
    ),
    "a square, expanded": ("Z[q, d] = Q[q, d]**2 - 2 * Q[q, d] * G[d] + G[d]**2\n", (0, math.inf)),
    "not a square": ("Z[q, d] = Q[q, d]**2 - 3 * Q[q, d] * G[d] + G[d]**2\n", UNKNOWN),
    "a capped score": (SCORES + "Z[q, x] = 30 * tanh(S[q, x] / 30)\n", (-30, 30)),
    "at least one of a sum": (
        SCORES + "m[q] = max[x](S[q, x])\nZ[q] = log(sum[x](exp(S[q, x] - m[q])))\n",
        (0, math.log(6)),
    ),
    "a mean": ("Z[q] = mean[d](sigmoid(Q[q, d]))\n", (0, 1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_a_shape_proves(name: str) -> None:
    text, (lo, hi) = SHAPES[name]
    used = [line for line in HEADER.splitlines() if ":" not in line or f"{line[0]}[" in text]
    text = "\n".join(used) + "\n" + text
    if "eps" not in text.split("\n\n", 1)[1]:
        text = text.replace("eps = 1e-5\n", "")
    found, _, _ = bounds(text)
    z = found.array("Z")
    assert (z.lo, z.hi) == pytest.approx((lo, hi), rel=1e-6, abs=1e-9)
    assert violations(text, 3) == []


NUMPY: dict[str, Any] = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}


@pytest.mark.parametrize("dtype", NUMPY)
def test_ranges_of_types_are_those_of_numpy(dtype: str) -> None:
    info = np.finfo(NUMPY[dtype])
    assert largest_finite(dtype) == float(info.max)
    assert smallest_positive(dtype) == float(info.smallest_subnormal)
    assert cast_error(dtype)[0] == float(info.eps) / 2


def test_ranges_of_narrow_types() -> None:
    assert {t: largest_finite(t) for t in ("fp8", "fp8_e5m2", "fp4", "int8", "bool")} == {
        "fp8": 448.0,
        "fp8_e5m2": 57344.0,
        "fp4": 6.0,
        "int8": 127.0,
        "bool": 1.0,
    }
    assert smallest_positive("fp8") == 2.0**-9
    assert smallest_positive("fp4") == 0.5
    assert largest_finite("bf16") == pytest.approx(3.3895e38, rel=1e-4)


def test_an_exponential_fits_a_type() -> None:
    softcap = Interval(-50.0, 50.0)
    assert fits(softcap, "fp32")
    assert fits(softcap, "fp32", terms=2**40)
    assert not fits(softcap, "fp16")
    assert not fits_above(softcap, "fp16")
    assert fits(Interval(-9.0, 9.0), "fp16")
    assert fits_above(Interval(-math.inf, 0.0), "fp16", terms=60000)
    assert not fits_above(Interval(-math.inf, 0.0), "fp16", terms=70000)
    assert not fits(Interval(-math.inf, 0.0), "fp32")
    assert fits(Interval(-5.0, 5.0, masked=True), "fp32")  # what is masked is exactly 0
    assert not fits_above(Interval(0.0, math.inf, infinite=True), "fp32")


def test_casts_of_rows_keep_their_norms() -> None:
    text = "q, d = 3, 64\nQ[q, d]: fp32\nA[q, d] = fp16(l2norm[d](Q[q, d]))\nZ[q] = sum[d](A[q, d]**2)\n"
    found, _, _ = bounds(text)
    assert 1 < found.array("Z").hi < 1.002


def test_running_values_are_not_finished_ones() -> None:
    found, _, _ = bounds("q, x = 3, 4\nS[q, x]: fp32\nE[q, x] = tanh(S[q, x])\nZ[q] = max[x](E[q, x])\nout(Z)\n")
    assert found.array("Z") == Interval(-1.0, 1.0)
    assert found.array("Z~").masked
    assert found.array("Z~old").masked


def test_unknown_sizes_are_at_least_one() -> None:
    text = (
        "q, x, d = 3, 4, 5\nQ[q, d]: fp32\nK[x, d]: fp32\nA[q, d] = rmsnorm[d](Q[q, d])\nB[x, d] = l2norm[d](K[x, d])\n"
    )
    opened = open_diagram(parse(text + "Z[q, x] = sum[d](l2norm[d](A[q, d]) * B[x, d])\n"))
    found = Intervals({b.name: b for b in opened.boxes}, {}, {})
    assert found.array("A").hi == math.inf
    assert found.array("B").hi == pytest.approx(1)
    assert found.of(Size("d")) == Interval(1.0, math.inf)
    assert not found.of(Constant("scale")).bounded
