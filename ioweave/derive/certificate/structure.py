"""Whether the boxes of a plan can run as the plan says, seen from the boxes alone.

The passes and stages are found again from what each box reads, and compared with those written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ioweave.derive.streaming.plan import Plan, Stage
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import OLD, RUNNING, Box, Opened, base_name, source
from ioweave.diagrams.expressions import Apply, Constant, Index, Number, Read, Size, walk
from ioweave.diagrams.operators import OPERATORS, REDUCTIONS

_TERMS = Apply | Constant | Index | Number | Read | Size

# Where a box runs: before any loop; in the loop, waiting for nothing in it; in the loop with its state; after it.
Kind = Literal["head", "still", "moving", "tail"]
_STAGES: dict[Kind, Stage] = {"head": "head", "still": "body", "moving": "body", "tail": "tail"}


class Unsound(Exception):
    """A certificate that does not hold. The message names what fails, on one line."""


@dataclass(frozen=True)
class Layout:
    """The boxes of a plan over one axis, each with its pass and where in the pass it runs."""

    boxes: tuple[Box, ...]
    axis: str
    places: Mapping[str, tuple[int, Kind]]
    by_name: Mapping[str, Box] = field(repr=False)

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

    def still(self, run: int) -> tuple[Box, ...]:
        """The boxes of a loop that read no running value, directly or not."""
        return self._at(run, "still")

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
        return self.places[name][1] == "moving" and not self.by_name[name].running


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
    builder = _Builder(axis, opened, inputs, frozenset(known), {n: run for n, (run, _) in written.items()})
    for box in plan.boxes:
        run, kind = builder.place(box)
        if written[box.name] != (run, _STAGES[kind]):
            is_run, is_stage = written[box.name]
            raise Unsound(
                f"box {box.name} is said to run in pass {is_run}, {is_stage}; "
                f"what it reads puts it in pass {run}, {_STAGES[kind]}"
            )
    layout = Layout(plan.boxes, axis, builder.places, builder.boxes)
    _check_outputs(layout, opened)
    return layout


def _check_outputs(layout: Layout, opened: Opened) -> None:
    for name in opened.outputs:
        made = layout.by_name.get(name)
        if made is None:
            raise Unsound(f"no box of the plan makes the output {name}")
        wanted = opened.box(name)
        if made.axes != wanted.axes or made.dtype != wanted.dtype:
            raise Unsound(f"the plan's {name} has axes or dtype other than the diagram's")
        if layout.stirred(name):
            raise Unsound(f"the output {name} follows running values: it is never finished")


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


class _Builder:
    """Places boxes one by one, in order of evaluation."""

    def __init__(
        self, axis: str, opened: Opened, inputs: Mapping[str, int], known: frozenset[str], runs: Mapping[str, int]
    ) -> None:
        self.axis = axis
        self.inputs = inputs
        self.known = known
        self.lines = {b.line: b.dtype for b in opened.boxes}
        self.walked = _walked(opened)
        self.runs = runs
        self.places: dict[str, tuple[int, Kind]] = {}
        self.boxes: dict[str, Box] = {}
        self.corrections: set[str] = set()  # what may read old values: maps without the axis

    def place(self, box: Box) -> tuple[int, Kind]:
        """The pass of a box and where it runs in it; raises `Unsound`."""
        self._well_formed(box)
        streams = box.reduction is not None and self.axis in box.over
        if box.running != streams:
            raise Unsound(f"box {box.name} {'is no' if box.running else 'reduces'} reduction over {self.axis}"[:200])
        moving = streams or any(self._follows(r) for r in box.reads())
        inside = moving or self.axis in box.axes
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
        self.places[box.name] = at
        self.boxes[box.name] = box
        return at

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
        if box.reduction is not None and box.reduction not in REDUCTIONS:
            raise wrong(f"reduces by {box.reduction}, which is no reduction")
        if (box.reduction is None) != (not box.over):
            raise wrong("reduces over no axis" if box.reduction else "has reduced axes and no reduction")
        if self.lines.get(box.line) != box.dtype:
            raise wrong(f"of line {box.line} is {box.dtype}, which no box of that line is in the diagram")
        for e in walk(box.body):
            if not isinstance(e, _TERMS):
                raise wrong("has a reduction inside its body")
            if isinstance(e, Apply) and (e.op not in OPERATORS or OPERATORS[e.op].arity != len(e.args)):
                raise wrong(f"applies {e.op} to {len(e.args)}, which is no operator")
            name = e.name if isinstance(e, Constant) else e.axis if isinstance(e, Size) else None
            if name is not None and name not in self.known:
                raise wrong(f"names {name}, which has no value")
            if isinstance(e, Index) and e.axis not in box.all_axes:
                raise wrong(f"uses the index {e.axis}, which is none of its axes")
        for r in box.reads():
            self._check_read(box, r)

    def _check_read(self, box: Box, r: Read) -> None:
        made = self.boxes.get(source(r.array))
        if made is None and r.array not in self.inputs:
            raise Unsound(f"box {box.name} reads {r.array}, which is no input and no earlier box")
        rank = len(made.axes) if made is not None else self.inputs[r.array]
        if len(r.index) != rank:
            raise Unsound(f"box {box.name} reads {r.array} at {len(r.index)} places; it has {rank} axes")
        for place, form in enumerate(r.index):
            canonical = form == Affine.make(dict(form.axes), dict(form.sizes), form.offset)
            if (
                not canonical
                or not set(form.names) <= set(box.all_axes)
                or not {s for s, _ in form.sizes} <= self.known
            ):
                raise Unsound(f"box {box.name} reads {r.array} at {form}, which names none of its axes or sizes")
            # another axis of the same size would walk the whole of it within one step
            walked = self.walked.get((r.array, place), {self.axis} if made and made.axes[place] == self.axis else set())
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
        if r.array != name or kind in ("head", "still") or self._follows(r):
            return run
        return run + 1  # a finished result of the loop before

    def _finished(self, box: Box, r: Read) -> int:
        """The pass after which a read can be made outside of the loop."""
        at = self.places.get(r.array)
        if at is None:
            return 0
        if at[1] == "still":
            raise Unsound(f"box {box.name} reads {r.array} outside the loop, whose values are not kept")
        return at[0]

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
