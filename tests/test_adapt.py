"""The napkin formula of counted regions: closed forms for every algorithm of the catalogue, in the right unit of M."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import pytest

from ioweave.derive.bounds.adapt import napkin_of
from ioweave.derive.bounds.napkin import Napkin
from ioweave.derive.counting.levelled import Counts, count
from ioweave.diagrams.library import catalogue_text
from ioweave.hierarchy.notation import parse_levelled

CAPACITY = 128 * 1024

# Lines of each region and its options, as in a levelled file.
REGIONS: dict[str, tuple[tuple[int, str], ...]] = {
    "attention": ((3, "group={q: 128}, stream={x: 64}"),),
    "causal_attention": ((3, "group={q: 128}, stream={x: 64}"),),
    "column_sums": (
        (1, "group={q: 128, x: 128}, stream={d: 1}"),
        (1, "group={q: 4}"),
        (1, "group={x: 64}, stream={q: 8}"),
    ),
    "convolution": ((1, "group={b: 1, y: 8, x: 8, o: 64}, stream={r: 1, s: 1, c: 16}"),),
    "cross_entropy": ((2, "group={t: 128}, stream={v: 128, m: 1}"),),
    "gpt3_block": (
        (1, "group={q: 128, h: 1, d: 128}, stream={m: 8}"),
        (1, "group={x: 128, h: 1, d: 128}, stream={m: 8}"),
        (1, "group={x: 128, h: 1, d: 128}, stream={m: 8}"),
        (3, "group={h: 1, q: 128}, stream={x: 8}"),
        (1, "group={q: 128, m: 128}, stream={h: 1}"),
        (1, "group={q: 128, f: 128}, stream={m: 1}"),
        (1, "group={q: 128, m: 128}, stream={f: 1}"),
    ),
    "grouped_query_attention": ((3, "group={k: 1, g: 4, q: 128}, stream={x: 8}"),),
    "layernorm": ((3, "group={t: 4}"),),
    "matmul": ((1, "group={a: 128, c: 128}, stream={b: 1}"),),
    "matmul_chain": ((1, "group={t: 128, f: 128}, stream={i: 1}"), (1, "group={t: 128, o: 128}, stream={f: 1}")),
    "multi_head_attention": ((3, "group={h: 1, q: 128}, stream={x: 8}"),),
    "rmsnorm_matmul": ((3, "group={t: 128, n: 128}, stream={m: 1}"),),
    "spherical_attention": ((3, "group={q: 128}, stream={x: 64}"),),
    "swiglu_mlp": ((3, "group={t: 128, f: 64}, stream={m: 1}"), (1, "group={t: 128, m: 128}, stream={f: 1}")),
}


def levelled_text(name: str, regions: tuple[tuple[int, str], ...]) -> str:
    head: list[str] = []
    lines: list[str] = []
    for line in catalogue_text(name).splitlines():
        (lines if "=" in line and "[" in line.split("=")[0] else head).append(line)
    for number, options in regions:
        head.append(f'with level("smem", {options}):')
        head += ["    " + line for line in lines[:number]]
        lines = lines[number:]
    assert not lines
    return "\n".join(head) + "\n"


def counted(name: str, accumulate: str, regions: tuple[tuple[int, str], ...] | None = None, **sizes: int) -> Counts:
    levelled = parse_levelled(levelled_text(name, regions or REGIONS[name]), overrides=sizes)
    return count(levelled, levelled.diagram.values(sizes), accumulate)


def found(name: str, accumulate: str = "same", capacity: int = CAPACITY, **sizes: int) -> Napkin:
    counts = counted(name, accumulate, None, **sizes)
    result = napkin_of(counts, counts.placed[0].setting.constants, capacity)
    assert result is not None
    return result


def holds(where: str, values: Mapping[str, float]) -> bool:
    return bool(eval(where, {"sqrt": math.sqrt}, dict(values)))


def test_attention() -> None:
    n = found("attention")
    assert (n.formula, n.pretty) == ("2*q*d + 4*q*x*d**2/M", "2qd + 4qxd²/M")
    assert n.exponents == {"2*q*d": 0.0, "4*q*x*d**2/M": 1.0}
    assert n.holds_where == "M >= 2*d and q >= M/(2*d) and x >= M/(2*d)"
    assert n.memory_unit == "values"
    assert n.values == 2 * 4096 * 64 + 4 * 4096**2 * 64**2 / 65536
    assert n.worth_of_a_byte["smem"] == pytest.approx(-4 * 4096**2 * 64**2 / 65536**2, rel=1e-6)


def test_accumulators_in_fp32_put_memory_in_bytes() -> None:
    n = found("attention", "fp32")
    assert n.formula == "2*q*d + 12*q*x*d**2/M"  # a row of Q takes 2d bytes, one of o 4d
    assert n.memory_unit == "bytes"
    assert n.to_json()["memory_unit"] == "bytes"
    assert n.values == 2 * 4096 * 64 + 12 * 4096**2 * 64**2 / CAPACITY
    assert n.worth_of_a_byte["smem"] == pytest.approx(-2 * 12 * 4096**2 * 64**2 / CAPACITY**2, rel=1e-6)
    assert found("matmul", "fp32").formula == "4*a*b*c/sqrt(M) + a*c"


def test_matmul() -> None:
    n = found("matmul")
    assert n.formula == "2*a*b*c/sqrt(M) + a*c"
    assert n.exponents == {"2*a*b*c/sqrt(M)": 0.5, "a*c": 0.0}
    assert n.values == 553_648_128


def test_a_mask_is_left_out_and_said() -> None:
    n = found("causal_attention")
    assert n.without_mask
    assert n.to_json()["without_mask"] is True
    assert not found("attention").without_mask


def test_rivals_are_other_regimes() -> None:
    wide = {"q": 4096, "x": 4096, "d": 512}
    apart = ((1, "group={q: 128, x: 128}, stream={d: 1}"), (2, "group={q: 128, d: 128}, stream={x: 1}"))
    fused, other = counted("attention", "same", None, **wide), counted("attention", "same", apart, **wide)
    n = napkin_of(fused, wide, 32 * 1024, rivals=(other,))
    assert n is not None
    assert n.formula == "4*q*x*d/sqrt(M) + q*x + q*d"
    assert "2*q*d + 4*q*x*d**2/M" in [f for f, _ in n.other_regimes]


def test_a_merge_belongs_to_its_region() -> None:
    counts = counted("attention", "same", ((3, "group={q: 128, x: 512}, stream={x: 64}"),))
    n = napkin_of(counts, counts.placed[0].setting.constants, CAPACITY)
    assert n is not None
    assert n.formula == "4*q*d + 4*q*x*d**2/M"  # the whole of x in one part: its state leaves and comes back


def test_nothing_fits() -> None:
    counts = counted("layernorm", "same")
    assert napkin_of(counts, counts.placed[0].setting.constants, 64) is None


@pytest.mark.parametrize("accumulate", ["same", "fp32"])
@pytest.mark.parametrize("name", sorted(REGIONS))
def test_the_catalogue(name: str, accumulate: str) -> None:
    counts = counted(name, accumulate)
    sizes = counts.placed[0].setting.constants
    start = time.process_time()
    n = napkin_of(counts, sizes, CAPACITY)
    assert time.process_time() - start < 2
    if n is None:
        return
    unit = 2 if n.memory_unit == "values" else 1
    assert holds(n.holds_where, {**sizes, "M": CAPACITY / unit})
    assert n.values > 0
    if counts.memory <= CAPACITY and not n.without_mask:  # its tiles are the best, the counted ones are some
        assert n.values <= counts.transfers.values
    assert all(0 <= e <= 1 for e in n.exponents.values())
