"""Checking a certificate without the prover: its source is parsed, its plan looked at and run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ioweave.derive.certificate.claims import check_claims, check_texts
from ioweave.derive.certificate.identities import Identity, identities
from ioweave.derive.certificate.laws import check_laws
from ioweave.derive.certificate.machine import Machine
from ioweave.derive.certificate.numbers import KINDS, draw_sizes, make_case
from ioweave.derive.certificate.record import Certificate, Fact
from ioweave.derive.certificate.runs import fresh, replayed
from ioweave.derive.certificate.structure import Layout, Unsound, lay_out
from ioweave.derive.execution.trial_data import with_casts
from ioweave.diagrams.boxes import Opened, base_name
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.verdicts import Trial

LAWS = 4  # cases that the laws of the state are tried on


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
    seed = int.from_bytes(hashlib.sha256(certificate.to_bytes()).digest()[:4], "big")
    taken = {t.seed for t in certificate.trials}
    while taken & set(range(seed, seed + 4 * LAWS)):
        seed += 4 * LAWS
    return seed


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
        if c.verdict.direction != "both":
            raise Unsound(f"the verdict walks {c.axis} {c.verdict.direction} alone; its plan walks either way")
        outputs = ", ".join(self.opened.outputs)
        return f"{len(self.opened.boxes)} boxes make {outputs}; {c.axis} = {self.values[base_name(c.axis)]}"

    def _plan(self) -> str:
        c = self.certificate
        self.layout = lay_out(c.plan, self.opened, c.axis, self.values)
        state, passes = len(self.layout.carried), max(self.layout.passes, 1)
        return f"{len(c.plan.boxes)} boxes in {passes} pass{'es' * (passes > 1)}, {state} of them the state"

    def _verdict(self) -> str:
        c = self.certificate
        check_claims(c.verdict, c.plan, self.layout, self.opened, self.values, c.accumulate)
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

    def _laws(self) -> str:
        layout, opened = self.layout, replace(self.opened, boxes=with_casts(self.opened.boxes))
        boxes = with_casts(layout.boxes)
        layout = replace(layout, boxes=boxes, by_name={b.name: b for b in boxes})
        pairs = identities(layout, opened)
        for turn in range(LAWS):
            rng = np.random.default_rng([self.seed, turn])
            sizes = draw_sizes(self.diagram, opened, rng)
            case = make_case(self.diagram, opened, sizes, KINDS[turn % len(KINDS)], self.seed + turn)
            check_laws(Machine(layout, sizes), case, pairs, rng)
        return f"{LAWS} cases: steps forward and backward, merges, every equation"

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

    def _texts(self) -> str:
        c = self.certificate
        check_texts(c.verdict, c.plan, self.opened, c.axis)
        return "equations, merge, cascade and cautions say what the boxes do"
