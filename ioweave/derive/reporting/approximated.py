"""The verdict on an axis where an error is allowed: a plan with polynomials, proved, and tried beside the exact one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ioweave.derive.execution.trial import Against, try_plan
from ioweave.derive.streaming.approximate import Approximate, Site, Unapproximable, approximate, power_sum
from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.polynomial import Fitted
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.errors import WeaveError
from ioweave.hierarchy.approximation import Approximation, Replaced, above
from ioweave.hierarchy.verdicts import Verdict

SMALLEST = 1e-12  # an error below it is lost in the rounding of float64
_SINGLE = 2.0**-24  # the rounding of fp32
_ROUNDING = 1e-11  # of float64, in what an execution is compared with
_DRAWS = 6


def parse_error(given: float) -> float:
    """The error asked for. Raises WeaveError, one line, for one that no result can be held to."""
    if not SMALLEST <= given < 1:
        raise WeaveError(f"--approximate takes an error from {SMALLEST:g} to below 1, as 1e-6, not {given:g}")
    return given


def approximate_verdict(
    opened: Opened,
    axis: str,
    values: Mapping[str, int | float],
    accumulate: str,
    error: float,
    definitions: Sequence[Definition] = (),
) -> Verdict | str:
    """The verdict on a plan of one pass whose results are off by at most ``error``, or why there is none.

    The error of each output is measured by the same output computed on absolute values, so that it is
    a relative error where nothing cancels.
    """
    try:
        found = approximate(opened, axis, values, error)
    except Unapproximable as why:
        return str(why)
    verdict = prove(found.opened, axis, values, accumulate)
    shown = " and ".join(dict.fromkeys(s.shown for s, _ in found.sites))
    if verdict.passes != 1 or verdict.verdict != "one-pass":
        return f"with polynomials in place of {shown}, {axis} is {verdict.verdict}: {verdict.refusal}"
    plan = plan_axis(found.opened, axis, values, accumulate)
    trials = try_plan(found.opened, plan, values, draws=_DRAWS, definitions=definitions)
    measured = replace(found.exact, boxes=(*found.exact.boxes, *found.measured))
    against = Against(found.measures, found.error + _ROUNDING)
    beside = try_plan(measured, plan, values, draws=_DRAWS, definitions=definitions, against=against)
    failed = next((t for t in (*trials, *beside) if not t.passed), None)
    if failed is not None:
        return (
            f"with polynomials in place of {shown}, the plan fails its execution on inputs that are {failed.data} "
            f"(seed {failed.seed}): its error is {failed.error:.1e}"
        )
    observed = max((t.error for t in beside), default=0.0)
    approximation = Approximation(
        asked=error,
        proved=found.error,
        observed=observed,
        runs=len(beside),
        functions=tuple(_replaced(s, f) for s, f in found.sites),
        statements=_statements(found),
    )
    return replace(
        verdict,
        verdict=f"approximate({error:g})",
        trials=trials,
        plans=(),
        warnings=(*verdict.warnings, *_cautions(found, error)),
        approximation=approximation,
    )


def _replaced(site: Site, fitted: Fitted) -> Replaced:
    return Replaced(
        line=site.box,
        function=site.shown,
        weight=text(site.weight),
        interval=(site.bounds.lo, site.bounds.hi),
        coefficients=fitted.coefficients,
        error=fitted.error if fitted.relative else fitted.gap,
        relative=fitted.relative,
        equation=f"{site.shown} ≈ {text(power_sum(fitted.coefficients, site.weight))}",
    )


def _statements(found: Approximate) -> tuple[str, ...]:
    """The inequality of each output; a measure is written as a formula."""
    boxes = {b.name: b for b in found.measured}
    measures = dict(found.measures)
    said = []
    for name, error in found.errors:
        box = boxes.get(measures[name])
        measure = f"abs({name})" if box is None else text(box.body)
        if box is not None and box.reduction is not None:
            measure = f"{box.reduction}[{', '.join(box.over)}]({measure})"
        said.append(f"abs({name} - exact {name}) <= {above(error)} * {measure}" if error else f"{name} is exact")
    return tuple(said)


def _cautions(found: Approximate, error: float) -> tuple[str, ...]:
    """What rounding adds: the terms of a polynomial may be larger than its value."""
    said = []
    for site, fitted in found.sites:
        reach = max(abs(site.bounds.lo), abs(site.bounds.hi))
        terms = sum(abs(c) * reach**k for k, c in enumerate(fitted.coefficients))
        rounding = terms * _SINGLE / fitted.scale
        if rounding > error:
            said.append(
                f"the error proved is over the reals: held in fp32, the terms of the polynomial near {site.shown} "
                f"round by up to {rounding:.0e} of it"
            )
    return tuple(dict.fromkeys(said))
