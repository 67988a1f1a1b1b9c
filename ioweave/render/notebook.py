"""How diagrams, schedules, searches and reports show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ioweave.derive.rewrites.unfused import unfused
from ioweave.derive.search.found import Found
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.report import Report
from ioweave.render.drawing import draw_levelled


def svg(value: object) -> str | None:
    """The figure of a diagram (each line a kernel), a levelled diagram, a search or a report; None if it has none."""
    match value:
        case Diagram():
            return _drawn(value.name, [unfused(value)])
        case Levelled():
            return _drawn(value.diagram.name, [value])
        case Found():
            setting = value.after_counts.placed[0].setting
            return _drawn(value.after.diagram.name, [value.before, value.after], setting.accumulate, [True, True])
        case Report():
            sides = [s.levelled for s in (value.before, value.after) if s is not None and s.levelled is not None]
            searched = [value.objective is not None] * len(sides)
            return _drawn(value.algorithm, sides, value.accumulate or "fp32", searched) if sides else None
        case _:
            return None


def html(value: object) -> str | None:
    """The text of a report with its figure under it; None for what is a figure alone."""
    if not isinstance(value, Report):
        return None
    figure = svg(value)
    # a document of its own, so that the glyphs of two figures on one page are kept apart
    drawn = f'<img alt="{escape(value.algorithm)}" src="{_address(figure)}"/>' if figure else ""
    return f'<pre style="line-height: 1.25">{escape(str(value))}</pre>{drawn}'


def text(value: object) -> str | None:
    """A report as text, for ``print``."""
    from ioweave.render.report import text as write

    return write(value).rstrip("\n") if isinstance(value, Report) else None


def _drawn(name: str, sides: list[Levelled], accumulate: str = "fp32", searched: Sequence[bool] = ()) -> str | None:
    """The figure, or None where it cannot be counted (a text is shown then)."""
    try:
        values = sides[-1].diagram.values()
        return draw_levelled(name or "diagram", sides, values, accumulate, "svg", searched=searched).decode()
    except (Refused, WeaveError):
        return None


def _address(figure: str) -> str:
    from base64 import b64encode

    return f"data:image/svg+xml;base64,{b64encode(figure.encode()).decode()}"
