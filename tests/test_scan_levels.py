"""Scans in levelled diagrams: counts by hand and by brute force, execution in counted memory, search, refusals."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ioweave.derive.bounds.lower import bound
from ioweave.derive.counting.levelled import Counts, count
from ioweave.derive.execution.check import check
from ioweave.derive.search.derive import derive
from ioweave.diagrams.errors import Refused
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.machines import load_machine
from ioweave.hierarchy.notation import parse_levelled

LINEAR = "t, d, e = 10, 3, 4\na[t]: fp32\nq[t, d]: fp32\nk[t, d]: fp32\nv[t, e]: fp32\n"
SCAN = "    A[t, d, e] = scan[t](a[t] * A[t - 1, d, e] + k[t, d] * v[t, e], start=0)\n"
BACK = "    A[t, d, e] = scan[t, reversed=True](a[t] * A[t + 1, d, e] + k[t, d] * v[t, e], start=0)\n"
READ = "    O[t, e] = sum[d](q[t, d] * A[t, d, e])\n"
DELTA = (
    "t, d, e = 10, 3, 4\nf = d\nb[t]: fp32\nq[t, d]: fp32\nk[t, d]: fp32\nv[t, e]: fp32\nH[d, e]: fp32\n"
    "with level('smem', %s):\n"
    "    S[t, d, e] = scan[t](S[t - 1, d, e] - b[t] * k[t, d] * sum[f](k[t, f] * S[t - 1, f, e])"
    " + b[t] * k[t, d] * v[t, e], start=%s)\n"
    "    O[t, e] = sum[d](q[t, d] * S[t, d, e])\n"
)


def region(tiles: str, *lines: str, head: str = LINEAR) -> str:
    """A file with one block."""
    return f"{head}with level('smem', {tiles}):\n{''.join(lines)}"


def counted(text: str, draws: int = 3) -> Counts:
    """The counts of a file as it is written, which its execution must give too, there and at drawn sizes."""
    levelled = parse_levelled(text)
    for run in (*check(levelled, {}), *check(levelled, draws=draws, seed=5)):
        assert run.row.passed, (run.row.axes, run.row.tiles, run.row.because)
    return count(levelled, levelled.diagram.values())


def loads(c: Counts) -> dict[str, int]:
    """Values loaded per array."""
    return dict(c.transfers.loads)


# -- by hand


def test_a_step_of_one_element_takes_over_the_state() -> None:
    """Slabs a 1, k 3, v 4, q 3; the state 3 * 4 is the element itself; O 4: 27 values of 4 bytes."""
    c = counted(region("stream={t: 1}", SCAN, READ))
    assert loads(c) == {"a": 10, "k": 30, "v": 40, "q": 30}
    assert c.transfers.stores == {"O": 40}
    assert c.memory == 4 * (1 + 3 + 4 + 3 + 12 + 4)
    assert c.flops.vector == 10 * 3 * 4 * 3 + 10 * 3 * 4 * 2  # a * A, k * v, their sum; q * A, its sum
    assert (c.flops.mma, c.flops.special) == (0, 0)


def test_a_longer_step_has_its_elements_beside_the_state() -> None:
    """Groups of 3 over e, steps of 4: slabs a 4, k 12, v 12, q 12; state 3 * 3; elements 4 * 3 * 3; O 4 * 3."""
    c = counted(region("group={e: 3}, stream={t: 4}", SCAN, READ))
    assert loads(c) == {"a": 2 * 10, "k": 2 * 30, "v": 40, "q": 2 * 30}
    assert c.memory == 4 * (4 + 12 + 12 + 12 + 9 + 36 + 12)
    assert c.flops.vector == 10 * 3 * 4 * 5


def test_a_whole_axis_needs_no_state() -> None:
    """All slabs, the array 10 * 3 * 4 and O 10 * 4 at once; no value is held before the first element."""
    c = counted(LINEAR + SCAN.strip() + "\n" + READ.strip() + "\n")
    assert c.memory == 4 * max(10 + 30 + 40 + 120, 120 + 30 + 40)  # each line is a region by itself
    fused = counted(region("group={e: 4}", SCAN, READ))
    assert fused.memory == 4 * (10 + 30 + 40 + 30 + 120 + 40)


def test_a_look_at_the_element_before_keeps_both() -> None:
    """Steps of 1: slabs 1, 3, 4, 3; the state 12 is still read when the element of 12 is made; B 12."""
    line = "    B[t, d, e] = where(t > 0, A[t - 1, d, e], 0) * q[t, d] + A[t, d, e]\n"
    c = counted(region("stream={t: 1}", SCAN, line))
    assert c.memory == 4 * (1 + 3 + 4 + 3 + 12 + 12 + 12)
    assert c.flops.vector == 120 * 3 + 120 * 3  # where, product, sum: of tiles that run, whole


def test_a_delta_rule_goes_element_by_element() -> None:
    """Steps of 4 of t, groups of 3 of e; the inner sum holds one element of t: 3 values, whatever the step."""
    c = counted(DELTA % ("group={e: 3}, stream={t: 4}", "H[d, e]"))
    assert loads(c) == {"H": 12, "k": 60, "b": 20, "v": 40, "q": 60}
    # at O: H 3 * 3, k 4 * 3, b 4, v 4 * 3, q 4 * 3, the state 3 * 3, S 4 * 3 * 3, O 4 * 3
    assert c.memory == 4 * (9 + 12 + 4 + 12 + 12 + 9 + 36 + 12)
    alone = "\n".join(line for line in (DELTA % ("stream={t: 4}", "H[d, e]")).splitlines() if "q[" not in line)
    # at S.sum: H 3 * 4, k 4 * 3, b 4, v 4 * 4, S.sum 4, the state 3 * 4, S 4 * 3 * 4
    assert counted(alone).memory == 4 * (12 + 12 + 4 + 16 + 4 + 12 + 48)
    # S.sum 2 for each (t, f, e); S: b * k, its product with S.sum, the difference, b * k, * v, the sum; O 2
    assert c.flops.vector == 120 * 2 + 120 * 6 + 120 * 2
    assert c.flops.mma == 0


def test_a_start_is_loaded_once_per_instance_and_its_arithmetic_counted() -> None:
    """2 * H[d, e] for 12 elements before the loop over t."""
    c = counted(DELTA % ("stream={t: 2}", "2 * H[d, e]"))
    assert loads(c)["H"] == 12
    assert c.flops.vector == 120 * 10 + 12
    whole = counted(DELTA % ("group={e: 3}", "2 * H[d, e]"))
    assert whole.flops.vector == c.flops.vector
    inner = counted(DELTA % ("stream={t: 3, e: 2}", "2 * H[d, e]"))
    assert loads(inner)["H"] == 12  # before the loop over t, so whole


def test_a_finished_reduction_makes_a_scan_run_again() -> None:
    """R needs all of t, so O takes a second pass that makes A again: 2 * 120 elements of 3 operations."""
    text = region(
        "stream={t: 3}", SCAN, "    R[d, e] = max[t](abs(A[t, d, e]))\n    O[t, d, e] = A[t, d, e] / R[d, e]\n"
    )
    c = counted(text.replace("q[t, d]: fp32\n", ""))
    assert loads(c) == {"a": 20, "k": 60, "v": 80}
    assert c.flops.vector == 2 * 120 * 3 + 120 * 2
    assert c.flops.special == 120
    assert c.regions[0].passes == 2


def test_masked_tiles_of_a_forward_scan_end_where_its_readers_do() -> None:
    """O needs A up to t = 3 alone: forwards two tiles of 2 are made, backwards all five."""
    line = "    O[t, e] = sum[d](where(t < 4, q[t, d] * A[t, d, e], 0))\n"
    assert loads(counted(region("stream={t: 2}", SCAN, line))) == {"a": 4, "k": 12, "v": 16, "q": 12}
    assert loads(counted(region("stream={t: 2}", BACK, line))) == {"a": 10, "k": 30, "v": 40, "q": 12}


def test_a_scan_that_forgets_wants_nothing_from_before() -> None:
    """From t = 6 on A depends on what came before; at 6 it starts from the tile 4, 5, which needs none before it."""
    scan = (
        "    A[t, d, e] = scan[t](where(t >= 6, a[t] * A[t - 1, d, e], 0) + k[t, d] * v[t, e], start=0)\n"
        "    O[t, e] = sum[d](where(t >= 8, q[t, d] * A[t, d, e], 0))\n"
    )
    c = counted(region("stream={t: 2}", scan))
    assert loads(c) == {"a": 4, "k": 18, "v": 24, "q": 6}  # a in tiles 6, 7 and 8, 9; k and v in 4, 5 too


def test_narrow_values_are_carried_in_fp32() -> None:
    """x in fp16, 4 by 2 of it; the state 2 and the elements 8 in fp32; the result is stored in fp16."""
    text = "t, d = 8, 2\nx[t, d]: fp16\nwith level('smem', stream={t: 4}):\n    C[t, d] = cumsum[t](x[t, d])\n"
    c = counted(text)
    assert c.memory == 2 * 8 + 4 * (2 + 8)
    assert c.transfers.bytes == 2 * (16 + 16)
    levelled = parse_levelled(text)
    assert count(levelled, levelled.diagram.values(), "same").memory == 2 * (8 + 2 + 8)


# -- by brute force


@dataclass(frozen=True)
class Draft:
    """A levelled file with one scan: sizes, tiles, what reads it."""

    n: int
    d: int
    e: int
    group: int
    step: int | None
    backward: bool
    start: bool
    stores: bool
    rows: bool
    total: bool
    before: bool
    narrow: bool

    @property
    def text(self) -> str:
        """The file."""
        kind = "fp16" if self.narrow else "fp32"
        shift, option = ("+", ", reversed=True") if self.backward else ("-", "")
        guard = "t + 1 < size(t)" if self.backward else "t > 0"
        tiles = [f"group={{e: {self.group}}}"] + ([f"stream={{t: {self.step}}}"] if self.step else [])
        lines = [f"t, d, e = {self.n}, {self.d}, {self.e}", f"a[t]: {kind}", f"k[t, d]: {kind}", f"v[t, e]: {kind}"]
        lines += [f"H[d, e]: {kind}"] if self.start else []
        lines += [f"q[t, d]: {kind}"] if self.rows else []
        lines += [f"w[t]: {kind}"] if self.total else []
        lines += [f"with level('smem', {', '.join(tiles)}):"]
        start = "H[d, e]" if self.start else "0"
        lines += [f"    A[t, d, e] = scan[t{option}](a[t] * A[t {shift} 1, d, e] + k[t, d] * v[t, e], start={start})"]
        lines += ["    O[t, e] = sum[d](q[t, d] * A[t, d, e])"] if self.rows else []
        lines += ["    R[d, e] = sum[t](w[t] * A[t, d, e])"] if self.total else []
        lines += [f"    B[t, d, e] = where({guard}, A[t {shift} 1, d, e], 0) + A[t, d, e]"] if self.before else []
        outs = (("A", self.stores), ("O", self.rows), ("R", self.total), ("B", self.before))
        return "\n".join([*lines, *(f"out({name})" for name, is_out in outs if is_out)]) + "\n"


@dataclass
class Brute:
    """What a walk over every instance, trip and element finds."""

    loads: dict[str, int]
    stores: dict[str, int]
    memory: int
    vector: int


def brute(x: Draft) -> Brute:
    """The counts of a draft, walked tile by tile by the rules alone."""
    narrow, wide = (2, 4) if x.narrow else (4, 4)
    found: dict[str, int] = {}
    peak = vector = 0

    def load(name: str, values: int) -> int:
        found[name] = found.get(name, 0) + values
        return narrow * values

    for low in range(0, x.e, x.group):
        g = min(low + x.group, x.e) - low
        step = x.step or x.n
        head = load("H", x.d * g) if x.start else 0
        trips = [min(lo + step, x.n) - lo for lo in range(0, x.n, step)]
        for s in reversed(trips) if x.backward else trips:
            slabs = head + load("a", s) + load("k", s * x.d) + load("v", s * g)
            slabs += load("q", s * x.d) if x.rows else 0
            slabs += load("w", s) if x.total else 0
            state = wide * x.d * g if x.step else 0
            running = wide * x.d * g if x.total and x.step else 0
            taken = step == 1 and x.step is not None and not x.before
            tile = 0 if taken else wide * s * x.d * g
            kept = slabs + state + running  # live in every column of the trip
            peak = max(peak, kept + tile)
            vector += 3 * s * x.d * g
            live = 0  # results of the trip that leave it
            if x.rows:
                live += wide * s * g
                vector += 2 * s * x.d * g
                peak = max(peak, kept + tile + live)
            if x.total:
                vector += 2 * s * x.d * g
                live += 0 if x.step else wide * x.d * g
                peak = max(peak, kept + tile + live)
            if x.before:
                vector += 2 * s * x.d * g
                live += wide * s * x.d * g
                peak = max(peak, kept + tile + live)
    whole = x.n * x.d * x.e
    outs = {"A": (x.stores, whole), "O": (x.rows, x.n * x.e), "R": (x.total, x.d * x.e), "B": (x.before, whole)}
    return Brute(found, {name: n for name, (is_out, n) in outs.items() if is_out}, peak, vector)


def drafts() -> st.SearchStrategy[Draft]:
    """Drafts of small sizes in which something reads or stores the scan."""
    flag = st.booleans()
    some = st.tuples(flag, flag, flag, flag).filter(any)
    size = st.integers(2, 6)
    sizes = st.tuples(st.integers(2, 9), size, size, st.integers(1, 6), st.none() | st.integers(1, 9))

    def made(sizes: tuple[int, int, int, int, int | None], ways: tuple[bool, ...], outs: tuple[bool, ...]) -> Draft:
        n, d, e, group, step = sizes
        backward, start, narrow = ways
        stores, rows, total, before = outs
        step = None if step is None else min(step, n)
        return Draft(n, d, e, min(group, e), step, backward, start, stores, rows, total, before, narrow)

    return st.builds(made, sizes, st.tuples(flag, flag, flag), some)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(drafts())
def test_counts_are_those_of_a_walk_over_every_tile(draft: Draft) -> None:
    levelled = parse_levelled(draft.text)
    run = check(levelled, {})[0].row
    assert run.passed, (draft.text, run.because)
    c = count(levelled, levelled.diagram.values())
    b = brute(draft)
    assert (loads(c), dict(c.transfers.stores)) == (b.loads, b.stores), draft.text
    assert c.memory == b.memory, draft.text
    assert c.flops.vector == b.vector, draft.text


# -- masks, against execution


@st.composite
def masked(draw: st.DrawFn) -> str:
    """A file whose scan, or what reads it, is masked along t, or looks at the element before alone."""
    n, step, m = draw(st.integers(2, 11)), draw(st.none() | st.integers(1, 5)), draw(st.integers(0, 10))
    backward, other = draw(st.booleans()), draw(st.integers(0, 10))
    sign = "+" if backward else "-"
    guard = "t + 1 < size(t)" if backward else "t > 0"
    own = f"A[t {sign} 1, d]"
    bodies = [
        f"a[t] * {own} + where(t >= {m}, k[t, d], 0)",
        f"where(t >= {m}, a[t] * {own}, 0) + where(t < {other}, k[t, d], 0)",
        f"where(t // 3 == {m % 4}, 0, a[t] * {own} + k[t, d])",
        f"where(t < {m}, {own}, k[t, d])",
    ]
    readers = [
        f"sum[d](where(t < {other}, q[t, d] * A[t, d], 0))",
        f"sum[d](where(t >= {other}, q[t, d] * A[t, d], 0))",
        f"sum[d](q[t, d] * where({guard}, {own}, 0))",
        f"sum[d](q[t, d] * where(({guard}) & (t < {other}), {own}, 0))",
        "sum[d](q[t, d] * A[t, d])",
    ]
    body = draw(st.sampled_from(bodies))
    option = ", reversed=True" if backward else ""
    tiles = [f"stream={{t: {step}}}"] if step else ["stream={d: 1}"]
    return (
        f"t, d = {n}, 3\na[t]: fp32\nk[t, d]: fp32\nq[t, d]: fp32\nH[d]: fp32\n"
        f"with level('smem', {', '.join(tiles)}):\n"
        f"    A[t, d] = scan[t{option}]({body}, start=H[d])\n    O[t] = {draw(st.sampled_from(readers))}\n"
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(masked())
@example(
    "t, d = 2, 3\na[t]: fp32\nk[t, d]: fp32\nq[t, d]: fp32\nH[d]: fp32\nwith level('smem', stream={t: 2}):\n"
    "    A[t, d] = scan[t](where(t >= 2, a[t] * A[t - 1, d], 0) + where(t < 0, k[t, d], 0), start=H[d])\n"
    "    O[t] = sum[d](q[t, d] * where(t > 0, A[t - 1, d], 0))\n"
)
def test_masked_scans_move_what_their_execution_moves(text: str) -> None:
    run = check(parse_levelled(text), {})[0].row
    assert run.passed, (text, run.because)


# -- what is refused


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (region("group={t: 4}", SCAN, READ), "scan along t is sequential"),
        (
            region("stream={t: 4}", SCAN, "    O[t, e] = sum[d](where(t > 1, A[t - 2, d, e], 0) * q[t, d])\n"),
            "keeps no others",
        ),
        (
            region("stream={t: 4}", SCAN, "    O[t, e] = sum[d](where(t < 9, A[t + 1, d, e], 0) * q[t, d])\n"),
            "keeps no others",
        ),
        (
            region(
                "stream={t: 4}",
                SCAN,
                "    B[t, d, e] = scan[t, reversed=True](B[t + 1, d, e] + q[t, d] * A[t, d, e], start=0)\n",
            ),
            "a loop has one direction",
        ),
        (DELTA % ("group={d: 2}", "H[d, e]"), "leave d whole"),
        (DELTA % ("stream={f: 2}", "H[d, e]"), "leave f whole"),
        (
            "j, e = 6, 2\nt = j\nV[j, e]: fp32\nW[j, t]: fp32\nwith level('smem', stream={j: 2}):\n"
            "    U[j, e] = scan[j](V[j, e] - sum[t](where(t < j, W[j, t] * U[t, e], 0)), start=0)\n",
            "all of its earlier elements",
        ),
    ],
)
def test_tiles_that_cut_what_a_scan_needs_are_refused(text: str, why: str) -> None:
    levelled = parse_levelled(text)
    with pytest.raises(Refused, match=why):
        count(levelled, levelled.diagram.values())


def test_a_scan_that_reads_all_of_its_past_runs_where_its_axis_is_whole() -> None:
    """W 6 * 6 once per instance of e, V 6 for each; U.sum 3 for each of 36 pairs: where, product, sum; U 1."""
    c = counted(
        "j, e = 6, 2\nt = j\nV[j, e]: fp32\nW[j, t]: fp32\nwith level('smem', group={e: 1}):\n"
        "    U[j, e] = scan[j](V[j, e] - sum[t](where(t < j, W[j, t] * U[t, e], 0)), start=0)\n"
    )
    assert loads(c) == {"V": 12, "W": 72}
    assert c.flops.vector == 2 * (36 * 3 + 6)
    assert c.memory == 4 * (6 + 36 + 1 + 6)  # the inner sum is one element


# -- search

HEAD = "t, d, e = %d, %d, %d\nq[t, d]: fp16\nk[t, d]: fp16\nv[t, e]: fp16\n"
ATTENTIONS = {
    "linear": "A[t, d, e] = scan[t](A[t - 1, d, e] + k[t, d] * v[t, e], start=0)\n",
    "retention": "g = 0.97\nA[t, d, e] = scan[t](g * A[t - 1, d, e] + k[t, d] * v[t, e], start=0)\n",
    "gated": "a[t, d]: fp32\nA[t, d, e] = scan[t](a[t, d] * A[t - 1, d, e] + k[t, d] * v[t, e], start=0)\n",
    "delta": "f = d\nb[t]: fp32\nA[t, d, e] = scan[t](A[t - 1, d, e]"
    " - b[t] * k[t, d] * sum[f](k[t, f] * A[t - 1, f, e]) + b[t] * k[t, d] * v[t, e], start=0)\n",
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_states_of_linear_attention_never_leave(name: str) -> None:
    """After: every input once and the output once. Before: the states, t * d * e of them, go out and come back."""
    diagram = parse(HEAD % (1024, 64, 64) + ATTENTIONS[name] + "O[t, e] = sum[d](q[t, d] * A[t, d, e])\n")
    found = derive(diagram, diagram.values(), load_machine("h100"))
    extra = {"gated": 1024 * 64, "delta": 1024}.get(name, 0)
    assert found.after_counts.transfers.values == 4 * 1024 * 64 + extra
    assert found.before_counts.transfers.values == found.after_counts.transfers.values + 2 * 1024 * 64 * 64
    least = bound(open_diagram(diagram), diagram.values(), 227 * 1024)
    assert least.values == found.after_counts.transfers.values
    assert found.exact
    (streamed,) = [step for step in found.steps if step.step == "stream"]
    assert streamed.axis == "t"
    assert "forwards" in streamed.because
    assert "the last A (from 0)" in streamed.because
    assert all(run.row.passed for run in check(found.after, draws=4))


def test_a_plain_recurrence_that_does_not_fit_is_streamed() -> None:
    """h[t] = tanh(a h[t - 1] + x[t]): 2 t + 1 values move; one element at a time fits in a few bytes."""
    diagram = parse("t = 4096\na[1]: fp32\nx[t]: fp32\nh[t] = scan[t](tanh(a[0] * h[t - 1] + x[t]), start=0)\n")
    found = derive(diagram, diagram.values(), load_machine("h100"), capacity=64)
    assert found.after_counts.transfers.values == 2 * 4096 + 1
    (only,) = found.after.regions
    assert dict(only.stream) == {"t": 1}
    assert found.after_counts.memory == 4 * 3  # a, x and h
    assert found.after_counts.flops.special == 4096


SMALL = "t, d, e = 4, 2, 2\na[t]: fp32\nq[t, d]: fp32\nk[t, d]: fp32\nv[t, e]: fp32\n"


@pytest.mark.parametrize("backward", [False, True])
def test_the_search_finds_the_best_of_all_schedules(backward: bool) -> None:
    """Every set of loops and groups with every tile, fused or not, counted one by one."""
    scan = BACK if backward else SCAN
    fused = schedules((scan, READ), ("d",))
    first, second = schedules((scan,), ()), schedules((READ,), ("d",))
    diagram = parse(SMALL + scan.strip() + "\n" + READ.strip() + "\n")
    for capacity in (48, 64, 88, 120, 200):
        found = derive(diagram, diagram.values(), load_machine("h100"), capacity=capacity)
        assert found.exact
        best = min(least(fused, capacity), least(first, capacity) + least(second, capacity))
        assert found.after_counts.transfers.values == best
        assert found.after_counts.memory <= capacity


def least(found: list[tuple[int, int]], capacity: int) -> float:
    """The fewest values that move within a capacity."""
    return min((values for values, memory in found if memory <= capacity), default=float("inf"))


def schedules(lines: tuple[str, ...], reduced: tuple[str, ...]) -> list[tuple[int, int]]:
    """The values moved and the memory of one region of these lines, for each of its tilings."""
    sizes = {"t": 4, "d": 2, "e": 2}
    body = "".join(lines)
    made = body.split("[")[0].strip()
    arrays = ("a[t]", "q[t, d]", "k[t, d]", "v[t, e]", *(() if made == "A" else ("A[t, d, e]",)))
    head = "t, d, e = 4, 2, 2\n" + "".join(f"{a}: fp32\n" for a in arrays if a in body)
    found = []
    for kinds in itertools.product("wgs", repeat=3):
        chosen = dict(zip(sizes, kinds, strict=True))
        grouped = [a for a in sizes if chosen[a] == "g"]
        if any(a in reduced for a in grouped):
            continue
        for order in itertools.permutations(a for a in sizes if chosen[a] == "s"):
            for tiles in itertools.product(*(range(1, sizes[a] + 1) for a in (*grouped, *order))):
                pairs = [f"{a}: {n}" for a, n in zip((*grouped, *order), tiles, strict=True)]
                n = len(grouped)
                block = f"group={{{', '.join(pairs[:n])}}}, stream={{{', '.join(pairs[n:])}}}"
                levelled = parse_levelled(f"{head}with level('smem', {block}):\n{body}")
                try:
                    c = count(levelled, levelled.diagram.values())
                except Refused:
                    continue
                found.append((c.transfers.values, c.memory))
    return found
