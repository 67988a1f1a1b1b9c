"""SVG: presentation attributes alone; text as outlines, each glyph defined once."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from ioweave.render.figure.primitives import Circle, Cubic, Group, Line, Polygon, Primitive, Rect, Scene, Text, walk
from ioweave.render.figure.typeset import outline, strip, typeset


def number(v: float) -> str:
    """Two decimals at most, no trailing zeros, no negative zero."""
    s = f"{v:.2f}".rstrip("0").rstrip(".")
    return "0" if s in ("-0", "") else s


def svg(scene: Scene) -> str:
    """The scene as an SVG document; the same text for the same scene, always."""
    used = sorted({g.index for t in walk(scene.items) if isinstance(t, Text) for g in typeset(t.markup, t.bold).glyphs})
    w, h = number(scene.width), number(scene.height)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{w}" height="{h}" '
        f'viewBox="0 0 {w} {h}" role="img">',
        f"<title>{escape(scene.title)}</title>",
        f"<desc>{escape(scene.description)}</desc>",
        "<defs>",
        *(f'<path id="g{i}" d="{outline(i)}"/>' for i in used),
        "</defs>",
    ]
    for item in scene.items:
        _write(item, out)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _paint(fill: str, stroke: str, width: float) -> str:
    text = f' fill="{fill}"' if fill else ' fill="none"'
    return text + (f' stroke="{stroke}" stroke-width="{number(width)}"' if stroke else "")


def _write(item: Primitive, out: list[str]) -> None:
    n = number
    match item:
        case Line((x0, y0), (x1, y1), stroke, width, dash):
            style = f' stroke-dasharray="{" ".join(n(d) for d in dash)}"' if dash else ' stroke-linecap="round"'
            out.append(
                f'<path d="M{n(x0)} {n(y0)}L{n(x1)} {n(y1)}" fill="none" stroke="{stroke}" '
                f'stroke-width="{n(width)}"{style}/>'
            )
        case Cubic(points, stroke, width):
            (a, b), *rest = points
            curve = " ".join(f"{n(x)} {n(y)}" for x, y in rest)
            out.append(
                f'<path d="M{n(a)} {n(b)}C{curve}" fill="none" stroke="{stroke}" stroke-width="{n(width)}" '
                'stroke-linecap="round"/>'
            )
        case Polygon(points, fill, stroke, width):
            corners = " ".join(f"{n(x)},{n(y)}" for x, y in points)
            join = ' stroke-linejoin="miter"' if stroke else ""
            out.append(f'<polygon points="{corners}"{_paint(fill, stroke, width)}{join}/>')
        case Rect(x, y, width, height, fill, stroke, stroke_width, radius):
            corner = f' rx="{n(radius)}"' if radius else ""
            out.append(
                f'<rect x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}"{corner}'
                f"{_paint(fill, stroke, stroke_width)}/>"
            )
        case Circle((x, y), radius, fill, stroke, width):
            out.append(f'<circle cx="{n(x)}" cy="{n(y)}" r="{n(radius)}"{_paint(fill, stroke, width)}/>')
        case Text():
            _text(item, out)
        case Group(id_, items, title):
            out.append(f"<g id={quoteattr(id_)}>")
            if title:
                out.append(f"<title>{escape(title)}</title>")
            for inner in items:
                _write(inner, out)
            out.append("</g>")


def _text(item: Text, out: list[str]) -> None:
    setting = typeset(item.markup, item.bold)
    if not setting.glyphs:
        return
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[item.anchor] * setting.width * item.size
    scale = item.size / 1000
    out.append(
        f'<g fill="{item.fill}" aria-label={quoteattr(strip(item.markup))} '
        f'transform="translate({number(item.x - shift)} {number(item.y)}) scale({scale:.6g})">'
    )
    for g in setting.glyphs:
        x, y = number(g.x * 1000), number(-g.y * 1000)
        if g.scale == 1.0:
            out.append(f'<use xlink:href="#g{g.index}" x="{x}" y="{y}"/>')
        else:
            out.append(f'<use xlink:href="#g{g.index}" transform="translate({x} {y}) scale({g.scale:.4g})"/>')
    out.append("</g>")
