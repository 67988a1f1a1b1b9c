"""Checking a certificate without the prover: its source is parsed, its plan looked at and run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ioweave.derive.certificate.claims import check_claims, check_texts
from ioweave.derive.certificate.identities import Identity, identities
from ioweave.derive.certificate.laws import check_laws
from ioweave.derive.certificate.machine import Machine
from ioweave.derive.certificate.numbers import KINDS, draw_sizes, levelled, make_case
from ioweave.derive.certificate.pieces import check_segments
from ioweave.derive.certificate.record import Certificate, Fact
from ioweave.derive.certificate.runs import fresh, replayed
from ioweave.derive.certificate.structure import Layout, Unsound, lay_out
from ioweave.derive.evidence import Question, weigh
from ioweave.derive.execution.trial_data import with_casts
from ioweave.derive.streaming.equations import equation
from ioweave.derive.streaming.plan import Plan
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.verdicts import Trial

LAWS = 4  # cases that the laws of the state are tried on
OTHER = 2  # cases, and runs, of the plan that walks the other way


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was checked, and what was found."""

    what: str
    found: str
    passed: bool = True


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked, up to the first failure; ``failure`` names it, empty if the certificate holds."""

    certificate: Certificate
    diagram: Diagram
    rows: tuple[Row, ...]
    trials: tuple[Trial, ...]
    failure: str = ""


def verify(certificate: Certificate) -> Verified:
    """Check a certificate, part by part, until one fails.

    Raises WeaveError for a source that cannot be read, or a trial that does not fit it.
    """
    diagram = _diagram(certificate)
    check = _Check(certificate, diagram)
    rows: list[Row] = []
    failure = ""
    for what, part in check.parts():
        try:
            rows.append(Row(what, part()))
            continue
        except Unsound as why:
            failure = f"{what}: {why}"
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            # an expression that NumPy has no meaning for, such as minus of a predicate
            failure = f"{what}: the plan cannot be run: {str(error) or type(error).__name__}"
        rows.append(Row(what, failure, False))
        break
    return Verified(certificate, diagram, tuple(rows), tuple(check.trials), " ".join(failure.split()))


def _diagram(certificate: Certificate) -> Diagram:
    try:
        return replace(parse(certificate.source, "source"), name=certificate.name)
    except WeaveError as error:
        raise WeaveError(f"the source cannot be read: {error}") from None


def fresh_seed(certificate: Certificate) -> int:
    """A seed that no trial of the certificate was drawn from, and that changes with its content."""
    seed = int.from_bytes(hashlib.sha256(json.dumps(certificate.to_json()).encode()).digest()[:4], "big")
    taken = {t.seed for t in certificate.trials}
    while taken & set(range(seed, seed + 4 * LAWS)):
        seed += 4 * LAWS
    return seed


def _rounding(layout: Layout) -> Layout:
    """A layout with its casts as the rounding that trials give them."""
    boxes = with_casts(layout.boxes)
    return replace(layout, boxes=boxes, by_name={b.name: b for b in boxes})


def _ways(plan: Plan) -> str:
    if plan.segments is not None:
        return f"steps {plan.direction}, pieces joined in order"
    return f"steps {plan.direction}" if plan.recurrences else "steps forward and backward, merges"


class _Check:
    """The parts of one check, in order; each returns what it found, or raises `Unsound`."""

    def __init__(self, certificate: Certificate, diagram: Diagram) -> None:
        self.certificate = certificate
        self.diagram = diagram
        self.opened: Opened = open_diagram(diagram)
        self.values = diagram.values()
        self.seed = fresh_seed(certificate)
        self.trials: list[Trial] = []
        self.layout: Layout
        self.pairs: tuple[Identity, ...] = ()

    def parts(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Name and check of each part."""
        yield "source", self._source
        yield "plan", self._plan
        yield "verdict", self._verdict
        yield "identities", self._identities
        yield "laws of the state", self._laws
        yield "recorded trials", self._recorded
        yield "fresh trials", self._fresh
        if self.certificate.opposite is not None:
            yield "other direction", self._opposite
        if self._weighed():
            yield "evidence", self._evidence
        yield "texts", self._texts

    def _source(self) -> str:
        c = self.certificate
        axes = dict.fromkeys(a for b in self.opened.boxes for a in b.all_axes)
        if c.axis not in axes:
            raise Unsound(f"the algorithm has no axis {c.axis}; its axes are {', '.join(axes)}")
        if dict(c.sizes) != self.values:
            raise Unsound("the sizes are not those of the source")
        facts = tuple(Fact(i.name, i.fact[0], float(i.fact[1])) for i in self.opened.inputs if i.fact is not None)
        if c.facts != facts:
            raise Unsound("the facts are not those that the source declares")
        outputs = ", ".join(self.opened.outputs)
        return f"{len(self.opened.boxes)} boxes make {outputs}; {c.axis} = {self.values[base_name(c.axis)]}"

    def _plan(self) -> str:
        c = self.certificate
        self.layout = lay_out(c.plan, self.opened, c.axis, self.values)
        state, passes = len(self.layout.carried) + len(self.layout.recurrences), max(self.layout.passes, 1)
        return f"{len(c.plan.boxes)} boxes in {passes} pass{'es' * (passes > 1)}, {state} of them the state"

    def _verdict(self) -> str:
        c = self.certificate
        check_claims(c.verdict, c.plan, self.layout, self.opened, self.diagram, c.accumulate)
        self._check_direction()
        if c.assumes != c.plan.assumes:
            raise Unsound("the assumptions are not those of the plan")
        return f"{c.verdict.verdict}, {c.verdict.state_values} values of state, {c.verdict.state_bytes} bytes"

    def _identities(self) -> str:
        self.pairs = identities(self.layout, self.opened)
        if len(self.pairs) != len(self.certificate.identities):
            raise Unsound(f"{len(self.certificate.identities)} are listed; the plan rests on {len(self.pairs)}")
        for said, found in zip(self.certificate.identities, self.pairs, strict=True):
            if said != found:
                raise Unsound(f"that of {said.of} is not the one that the plan rests on")
        return f"{len(self.pairs)} equations, as the boxes have them"

    def _check_direction(self) -> None:
        """A plan with scans walks as its first ones do; either way where there is a plan for the other one."""
        c = self.certificate
        way = next(iter(dict(sorted(self.layout.directions.items())).values()), "both")
        if (c.opposite is not None) != bool(c.verdict.opposite):
            raise Unsound("the verdict speaks of a plan for the other direction, or is silent of it")
        if c.opposite is not None and way != "both":
            way = "both"
        if c.verdict.direction != way:
            raise Unsound(f"the verdict walks {c.axis} {c.verdict.direction}; its plan walks {way}")

    def _laws(self) -> str:
        c = self.certificate
        cases = self._law_cases(c.plan, self.layout, LAWS)
        return f"{cases} cases: {_ways(c.plan)}, every equation"

    def _law_cases(self, plan: Plan, layout: Layout, turns: int) -> int:
        """The laws of a plan on random cases, and on those that fill its lists; how many there were."""
        opened = replace(self.opened, boxes=with_casts(self.opened.boxes))
        wide = check_segments(plan, layout, self.opened, self.values)
        layout = _rounding(layout)
        wide = None if wide is None else _rounding(wide)
        pairs = identities(layout, opened)
        # one term more than a list has slots, and just as many, all of one key
        full = [n for _, slots in plan.lengths for n in (slots + 1, slots)]
        for turn in range(turns + len(full)):
            rng = np.random.default_rng([self.seed, turn])
            wanted = (base_name(layout.axis), full[turn - turns]) if turn >= turns else None
            sizes = draw_sizes(self.diagram, opened, rng, wanted)
            kind = KINDS[turn % len(KINDS)] if wanted is None else "plain"
            case = make_case(self.diagram, opened, sizes, kind, self.seed + turn)
            case = levelled(case, opened, layout.axis) if wanted is not None else case
            values = {**sizes, **dict(plan.lengths)}
            apart = None if wide is None or plan.segments is None else (Machine(wide, values), plan.segments)
            check_laws(Machine(layout, values), case, pairs, rng, apart)
        return turns + len(full)

    def _recorded(self) -> str:
        if not self.certificate.trials:
            raise Unsound("there are none")
        for number, trial in enumerate(self.certificate.trials):
            self.trials.append(
                replayed(self.diagram, self.opened, self.certificate.plan, self.certificate.axis, trial, number)
            )
        return f"{len(self.trials)} run again, the largest error {max(t.error for t in self.trials):.1e}"

    def _fresh(self) -> str:
        found = fresh(self.diagram, self.opened, self.certificate.plan, self.seed + 2 * LAWS)
        self.trials.extend(found)
        return f"{len(found)} with seeds from {found[0].seed}, the largest error {max(t.error for t in found):.1e}"

    def _opposite(self) -> str:
        c = self.certificate
        plan = c.opposite
        assert plan is not None
        layout = lay_out(plan, self.opened, c.axis, self.values)
        ways = {*self.layout.directions.values()}, {*layout.directions.values()}
        if layout.passes != 1 or self.layout.passes != 1 or sorted(map(len, ways)) != [1, 1] or ways[0] == ways[1]:
            raise Unsound(f"the two plans do not walk {c.axis} one pass each, one of them either way")
        lines = tuple(equation(b) for b in (*plan.body, *plan.tail))
        if c.verdict.opposite != lines:
            raise Unsound("the lines of the verdict are not those of the plan")
        cases = self._law_cases(plan, layout, OTHER)
        found = fresh(self.diagram, self.opened, plan, self.seed + 3 * LAWS, OTHER)
        self.trials.extend(found)
        return f"{next(iter(ways[1]))}: {cases} cases of its laws, {len(found)} runs"

    def _weighed(self) -> bool:
        v = self.certificate.verdict
        return bool(v.ranks) or v.least_state is not None or v.least_note != "" or v.witness is not None

    def _evidence(self) -> str:
        """The ranks are measured again, and the witness sought again, by differences of the algorithm alone."""
        c = self.certificate
        bare = replace(c.verdict, least_state=None, least_note="", ranks=(), witness=None)
        question = Question(
            self.opened,
            c.plan,
            c.verdict.state,
            c.axis,
            self.values,
            self.diagram.definitions,
            backward=c.verdict.direction == "backward",
        )
        found = weigh(bare, question)
        if found.verdict != c.verdict.verdict:
            raise Unsound(f"numbers speak against {c.verdict.verdict}: {found.verdict} is found")
        for what in ("least_state", "least_note", "ranks", "witness"):
            said, right = (json.dumps(getattr(v, what)) for v in (c.verdict, found))
            if said != right:
                raise Unsound(f"the {what} that is claimed, {said[:60]}, is not the one found, {right[:60]}")
        if found.least_state is None:
            return f"ranks {', '.join(str(r) for _, r in found.ranks) or 'none'}, measured again"
        return f"{found.least_state} values are the least state, by ranks measured again"

    def _texts(self) -> str:
        c = self.certificate
        check_texts(c.verdict, c.plan, self.opened, c.axis)
        return "equations, merge, cascade and cautions say what the boxes do"
