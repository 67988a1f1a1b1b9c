"""Least state: ranks at several prefixes, flat or growing, and the number that they are at the sizes asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from math import ceil, prod
from typing import Literal

import numpy as np

from ioweave.derive.evidence.bench import Bench, sliceable, sliced
from ioweave.derive.evidence.rank import SCALES, Rank, rank
from ioweave.derive.evidence.sizes import met_names, root, small
from ioweave.derive.execution.trial_data import Sizes, Subject, with_casts
from ioweave.derive.streaming.plan import Plan, slot_axes
from ioweave.diagrams.boxes import Box, Opened, base_name, source
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.expressions import Apply, Index, free_axes, is_predicate_of_indices, reads, walk
from ioweave.diagrams.operators import COMPARISONS
from ioweave.hierarchy.verdicts import StateEntry

LENGTH = 20  # of the streamed axis
BEYOND = 2  # times a state: what a rank that settles an open question reaches
OTHER = 4  # between seeds of the same kind of whole numbers
SHORT = 8  # of the streamed axis of a witness
CUTS = (2, 4, 8, 12)  # lengths of the prefix, of an axis of that length
_UNSMOOTH = frozenset({"round", "floor", "floordiv", "mod"})
Monomial = tuple[str, ...]  # names of sizes, in order, one as often as it is a factor


@dataclass(frozen=True)
class Question:
    """What is asked: boxes with those before them, the plan and its state, the axis, sizes and their ties.

    ``long`` asks at sizes where every axis whose positions are compared meets the whole streamed one.
    """

    opened: Opened
    plan: Plan
    state: tuple[StateEntry, ...]
    axis: str
    values: Mapping[str, int | float]
    definitions: Sequence[Definition] = ()
    before: Sequence[Box] = ()
    backward: bool = False
    long: bool = False

    @property
    def subject(self) -> Subject:
        """The boxes as they are written: a cast is the identity here, since rounding has no derivative."""
        boxes = (*self.before, *self.opened.boxes)
        base = {a: base_name(a) for b in boxes for a in b.all_axes} | dict(self.opened.base)
        read = {r.array for b in boxes for r in b.reads()}
        inputs = tuple(i for i in self.opened.inputs if i.name in read)
        return Subject(boxes, inputs, frozenset({self.axis}), base)

    @property
    def shared(self) -> tuple[str, ...]:
        """The axes that all parts of the state have; of a plan without a state, those of all outputs."""
        held = [s.axes for s in self.state] or [self.opened.box(o).axes for o in self.outputs]
        first = held[0] if held else ()
        apart = {self.axis, *slot_axes(self.plan)}
        return tuple(a for a in first if a not in apart and all(a in axes for axes in held))

    @property
    def selects(self) -> bool:
        """Whether positions in a list choose what is read: these are whole numbers, which no rank sees."""
        return any(b.reduction == "argtopk" for b in (*self.before, *self.opened.boxes))

    def extent(self, axis: str, sizes: Mapping[str, int | float]) -> int:
        """The size of an axis of the state; a list that the plan makes has its own length."""
        own = dict(self.plan.lengths)
        return own[axis] if axis in own else int(sizes[base_name(axis)])

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that depend on what lies along the axis."""
        on = {b.name for b in self.opened.boxes if self.axis in b.all_axes}
        for b in self.opened.boxes:
            if any(source(r.array) in on for r in b.reads()):
                on.add(b.name)
        return tuple(o for o in self.opened.outputs if o in on)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Shared axes of which one index is taken: every output has them, and no box joins their indices."""
        boxes = (*self.before, *self.opened.boxes)
        own = (a for a in self.shared if all(a in self.opened.box(o).axes for o in self.outputs))
        return tuple(a for a in own if sliceable(boxes, a))


@dataclass(frozen=True, slots=True)
class Finding:
    """What the ranks say. ``state`` is at the sizes asked for, in the measure of `Verdict.state_values`.

    ``ranks`` are pairs of a prefix's length and the rank there, at the small sizes ``axes``, and
    ``held`` the plan's state there. ``formula`` is the rank as a function of sizes. ``why`` says
    what stands in the way of a number. ``late``: the suffix changes answers at positions of the prefix;
    ``long``: the sizes of the state's axes are long as well (`Question`); ``over``: the rank is larger than
    the plan's state at more than one prefix and on every draw.
    """

    trend: Literal["flat", "growing", "unclear", "none"]
    ranks: tuple[tuple[int, int], ...] = ()
    axes: tuple[tuple[str, int], ...] = ()
    held: int = 0
    state: int | None = None
    formula: str = ""
    why: str = ""
    late: bool = False
    long: bool = False
    over: bool = False

    @property
    def rises(self) -> int:
        """How often a longer prefix has a rank larger than all shorter ones; 0 where the longest has none such."""
        return _rises([r for _, r in self.ranks])

    @property
    def most(self) -> int:
        """The largest rank found."""
        return max((r for _, r in self.ranks), default=0)


def find(q: Question) -> Finding:
    """The ranks of a question and what they say; nothing is said where no small sizes are valid."""
    found = _found(q)
    if q.state and found.ranks and found.most == 0 and not q.long and _placed(q.subject):
        return replace(_found(replace(q, long=True)), long=True)
    return found


def _found(q: Question) -> Finding:
    subject = q.subject
    if not q.outputs:
        return Finding("flat", ((0, 0),), state=0, formula="0", why="no output depends on the axis")
    if any(_rounds(b) for b in subject.boxes):
        return Finding("none", why="a value is rounded to whole numbers on the way, which has no derivative")
    if not any(DTYPES[i.dtype].kind == "float" for i in subject.inputs):
        return Finding("none", why="no input holds numbers that can be moved a little")
    sizes = _small(q, subject, {})
    if sizes is None:
        return Finding("none", why="no small sizes are valid for this diagram")
    benches = _benches(q, subject, sizes)
    held = _held(q, sizes)
    length = benches[0].length
    cuts = tuple(dict.fromkeys(max(1, round(length * c / LENGTH)) for c in CUTS))
    picks = _picks(benches)
    real = all(DTYPES[i.dtype].kind == "float" for i in subject.inputs)
    picks = [_pick(benches, picks, cuts[-1:] if real else (cuts[1], cuts[-1]), held)]
    by_scale = {s: _most(benches, picks, cuts[-1], s, held) for s in SCALES}
    known = {s: r for s, r in by_scale.items() if r is not None}
    if not known:
        return Finding("none", why="what a prefix has is read again by the steps after it, or is too much to move")
    best = max(known, key=lambda s: (known[s].value, known[s].clear))
    ranks = [_most(benches, picks, n, best, held) for n in cuts[:-1]]
    found = tuple((n, r) for n, r in zip(cuts, [*ranks, known[best]], strict=True) if r is not None)
    k, seed = picks[0]
    again = [r for t in (1, 2) if (r := rank(benches[k], cuts[-1], best, held, seed + t * OTHER)) is not None]
    trend = _trend([r for _, r in found], _agree(known, best, again), held)
    over = sum(r.value > held for _, r in found) > 1 and all(r.value > held for r in again)
    finding = Finding(
        trend,
        tuple((n, r.value) for n, r in found),
        tuple((n, int(v)) for n, v in sizes.items() if n in set(subject.base.values())),
        held,
        late=any(r.late for _, r in found),
        over=over,
    )
    if trend == "flat" and q.plan.lengths:
        return replace(finding, why="how many terms pass a threshold depends on the data, and the rank with it")
    met = sorted({subject.base[a] for a in _crossed(q, subject)})
    if trend == "flat" and met:
        return replace(finding, why=f"how much is needed depends on where the cut lies along {', '.join(met)}")
    return _with_number(q, subject, finding, best, picks[0]) if trend == "flat" else finding


def grows(q: Question) -> bool:
    """Whether the plan's state is longer on a longer axis, other sizes equal: a list as long as the axis is."""
    subject = q.subject
    short, long = (_small(q, subject, {}, n) for n in (LENGTH, 2 * LENGTH))
    if short is None or long is None:
        return False
    return _held(q, long) > _held(q, short)


def keeps_growing(q: Question, found: Finding) -> bool:
    """Whether a rank that grows is past what one more list or extremum would hold.

    It is twice the state already, or half as large again on an axis of twice the length.
    """
    if found.most >= BEYOND * max(found.held, 1):
        return True
    subject = q.subject
    sizes = _small(q, subject, {}, 2 * LENGTH)
    if sizes is None:
        return False
    benches = _benches(q, subject, sizes)
    n = max(1, round(benches[0].length * CUTS[-1] / LENGTH))
    ranks = (_most(benches, _picks(benches), n, s, _held(q, sizes)) for s in SCALES)
    return 2 * max((r.value for r in ranks if r is not None), default=0) >= 3 * found.most


def _rounds(b: Box) -> bool:
    return any(
        isinstance(n, Apply) and n.op in _UNSMOOTH and any(r.index or r.array for r in reads(n)) for n in walk(b.body)
    )


def _agree(known: Mapping[float, Rank], scale: float, again: Sequence[Rank]) -> bool:
    """Whether data of another scale and of another draw give the largest rank too, and no draw a larger one."""
    top = known[scale].value
    same = any(r.value == top and r.clear for r in again) and all(r.value <= top for r in again)
    return same and sum(r.value == top for r in known.values()) > 1


def _trend(found: Sequence[Rank], agree: bool, held: int) -> Literal["flat", "growing", "unclear"]:
    """Flat: equal at the longer prefixes, with a gap below, on all data; growing: it rises past the plan's state."""
    values = [r.value for r in found]
    if len(values) < 3 or (values[-1] == 0 and held):  # these sizes or data show nothing of the state
        return "unclear"
    if values[-1] == values[-2] == max(values) and found[-1].clear and found[-2].clear and agree:
        return "flat"
    return "growing" if _rises(values) > 1 and values[-1] > held else "unclear"


def _rises(values: Sequence[int]) -> int:
    largest = list(accumulate(values, max))
    if len(values) < 3 or values[-1] <= largest[1]:
        return 0
    return sum(a < b for a, b in pairwise(largest))


Pick = tuple[int, int]  # a bench by its place, and a seed


def _picks(benches: Sequence[Bench]) -> list[Pick]:
    """What may be tried: every bench, two draws, and more where whole numbers decide what is seen."""
    real = all(DTYPES[i.dtype].kind == "float" for i in benches[0].subject.inputs)
    return [(k, seed) for seed in ((0, OTHER) if real else range(OTHER)) for k in range(len(benches))]


def _pick(benches: Sequence[Bench], picks: Sequence[Pick], cuts: Sequence[int], held: int) -> Pick:
    """The bench and the seed with the largest ranks at these cuts, the last of them first, on data of scale 1."""
    found: dict[Pick, list[int]] = {}
    for k, seed in picks:
        ranks = [rank(benches[k], n, 1.0, held, seed) for n in reversed(cuts)]
        found[k, seed] = [-1 if r is None else r.value for r in ranks]
    return max(found, key=lambda p: found[p])


def _most(benches: Sequence[Bench], picks: Sequence[Pick], n: int, scale: float, held: int) -> Rank | None:
    found = [r for k, seed in picks if (r := rank(benches[k], n, scale, held, seed)) is not None]
    return max(found, key=lambda r: (r.value, r.clear), default=None)


def _small(q: Question, subject: Subject, wanted: Mapping[str, int], length: int = LENGTH) -> Sizes | None:
    """Sizes of 2 on the axes of the state, 4 on others, so that these do not bound the rank.

    An axis of which one index is taken is long where its positions are compared: it meets the whole of the
    streamed one.
    """
    base = subject.base
    lists = {base[b.into] for b in subject.boxes if b.into is not None}
    placed = _placed(subject)
    sizes = dict.fromkeys((base[a] for s in q.state for a in s.axes if a in base), 2)
    sizes |= dict.fromkeys((base[a] for a in q.fixed), 2)
    sizes |= {base[a]: min(length, LENGTH) for a in placed if base[a] not in lists and (a in q.fixed or q.long)}
    sizes |= wanted
    sizes.pop(base[q.axis], None)
    return small(subject, q.axis, q.values, q.definitions, sizes, length, frozenset(lists))


def _benches(q: Question, subject: Subject, sizes: Sizes) -> tuple[Bench, ...]:
    """A bench for the last index of the axes that are fixed; for the first too where positions on them count."""
    found = []
    for end in (True, False):
        boxes = subject.boxes
        at = {a: int(sizes[subject.base[a]]) - 1 if end else 0 for a in q.fixed}
        for a, k in at.items():
            boxes = sliced(boxes, a, k)
        found.append(Bench(replace(subject, boxes=boxes), q.outputs, q.axis, sizes, q.backward, tuple(at.items())))
        if not _placed(subject) & set(q.fixed):
            break
    return tuple(found)


def short_benches(q: Question) -> tuple[Bench, ...]:
    """Benches with a short axis, whose inputs can be read at a glance; casts round to coarse multiples."""
    subject = q.subject
    subject = replace(subject, boxes=with_casts(subject.boxes))
    sizes = _small(q, subject, {}, SHORT)
    return () if sizes is None else _benches(q, subject, sizes)


def _placed(subject: Subject) -> set[str]:
    """Axes whose positions are values: they are compared, or enter a formula."""
    return {n.axis for b in subject.boxes for n in walk(b.body) if isinstance(n, Index)}


def _crossed(q: Question, subject: Subject) -> set[str]:
    """Axes of the state that are not cut to one index, whose positions are compared with those of the streamed one."""
    own = {a for s in q.state for a in s.axes if a in subject.base and a not in q.fixed}
    found: set[str] = set()
    for b in subject.boxes:
        for n in walk(b.body):
            if isinstance(n, Apply) and n.op in COMPARISONS:
                axes = set(free_axes(n))
                found |= own & axes if q.axis in axes and is_predicate_of_indices(n) else set()
    return found


def _held(q: Question, sizes: Sizes) -> int:
    """The plan's state at small sizes, for one index of the axes that are fixed."""
    return sum(prod(q.extent(a, sizes) for a in s.axes if a not in q.fixed) for s in q.state)


def _with_number(q: Question, subject: Subject, found: Finding, scale: float, pick: Pick) -> Finding:
    """The rank as a polynomial of the sizes of the state's axes, and its value at the sizes asked for."""
    parts = {_monomial(q, subject, s.axes, q.fixed) for s in q.state} | {()}
    apart = _monomial(q, subject, q.shared, q.fixed)
    if found.most == 0:
        return replace(found, state=0, formula="0")
    n = found.ranks[-1][0]
    known: dict[tuple[tuple[str, int], ...], tuple[Sizes, int]] = {}
    for monomials in (sorted(parts), _divisors(parts)):
        fit = _fit(q, subject, monomials, n, scale, pick, known)
        if fit is not None:
            value = sum(c * prod(int(q.values[a]) for a in m) for m, c in fit.items())
            each = Fraction(value, prod(int(q.values[a]) for a in apart))
            return replace(found, state=ceil(each), formula=_formula(fit, apart))
    return replace(found, why="the ranks at small sizes fit no polynomial of the sizes")


def _monomial(q: Question, subject: Subject, axes: Sequence[str], without: Sequence[str]) -> Monomial:
    names = (subject.base[a] for a in axes if a in subject.base and a not in without and a != q.axis)
    met = met_names(subject)
    return tuple(sorted(root(n, set() if n in met else {n}, q.definitions) for n in names))


def _covers(m: Monomial, part: Monomial) -> bool:
    return all(m.count(a) >= part.count(a) for a in part)


def _divisors(parts: set[Monomial]) -> list[Monomial]:
    found = {c for m in parts for k in range(len(m) + 1) for c in combinations(m, k)}
    return sorted(found, key=lambda m: (len(m), m))


def _fit(
    q: Question,
    subject: Subject,
    monomials: Sequence[Monomial],
    n: int,
    scale: float,
    pick: Pick,
    known: dict[tuple[tuple[str, int], ...], tuple[Sizes, int]],
) -> dict[Monomial, Fraction] | None:
    """Coefficients with which the monomials give the rank at more sizes than there are monomials."""
    names = sorted({a for m in monomials for a in m})
    if len(monomials) > 6:
        return None
    table: list[list[int]] = []
    right: list[int] = []
    for sizes in _sizes(q, subject, names, monomials):
        key = tuple(sorted((a, int(sizes[a])) for a in names))
        if key not in known:
            benches = _benches(q, subject, sizes)
            value = _clear(benches, pick, min(n, benches[0].length - 2), scale, _held(q, sizes))
            if value is None:
                return None
            known[key] = sizes, value
        sizes, value = known[key]
        table.append([prod(int(sizes[a]) for a in m) for m in monomials])
        right.append(value)
    matrix = np.array(table, dtype=float)
    if (names and len(table) <= len(monomials)) or np.linalg.matrix_rank(matrix) < len(monomials):
        return None
    solved, *_ = np.linalg.lstsq(matrix, np.array(right, dtype=float), rcond=None)
    square = any(len(set(m)) < len(m) for m in monomials)  # halves count pairs: d * (d + 1) / 2
    exact = [Fraction(float(c)).limit_denominator(2 if square else 1) for c in solved]
    for row, value in zip(table, right, strict=True):
        if sum(c * k for c, k in zip(exact, row, strict=True)) != value:
            return None
    return {m: c for m, c in zip(monomials, exact, strict=True) if c}


def _clear(benches: Sequence[Bench], first: Pick, n: int, scale: float, held: int) -> int | None:
    """The rank on data of this scale, or of another where it is not clear there."""
    k, seed = first
    real = all(DTYPES[i.dtype].kind == "float" for i in benches[0].subject.inputs)
    others = [seed + OTHER] if real else [seed + OTHER, OTHER - 1]
    pick = _pick(benches, [first, *((k, s) for s in others)], (n,), held)
    for s in (scale, *(s for s in SCALES if s != scale)):
        found = _most(benches, [pick], n, s, held)
        if found is not None and found.clear:
            return found.value
    return None


def _sizes(q: Question, subject: Subject, names: Sequence[str], monomials: Sequence[Monomial]) -> list[Sizes]:
    """Choices of small sizes at which the monomials are independent, and one more."""
    if not names:
        only = _small(q, subject, {})
        return [] if only is None else [only]
    tries = [dict.fromkeys(names, 2)]
    tries += [dict.fromkeys(names, 2) | {a: k} for k in (3, 4, 5) for a in names]
    tries += [dict.fromkeys(names, 3), dict.fromkeys(names, 4)]
    found: list[Sizes] = []
    rows: list[list[int]] = []
    for wanted in tries:
        sizes = _small(q, subject, wanted)
        if sizes is None:
            continue
        row = [prod(int(sizes[a]) for a in m) for m in monomials]
        if row in rows:
            continue
        grows = np.linalg.matrix_rank(np.array([*rows, row], dtype=float)) > len(rows)
        full = len(rows) >= len(monomials)
        if grows or full:
            rows.append(row)
            found.append(sizes)
        if len(rows) > len(monomials):
            break
    return found


def _formula(fit: Mapping[Monomial, Fraction], apart: Monomial = ()) -> str:
    """The polynomial in the names of sizes, over those that are counted apart."""
    if all(_covers(m, apart) for m in fit):
        fit = {_without(m, apart): c for m, c in fit.items()}
        apart = ()
    said = ""
    for m, c in sorted(fit.items(), key=lambda term: (-len(term[0]), term[0])):
        letters = " * ".join(m)
        if abs(c.numerator) != 1 or not letters:
            letters = " * ".join(x for x in (str(abs(c.numerator)), letters) if x)
        term = letters if c.denominator == 1 else f"{letters} / {c.denominator}"
        sign = "-" if c < 0 else "+"
        said = f"{said} {sign} {term}" if said else term if c > 0 else f"-{term}"
    if not apart:
        return said
    below = " * ".join(apart)
    return f"({said}) / {below if len(apart) == 1 else f'({below})'}"


def _without(m: Monomial, part: Monomial) -> Monomial:
    rest = list(m)
    for a in part:
        rest.remove(a)
    return tuple(rest)
