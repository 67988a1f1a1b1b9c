"""Schedules to levelled diagrams: the derivation replays, the text reads back, the counts are the schedules'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import diagrams

from ioweave.derive.counting.levelled import count
from ioweave.derive.counting.region import count_region, merge_tiles
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.setting import Setting
from ioweave.derive.rewrites.replay import replay
from ioweave.derive.rewrites.unfused import unfused
from ioweave.derive.search.assemble import Placement, assemble, needed, placing
from ioweave.derive.search.partition import Unit
from ioweave.derive.search.units import units_of
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.library import load
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.counts import RegionCount
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled, print_levelled
from ioweave.hierarchy.separate import separate
from ioweave.hierarchy.steps import Step

Values = Mapping[str, int | float]


def counted(opened: Opened, p: Placement, values: Values, accumulate: str) -> RegionCount:
    """The counts of a placement by itself, on the boxes of the diagram as it was; transfers with the merge's."""
    setting = Setting.make(opened, values, accumulate)
    boxes = tuple(b for b in opened.boxes if b.name in p.boxes)
    group = {a: g for a, g in p.group.items() if g < setting.sizes[a]}
    stream = {a: min(s, setting.sizes[a]) for a, s in p.stream}
    reduced = {a for b in boxes for a in b.over}
    split = tuple(a for a in group if a in reduced)
    program = build("", boxes, p.stored, Shape(tuple(group), tuple(stream), split, p.hold), setting)
    tiles = Tiles(group, stream, setting.sizes)
    result = count_region(program, tiles, setting)
    if program.merge is not None:
        assert merge_tiles(program, tiles) is not None
    return result


def assembled(
    diagram: Diagram, placements: Sequence[Placement], values: Values, accumulate: str = "fp32"
) -> tuple[Levelled, tuple[Step, ...]]:
    """What `assemble` gives, after everything that must hold of it."""
    levelled, steps = assemble(diagram, placements, values, accumulate)
    start = unfused(diagram)
    assert replay(start, steps) == levelled
    assert replay(start, steps, placing(values, accumulate)) == levelled
    assert replay(start, [Step.from_json(s.to_json()) for s in steps]) == levelled
    back = parse_levelled(print_levelled(levelled))
    assert back == Levelled(*separate(levelled), levelled.levels)
    for region in levelled.regions:
        assert region.name == region.lines()[-1]
    for s in steps:
        assert s.sentence().endswith(".")
        assert "\n" not in s.sentence()
    inputs = draw_inputs(diagram, values, 3)
    one, two = evaluate(diagram, values, inputs), evaluate(levelled.diagram, values, inputs)
    for name in diagram.outputs:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-6, atol=1e-9)
    return levelled, steps


def same_counts(
    diagram: Diagram, levelled: Levelled, placements: Sequence[Placement], values: Values, accumulate: str = "fp32"
) -> None:
    opened = open_diagram(diagram)
    counts = count(levelled, values, accumulate)
    expected = [counted(opened, p, values, accumulate) for p in needed(opened, placements)]
    regions = [r for r in counts.regions if not r.name.startswith("merge(")]
    assert sorted(r.transfers.values for r in regions) == sorted(r.transfers.values for r in expected)
    assert sorted(r.memory.bytes for r in regions) == sorted(r.memory.bytes for r in expected)
    assert sum(r.flops.total for r in regions) == sum(r.flops.total for r in expected)


SMALL = {"q": 12, "x": 10, "d": 4}
SOFTMAX = ("P.max", "P.exp", "P.sum", "P")
SCORES = ("S.sum", "S")
WHOLE = Placement((*SCORES, *SOFTMAX, "O"), frozenset({"O"}), {"q": 5}, (("x", 3),))


@pytest.mark.parametrize("name", ["attention", "causal_attention"])
@pytest.mark.parametrize("accumulate", ["fp32", "same"])
def test_attention_in_one_region(name: str, accumulate: str) -> None:
    sizes = {k: v for k, v in SMALL.items() if k != "x" or name == "attention"}
    diagram = load(name, sizes)
    values = diagram.values(sizes)
    levelled, steps = assembled(diagram, [WHOLE], values, accumulate)
    same_counts(diagram, levelled, [WHOLE], values, accumulate)
    assert [s.step for s in steps] == ["fuse", "group", "stream"]
    assert [n.name for n in levelled.diagram.lines] == ["S", "P", "O"]
    assert levelled.regions[0].group == (("q", 5),)
    assert levelled.regions[0].stream == (("x", 3),)


def test_tiles_of_a_second_axis_of_one_name() -> None:
    diagram = load("attention", SMALL)
    values = diagram.values(SMALL)
    placements = [
        Placement(SCORES, frozenset({"S"}), {"q": 5, "x": 4}, (("d", 1),)),
        Placement((*SOFTMAX, "O"), frozenset({"O"}), {"q": 5, "d'": 2}, (("x", 3),), (("V", 0),)),
    ]
    levelled, steps = assembled(diagram, placements, values)
    same_counts(diagram, levelled, placements, values)
    assert levelled.regions[1].group == (("q", 5), ("d'", 2))
    assert levelled.regions[1].hold == (("V", 0),)
    assert [s.step for s in steps].count("hold") == 1


COLUMNS = [
    Placement((*SCORES, "P.max", "P.exp", "P.sum"), frozenset({"P.max", "P.sum"}), {"q": 5}, (("x", 3),)),
    Placement((*SCORES, "P.exp", "P", "C"), frozenset({"C"}), {"x": 4}, (("q", 5),)),
]


def test_a_softmax_parted_and_computed_again() -> None:
    diagram = load("column_sums", SMALL)
    values = diagram.values(SMALL)
    levelled, steps = assembled(diagram, COLUMNS, values)
    same_counts(diagram, levelled, COLUMNS, values)
    assert [s.step for s in steps[:5]] == ["open", "recompute", "recompute", "fuse", "fuse"]
    assert levelled.regions[0].members == ("S", "P.max", "P.exp", "P.sum")
    assert levelled.regions[1].members == ("S_1", "P.exp_1", "P", "C")


def test_a_first_region_that_is_not_the_one_that_stores_the_line() -> None:
    """The line stays where it is stored; an earlier region that computes it too has the copy."""
    diagram = parse("q = 6\nA[q]: fp32\nB[q] = A[q] + 1\nC[q] = B[q] * 2\nD[q] = B[q] - 1\nout(B, C)\n")
    placements = [
        Placement(("B", "C"), frozenset({"C"}), {"q": 2}),
        Placement(("B", "D"), frozenset({"B", "D"}), {"q": 3}),
    ]
    levelled, _ = assembled(diagram, placements, diagram.values())
    assert sorted(r.members for r in levelled.regions) == [("B", "D"), ("B_1", "C")]
    same_counts(diagram, levelled, placements, diagram.values())


def test_a_copy_that_is_the_first_reader_of_a_copy() -> None:
    """B is stored by the first, computed again for C by the second, and read by a copy of C in the third."""
    diagram = parse("q = 6\nA[q]: fp32\nB[q] = A[q] + 1\nC[q] = B[q] * 2\nD[q] = C[q] - 1\nE[q] = C[q] * 3\nout(D)\n")
    placements = [
        Placement(("B",), frozenset({"B"})),
        Placement(("B", "C", "D"), frozenset({"D"}), {"q": 2}),
        Placement(("C", "E"), frozenset({"E"}), {"q": 4}),
    ]
    levelled, _ = assembled(diagram, placements, diagram.values())
    assert sorted(r.members for r in levelled.regions) == [("B",), ("B_1", "C", "D"), ("C_1", "E")]
    same_counts(diagram, levelled, placements, diagram.values())


def test_a_whole_composite_is_copied_whole() -> None:
    diagram = parse(
        "q, x = 4, 6\nS[q, x]: fp32\nP[q, x] = softmax[x](S[q, x])\n"
        "A[q] = sum[x](P[q, x]**2)\nB[x] = sum[q](P[q, x])\nout(A)\n"
    )
    boxes = ("P.max", "P.exp", "P.sum", "P")
    placements = [
        Placement((*boxes, "A"), frozenset({"A"}), {"q": 2}),
        Placement((*boxes, "B"), frozenset({"B"}), {}, (("q", 1),)),
    ]
    levelled, steps = assembled(diagram, placements, diagram.values())
    same_counts(diagram, levelled, placements, diagram.values())
    assert "open" not in [s.step for s in steps]
    assert "P_1[q, x] = softmax[x](S[q, x])" in print_levelled(levelled)


def test_rmsnorm_matmul_and_whole_tiles() -> None:
    sizes = {"t": 9, "m": 6, "n": 4}
    diagram = load("rmsnorm_matmul", sizes)
    values = diagram.values(sizes)
    placements = [
        Placement(("R.sum", "R", "N", "Y"), frozenset({"Y"}), {"t": 4, "n": 4}, (("m", 8),)),
    ]
    levelled, _ = assembled(diagram, placements, values)
    assert levelled.regions[0].group == (("t", 4),)  # n is whole
    assert levelled.regions[0].stream == (("m", 6),)
    same_counts(diagram, levelled, [replace(placements[0], group={"t": 4})], values)


def test_a_block_of_many_regions() -> None:
    sizes = {"q": 6, "m": 4, "h": 2, "d": 3, "f": 8}
    diagram = load("gpt3_block", sizes)
    values = diagram.values(sizes)
    placements = [
        Placement(("K",), frozenset({"K"}), {"h": 1, "x": 4}, (("m", 2),)),
        Placement(("V",), frozenset({"V"}), {"d'": 2}),
        Placement(("Q", "S", "P.max", "P.exp", "P.sum", "P", "A"), frozenset({"A"}), {"h": 1, "q": 4}, (("x", 3),)),
        Placement(("Z",), frozenset({"Z"})),
        Placement(("F.sum", "F", "Y"), frozenset({"Y"}), {"q": 3}, (("f", 5),)),
    ]
    levelled, _ = assembled(diagram, placements, values)
    same_counts(diagram, levelled, placements, values)
    assert next(r for r in levelled.regions if r.name == "Z").implicit


def test_a_split_reduction() -> None:
    diagram = load("attention", SMALL)
    values = diagram.values(SMALL)
    placements = [replace(WHOLE, group={"q": 5, "x": 4}, stream=())]
    levelled, steps = assembled(diagram, placements, values)
    same_counts(diagram, levelled, placements, values)
    assert [s.step for s in steps] == ["fuse", "group", "split"]


def test_what_nobody_needs_is_left_out() -> None:
    diagram = load("attention", SMALL)
    values = diagram.values(SMALL)
    placements = [
        Placement(SCORES, frozenset({"S"}), {"q": 5}),  # the next computes the scores again
        WHOLE,
    ]
    levelled, _ = assembled(diagram, placements, values)
    assert [r.name for r in levelled.regions] == ["O"]


def test_schedules_that_do_not_hang_together_are_refused() -> None:
    diagram = load("attention", SMALL)
    values = diagram.values(SMALL)
    with pytest.raises(Refused, match="no region stores O"):
        assemble(diagram, [Placement(SCORES, frozenset({"S"}))], values)
    with pytest.raises(Refused, match="reads S, which no earlier region stores"):
        assemble(diagram, [Placement((*SOFTMAX, "O"), frozenset({"O"}))], values)
    with pytest.raises(Refused, match="stores O and does not compute it"):
        assemble(diagram, [Placement(SCORES, frozenset({"O"}))], values)
    with pytest.raises(Refused, match="no box of the region has an axis z"):
        assemble(diagram, [replace(WHOLE, stream=(("z", 2),))], {**values, "z": 3})


# -- any schedule of any diagram


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Diagram, list[Placement]]:
    """A diagram and a random schedule of it: regions in order, some results computed again."""
    diagram = draw(diagrams(tame=True, most_lines=4, depth=2))
    opened = open_diagram(diagram)
    units: tuple[Unit, ...] = units_of(diagram, opened)[0]
    at = {b.name: k for k, u in enumerate(units) for b in u.boxes}
    needs = [{at[r.array] for b in u.boxes for r in b.reads() if r.array in at} - {k} for k, u in enumerate(units)]
    own: list[int] = []
    for k in range(len(units)):
        own.append(max([own[j] for j in needs[k]], default=0) + draw(st.integers(0, 1)))
    regions: list[set[int]] = []
    for r in sorted(set(own)):
        members = {k for k in range(len(units)) if own[k] == r}
        for k in reversed(range(len(units))):
            if any(k in needs[m] for m in members) and k not in members and draw(st.booleans()):
                members.add(k)
        regions.append(members)
    result: list[Placement] = []
    for r, members in zip(sorted(set(own)), regions, strict=True):
        stored = set()
        for k in members:
            name = units[k].boxes[-1].name
            later = any(k in needs[m] for other in regions if k not in other for m in other)
            if own[k] == r and (later or name in diagram.outputs):
                stored.add(name)
        if not stored:
            continue
        live = set(stored)
        for b in reversed(opened.boxes):
            if b.name in live:
                live |= {x.array for x in b.reads() if x.array in at and at[x.array] in members}
        boxes = tuple(b for b in opened.boxes if b.name in live)
        every = list(dict.fromkeys(a for b in boxes for a in b.all_axes))
        shared = [a for a in every if all(a in b.axes for b in boxes if b.name in stored)]
        group = draw(st.lists(st.sampled_from(shared), max_size=2, unique=True)) if shared else []
        stream = draw(st.lists(st.sampled_from(every), max_size=2, unique=True)) if every else []
        result.append(
            Placement(
                tuple(b.name for b in boxes),
                frozenset(stored),
                {a: draw(st.integers(1, 4)) for a in group},
                tuple((a, draw(st.integers(1, 4))) for a in stream),
            )
        )
    return diagram, result


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes and says little more
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(schedules())
def test_any_schedule_becomes_a_derivation(drawn: tuple[Diagram, list[Placement]]) -> None:
    diagram, placements = drawn
    values = diagram.values()
    opened = open_diagram(diagram)
    try:
        for p in placements:
            counted(opened, p, values, "fp32")
    except Refused:
        with pytest.raises(Refused):
            assemble(diagram, placements, values)
        return
    try:
        levelled, _ = assembled(diagram, placements, values)
    except Refused as reason:  # two copies of what is made of indices alone share no axis
        assert "would fall apart" in str(reason)
        return
    same_counts(diagram, levelled, placements, values)
