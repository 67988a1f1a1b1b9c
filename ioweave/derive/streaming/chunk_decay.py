"""Decays in a chunk: products of the decay of a scan over segments, safe for every decay.

Statement. ``D_ij`` is the product of ``a_l`` over ``j < l <= i``. A decay that is one number throughout gives
powers of it; one given as ``exp(g)`` gives ``exp(L_i - L_j)`` with cumulative sums ``L``, which is in range
where the recurrence is; any other gives products over segments, element by element, so nothing is divided.
Source. GLA, arXiv 2312.06635, section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from ioweave.derive.streaming.carry import ZERO
from ioweave.derive.streaming.chunk_page import ONE, Page, fresh, moved, times
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Line
from ioweave.diagrams.expressions import Apply, Expr, Index, Number, Read, Scan, free_axes


@dataclass(frozen=True, slots=True)
class Decays:
    """Products of a decay: over ``r < l <= s`` (``between``), ``l <= s`` (``into``), ``r < l`` (``to_end``), all of a
    chunk (``whole``), ``r < l < s`` (``shorter``) and ``l < s`` (``behind``); s and r are places in it."""

    between: Expr
    into: Expr
    to_end: Expr
    whole: Expr
    shorter: Expr
    behind: Expr


def decays(page: Page, scan: str, decay: Expr, carried: tuple[str, ...]) -> Decays:
    """The products of a scan's decay, with the lines that they need."""
    if decay == ONE:
        return Decays(ONE, ONE, ONE, ONE, ONE, ONE)
    axes = tuple(x for x in carried if x in free_axes(decay))
    if page.frame.axis not in free_axes(decay):
        return _powers(page, decay)
    if isinstance(decay, Apply) and decay.op in ("exp", "exp2"):
        return _logarithmic(page, scan, decay, axes)
    return _products(page, scan, decay, axes)


def _powers(page: Page, a: Expr) -> Decays:
    s, r, size = Index(page.frame.at), Index(page.frame.by), page.frame.size

    def power(e: Expr) -> Expr:
        return Apply("pow", (a, e))

    gap = Apply("sub", (s, r))
    ends, short = Apply("sub", (Number(size - 1), r)), Apply("sub", (gap, ONE))
    return Decays(power(gap), power(Apply("add", (s, ONE))), power(ends), power(Number(size)), power(short), power(s))


def _logarithmic(page: Page, scan: str, a: Apply, axes: tuple[str, ...]) -> Decays:
    """Exponentials of differences of the cumulative sum of the exponents."""
    f = page.frame
    gate = page.placed(a.args[0], f.at)
    total = fresh(f"{scan}_log", page.taken)
    own = (f.chunk, f.at, *axes)
    rest = tuple(Affine.axis(x) for x in axes)
    before = Read(total, (Affine.axis(f.chunk), Affine.make({f.at: 1}, {}, -1), *rest))
    page.out.append(Line(total, own, Scan(f.at, Apply("add", (before, gate)), ZERO)))
    here = Read(total, tuple(Affine.axis(x) for x in own))
    there = moved(here, {f.at: f.by})
    end = Read(total, (Affine.axis(f.chunk), Affine((), (), f.size - 1), *rest))
    less = Apply("sub", (here, gate))

    def power(e: Expr, less: Expr | None = None) -> Expr:
        return Apply(a.op, (e if less is None else Apply("sub", (e, less)),))

    return Decays(power(here, there), power(here), power(end, there), power(end), power(less, there), power(less))


def _products(page: Page, scan: str, a: Expr, axes: tuple[str, ...]) -> Decays:
    """Products over segments, element by element."""
    f = page.frame
    gate = page.placed(a, f.at)
    rest = tuple(Affine.axis(x) for x in axes)
    c, r, last = Affine.axis(f.chunk), Affine.axis(f.by), Affine((), (), f.size - 1)
    back = Affine.make({f.at: 1}, {}, -1)
    pair, into = fresh(f"{scan}_decay", page.taken), fresh(f"{scan}_into", page.taken)
    step = times(gate, Read(pair, (c, back, r, *rest)))
    body = Apply("where", (Apply("le", (Index(f.at), Index(f.by))), ONE, step))
    page.out.append(Line(pair, (f.chunk, f.at, f.by, *axes), Scan(f.at, body, ONE)))
    page.out.append(Line(into, (f.chunk, f.at, *axes), Scan(f.at, times(gate, Read(into, (c, back, *rest))), ONE)))
    inside = Apply("gt", (Index(f.at), ZERO))
    return Decays(
        between=Read(pair, (c, Affine.axis(f.at), r, *rest)),
        into=Read(into, (c, Affine.axis(f.at), *rest)),
        to_end=Read(pair, (c, last, r, *rest)),
        whole=Read(into, (c, last, *rest)),
        shorter=Read(pair, (c, back, r, *rest)),
        behind=Apply("where", (inside, Read(into, (c, back, *rest)), ONE)),
    )
