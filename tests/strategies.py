"""Random valid diagrams: maps, contractions, windows, masks, composites and single values.

Sizes are small, every read is in range (or guarded by a `where`), and every line is read or an
output. ``tame=True`` leaves out what has no finite float value on every input, so that such
diagrams can be run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Definition, Diagram, Input, Line
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Constant,
    Expr,
    Index,
    Number,
    Read,
    Reduce,
    Size,
    reads,
)
from ioweave.hierarchy.levelled import Levelled, Region

AXES = ("i", "j", "k", "q", "x")
FLOATS = ("fp64", "fp32", "fp16", "bf16")
TYPES = (*FLOATS, "tf32", "fp8", "fp8_e5m2", "fp4", "int64", "int32", "int8", "bool")
WILD = ("exp", "exp2", "sigmoid", "silu", "gelu", "erf", "sin", "cos", "floor", "round", "sqrt", "log", "rsqrt", "log2")
TAME = ("tanh", "abs", "relu", "neg", "sin", "cos", "sigmoid")


@dataclass(frozen=True)
class Known:
    """What an expression may use: sizes of axes, and the dimensions of the arrays made so far."""

    sizes: dict[str, int]
    arrays: dict[str, tuple[int, ...]]
    tame: bool
    bound: tuple[str, ...] = ()
    must: tuple[str, ...] = field(default=())


def _form(draw: st.DrawFn, known: Known, length: int) -> Affine:
    """An affine position that stays within 0 to length - 1."""
    fits = [a for a in known.bound if known.sizes[a] <= length]
    kinds = ["fixed"] + (["axis"] * 6 + ["shift", "double", "reversed", "window"] if fits else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "fixed":
        return Affine((), (), draw(st.integers(0, length - 1)))
    axis = draw(st.sampled_from(fits))
    n = known.sizes[axis]
    if kind == "shift":
        return Affine.make({axis: 1}, {}, draw(st.integers(0, length - n)))
    if kind == "double" and 2 * (n - 1) < length:
        return Affine.make({axis: 2}, {}, draw(st.integers(0, length - 1 - 2 * (n - 1))))
    if kind == "reversed":
        return Affine.make({axis: -1}, {axis: 1}, -1)
    if kind == "window":
        more = [a for a in known.bound if a != axis and known.sizes[a] - 1 + n <= length]
        if more:
            return Affine.make({axis: 1, draw(st.sampled_from(more)): 1})
    return Affine.axis(axis)


def _read(draw: st.DrawFn, known: Known) -> Expr:
    """A read in range, sometimes a shifted one under its guard."""
    name = draw(st.sampled_from(sorted(known.arrays)))
    dims = known.arrays[name]
    read = Read(name, tuple(_form(draw, known, n) for n in dims))
    axis = read.index[0].bare if read.index else None
    if axis is not None and draw(st.integers(0, 5)) == 0:
        shift = draw(st.integers(1, 2))
        shifted = Read(name, (Affine.make({axis: 1}, {}, -shift), *read.index[1:]))
        guard = Apply("ge", (Index(axis), Number(shift)))
        return Apply("where", (guard, shifted, Number(0)))
    return read


def _number(draw: st.DrawFn, known: Known) -> Expr:
    if known.tame:
        return Number(draw(st.sampled_from([1, 2, 0.5, 1.5, -1, 3])))
    value = draw(
        st.one_of(
            st.integers(-9, 10**6),
            st.floats(allow_nan=False),
            st.sampled_from([float("inf"), float("-inf"), 1e-5, 1e300, 0.1]),
            st.booleans(),
        )
    )
    return Number(value)


def _predicate(draw: st.DrawFn, known: Known, depth: int) -> Expr:
    """A predicate of indices, or of values now and then."""
    kind = draw(st.sampled_from(["compare"] * 4 + ["and", "or", "not", "chain"] if depth else ["compare"]))
    if kind in ("and", "or"):
        return Apply(kind, (_predicate(draw, known, depth - 1), _predicate(draw, known, depth - 1)))
    if kind == "not":
        return Apply("not", (_predicate(draw, known, depth - 1),))

    def side() -> Expr:
        options: list[Expr] = [Number(draw(st.integers(0, 4)))]
        options += [Index(a) for a in known.bound]
        options += [Apply("add", (Index(a), Number(draw(st.integers(1, 3))))) for a in known.bound]
        options += [Apply("floordiv", (Index(a), Number(2))) for a in known.bound]
        if not known.tame:
            options += [Size(a) for a in known.sizes]
            options += [Read(a) for a, dims in known.arrays.items() if not dims]
        return draw(st.sampled_from(options or [Number(1)]))

    ops = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
    a, b = side(), side()
    first = Apply(draw(ops), (a, b))
    return Apply("and", (first, Apply(draw(ops), (b, side())))) if kind == "chain" else first


def _safe(e: Expr, known: Known) -> Expr:
    """A divisor that is no bare index and not zero."""
    if isinstance(e, Index | Number | Constant):
        return Size(next(iter(known.sizes)))
    return Apply("add", (Apply("mul", (e, e)), Number(1))) if known.tame else e


def _expr(draw: st.DrawFn, known: Known, depth: int) -> Expr:
    leaves = ["read"] * 6 + ["number", "size"] + (["index"] if known.bound else []) + ([] if known.tame else ["eps"])
    nodes = ["infix"] * 5 + ["function"] * 2 + ["where", "reduce", "reduce", "composite", "minmax", "power"]
    kind = draw(st.sampled_from(leaves if depth == 0 else leaves + nodes * 2))
    match kind:
        case "number":
            return _number(draw, known)
        case "size":
            return Size(draw(st.sampled_from(sorted(known.sizes))))
        case "index":
            return Index(draw(st.sampled_from(known.bound)))
        case "eps":
            return Constant("eps")
        case "read":
            return _read(draw, known) if known.arrays else _number(draw, known)
        case "infix":
            op = draw(
                st.sampled_from(["add", "sub", "mul", "mul", "div"] + ([] if known.tame else ["floordiv", "mod"]))
            )
            left, right = _expr(draw, known, depth - 1), _expr(draw, known, depth - 1)
            return Apply(op, (left, right if op in ("add", "sub", "mul") else _safe(right, known)))
        case "power":
            base = _expr(draw, known, depth - 1)
            exponent = Number(2) if known.tame else _expr(draw, known, depth - 1)
            return Apply("pow", (Number(-2) if isinstance(base, Index) else base, exponent))
        case "function":
            op = draw(st.sampled_from(TAME if known.tame else (*TAME, *WILD, "not", "fp8", "fp16", "int32")))
            arg = _expr(draw, known, depth - 1)
            return Apply("abs" if isinstance(arg, Index) else op, (arg,))
        case "minmax":
            op = draw(st.sampled_from(["min", "max"]))
            return Apply(op, (_expr(draw, known, depth - 1), _expr(draw, known, depth - 1)))
        case "where":
            yes, no = _expr(draw, known, depth - 1), _expr(draw, known, depth - 1)
            return Apply("where", (_predicate(draw, known, 2), yes, no))
        case "composite":
            return _composite(draw, known, depth)
        case _:
            return _reduce(draw, known, depth)


def _within(known: Known, axes: tuple[str, ...]) -> Known:
    return replace(known, bound=tuple(dict.fromkeys((*known.bound, *axes))))


def _reduce(draw: st.DrawFn, known: Known, depth: int) -> Expr:
    axes = tuple(draw(st.lists(st.sampled_from(sorted(known.sizes)), min_size=1, max_size=2, unique=True)))
    inner = _within(known, axes)
    op = draw(
        st.sampled_from(["sum", "sum", "sum", "max", "min", "mean"] + ([] if known.tame else ["prod", "any", "all"]))
    )
    masked = draw(st.integers(0, 4)) == 0 and not (known.tame and op in ("max", "min", "mean"))
    where = _predicate(draw, inner, 1) if masked else None
    if draw(st.booleans()) and known.arrays:
        body: Expr = Apply("mul", (_read(draw, inner), _read(draw, inner)))
    else:
        body = _expr(draw, inner, depth - 1)
    return Reduce(op, axes, body, where)


def _composite(draw: st.DrawFn, known: Known, depth: int) -> Expr:
    keeps = [] if not known.bound else ["softmax", "rmsnorm", "layernorm"] + ([] if known.tame else ["l2norm"])
    op = draw(st.sampled_from([*keeps, "logsumexp"]))
    pool = sorted(known.sizes) if op == "logsumexp" else list(known.bound)
    axes = tuple(draw(st.lists(st.sampled_from(pool), min_size=1, max_size=2, unique=True)))
    inner = _within(known, axes) if op == "logsumexp" else known
    options: tuple[tuple[str, Expr], ...] = ()
    if op in ("rmsnorm", "layernorm") and draw(st.booleans()):
        options = (("eps", draw(st.sampled_from([Number(1e-6), Number(1), Constant("eps")]))),)
    body = _expr(draw, inner, depth - 1)
    if known.tame:  # the definitions bind the argument's own axes, so it must have them
        everything = tuple(Affine.axis(a) for a in axes)
        grid = [n for n, dims in known.arrays.items() if len(dims) == len(axes)]
        fits = [n for n in grid if all(known.sizes[a] <= d for a, d in zip(axes, known.arrays[n], strict=True))]
        term: Expr = Read(draw(st.sampled_from(sorted(fits))), everything) if fits else Index(axes[0])
        for a in axes[1:] if not fits else ():
            term = Apply("add", (term, Index(a)))
        body = Apply("add", (body, term))
    return Composite(op, axes, (body,), options)


@st.composite
def diagrams(draw: st.DrawFn, tame: bool = False, most_lines: int = 3, depth: int = 3) -> Diagram:
    """A valid diagram with one to ``most_lines`` lines of expressions up to ``depth`` deep."""
    axes = AXES[: draw(st.integers(2, len(AXES)))]
    sizes: dict[str, int] = {}
    definitions: list[Definition] = []
    for a in axes:
        if sizes and draw(st.integers(0, 3)) == 0:
            other = draw(st.sampled_from(sorted(sizes)))
            if draw(st.booleans()):
                definitions.append(Definition(a, Constant(other)))
                sizes[a] = sizes[other]
            else:
                definitions.append(Definition(a, Apply("add", (Apply("mul", (Number(2), Constant(other))), Number(1)))))
                sizes[a] = 2 * sizes[other] + 1
        else:
            sizes[a] = draw(st.integers(1, 6))
            definitions.append(Definition(a, Number(sizes[a])))
    definitions.append(Definition("eps", Number(draw(st.sampled_from([1e-5, 0.5, 1e-12])))))
    definitions = draw(st.permutations(definitions))

    known = Known(sizes, {}, tame)
    inputs: list[Input] = []
    for n in range(draw(st.integers(1, 3))):
        dims: list[Affine] = []
        for _ in range(draw(st.integers(0 if not tame else 1, 3))):
            a, b = draw(st.sampled_from(axes)), draw(st.sampled_from(axes))
            dims.append(
                draw(
                    st.sampled_from(
                        [Affine.make({}, {a: 1})] * 5
                        + [Affine.make({}, {a: 1}, 2), Affine.make({}, {a: 1}) + Affine.make({}, {b: 1}, -1)]
                        + [Affine.make({}, {a: 2}), Affine((), (), 4)]
                    )
                )
            )
        fact = None if tame else draw(st.sampled_from([None, None, (">", 0.0), ("<=", 1.5), (">=", -1e20)]))
        inputs.append(Input(f"T{n}", tuple(dims), draw(st.sampled_from(FLOATS if tame else TYPES)), fact))
        known.arrays[f"T{n}"] = tuple(d.fixed(sizes) for d in dims)

    lines: list[Line] = []
    for n in range(draw(st.integers(1, most_lines))):
        left = tuple(draw(st.lists(st.sampled_from(axes), max_size=3, unique=True)))
        expr = _expr(draw, replace(known, bound=left), depth)
        if tame and not reads(expr):
            expr = Apply("add", (expr, _read(draw, replace(known, bound=left))))
        dtype = draw(st.sampled_from([None, None, "fp32", "bf16"]))
        name = draw(st.sampled_from([f"Y{n}", f"Y{n}.part"])) if not tame else f"Y{n}"
        lines.append(Line(name, left, expr, dtype))
        known.arrays[name] = tuple(sizes[a] for a in left)
    seen = {r.array for line in lines for r in reads(line.expr)}
    outputs = [n.name for n in lines[:-1] if n.name not in seen or draw(st.integers(0, 3)) == 0]
    if not tame:
        outputs = draw(st.permutations(outputs))
    return Diagram("random", tuple(definitions), tuple(inputs), tuple(lines), (*outputs, lines[-1].name))


@st.composite
def levelled(draw: st.DrawFn, tame: bool = True) -> Levelled:
    """A levelled diagram: consecutive lines in blocks with random tiles, or outside any."""
    from ioweave.diagrams.opening import open_diagram

    diagram = draw(diagrams(tame=tame))
    opened = open_diagram(diagram)
    names = [line.name for line in diagram.lines]
    regions: list[Region] = []
    while names:
        if draw(st.integers(0, 2)) == 0:
            regions.append(Region(names[0], "smem", (names[0],), implicit=True))
            names = names[1:]
            continue
        count = draw(st.integers(1, len(names)))
        members, names = tuple(names[:count]), names[count:]
        mine = list(dict.fromkeys(a for b in opened.boxes if b.line in members for a in b.all_axes))
        group = draw(st.lists(st.sampled_from(mine), max_size=2, unique=True)) if mine else []
        stream = draw(st.lists(st.sampled_from(mine), max_size=2, unique=True)) if mine else []
        regions.append(
            Region(
                members[-1],
                "smem",
                members,
                tuple((a, draw(st.integers(1, 4))) for a in group),
                tuple((a, draw(st.integers(1, 4))) for a in stream),
                buffers=draw(st.sampled_from([1, 1, 2])),
            )
        )
    return Levelled(diagram, tuple(regions))
