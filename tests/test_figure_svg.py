"""The writers: plain SVG, the same bytes always, and PNG."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from figure_cases import OTHERS, TILES, other_pair, pair

from ioweave.render.figure.draw import draw
from ioweave.render.figure.primitives import Circle, Cubic, Group, Line, Polygon, Rect, Scene, Text
from ioweave.render.writers.png import png
from ioweave.render.writers.svg import number, svg

HERE = Path(__file__).parent
GOLDEN = ("attention", "layernorm", "convolution")
GOLDEN_OTHERS = ("a recurrence", "a backward recurrence", "a list", "pages")
ELEMENTS = {"svg", "title", "desc", "defs", "g", "path", "rect", "circle", "polygon", "use"}
ATTRIBUTES = {
    "width", "height", "viewBox", "role", "id", "d", "fill", "stroke", "stroke-width", "stroke-linecap",
    "stroke-dasharray", "stroke-linejoin", "points", "x", "y", "rx", "cx", "cy", "r", "transform", "aria-label", "href",
}  # fmt: skip


def without_glyphs(text: str) -> str:
    """A drawing without the outlines of its font, which a release of the font may change."""
    text = re.sub(r'<path id="g\d+".*?/>\n', "", text)
    return re.sub(r'href="#g\d+"', 'href=""', text)


def stem(name: str) -> str:
    """The file name of one of the `OTHERS`."""
    assert name in OTHERS
    return name.removeprefix("a ").replace(" ", "_")


@pytest.mark.parametrize("name", sorted(TILES))
def test_svg_is_plain(name: str) -> None:
    root = ET.fromstring(svg(draw(pair(name))))
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    for e in root.iter():
        assert e.tag.split("}")[-1] in ELEMENTS
        assert {a.split("}")[-1] for a in e.attrib} <= ATTRIBUTES
    for e in root.iter():
        href = e.get("{http://www.w3.org/1999/xlink}href")
        assert href is None or href[1:] in ids
    description = root.findtext("{http://www.w3.org/2000/svg}desc") or ""
    assert "$" not in description
    assert "MiB" in description or "GiB" in description


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    """Regenerate with ``python tests/test_figure_svg.py`` after looking at what has changed."""
    wanted = (HERE / "golden" / f"{name}.svg").read_text("utf-8")
    assert without_glyphs(svg(draw(pair(name)))) == without_glyphs(wanted)


@pytest.mark.parametrize("name", GOLDEN_OTHERS)
def test_golden_of_other_shapes(name: str) -> None:
    wanted = (HERE / "golden" / f"{stem(name)}.svg").read_text("utf-8")
    assert without_glyphs(svg(draw(other_pair(name)))) == without_glyphs(wanted)


def test_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1]);"
        "from figure_cases import pair; from ioweave.render.figure.draw import draw;"
        "from ioweave.render.writers.svg import svg; from ioweave.render.writers.png import png;"
        "s = draw(pair('swiglu_mlp')); print(hashlib.sha256(svg(s).encode() + png(s)).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code, str(HERE)],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_png_has_the_size_of_the_scene() -> None:
    s = draw(pair("matmul"))
    data = png(s, scale=2.0)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert width == round(2 * s.width)
    assert abs(height - 2 * s.height) <= 2


def test_every_primitive_is_written() -> None:
    items = (
        Line((0, 0), (10, 0), "#000000", 1.0, (3, 2)),
        Cubic(((0, 0), (5, 0), (5, 9), (10, 9)), "#000000", 1.0),
        Polygon(((0, 0), (4, 0), (2, 3)), "", "#000000", 1.0),
        Rect(1, 2, 3, 4, "#ffffff", "#000000", 1.0, 2.0),
        Circle((5, 5), 2, "#000000"),
        Text("a & $x_q$", 3, 8, 10, "#000000", "middle"),
        Group("a<b", (Line((0, 0), (1, 1), "#000000", 1.0),), 'title "x" & y'),
    )
    root = ET.fromstring(svg(Scene(20, 20, items, "t & t", "d")))
    kinds = [e.tag.split("}")[-1] for e in root]
    assert kinds == ["title", "desc", "defs", "path", "path", "polygon", "rect", "circle", "g", "g"]
    assert root[-1].get("id") == "a<b"


def test_numbers_are_short() -> None:
    assert [number(v) for v in (1.0, 0.125, -0.001, 12.3456, -2.5)] == ["1", "0.12", "0", "12.35", "-2.5"]


if __name__ == "__main__":
    (HERE / "golden").mkdir(exist_ok=True)
    for golden in GOLDEN:
        (HERE / "golden" / f"{golden}.svg").write_text(svg(draw(pair(golden))), "utf-8")
    for other in GOLDEN_OTHERS:
        (HERE / "golden" / f"{stem(other)}.svg").write_text(svg(draw(other_pair(other))), "utf-8")
