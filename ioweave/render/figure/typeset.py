r"""Setting short labels as glyphs: a text in sans, with ``$...$`` for mathematics.

Mathematics knows what the tool's formulas need: letters in italic, digits, ``_`` and ``^``
with ``{...}``, primes, ``\lceil \rceil \lfloor \rfloor \cdot \times \ell``, Greek letters,
``\text{...}`` and ``\mathbf{...}``; any other command is set as an upright word. The glyphs are those of STIX
Two Math, which ziamath ships; its sans alphabet sets the text, so one font serves everywhere
and a figure has the same bytes on every machine. Lengths are in em, y upwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SCRIPT = 0.72
SHIFT = {"sup": 0.36, "sub": -0.17, "prime": 0.13}
THIN, MEDIUM, THICK = 3 / 18, 4 / 18, 5 / 18

SYMBOLS = {
    "cdot": "·", "times": "×", "ell": "ℓ", "infty": "∞", "le": "≤", "ge": "≥", "ne": "≠", "sum": "∑", "prod": "∏",
    "lceil": "⌈", "rceil": "⌉", "lfloor": "⌊", "rfloor": "⌋", "to": "→", "gets": "←", "in": "∈", "pm": "±", "div": "÷",
    "approx": "≈", "surd": "√", "Sigma": "Σ", "Delta": "Δ", "Omega": "Ω", "ldots": "…",
}  # fmt: skip
GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho",
)  # fmt: skip
GREEK_TAIL = ("sigma", "tau", "upsilon", "phi", "chi", "psi", "omega")
# first and last letter, and where the plain and the bold alphabet start in Unicode
SANS = (("A", "Z", 0x1D5A0, 0x1D5D4), ("a", "z", 0x1D5BA, 0x1D5EE), ("0", "9", 0x1D7E2, 0x1D7EC))
ITALIC = (("A", "Z", 0x1D434, 0x1D468), ("a", "z", 0x1D44E, 0x1D482), ("α", "ω", 0x1D6FC, 0x1D736))
RELATIONS = frozenset("=<>≤≥≠∈→←≈")
BINARY = frozenset("+−±÷")
TIGHT = frozenset("·×")


@dataclass(frozen=True, slots=True)
class Glyph:
    """One placed glyph: its index in the font, origin and scale."""

    index: int
    x: float
    y: float
    scale: float


@dataclass(frozen=True, slots=True)
class Setting:
    """A set label: glyphs, advance width, and the box of its ink (x0, y0, x1, y1)."""

    glyphs: tuple[Glyph, ...]
    width: float
    ink: tuple[float, float, float, float]


@lru_cache(maxsize=1)
def font() -> Any:
    """The font, read once."""
    from ziafont.font import Font

    spec = find_spec("ziamath")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("figures need ziamath, which ships the font they are set in")

    class Glyphs(Font):
        """The font without its tables of positioning and substitution: half the time to read, and unused here."""

        def _readtables(self) -> None:
            super()._readtables()
            for table in ("GPOS", "GSUB"):
                self.tables.pop(table, None)

    return Glyphs(Path(spec.submodule_search_locations[0]) / "fonts" / "STIXTwoMath-Regular.ttf")


@lru_cache(maxsize=4096)
def _metrics(char: str) -> tuple[int, float, float, float, float, float]:
    """Index, advance, and the box x0, y0, x1, y1 of a character, in em."""
    f = font()
    glyph = f.glyph(char)
    em = float(f.info.layout.unitsperem)
    box = glyph.bbox
    return glyph.index, glyph.advance() / em, box.xmin / em, box.ymin / em, box.xmax / em, box.ymax / em


@lru_cache(maxsize=4096)
def outline(index: int) -> str:
    """The SVG path of a glyph in thousandths of an em, y downwards."""
    parts: list[str] = []
    for op in font().glyph_fromid(index).operators:
        points = op.points()[0]
        letter = {1: "L", 2: "Q", 3: "C"}[len(points)]
        if type(op).__name__ == "Moveto":
            letter = "ZM" if parts else "M"
        parts.append(letter + " ".join(f"{_trim(p.x)} {_trim(-p.y)}" for p in points))
    return "".join(parts) + ("Z" if parts else "")


def _trim(v: float) -> str:
    return f"{v:.1f}".removesuffix(".0").replace("-0.0", "0") if v else "0"


def sans(char: str, bold: bool = False) -> str:
    """The sans letter for a plain one; other characters stay."""
    for first, last, plain, heavy in SANS:
        if first <= char <= last:
            return chr((heavy if bold else plain) + ord(char) - ord(first))
    return char


def italic(char: str, bold: bool = False) -> str:
    """The mathematical italic letter for a plain one; other characters stay."""
    if char == "h" and not bold:
        return "\u210e"
    for first, last, plain, heavy in ITALIC:
        if first <= char <= last:
            return chr((heavy if bold else plain) + ord(char) - ord(first))
    return char


class _Pen:
    """Collects placed glyphs from left to right."""

    def __init__(self) -> None:
        self.glyphs: list[Glyph] = []
        self.x = 0.0
        self.box = [0.0, 0.0, 0.0, 0.0]
        self.empty = True

    def put(self, char: str, y: float, scale: float) -> None:
        index, advance, x0, y0, x1, y1 = _metrics(char)
        if char not in " \u2009":
            self.glyphs.append(Glyph(index, self.x, y, scale))
            ink = (self.x + x0 * scale, y + y0 * scale, self.x + x1 * scale, y + y1 * scale)
            if self.empty:
                self.box, self.empty = list(ink), False
            else:
                self.box = [
                    min(self.box[0], ink[0]), min(self.box[1], ink[1]),
                    max(self.box[2], ink[2]), max(self.box[3], ink[3]),
                ]  # fmt: skip
        self.x += advance * scale


@lru_cache(maxsize=8192)
def typeset(markup: str, bold: bool = False) -> Setting:
    """Set one line of markup; the result is in em."""
    pen = _Pen()
    for k, part in enumerate(markup.split("$")):
        if k % 2:
            _maths(pen, _tokens(part), 0.0, 1.0, bold)
        else:
            for char in part:
                pen.put(sans(char, bold), 0.0, 1.0)
    return Setting(tuple(pen.glyphs), pen.x, (pen.box[0], pen.box[1], pen.box[2], pen.box[3]))


Token = tuple[str, Any]  # ("char", c), ("word", s), ("sub", tokens), ("sup", tokens), ("space", em)


def _tokens(text: str) -> list[Token]:
    out: list[Token] = []
    i = 0
    while i < len(text):
        c = text[i]
        if c == "\\":
            j = i + 1
            while j < len(text) and text[j].isalpha():
                j += 1
            name = text[i + 1 : j]
            if not name:
                out.append(("space", {",": THIN, ";": THICK, " ": THICK}.get(text[j : j + 1], 0.0)))
                j += 1
            elif name in ("text", "mathrm", "mathbf") and text[j : j + 1] == "{":
                end = _close(text, j)
                out.append(("bold" if name == "mathbf" else "word", text[j + 1 : end]))
                j = end + 1
            elif name in SYMBOLS:
                out.append(("char", SYMBOLS[name]))
            elif name in GREEK:
                out.append(("char", chr(ord("α") + GREEK.index(name))))
            elif name in GREEK_TAIL:
                out.append(("char", chr(ord("σ") + GREEK_TAIL.index(name))))
            else:
                out.append(("word", name))
            i = j
        elif c in "_^":
            if text[i + 1 : i + 2] == "{":
                end = _close(text, i + 1)
                inner, i = text[i + 2 : end], end + 1
            else:
                inner, i = text[i + 1 : i + 2], i + 2
            out.append(("sub" if c == "_" else "sup", _tokens(inner)))
        elif c == "'":
            j = i
            while j < len(text) and text[j] == "'":
                j += 1
            out.append(("prime", [("char", "′")] * (j - i)))
            i = j
        else:
            if c not in " {}":
                out.append(("char", {"-": "−", "*": "·"}.get(c, c)))
            i += 1
    return out


def _close(text: str, start: int) -> int:
    depth = 0
    for j in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[j], 0)
        if depth == 0:
            return j
    return len(text)


def _maths(pen: _Pen, tokens: list[Token], y: float, scale: float, bold: bool) -> None:
    operand = False  # whether a sign here would be binary
    i = 0
    while i < len(tokens):
        kind, value = tokens[i]
        if kind in ("sub", "sup", "prime"):
            start = pen.x
            widest = start
            while i < len(tokens) and tokens[i][0] in ("sub", "sup", "prime"):
                pen.x = start + 0.02 * scale
                side, inner = tokens[i]
                _maths(pen, inner, y + SHIFT[side] * scale, scale * SCRIPT, bold)
                widest = max(widest, pen.x)
                i += 1
            pen.x = widest + 0.03 * scale
            operand = True
            continue
        if kind == "space":
            pen.x += value * scale
        elif kind in ("word", "bold"):
            for char in value:
                pen.put(sans(char, True) if kind == "bold" else char, y, scale)
            operand = True
        elif value in RELATIONS or (value in BINARY and operand):
            space = (THICK if value in RELATIONS else MEDIUM) * (scale if scale > 0.9 else 0.35 * scale)
            pen.x += space
            pen.put(value, y, scale)
            pen.x += space
            operand = False
        elif value in TIGHT:
            pen.x += 0.08 * scale
            pen.put(value, y, scale)
            pen.x += 0.08 * scale
            operand = False
        elif value in ",;:":
            pen.put(value, y, scale)
            pen.x += THIN * scale
            operand = False
        else:
            pen.put(italic(value, bold), y, scale)
            if value.isalpha() and i + 1 < len(tokens) and tokens[i + 1][0] == "sup":
                pen.x += 0.03 * scale
            operand = value not in "([⌈⌊/"
        i += 1


def extent(markup: str, size: float, bold: bool = False) -> tuple[float, float, float]:
    """Advance width, height above and depth below the baseline of the ink, at ``size``."""
    s = typeset(markup, bold)
    return s.width * size, max(0.0, s.ink[3]) * size, max(0.0, -s.ink[1]) * size


def width(markup: str, size: float, bold: bool = False) -> float:
    """Advance width at ``size``."""
    return typeset(markup, bold).width * size


@lru_cache(maxsize=1)
def _named() -> dict[str, str]:
    """Every command that stands for one character."""
    greek = {name: chr(ord("α") + k) for k, name in enumerate(GREEK)}
    tail = {name: chr(ord("σ") + k) for k, name in enumerate(GREEK_TAIL)}
    return {**greek, **tail, **SYMBOLS}


def strip(markup: str) -> str:
    """The markup as plain text, for titles and alternative text."""
    out = markup.replace("$", "").replace("\\text", "").replace("\\mathbf", "")
    for name, char in sorted(_named().items(), key=lambda i: -len(i[0])):
        out = out.replace("\\" + name, char)
    return out.replace("{", "").replace("}", "").replace("\\,", " ").replace("\\;", " ")
