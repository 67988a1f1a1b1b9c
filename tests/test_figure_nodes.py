"""Recurrences, lists, gathers and dropout in figures and graphs."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

import pytest
from figure_cases import OTHERS, one_plate, other_pair

from ioweave.derive.counting.levelled import count
from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.notation import parse_levelled
from ioweave.render.figure.describe import describe_diagram
from ioweave.render.figure.draw import draw
from ioweave.render.figure.from_counts import Side, figure_spec
from ioweave.render.figure.labels import strokes
from ioweave.render.figure.operation import plan_operation
from ioweave.render.figure.primitives import Circle, Cubic, Group, Line, Polygon, Scene, Text, walk
from ioweave.render.figure.spec import ColumnSpec, FigureSpec
from ioweave.render.figure.typeset import strip
from ioweave.render.graph import graph_source

DOT = 2.4
ENTRIES = (resources.files("ioweave.diagrams") / "catalogue").iterdir()
CATALOGUE = sorted((p for p in ENTRIES if p.name.endswith(".weave")), key=lambda p: p.name)


@lru_cache
def spec(name: str) -> FigureSpec:
    return other_pair(name)


@lru_cache
def scene(name: str) -> Scene:
    return draw(spec(name))


def column(name: str, line: str) -> ColumnSpec:
    columns = describe_diagram(parse_levelled(OTHERS[name]).diagram).columns
    return next(c for c in columns if c.result == line)


def layer(s: Scene, kind: str) -> list[object]:
    return [i for g in walk(s.items) if isinstance(g, Group) and g.id.endswith(f"-{kind}") for i in g.items]


def labels(s: Scene) -> list[str]:
    return [strip(t.markup).strip() for t in walk(s.items) if isinstance(t, Text)]


@pytest.mark.parametrize("name", OTHERS)
def test_every_dot_is_on_a_wire(name: str) -> None:
    s = scene(name)
    wires = strokes([w for w in layer(s, "wires") if isinstance(w, Line | Cubic)])
    for d in layer(s, "signs"):
        if isinstance(d, Circle) and d.radius == DOT:
            (x, y), r = d.center, 1.0
            assert any(w[0] - r <= x <= w[2] + r and w[1] - r <= y <= w[3] + r for w in wires), (x, y)


@pytest.mark.parametrize("name", OTHERS)
def test_ports_of_other_shapes_add_up(name: str) -> None:
    lev = parse_levelled(OTHERS[name])
    for panel, side in zip(spec(name).panels, (lev, one_plate(name)), strict=True):
        counts = count(side, lev.diagram.values(), "same")
        ports = [p for r in panel.regions for p in r.ports]
        assert sum(p.size for p in ports) == counts.transfers.bytes
        assert sum(p.values for p in ports) == counts.transfers.values


@pytest.mark.parametrize("path", CATALOGUE, ids=lambda p: str(p.name))
def test_every_entry_is_drawn(path: Traversable) -> None:
    """As it is written: every label finds its place, and the graph names every array read."""
    lev = parse_levelled(path.read_text("utf-8"), path.name)
    made = draw(figure_spec(path.name, [Side(lev)], lev.diagram.values()))
    assert made.dropped == ()
    graph = graph_source(lev)
    assert all(f'[label="{i.name}[' in graph or f'[label="{i.name}: ' in graph for i in lev.diagram.inputs)


def test_a_recurrence_is_a_loop_along_its_axis() -> None:
    made = column("a recurrence", "S")
    assert made.glyph == "scan"
    assert made.loop is not None
    assert (made.loop.axis, made.loop.backward, made.over) == ("t", False, ())
    assert [o.array for o in made.operands] == ["K", "V"]  # its own value before is no operand
    assert strip(made.title) == "scan t: γ S_t-1+K V"
    assert labels(scene("a recurrence")).count("t→") == 2


def test_a_backward_recurrence_points_backward() -> None:
    made = column("a backward recurrence", "L")
    assert made.loop is not None
    assert made.loop.backward
    assert "j+1" in strip(made.title)
    found = labels(scene("a backward recurrence"))
    assert found.count("← j") == 2
    assert not any("→" in t for t in found)


def test_what_a_recurrence_keeps_returns_on_its_wires() -> None:
    """Dots of the loop are on the rows of d and e, not on that of t."""
    s = scene("a recurrence")
    first = next(g for g in walk(s.items) if isinstance(g, Group) and g.id == "a-S-signs")
    posts = [i for i in first.items if isinstance(i, Line) and i.start[0] == i.end[0]]
    assert len(posts) == 2
    xs = {p.start[0] for p in posts}
    dots = [i.center for i in first.items if isinstance(i, Circle) and i.radius == DOT and i.center[0] in xs]
    assert len(dots) == 4
    rows = sorted({y for _, y in dots})
    top = min(min(p.start[1], p.end[1]) for p in posts)
    assert len(rows) == 2
    assert rows[0] - top > 20  # the row of t lies between


def test_sums_in_a_step_are_told_by_the_title_and_the_sign() -> None:
    made = column("a sum in each step", "S")
    assert strip(made.title) == "scan t: S_t-1+B K (V-Σ_d K S_t-1)"
    assert made.over == ()  # d is kept too
    assert made.loop is not None
    assert made.loop.inner == "Σ"
    assert column("earlier elements in each step", "U").over == ("c",)


def test_running_sums_are_loops() -> None:
    forward, backward = column("running sums", "A"), column("running sums", "C")
    assert forward.loop is not None
    assert backward.loop is not None
    assert (forward.glyph, forward.before, forward.reduction, forward.loop.backward) == ("scan", "log", "+", False)
    assert backward.loop.backward
    assert forward.title == "cumsum $i$"


def test_a_list_consumes_one_axis_and_makes_another() -> None:
    values, places = column("a list", "T"), column("a list", "I")
    assert strip(values.title) == "topk x into k"
    assert strip(places.title) == "argtopk x into k'"
    assert (values.over, values.axes, values.reduction) == (("x",), ("q", "k"), "topk")
    op = plan_operation(values, values.operands)
    assert dict(zip(values.axes, op.result, strict=True))["k"][0] == -1  # it starts inside
    streamed = spec("a list").panels[1].columns
    assert [strip(c.state) for c in streamed] == ["", "T", "I"]  # the positions go with those values


def test_positions_alone_keep_their_values_too() -> None:
    text = "q, x, k = 8, 32, 3\nS[q, x]: fp16\nI[q, k] = argtopk[x](S[q, x], into=k)\n"
    diagram = parse_levelled(text).diagram
    lev = Levelled(diagram, (Region("I", "smem", ("I",), stream=(("x", 2),)),))
    made = figure_spec("list", [Side(lev)], diagram.values()).panels[0].columns[0]
    assert made.state == "topk, $I$"


def test_positions_end_at_the_gather() -> None:
    made = column("pages", "S")
    keys, page = made.operands[1:]
    assert (keys.array, keys.gathered, page.array) == ("K", (0,), "page")
    assert page.feeds == (keys.key, 0)
    assert dict(keys.maps) == {1: r"$x\;\text{mod}\;p$"}
    assert dict(page.maps) == {0: r"$\lfloor x/p\rfloor $"}
    op = plan_operation(made, made.operands)
    slot = next(w.slot for w in op.wires if w.operand == 2)
    assert op.feeds == ((slot, 1, 0),)
    assert slot not in {a for a, _ in op.joins} | {s for cup in op.cups for s in cup} | set(op.ends)


def pentagons(s: Scene) -> list[tuple[float, float]]:
    """The left edges of the gathers: x and the middle."""
    marks = [p.points for p in layer(s, "signs") if isinstance(p, Polygon) and len(p.points) == 5]
    tall = [p for p in marks if p[4][1] - p[0][1] > 12]
    return [(p[0][0], (p[0][1] + p[4][1]) / 2) for p in tall]


@pytest.mark.parametrize(("name", "gathers"), [("a gather", 1), ("pages", 2), ("a gather at a gather", 3)])
def test_each_gather_is_a_pentagon_that_wires_run_into(name: str, gathers: int) -> None:
    s = scene(name)
    found = pentagons(s)
    assert len(found) == 2 * gathers  # in either panel
    curves = [c.points[3] for c in layer(s, "wires") if isinstance(c, Cubic)]
    for x, y in found:
        assert any(abs(cx - x) < 0.1 and 0 < abs(cy - y) < 7 for cx, cy in curves)


def test_a_gather_says_between_what_it_moves() -> None:
    lev = parse_levelled(OTHERS["a gather"])
    moved = count(lev, lev.diagram.values(), "same").transfers
    assert moved.fewest[1] < moved.bytes
    assert f"$H$ is {moved.fewest[1]} B to {moved.bytes} B in (a)" in spec("a gather").footer
    assert "$H$ is 1.3 KiB to 2.2 KiB in (a) and 1.2 KiB in (b);" in spec("pages").footer
    assert [p.rows[0].total for p in spec("a gather").panels] == [f"≤ {moved.bytes} B"] * 2
    known = spec("a list")
    assert "gathers" not in known.footer
    assert not any("≤" in r.total for p in known.panels for r in p.rows)


def test_a_late_operand_at_positions_keeps_a_short_name() -> None:
    text = OTHERS["a gather at a shift"].replace("S[q, x] + ", "sum[n](S[q, x] * B[n]) + ")
    made = describe_diagram(parse_levelled(text).diagram).columns[0]
    assert made.title == "sum $n$, + $B$"


def test_sums_in_sums_are_two_cups() -> None:
    made = column("a sum in a sum", "I")
    assert strip(made.title) == "contract m, relu, contract g"
    assert (made.over, made.first, made.before) == (("g", "m"), ("m",), "relu")
    assert len(plan_operation(made, made.operands).cups) == 2


def test_a_dropout_is_named() -> None:
    made = column("a dropout", "D")
    assert made.glyph == "elementwise"
    assert "keep" in made.reduction
    assert strip(made.title) == "P keep/0.9"
    assert [o.array for o in made.operands] == ["P"]


def test_factors_stand_where_they_are_applied() -> None:
    made = column("a factor after a function", "S")
    assert strip(made.factor) == "· d^-1/2"
    assert strip(made.after) == "relu · 1/3"
    assert not scene("a factor after a function").dropped


def test_graph_of_recurrences_and_lists() -> None:
    source = graph_source(parse_levelled(OTHERS["a recurrence"]))
    assert "scan along t" in source
    assert r"S, the value before\n4 × 6, 48 B" in source
    assert "scan along j, backward" in graph_source(parse_levelled(OTHERS["a backward recurrence"]))
    assert "U, values before" in graph_source(parse_levelled(OTHERS["earlier elements in each step"]))
    assert "topk over x into k" in graph_source(parse_levelled(OTHERS["a list"]))
    assert "K[page[x // size(p)], x % size(p), d]" in graph_source(parse_levelled(OTHERS["pages"]))
