"""Machines: the numbers of the shipped files, errors in written ones, and the estimate of time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ioweave.diagrams.errors import WeaveError
from ioweave.hierarchy.counts import Flops
from ioweave.hierarchy.machines import (
    Machine,
    load_machine,
    machine_names,
    parse_capacity_option,
    parse_levels_option,
    read_machine,
    with_capacity,
)
from ioweave.hierarchy.quantities import Bytes, BytesPerSecond, FlopsPerSecond
from ioweave.hierarchy.time import estimate_time

GOOD = """
name = "toy"
[[level]]
name = "gmem"
[[level]]
name = "smem"
capacity = "1 KiB"
instances = 4
bandwidth = "2 KB/s"
[peak.mma]
fp16 = "100 FLOP/s"
[peak.vector]
fp32 = "10 FLOP/s"
[peak.special]
fp32 = "1 FLOP/s"
"""


@pytest.fixture
def h100() -> Machine:
    return load_machine("h100")


def test_the_shipped_machines_load() -> None:
    assert machine_names() == ("a100", "h100")
    for name in machine_names():
        machine = load_machine(name)
        assert machine.name == name
        assert machine.level_names == ("gmem", "l2", "smem", "reg")


@pytest.mark.parametrize(
    "name, smem, instances, bandwidth, fp16, special",
    [("h100", 227, 132, 3.35e12, 989e12, 16 * 132 * 1.83e9), ("a100", 163, 108, 1.555e12, 312e12, 16 * 108 * 1.41e9)],
)
def test_published_numbers(name: str, smem: int, instances: int, bandwidth: float, fp16: float, special: float) -> None:
    machine = load_machine(name)
    level = machine.level("smem")
    assert (level.capacity, level.instances) == (Bytes(smem * 1024), instances)
    assert machine.bandwidth("gmem", "smem") == BytesPerSecond(bandwidth)
    assert machine.peak("mma", "fp16") == FlopsPerSecond(fp16)
    assert machine.peak("special", "fp32").value == pytest.approx(special, rel=1e-3)


def test_the_least_inner_size_of_a_matmul_that_is_not_bound_by_bandwidth(h100: Machine) -> None:
    # b_min = K/(2H) for fp16 values: 295 on an H100 (arXiv 2412.03317, section 4), 201 on an A100
    def b_min(machine: Machine) -> float:
        values_a_second = machine.bandwidth("gmem", "smem").value / 2
        return machine.peak("mma", "fp16").value / (2 * values_a_second)

    assert b_min(h100) == pytest.approx(295.2, rel=1e-3)
    assert b_min(load_machine("a100")) == pytest.approx(200.6, rel=1e-3)


def test_a_dtype_without_a_rate_runs_as_a_wider_one(h100: Machine) -> None:
    assert h100.peak("mma", "fp4") == h100.peak("mma", "fp8")
    assert h100.peak("special", "fp16") == h100.peak("special", "fp32")
    assert h100.peak("vector", "bf16") == h100.peak("vector", "fp16")
    assert h100.peak("special", "fp64") == h100.peak("special", "fp32")


def test_a_capacity_replaced(h100: Machine) -> None:
    smaller = with_capacity(h100, parse_capacity_option("smem=128KiB, l2=1MB", h100))
    assert smaller.level("smem").capacity == Bytes(131072)
    assert smaller.level("l2").capacity == Bytes(1_000_000)
    assert h100.level("smem").capacity == Bytes(227 * 1024)


@pytest.mark.parametrize(
    "text, said",
    [
        ("smem=12", "write 12KiB or 12B"),
        ("smm=12KiB", "did you mean `smem`?"),
        ("128KiB", "as smem=128KiB"),
        ("smem=", "not a number"),
        ("smem=1KiB,smem=2KiB", "given twice"),
        ("smem=0B", "more than zero"),
        ("", "as smem=128KiB"),
    ],
)
def test_capacities_refused(h100: Machine, text: str, said: str) -> None:
    with pytest.raises(WeaveError) as caught:
        parse_capacity_option(text, h100)
    assert said in str(caught.value)


def test_levels(h100: Machine) -> None:
    assert parse_levels_option("gmem, smem", h100) == ("gmem", "smem")
    for text, said in [
        ("smem,gmem", "gmem,smem in place of"),
        ("gmem,gmem", "each once"),
        ("gmem", "two levels or more"),
        ("gmem,sram", "has no level `sram`"),
    ]:
        with pytest.raises(WeaveError) as caught:
            parse_levels_option(text, h100)
        assert said in str(caught.value)
    with pytest.raises(WeaveError, match="not below"):
        h100.bandwidth("smem", "gmem")


def test_a_machine_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(GOOD)
    machine = load_machine(str(path))
    assert (machine.name, machine.title) == ("toy", "toy")
    assert machine.level("gmem").capacity is None
    assert machine.to_json()["levels"][1] == {"name": "smem", "capacity": 1024, "instances": 4, "bandwidth": 2000.0}


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('bandwidth = "2 KB/s"', 'bandwidth = "0 KB/s"', "toy.toml: level[1].bandwidth must be more than zero"),
        ('bandwidth = "2 KB/s"', 'bandwidth = "2 KB"', "toy.toml: level[1].bandwidth has an unknown unit"),
        ('bandwidth = "2 KB/s"', "bandwidth = 2", "must be a text with its unit"),
        ('bandwidth = "2 KB/s"', "", "has no bandwidth to gmem; add one"),
        ('bandwidth = "2 KB/s"', 'bandwith = "2 KB/s"', "unknown key `bandwith` (did you mean `bandwidth`?)"),
        ('capacity = "1 KiB"', "", "has no capacity; add one"),
        ('capacity = "1 KiB"', 'capacity = "1024"', "write 1024KiB or 1024B"),
        ('name = "gmem"', 'name = "gmem"\ncapacity = "3 KiB"', "holds more than gmem in all"),
        ('name = "gmem"', 'name = "gmem"\nbandwidth = "1 B/s"', "leave its bandwidth out"),
        ('name = "gmem"', 'name = "smem"', "has the name of a level above"),
        ('name = "gmem"', 'name = "gmem"\ninstances = 3', "equally many"),
        ("instances = 4", "instances = 0", "whole number from 1"),
        ("instances = 4", "instances = true", "whole number from 1"),
        ('name = "toy"', "", "the key 'name' is missing"),
        ('name = "toy"', "name = 4", "name must be a text"),
        ('fp16 = "100 FLOP/s"', "", "peak.mma needs a rate"),
        ('fp16 = "100 FLOP/s"', 'fp17 = "100 FLOP/s"', "unknown dtype `fp17` (did you mean `fp16`?)"),
        ('fp16 = "100 FLOP/s"', 'fp16 = "100 B/s"', "peak.mma.fp16 has an unknown unit"),
        ("[peak.special]", "[peak.specials]", "unknown key `specials` (did you mean `special`?)"),
        ('[peak.special]\nfp32 = "1 FLOP/s"', "", "peak: the key 'special' is missing"),
        ("[[level]]", "[level]", "not TOML"),
    ],
)
def test_files_refused(old: str, new: str, said: str) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(WeaveError) as caught:
        read_machine(text, "toy.toml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("toy.toml: ")
    assert "\n" not in str(caught.value)


def test_other_shapes_refused() -> None:
    for text, said in [
        ('name = "a"\nlevel = 3\npeak = 4', "array of tables"),
        ('name = "a"\nlevel = []\npeak = 4', "two levels or more"),
        (GOOD[: GOOD.index("[peak.mma]")].replace('name = "toy"', 'name = "toy"\npeak = 4'), "must be tables"),
    ]:
        with pytest.raises(WeaveError) as caught:
            read_machine(text, "m.toml")
        assert said in str(caught.value)


def test_paths_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, said in [
        ("h1000", "unknown machine `h1000` (did you mean `h100`?)"),
        ("h1000.toml", "cannot read the machine file h1000.toml"),
        (str(tmp_path), "unknown machine" if len(tmp_path.parts) < 2 else "cannot read the machine file"),
        (str(binary), "is not a text file"),
        ("", "unknown machine ``"),
    ]:
        with pytest.raises(WeaveError) as caught:
            load_machine(path)
        assert said in str(caught.value)


def test_time_is_that_of_the_slowest() -> None:
    toy = read_machine(GOOD, "toy.toml")
    time = estimate_time(toy, Bytes(20_000), Bytes(2_000), Flops(200, 30, 1))
    assert time.to_json() == {
        "total": 10.0,
        "least": 3.0,
        "compute": {"mma": 2.0, "vector": 3.0, "special": 1.0},
        "transfer": {"smem": 10.0},
        "bound_by": "smem",
    }
    assert estimate_time(toy, Bytes(2_000), Bytes(2_000), Flops(mma=200)).bound_by == "mma"
    assert estimate_time(toy, Bytes(2_000), Bytes(2_000), Flops()).bound_by == "smem"


def test_the_least_time_never_exceeds_the_estimate() -> None:
    # a masked algorithm may move fewer bytes than its inputs hold
    time = estimate_time(read_machine(GOOD, "toy.toml"), Bytes(1_000), Bytes(2_000), Flops())
    assert time.least == time.total
