"""The front door: every public object is importable from `ioweave`, and a start is light and quick."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ioweave
from ioweave import WeaveError, parse
from ioweave.diagrams import display

HEAVY = {"numpy", "scipy", "sympy", "networkx", "ziamath", "resvg_py", "graphviz", "rich", "typer"}


@pytest.mark.parametrize("name", ioweave.__all__)
def test_public_names_are_there(name: str) -> None:
    assert getattr(ioweave, name) is not None
    assert name in dir(ioweave)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'flash'"):
        _ = ioweave.flash


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_the_start_is_light_and_quick() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import ioweave; spent = time.perf_counter() - start\n"
        f"print(spent, *({HEAVY} & set(sys.modules)))"
    )
    spent = min(float(run(code)) for _ in range(3))
    assert spent < 0.05


def test_building_diagrams_imports_nothing_heavy() -> None:
    code = (
        "import sys; from ioweave import box, axes, array, diagram, parse, to_python, to_latex\n"
        "d = box('Y[i] = exp(X[i])').diagram({'i': 4}); to_python(d); to_latex(d)\n"
        f"print(*({HEAVY} & set(sys.modules)))"
    )
    assert run(code) == ""


def shout(value: object) -> str | None:
    return f"<svg>{value}</svg>" if value != "nothing" else None


def test_values_show_themselves_through_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picture:
        _repr_svg_ = display.svg
        _repr_html_ = display.html

        def __str__(self) -> str:
            return "me"

    monkeypatch.setattr(display, "_MAKERS", {})
    assert Picture()._repr_svg_() is None
    display.register("svg", f"{__name__}:shout")
    assert Picture()._repr_svg_() == "<svg>me</svg>"
    assert Picture()._repr_html_() is None
    assert display.picture("svg", "nothing") is None


def test_errors_are_public() -> None:
    with pytest.raises(WeaveError):
        parse("")
