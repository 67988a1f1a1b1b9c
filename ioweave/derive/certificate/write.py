"""Writing a certificate: the prover's plan, what it rests on, and trials of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ioweave import __version__
from ioweave.derive.certificate.identities import identities
from ioweave.derive.certificate.numbers import draw_sizes
from ioweave.derive.certificate.pieces import check_segments
from ioweave.derive.certificate.record import Certificate, Fact
from ioweave.derive.certificate.structure import Unsound, lay_out
from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming.equations import equations
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.verdict import plan_axis, prove_opposite
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.diagrams.notation.printer import print_diagram
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.verdicts import Direction, Verdict

DRAWS = 6


def certify(
    diagram: Diagram,
    verdict: Verdict,
    accumulate: str = "fp32",
    direction: Direction = "both",
    seed: int = 0,
    lazy: float = 0.0,
) -> Certificate:
    """The certificate of a verdict on a whole diagram, with its trials, or new ones drawn from ``seed``.

    Raises `Refused` for a verdict that nothing is proved by or that is not exact, for a list that is too long
    to be filled, and for a plan that cannot run as it says.
    """
    axis = verdict.axis
    if verdict.verdict in ("unproved", "unbounded"):
        why = verdict.refusal or "no plan was found"
        raise Refused(f"{axis} is {verdict.verdict}, which no certificate can hold: {why}")
    if verdict.approximation is not None or verdict.verdict.startswith("approximate"):
        raise Refused(f"the plan for {axis} is not exact, and a certificate holds exact plans alone")
    opened = open_diagram(diagram)
    values = diagram.values()
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    plan, other = _plans(opened, verdict, values, accumulate, lazy, diagram)
    _check_lists(diagram, opened, plan, axis)
    try:
        layout = lay_out(plan, opened, axis, values)
        check_segments(plan, layout, opened, values)
        pairs = identities(layout, opened)
    except Unsound as why:
        raise Refused(f"the plan for {axis} does not pass its own check: {why}") from None
    trials = verdict.trials or try_plan(opened, plan, values, draws=DRAWS, seed=seed, definitions=diagram.definitions)
    # a least state without the ranks that it follows from is no claim that can be checked
    least = verdict.least_state if verdict.ranks else None
    return Certificate(
        tool=__version__,
        name=diagram.name,
        source=print_diagram(diagram),
        axis=axis,
        direction=direction,
        accumulate=accumulate,
        sizes=tuple(values.items()),
        verdict=replace(verdict, trials=trials, least_state=least),
        plan=plan,
        identities=pairs,
        facts=tuple(Fact(n, sign, float(bound)) for n, (sign, bound) in facts.items()),
        assumes=plan.assumes,
        trials=trials,
        opposite=other,
    )


def _plans(
    opened: Opened,
    verdict: Verdict,
    values: Mapping[str, int | float],
    accumulate: str,
    lazy: float,
    diagram: Diagram,
) -> tuple[Plan, Plan | None]:
    """The plan of a verdict, and the one that walks the other way where the verdict rests on both."""
    axis = verdict.axis
    plan = plan_axis(opened, axis, values, accumulate, lazy=lazy)
    if not plan.recurrences or verdict.direction == "both":
        if not plan.recurrences:
            return plan, None
        found = prove_opposite(opened, axis, values, accumulate, diagram.definitions)
        if found is None:
            raise Refused(f"{axis} is said to be walked either way, and no plan is known for the other direction")
        if verdict.body != equations(plan, plan.body):
            return found[1], plan
        return plan, found[1]
    return plan, None


def _check_lists(diagram: Diagram, opened: Opened, plan: Plan, axis: str) -> None:
    """Refuse a list of the plan's own that no small sizes fill: whether it is long enough could not be tried."""
    for name, slots in plan.lengths:
        try:
            draw_sizes(diagram, opened, np.random.default_rng(0), (base_name(axis), slots + 1))
        except WeaveError:
            raise Refused(
                f"the list of {slots} slots ({name}) is longer than any that a check can fill; "
                "a certificate holds shorter lists"
            ) from None
