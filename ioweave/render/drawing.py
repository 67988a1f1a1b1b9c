"""From a report to a figure, and from a figure to the bytes of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ioweave.derive.reporting.subject import Anything, Value
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.machines import Machine
from ioweave.hierarchy.report import Report, Side
from ioweave.render.writers.files import check_output, write_whole

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
    sides = {"before": [report.before], "after": [report.after]}.get(which, [report.before, report.after])
    kept = [s for s in sides if s is not None]
    if which == "graph":
        from ioweave.render.graph import graph_image, graph_source

        text = graph_source(_levelled(kept)[-1])
        return text.encode() if ending == "dot" else graph_image(text, ending)
    return draw_levelled(report.algorithm, _levelled(kept), report.values, report.accumulate or "fp32", ending)


def draw_levelled(
    name: str, sides: Sequence[Levelled], values: Mapping[str, int | float], accumulate: str, ending: str
) -> bytes:
    """The figure of levelled diagrams side by side, counted at ``values``."""
    from ioweave.render.figure.draw import draw
    from ioweave.render.figure.from_counts import Side as Panel
    from ioweave.render.figure.from_counts import figure_spec
    from ioweave.render.writers.png import png
    from ioweave.render.writers.svg import svg

    scene = draw(figure_spec(name, [Panel(s) for s in sides], values, accumulate))
    return png(scene) if ending == "png" else svg(scene).encode()


def _levelled(sides: Sequence[Side]) -> list[Levelled]:
    return [s.levelled for s in sides if s.levelled is not None]
