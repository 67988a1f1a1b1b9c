"""Lists: the k largest values of a streamed axis are an accumulator whose merge is the merge of two lists.

Statement. The list of the k largest terms of a whole row is the list of the k largest of the lists of its
parts: a term that is beaten k times in its part is beaten k times in the row. A map that keeps the order
commutes with it: ``topk(f(s))_j = f(topk(s)_j)`` for f that never falls, and ``argtopk(f(s)) = argtopk(s)``
for f that rises, so that scores, their exponentials and their softmax share one list.
Source. Selection by merging: Knuth, The Art of Computer Programming 3, 5.3.3; the streamed reductions of
Abbott and Zardini (arXiv 2412.03317), of which a list with its merge is one.
Check. The state is executed and merged beside the reference (`ioweave.derive.execution.trial`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from ioweave.derive.streaming.forms import (
    ONE,
    UNIT,
    Form,
    Monomial,
    add,
    atom,
    express,
    is_indicator,
    is_mask,
    make_form,
    make_monomial,
    mask,
    multiply,
)
from ioweave.derive.streaming.parting import parted
from ioweave.diagrams.boxes import Box, base_name, source
from ioweave.diagrams.expressions import Apply, Expr, Number, Size, reads
from ioweave.diagrams.lists import KEYED, KEYS, PAYLOAD, key, payload
from ioweave.diagrams.operators import CASTS

if TYPE_CHECKING:
    from ioweave.derive.streaming.given import Given
    from ioweave.derive.streaming.plan import Plan
    from ioweave.derive.streaming.values import Values

RISING = frozenset({"tanh", "sigmoid", "erf"})  # and exponentials: of different arguments they are different
NEVER_FALLING = RISING | {"relu", "floor", "round"} | CASTS

Back = Callable[[Form], Form]


def list_value(values: Values, box: Box) -> Form:
    """The value of a list: an irreducible list of the score of its keys, with the way back for values.

    What rides along is beside the score: ``keyed(score, payload)``.
    """
    op, over, into = box.reduction or "", box.over, box.into
    score, back = scored(values, frozenset(over), values.form(key(box)), op != KEYS)
    if op == PAYLOAD:
        beside = Apply(KEYED, (express(score), values.canonical(payload(box))))
        return atom(values.irreducible(op, over, atom(beside), into))
    whole = atom(values.irreducible(op, over, score, into))
    return back(whole) if op == KEYS else whole


def scored(values: Values, over: frozenset[str], form: Form, strictly: bool) -> tuple[Form, Back]:
    """A simpler form whose terms stand in the same order along the axes ``over``, and the way back from it.

    ``strictly``: different terms of the form are different in the score too, and the other way round.
    """
    shift: Form = ()
    walking: list[tuple[Monomial, Monomial, Fraction]] = []
    for m, c in form:
        free, bound = parted(m, over)
        if bound == UNIT:
            shift = add(shift, ((m, c),))
        else:
            walking.append((free, bound, c))
    plain = [w for w in walking if not (w[0] == UNIT and w[2] == 1 and _is_mask(w[1]))]
    lead = (plain or walking or [(UNIT, UNIT, ONE)])[0]
    positive = _above(values, lead[0]) if strictly else values.positive(lead[0])
    if not plain or any(w[0] != lead[0] for w in plain) or not positive:
        return form, lambda f: f
    size = abs(lead[2])
    inner = make_form({w[1]: w[2] / size if w in plain else w[2] for w in walking})
    front: Form = ((lead[0], size),)
    core, deeper = _core(values, over, inner, strictly)

    def back(f: Form) -> Form:
        return add(multiply(front, deeper(f)), shift)

    return core, back


def _core(values: Values, over: frozenset[str], inner: Form, strictly: bool) -> tuple[Form, Back]:
    """`scored` of terms that share no factor."""
    if len(inner) != 1 or inner[0][1] != 1:
        return inner, lambda f: f
    m = inner[0][0]
    tests = [a for a, _ in m.factors if is_indicator(a)]
    if m.exponent and len(tests) == len(m.factors):
        hidden = (mask(t.args[0]) for t in tests if isinstance(t, Apply))
        core, back = scored(values, over, add(m.exponent, *map(atom, hidden)), strictly)
        return core, lambda f: values.exponential(back(f))
    if m.exponent or len(m.factors) != 1:
        return inner, lambda f: f
    a, p = m.factors[0]
    if isinstance(a, Apply) and a.op in (RISING if strictly else NEVER_FALLING) and p == 1:
        core, back = scored(values, over, values.form(a.args[0]), strictly)
        return core, lambda f: values.form(Apply(a.op, (express(back(f)),)))
    if p != 1 and p > 0 and values.nonnegative(a):
        core, back = scored(values, over, atom(a), strictly)
        return core, lambda f: values.power(back(f), p)
    return inner, lambda f: f


def _is_mask(m: Monomial) -> bool:
    return len(m.factors) == 1 and not m.exponent and is_mask(m.factors[0][0])


def _above(values: Values, m: Monomial) -> bool:
    """Whether a factor is above 0: exponentials are, sizes, numbers, and what is divided by and never negative."""
    return all(
        (isinstance(a, Number) and a.value > 0) or isinstance(a, Size) or (p < 0 and values.nonnegative(a))
        for a, p in m.factors
    )


def order_key(values: Values, over: frozenset[str], m: Monomial, power: int) -> Form | None:
    """A score that orders a weight by size along the axes ``over``: its logarithm where it has an exponential.

    ``power`` is 1 for a weight that is never negative, 2 for one of any sign. None where nothing of it
    changes along the axes.
    """
    _, bound = parted(m, over)
    if bound == UNIT:
        return None
    if not bound.exponent:
        whole = express(((bound, ONE),))
        return values.form(whole if power == 1 else Apply("abs", (whole,)))
    tests = [a.args[0] for a, _ in bound.factors if isinstance(a, Apply) and is_indicator(a)]
    rest = {a: p for a, p in bound.factors if not is_indicator(a)}
    form = add(bound.exponent, *(atom(mask(t)) for t in tests))
    if rest:
        front: Expr = express(((make_monomial(rest), ONE),))
        front = front if power == 1 else Apply("abs", (front,))
        form = add(form, atom(Apply("log", (front,))))
    return form


def growing(plan: Plan, tied: frozenset[str]) -> tuple[Box, ...]:
    """The lists of a state whose length follows that of the axis: ``tied`` are the names that may."""
    return tuple(b for b in plan.carried if b.into is not None and base_name(b.into) in tied)


def no_end(lists: tuple[Box, ...], axis: str) -> tuple[str, str]:
    """Why a list as long as the axis is no state, and the nearest change that would stream."""
    first = lists[0]
    into = base_name(first.into or "")
    why = (
        f"{first.name} is a list of {into} slots, and {into} grows with {axis}: it holds every term that it has seen, "
        f"which no state of a size known beforehand does"
    )
    return why, f"give {into} a number of its own that does not follow {axis}: a list of that many slots streams"


def held_as(box: Box, plan: Plan, given: Given) -> str:
    """The dtype that an accumulator is held in: a payload as what it is taken from, which is moved and not computed."""
    made = {b.name: b for b in plan.boxes}

    def computed(name: str) -> bool:
        b = made.get(name)
        if b is None:
            return False
        return b.reduction is not None or b.scan is not None or any(computed(source(r.array)) for r in b.reads())

    if box.reduction == PAYLOAD and not any(computed(source(r.array)) for r in reads(payload(box))):
        return box.dtype
    return given.held(box.dtype)
