"""Quantities: what parses, what is refused with which repair, and that units never mix."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ioweave.diagrams.errors import WeaveError
from ioweave.hierarchy.quantities import (
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Seconds,
    format_bytes,
    format_count,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_flops_rate,
    parse_number,
    parse_size,
)


@pytest.mark.parametrize(
    "text, size",
    [
        ("4096", 4096),
        ("128Ki", 131072),
        ("1Mi", 1048576),
        ("1 Mi", 1048576),
        (" 7 ", 7),
        ("4_096", 4096),
        ("1e3", 1000),
        ("0.5Ki", 512),
        ("1024Gi", 2**40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text, amount",
    [
        ("128KiB", 131072),
        ("227 KiB", 232448),
        ("50MB", 50_000_000),
        ("12B", 12),
        ("1.5KiB", 1536),
        ("80 GB", 80 * 10**9),
        ("64KB", 64_000),
        ("64kB", 64_000),
        ("1TiB", 2**40),
    ],
)
def test_bytes(text: str, amount: int) -> None:
    assert parse_bytes(text) == Bytes(amount)


@pytest.mark.parametrize(
    "text, number", [("1e-5", 1e-5), ("-0.5", -0.5), ("3", 3), ("+7", 7), ("-3", -3), ("4Ki", 4096), ("3.0", 3.0)]
)
def test_constants(text: str, number: float) -> None:
    value = parse_number(text)
    assert value == number
    assert type(value) is type(number)


@pytest.mark.parametrize("text", ["", "eps", "1KiB", "nan", "1e-5 s"])
def test_constants_refused(text: str) -> None:
    with pytest.raises(WeaveError, match="a constant"):
        parse_number(text)


@pytest.mark.parametrize("text, rate", [("3.35 TB/s", 3.35e12), ("900GB/s", 9e11), ("1 GiB/s", 2.0**30)])
def test_bandwidths(text: str, rate: float) -> None:
    assert parse_bandwidth(text) == BytesPerSecond(rate)


@pytest.mark.parametrize("text, rate", [("989 TFLOP/s", 9.89e14), ("3.865TFLOP/s", 3.865e12), ("5 FLOP/s", 5.0)])
def test_rates_of_arithmetic(text: str, rate: float) -> None:
    assert parse_flops_rate(text) == FlopsPerSecond(rate)


@pytest.mark.parametrize(
    "text, said",
    [
        ("128KiB", "would be '128Ki'"),
        ("128K", "write 128Ki"),
        ("12m", "Ki, Mi or Gi"),
        ("0", "more than zero"),
        ("-4", "more than zero"),
        ("4.5", "not a whole number"),
        ("1025Gi", "at most 2**40"),
        ("1e99", "at most 2**40"),
        ("9" * 5000, "at most 2**40"),
        ("", "write it as 4096 or 4Ki"),
        ("many", "not a number"),
        ("nan", "not a number"),
        ("inf", "not a number"),
        ("٣", "not a number"),
        ("1\n2", "suffix"),
    ],
)
def test_sizes_refused(text: str, said: str) -> None:
    with pytest.raises(WeaveError) as caught:
        parse_size(text, "the size of q")
    assert said in str(caught.value)
    assert str(caught.value).startswith("the size of q")


@pytest.mark.parametrize(
    "text, said",
    [
        ("12", "needs a unit: '12'; write 12KiB or 12B"),
        ("128Ki", "write 128KiB"),
        ("50M", "write 50MB"),
        ("0KiB", "more than zero"),
        ("-1KiB", "more than zero"),
        ("0.3B", "whole number of bytes"),
        ("2000TiB", "at most 1024 TiB"),
        ("3 parsec", "write B, KiB"),
        ("12 kib", "write B, KiB"),
        ("KiB", "not a number"),
    ],
)
def test_bytes_refused(text: str, said: str) -> None:
    with pytest.raises(WeaveError, match="a capacity") as caught:
        parse_bytes(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("text, said", [("3.35", "no unit"), ("3.35 TB", "unknown unit"), ("0 TB/s", "more than zero")])
def test_bandwidths_refused(text: str, said: str) -> None:
    with pytest.raises(WeaveError, match="a bandwidth") as caught:
        parse_bandwidth(text)
    assert said in str(caught.value)


def test_a_bandwidth_is_no_rate_of_arithmetic() -> None:
    with pytest.raises(WeaveError, match="989 TFLOP/s"):
        parse_flops_rate("3.35 TB/s")
    with pytest.raises(WeaveError, match=r"3\.35 TB/s"):
        parse_bandwidth("989 TFLOP/s")


@given(st.text(max_size=12))
def test_any_text_parses_or_is_refused_in_one_line(text: str) -> None:
    for parse in (parse_size, parse_number, parse_bytes, parse_bandwidth, parse_flops_rate):
        try:
            parse(text)
        except WeaveError as error:
            assert "\n" not in str(error)


@given(st.integers(1, 2**40))
def test_sizes_and_bytes_keep_every_digit(value: int) -> None:
    assert parse_size(str(value)) == value
    assert parse_bytes(f"{value}B") == Bytes(value)


def test_units_never_mix() -> None:
    mixed: list[tuple[Callable[[Any, Any], Any], Any, Any]] = [
        (operator.truediv, Bytes(1), FlopsPerSecond(1.0)),
        (operator.add, Bytes(1), Seconds(1.0)),
        (operator.add, Seconds(1.0), 1.0),
        (operator.lt, Bytes(1), Seconds(1.0)),
    ]
    for operation, left, right in mixed:
        with pytest.raises(TypeError):
            operation(left, right)
    assert Bytes(1) != Seconds(1)


def test_times_from_amounts_and_rates() -> None:
    assert Bytes(3_350_000) / BytesPerSecond(3.35e12) == Seconds(1e-6)
    assert FlopsPerSecond(5.0).time(10) == Seconds(2.0)
    assert Seconds(1.0) + Seconds(0.5) == Seconds(1.5)


@pytest.mark.parametrize(
    "value, text",
    [(0, "0 B"), (512, "512 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (34_603_008, "33.0 MiB"), (2**20 - 1, "1.0 MiB")],
)
def test_bytes_for_people(value: int, text: str) -> None:
    assert format_bytes(value) == text == str(Bytes(value))


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0 s"),
        (0.0116, "11.6 ms"),
        (11.6, "11.6 s"),
        (9.68e-7, "968 ns"),
        (1.259e-6, "1.26 µs"),
        (0.99999, "1.00 s"),
        (1234.0, "1234 s"),
    ],
)
def test_times_for_people(value: float, text: str) -> None:
    assert format_seconds(value) == text == str(Seconds(value))


@pytest.mark.parametrize(
    "value, text",
    [(0, "0"), (512, "512"), (5_242_880, "5.24 M"), (999_999, "1.00 M"), (989e12, "989 T"), (1234, "1.23 k")],
)
def test_counts_for_people(value: float, text: str) -> None:
    assert format_count(value) == text


def test_quantities_show_their_unit() -> None:
    assert [str(BytesPerSecond(3.35e12)), str(FlopsPerSecond(9.89e14))] == [
        "3.35 TB/s",
        "989 TFLOP/s",
    ]
