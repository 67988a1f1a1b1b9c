"""Writing a certificate: the prover's plan, what it rests on, and trials of it."""

from __future__ import annotations

from dataclasses import replace

from ioweave import __version__
from ioweave.derive.certificate.identities import identities
from ioweave.derive.certificate.record import VERSION, Certificate, Fact
from ioweave.derive.certificate.structure import Unsound, lay_out
from ioweave.derive.execution.trial import try_plan
from ioweave.derive.streaming.verdict import plan_axis
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused
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

    Raises `Refused` for a verdict that nothing is proved by, for a direction that the plan does not walk,
    and for a plan that cannot run as it says.
    """
    axis = verdict.axis
    if verdict.verdict == "unproved":
        raise Refused(f"{axis} is unproved, which no certificate can hold: {verdict.refusal or 'no plan was found'}")
    if verdict.direction != "both":
        raise Refused(
            f"the plan walks {axis} {verdict.direction} alone, and version {VERSION} holds plans of either way"
        )
    opened = open_diagram(diagram)
    values = diagram.values()
    facts = {i.name: i.fact for i in opened.inputs if i.fact is not None}
    plan = plan_axis(opened, axis, values, accumulate, lazy=lazy)
    try:
        pairs = identities(lay_out(plan, opened, axis, values), opened)
    except Unsound as why:
        raise Refused(f"the plan for {axis} does not pass its own check: {why}") from None
    trials = verdict.trials or try_plan(opened, plan, values, draws=DRAWS, seed=seed, definitions=diagram.definitions)
    return Certificate(
        tool=__version__,
        name=diagram.name,
        source=print_diagram(diagram),
        axis=axis,
        direction=direction,
        accumulate=accumulate,
        sizes=tuple(values.items()),
        verdict=replace(verdict, trials=trials),
        plan=plan,
        identities=pairs,
        facts=tuple(Fact(n, sign, float(bound)) for n, (sign, bound) in facts.items()),
        assumes=plan.assumes,
        trials=trials,
    )
