"""The numbers in a figure are the counts: its ports add up to H, its cells to the totals."""

from __future__ import annotations

from pathlib import Path

import pytest
from figure_cases import OTHERS, TILES, levelled, one_plate, pair

from ioweave.derive.counting.levelled import count
from ioweave.hierarchy.notation import parse_levelled
from ioweave.hierarchy.quantities import format_bytes, format_count
from ioweave.render.figure.draw import draw
from ioweave.render.figure.from_counts import Side, figure_spec
from ioweave.render.figure.names import maths_name
from ioweave.render.figure.primitives import Group, Rect, walk
from ioweave.render.figure.spec import CellSpec, PanelSpec

CASES = sorted((Path(__file__).parent / "cases").glob("*.weave"))


def cells(panel: PanelSpec, symbol: str) -> list[CellSpec]:
    return [c for r in panel.rows if r.symbol == symbol for c in r.cells]


@pytest.mark.parametrize("name", sorted(TILES))
def test_ports_add_up_to_the_transfers(name: str) -> None:
    for panel, blocks in zip(pair(name).panels, TILES[name], strict=True):
        lev = levelled(name, blocks)
        counts = count(lev, lev.diagram.values(), "same")
        for region, counted in zip(panel.regions, counts.regions, strict=True):
            assert sum(p.values for p in region.ports) == counted.transfers.values
            assert sum(p.size for p in region.ports) == counted.transfers.bytes
            loads = {p.array: 0 for p in region.ports if p.direction == "load"}
            for p in region.ports:
                if p.direction == "load":
                    loads[p.array] += p.values
            assert loads == {a: n for a, n in counted.transfers.loads.items() if a in loads}
        total = next(r for r in panel.rows if r.symbol == "$H$").total
        assert total == format_bytes(counts.transfers.bytes).replace(".0 ", " ")
        assert next(r for r in panel.rows if r.symbol == "$F$").total == format_count(counts.flops.total)


@pytest.mark.parametrize("path", CASES, ids=lambda p: str(p.stem))
def test_every_counted_case_can_be_drawn(path: Path) -> None:
    lev = parse_levelled(path.read_text("utf-8"), path.name)
    values = lev.diagram.values()
    panel = figure_spec(path.stem, [Side(lev)], values, "same").panels[0]
    counts = count(lev, values, "same")
    assert sum(p.values for r in panel.regions for p in r.ports) == counts.transfers.values
    assert sum(p.size for r in panel.regions for p in r.ports) == counts.transfers.bytes


def test_ports_in_the_drawing_are_the_ports_of_the_specification() -> None:
    """H can be recomputed by walking the drawing: a group of squares per array and direction, one per wire."""
    spec = pair("attention")
    scene = draw(spec)
    groups = {g.id: g for g in walk(scene.items) if isinstance(g, Group) and ("-load-" in g.id or "-store-" in g.id)}
    for letter, panel in zip("ab", spec.panels, strict=True):
        for region in panel.regions:
            for p in region.ports:
                group = groups.pop(f"{letter}-{region.name}-{p.direction}-{p.array}")
                assert f"{p.values} values" in group.title
                assert len(group.items) == len(panel.array(p.array).axes)
                filled = {i.fill == i.stroke for i in group.items if isinstance(i, Rect)}
                assert filled == {p.every_step}
    assert not groups


def test_attention_says_what_the_paper_says() -> None:
    before, after = pair("attention").panels
    assert [c.terms for c in cells(before, "$H$")] == [
        ("qd", r"xd\cdot q/g_{q}", "qx"),
        ("2qx",),
        ("qx", r"xd\cdot q/g_{q}", "qd"),
    ]
    assert [c.value for c in cells(before, "$H$")] == ["48.5 MiB", "64 MiB", "48.5 MiB"]
    assert [c.terms for c in cells(after, "$H$")] == [("qd", r"xd\cdot q/g_{q}"), ("0",), (r"xd\cdot q/g_{q}", "qd")]
    (row,) = (r for r in after.rows if r.symbol == "$H$")
    assert (row.total, row.remark, row.accent) == ("33 MiB", "4.9× less", True)
    (memory,) = cells(after, "$M$")
    assert (memory.first, memory.last) == (0, 2)
    assert memory.terms == (r"2g_{q}\,d", r"2s_{x}\,d", r"g_{q}\,s_{x}", "3g_{q}")
    assert [p.array for p in after.regions[0].ports if p.every_step] == ["K", "V"]


def test_a_masked_count_is_under_its_formula() -> None:
    _, after = pair("causal_attention").panels
    assert cells(after, "$H$")[0].terms[0].startswith(r"{}\le ")
    plain = pair("attention").panels[1]
    key = next(p.values for p in after.regions[0].ports if p.array == "K")
    assert key < next(p.values for p in plain.regions[0].ports if p.array == "K")


def test_windows_in_formulas() -> None:
    _, after = pair("convolution").panels
    (cell,) = cells(after, "$H$")
    assert cell.terms[0] == r"b(y+(r-1)\,y/g_{y})(x+s-1)c\cdot o/g_{o}"


def test_a_split_reduction_gets_its_merge() -> None:
    lev = parse_levelled(
        "a, b, c = 8, 16, 8\nX[a, b]: fp16\nY[b, c]: fp16\n"
        'with level("smem", group={a: 4, b: 4}, stream={c: 2}):\n    Z[a, c] = sum[b](X[a, b] * Y[b, c])\n'
    )
    panel = figure_spec("split", [Side(lev)], lev.diagram.values()).panels[0]
    assert [c.result for c in panel.columns] == ["state(Z)", "Z"]
    assert panel.title == "One line: one kernel and a merge"


def test_the_derived_panel_has_the_plain_symbols() -> None:
    """Tiles of other sizes before it are primed; the last line lists them in that order."""
    for name in sorted(TILES):
        spec = pair(name)
        last = [p.symbol for r in spec.panels[-1].regions for p in r.partitions]
        first = {p.symbol for r in spec.panels[0].regions for p in r.partitions}
        for symbol in last:
            assert symbol.rstrip("'$") + "$" in last, name  # a prime only beside the plain one
        for primed in (s for s in {*first, *last} if "'$" in s and "}'" in s):
            assert spec.footer.index(primed[:-1].rstrip("'") + " =") < spec.footer.index(primed[:-1] + " =")
    before, after = pair("layernorm").panels
    assert {p.symbol for p in after.regions[0].partitions} == {"$g_{t}$"}
    assert "$g_{t} = 4$" in pair("layernorm").footer
    assert "$g_{t}' = 64$" in pair("layernorm").footer
    assert {p.symbol for r in before.regions for p in r.partitions if p.kind == "group"} == {"$g_{t}'$", "$g_{t}$"}


def test_titles_say_what_is_drawn() -> None:
    def title(blocks: dict[str, str], name: str = "swiglu_mlp") -> tuple[str, str]:
        lev = levelled(name, blocks)
        panel = figure_spec(name, [Side(lev)], lev.diagram.values()).panels[0]
        return panel.title, panel.note

    assert title({}) == ("Unfused: four kernels, intermediates in gmem", "each line whole, without tiles")
    assert title({"A B H Y": "group={t: 16}"}) == (
        "Fused: one kernel, intermediates stay in smem",
        "with the tiles stated below",
    )
    assert title({"A B H": ""}) == ("Two kernels, $A, B$ stay in smem, $H$ in gmem", "whole, without tiles")
    assert title({}, "matmul") == ("One line: one kernel", "whole, without tiles")
    assert title({}, "cross_entropy")[0] == "Unfused: two kernels, $Z$ in gmem"
    assert title({"Z L": ""}, "cross_entropy")[0] == "Fused: one kernel, $Z$ stays in smem"
    assert [p.note for p in pair("attention").panels] == [
        "each line with its own best tiles",
        "with the best tiles found",
    ]


def test_titles_of_two_equal_panels() -> None:
    def second(name: str) -> str:
        lev = levelled(name, {})
        sides = [Side(lev, searched=True), Side(lev, searched=True)]
        return figure_spec(name, sides, lev.diagram.values()).panels[1].title

    assert second("matmul") == "Nothing to fuse: one kernel"
    assert second("matmul_chain") == "Fusing gains nothing: two kernels, $H$ in gmem"


def test_outputs_are_no_intermediates() -> None:
    for name, title in (("two outputs", "Fused: one kernel, $P$ stays in smem"), ("one sum", "One line: one kernel")):
        lev = one_plate(name)
        assert figure_spec(name, [Side(lev)], lev.diagram.values()).panels[0].title == title


def test_states_of_a_stream() -> None:
    before, after = pair("attention").panels
    assert [c.state for c in after.columns] == ["", "max, Σ", "$O$"]
    assert [c.state for c in before.columns] == ["", "", "$O$"]
    lev = one_plate("labels of integers")
    panel = figure_spec("labels", [Side(lev)], lev.diagram.values()).panels[0]
    assert [c.state for c in panel.columns] == ["", "Σ"]  # the sum is divided at the end
    lev = levelled("cross_entropy", {"Z L": "group={t: 16}, stream={v: 16}"})
    panel = figure_spec("cross_entropy", [Side(lev)], lev.diagram.values()).panels[0]
    assert panel.columns[-1].state == "max, Σ, Σ$_{2}$"


def test_a_stream_of_one_step_keeps_nothing() -> None:
    lev = levelled("attention", {"S P O": "stream={x: 4096}"})
    panel = figure_spec("attention", [Side(lev)], lev.diagram.values()).panels[0]
    assert [c.state for c in panel.columns] == ["", "", ""]


@pytest.mark.parametrize("name", OTHERS)
def test_no_formula_is_under_its_count(name: str) -> None:
    """A term without a bound sign comes to the count; where no product does, the number itself stands."""
    for lev in (parse_levelled(OTHERS[name]), one_plate(name)):
        values = lev.diagram.values()
        panel = figure_spec(name, [Side(lev)], values).panels[0]
        sizes = {maths_name(a): int(n) for a, n in values.items()}
        for port in (p for r in panel.regions for p in r.ports):
            worth = _worth(port.term.strip("$"), sizes)
            if worth is not None:
                assert worth >= port.values if r"\le" in port.term else worth == port.values, port


def _worth(term: str, sizes: dict[str, int]) -> int | None:
    """A sum of plain products of one-letter sizes; None for anything else."""
    total = 0
    for product in term.removeprefix(r"\le ").split(" + "):
        digits = product[: len(product) - len(product.lstrip("0123456789"))]
        n = int(digits or "1")
        for letter in product[len(digits) :]:
            if letter not in sizes:
                return None
            n *= sizes[letter]
        total += n
    return total


def test_a_cell_gathers_equal_terms_under_a_bound() -> None:
    for name in OTHERS:
        lev = one_plate(name)
        panel = figure_spec(name, [Side(lev)], lev.diagram.values()).panels[0]
        for cell in cells(panel, "$H$"):
            assert len(set(cell.terms)) == len(cell.terms), name
