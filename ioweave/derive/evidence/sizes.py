"""Small sizes for evidence: valid, the streamed axis long beside the others, names of one size told apart.

Names that merely repeat another (``x = q``) are given sizes of their own, where no array is read
along both: then the state of one instance does not grow with the axis because its tiles do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ioweave.derive.execution.trial_data import Sizes, Subject
from ioweave.diagrams.boxes import PREV, source
from ioweave.diagrams.diagram import Definition
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Constant, Number, walk
from ioweave.diagrams.sizes import as_size, resolve

CELLS = 40_000  # of the largest array
ATTEMPTS = 60
_CHOICES = (2, 3, 4, 2, 8, 1, 6)


def small(
    subject: Subject,
    axis: str,
    values: Mapping[str, int | float],
    definitions: Sequence[Definition],
    wanted: Mapping[str, int],
    length: int,
    uncut: frozenset[str] = frozenset(),
) -> Sizes | None:
    """Valid sizes near those ``wanted`` by name, the streamed axis near ``length``; None if none are found.

    Other names of axes are drawn where the wanted sizes are not valid together; names in ``uncut``
    stay tied to what they repeat.
    """
    base = set(subject.base.values())
    own = subject.base[axis]
    defined = {d.name for d in definitions}
    repeats = {d.name for d in definitions if isinstance(d.value, Constant)} - uncut - met_names(subject)
    tied = {d.name for d in definitions if not isinstance(d.value, Number)}
    named = {n.name for b in subject.boxes for n in walk(b.body) if isinstance(n, Constant)}
    dims = {n for i in subject.inputs for form in i.dims for n, _ in form.sizes}
    first = root(own, repeats, definitions)
    free = [n for n in values if n in base | dims and (n not in tied or n in repeats)]
    best: tuple[float, Sizes] | None = None
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng(attempt)
        keep_ties = attempt % 2 == 1
        drawn: Sizes = {}
        for name in free:
            if keep_ties and name in tied:
                continue
            drawn[name] = length if name in (own, first) else wanted.get(name, 4 if name in base | named else 8)
            if attempt > 1 and name not in (own, first, *wanted):
                drawn[name] = int(rng.choice(_CHOICES))
            elif attempt > ATTEMPTS // 2:
                drawn[name] = int(rng.choice((*_CHOICES, length)))
        for name, value in values.items():  # large whole constants, such as the size of a page
            large = name not in base | tied and isinstance(value, int) and value > 4
            if attempt > 1 and large and rng.random() < 0.5:
                drawn[name] = int(rng.choice(_CHOICES))
        found = _settled(drawn, values, definitions, defined)
        if found is None or not _valid(subject, found):
            continue
        off = abs(np.log(int(found[own]) / length)) + 0.01 * attempt
        if best is None or off < best[0]:
            best = float(off), found
        if off < 0.1:
            break
    if best is None or not length / 2 <= int(best[1][own]) <= length * 2:
        return None
    return best[1]


def root(name: str, repeats: set[str], definitions: Sequence[Definition]) -> str:
    """The name whose number a name repeats, through names that repeat others; itself where its tie is cut."""
    table = {d.name: d.value for d in definitions}
    while name not in repeats and isinstance(value := table.get(name), Constant):
        name = value.name
    return name


def met_names(subject: Subject) -> set[str]:
    """Names of sizes along which an array of another name is read: ``U[t]`` of an array along ``j``."""
    places = {i.name: [{n for n, _ in form.sizes} for form in i.dims] for i in subject.inputs}
    places |= {b.name: [{subject.base[a]} for a in b.axes] for b in subject.boxes}
    scans = {b.name: b.axes.index(b.scan.axis) for b in subject.boxes if b.scan is not None}
    found: set[str] = set()
    for b in subject.boxes:
        for r in b.reads():
            own = list(places.get(source(r.array), ()))
            if r.array.endswith(PREV):
                own.pop(scans[source(r.array)])
            for form, names in zip(r.index, own, strict=False):
                used = {subject.base[a] for a, _ in form.axes}
                if used and not used & names:
                    found |= used | names
    return found


def _settled(
    drawn: Sizes, values: Mapping[str, int | float], definitions: Sequence[Definition], defined: set[str]
) -> Sizes | None:
    if not definitions:  # names without definitions: nothing is tied
        return {**values, **drawn}
    try:
        return {**values, **drawn, **resolve(definitions, {n: v for n, v in drawn.items() if n in defined})}
    except WeaveError:
        return None


def _valid(subject: Subject, values: Sizes) -> bool:
    """Whether these are sizes, of arrays small enough, and every bare index is in range."""
    whole = {n: int(v) for n, v in values.items() if float(v).is_integer()}
    try:
        extents = {a: as_size(a, values[n]) for a, n in subject.base.items()}
        shapes = {i.name: tuple(form.fixed(whole) for form in i.dims) for i in subject.inputs}
    except (WeaveError, KeyError):
        return False
    shapes |= {b.name: tuple(extents[a] for a in b.axes) for b in subject.boxes}
    if any(n < 1 for shape in shapes.values() for n in shape):
        return False
    cells = [prod(s) for s in shapes.values()] + [prod(extents[a] for a in b.all_axes) for b in subject.boxes]
    if max(cells, default=1) > CELLS:
        return False
    for b in subject.boxes:
        for r in b.reads():
            for form, n in zip(r.index, shapes.get(r.array, ()), strict=False):
                if form.bare is not None and extents.get(form.bare, n) > n:
                    return False
    return True
