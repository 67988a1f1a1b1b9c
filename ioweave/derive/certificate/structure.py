"""Whether the boxes of a plan can run as the plan says, seen from the boxes alone.

The passes and stages are found again from what each box reads, and compared with those written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ioweave.derive.streaming.plan import Plan, Stage
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import OLD, PAST, PREV, RUNNING, Box, Opened, base_name, source
from ioweave.diagrams.expressions import Apply, Constant, Expr, Index, Number, Read, Size, walk
from ioweave.diagrams.groups import Group, carried_axes, groups, units
from ioweave.diagrams.lists import KEYED, KEYS, PAYLOAD, POSITIONS, is_list, key
from ioweave.diagrams.operators import KEEP, OPERATORS, REDUCTIONS

_TERMS = Apply | Constant | Index | Number | Read | Size

# Where a box runs: before any loop; in the loop, waiting for nothing in it; in the loop with its state; after it.
Kind = Literal["head", "still", "moving", "tail"]
_STAGES: dict[Kind, Stage] = {"head": "head", "still": "body", "moving": "body", "tail": "tail"}


class Unsound(Exception):
    """A certificate that does not hold. The message names what fails, on one line."""


@dataclass(frozen=True)
class Layout:
    """The boxes of a plan over one axis, each with its pass and where in the pass it runs.

    ``following`` has the boxes of a loop that are made from what its scans carry, those scans among
    them; ``directions`` the direction of every pass that has one.
    """

    boxes: tuple[Box, ...]
    axis: str
    places: Mapping[str, tuple[int, Kind]]
    by_name: Mapping[str, Box] = field(repr=False)
    following: frozenset[str] = frozenset()
    directions: Mapping[int, str] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """How many loops over the axis there are."""
        return max((run for run, _ in self.places.values()), default=0)

    @property
    def state(self) -> tuple[Box, ...]:
        """The accumulators, in order."""
        return tuple(b for b in self.boxes if b.running)

    @property
    def carried(self) -> tuple[Box, ...]:
        """The accumulators that hold data: what positions alone decide, such as a running count, is no state."""
        return tuple(b for b in self.state if b.reads() or b.rescale is not None or b.recentre is not None)

    @property
    def recurrences(self) -> tuple[Box, ...]:
        """The scans along the axis, in order: what each carries is state."""
        return tuple(b for b in self.boxes if b.scan is not None and b.scan.axis == self.axis)

    def still(self, run: int) -> tuple[Box, ...]:
        """The boxes of a loop that read no running value and nothing that follows a scan, directly or not."""
        return tuple(b for b in self._at(run, "still") if b.name not in self.following)

    def walked(self, run: int) -> tuple[Box, ...]:
        """The boxes of a loop whose values in a step follow those of the steps before it."""
        return tuple(
            b for b in self.boxes if self.places[b.name][0] == run and (b.name in self.following or self._moves(b.name))
        )

    def _moves(self, name: str) -> bool:
        return self.places[name][1] == "moving"

    def scans(self, run: int) -> tuple[Group, ...]:
        """The scans along the axis of one pass, each with what is made with it."""
        return tuple(g for g in groups(self.walked(run)) if g.axis == self.axis)

    def moving(self, run: int) -> tuple[Box, ...]:
        """The accumulators of a pass, and what reads their running values."""
        return self._at(run, "moving")

    def outside(self, run: int) -> tuple[Box, ...]:
        """The tail of a pass, or the head for 0."""
        return self._at(run, "tail" if run else "head")

    def _at(self, run: int, kind: Kind) -> tuple[Box, ...]:
        return tuple(b for b in self.boxes if self.places[b.name] == (run, kind))

    def read(self, name: str) -> Read:
        """A box read at its own axes."""
        return Read(name, tuple(Affine.axis(a) for a in self.by_name[name].axes))

    def stirred(self, name: str) -> bool:
        """Whether a box is a map of the loop that follows running values: it has no finished value."""
        return self._moves(name) and not self.by_name[name].running


def lay_out(plan: Plan, opened: Opened, axis: str, known: Iterable[str]) -> Layout:
    """The layout of a plan for streaming ``axis`` of a diagram; ``known`` names its sizes and constants.

    Raises `Unsound` for a box that cannot run where the plan puts it.
    """
    if plan.streamed != frozenset({axis}):
        raise Unsound(f"the plan streams {', '.join(sorted(plan.streamed)) or 'nothing'}, not {axis}")
    names = [b.name for b in plan.boxes]
    inputs = {i.name: len(i.dims) for i in opened.inputs}
    for n in names:
        if names.count(n) > 1 or n in inputs or "~" in n:
            raise Unsound(f"box {n} is not the only array of that name")
    written = {n: (run, stage) for n, run, stage in plan.stages}
    if sorted(n for n, _, _ in plan.stages) != sorted(names):
        raise Unsound("the stages do not name each box of the plan once")
    sizes = frozenset(known)
    for name, slots in plan.lengths:
        if name in sizes or name != base_name(name) or slots < 1:
            raise Unsound(f"the list axis {name} of {slots} slots is no axis of the plan's own")
        sizes |= {name}
    builder = _Builder(axis, opened, inputs, sizes, {n: run for n, (run, _) in written.items()}, plan.boxes)
    for unit in units(plan.boxes):
        run, kind = builder.place_group(unit) if isinstance(unit, Group) else builder.place(unit)
        for box in unit.members if isinstance(unit, Group) else (unit,):
            if written[box.name] != (run, _STAGES[kind]):
                is_run, is_stage = written[box.name]
                raise Unsound(
                    f"box {box.name} is said to run in pass {is_run}, {is_stage}; "
                    f"what it reads puts it in pass {run}, {_STAGES[kind]}"
                )
    layout = Layout(plan.boxes, axis, builder.places, builder.boxes, frozenset(builder.following), builder.directions)
    _check_walks(plan, layout)
    _check_outputs(layout, opened)
    return layout


def _check_walks(plan: Plan, layout: Layout) -> None:
    """The direction of every pass is that of its scans; a plan of a diagram without scans has none."""
    found = tuple(layout.directions.get(run, "both") for run in range(1, layout.passes + 1))
    if plan.walks != found and (plan.walks or layout.directions):
        raise Unsound(f"the passes are said to walk {' and '.join(plan.walks) or 'no way'}, not {' and '.join(found)}")


def _check_outputs(layout: Layout, opened: Opened) -> None:
    for name in opened.outputs:
        made = layout.by_name.get(name)
        if made is None:
            raise Unsound(f"no box of the plan makes the output {name}")
        wanted = opened.box(name)
        if not _same_axes(made, wanted, layout.axis) or made.dtype != wanted.dtype:
            raise Unsound(f"the plan's {name} has axes or dtype other than the diagram's")
        if layout.stirred(name):
            raise Unsound(f"the output {name} follows running values: it is never finished")


def _same_axes(made: Box, wanted: Box, axis: str) -> bool:
    """Whether two boxes have the same axes; of equal lists one may have taken the other's place, slots and all."""
    pairs = zip(made.axes, wanted.axes, strict=False)
    alike = all(a == b or (base_name(a) == base_name(b) and axis not in (a, b) and is_list(made)) for a, b in pairs)
    return len(made.axes) == len(wanted.axes) and alike


def _walked(opened: Opened) -> dict[tuple[str, int], set[str]]:
    """The axes by which the diagram reads each dimension of each array."""
    found: dict[tuple[str, int], set[str]] = {}
    for b in opened.boxes:
        for place, a in enumerate(b.axes):
            found.setdefault((b.name, place), set()).add(a)
        for r in b.reads():
            for place, form in enumerate(r.index):
                found.setdefault((r.array, place), set()).update(form.names)
    return found


def _applies(e: Apply) -> bool:
    """Whether there is such an operator of as many arguments; `keep` takes any number of indices."""
    if e.op not in OPERATORS:
        return False
    arity = OPERATORS[e.op].arity
    return len(e.args) == arity or (e.op == KEEP and len(e.args) > arity)


def check_expression(box: Box, body: Expr, axes: frozenset[str | None], known: frozenset[str]) -> None:
    """Known operators and names in an expression, and the indices of its own axes; raises `Unsound`."""

    def wrong(why: str) -> Unsound:
        return Unsound(f"box {box.name} {why}")

    for e in walk(body):
        if not isinstance(e, _TERMS):
            raise wrong("has a reduction inside its body")
        if isinstance(e, Apply) and not _applies(e):
            raise wrong(f"applies {e.op} to {len(e.args)}, which is no operator")
        name = e.name if isinstance(e, Constant) else e.axis if isinstance(e, Size) else None
        if name is not None and name not in known:
            raise wrong(f"names {name}, which has no value")
        if isinstance(e, Index) and e.axis not in axes:
            raise wrong(f"uses the index {e.axis}, which is none of its axes")


class _Builder:
    """Places boxes one by one, in order of evaluation."""

    def __init__(
        self,
        axis: str,
        opened: Opened,
        inputs: Mapping[str, int],
        known: frozenset[str],
        runs: Mapping[str, int],
        boxes: tuple[Box, ...],
    ) -> None:
        self.axis = axis
        self.inputs = inputs
        self.known = known
        self.lines = frozenset((b.line, b.dtype) for b in opened.boxes)
        self.walked = _walked(opened)
        self.runs = runs
        self.places: dict[str, tuple[int, Kind]] = {}
        self.boxes: dict[str, Box] = {}
        self.corrections: set[str] = set()  # what may read old values: maps without the axis
        self.groups = {b.name: g for g in groups(boxes) for b in g.members}
        self.following: set[str] = set()
        self.directions: dict[int, str] = {}

    def place(self, box: Box) -> tuple[int, Kind]:
        """The pass of a box and where it runs in it; raises `Unsound`."""
        self._well_formed(box)
        streams = box.reduction is not None and self.axis in box.over
        if box.running != streams:
            raise Unsound(f"box {box.name} {'is no' if box.running else 'reduces'} reduction over {self.axis}"[:200])
        moving = streams or any(self._follows(r) for r in box.reads())
        # a list is made whole: along the axis of its own slots it waits for no step
        inside = moving or (self.axis in box.axes and self.axis != box.into)
        at: tuple[int, Kind]
        if inside:
            first = max([1, *(self._first(box, r) for r in self._all_reads(box))])
            # an accumulator may be left to a later pass than the first that would do
            run = max(first, self.runs[box.name]) if streams else first
            at = run, "moving" if moving else "still"
        else:
            run = max([0, *(self._finished(box, r) for r in box.reads())])
            at = run, "tail" if run else "head"
        if moving:
            self._check_moving(box, at[0], streams)
        if at[1] == "still" and any(source(r.array) in self.following for r in box.reads()):
            self.following.add(box.name)
        self.places[box.name] = at
        self.boxes[box.name] = box
        return at

    def place_group(self, group: Group) -> tuple[int, Kind]:
        """The pass of a scan, with what is made with it, and where it runs in it; raises `Unsound`."""
        scan, own = group.scan, {b.name for b in group.members}
        for b in group.members:
            self._well_formed(b)
            if b.running or is_list(b) or b.rescale or b.recentre or self.axis in b.over:
                raise Unsound(f"box {b.name} is made element by element with {scan.name}, and is no map of it")
            self.boxes[b.name] = b
        outer = [(b, r) for b in group.members for r in b.operands() if r.array not in own]
        if any(self._follows(r) for _, r in outer):
            raise Unsound(f"the scan {scan.name} reads running values, which are not finished")
        along = group.axis == self.axis
        at: tuple[int, Kind]
        if along or any(self.axis in b.axes for b in group.members):
            run = max([1, *(self._first(b, r) for b, r in outer)])
            at = (max(run, self.runs[scan.name]) if along else run), "still"
            if not along:
                self._check_apart(group)
        else:
            run = max([0, *(self._finished(b, r) for b, r in outer)])
            at = run, "tail" if run else "head"
        if along:
            if self.directions.setdefault(at[0], group.direction) != group.direction:
                raise Unsound(f"pass {at[0]} has scans of both directions along {self.axis}")
            if group.past:
                raise Unsound(f"the scan {scan.name} reads all of its earlier elements, which is no state")
        follows = along or any(r.array in self.following for _, r in outer)
        for b in group.members:
            self.places[b.name] = at
            if follows:
                self.following.add(b.name)
        return at

    def _check_apart(self, group: Group) -> None:
        """A scan along another axis carries each index of the streamed one by itself."""
        axes = {b.name: b.axes for b in group.members}
        axes[group.scan.name + PREV] = carried_axes(group.scan)
        axes[group.scan.name + PAST] = group.scan.axes
        for b in group.members:
            for r in b.reads():
                for a, form in zip(axes.get(r.array, ()), r.index, strict=False):
                    if (a == self.axis) != (form.bare == self.axis) or (a != self.axis and self.axis in form.names):
                        raise Unsound(f"the scan {group.scan.name} mixes what it carries along {self.axis}")

    def _all_reads(self, box: Box) -> tuple[Read, ...]:
        return (*box.reads(), *(Read(n) for n in (box.rescale, box.recentre) if n is not None))

    def _well_formed(self, box: Box) -> None:
        """Known axes, operators and arrays, each read at as many places as it has axes."""

        def wrong(why: str) -> Unsound:
            return Unsound(f"box {box.name} {why}")

        if len(set(box.all_axes)) < len(box.all_axes):
            raise wrong("has an axis twice")
        for a in box.all_axes:
            if base_name(a) not in self.known:
                raise wrong(f"has the axis {a}, which has no size")
        if box.reduction is not None and box.reduction not in REDUCTIONS and not is_list(box):
            raise wrong(f"reduces by {box.reduction}, which is no reduction")
        if (box.reduction is None) != (not box.over):
            raise wrong("reduces over no axis" if box.reduction else "has reduced axes and no reduction")
        self._check_line(box)
        inner = frozenset(box.all_axes) - {box.into}
        for e in self._check_list(box):
            check_expression(box, e, inner, self.known)
        if box.scan is not None:
            if box.scan.axis not in box.axes:
                raise wrong(f"is a scan along {box.scan.axis}, which is none of its axes")
            check_expression(box, box.scan.start, inner - {box.scan.axis, *box.over}, self.known)
        for r in box.reads():
            self._check_read(box, r, inner)

    def _check_line(self, box: Box) -> None:
        """The element type of a line: positions are int32, and what stands in for a line has that of the line."""
        if box.reduction == POSITIONS and box.dtype == "int32":
            return
        found = {d for n, d in self.lines if box.line == n}
        found = found or {d for n, d in self.lines if box.line.startswith(n + ".") or box.line.endswith(" of " + n)}
        if box.dtype not in found:
            raise Unsound(
                f"box {box.name} of line {box.line} is {box.dtype}, which no box of that line is in the diagram"
            )

    def _check_list(self, box: Box) -> tuple[Expr, ...]:
        """The expressions of a box's terms: of a list the key, with the payload. Raises `Unsound` for no list."""
        if not is_list(box):
            if box.into is not None or box.keys is not None:
                raise Unsound(f"box {box.name} has the axis or the keys of a list, and is none")
            return (box.body,)
        if box.into not in box.axes or box.rescale is not None or box.recentre is not None:
            raise Unsound(f"the list {box.name} has no axis of its own, or is corrected")
        if (box.reduction == KEYS) != (box.keys is None):
            raise Unsound(f"the list {box.name} is ordered by no other, or by one that it may not have")
        for name, kind in zip(box.keys or (), (KEYS, POSITIONS), strict=False):
            other = box if name == box.name else self.boxes.get(name)
            if other is None or other.reduction != kind or other.running != box.running:
                raise Unsound(f"the list {box.name} is ordered by {name}, which is no list of its pass")
            same = other.body == key(box) and other.over == box.over and other.into == box.into
            if not same or not set(other.axes) <= set(box.axes) or (other.keys or box.keys) != box.keys:
                raise Unsound(f"the list {box.name} is ordered by {name}, which has other keys")
            if other is not box and box.running and self.places[name][0] != self.runs[box.name]:
                raise Unsound(f"the list {box.name} is ordered by {name} of another pass")
        if box.reduction != PAYLOAD:
            return (box.body,)
        if not isinstance(box.body, Apply) or box.body.op != KEYED or len(box.body.args) != 2:
            raise Unsound(f"the list {box.name} has no payload beside its keys")
        return box.body.args

    def _rank(self, box: Box, r: Read) -> tuple[str, ...] | None:
        """The axes at which a read may be made: fewer for the value before an element; None for an input."""
        name = source(r.array)
        made = self.boxes.get(name)
        group = self.groups.get(box.name)
        if r.array.endswith((PREV, PAST)):
            if group is None or group.scan.name != name:
                raise Unsound(f"box {box.name} reads {r.array}, and is not made with {name}")
            return carried_axes(group.scan) if r.array.endswith(PREV) else group.scan.axes
        if made is None and r.array not in self.inputs:
            raise Unsound(f"box {box.name} reads {r.array}, which is no input and no earlier box")
        return None if made is None else made.axes

    def _check_read(self, box: Box, r: Read, inner: frozenset[str | None]) -> None:
        own = self._rank(box, r)
        rank = len(own) if own is not None else self.inputs[r.array]
        if len(r.index) != rank:
            raise Unsound(f"box {box.name} reads {r.array} at {len(r.index)} places; it has {rank} axes")
        for place, form in enumerate(r.index):
            canonical = form == Affine.make(dict(form.axes), dict(form.sizes), form.offset, dict(form.lookups))
            if not canonical or not set(form.names) <= inner or not {s for s, _ in form.sizes} <= self.known:
                raise Unsound(f"box {box.name} reads {r.array} at {form}, which names none of its axes or sizes")
            # another axis of the same size would walk the whole of it within one step
            walked = self.walked.get((r.array, place), {self.axis} if own and own[place] == self.axis else set())
            if self.axis in walked and not set(form.names) <= walked:
                raise Unsound(f"box {box.name} reads {r.array} at {form} along {self.axis}, as the diagram never does")

    def _follows(self, r: Read) -> bool:
        """Whether a read changes within the loop with the state."""
        if r.array.endswith((RUNNING, OLD)):
            return True
        at = self.places.get(r.array)
        return at is not None and at[1] == "moving" and not self.boxes[r.array].running

    def _first(self, box: Box, r: Read) -> int:
        """The first pass in which a read can be made inside the loop."""
        name = source(r.array)
        at = self.places.get(name)
        if at is None:
            if name in self.inputs:
                return 1
            raise Unsound(f"box {box.name} is corrected by {name}, which is no earlier box")
        run, kind = at
        if name in self.following:
            return run if self._reached(self.boxes[name], r) else run + 1
        if r.array != name or kind in ("head", "still") or self._follows(r):
            return run
        return run + 1  # a finished result of the loop before

    def _finished(self, box: Box, r: Read) -> int:
        """The pass after which a read can be made outside of the loop."""
        at = self.places.get(r.array)
        if at is None:
            return 0
        if at[1] == "still" and not self._last(self.boxes[r.array], r):
            raise Unsound(f"box {box.name} reads {r.array} outside the loop, whose values are not kept")
        return at[0]

    def _reached(self, box: Box, r: Read) -> bool:
        """Whether a loop has made what is read of an array in it: the present element, or the one before of a scan."""
        if self.axis not in box.axes:
            return False
        form = r.index[box.axes.index(self.axis)]
        if form.bare == self.axis:
            return True
        along = box.scan is not None and box.scan.axis == self.axis
        before = 1 if box.scan is not None and box.scan.backward else -1
        return along and form == Affine.make({self.axis: 1}, {}, before)

    def _last(self, box: Box, r: Read) -> bool:
        """Whether a read is of the last value that a scan carries."""
        if box.scan is None or box.scan.axis != self.axis:
            return False
        end = Affine() if box.scan.backward else Affine.make({}, {base_name(self.axis): 1}, -1)
        return r.index[box.axes.index(self.axis)] == end

    def _check_moving(self, box: Box, run: int, streams: bool) -> None:
        """An accumulator, or a map that follows one: its reads are of its own pass, old values are corrections."""
        reads_old = any(r.array.endswith(OLD) for r in box.reads())
        if self.axis in box.axes and (streams or reads_old):
            raise Unsound(f"box {box.name} keeps the axis {self.axis} in the state, or reads old values along it")
        if streams and reads_old:
            raise Unsound(f"box {box.name} adds terms that read the value before the step")
        for r in box.reads():
            name = source(r.array)
            if r.array != name and not self.boxes[name].running:
                raise Unsound(f"box {box.name} reads {r.array}, and {name} is no accumulator")
            if (r.array != name or self._follows(r)) and self.places[name][0] != run:
                raise Unsound(f"box {box.name} of pass {run} reads {r.array} of pass {self.places[name][0]}")
            if name in self.corrections and (self.axis in box.all_axes or streams):
                raise Unsound(f"box {box.name} reads {name}, a correction of the state, in its terms")
            if self._follows(r) and r.array == name:
                axes = self.boxes[name].axes
                if any(a == self.axis and f.bare != a for a, f in zip(axes, r.index, strict=True)):
                    raise Unsound(f"box {box.name} reads {name} at other places of {self.axis} than its own")
        if reads_old or any(source(r.array) in self.corrections for r in box.reads()):
            self.corrections.add(box.name)
        for by in (box.rescale, box.recentre):
            if by is None:
                continue
            made = self.boxes[by]
            if not streams or box.reduction not in ("sum", "prod", "max", "min"):
                raise Unsound(f"box {box.name} is corrected by {by}, and is no accumulator that can be")
            if made.running or self.axis in made.all_axes or not set(made.axes) <= set(box.axes):
                raise Unsound(f"box {box.name} is corrected by {by}, which is no map on its own axes")
            if self.places[by] != (run, "moving"):
                raise Unsound(f"box {box.name} is corrected by {by}, which is not of its pass")
