"""Histories: what a scan reads of all its earlier elements, summed up in a running value where that can be.

Statement. ``sum_(t < j) a(j) b(t) U_t = a(j) Z_j`` with ``Z_(j+1) = Z_j + b(j) U_j``, for a product of a factor
of the reader and one of the element read; a finite sum of such products needs a running value for each of
its terms. So a scan that reads its whole past through such sums carries ``Z`` instead of the past.
Source. Linear attention as a recurrence (Katharopoulos et al. 2006); linear transformers as fast weight
programmers (Schlag et al., arXiv 2102.11174).
Reach. Sums over every earlier element alone; a weight that does not part, such as ``exp(k_j . k_t)``, leaves
the past as the state.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ioweave.derive.streaming.carry import product_of
from ioweave.derive.streaming.cascade import at_index, inline, on_reads
from ioweave.derive.streaming.forms import Monomial, express, make_monomial
from ioweave.derive.streaming.forms import indicator as indicator_of
from ioweave.derive.streaming.normal_form import Canonical
from ioweave.derive.streaming.parting import parted, without
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, Opened, Recurrence
from ioweave.diagrams.expressions import Apply, Expr, Index, Number, Read, free_axes, reads, rename_axes
from ioweave.diagrams.groups import Group, groups, past, prev

ZERO = Number(0)


def without_histories(opened: Opened) -> Opened:
    """The boxes with every history that a running value sums up carried as that value; others are left."""
    boxes = list(opened.boxes)
    for group in groups(opened.boxes):
        if group.past:
            found = _summed(boxes, group)
            if found is not None:
                names = {b.name for b in group.members}
                at = min(k for k, b in enumerate(boxes) if b.name in names)
                last = max(k for k, b in enumerate(boxes) if b.name in names)
                between = [b for b in boxes[at : last + 1] if b.name not in names]
                boxes[at : last + 1] = [*between, *found]
    return opened if tuple(boxes) == opened.boxes else replace(opened, boxes=tuple(boxes))


def _summed(boxes: list[Box], group: Group) -> list[Box] | None:
    """The group of one running value in the place of one that reads its past; None where none sums it up."""
    scan = group.scan
    readers = [b for b in group.members if any(r.array == past(scan.name) for r in b.reads())]
    steps = any(r.array == prev(scan.name) for b in group.members for r in b.reads())
    if len(readers) != 1 or steps or readers[0].reduction != "sum" or len(readers[0].over) != 1:
        return None
    reader = readers[0]
    part = _parted(boxes, group, reader)
    if part is None:
        return None
    mine, theirs, inner, read = part
    (t,) = reader.over
    name = f"{scan.name}.past"
    line = f"{name} of {scan.name}"
    own = tuple(f.bare or "" for f, a in zip(read.index, scan.axes, strict=True) if a != group.axis)
    rest = tuple(a for a in free_axes(theirs) if a not in (t, *own, *inner))
    axes = (group.axis, *inner, *rest, *own)
    value = rename_axes(theirs, {t: group.axis})
    element = Read(scan.name, tuple(Affine.axis(group.axis if a == group.axis else o) for a, o in _places(scan, own)))
    index = tuple(Affine.axis(a) for a in axes[1:])
    body = Apply("add", (Read(prev(name), index), product_of(value, element)))
    start = Recurrence(group.axis, ZERO, group.backward)
    carried = Box(name, axes, body, None, (), scan.dtype, line, scan=start)
    seen = product_of(mine, Read(prev(name), index))
    new = replace(reader, body=seen, reduction="sum" if inner else None, over=inner, line=line)
    others = [replace(b, line=line) for b in group.members if b is not reader and b is not scan]
    members = [new if b is reader else next((o for o in others if o.name == b.name), b) for b in group.members]
    return [*members[:-1], replace(scan, scan=None, line=line), carried]


def _places(scan: Box, own: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each axis of a scan with the name that a reader has for it; the walked one keeps its own."""
    assert scan.scan is not None
    names = iter(own)
    return [(a, a if a == scan.scan.axis else next(names)) for a in scan.axes]


def _parted(boxes: list[Box], group: Group, reader: Box) -> tuple[Expr, Expr, tuple[str, ...], Read] | None:
    """The reader's factor, that of the element read, the axes of the finite sum over both, and the read."""
    table = {b.name: b for b in boxes}
    held = {b.name for b in group.members}
    (t,) = reader.over
    body = inline(reader.body, table, lambda r: r.array not in held)
    inner: list[str] = []
    for r in reads(body):
        box = table.get(r.array)
        if box is None or box.reduction != "sum" or r.array in held:
            continue
        if not {t, group.axis} <= {a for f in r.index for a in f.names}:
            continue
        names: dict[str, str] = {}
        for a in box.over:
            new = a
            while new in reader.all_axes or new in box.axes or new in inner:
                new += "'"
            names[a] = new
        inner += names.values()
        opened = at_index(replace(box, body=rename_axes(box.body, names)), r.index)
        opened = inline(opened, table, lambda x: x.array not in held)
        body = _put(body, r, opened)
    form = Canonical().form(body)
    if len(form) != 1:
        return None
    m, c = form[0]
    earlier = Apply("gt" if group.backward else "lt", (Index(t), Index(group.axis)))
    found = next((a for a, p in m.factors if p == 1 and isinstance(a, Read) and a.array == past(group.scan.name)), None)
    if not isinstance(found, Read) or not _bare(found, group, t):
        return None
    rest = without(m, found)
    masks = [a for a, _ in rest.factors if a in (indicator_of(earlier), indicator_of(_turned(earlier)))]
    if not masks:
        return None
    for held_mask in masks:
        rest = without(rest, held_mask)
    mine, theirs = parted(rest, frozenset({t}))
    if mine.exponent and theirs.exponent:
        return None  # exp(a - b) is in range where exp(a) and exp(-b) need not be
    if group.axis in _axes(theirs) or any(r.array in held or r.array == past(group.scan.name) for r in _reads(rest)):
        return None
    return _as_expr(mine, c), _as_expr(theirs, Fraction(1)), tuple(inner), found


def _put(e: Expr, r: Read, value: Expr) -> Expr:
    return on_reads(e, lambda n: value if n == r else n)


def _turned(e: Apply) -> Apply:
    return Apply({"lt": "gt", "gt": "lt"}[e.op], (e.args[1], e.args[0]))


def _bare(r: Read, group: Group, t: str) -> bool:
    """Whether a read of the past is at the reduced axis, and at bare axes elsewhere."""
    at = group.scan.axes.index(group.axis)
    return r.index[at].bare == t and all(f.bare not in (None, t, group.axis) for k, f in enumerate(r.index) if k != at)


def _axes(m: Monomial) -> tuple[str, ...]:
    return free_axes(_as_expr(m, Fraction(1)))


def _reads(m: Monomial) -> tuple[Read, ...]:
    return reads(_as_expr(m, Fraction(1)))


def _as_expr(m: Monomial, c: Fraction) -> Expr:
    return express(((make_monomial(dict(m.factors), m.exponent), c),))
