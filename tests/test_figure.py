"""Figures of the whole catalogue are clean: nothing overlaps, nothing is struck through, all text can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import hypot

import pytest
import strategies
from figure_cases import OTHERS, TILES, levelled, one_plate, pair
from hypothesis import HealthCheck, Phase, assume, given, settings

from ioweave.diagrams.errors import Refused
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled
from ioweave.render.figure.crossings import crossings
from ioweave.render.figure.draw import draw
from ioweave.render.figure.from_counts import Side, figure_spec
from ioweave.render.figure.labels import overlap, strokes, text_extent
from ioweave.render.figure.primitives import (
    Circle,
    Cubic,
    Extent,
    Group,
    Line,
    Primitive,
    Rect,
    Scene,
    Text,
    flatten,
    walk,
)
from ioweave.render.figure.theme import PAPER

NAMES = sorted(TILES)


@cache
def scene(name: str) -> Scene:
    return draw(pair(name))


@cache
def other(name: str) -> Scene:
    lev = parse_levelled(OTHERS[name])
    return draw(figure_spec(name, [Side(lev)], lev.diagram.values()))


@cache
def plate(name: str) -> Scene:
    lev = one_plate(name)
    return draw(figure_spec(name, [Side(lev)], lev.diagram.values()))


def every_scene() -> Iterator[tuple[str, Scene]]:
    for name in NAMES:
        yield name, scene(name)
    for name in OTHERS:
        yield name, other(name)
        yield f"{name} in one plate", plate(name)


def states(s: Scene) -> list[Circle]:
    """The discs under the loops that stand for states; the legend's is on paper."""
    return [c for c in walk(s.items) if isinstance(c, Circle) and c.fill == PAPER.plate]


def texts(s: Scene) -> list[Text]:
    return [t for t in walk(s.items) if isinstance(t, Text)]


def faults(s: Scene) -> list[str]:
    """What a reader would trip over: texts that meet texts, wires, ports or separators, or leave the page."""
    boxes: list[tuple[Extent, Text]] = [(text_extent(t), t) for t in texts(s)]
    found = [f"{a.markup} on {b.markup}" for i, (x, a) in enumerate(boxes) for y, b in boxes[i + 1 :] if overlap(x, y)]
    for group in walk(s.items):
        if isinstance(group, Group) and group.id.rsplit("-", 1)[-1] in ("wires", "separators", "ports"):
            ink = strokes(group.items)
            found += [f"{t.markup} struck by {group.id}" for x, t in boxes if any(overlap(x, y) for y in ink)]
    for group in walk(s.items):
        if isinstance(group, Group) and group.id.endswith("-plates"):
            for p in (p for p in group.items if isinstance(p, Rect)):
                edges = [(x, p.y, x + 0.1, p.y + p.height) for x in (p.x, p.x + p.width)]
                found += [f"{t.markup} on the edge of a plate" for x, t in boxes if any(overlap(x, e) for e in edges)]
    for c in states(s):
        x0, y0, r = *c.center, c.radius
        found += [f"{t.markup} on a state" for x, t in boxes if overlap(x, (x0 - r, y0 - r, x0 + r, y0 + r))]
        curves = [w for w in _wires(s) if isinstance(w, Cubic)]
        found += ["a curve on a state" for w in curves if any(hypot(x - x0, y - y0) < r - 0.5 for x, y in flatten(w))]
    off = [t for x, t in boxes if x[0] < 0 or x[1] < 0 or x[2] > s.width or x[3] > s.height]
    return found + [f"{t.markup} off the page" for t in off]


@pytest.mark.parametrize("name", NAMES)
def test_no_text_of_the_catalogue_is_in_the_way(name: str) -> None:
    assert faults(scene(name)) == []
    assert scene(name).dropped == ()


@pytest.mark.parametrize("name", OTHERS)
def test_no_text_of_other_shapes_is_in_the_way(name: str) -> None:
    assert faults(other(name)) == []
    assert other(name).dropped == ()


@pytest.mark.parametrize("name", OTHERS)
def test_no_text_of_one_plate_is_in_the_way(name: str) -> None:
    assert faults(plate(name)) == []
    assert plate(name).dropped == ()


def test_the_check_of_overlaps_can_fail() -> None:
    s = scene("matmul")
    first = texts(s)[0]
    assert faults(replace(s, items=(*s.items, replace(first, x=first.x + 2))))
    x0, y0, x1, y1 = text_extent(first)
    strike = Group("a-wires", (Line((x0 - 5, (y0 + y1) / 2), (x1 + 5, (y0 + y1) / 2), "#000000", 1.0),))
    assert faults(replace(s, items=(*s.items, strike)))


def test_text_is_six_points_at_least() -> None:
    for name, s in every_scene():
        assert min(t.size for t in texts(s)) * 0.75 >= 6.0, name


def test_figures_keep_to_the_width_at_which_they_wrap() -> None:
    """One plate is never broken, however many columns it has."""
    for name, s in every_scene():
        assert s.width <= PAPER.wrap or name.endswith("in one plate"), name


def _wires(s: Scene) -> list[Primitive]:
    return [
        w
        for g in walk(s.items)
        if isinstance(g, Group) and g.id.endswith("-wires")
        for w in g.items
        if isinstance(w, Line | Cubic)
    ]


def test_wires_are_straight_or_curves_with_level_ends() -> None:
    for name, s in every_scene():
        for w in _wires(s):
            if isinstance(w, Line):
                assert w.start[1] == pytest.approx(w.end[1]), name
            elif isinstance(w, Cubic):
                (x0, y0), (x1, y1), (x2, y2), (x3, y3) = w.points
                level_start, level_end = y0 == pytest.approx(y1), y2 == pytest.approx(y3)
                upright = x2 == pytest.approx(x3) or x0 == pytest.approx(x1)  # a half of a cup
                assert (level_start and level_end) or upright, name


def test_a_pair_shares_its_rows() -> None:
    """Where both panels of attention draw an input, its wires are at the same heights, and so are the tables."""

    def starts(letter: str) -> list[float]:
        lines = [
            w
            for g in walk(scene("attention").items)
            if isinstance(g, Group) and g.id == f"{letter}-S-wires"
            for w in g.items
            if isinstance(w, Line)
        ]
        left = min(w.start[0] for w in lines)
        return sorted(round(w.start[1], 3) for w in lines if w.start[0] == left)

    def rules(letter: str) -> list[float]:
        return [
            round(w.start[1], 3)
            for g in walk(scene("attention").items)
            if isinstance(g, Group) and g.id == f"{letter}-S-table"
            for w in g.items
            if isinstance(w, Line)
        ]

    assert len(starts("a")) == 6
    assert starts("a") == starts("b")
    assert rules("a") == rules("b")


def test_every_array_and_title_is_named() -> None:
    for name in NAMES:
        spec = pair(name)
        shown = {t.markup for t in texts(scene(name))}
        for panel in spec.panels:
            assert {a.label for a in panel.arrays if a.is_input or a.is_output} <= shown, name
            assert {c.title for c in panel.columns} <= shown, name
            assert {p.symbol for r in panel.regions for p in r.partitions} <= shown, name


def test_plates_lie_under_wires_and_ports_over_them() -> None:
    for name, s in every_scene():
        for panel in (g for g in s.items if isinstance(g, Group) and g.id.startswith("panel-")):
            layers = [g.id.rsplit("-", 1)[-1] for g in panel.items if isinstance(g, Group)]
            assert layers[:6] == ["plates", "separators", "wires", "signs", "ports", "labels"], name


def test_one_panel_alone() -> None:
    after = levelled("attention", TILES["attention"][1])
    s = draw(figure_spec("attention", [Side(after, "Attention")], after.diagram.values()))
    assert faults(s) == []
    assert "Attention" in {t.markup for t in texts(s)}
    assert "(a)" not in {t.markup for t in texts(s)}


@settings(
    max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(strategies.levelled())
def test_no_text_of_a_random_diagram_is_in_the_way(lev: Levelled) -> None:
    try:
        spec = figure_spec("random", [Side(lev)], lev.diagram.values())
    except Refused:
        assume(False)
        return
    s = draw(spec)
    assert faults(s) == []
    assert s.dropped == ()


# crossings of wires in each panel: attention has one, the transpose of K
CROSSINGS = {
    "attention": (1, 1),
    "causal_attention": (1, 1),
    "column_sums": (1, 1),
    "convolution": (4, 4),
    "cross_entropy": (2, 2),
    "gpt3_block": (30, 30),
    "grouped_query_attention": (7, 7),
    "layernorm": (5, 5),
    "matmul": (0, 0),
    "matmul_chain": (0, 0),
    "multi_head_attention": (5, 5),
    "rmsnorm_matmul": (2, 2),
    "spherical_attention": (3, 3),
    "swiglu_mlp": (6, 6),
}


@pytest.mark.parametrize("name", NAMES)
def test_wires_cross_no_more_than_they_did(name: str) -> None:
    most_a, most_b = CROSSINGS[name]
    assert crossings(scene(name), "a") <= most_a
    assert crossings(scene(name), "b") <= most_b


def test_attention_crosses_once() -> None:
    assert crossings(scene("attention"), "b") == 1
