"""Rewrites: each keeps the function, says why it holds, and refuses what does not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ioweave.derive.counting.levelled import count
from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.derive.rewrites.fuse import fuse
from ioweave.derive.rewrites.group import group
from ioweave.derive.rewrites.hold import hold
from ioweave.derive.rewrites.open_composite import open_composite
from ioweave.derive.rewrites.recompute import recompute
from ioweave.derive.rewrites.replay import apply, replay
from ioweave.derive.rewrites.stream import stream
from ioweave.derive.rewrites.unfused import unfused
from ioweave.derive.search.assemble import placing
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.library import load, names
from ioweave.diagrams.notation import parse, print_diagram
from ioweave.diagrams.opening import can_open, open_diagram, open_line
from ioweave.hierarchy.levelled import Levelled
from ioweave.hierarchy.notation import parse_levelled, print_levelled
from ioweave.hierarchy.steps import STEP_NAMES, Step

SMALL = {"q": 6, "x": 8, "d": 3}


def attention() -> Levelled:
    return unfused(load("attention", SMALL))


def written(body: str, left: str = "P[q, x]") -> Diagram:
    return parse(f"q, x, k = 4, 5, 3\n\nS[q, x]: fp32\nA[q]: fp32\nB[x]: fp32\n{left} = {body}\n")


def same_values(a: Diagram, b: Diagram, sizes: dict[str, int] | None = None) -> None:
    values = a.values(sizes)
    inputs = draw_inputs(a, values, 7)
    one, two = evaluate(a, values, inputs), evaluate(b, b.values(sizes), inputs)
    for name in a.outputs:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-9, atol=1e-12)


# -- unfused


@pytest.mark.parametrize("name", names())
def test_unfused_has_a_region_for_every_line(name: str) -> None:
    diagram = load(name)
    start = unfused(diagram)
    assert [r.lines() for r in start.regions] == [(n.name,) for n in diagram.lines]
    assert parse_levelled(print_levelled(start)) == start


# -- open


@pytest.mark.parametrize("name", [n for n in names() if any(can_open(line) for line in load(n).lines)])
def test_opening_keeps_boxes_and_values(name: str) -> None:
    diagram = load(name)
    levelled = unfused(diagram)
    for line in diagram.lines:
        if can_open(line):
            levelled, step = open_composite(levelled, line.name)
            assert step.arrays[-1] == line.name
            assert step.identity is not None
            assert step.identity.count(" = ") >= len(step.arrays)
    before, after = open_diagram(diagram), open_diagram(levelled.diagram)
    assert [(b.name, b.axes, b.body) for b in before.boxes] == [(b.name, b.axes, b.body) for b in after.boxes]
    assert parse_levelled(print_levelled(levelled)) == levelled


def test_opening_in_a_block_stays_in_it() -> None:
    levelled, _ = fuse(attention(), ["S", "P", "O"])
    levelled, _ = group(levelled, "O", "q", 2)
    levelled, step = open_composite(levelled, "P")
    assert [r.name for r in levelled.regions] == ["O"]
    assert levelled.regions[0].members == ("S", "P.max", "P.exp", "P.sum", "P", "O")
    assert levelled.regions[0].group == (("q", 2),)
    assert step.region == "O"


def test_a_line_without_a_composite_is_not_opened() -> None:
    with pytest.raises(Refused, match="S has no composite"):
        open_composite(attention(), "S")
    with pytest.raises(Refused, match="no line is called Z"):
        open_composite(attention(), "Z")


@pytest.mark.parametrize(
    "body",
    [
        "softmax[x](S[q, 4 - x])",
        "softmax[x](where(x >= 1, S[q, x - 1], -inf))",
        "where(q >= 1, softmax[x](S[q - 1, x]), 0)",
        "where(q < 1, B[x], softmax[x](sum[k](S[q - 1, k]) * B[x]))",
        "softmax[x](S[q, q])",
        "softmax[x](A[q])",
        "softmax[x](1)",
        "softmax[q, x](B[x])",
        "softmax[x](softmax[q](S[q, x]))",
        "layernorm[x](B[x]) * A[q]",
        "exp(logsumexp[k](A[q])) + B[x]",
    ],
)
def test_any_argument_of_a_composite_opens(body: str) -> None:
    diagram = written(body)
    opened = open_line(diagram, "P")
    assert parse(print_diagram(opened)) == opened
    assert [b.body for b in open_diagram(opened).boxes] == [b.body for b in open_diagram(diagram).boxes]
    same_values(diagram, opened)


def test_an_argument_that_is_no_row_has_a_box_of_its_own() -> None:
    def boxes(body: str, left: str = "P[q, x]") -> dict[str, tuple[str, ...]]:
        return {b.name: b.axes for b in open_diagram(written(body, left)).boxes}

    assert boxes("softmax[x](S[q, 4 - x])")["P.arg"] == ("q", "x")
    assert boxes("softmax[x](A[q])")["P.arg"] == ("q", "x")
    assert boxes("logsumexp[k](A[q])", "P[q]")["P.arg"] == ("q", "k")
    assert "P.arg" not in boxes("softmax[x](S[q, x])")


# -- fuse


def test_fusing_says_what_stays() -> None:
    levelled, step = fuse(attention(), ["S", "P", "O"])
    assert [r.name for r in levelled.regions] == ["O"]
    assert step.arrays == ("S", "P")
    assert "S and P are made and read here alone and no longer move" in step.because
    assert "Fuse S, P and O into one region, O:" in step.sentence()
    assert parse_levelled(print_levelled(levelled)) == levelled


def test_fusing_says_what_is_still_stored() -> None:
    diagram = parse("q = 4\nA[q]: fp32\nB[q] = A[q] + 1\nC[q] = B[q] * 2\nD[q] = B[q] + C[q]\n")
    _, step = fuse(unfused(diagram), ["B", "C"])
    assert "B is stored for what else needs it" in step.because


def test_a_region_that_is_not_convex_is_refused() -> None:
    with pytest.raises(Refused, match="not be convex: P needs S and O needs P"):
        fuse(unfused(parse("q = 4\nA[q]: fp32\nS[q] = A[q] + 1\nP[q] = S[q] * 2\nO[q] = S[q] + P[q]\n")), ["S", "O"])


def test_fusing_moves_other_regions_only_where_they_must() -> None:
    diagram = parse(
        "q = 4\nA[q]: fp32\nB[q] = A[q] + 1\nC[q] = A[q] * 2\nD[q] = B[q] + 1\nE[q] = B[q] + C[q]\nF[q] = D[q] + E[q]\n"
    )
    levelled, _ = fuse(unfused(diagram), ["B", "E"])
    assert [r.name for r in levelled.regions] == ["C", "E", "D", "F"]
    assert [n.name for n in levelled.diagram.lines] == ["C", "B", "E", "D", "F"]
    assert parse_levelled(print_levelled(levelled)) == levelled
    same_values(diagram, levelled.diagram)


def test_reordering_keeps_tiles_on_their_axes() -> None:
    text = (
        "i, j, k = 4, 4, 4\nA[i, j]: fp32\nB[i, k]: fp32\nU[i] = sum[j](A[i, j])\n"
        "V[j] = sum[i](B[j, i])\nW[i] = U[i] + V[i]\n"
    )
    levelled, _ = group(unfused(parse(text)), "V", "j'", 2)
    after, _ = fuse(levelled, ["U", "W"])
    assert [r.name for r in after.regions] == ["V", "W"]
    assert after.regions[0].group == (("j", 2),)
    assert open_diagram(after.diagram).box("V").axes == ("j",)


def test_tiles_of_fused_regions_agree() -> None:
    levelled, _ = group(attention(), "S", "q", 2)
    levelled, _ = group(levelled, "P", "q", 3)
    with pytest.raises(Refused, match="S and P have different tiles"):
        fuse(levelled, ["S", "P"])
    levelled, _ = group(attention(), "S", "x", 2)
    with pytest.raises(Refused, match="no instance has"):
        fuse(levelled, ["S", "P"])
    levelled, _ = group(attention(), "S", "q", 2)
    levelled, _ = fuse(levelled, ["S", "P"])
    assert levelled.regions[0].group == (("q", 2),)


def test_one_region_is_not_fused() -> None:
    with pytest.raises(Refused, match="one region already"):
        fuse(attention(), ["S"])


# -- recompute


def test_a_copy_stands_by_itself_outside_blocks() -> None:
    levelled, _ = open_composite(attention(), "P")
    levelled, step = recompute(levelled, "P.exp", ["P"])
    assert step.arrays == ("P.exp_1",)
    assert step.identity == "P.exp_1 = P.exp"
    assert [r.name for r in levelled.regions] == ["S", "P.max", "P.exp", "P.exp_1", "P.sum", "P", "O"]
    assert parse_levelled(print_levelled(levelled)) == levelled
    same_values(attention().diagram, levelled.diagram)


def test_a_copy_goes_into_the_block_of_its_reader() -> None:
    text = "q = 4\nA[q]: fp32\nB[q] = A[q] + 1\nC[q] = B[q] * 2\nD[q] = B[q] + C[q]\n"
    levelled, _ = fuse(unfused(parse(text)), ["C", "D"])
    levelled, _ = group(levelled, "D", "q", 2)
    levelled, _ = stream(levelled, "D", "q", 1)
    levelled, _ = hold(levelled, "D", "B", 0)
    with pytest.raises(Refused, match="nobody but C and D"):
        recompute(levelled, "B", ["C", "D"])
    levelled, step = recompute(levelled, "B", ["C"])
    assert step.region == "D"
    assert levelled.regions[1].members == ("B_1", "C", "D")
    assert levelled.regions[1].hold == (("B", 0),)


def test_a_hold_goes_with_the_last_load() -> None:
    text = "q = 4\nA[q]: fp32\nB[q] = A[q] + 1\nC[q] = B[q] * 2\nD[q] = B[q] * C[q]\n"
    levelled, _ = stream(unfused(parse(text)), "C", "q", 1)
    levelled, _ = hold(levelled, "C", "B", 0)
    levelled, _ = recompute(levelled, "B", ["C"])
    assert levelled.regions[1].members == ("B_1", "C")
    assert levelled.regions[1].hold == ()


def test_recomputation_refuses() -> None:
    text = "q = 4\nA[q]: fp32\nB[q] = A[q] + 1\nC[q] = B[q] * 2\nD[q] = B[q] + C[q]\n"
    start = unfused(parse(text))
    with pytest.raises(Refused, match="no line is called A"):
        recompute(start, "A", ["D"])
    with pytest.raises(Refused, match="B does not read B"):
        recompute(start, "B", ["B"])
    with pytest.raises(Refused, match="needs a fresh name"):
        recompute(start, "B", ["D"], "q")
    tiled, _ = group(start, "D", "q", 2)
    tiled, _ = group(tiled, "C", "q", 2)
    with pytest.raises(Refused, match="different regions"):
        recompute(unfused_with(tiled), "B", ["C", "D"])


def unfused_with(levelled: Levelled) -> Levelled:
    """The same with B put out, so that it may lose all its readers."""
    diagram = levelled.diagram
    return Levelled(
        Diagram("", diagram.definitions, diagram.inputs, diagram.lines, ("B", "D")), levelled.regions, levelled.levels
    )


# -- group and split


def test_grouping_says_what_is_loaded_again() -> None:
    levelled, _ = fuse(attention(), ["S", "P", "O"])
    levelled, step = group(levelled, "O", "q", 2, placing(levelled.diagram.values()))
    assert step.step == "group"
    assert "O, stored, has q" in step.because
    assert "K and V without q are loaded by every instance" in step.because
    assert levelled.regions[0].group == (("q", 2),)


def test_a_reduced_axis_is_split_with_its_merge() -> None:
    levelled, _ = fuse(attention(), ["S", "P", "O"])
    levelled, step = group(levelled, "O", "x", 4, placing(levelled.diagram.values()))
    assert step.step == "split"
    assert "partial P.max, P.sum and O.acc over x" in step.because
    assert step.identity is not None
    assert "max" in step.identity
    labels = {k for r in count(levelled, levelled.diagram.values()).regions for k in r.transfers.stores}
    assert labels == {"state(O)", "O"}


def test_grouping_refuses() -> None:
    with pytest.raises(Refused, match="P has x and needs a reduction over all of x"):
        group(attention(), "P", "x", 2)
    with pytest.raises(Refused, match="no member of P has an axis d; its axes are q, x"):
        group(attention(), "P", "d", 2)
    with pytest.raises(Refused, match="no region is called Z"):
        group(attention(), "Z", "q", 2)
    with pytest.raises(Refused, match="a tile is 1 or more"):
        group(attention(), "P", "q", 0)
    levelled, _ = group(attention(), "P", "q", 2)
    with pytest.raises(Refused, match="in tiles of 2 already"):
        group(levelled, "P", "q", 3)
    levelled, _ = fuse(unfused(parse("q, x = 4, 4\nA[q]: fp32\nU[q] = A[q]\nW[q, x] = U[q]\nout(U)\n")), ["U", "W"])
    with pytest.raises(Refused, match="U is stored, and it neither has x nor reduces over it"):
        group(levelled, "W", "x", 2)


def test_a_reduction_without_a_merge_is_not_split() -> None:
    text = "q, x = 4, 6\nA[q, x]: fp32\nM[q] = mean[x](A[q, x])\nD[q] = sum[x](abs(A[q, x] - M[q]))\n"
    levelled, _ = fuse(unfused(parse(text)), ["M", "D"])
    with pytest.raises(Refused, match="2 passes, so partial states have no merge"):
        group(levelled, "D", "x", 2)


# -- stream and hold


def test_streaming_states_its_state() -> None:
    levelled, _ = fuse(attention(), ["S", "P", "O"])
    levelled, step = stream(levelled, "O", "x", 2, placing(levelled.diagram.values()))
    assert step.because.startswith("one pass over x carries the state P.max (from -inf), P.sum (from 0) and O.acc")
    assert "multiplying P.sum and O.acc" in step.because
    assert step.identity
    with pytest.raises(Refused, match="streamed in steps of 2 already"):
        stream(levelled, "O", "x", 4)


def test_streaming_counts_passes() -> None:
    levelled, step = stream(attention(), "P", "x", 2)
    assert step.because.startswith("2 passes over x") or "passes over x" in step.because
    _, step = stream(attention(), "S", "q", 2)
    assert step.because == "no reduction runs over q, so its steps are independent and carry nothing"
    assert count(levelled, levelled.diagram.values()).regions[1].passes == 2


def test_loops_are_appended_inside() -> None:
    levelled, _ = stream(attention(), "S", "q", 2)
    levelled, _ = stream(levelled, "S", "x", 4)
    assert levelled.regions[0].stream == (("q", 2), ("x", 4))


def test_holding() -> None:
    levelled, _ = stream(attention(), "S", "q", 2)
    levelled, _ = stream(levelled, "S", "x", 4)
    held, step = hold(levelled, "S", "K", 0, placing(levelled.diagram.values()))
    assert held.regions[0].hold == (("K", 0),)
    assert "not loaded again for q, which it lacks" in step.because
    assert "kept for all of x" in step.because
    assert "hold K outside all loops" in step.sentence()
    with pytest.raises(Refused, match="S does not load V; it loads Q and K"):
        hold(levelled, "S", "V", 0)
    with pytest.raises(Refused, match="depth 3: S has 2 loops"):
        hold(levelled, "S", "K", 3)
    with pytest.raises(Refused, match="held at depth 0 already"):
        hold(held, "S", "K", 1)


# -- steps


def test_what_is_checked_can_be_counted() -> None:
    text = "i, k = 12, 3\nX[i + 2]: fp32\nY[i] = X[i] + X[i + 2]\nZ[i] = where(i >= 1, Y[i - 1] + Y[11 - i], 0)\n"
    levelled, _ = fuse(unfused(parse(text)), ["Y", "Z"])
    group(levelled, "Z", "i", 4)
    with pytest.raises(Refused, match="do not move together"):
        group(levelled, "Z", "i", 4, placing(levelled.diagram.values()))


def test_nothing_is_changed_in_place() -> None:
    start = attention()
    again = attention()
    fused, _ = fuse(start, ["S", "P", "O"])
    group(fused, "O", "q", 2)
    open_composite(start, "P")
    assert start == again
    assert fused.regions[0].group == ()


def test_steps_survive_json_and_replay() -> None:
    levelled, first = fuse(attention(), ["S", "P", "O"])
    levelled, second = group(levelled, "O", "q", 2)
    levelled, third = stream(levelled, "O", "x", 4)
    rows = json.loads(json.dumps([s.to_json() for s in (first, second, third)]))
    steps = [Step.from_json(r) for r in rows]
    assert steps == [first, second, third]
    assert replay(attention(), steps) == levelled
    with pytest.raises(ValueError, match="a step has"):
        Step.from_json({"step": "melt", "because": "hot"})


def test_a_step_that_says_too_little_is_refused() -> None:
    with pytest.raises(Refused, match="`hold` is no rewrite here, or says too little"):
        apply(attention(), Step("hold", "why not", "O"))
    with pytest.raises(Refused, match="`cast`"):
        apply(attention(), Step("cast", "why not"))


def test_steps_are_rows_of_the_report() -> None:
    _, step = group(attention(), "P", "q", 2)
    assert step.to_json() == {"step": "group", "region": "P", "axis": "q", "size": 2, "because": step.because}
    assert "open" in STEP_NAMES
