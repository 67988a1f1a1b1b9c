"""The chunked form: a scan walked chunk by chunk, most of its work as products of matrices.

Statement. Let ``S_t = a_t S_(t-1) + p_t (r_t . S_(t-1)) + u_t`` with ``a`` a number for each element or row.
In a chunk that the state ``G`` enters, with ``D_ij`` the product of ``a`` over ``j < l <= i`` and ``E_i`` that over
all ``l <= i``, ``S_i = E_i G + sum_(j <= i) D_ij (u_j + p_j y_j)``, where ``y_i = r_i . S_(i-1)`` solves a
triangular system in the chunk: ``y = Y + W G``. What reads ``S_i`` by a sum of products reads the sum over
``j`` and ``E_i G`` instead, and only ``G`` is carried, from chunk to chunk. Decays given as ``exp(g)`` are exponentials
of differences of cumulative sums, which exceed nothing that the recurrence does not; others are products
over the segment, so that a decay of 0 divides nothing.
Source. Katharopoulos et al. (2006); GLA, arXiv 2312.06635; the WY form of delta rules, arXiv 2406.06484.
Check. The diagram is executed beside the one that it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ioweave.derive.streaming.carry import ZERO
from ioweave.derive.streaming.chunk_form import ScanForm
from ioweave.derive.streaming.chunk_page import Frame, Page, fresh, plus
from ioweave.diagrams.composites import definition
from ioweave.diagrams.diagram import Definition, Diagram, Line
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Constant,
    Expr,
    Number,
    Read,
    Reduce,
    Scan,
    children,
    reads,
    rebuild,
    transform,
    walk,
)
from ioweave.diagrams.opening import open_line

Forms = Mapping[str, ScanForm]


def chunked(diagram: Diagram, axis: str, size: int) -> Diagram:
    """The diagram with ``axis`` in chunks of ``size``, its scan in the chunked form.

    Raises `Refused` for an axis without a scan, a size that does not divide the axis, and a scan or a
    reader that has no such form.
    """
    values = diagram.values()
    if axis not in values:
        raise Refused(f"no axis `{axis}` is defined here")
    n = int(values[axis])
    if size < 1 or n % size:
        near = [k for k in range(1, n + 1) if n % k == 0]
        best = min(near, key=lambda k: (abs(k - size), k))
        raise Refused(f"{axis} = {n} is no multiple of {size}: give a size that divides it, as {axis}={best}")
    for line in diagram.lines:
        if isinstance(line.expr, Composite) and axis in line.expr.axes and _scans(line.expr):
            diagram = open_line(diagram, line.name)
    for line in diagram.lines:
        if any(isinstance(e, Reduce) and e.into == axis for e in walk(line.expr)):
            raise Refused(f"{line.name} is a list along {axis}, which is made whole: {axis} has no chunks")
    scans = [line for line in diagram.lines if isinstance(line.expr, Scan) and line.expr.axis == axis]
    if not scans:
        raise Refused(f"the chunked form is of scans along {axis}, and there is none")
    taken = {d.name for d in diagram.definitions} | {i.name for i in diagram.inputs} | {x.name for x in diagram.lines}
    chunk, at, by = (fresh(n, taken) for n in ("c", "s", "r"))
    frame = Frame(axis, size, chunk, at, by)
    page = Page(diagram, frame, taken)
    forms = {scan.name: ScanForm(page, scan) for scan in scans}
    for line in diagram.lines:
        if line.name in forms:
            forms[line.name].write(line.name in diagram.outputs or _needed_whole(page, line.name, forms))
        else:
            _write(page, line, forms)
    lines = _read(page.out, diagram.outputs)
    return replace(diagram, definitions=_definitions(diagram, frame, n, page.ties), lines=lines)


def _read(lines: Sequence[Line], outputs: tuple[str, ...]) -> tuple[Line, ...]:
    """The lines that an output needs: a decay of which nothing is made is left out."""
    needed = set(outputs)
    kept: list[Line] = []
    for line in reversed(lines):
        if line.name in needed:
            kept.append(line)
            needed |= {r.array for r in reads(line.expr)}
    return tuple(reversed(kept))


def _scans(e: Composite) -> bool:
    """Whether a composite is a scan by its definition."""
    return any(isinstance(part.expr, Scan) for part in definition(e.op).lines)


def _definitions(diagram: Diagram, frame: Frame, length: int, ties: Mapping[str, str]) -> tuple[Definition, ...]:
    own = {d.name: d for d in diagram.definitions}
    new = [
        Definition(frame.chunk, Number(length // frame.size)),
        Definition(frame.at, Number(frame.size)),
        Definition(frame.by, Constant(frame.at)),
    ]
    whole = Apply("mul", (Constant(frame.chunk), Constant(frame.at)))
    if isinstance(own[frame.axis].value, Number):
        own[frame.axis] = Definition(frame.axis, whole)
    return (*new, *own.values(), *(Definition(n, Constant(a)) for n, a in ties.items()))


def _needed_whole(page: Page, scan: str, forms: Forms) -> bool:
    """Whether some reader of a scan is no sum of products of its present element."""
    return any(_needs(line.expr, forms[scan]) for line in page.diagram.lines if line.name != scan)


def _needs(e: Expr, form: ScanForm) -> bool:
    if isinstance(e, Read) and e.array == form.scan.name:
        return True
    if isinstance(e, Reduce) and form.direct(e) is not None:
        return False
    return any(_needs(k, form) for k in children(e))


def _write(page: Page, line: Line, forms: Forms) -> None:
    """A line with its sums over scans read out of the chunk."""
    done: dict[str, Expr] = {}

    def step(e: Expr) -> Expr:
        found = ((f, f.direct(e)) for f in forms.values() if isinstance(e, Reduce))
        form, terms = next(((f, t) for f, t in found if t is not None), (None, None))
        if form is None or terms is None or not isinstance(e, Reduce):
            kids = children(e)
            return rebuild(e, tuple(step(k) for k in kids)) if kids else e
        total: Expr = ZERO
        for factor in terms:
            total = plus(total, form.read_out(line.name, factor, e.axes))
        name = f"?{len(done)}"
        done[name] = total
        return Read(name)

    outer = page.placed(step(line.expr), page.frame.at)
    expr = transform(outer, lambda e: done.get(e.array, e) if isinstance(e, Read) else e)
    page.out.append(replace(line, axes=page.axes(line.axes), expr=expr))
