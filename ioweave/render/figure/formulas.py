"""Counts as formulas in markup: products of sizes and numbers of tiles, as the papers write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ioweave.derive.counting.terms import At, Factor, Gathered, Product
from ioweave.diagrams.boxes import base_name
from ioweave.render.figure.names import maths_name

MIN = r"\min("


@dataclass(frozen=True)
class Symbols:
    """How axes and tiles are written: ``tile(axis, at)`` is a symbol, or None where the tile is the whole axis."""

    order: tuple[str, ...]
    tile: Callable[[str, At], str | None]

    def rank(self, axis: str) -> tuple[int, str]:
        """Where an axis stands in a product."""
        name = base_name(axis)
        return (self.order.index(name) if name in self.order else len(self.order), name)


def product(p: Product, symbols: Symbols) -> tuple[int, str]:
    """A product as its coefficient and the markup of the rest (empty for a plain number)."""
    plain: list[tuple[tuple[int, str], str]] = []
    ratios: list[str] = []
    coefficient = p.coefficient
    for f in p.factors:
        if isinstance(f, Gathered):
            plain.append(_gathered(f, symbols))
            if f.kind == "swept":
                numbers = [(maths_name(base_name(a)), symbols.tile(a, at)) for a, at in f.places]
                ratios += [f"{name}/{tile}" for name, tile in numbers if tile is not None]
            continue
        name = maths_name(base_name(f.axis))
        tile = symbols.tile(f.axis, f.at)
        if f.kind == "size" or (f.kind == "swept" and _is_bare(f)):
            plain.append((symbols.rank(f.axis), name))
        elif f.kind == "tiles":
            if tile is not None:
                ratios.append(f"{name}/{tile}")
        elif f.kind == "extent" and _is_bare(f):
            plain.append((symbols.rank(f.axis), tile or name))
        elif f.kind == "extent" or tile is None:
            plain.append((symbols.rank(f.axis), f"({_window(tile or name, f, symbols)})"))
        else:
            more = _window("", f, symbols)
            head = f"{f.scale if f.scale != 1 else ''}{name}"
            plain.append((symbols.rank(f.axis), rf"({head}+({more})\,{name}/{tile})" if more else head))
    return coefficient, _joined([t for _, t in sorted(plain, key=lambda i: i[0])], ratios)


def _gathered(f: Gathered, symbols: Symbols) -> tuple[tuple[int, str], str]:
    """What a lookup may touch on a tile, and its rank: a product of extents, or as much as there is."""
    extents = []
    for extent, kind, by in f.parts:
        _, text = product(Product(1, (extent,)), symbols)
        extents.append(rf"\lceil {text}/{by}\rceil" if kind == "quotient" else text)
        if kind == "remainder":
            extents[-1] = rf"\min({text},{by})"
    rank = min((symbols.rank(extent.axis) for extent, _, _ in f.parts), default=(0, ""))
    most = _joined(extents, [])
    if len(extents) == 1 and most.startswith("(") and most.endswith(")"):
        most = most[1:-1]
    return rank, f"{MIN}{most},{f.limit})"


def _is_bare(f: Factor) -> bool:
    return f.scale == 1 and f.more == 0 and not f.spread


def _window(tile: str, f: Factor, symbols: Symbols) -> str:
    """What a window has beyond its tile: ``r-1`` for an index ``y + r``; with the tile in front, its length."""
    scale = f.scale
    number = f.more + 1 - f.scale
    parts = [(symbols.rank(f.axis), tile if scale == 1 else f"{scale}{tile}")] if tile else []
    for axis, c in f.spread:
        parts.append((symbols.rank(axis), f"{c if c != 1 else ''}{maths_name(base_name(axis))}"))
        number -= c
    text = "+".join(t for _, t in sorted(parts))
    if not number:
        return text
    if not text:
        return str(number)
    return f"{text}{'+' if number > 0 else '-'}{abs(number)}"


def _joined(names: list[str], ratios: list[str]) -> str:
    """Factors side by side, powers gathered, numbers of tiles behind a dot."""
    powers: dict[str, int] = {}  # a minimum stands apart from what follows
    for n in names:
        powers[n] = powers.get(n, 0) + 1
    out = ""
    for n, k in powers.items():
        piece = n if k == 1 else f"{n}^{k}"
        wide = len(n) > 1 and not n.startswith("(")
        if out and (wide or out.endswith("}") or MIN in out.rpartition(r"\,")[2]):
            out += r"\,"
        out += piece
    tail = rf"\cdot {ratios[0]}" if len(ratios) == 1 else "".join(f"({r})" for r in ratios)
    if not out:
        return ratios[0] if len(ratios) == 1 else tail
    return out + tail


def total(products: Iterable[Product], symbols: Symbols, weight: Callable[[int], int] | None = None) -> tuple[str, ...]:
    """A sum of products as terms, equal ones gathered in order of appearance; ``0`` for none."""
    gathered: dict[str, int] = {}
    for p in products:
        coefficient, text = product(p, symbols)
        gathered[text] = gathered.get(text, 0) + coefficient
    return written(gathered)


def written(gathered: Mapping[str, int]) -> tuple[str, ...]:
    """Terms with their coefficients."""
    terms = []
    for text, c in gathered.items():
        if c:
            gap = r"\," if text.startswith("\\") else ""
            terms.append(str(c) if not text else text if c == 1 else f"{c}{gap}{text}")
    return tuple(terms) or ("0",)
