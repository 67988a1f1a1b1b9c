"""Formulas as lines: equations aligned at their signs, broken before an operator, elided where they run on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LINES = 4  # of one formula that are shown
NARROWEST = 24  # columns for a formula, however long the names beside it
# the looser an operator binds, the sooner a line breaks before it; a comma comes first
_BREAKS = {" = ": 1, " with ": 1, " or ": 2, " and ": 2, " + ": 3, " - ": 3, " * ": 4, " / ": 4}


class Formula:
    """One formula that breaks before operators, later lines indented under ``indent`` more columns."""

    def __init__(self, formula: str, indent: int = 2, lines: int = LINES) -> None:
        self.formula = formula
        self.indent = indent
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(broken(self.formula, options.max_width, self.indent, self.lines)), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        length = len(self.formula)
        return Measurement(min(length, NARROWEST), length)


def broken(formula: str, width: int, indent: int = 2, lines: int = LINES) -> list[str]:
    """The formula in lines of at most ``width``; what does not fit in ``lines`` of them ends in ``…``.

    A line breaks before an operator or after a comma, outside as many parentheses as can be.
    """
    out: list[str] = []
    rest, lead = formula, ""
    while len(lead) + len(rest) > width:
        room = width - len(lead)
        if len(out) == lines - 1:
            cut = _cut(rest, room - 2)
            return [*out, f"{lead}{rest[:cut].rstrip()} …"]
        cut = _cut(rest, room)
        out.append(lead + rest[:cut].rstrip())
        rest, lead = rest[cut:].lstrip(), " " * indent
    return [*out, lead + rest]


def _cut(formula: str, room: int) -> int:
    """Where to end a line of at most ``room`` characters: at the outermost, loosest break that is not too early."""
    depth = 0
    found: list[tuple[int, int, int]] = []
    for k, c in enumerate(formula[: room + 1]):
        depth += (c in "([") - (c in ")]")
        looseness = 0 if c == " " and formula[k - 1] in ",;" else None
        for words, n in _BREAKS.items():
            if formula.startswith(words, k):
                looseness = n
        if k > 0 and looseness is not None:
            found.append((depth, looseness, -k))
    late = [at for at in found if -at[2] >= room * 2 // 5] or [(0, 0, k) for _, _, k in found]
    return -min(late)[2] if late else max(room, 1)


def equations(lines: Sequence[str], names: int = 0) -> Table:
    """Lines ``name = formula`` aligned at their signs; ``names`` is the least width of the names."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=names or None)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for line in lines:
        name, sign, formula = line.partition(" = ")
        if sign:
            grid.add_row(Text(name), "=", Formula(formula))
        else:
            grid.add_row("", "", Formula(name))
    return grid


def longest_name(blocks: Iterable[Sequence[str]]) -> int:
    """The width of the longest name that the equations of some blocks define."""
    return max((len(line.partition(" = ")[0]) for block in blocks for line in block if " = " in line), default=0)
