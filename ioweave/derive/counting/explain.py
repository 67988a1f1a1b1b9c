"""Every number of a count, asked why: the terms it is made of, the rule for each, and the lines they come from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ioweave.derive.counting.flops import column_flops
from ioweave.derive.counting.formulas import BYTES, load_pieces, store_pieces, works
from ioweave.derive.counting.gathers import Look, overflows
from ioweave.derive.counting.levelled import Counts, Placed
from ioweave.derive.counting.masks import Survival, predicates
from ioweave.derive.counting.memory import largest_column
from ioweave.derive.counting.region import count_loads, count_stores, least_values, trace
from ioweave.derive.counting.symbolic import Term, text
from ioweave.derive.counting.symbols import Names, extent_term, region_names
from ioweave.derive.program.arithmetic_cost import operand_axes, operations, product_operations
from ioweave.derive.program.program import Column, Load, Program, Store, Variable
from ioweave.derive.program.reach import Reach
from ioweave.derive.program.spans import Span
from ioweave.diagrams.boxes import PREV, Box, source
from ioweave.diagrams.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Explained:
    """One term of a total: what it is of, its value with its unit, its formula, the rule, and the lines it comes from.

    ``total`` is ``transfers``, ``memory`` or ``flops``; ``kind`` is ``load`` or ``store``, the role of a variable,
    or the class of FLOPs. Values of one total and region add up to it (of memory: those of the largest column, ``at``).
    Where ``bound``, the formula is more than the value: it leaves out masks or the cut ends of windows.
    """

    total: Literal["transfers", "memory", "flops"]
    region: str
    name: str
    kind: str
    value: int
    unit: Literal["values", "bytes", "flops"]
    formula: str
    rule: str
    lines: tuple[str, ...]
    bound: bool = False
    at: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a plain record."""
        return {**asdict(self), "lines": list(self.lines)}


def explain(counts: Counts) -> tuple[Explained, ...]:
    """The terms of every total, region by region: transfers, then memory, then FLOPs."""
    rows: list[Explained] = []
    for p, names in zip(counts.placed, region_names(counts.placed), strict=True):
        survive = trace(p.program, p.tiles, p.setting)
        rows += _loads(p, names, survive)
        rows += _stores(p, names)
        rows += _memory(p, names, survive)
        rows += _flops(p, names, survive)
    return tuple(rows)


# -- transfers


def _loads(p: Placed, names: Names, survive: Survival | None) -> list[Explained]:
    counted = dict(count_loads(p.program, p.tiles, survive, Look(p.setting.integers)))
    rows = []
    for load, piece in load_pieces(p, names):
        formula = names.formula(piece.terms)
        lines = tuple(dict.fromkeys(_box(p.program, box).line for box, _ in load.reads))
        n = counted[load]
        rows.append(
            Explained(
                "transfers", p.program.name, load.label, "load", n, "values", formula.text,
                _load_rule(load, p, names, survive), lines, not piece.exact and formula.value != n,
            )
        )  # fmt: skip
    return rows


def _load_rule(load: Load, p: Placed, names: Names, survive: Survival | None) -> str:
    v = p.program.variable(load.variable)
    held = dict(p.region.hold).get(load.array)
    parts = [f"loaded at depth {load.depth}"]
    if load.depth == 0:
        parts[0] += ", before all loops" if p.program.loops else ", once"
    if held == load.depth:
        parts[0] += ", where the schedule holds it"
    parts += [_steps(a, p, names) for a in p.program.loops if a in v.entered]
    later = max((t // 2 for t in load.key if t is not None), default=0)
    rule = "counting.md 19"
    if later:
        rule += ", 18"
        parts.append(f"again in pass {later + 1}")
    parts.append(_instances(p, names))
    spans = v.pieces[0]
    looked_up = dict.fromkeys(a for piece in v.pieces for s in piece if isinstance(s, Reach) for a in s.arrays)
    if looked_up:
        fewer = least_values(load, p.program, p.tiles, p.setting, survive)
        most = "all that there is" if _all_of_it(load, p) else "the most that it may name"
        known = "what it names" if fewer is None else f"{most}, and {fewer:,} at least"
        parts.append(f"looked up in {' and '.join(looked_up)}: {known}")
    if len(v.pieces) > 1:
        rule += ", 21"
        parts.append(f"the union of {len(v.pieces)} reads")
    elif any(isinstance(s, Span) and s.axes and s.bare is None for s in spans):
        rule += ", 20"
        parts.append("windows, whose overlap is loaded again")
    if any(predicates(_box(p.program, box)) for box, _ in load.reads) or _masked(p):
        rule += ", 26"
        parts.append("where some read of it survives the masks")
    return f"{rule}: {', '.join(parts)}"


def _all_of_it(load: Load, p: Placed) -> bool:
    """Whether a first tile may name more places than there are: then all of them are counted."""
    v = p.program.variable(load.variable)
    bounds = {a: (0, n) for a, n in p.tiles.sizes.items()}
    for a in (*p.program.grouped, *p.program.loops):
        t = p.tiles.intervals(a, a in v.entered)
        bounds[a] = (int(t.lo[0]), int(t.hi[0]))
    return any(overflows(s, bounds) for piece in v.pieces for s in piece if isinstance(s, Reach))


def _masked(p: Placed) -> bool:
    return any(predicates(b) for b in p.program.boxes)


def _steps(axis: str, p: Placed, names: Names) -> str:
    trips = text([names.size[axis] / names.step[axis]], names.order)
    per = f" ({trips} of them over its tiles)" if axis in p.tiles.group else f" ({trips} of them)"
    return f"in each step of {axis}{per}"


def _instances(p: Placed, names: Names) -> str:
    if not p.tiles.group:
        return "in the one instance"
    number = Term.number(1)
    for a in p.tiles.group:
        number = number * names.size[a] / names.group[a]
    return f"in each of {text([number], names.order)} instances"


def _stores(p: Placed, names: Names) -> list[Explained]:
    counted = count_stores(p.program, p.tiles)
    rows = []
    for s, (array, piece) in zip(p.program.stores, store_pieces(p, names), strict=True):
        box = _box(p.program, p.program.variable(s.variable).array)
        formula = names.formula(piece.terms).text
        n, label = counted[array]
        rule = _store_rule(s, box, p, names)
        rows.append(Explained("transfers", p.program.name, label, "store", n, "values", formula, rule, (box.line,)))
    return rows


def _store_rule(s: Store, box: Box, p: Placed, names: Names) -> str:
    if not s.state:
        return f"counting.md 23: stored once per instance, whole, {_instances(p, names)}"
    split = " and ".join(a for a in p.program.split if a in box.over)
    because = f"{split} is reduced and grouped, so {box.name} is stored as a partial state"
    return f"counting.md 24: {because} {_instances(p, names)}"


# -- memory


def _memory(p: Placed, names: Names, survive: Survival | None) -> list[Explained]:
    title, live = largest_column(p.program, p.tiles, survive, p.buffers)
    rows = []
    for name, held in live.items():
        v = p.program.variable(name)
        times = p.buffers if v.role == "slab" and v.entered else 1
        factor = Term.number(DTYPES[v.dtype].bits * times) / Term.number(BYTES[1])
        formula = names.formula(factor * extent_term(piece, v.entered, p, names) for piece in v.pieces)
        rows.append(
            Explained(
                "memory", p.program.name, name, v.role, held, "bytes", formula.text,
                f"counting.md 28: live at {title}; {_life(v, times, p.program)}, {v.dtype}",
                _lines(v, p.program), formula.value != held, title,
            )
        )  # fmt: skip
    return rows


def _life(v: Variable, buffers: int, program: Program) -> str:
    if v.role == "slab":
        until = "to the end of its trip" if v.entered else "throughout"
        many = f" in {buffers} buffers" if buffers > 1 else ""
        return f"loaded from {v.array}{many}, and kept {until}"
    if v.name.startswith(v.array + PREV):
        return f"{v.array} as it was before the step, from which the next element is made"
    if v.role == "state" and _box(program, v.array).scan is not None:
        return "every element in the place of the one before it"
    if v.role == "state":
        return "accumulated from step to step"
    if v.role == "old":
        return f"{v.array} as it was before this step"
    return "an operand, the result, or read later"


def _lines(v: Variable, program: Program) -> tuple[str, ...]:
    """The line that makes a variable, or those that read a slab."""
    if v.role != "slab":
        return (_box(program, source(v.array)).line,)
    readers = (box for load in program.loads() if load.variable == v.name for box, _ in load.reads)
    return tuple(dict.fromkeys(_box(program, box).line for box in readers))


# -- FLOPs


def _flops(p: Placed, names: Names, survive: Survival | None) -> list[Explained]:
    rows = []
    for work in works(p, names):
        box = work.column.box
        assert box is not None
        counted = column_flops(work.column, p.program, p.tiles, p.setting, survive)
        for kind, parts, n in (
            ("mma", work.mma, counted.mma),
            ("vector", work.vector, counted.vector),
            ("special", work.special, counted.special),
        ):
            if parts or n:
                formula = names.formula(parts)
                rule = _work_rule(kind, box, work.column)
                bound = not work.exact and formula.value != n
                rows.append(
                    Explained(
                        "flops", p.program.name, box.name, kind, n, "flops", formula.text, rule, (box.line,), bound
                    )
                )
    return rows


def _work_rule(kind: str, box: Box, column: Column) -> str:
    cost = column.cost or box
    groups = operand_axes(cost)
    if kind == "mma":
        return "counting.md 29: a sum of products of two factors, 2 for each multiply-add"
    parts = []
    if groups:
        for factors, axes in groups:
            each = product_operations(factors)[kind == "special"]
            if each:
                parts.append(f"{each} for each element of an operand over {', '.join(axes)}")
    else:
        each = operations(cost.body)[kind == "special"]
        over = ", ".join(cost.all_axes) or "one element"
        if each:
            parts.append(f"{each} for each element of {over}")
        if kind == "vector" and cost.reduction is not None:
            parts.append(f"1 for each term of its {box.reduction}")
    rule = f"counting.md 29: {' and '.join(parts)}" if parts else ""
    if kind == "vector":
        for name, does in ((box.rescale, "rescales"), (box.recentre, "recentres")):
            if name is not None:
                again = f"counting.md 30: 1 for each element of the state, which {name} {does} in every trip"
                rule = f"{rule}; {again}" if rule else again
    later = max((t // 2 for t in column.slot if t is not None), default=0)
    return f"{rule}; in pass {later + 1}" if later else rule


def _box(program: Program, name: str) -> Box:
    return next(b for b in program.boxes if b.name == name)
