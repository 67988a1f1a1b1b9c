"""How values show themselves in a notebook and as text, though the model never imports the renderer.

A class shows itself by taking these functions as its methods::

    class Diagram:
        _repr_svg_ = display.svg
        _repr_html_ = display.html

The package's front door (`ioweave`) registers, once, where the pictures are made; the renderer is
imported when the first picture is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal

Kind = Literal["svg", "html", "text"]
_MAKERS: dict[Kind, str] = {}


def register(kind: Kind, maker: str) -> None:
    """Make pictures of ``kind`` with ``maker``, written ``package.module:function``.

    The function takes the value and gives the text of the picture, or None if it has none.
    """
    _MAKERS[kind] = maker


def picture(kind: Kind, value: object) -> str | None:
    """The picture of ``value``, or None where none is registered (a notebook then prints the text)."""
    maker = _MAKERS.get(kind)
    if maker is None:
        return None
    module, _, function = maker.partition(":")
    text = getattr(import_module(module), function)(value)
    return text if isinstance(text, str) else None


def svg(value: object) -> str | None:
    """The value as SVG, for ``_repr_svg_``."""
    return picture("svg", value)


def html(value: object) -> str | None:
    """The value as HTML, for ``_repr_html_``."""
    return picture("html", value)
