"""The cost table under the columns: booktabs rules, formulas over values, the total at the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ioweave.render.figure.primitives import Line, Primitive, Text
from ioweave.render.figure.spec import CellSpec, PanelSpec
from ioweave.render.figure.theme import Theme
from ioweave.render.figure.typeset import width

LINE = 13.0  # from one line of a formula to the next
VALUE = 11.0  # from the last line of a formula to its value
PAD = 13.0  # from a rule to the first baseline
FOOT = 6.0  # from the last baseline to the rule
LIMIT = 118.0  # a formula wider than this is broken after a term
GAP = 12.0  # between neighbouring cells


@dataclass(frozen=True, slots=True)
class Needs:
    """Least widths: of each column, of the row titles, of the totals."""

    columns: tuple[float, ...]
    left: float
    right: float


def wrap(terms: Sequence[str], size: float, limit: float) -> tuple[str, ...]:
    """Terms joined by plus signs, broken before a sign where a line would pass ``limit``."""
    lines: list[str] = []
    current = ""
    for term in terms:
        minus = term.startswith("-")
        body = term[1:] if minus else term
        sign = "-" if minus else "+"
        longer = f"{current} {sign} {body}" if current else (f"-{body}" if minus else body)
        if current and width(f"${longer}$", size) > limit:
            lines.append(f"${current}$")
            current = f"{{}}{sign} {body}"
        else:
            current = longer
    if current:
        lines.append(f"${current}$")
    return tuple(lines)


def _lines(cell: CellSpec, theme: Theme, limit: float) -> tuple[str, ...]:
    return wrap(cell.terms, theme.text_cell, limit)


def needs(panel: PanelSpec, theme: Theme) -> Needs:
    """What the table asks of the layout above it."""
    columns = [0.0] * len(panel.columns)
    for row in panel.rows:
        for cell in row.cells:
            if cell.first == cell.last:
                w = max((width(t, theme.text_cell) for t in _lines(cell, theme, LIMIT)), default=0.0)
                w = max(w, width(cell.value, theme.text_small))
                columns[cell.first] = max(columns[cell.first], w + GAP)
    left = right = 0.0
    for row in panel.rows:
        left = max(left, width(row.symbol, theme.text_axis), width(row.note, theme.text_small))
        right = max(right, width(row.total, theme.text_cell, True), width(row.remark, theme.text_small))
    return Needs(tuple(columns), left + 10.0, right + 10.0)


def _limit(cell: CellSpec, spans: Sequence[tuple[float, float]]) -> float:
    if cell.first == cell.last:
        return LIMIT
    return max(LIMIT, spans[cell.last][1] - spans[cell.first][0] - GAP)


def heights(panel: PanelSpec, spans: Sequence[tuple[float, float]], theme: Theme) -> list[float]:
    """The height of each row, from rule to rule."""
    out: list[float] = []
    for row in panel.rows:
        lines = max((len(_lines(c, theme, _limit(c, spans))) for c in row.cells), default=1)
        out.append(PAD + max(0, lines - 1) * LINE + VALUE + FOOT)
    return out


def draw(
    panel: PanelSpec,
    centres: Sequence[float],
    spans: Sequence[tuple[float, float]],
    right: float,
    y: float,
    row_heights: Sequence[float],
    theme: Theme,
) -> tuple[list[Primitive], list[Primitive], float]:
    """Rules and texts of the table with its top at ``y``, and where it ends."""
    rules: list[Primitive] = [Line((0.0, y), (right, y), theme.ink, 1.3)]
    texts: list[Primitive] = []
    for n, (row, height) in enumerate(zip(panel.rows, row_heights, strict=True)):
        base = y + PAD
        texts.append(Text(row.symbol, 1.0, base, theme.text_axis, theme.ink))
        texts.append(Text(row.note, 1.0, base + VALUE, theme.text_small, theme.faint))
        for cell in row.cells:
            texts.extend(_cell(cell, centres, spans, base, theme))
        colour = theme.accent if row.accent else theme.ink
        texts.append(Text(row.total, right - 1, base, theme.text_cell, colour, "end", True))
        if row.remark:
            texts.append(Text(row.remark, right - 1, base + VALUE, theme.text_small, theme.faint, "end"))
        y += height
        last = n == len(panel.rows) - 1
        rules.append(Line((0.0, y), (right, y), theme.ink if last else theme.rule, 1.3 if last else 0.7))
    return rules, texts, y


def _cell(
    cell: CellSpec, centres: Sequence[float], spans: Sequence[tuple[float, float]], base: float, theme: Theme
) -> list[Primitive]:
    if cell.first == cell.last:
        x = centres[cell.first]
    else:
        x = (spans[cell.first][0] + spans[cell.last][1]) / 2
    out: list[Primitive] = []
    lines = _lines(cell, theme, _limit(cell, spans))
    for line in lines:
        out.append(Text(line, x, base, theme.text_cell, theme.ink, "middle"))
        base += LINE
    if not lines:  # a value alone stands on the line of values
        base += LINE
    if cell.value:
        out.append(Text(cell.value, x, base - LINE + VALUE, theme.text_small, theme.faint, "middle"))
    return out
