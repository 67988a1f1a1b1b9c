"""An index that a size leads out of range says so: what it is divided by is a size, not a forgotten axis."""

from __future__ import annotations

import pytest

from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation import parse

PAGES = "x, p, n = 8, 4, 2\nK[n, p]: fp32\nO[x] = K[%s]\n"


@pytest.mark.parametrize("index", ["x // p, x % p", "x // size(p), x % size(p)", "(x + 1 - 1) // p, (x + p) % p"])
def test_a_divisor_is_a_size(index: str) -> None:
    assert parse(PAGES % index).values()["x"] == 8
    with pytest.raises(WeaveError, match=r"3:10: `K` is read out of range: .* may reach 2, but position 1 has 2 elem"):
        parse(PAGES % index, overrides={"x": 9})
    with pytest.raises(WeaveError, match=r"may reach 1, but position 1 has 1 element, 0; guard it"):
        parse(PAGES % index, overrides={"n": 1})


@pytest.mark.parametrize("index", ["p, x % 4", "x // 4, p", "x // 4 + p, x % 4"])
def test_an_unbound_axis_is_told_as_one(index: str) -> None:
    with pytest.raises(WeaveError, match="axis `p` is neither on the left side nor reduced"):
        parse(PAGES % index)


@pytest.mark.parametrize("left", ["t, d", "t, k, d"])
def test_a_list_is_told_by_a_line_that_is_right(left: str) -> None:
    """The line that the message gives, with the rest filled in, is one that the notation reads."""
    head = "t, d, k = 8, 3, 2\nX[t, d]: fp32\n"
    with pytest.raises(WeaveError, match=r"write `Y\[t, k\] = topk\[d\]\(\.\.\., into=k\)`"):
        parse(f"{head}Y[{left}] = topk[d](X[t, d], into=d)\n")
    parse(f"{head}Y[t, k] = topk[d](X[t, d], into=k)\n")
