"""Titles of panels: how many kernels there are, where intermediates live, and which tiles were counted."""

from __future__ import annotations

from ioweave.derive.counting.levelled import region_boxes, stored_arrays
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.levelled import Levelled
from ioweave.render.figure.names import maths_name
from ioweave.render.figure.theme import PAPER
from ioweave.render.figure.typeset import width

LISTED = 110.0  # names of intermediates that are wider together are counted instead
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def summary(levelled: Levelled, merges: int = 0, kept: bool = False) -> str:
    """``Unfused: three kernels, intermediates in gmem``, as markup.

    Unfused is what has each of several lines alone, fused what has all of them in one region;
    anything between is told by its kernels and by where each intermediate stays. ``merges`` are
    the kernels that join the states of split reductions; ``kept`` says that a search found nothing
    cheaper than the lines as they were.
    """
    regions = levelled.regions
    kernels = f"{number(len(regions))} kernel{'s' if len(regions) != 1 else ''}"
    if merges:
        kernels += f" and {'a merge' if merges == 1 else f'{number(merges)} merges'}"
    stay, leave = intermediates(levelled)
    upper, lower = levelled.levels[0], levelled.levels[-1]
    several = sum(len(r.lines()) for r in regions) > 1
    head = ""
    if several and len(regions) == 1:
        head = "Fused: "
    elif several and all(len(r.lines()) == 1 for r in regions):
        head = "Fusing gains nothing: " if kept else "Unfused: "
    elif not several:
        head = "Nothing to fuse: " if kept else "One line: "
    if stay and leave:
        text = f"{kernels}, {_named(stay)} stay{'s' if len(stay) == 1 else ''} in {lower}, {_named(leave)} in {upper}"
    elif stay:
        one = len(stay) == 1
        text = f"{kernels}, {_named(stay) if one else 'intermediates'} stay{'s' if one else ''} in {lower}"
    elif leave:
        text = f"{kernels}, {_named(leave) if len(leave) == 1 else 'intermediates'} in {upper}"
    else:
        text = kernels
    return head + text if head else text[0].upper() + text[1:]


def intermediates(levelled: Levelled) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines that never leave their region, and those that do without being outputs."""
    opened = open_diagram(levelled.diagram)
    stay: list[str] = []
    leave: list[str] = []
    for region in levelled.regions:
        stored = stored_arrays(opened, region_boxes(opened, region))
        stay.extend(n for n in region.lines() if n not in stored)
        leave.extend(n for n in region.lines() if n in stored and n not in levelled.diagram.outputs)
    return tuple(stay), tuple(leave)


def tiling(levelled: Levelled, searched: bool) -> str:
    """Which tiles the counts of a panel are for, in words; ``searched`` says that a search chose them."""
    several = sum(len(r.lines()) for r in levelled.regions) > 1
    alone = several and all(len(r.lines()) == 1 for r in levelled.regions)
    if searched:
        return "each line with its own best tiles" if alone else "with the best tiles found"
    if not any(r.group or r.stream for r in levelled.regions):
        return "each line whole, without tiles" if alone else "whole, without tiles"
    return "with the tiles stated below"


def number(n: int) -> str:
    """A small number as a word."""
    return WORDS[n] if n < len(WORDS) else str(n)


def enumerated(words: tuple[str, ...]) -> str:
    """``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def _named(names: tuple[str, ...]) -> str:
    text = f"${', '.join(maths_name(n) for n in names)}$"
    if len(names) == 1 or width(text, PAPER.text_title) <= LISTED:
        return text
    return f"{number(len(names))} arrays"
