"""A figure from its specification: panels are laid out, labelled, given their tables and composed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ioweave.render.figure import glyphs, labels, table
from ioweave.render.figure.columns import Demand, Walked, Walker
from ioweave.render.figure.plan import make_plan
from ioweave.render.figure.primitives import Circle, Cubic, Group, Line, Polygon, Primitive, Rect, Scene, Text
from ioweave.render.figure.rows import wrapped
from ioweave.render.figure.sketch import Sketch
from ioweave.render.figure.spec import FigureSpec, PanelSpec
from ioweave.render.figure.theme import PAPER, Theme
from ioweave.render.figure.typeset import strip, width

MARGIN = 10.0
BETWEEN = 34.0
GAP = 26.0
LEAST = 430.0
LAYERS = ("plates", "separators", "wires", "signs", "ports", "labels")
Run = tuple[float, float]  # an interval of x
Held = tuple[int, float, float, bool]  # an entry of a zone: strand, first y, last y, in a plate
NOTE = 14.0  # from the baseline of a title to that of the note under it
JOG = 6.0  # a separator that changes its height by less than this does not
SHORT = 26.0  # a separator shorter than this is left out


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A panel's layers with its wires' top at y = 0. ``ident`` is unique among the rows of a panel."""

    letter: str
    ident: str
    panel: PanelSpec
    walked: Walked
    layers: tuple[tuple[Primitive, ...], ...]
    top: float
    bottom: float
    width: float
    dropped: tuple[str, ...]


def draw(spec: FigureSpec, theme: Theme = PAPER) -> Scene:
    """The scene of a figure. Panels stand side by side, or under each other where too wide."""
    limit = theme.wrap - 2 * MARGIN
    parts: list[list[_Drawn]] = []
    for k, p in enumerate(spec.panels):
        letter = "abcdefgh"[k]
        fitted = wrapped(p, limit, lambda q: _width(q, theme))
        parts.append([_panel(q, theme, letter) for q in fitted])
    wide = [max(d.width for d in p) for p in parts]
    side = all(len(p) == 1 for p in parts) and sum(wide) + BETWEEN * (len(parts) - 1) <= limit
    total = sum(wide) + BETWEEN * (len(parts) - 1) if side else max(wide)
    total = max(total, LEAST)
    items: list[Primitive] = []
    y = MARGIN
    if side:
        y = _row([p[0] for p in parts], y, None, spec, theme, items, True) + GAP
    else:
        for pieces in parts:
            for n, d in enumerate(pieces):
                y = _row([d], y, total, spec, theme, items, n == 0) + GAP
    dashed = any(d.layers[LAYERS.index("separators")] for p in parts for d in p)
    y = _legend(spec, y - 6.0, total, theme, items, dashed)
    dropped = tuple(x for p in parts for d in p for x in d.dropped)
    background = Rect(0.0, 0.0, total + 2 * MARGIN, y + MARGIN, theme.paper)
    return Scene(
        total + 2 * MARGIN, y + MARGIN, (background, *items), spec.title, spec.description or describe(spec), dropped
    )


def describe(spec: FigureSpec) -> str:
    """Alternative text: what the panels hold and what they cost."""
    parts = []
    for p in spec.panels:
        steps = ", ".join(f"{c.result} by {strip(c.title)}" for c in p.columns)
        costs = "; ".join(f"{strip(r.symbol)} {strip(r.total)} {strip(r.remark)}".strip() for r in p.rows)
        note = f" ({strip(p.note)})" if p.note else ""
        parts.append(f"{strip(p.title)}{note}: {steps}." + (f" {costs}." if costs else ""))
    return " ".join(parts) + (f" {strip(spec.footer)}" if spec.footer else "")


def _walk(panel: PanelSpec, theme: Theme, letter: str) -> tuple[Sketch, Walked]:
    """The panel's wires and numbers: once to learn the widths of the plates, once to place them."""
    plan = make_plan(panel, theme)
    need = table.needs(panel, theme)
    titles = [width(c.title, theme.text_block) + 12 for c in panel.columns]
    demand = Demand(tuple(max(a, b) for a, b in zip(need.columns, titles, strict=True)), need.left, need.right)
    first = Walker(panel, plan, demand, theme, letter, {})
    first.walk()
    walker = Walker(panel, plan, demand, theme, letter, first.plates)
    return walker.sketch, walker.walk()


def _width(panel: PanelSpec, theme: Theme) -> float:
    return _walk(panel, theme, "a")[1].width


def _panel(panel: PanelSpec, theme: Theme, letter: str) -> _Drawn:
    ident = f"{letter}-{panel.columns[0].result}"
    sketch, walked = _walk(panel, theme, letter)
    separators = _separators(sketch, theme)
    obstacles = labels.strokes([*sketch.wires, *separators, *sketch.ports])
    texts, dropped = labels.place(sketch.texts, obstacles, [*sketch.blocks, *labels.strokes(sketch.marks)])
    layers = tuple(
        tuple(layer) for layer in (sketch.plates, separators, sketch.wires, sketch.marks, sketch.ports, texts)
    )
    _, y0, x1, y1 = labels.bounds(tuple(i for layer in layers for i in layer))
    heading = max(width(panel.title, theme.text_title), width(panel.note, theme.text_block))
    heading += width(f"({letter})", theme.text_title, True) + 5
    return _Drawn(letter, ident, panel, walked, layers, y0, y1, max(x1, walked.width, heading), tuple(dropped))


def _separators(sketch: Sketch, theme: Theme) -> list[Primitive]:
    """Dashed lines between arrays that lie under each other, joined where they meet, cut at curves."""
    pieces: dict[float, list[Run]] = {}
    for zone in sketch.zones:
        if zone.x1 - zone.x0 < 1e-6:
            continue
        for upper, lower in zip(zone.stack, zone.stack[1:], strict=False):
            y = _between(upper, lower, theme)
            pieces.setdefault(round(y, 3), []).append((zone.x0, zone.x1))
    pieces = _snapped({y: _joined(spans) for y, spans in sorted(pieces.items())})
    curves = [box for w in sketch.wires for box in labels.strokes([w])]
    out: list[Primitive] = []
    for y in sorted(pieces):
        cuts = sorted((c[0] - 5.0, c[2] + 5.0) for c in (*curves, *sketch.gaps) if c[1] - 3 < y < c[3] + 3)
        for a, b in _joined(pieces[y]):
            for lo, hi in (*cuts, (b, b)):
                if hi <= a or lo > b:
                    continue
                if lo - a > SHORT:
                    out.append(Line((a, y), (lo, y), theme.ink, 1.4, (6.5, 5.0)))
                a = max(a, hi)
    return out


def _joined(spans: Sequence[Run]) -> list[Run]:
    """Intervals with those that touch made one."""
    runs: list[Run] = []
    for a, b in sorted(spans):
        if runs and a <= runs[-1][1] + 0.5:
            runs[-1] = (runs[-1][0], max(runs[-1][1], b))
        else:
            runs.append((a, b))
    return runs


def _snapped(pieces: dict[float, list[Run]]) -> dict[float, list[Run]]:
    """Runs (by ascending y) that follow each other at almost one height are set at one, the higher."""
    out: dict[float, list[Run]] = {}
    for y, runs in pieces.items():
        for a, b in runs:
            near = (v for v, known in out.items() if 0 < y - v <= JOG and any(_follows(k, (a, b)) for k in known))
            out.setdefault(min(near, default=y), []).append((a, b))
    return out


def _follows(one: Run, other: Run) -> bool:
    return abs(one[1] - other[0]) < 1.0 or abs(other[1] - one[0]) < 1.0


def _between(upper: Held, lower: Held, theme: Theme) -> float:
    """Half-way between neighbours; close under the upper one where a plate's title may stand between."""
    if upper[2] + theme.plate_gap <= lower[1] + 1e-6:
        return upper[2] + 13.0
    return lower[1] - theme.array_gap / 2 - 0.5


def shifted(item: Primitive, dx: float, dy: float) -> Primitive:
    """The primitive moved by (dx, dy)."""

    def m(p: tuple[float, float]) -> tuple[float, float]:
        return p[0] + dx, p[1] + dy

    match item:
        case Line():
            return replace(item, start=m(item.start), end=m(item.end))
        case Cubic(points=(a, b, c, d)):
            return replace(item, points=(m(a), m(b), m(c), m(d)))
        case Polygon():
            return replace(item, points=tuple(m(p) for p in item.points))
        case Rect() | Text():
            return replace(item, x=item.x + dx, y=item.y + dy)
        case Circle():
            return replace(item, center=m(item.center))
        case Group():
            return replace(item, items=tuple(shifted(i, dx, dy) for i in item.items))


def _row(
    group: Sequence[_Drawn],
    y: float,
    full: float | None,
    spec: FigureSpec,
    theme: Theme,
    items: list[Primitive],
    headed: bool,
) -> float:
    """Panels side by side on one grid of rows, their tables on one grid too; returns the lower end."""
    top = min(d.top for d in group)
    bottom = max(d.bottom for d in group)
    x = MARGIN
    heights = [table.heights(d.panel, d.walked.spans, theme) for d in group]
    depth = max((len(r) for r in heights), default=0)
    common = [max((r[k] for r in heights if k < len(r)), default=0.0) for k in range(depth)]
    end = y
    noted = any(d.panel.note for d in group)
    dy = y - top + (31.0 + (NOTE if noted else 0.0) if headed else 0.0)
    for d in group:
        right = d.width if full is None else full
        body: list[Primitive] = list(_heading(d, x, y, len(spec.panels) > 1, theme)) if headed else []
        for name, layer in zip(LAYERS, d.layers, strict=True):
            body.append(Group(f"{d.ident}-{name}", tuple(shifted(i, x, dy) for i in layer)))
        end = max(end, dy + bottom)
        if d.panel.rows:
            rules, texts, tail = table.draw(
                d.panel, d.walked.centres, d.walked.spans, right, dy + bottom + 20, common[: len(d.panel.rows)], theme
            )
            body.append(Group(f"{d.ident}-table", tuple(shifted(i, x, 0.0) for i in (*rules, *texts))))
            end = max(end, tail)
        items.append(Group(f"panel-{d.ident}", tuple(body), strip(d.panel.title)))
        x += d.width + BETWEEN
    return end


def _heading(d: _Drawn, x: float, y: float, lettered: bool, theme: Theme) -> list[Primitive]:
    out: list[Primitive] = []
    if lettered:
        mark = f"({d.letter})"
        out.append(Text(mark, x, y + 13, theme.text_title, theme.ink, "start", True))
        x += width(mark, theme.text_title, True) + 5
    out.append(Text(d.panel.title, x, y + 13, theme.text_title, theme.ink))
    if d.panel.note:
        out.append(Text(d.panel.note, x, y + 13 + NOTE, theme.text_block, theme.faint))
    return out


_MARKS = {"level": 26.0, "dash": 26.0, "loop": 26.0, "gather": 22.0, "state": 11.0}  # widths of a legend's signs


def _legend(spec: FigureSpec, y: float, total: float, theme: Theme, items: list[Primitive], dashed: bool) -> float:
    """The key, and a last line with the sizes assumed; both broken where they are too long."""
    size = theme.text_block
    entries: list[tuple[str, str]] = []
    depth = max((r.level for p in spec.panels for r in p.regions), default=0)
    for k, name in enumerate(spec.levels[: depth + 1]):
        entries.append((f"level{k}", f"axis at level {name}"))
    ports = [q for p in spec.panels for r in p.regions for q in r.ports]
    if any(not q.every_step for q in ports):
        entries.append(("hollow", "load/store once per group"))
    if any(q.every_step for q in ports):
        entries.append(("filled", "in every stream step"))
    if any(c.state for p in spec.panels for c in p.columns):
        entries.append(("state", "state kept from step to step"))
    if any(c.loop for p in spec.panels for c in p.columns):
        entries.append(("loop", "recurrence: the value before returns"))
    if any(o.gathered for p in spec.panels for c in p.columns for o in c.operands):
        entries.append(("gather", "gather: read where another array says"))
    if dashed:
        entries.append(("dash", "separates arrays"))
    out: list[Primitive] = []
    x = MARGIN
    y += 8
    for kind, text in entries:
        mark = _MARKS.get(kind.rstrip("0123456789"), 8.0)
        w = mark + 5 + width(text, size) + 18
        if x + w - 18 > total + MARGIN and x > MARGIN:
            x, y = MARGIN, y + 15
        if kind.startswith("level"):
            colour, weight = theme.level(int(kind[5:]))
            out.append(Line((x, y), (x + mark, y), colour, weight))
        elif kind == "dash":
            out.append(Line((x, y), (x + mark, y), theme.ink, 1.4, (6.5, 5.0)))
        elif kind == "loop":
            loop = glyphs.loop(x + 3, x + 23, y - 4.5, (y + 3.5,), y + 3.5, (x + 14, x + 15), *theme.level(1))
            out.extend((Line((x, y + 3.5), (x + 26, y + 3.5), *theme.level(1)), *loop))
        elif kind == "gather":
            out.extend((Line((x, y), (x + 22, y), *theme.level(1)), *glyphs.gather(x + 10, y, theme, 5.0)))
        elif kind == "state":
            out.extend(glyphs.state(x + 6, y, replace(theme, plate=theme.paper)))
        else:
            out.append(glyphs.port(x + 4, y, kind == "filled", theme))
        out.append(Text(text, x + mark + 5, y + 3.2, size, theme.ink))
        x += w
    y += 4
    if spec.footer:
        for line in broken(spec.footer, size, total):
            y += 14
            out.append(Text(line, total + MARGIN, y, size, theme.ink, "end"))
    items.append(Group("legend", tuple(out)))
    return y + 2


def broken(text: str, size: float, limit: float) -> list[str]:
    """A text as lines no wider than ``limit``, broken at ``, `` or ``; `` outside mathematics."""
    parts: list[str] = []
    current = ""
    maths = False
    for k, c in enumerate(text):
        current += c
        maths ^= c == "$"
        if not maths and c == " " and k and text[k - 1] in ",;":
            parts.append(current)
            current = ""
    parts.append(current)
    lines: list[str] = []
    line = ""
    for p in parts:
        if line and width(line + p.rstrip(), size) > limit:
            lines.append(line.rstrip())
            line = p
        else:
            line += p
    return [*lines, line.rstrip()]
