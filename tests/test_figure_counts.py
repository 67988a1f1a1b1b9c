"""The numbers in a figure are the counts: its ports add up to H, its cells to the totals."""

from __future__ import annotations

from pathlib import Path

import pytest
from figure_cases import TILES, levelled, pair

from ioweave.derive.counting.levelled import count
from ioweave.hierarchy.notation import parse_levelled
from ioweave.hierarchy.quantities import format_bytes, format_count
from ioweave.render.figure.draw import draw
from ioweave.render.figure.from_counts import Side, figure_spec
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
    assert panel.title.startswith("Two kernels")


def test_tiles_of_other_sizes_get_other_symbols() -> None:
    before, after = pair("layernorm").panels
    symbols = {p.symbol for r in (*before.regions, *after.regions) for p in r.partitions if p.kind == "group"}
    assert symbols == {"$g_{t}$", "$g_{t}'$"}
    footer = pair("layernorm").footer
    assert "$g_{t} = 64$" in footer
    assert "$g_{t}' = 4$" in footer
