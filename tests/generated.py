"""Random small levelled files, seeded: elementwise, windows, reductions, norms, attention, several passes, splits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

DTYPES = ("fp16", "bf16", "fp32", "fp64")
MASKS = (
    "x <= q", "x >= q", "x < q + 1", "x - q <= 0", "x <= q + 1", "q <= x", "0 <= q - x < 3", "x <= q and q < x + 3",
    "abs(q - x) <= 1", "x // 2 == q // 2", "x % 2 == q % 2", "x < 3", "q >= 2", "not (x > q)", "x < q or x == 0",
    "x <= q and x >= 1", "(x <= q) & (q - x < 2)", "x > q + 2", "q - x >= 2", "2 * x <= q", "x + q < 6",
)  # fmt: skip
MAPS = (
    "tanh({})", "exp(0.25 * ({}))", "abs({})", "min({}, 1)", "0.5 * ({})", "({}) - 1.5", "({}) ** 2",
    "1 / (({}) ** 2 + 1)", "sqrt(abs({}) + 1)", "log(abs({}) + 1)", "where(({}) > 0, 1, 0.5)", "relu({})",
)  # fmt: skip


@dataclass
class Draft:
    """A file in the making: sizes, inputs with their dimensions, lines with the axes that they have."""

    rng: random.Random
    sizes: dict[str, int]
    inputs: dict[str, str] = field(default_factory=dict)
    lines: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)  # name, text, all axes
    outputs: list[str] = field(default_factory=list)

    def input(self, name: str, *dims: str) -> str:
        self.inputs[name] = f"{name}[{', '.join(dims)}]: {self.rng.choice(DTYPES)}"
        return f"{name}[{', '.join(dims)}]"

    def line(self, name: str, axes: tuple[str, ...], text: str, *reduced: str) -> str:
        left = f"{name}[{', '.join(axes)}]"
        self.lines.append((name, f"{left} = {text}", (*axes, *reduced)))
        return left

    def map(self, of: str) -> str:
        return self.rng.choice(MAPS).format(of)

    def some(self, axes: tuple[str, ...], least: int = 1) -> tuple[str, ...]:
        chosen = list(axes)
        self.rng.shuffle(chosen)
        return tuple(chosen[: self.rng.randint(least, len(chosen))])

    def mixed(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return self.some(axes, len(axes))


def elementwise(d: Draft) -> None:
    axes = tuple(d.sizes)
    t, u = d.mixed(axes), d.mixed(axes)
    read = d.line("T", t, f"{d.map(d.input('A', *d.mixed(axes)))} {d.rng.choice('+-*')} {d.input('B', *d.some(axes))}")
    read = d.line("U", u, f"{d.map(read)} {d.rng.choice('+-*')} {d.input('C', *d.some(axes))}")
    if d.rng.random() < 0.5:
        gone = d.rng.choice(axes)
        kept = tuple(a for a in d.mixed(axes) if a != gone)
        d.line("R", kept, f"{d.rng.choice(['sum', 'max', 'min', 'mean'])}[{gone}]({read})", gone)


def shifts(d: Draft) -> None:
    c = ("c",) if "c" in d.sizes else ()
    s = d.rng.randint(1, 3)
    if d.rng.random() < 0.5:
        d.input("X", "i", *c)
        back = d.rng.random() < 0.7
        guard, place = (f"i >= {s}", f"i - {s}") if back else (f"i + {s} < i.size", f"i + {s}")
        if not back:
            guard = f"i < {d.sizes['i'] - s}"
        text = f"where({guard}, X[{', '.join((place, *c))}], 0)"
    else:
        d.sizes["n"] = d.sizes["i"] + s
        d.input("X", "n", *c)
        text = f"X[{', '.join((f'i + {s}', *c))}]"
        if d.rng.random() < 0.3:
            text = f"({text} + X[{', '.join(('i', *c))}])"
    axes = ("i", *c)
    read = d.line("T", d.mixed(axes), f"{text} * {d.input('W', *d.some(axes))}")
    d.line("U", axes, d.map(read))
    if d.rng.random() < 0.3:
        read = "U[" + ", ".join(axes) + "]"
        d.line("Z", c, f"{d.rng.choice(['sum', 'max'])}[i]({read})", "i") if c else None


def halo(d: Draft) -> None:
    """A shifted read of an intermediate."""
    c = ("c",) if "c" in d.sizes else ()
    axes = ("i", *c)
    s = d.rng.randint(1, 3)
    n = d.sizes["i"]
    at = ", ".join
    d.line("T", axes, d.map(f"{d.input('X', *axes)} * {d.input('W', *d.some(axes))}"))
    shifted = d.rng.choice([
        f"where(i >= {s}, T[{at((f'i - {s}', *c))}], 0)", f"where(i < {n - s}, T[{at((f'i + {s}', *c))}], 0)"
    ])  # fmt: skip
    text = shifted if d.rng.random() < 0.3 else f"{shifted} + T[{at(axes)}]"
    read = d.line("U", axes, text)
    if d.rng.random() < 0.5:
        d.line("Z", axes, d.map(read))
    if d.rng.random() < 0.2:
        d.outputs.append("T")


def convolution(d: Draft) -> None:
    stride = d.rng.randint(1, 3)
    d.sizes["n"] = stride * (d.sizes["i"] - 1) + d.sizes["k"] + d.rng.randint(0, 2)
    c = ("c",) if "c" in d.sizes else ()
    o = ("o",) if "o" in d.sizes else ()
    d.input("X", "n", *c)
    place = ", ".join((f"{stride} * i + k" if stride > 1 else "i + k", *c))
    reduced = ("k", *c)
    weight = d.input("W", *("k", *c, *o)) if o or d.rng.random() < 0.7 else "0.5"
    op = d.rng.choice(["sum", "max", "sum"])
    read = d.line("T", ("i", *o), f"{op}[{', '.join(reduced)}](X[{place}] * {weight})", *reduced)
    if d.rng.random() < 0.7:
        d.line("U", ("i", *o), d.map(read))


def window_of_line(d: Draft) -> None:
    """A window over an intermediate."""
    d.sizes["n"] = d.sizes["i"] + d.sizes["k"] - 1
    c = ("c",) if "c" in d.sizes else ()
    d.line("A", ("n", *c), d.map(d.input("X", "n", *c)))
    place = ", ".join(("i + k", *c))
    d.line("T", ("i", *c), f"{d.rng.choice(['sum', 'max'])}[k](A[{place}] * {d.input('W', 'k')})", "k")


def reductions(d: Draft) -> None:
    axes = ("a", "b", "c")
    gone = d.some(axes)[: d.rng.randint(1, 2)]
    kept = tuple(a for a in d.mixed(axes) if a not in gone)
    body = f"{d.input('A', *d.some(axes))} {d.rng.choice('+*-')} {d.input('D', *d.some(axes))}"
    missing = [a for a in axes if f"[{a}" not in body and f" {a}" not in body and f"{a}," not in body]
    if missing:
        body += f" + {d.input('E', *missing)}"
    op = d.rng.choice(["sum", "max", "min", "mean", "prod"])
    body = f"1 + 0.1 * tanh({body})" if op == "prod" else (d.map(body) if d.rng.random() < 0.4 else body)
    if d.rng.random() < 0.3:
        identity = {"sum": "0", "mean": "0", "max": "-inf", "min": "inf", "prod": "1"}[op]
        guard = d.rng.choice(["a <= b", "a >= c", "b < 3", "a + 1 < c", "b == c"])
        body = f"where({guard}, {body}, {identity})"
    tail = d.rng.choice(["", " * 0.5", " + 1"])
    read = d.line("T", kept, f"{op}[{', '.join(gone)}]({body}){tail}", *gone)
    if kept and d.rng.random() < 0.5:
        read = d.line("U", kept, d.map(read) + (f" + {d.input('F', *d.some(kept))}" if d.rng.random() < 0.5 else ""))
    if kept and d.rng.random() < 0.5:
        last = d.rng.choice(kept)
        rest = tuple(a for a in kept if a != last)
        d.sizes["m"] = d.rng.randint(2, 9)
        d.line("Z", (*rest, "m"), f"sum[{last}]({read} * {d.input('W', last, 'm')})", last)


def norms(d: Draft) -> None:
    x = d.input("X", "i", "j")
    norm = d.rng.choice(["sqrt(sum[j]({0} ** 2))", "max[j](abs({0}))", "mean[j]({0} ** 2)", "sum[j](abs({0}))"])
    d.line("N", ("i",), norm.format(x), "j")
    scale = d.rng.choice(["/ sqrt(N[i] + 1)", "/ (N[i] + 1)", "* rsqrt(N[i] + 1e-5)", "- N[i]"])
    read = d.line("Y", ("i", "j"), f"{x} {scale}" + (f" * {d.input('W', 'j')}" if d.rng.random() < 0.7 else ""))
    kind = d.rng.random()
    if kind < 0.5 and "m" in d.sizes:
        d.line("Z", ("i", "m"), f"sum[j]({read} * {d.input('G', 'j', 'm')})", "j")
    elif kind < 0.7:
        d.line("Z", ("j",), f"sum[i]({read})", "i")
    elif kind < 0.85:
        d.line("Z", ("i",), f"{d.rng.choice(['max', 'sum'])}[j]({read})", "j")
    if d.rng.random() < 0.2:
        d.outputs.append(d.rng.choice(["N", "Y"]))


def composites(d: Draft) -> None:
    op = d.rng.choice(["softmax", "layernorm", "rmsnorm", "l2norm", "logsumexp"])
    x = d.input("X", "i", "j")
    left = ("i",) if op == "logsumexp" else ("i", "j")
    if op in ("softmax", "logsumexp") and d.rng.random() < 0.5:
        x = f"where({d.rng.choice(MASKS).replace('x', 'j').replace('q', 'i')}, {x}, -inf)".replace("jor", "xor")
    read = d.line("Y", left, f"{op}[j]({x})" + (f" * {d.input('W', 'j')}" if "j" in left else ""), "j")
    if "j" in left and "m" in d.sizes:
        d.line("Z", ("i", "m"), f"sum[j]({read} * {d.input('G', 'j', 'm')})", "j")


def attention(d: Draft) -> None:
    h = ("h",) if "h" in d.sizes else ()
    g = ("g",) if "g" in d.sizes else ()
    e = "e" if "e" in d.sizes else "d"
    q, x = (*h, *g, "q"), (*h, "x")
    row = (*q, "x")
    scale = d.rng.choice(["", " * 0.5", " / sqrt(d)" if e == "e" else " * 0.25"])
    s = f"sum[d]({d.input('Q', *q, 'd')} * {d.input('K', *x, 'd')}){scale}"
    v = d.input("V", *x, e)
    kind = d.rng.random()
    if kind < 0.25:
        s += f" + {d.input('B', *d.rng.choice([('q',), ('x',), ('q', 'x')]))}"
    elif kind < 0.35:
        s += " - 0.25 * abs(q - x)"
    read = d.line("S", row, s, "d")
    masked = f"where({d.rng.choice(MASKS)}, {read}, -inf)" if d.rng.random() < 0.7 else read
    if d.rng.random() < 0.1:
        masked = f"where({d.input('M', 'q', 'x')} > 0, {masked}, -inf)"
    elif d.rng.random() < 0.15:
        masked = f"where({d.rng.choice(MASKS)}, {masked}, -inf)"
    kind = d.rng.random()
    end = (*q, e)
    if kind < 0.15:
        d.inputs.pop("V")
        d.line("L", q, f"logsumexp[x]({masked})", "x")
        return
    if kind < 0.3:
        if masked != read:
            read = d.line("M2", row, masked)
        o = f"sum[x](softmax[x]({read}) * {v})"
    elif kind < 0.4:
        o = f"sum[x](softmax[x]({masked}) * {v})"
    elif kind < 0.5:
        p = d.line("P", row, masked.replace("-inf", "0"))
        o = f"sum[x]({p} * {v})"
    else:
        p = d.line("P", row, f"softmax[x]({masked})", "x")
        o = f"sum[x]({p} * {v})"
    read = d.line("O", end, o, "x")
    if d.rng.random() < 0.25:
        d.line("Y", end, f"{d.map(read)} * {d.input('R', *d.rng.choice([('q',), (e,), ('q', e)]))}")
    if d.rng.random() < 0.2:
        d.outputs.append(d.rng.choice([n for n, _, _ in d.lines]))


def passes(d: Draft) -> None:
    """Results over an axis that a line indexed by it needs finished; walks of an inner loop in a tail."""
    a = d.input("A", "q", "x")
    b = d.input("B", "x", "e")
    top = d.line("M", ("q",), f"{d.rng.choice(['max', 'sum'])}[x]({a})", "x")
    kind = d.rng.random()
    if kind < 0.4:
        read = d.line("T", ("q", "x"), d.rng.choice([f"tanh({a} - {top})", f"{a} * {top}", f"max({a}, {top})"]))
        if d.rng.random() < 0.6:
            d.line("Z", ("q", "e"), f"{d.rng.choice(['sum', 'max'])}[x]({read} * {b})", "x")
            return
        d.inputs.pop("B")
    elif kind < 0.7:
        d.inputs.pop("B")
        d.line("U", ("q", "e"), f"{top} * {d.input('C', *d.some(('q', 'e')))}")
        if "C[q]" in d.inputs["C"]:
            d.input("C", "e")
            d.lines[-1] = ("U", f"U[q, e] = {top} * C[e]", ("q", "e"))
    else:
        read = d.line("R", ("q", "e"), f"sum[x]({a} * {b})", "x")
        d.line("U", ("q", "e"), f"{d.map(read)} * {top} + {d.input('C', 'e')}")
        if d.rng.random() < 0.4:
            d.line("W", ("q",), f"sum[e](U[q, e] * {d.input('F', 'e')})", "e")
        if d.rng.random() < 0.3:
            d.outputs.append("R")


def chains(d: Draft) -> None:
    """Maps and reductions of maps and reductions, each line of earlier ones and of inputs."""
    axes = ("a", "b", "c")
    made: list[tuple[str, tuple[str, ...]]] = []
    for k in range(d.rng.randint(2, 5)):
        operands = [d.rng.choice(made)] if made else []
        if made and d.rng.random() < 0.4:
            operands.append(d.rng.choice(made))
        name = f"A{k}"
        if not operands or d.rng.random() < 0.6:
            dims = d.some(axes)
            d.input(name, *dims)
            operands.append((name, dims))
        if len(made) > 1 and not any(made[-1][0] in t for _, t, _ in d.lines[-1:]):
            operands.append(made[-1])
        reads = [f"{n}[{', '.join(i)}]" if i else n for n, i in dict(operands).items()]
        have = tuple(dict.fromkeys(a for _, i in operands for a in i))
        text = d.rng.choice([" * ", " + ", " - "]).join(d.map(r) if d.rng.random() < 0.3 else r for r in reads)
        gone = d.some(have)[: d.rng.randint(1, 2)] if len(have) > 1 and d.rng.random() < 0.6 else ()
        if gone:
            op = d.rng.choice(["sum", "max", "sum", "mean"])
            if d.rng.random() < 0.2 and "a" in have and "b" in have and op != "mean":
                text = f"where({d.rng.choice(['a <= b', 'b < a', 'a < 2'])}, {text}, {'-inf' if op == 'max' else 0})"
            text = f"{op}[{', '.join(gone)}]({text})"
        kept = tuple(a for a in d.mixed(have) if a not in gone)
        if not kept:
            continue
        d.line(f"T{k}", kept, text, *gone)
        made.append((f"T{k}", kept))
    if not made:
        d.line("T", ("a",), f"2 * {d.input('B', 'a')}")
    everything = " ".join(t.split(" = ", 1)[1] for _, t, _ in d.lines)
    d.outputs += [n for n, _, _ in d.lines if f"{n}[" not in everything or d.rng.random() < 0.15]


FAMILIES: dict[Callable[[Draft], None], tuple[str, str, int]] = {  # axes always there, axes at times, largest size
    elementwise: ("ij", "kl", 9), shifts: ("i", "c", 11), halo: ("i", "c", 11), convolution: ("ik", "co", 7),
    window_of_line: ("ik", "c", 7), reductions: ("abc", "", 9), norms: ("ij", "m", 9), composites: ("ij", "m", 9),
    attention: ("qxd", "ehg", 9), passes: ("qxe", "", 7),
    chains: ("abc", "", 5),
}  # fmt: skip


def generated(seed: int, family: Callable[[Draft], None] | None = None, wild: bool = False) -> str:
    """One levelled file. ``wild`` adds holds and tiles of axes that are reduced (splits)."""
    rng = random.Random(f"{seed}")
    family = family or rng.choice(list(FAMILIES))
    always, at_times, largest = FAMILIES[family]
    names = [*always, *(a for a in at_times if rng.random() < 0.5)]
    small = {"d": 4, "e": 4, "g": 3, "h": 3, "k": 4, "l": 5, "o": 3, "c": 4} if family is not reductions else {}
    d = Draft(rng, {a: rng.randint(2, min(largest, small.get(a, largest))) for a in names})
    if len(names) > 3:
        d.sizes = {a: min(n, 6) for a, n in d.sizes.items()}
    family(d)
    text = [f'"""generated: seed {seed}"""', ""]
    text[1] = f"{', '.join(d.sizes)} = {', '.join(map(str, d.sizes.values()))}\n"
    text += [*d.inputs.values(), ""]
    start = 0
    while start < len(d.lines):
        end = rng.randint(start + 1, len(d.lines)) if rng.random() < 0.6 else len(d.lines)
        text += block(d, start, end, wild)
        start = end
    last = d.lines[-1][0]
    text += [f"out({o})" for o in dict.fromkeys(d.outputs) if o != last and o in [n for n, _, _ in d.lines]]
    return "\n".join(text) + "\n"


def block(d: Draft, start: int, end: int, wild: bool) -> list[str]:
    """Some lines in a block of their own, with tiles; or one line outside any block."""
    rng = d.rng
    if end - start == 1 and rng.random() < 0.25:
        return [d.lines[start][1]]
    members = d.lines[start:end]
    axes = list(dict.fromkeys(a for _, _, all_axes in members for a in all_axes))
    outside = " ".join(t.split(" = ", 1)[1] for _, t, _ in d.lines[end:])
    stored = [m for m in members if m[0] + "[" in outside or m[0] in d.outputs or m is d.lines[-1]]
    fair = [a for a in axes if all(a in left_axes(m[1]) for m in stored)]
    groups = fair
    if wild and rng.random() < 0.7:  # one reduced axis, beside axes that every state has
        common = [a for a in axes if all(a in left_axes(m[1]) for m in members)]
        gone = [a for a in axes if any(a in m[2] and a not in left_axes(m[1]) for m in members)]
        groups = [*common, *rng.sample(gone, min(len(gone), 1))]
    entries = []
    group = {a: rng.randint(1, d.sizes[a]) for a in rng.sample(groups, min(len(groups), rng.randint(0, 2)))}
    stream = {a: rng.randint(1, d.sizes[a]) for a in rng.sample(axes, min(len(axes), rng.choice([0, 1, 1, 2, 2, 3])))}
    if group:
        entries.append("group={" + ", ".join(f"{a}: {g}" for a, g in group.items()) + "}")
    if stream:
        entries.append("stream={" + ", ".join(f"{a}: {s}" for a, s in stream.items()) + "}")
        if wild and rng.random() < 0.4:
            arrays = [n for n in d.inputs if any(f"{n}[" in m[1] for m in members)]
            if arrays:
                entries.append(f"hold={{{rng.choice(arrays)}: {rng.randint(0, len(stream) - 1)}}}")
    rng.shuffle(entries)
    head = ", ".join(['"smem"', *entries])
    return [f"with level({head}):", *("    " + m[1] for m in members)]


def left_axes(text: str) -> list[str]:
    return text.split("[", 1)[1].split("]", 1)[0].split(", ")
