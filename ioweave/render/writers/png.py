"""PNG: the SVG, rasterised by resvg, with no browser and no system library."""

from __future__ import annotations

from ioweave.render.figure.primitives import Scene
from ioweave.render.writers.svg import svg


def png(scene: Scene, scale: float = 2.0) -> bytes:
    """The scene as PNG bytes, ``scale`` pixels to a CSS pixel, on white."""
    import resvg_py

    width = max(1, round(scene.width * scale))
    return bytes(
        resvg_py.svg_to_bytes(svg_string=svg(scene), dpi=96, width=width, background="#ffffff", skip_system_fonts=True)
    )
