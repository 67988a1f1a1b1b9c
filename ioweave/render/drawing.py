"""From a report to a figure, and from a figure to the bytes of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ioweave.derive.reporting.subject import Anything, Value
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.machines import Machine
from ioweave.hierarchy.report import Report
from ioweave.render.writers.files import check_output, write_whole

if TYPE_CHECKING:
    from ioweave.render.figure.primitives import Scene

Which = Literal["before", "after", "pair", "graph"]
PAIR: Which = "pair"
FIGURE = ("svg", "png")
ENDINGS: dict[Which, tuple[str, ...]] = {
    "before": FIGURE,
    "after": FIGURE,
    "pair": FIGURE,
    "graph": (*FIGURE, "dot"),
}


def draw(
    what: Anything | Report,
    path: str | None = None,
    which: Which = "pair",
    sizes: Mapping[str, Value] | None = None,
    *,
    machine: str | Machine = "h100",
    capacity: str | Mapping[str, str | int] | Sequence[str] = (),
    accumulate: str = "fp32",
) -> str | None:
    """Draw an algorithm, or the report of a search: ``ioweave draw``.

    ``which`` is ``before``, ``after``, ``pair`` or ``graph``. Writes ``path`` (``.svg``, ``.png``; ``.dot`` for a
    graph) if it is given, else returns the SVG. Raises WeaveError for bad input, DoesNotFit where nothing fits.
    """
    from ioweave.derive.reporting.derived import drawn_report
    from ioweave.derive.reporting.subject import as_subject
    from ioweave.derive.reporting.target import make_target

    if which not in ENDINGS:
        raise WeaveError(f"unknown figure `{which}`{nearest(which, ENDINGS)}; draw one of {listed(ENDINGS)}")
    ending = "svg" if path is None else check_output(path, ENDINGS[which])
    report = what
    if not isinstance(report, Report):
        target = make_target(machine, capacity=capacity, accumulate=accumulate)
        report = drawn_report(as_subject(report, sizes, target.levels), target)
    data = draw_report(report, which, ending)
    if path is None:
        return data.decode()
    write_whole(path, data)
    return None


def chosen(before: bool = False, after: bool = False, pair: bool = False, graph: bool = False) -> Which:
    """What is to be drawn; both sides where both are asked for, or nothing is. Raises WeaveError."""
    if graph:
        if before or after or pair:
            raise WeaveError("the graph stands alone; leave out --before, --after and --pair")
        return "graph"
    if pair or before == after:
        return "pair"
    return "before" if before else "after"


def draw_report(report: Report, which: Which, ending: str) -> bytes:
    """The figure of a report's sides as the bytes of a file with one of its `ENDINGS`."""
    # what is before was searched, line by line; what is after was where the report names an objective
    sides = [(report.before, True)] if which != "after" else []
    if which != "before":
        sides.append((report.after, report.objective is not None))
    kept = [(s.levelled, searched) for s, searched in sides if s is not None and s.levelled is not None]
    levelled = [lev for lev, _ in kept]
    if which == "graph":
        from ioweave.render.graph import graph_image, graph_source

        text = graph_source(levelled[-1], report.values)
        return text.encode() if ending == "dot" else graph_image(text, ending)
    searched = [s for _, s in kept]
    return draw_levelled(
        report.algorithm, levelled, report.values, report.accumulate or "fp32", ending, searched=searched
    )


def draw_levelled(
    name: str,
    sides: Sequence[Levelled],
    values: Mapping[str, int | float],
    accumulate: str,
    ending: str,
    *,
    searched: Sequence[bool] = (),
) -> bytes:
    """The figure of levelled diagrams side by side, counted at ``values``; ``searched`` has their tiles' origin."""
    from ioweave.render.writers.png import png
    from ioweave.render.writers.svg import svg

    drawn = scene(name, sides, values, accumulate, searched)
    return png(drawn) if ending == "png" else svg(drawn).encode()


def scene(
    name: str,
    sides: Sequence[Levelled],
    values: Mapping[str, int | float],
    accumulate: str = "fp32",
    searched: Sequence[bool] = (),
) -> Scene:
    """The same figure as primitives, before a writer takes it."""
    from ioweave.render.figure.draw import draw as compose
    from ioweave.render.figure.from_counts import Side as Panel
    from ioweave.render.figure.from_counts import figure_spec

    origin = [*searched, *(False for _ in sides[len(searched) :])]
    panels = [Panel(s, searched=o) for s, o in zip(sides, origin, strict=True)]
    return compose(figure_spec(name, panels, values, accumulate))
