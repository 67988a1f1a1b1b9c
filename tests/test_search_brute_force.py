"""The search against brute force: every shape, every integer tile, every partition, at small sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from brute import Front, counted, least, partitions, region_front
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import diagrams

from ioweave.derive.counting.region import count_region
from ioweave.derive.counting.terms import bits, numbers, terms, transfers
from ioweave.derive.counting.tiles import Tiles
from ioweave.derive.program.build import Shape, build
from ioweave.derive.program.setting import Setting
from ioweave.derive.search import relaxed
from ioweave.derive.search.density import density
from ioweave.derive.search.derive import derive
from ioweave.derive.search.found import Found
from ioweave.derive.search.nests import basis
from ioweave.derive.search.regions import Effort, Limits, best_schedule
from ioweave.derive.search.shapes import frame, groupings, sequences
from ioweave.derive.search.units import units_of
from ioweave.diagrams.boxes import Box
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import DoesNotFit, Refused
from ioweave.diagrams.library import load
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.machines import load_machine

WINDOW = """i, r, c, o = 5, 3, 2, 2
X[i + r - 1, c]: fp16
W[r, c, o]: fp16
Y[i, o] = sum[r, c](X[i + r, c] * W[r, c, o])
"""
STRIDED = """i, r, o = 4, 3, 3
X[2*i + r - 2]: fp16
W[r, o]: fp16
Y[i, o] = sum[r](X[2*i + r] * W[r, o])
"""
STENCIL = """i, j = 7, 3
X[i + 2, j]: fp16
A[i, j] = X[i, j] + X[i + 1, j] + X[i + 2, j]
"""
GUARDED = """i, j = 7, 3
X[i, j]: fp16
A[i, j] = X[i, j] + where(i >= 1, X[i - 1, j], 0)
"""
GRAM = """q, x, d = 4, 4, 3
X[q, d]: fp16
S[q, x] = sum[d](X[q, d] * X[x, d])
"""
SELF = """q, d = 3, 2
x = q
X[q, d]: fp16
S[q, x] = sum[d](X[q, d] * X[x, d])
O[q, d] = sum[x](S[q, x] * X[x, d])
"""
MIXED = """q, x, d = 3, 4, 2
A[q, d]: fp32
B[x, d]: fp8
C[x]: fp64
S[q, x] = sum[d](A[q, d] * B[x, d]) + C[x]
O[q] = sum[x](exp(S[q, x]))
"""
MASKED = """q, x = 6, 5
A[q]: fp16
B[x]: fp16
P[q] = sum[x](where(x <= q, A[q] * B[x], 0))
"""
BANDED = """q, x, d = 4, 4, 2
A[q]: fp16
B[x, d]: fp16
P[q, d] = sum[x](where(abs(q - x) <= 1, A[q] * B[x, d], 0))
"""
BLOCKED = """q, x = 7, 7
A[q]: fp16
B[x]: fp16
P[q] = sum[x](where(x // 3 == q // 3, A[q] * B[x], 0))
"""
RENAMED = """i, q, x, d = 3, 3, 4, 2
A[i, d]: fp16
B[x, d]: fp16
N[i, d] = A[i, d] * 2
S[q, x] = sum[d](N[q, d] * B[x, d])
"""
SOFTMAX = """q, x = 3, 3
S[q, x]: fp16
P[q, x] = softmax[x](S[q, x])
"""
NARROW = """q, x, d = 3, 4, 3
A[q, d]: fp4
B[x, d]: fp4
S[q, x]: fp4 = sum[d](A[q, d] * B[x, d])
"""

SMALL: dict[str, tuple[str, dict[str, int | float], str]] = {
    "matmul": ("matmul", {"a": 5, "b": 4, "c": 3}, "same"),
    "matmul wide": ("matmul", {"a": 5, "b": 4, "c": 6}, "fp32"),
    "layernorm": ("layernorm", {"t": 4, "m": 5}, "fp32"),
    "rmsnorm_matmul": ("rmsnorm_matmul", {"t": 4, "m": 5, "n": 3}, "same"),
    "matmul_chain": ("matmul_chain", {"t": 3, "i": 4, "f": 5, "o": 2}, "same"),
    "attention": ("attention", {"q": 3, "x": 4, "d": 2}, "same"),
    "spherical": ("spherical_attention", {"q": 3, "x": 4, "d": 2}, "same"),
    "column_sums": ("column_sums", {"q": 4, "x": 3, "d": 2}, "same"),
    "cross_entropy": ("cross_entropy", {"t": 3, "m": 2, "v": 4}, "fp32"),
    "swiglu": ("swiglu_mlp", {"t": 2, "m": 2, "f": 3}, "same"),
    "window": (WINDOW, {}, "same"),
    "strided": (STRIDED, {}, "same"),
    "stencil": (STENCIL, {}, "same"),
    "guarded": (GUARDED, {}, "same"),
    "gram": (GRAM, {}, "same"),
    "self": (SELF, {}, "same"),
    "mixed": (MIXED, {}, "fp32"),
    "masked": (MASKED, {}, "same"),
    "banded": (BANDED, {}, "same"),
    "blocked": (BLOCKED, {}, "same"),
    "renamed": (RENAMED, {}, "same"),
    "softmax": (SOFTMAX, {}, "fp32"),
}


def diagram_of(what: str) -> Diagram:
    return parse(what) if "\n" in what else load(what)


def region_of(
    what: str, sizes: dict[str, int | float], accumulate: str
) -> tuple[tuple[Box, ...], frozenset[str], Setting]:
    d = diagram_of(what)
    opened = open_diagram(d)
    return opened.boxes, frozenset(opened.outputs), Setting.make(opened, d.values(sizes), accumulate)


def breakpoints(f: Front) -> list[int]:
    """Every capacity at which the answer changes, one byte less, and a capacity for all."""
    return sorted({c for held, _ in f for c in (held - 1, held)} | {f[-1][0] + 64})


@pytest.mark.parametrize("case", SMALL)
def test_a_region_is_searched_exactly(case: str) -> None:
    boxes, stored, setting = region_of(*SMALL[case])
    f = region_front(boxes, stored, setting)
    assert f
    for capacity in breakpoints(f):
        effort = Effort()
        found = best_schedule("region", boxes, stored, setting, Limits(capacity), effort)
        assert (found.values if found else None) == least(f, capacity), capacity
        assert effort.exact
        if found is not None:
            assert found.count.memory.bytes <= capacity
            tiles = Tiles(found.group, found.stream, setting.sizes)
            assert counted(found.program, tiles, setting) == (found.count.memory.bytes, found.values)


def test_values_of_half_a_byte_are_rounded_up() -> None:
    boxes, stored, setting = region_of(NARROW, {}, "same")
    for capacity in range(2, 24):
        found = best_schedule("region", boxes, stored, setting, Limits(capacity), Effort())
        assert found is None or found.count.memory.bytes <= capacity


@pytest.mark.parametrize("case", ["matmul", "layernorm", "matmul_chain", "renamed", "masked", "softmax"])
def test_partitions_are_searched_exactly(case: str) -> None:
    what, sizes, accumulate = SMALL[case]
    d = diagram_of(what)
    opened = open_diagram(d)
    values = d.values(sizes)
    units, most, _ = units_of(d, opened)
    assert most is None
    cheapest = partitions([u.boxes for u in units], frozenset(opened.outputs), Setting.make(opened, values, accumulate))
    for capacity in (8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64, 96, 128, 256):
        want = cheapest(capacity)
        try:
            found = derive(d, values, load_machine("h100"), capacity=capacity, accumulate=accumulate)
        except DoesNotFit:
            assert want is None or any(
                best_schedule(
                    line.name,
                    tuple(b for b in opened.boxes if b.line == line.name),
                    frozenset({line.name}),
                    Setting.make(opened, values, accumulate),
                    Limits(capacity),
                    Effort(),
                )
                is None
                for line in d.lines
            )
            continue
        assert found.exact
        assert found.after_counts.transfers.values == want, capacity
        assert found.after_counts.memory <= capacity


# -- what the search rests on


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(diagrams(tame=True), st.data(), st.sampled_from(["same", "fp32"]))
def test_bounds_never_exceed_the_count(diagram: Diagram, data: st.DataObject, accumulate: str) -> None:
    opened = open_diagram(diagram)
    setting = Setting.make(opened, diagram.values(), accumulate)
    count = data.draw(st.integers(1, len(opened.boxes)))
    boxes = opened.boxes[len(opened.boxes) - count :]
    outside = {r.array for b in opened.boxes if b not in boxes for r in b.reads()}
    stored = frozenset(b.name for b in boxes if b.name in opened.outputs or b.name in outside)
    f = frame(boxes, stored, setting)
    try:
        b = basis(f, boxes, stored, setting, density(boxes, stored, setting))
        loops = data.draw(st.sampled_from(list(sequences(f))))
        group = data.draw(st.sampled_from(list(groupings(f, loops))))
        nest = b.nest(loops)
    except Refused:
        assume(False)
        return
    options = relaxed.holdable(nest)
    hold = {a: data.draw(st.sampled_from([None, *depths])) for a, depths in options.items()}
    held = {a: p for a, p in hold.items() if p is not None}
    try:
        program = build("region", boxes, stored, Shape(group, loops, (), tuple(held.items())), setting)
    except Refused:
        return
    tiles = {a: data.draw(st.integers(1, setting.sizes[a])) for a in (*group, *loops)}
    of = Tiles({a: tiles[a] for a in group}, {a: tiles[a] for a in loops}, setting.sizes)
    try:
        memory, values = counted(program, of, setting)
    except Refused:
        return
    per_axis = [tiles.get(a, setting.sizes[a]) for a in f.axes]
    bound = relaxed.relaxed(b, nest, b.axes(group), held)
    assert relaxed.transfers(bound, b, per_axis) <= values + 1e-6
    assert relaxed.refined(bound, b, per_axis) <= values + 1e-6
    if b.density is None or b.density.anchored:
        assert relaxed.memory(bound, per_axis) <= memory * 8
    free = {a: depths[0] for a, depths in options.items()}
    early = relaxed.relaxed(b, nest, b.axes(group), {}, free)
    assert relaxed.transfers(early, b, per_axis) <= values + 1e-6
    if b.density is None or b.density.anchored:
        assert relaxed.memory(early, per_axis) <= memory * 8
    t = terms(program, setting)
    ring = numbers(setting.sizes, of.group, of.stream)
    if t.exact and b.density is None:
        assert int(transfers(t, ring)) == values
        assert -(-int(np.max(bits(t, ring))) // 8) == memory
    elif b.density is None or b.density.anchored:
        assert int(np.max(bits(t, ring))) >= memory * 8


def found_of(name: str, capacity: int, **options: Any) -> Found:
    """A catalogue entry at small sizes."""
    d = load(name)
    sizes = {"attention": {"q": 40, "x": 56, "d": 8}, "matmul": {"a": 48, "b": 40, "c": 36}}.get(name)
    sizes = sizes or {n: min(v, 12) for n, v in d.values().items() if isinstance(v, int)}
    return derive(d, d.values(sizes), load_machine("h100"), capacity=capacity, **options)


NAMES = ["attention", "matmul", "matmul_chain", "layernorm", "rmsnorm_matmul", "spherical_attention", "cross_entropy"]


@pytest.mark.parametrize("name", [*NAMES, "column_sums", "swiglu_mlp"])
def test_the_least_memory_named_is_the_least(name: str) -> None:
    with pytest.raises(DoesNotFit) as e:
        found_of(name, 1)
    need = e.value.least
    assert f"{need:,} B" in str(e.value)
    found = found_of(name, need)
    assert found.after_counts.memory <= need
    with pytest.raises(DoesNotFit) as again:
        found_of(name, need - 1)
    assert again.value.least == need


@pytest.mark.parametrize("align", [{"q": 16}, {"x": 8}, {"q": 16, "d": 4}, {"q": 7, "x": 5}])
def test_tiles_are_aligned(align: dict[str, int]) -> None:
    free = found_of("attention", 2048)
    found = found_of("attention", 2048, align=align)
    assert found.after_counts.transfers.values >= free.after_counts.transfers.values
    for levelled in (found.before, found.after):
        for region in levelled.regions:
            for axis, tile in (*region.group, *region.stream):
                name = axis.rstrip("'").split("_")[0]
                size = {"q": 40, "x": 56, "d": 8}[name]
                assert tile % align.get(name, 1) == 0 or tile >= size


def test_windows_are_aligned() -> None:
    d = parse(WINDOW.replace("5, 3, 2, 2", "24, 3, 4, 6"))
    for capacity in (200, 400, 800):
        found = derive(d, d.values(), load_machine("h100"), capacity=capacity, align={"i": 5, "r": 2, "o": 4})
        for axis, tile in (*found.after.regions[0].group, *found.after.regions[0].stream):
            step, size = {"i": (5, 24), "r": (2, 3), "o": (4, 6), "c": (1, 4)}[axis]
            assert tile % step == 0 or tile >= size


# -- interrupts


def test_without_patience_the_first_answer_is_given() -> None:
    found = found_of("attention", 2048, patience=0.0)
    assert found.interrupted
    assert not found.exact
    assert found.after_counts.memory <= 2048
    assert found.after_counts.transfers.values >= found_of("attention", 2048).after_counts.transfers.values


@pytest.mark.parametrize("turn", [1, 2, 4])
def test_an_interrupt_gives_the_best_so_far(turn: int) -> None:
    calls: list[str] = []

    def watch(what: str) -> None:
        calls.append(what)
        if len(calls) == turn:
            raise KeyboardInterrupt

    found = found_of("attention", 512, watch=watch)
    assert found.interrupted
    assert not found.exact
    assert len(calls) == turn
    assert found.after_counts.transfers.values <= found.before_counts.transfers.values


def test_what_is_reported_is_what_is_counted() -> None:
    for name in NAMES:
        found = found_of(name, 4096)
        for c in (found.before_counts, found.after_counts):
            assert c.transfers.values == sum(
                count_region(p.program, p.tiles, p.setting, p.buffers).transfers.values for p in c.placed
            )
            assert c.memory <= 4096
