"""Plans with polynomials: their degrees, the errors proved of them, and what no polynomial may stand for."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import e, exp, factorial

import numpy as np
import pytest

from ioweave.derive.execution.plan_machine import PlanMachine
from ioweave.derive.reporting.approximated import approximate_verdict, parse_error
from ioweave.derive.reporting.verbs import stream
from ioweave.derive.streaming.approximate import Approximate, Unapproximable, approximate
from ioweave.derive.streaming.polynomial import MOST_MOMENTS, Target
from ioweave.derive.streaming.series import VARIABLE as T
from ioweave.derive.streaming.series import NotAnalytic, coefficients, high, interval, low
from ioweave.derive.streaming.verdict import prove
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Expr, Number, Read
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.approximation import above

HEAD = """q, x, d = 8, 8, 4
S[q, x]: fp32
V[x, d]: fp32
P[q, x] = softmax[x](S[q, x])
"""
TWICE = HEAD + "R[q, x] = softmax[x](P[q, x])\nO[q, d] = sum[x](R[q, x] * V[x, d])\n"


def of(body: str) -> str:
    return f"{HEAD}O[q, d] = sum[x]({body} * V[x, d])\n"


def made(text: str, error: float = 1e-6) -> Approximate:
    d = parse(text)
    return approximate(open_diagram(d), "x", d.values(), error)


def apply(op: str, *args: Expr | float) -> Expr:
    return Apply(op, tuple(Number(a) if isinstance(a, int | float) else a for a in args))


def value(f: Expr, t: float) -> float:
    if f == T:
        return t
    if isinstance(f, Number):
        return float(f.value)
    assert isinstance(f, Apply)
    return float(FUNCTIONS[f.op](*(value(a, t) for a in f.args)))


ANALYTIC = {
    "exp": apply("exp", T),
    "exp2": apply("exp2", apply("neg", T)),
    "sin": apply("sin", apply("mul", 3, T)),
    "cos": apply("cos", apply("mul", 5, T)),
    "tanh": apply("tanh", T),
    "sigmoid": apply("sigmoid", apply("mul", 4, T)),
    "silu": apply("silu", T),
    "gelu": apply("gelu", T),
    "erf": apply("erf", T),
    "inverse": apply("div", 1, apply("add", 1, T)),
    "root": apply("sqrt", apply("add", 1, T)),
    "rsqrt": apply("rsqrt", apply("add", 1, T)),
    "power": apply("pow", apply("add", 1, T), 1.5),
    "log": apply("log", apply("add", 1, T)),
    "product": apply("mul", apply("sin", T), apply("exp", T)),
    "branch": apply("where", apply("lt", T, 2), apply("exp", T), 0),
}


@pytest.mark.parametrize("name", ANALYTIC)
def test_a_polynomial_is_within_its_bound(name: str) -> None:
    f = ANALYTIC[name]
    target = Target(f, 0.0, 1.0)
    for degree in (6,):
        fitted = target.prove(target.fit(degree))
        seen = relative = 0.0
        for t in np.linspace(1e-9, 1, 1001):
            exact = value(f, float(t))
            p = sum(c * float(t) ** k for k, c in enumerate(fitted.coefficients))
            seen = max(seen, abs(p - exact))
            scale = abs(exact) if fitted.relative else fitted.scale * float(t) ** fitted.zeros
            relative = max(relative, abs(p - exact) / scale if t > 1e-3 else 0.0)
        assert seen <= fitted.gap + 1e-15
        assert relative <= fitted.error + 1e-12
        assert fitted.error <= 3 * relative + 1e-12, "the bound is not idle"


def test_the_series_of_an_exponential() -> None:
    x = interval(0, 1)
    for k, c in enumerate(coefficients(ANALYTIC["exp"], x, 6)):
        assert low(c) <= 1 / factorial(k) + 1e-15
        assert high(c) >= e / factorial(k) - 1e-15


def test_nine_moments_of_an_exponential() -> None:
    """Taylor's polynomial of degree 9 on [0, 1] is off by at most e less its own value at 1: 3.0e-7."""
    target = Target(ANALYTIC["exp"], 0.0, 1.0)
    taylor = target.prove(tuple(1 / factorial(k) for k in range(10)))
    rest = float(Fraction(e) - sum(Fraction(1, factorial(k)) for k in range(10)))
    assert rest == pytest.approx(3.0e-7, rel=0.02)
    assert rest <= taylor.gap <= rest * 1.02
    assert target.prove(target.fit(9)).gap < taylor.gap / 1000


def test_no_polynomial_of_degree_four_is_as_near_to_an_exponential_as_asked() -> None:
    """De la Vallee Poussin: where the error of some polynomial of a degree changes its sign often enough,
    its least size at those places bounds the error of every polynomial of that degree from below."""
    chosen = made(TWICE).sites[0][1].degree
    assert chosen == 6
    target = Target(ANALYTIC["exp"], 0.0, 1.0)
    degree = chosen - 2
    polynomial = target.fit(degree)
    gaps = [exp(t) - sum(c * t**k for k, c in enumerate(polynomial)) for t in np.linspace(0, 1, 20000)]
    runs: list[float] = []
    for a, b in pairwise(gaps):
        if not runs or a * b < 0:
            runs.append(0.0)
        runs[-1] = max(runs[-1], abs(b))
    assert len(runs) >= degree + 2
    assert min(runs) / e > 1e-6


@pytest.mark.parametrize(
    "f, why",
    [
        (apply("sqrt", T), "not analytic at 0"),
        (apply("log", T), "not analytic at 0"),
        (apply("mul", T, apply("log", T)), "not analytic at 0"),
        (apply("round", apply("mul", 127, T)), "step function"),
        (apply("fp8", T), "step function"),
        (apply("abs", apply("sub", T, 0.5)), "kink"),
        (apply("relu", apply("sub", T, 0.1)), "kink"),
        (apply("where", apply("gt", T, 0.1), T, 0), "jumps"),
        (apply("div", 1, apply("sub", T, 0.5)), "may be 0"),
        (apply("pow", 2, T), "exponent"),
    ],
)
def test_what_is_not_analytic(f: Expr, why: str) -> None:
    with pytest.raises(NotAnalytic, match=why):
        Target(f, 0.0, 1.0)


def test_a_kink_outside_the_interval_is_none() -> None:
    assert Target(apply("abs", apply("sub", T, 2)), 0.0, 1.0).prove((2.0, -1.0)).error < 1e-30


def check(text: str, error: float, seeds: range, spread: float = 3.0) -> tuple[Approximate, float]:
    """The largest error of the diagram with polynomials over its measure, on random draws."""
    found = made(text, error)
    worst = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 41))
        sizes = {"q": 3, "x": n, "d": 4}
        inputs = {"S": rng.standard_normal((3, n)) * spread * rng.random(), "V": rng.standard_normal((n, 4))}
        exact = PlanMachine(sizes, inputs).direct((*found.exact.boxes, *found.measured))
        near = PlanMachine(sizes, inputs).direct(found.opened.boxes)
        for (name, measure), (_, bound) in zip(found.measures, found.errors, strict=True):
            ratio = np.abs(near[name] - exact[name]) / np.maximum(np.abs(exact[measure]), 1e-300)
            assert np.all(np.abs(exact[name]) <= np.abs(exact[measure]) * (1 + 1e-12))
            assert ratio.max() <= bound + 1e-12
            worst = max(worst, float(ratio.max()))
    return found, worst


@pytest.mark.parametrize(
    "text",
    [
        TWICE,
        of("sin(3 * P[q, x])"),
        of("cos(5 * P[q, x])"),
        of("tanh(P[q, x])"),
        of("sin(3 * P[q, x]) * exp(P[q, x])"),
        of("1 / (1 + P[q, x])"),
        of("(exp(P[q, x]) - cos(2 * P[q, x]))"),
        HEAD + "L[q] = log(sum[x](exp(2 * P[q, x])))\n",
        HEAD + "O[q, d] = sum[x](tanh(P[q, x]) * V[x, d]) / sqrt(sum[x](sigmoid(P[q, x])**2))\n",
        HEAD + "R[q, x] = softmax[x](tanh(P[q, x]))\nO[q, d] = sum[x](R[q, x] * V[x, d])\n",
    ],
    ids=str.split,
)
def test_errors_seen_are_at_most_those_proved(text: str) -> None:
    found, worst = check(text, 1e-3, range(16))
    assert found.error <= 1e-3
    assert worst > 1e-12, "an error that is never seen tests nothing"
    assert prove(found.opened, "x", {"q": 8, "x": 8, "d": 4}).verdict == "one-pass"


def test_a_smaller_error_takes_more_moments() -> None:
    degrees = [made(of("exp(P[q, x])"), error).sites[0][1].degree for error in (1e-2, 1e-4, 1e-8, 1e-12)]
    assert degrees == sorted(set(degrees))


def test_a_zero_of_the_function_is_one_of_the_polynomial() -> None:
    found = made(of("sin(3 * P[q, x])"))
    assert found.sites[0][1].coefficients[0] == 0
    assert found.sites[0][1].relative


@pytest.mark.parametrize(
    "body, why",
    [
        ("sqrt(P[q, x] + P[q, x]**2)", "not analytic at 0"),
        ("round(127 * P[q, x])", "step function"),
        ("abs(P[q, x] - 0.5)", "kink"),
        ("exp(P[q, x] * S[q, x])", "no proved bounds"),
        ("exp(P[q, x] * S[q, x]**2) * 0.5", "no proved bounds"),
        ("log(P[q, x] + 0.001)", f"more than {MOST_MOMENTS} moments"),
        ("P[q, x]", "no function of one bounded weight"),
    ],
)
def test_what_must_refuse(body: str, why: str) -> None:
    with pytest.raises(Unapproximable, match=why) as reason:
        made(of(body))
    assert "\n" not in str(reason.value)


def test_an_error_is_not_carried_where_it_has_no_bound() -> None:
    text = HEAD + "A[q] = sum[x](sin(7 * P[q, x]))\nO[q] = 1 / A[q]\n"
    with pytest.raises(Unapproximable, match="never negative"):
        made(text)
    with pytest.raises(Unapproximable, match="compares"):
        made(HEAD + "A[q] = sum[x](sin(7 * P[q, x]))\nO[q] = where(A[q] > 1, 1, 0)\n")


def test_the_verdict_says_what_was_asked_proved_and_seen() -> None:
    v = (stream(TWICE, "x", approximate=1e-6).streaming or ())[0]
    assert v.verdict == "approximate(1e-06)"
    assert v.passes == 1
    assert v.approximation is not None
    assert 0 < v.approximation.observed <= v.approximation.proved <= v.approximation.asked == 1e-6
    assert v.approximation.statements == (f"abs(O - exact O) <= {above(v.approximation.proved)} * sum[x](R * abs(V))",)
    record = v.to_json()["approximation"]
    assert record["functions"][0]["function"] == "exp(P)"
    assert record["functions"][0]["interval"] == [0.0, 1.0]
    assert len(record["functions"][0]["coefficients"]) == record["functions"][0]["degree"] + 1
    assert all(t.passed for t in v.trials)


def test_an_exact_plan_is_kept_exact() -> None:
    v = (stream(of("P[q, x]"), "x", approximate=1e-6).streaming or ())[0]
    assert v.verdict == "one-pass"
    assert v.approximation is None
    assert any("nothing is approximated" in w for w in v.warnings)


def test_a_refusal_stays_one_and_says_why() -> None:
    v = (stream(of("round(127 * P[q, x] + V[x, d])"), "x", approximate=1e-6).streaming or ())[0]
    assert v.verdict == "k-pass(2)"
    assert any(w.startswith("no plan within 1e-06: round(") for w in v.warnings)


def test_without_the_flag_nothing_is_approximated() -> None:
    v = (stream(TWICE, "x").streaming or ())[0]
    assert v.verdict == "k-pass(2)"
    assert v.approximation is None


def test_a_plan_that_is_further_off_than_proved_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ioweave.derive.reporting import approximated

    true = approximated.approximate

    def too_sure(*args: object) -> Approximate:
        from dataclasses import replace

        found = true(*args)  # a bound a thousand times too small
        return replace(found, errors=tuple((n, x / 1000) for n, x in found.errors))

    monkeypatch.setattr(approximated, "approximate", too_sure)
    d = parse(TWICE)
    answer = approximate_verdict(open_diagram(d), "x", d.values(), "fp32", 1e-3, d.definitions)
    assert isinstance(answer, str)
    assert "fails its execution" in answer


@pytest.mark.parametrize("given", [0.0, -1.0, 1.0, 1e-13, float("nan"), float("inf")])
def test_errors_that_make_no_sense(given: float) -> None:
    with pytest.raises(WeaveError, match="--approximate takes an error"):
        parse_error(given)


def test_a_bound_is_rounded_up() -> None:
    for x in (1.04e-7, 9.96e-8, 9.99e-1, 1e-6, 7.651e-8):
        assert float(above(x)) >= x
        assert float(above(x)) <= x * 1.11


def test_reads_of_constants_are_numbers() -> None:
    found = made("c = 3\n" + of("sin(c * P[q, x])"))
    assert found.sites[0][0].function == apply("sin", apply("mul", 3, T))
    assert found.sites[0][0].weight == Read("P", found.exact.box("P").reads()[0].index)
