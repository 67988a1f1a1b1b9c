"""Random rewritings of a diagram into equal mathematics, each checked on numbers before it is accepted.

A rewriting is a sequence of steps; a step is the name of a rule and a number that picks one of its places.
A rule is local (`rewriting_rules.LOCAL`: an expression to expressions) or over lines (`LINES`: a diagram to
diagrams). A step whose result is not finite where the original is (a fully masked row, an overflow) is not
taken; one whose values differ is a bug of its rule and raises `WrongRule`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from random import Random

import numpy as np
from rewriting_rules import LOCAL, Known, div, factors, fixed, mul, product

from ioweave.derive.execution.inputs import draw_inputs
from ioweave.derive.execution.reference import evaluate
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.diagram import Diagram, Line
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import (
    Apply,
    Composite,
    Constant,
    Expr,
    Index,
    Number,
    Read,
    Reduce,
    Scan,
    Size,
    children,
    free_axes,
    reads,
    rebuild,
    rename_axes,
    transform,
    walk,
)
from ioweave.diagrams.notation import parse, print_diagram
from ioweave.diagrams.opening import line_dtype, open_line
from ioweave.diagrams.operators import COMPARISONS, COMPOSITES_THAT_KEEP, PREDICATES
from ioweave.diagrams.sizes import axis_names

TOLERANCE = 1e-6
OPAQUE = COMPARISONS | {"round", "floor", "mod", "floordiv", "int8", "int32", "int64", "bool"}  # a last bit shows
SMALL, PRIMES = (2, 3, 4, 5), (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)

Sizes = Mapping[str, int | float]
Step = tuple[str, float]


class WrongRule(AssertionError):
    """A rule changed the values of a diagram."""


@dataclass(frozen=True, slots=True)
class Case:
    """A diagram on its way: ``axes`` follows the names that the axes of the original have now."""

    diagram: Diagram
    axes: Mapping[str, str]


LineRule = Callable[[Diagram, Random], Iterator[Diagram]]


# Places in expressions


def places(e: Expr, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Expr]]:
    """Every node that may be rewritten, with its path; nothing below a comparison or a rounding."""
    yield path, e
    if isinstance(e, Apply) and e.op in OPAQUE:
        return
    for i, child in enumerate(children(e)):
        if not (isinstance(e, Composite) and i >= len(e.args)):
            yield from places(child, (*path, i))


def put(e: Expr, path: tuple[int, ...], new: Expr) -> Expr:
    """The tree with the node at ``path`` replaced."""
    if not path:
        return new
    kids = list(children(e))
    kids[path[0]] = put(kids[path[0]], path[1:], new)
    return rebuild(e, tuple(kids))


def known_of(diagram: Diagram) -> Known:
    facts = {i.name for i in diagram.inputs if i.fact is not None and i.fact[0] in (">",) and i.fact[1] >= 0}
    lines = {line.name: (line.axes, line.expr) for line in diagram.lines}
    return Known(lines, frozenset(facts), {n: float(v) for n, v in diagram.values().items()})


def locally(diagram: Diagram, name: str) -> Iterator[Diagram]:
    """What one application of a local rule makes of a diagram."""
    known, rule = known_of(diagram), LOCAL[name]
    for line in diagram.lines:
        for path, node in places(line.expr):
            for new in rule(node, known):
                yield with_line(diagram, replace(line, expr=put(line.expr, path, new)))


def with_line(diagram: Diagram, new: Line, before: Sequence[Line] = ()) -> Diagram:
    """The diagram with one line replaced, and lines set before it."""
    lines: list[Line] = []
    for line in diagram.lines:
        lines.extend([*before, new] if line.name == new.name else [line])
    return replace(diagram, lines=tuple(lines))


def without_dead_lines(diagram: Diagram) -> Diagram:
    """The diagram without the lines that nothing reads any more."""
    wanted, kept = set(diagram.outputs), list[Line]()
    for line in reversed(diagram.lines):
        if line.name in wanted:
            wanted |= {r.array for r in reads(line.expr)}
            kept.append(line)
    return replace(diagram, lines=tuple(reversed(kept)))


def taken(diagram: Diagram) -> set[str]:
    return {x.name for part in (diagram.definitions, diagram.inputs, diagram.lines) for x in part}


def fresh(diagram: Diagram, stem: str) -> str:
    names = taken(diagram)
    return next(n for n in (f"{stem}{i}" for i in count(1)) if n not in names)


def dtypes(diagram: Diagram) -> dict[str, str]:
    known = {i.name: i.dtype for i in diagram.inputs}
    for line in diagram.lines:
        known[line.name] = line_dtype(line, known)
    return known


def plain_read(r: Read) -> bool:
    """Whether a read names each position by an axis of its own."""
    bare = [form.bare for form in r.index]
    return None not in bare and len(set(bare)) == len(bare)


# Rules over lines


def name_a_part(diagram: Diagram, random: Random) -> Iterator[Diagram]:
    """A sub-expression as a line of its own."""
    kinds = dtypes(diagram)
    for line in diagram.lines:
        for path, node in places(line.expr):
            arrays = reads(node)
            if not path or isinstance(node, Read) or not arrays or not all(plain_read(r) for r in arrays):
                continue
            if (isinstance(node, Apply) and node.op in PREDICATES) or any(kinds[r.array][0] in "ib" for r in arrays):
                continue
            axes = free_axes(node)
            if any(isinstance(n, Composite) and n.op in COMPOSITES_THAT_KEEP and not set(n.axes) <= set(axes)
                   for n in walk(node)):  # fmt: skip
                continue
            part = Line(fresh(diagram, "N"), axes, node)
            read = Read(part.name, tuple(Affine.axis(a) for a in axes))
            yield with_line(diagram, replace(line, expr=put(line.expr, path, read)), [part])


def inline(diagram: Diagram, random: Random, reducing: bool = False) -> Iterator[Diagram]:
    """A line written into its readers and dropped."""
    for line in diagram.lines:
        users = [r for other in diagram.lines for n in walk(other.expr) if isinstance(r := n, Read)]
        mine = [r for r in users if r.array == line.name]
        has = any(isinstance(n, Reduce | Composite) for n in walk(line.expr))
        if line.name in diagram.outputs or line.dtype or not 1 <= len(mine) <= 2 or has != reducing:
            continue
        if any(isinstance(n, Scan) or (isinstance(n, Reduce) and n.into) for n in walk(line.expr)):
            continue  # lines of their own by the notation
        if not all(can_substitute(line, r) for r in mine):
            continue

        def swap(node: Expr, line: Line = line) -> Expr:
            return substituted(line, node) if isinstance(node, Read) and node.array == line.name else node

        kept = tuple(replace(x, expr=transform(x.expr, swap)) for x in diagram.lines if x is not line)
        yield replace(diagram, lines=kept)


def inline_reduction(diagram: Diagram, random: Random) -> Iterator[Diagram]:
    """A line with a reduction written into its readers and dropped."""
    return inline(diagram, random, reducing=True)


def can_substitute(line: Line, r: Read) -> bool:
    names = dict(zip(line.axes, (form.bare for form in r.index), strict=True))
    if not plain_read(r):
        return False
    bound = {a for n in walk(line.expr) if isinstance(n, Reduce | Composite) for a in n.axes}
    return all(a == b for a, b in names.items()) or not bound & (set(names) | set(names.values()))


def substituted(line: Line, r: Read) -> Expr:
    names = {a: form.bare or a for a, form in zip(line.axes, r.index, strict=True)}
    return rename_axes(line.expr, names)


def open_a_line(diagram: Diagram, random: Random) -> Iterator[Diagram]:
    """A composite opened into lines."""
    for line in diagram.lines:
        if any(isinstance(n, Composite | Reduce) for n in walk(line.expr)) and line.dtype is None:
            opened = open_line(diagram, line.name)
            if len(opened.lines) > len(diagram.lines):
                yield opened


def scale_an_operand(diagram: Diagram, random: Random) -> Iterator[Diagram]:
    """A constant factor of a sum of products on one of the arrays it reads, as a line of its own."""
    for line in diagram.lines:
        for path, node in places(line.expr):
            if not (isinstance(node, Apply) and node.op in ("mul", "div")):
                continue
            up, down = factors(node)
            sums = [i for i, f in enumerate(up) if isinstance(f, Reduce) and f.op == "sum" and f.where is None]
            for i in sums:
                total = up[i]
                assert isinstance(total, Reduce)
                inner, below = factors(total.body)
                for j, r in enumerate(inner):
                    if not (isinstance(r, Read) and r.index and plain_read(r)):
                        continue
                    axes = tuple(form.bare or "" for form in r.index)
                    for k, c in enumerate([*up, *down]):
                        if not fixed(c) or c == Number(1):
                            continue
                        scaled = mul(r, c) if k < len(up) else div(r, c)
                        part = Line(fresh(diagram, "R"), axes, scaled)
                        new_inner = [*inner[:j], Read(part.name, r.index), *inner[j + 1 :]]
                        new = Reduce("sum", total.axes, product(new_inner, below))
                        rest_up = [new if n == i else f for n, f in enumerate(up) if n != k]
                        rest_down = [f for n, f in enumerate(down) if n + len(up) != k]
                        changed = put(line.expr, path, product(rest_up, rest_down))
                        yield with_line(diagram, replace(line, expr=changed), [part])


def duplicate(diagram: Diagram, random: Random) -> Iterator[Diagram]:
    """A second copy of a line, for one of its readers."""
    for line in diagram.lines:
        users = [x for x in diagram.lines if any(r.array == line.name for r in reads(x.expr))]
        if len(users) < 2:
            continue
        copy = replace(line, name=fresh(diagram, line.name.replace(".", "")))
        for user in users:

            def swap(node: Expr, old: str = line.name, new: str = copy.name) -> Expr:
                return replace(node, array=new) if isinstance(node, Read) and node.array == old else node

            changed = replace(user, expr=transform(user.expr, swap))
            yield with_line(diagram, changed, [copy])


def reorder(diagram: Diagram, random: Random) -> Iterator[Diagram]:
    """Independent lines in another order of evaluation, the last line last."""
    if len(diagram.lines) < 3:
        return
    left, done, lines = list(diagram.lines[:-1]), {i.name for i in diagram.inputs}, list[Line]()
    while left:
        ready = [x for x in left if all(r.array in done for r in reads(x.expr))]
        line = random.choice(ready)
        left.remove(line)
        done.add(line.name)
        lines.append(line)
    if tuple(lines) != diagram.lines[:-1]:
        yield replace(diagram, lines=(*lines, diagram.lines[-1]))


LINES: dict[str, LineRule] = {
    "name_a_part": name_a_part,
    "inline": inline,
    "inline_reduction": inline_reduction,
    "open_a_line": open_a_line,
    "scale_an_operand": scale_an_operand,
    "duplicate": duplicate,
    "reorder": reorder,
}
RENAME = "rename"
RULES = (*LOCAL, *LINES, RENAME)


def renamed(case: Case, random: Random) -> Case:
    """Every name of the diagram replaced by another: axes, constants, inputs and lines."""
    diagram = case.diagram
    old = sorted(taken(diagram))
    pool = [f"{letter}{n}" for letter in "abcghijkABCGHJL" for n in range(1, 10)]
    names = dict(zip(old, random.sample(sorted(set(pool) - set(old)), len(old)), strict=True))

    def form(f: Affine) -> Affine:
        return Affine.make(
            {names[a]: c for a, c in f.axes}, {names[s]: c for s, c in f.sizes}, f.offset, dict(f.lookups)
        )

    def node(e: Expr) -> Expr:
        match e:
            case Constant(name=name):
                return Constant(names[name])
            case Index(axis=axis):
                return Index(names[axis])
            case Size(axis=axis):
                return Size(names[axis])
            case Read(array=array, index=index):
                return Read(names[array], tuple(form(f) for f in index))
            case Scan(axis=axis):
                return replace(e, axis=names[axis])
            case Reduce(axes=axes, into=into):
                return replace(e, axes=tuple(names[a] for a in axes), into=into and names[into])
            case Composite(axes=axes):
                return replace(e, axes=tuple(names[a] for a in axes))
        return e

    new = replace(
        diagram,
        definitions=tuple(replace(d, name=names[d.name], value=transform(d.value, node)) for d in diagram.definitions),
        inputs=tuple(replace(i, name=names[i.name], dims=tuple(form(f) for f in i.dims)) for i in diagram.inputs),
        lines=tuple(
            replace(x, name=names[x.name], axes=tuple(names[a] for a in x.axes), expr=transform(x.expr, node))
            for x in diagram.lines
        ),
        outputs=tuple(names[o] for o in diagram.outputs),
    )
    return Case(new, {a: names[b] for a, b in case.axes.items()})


# The check on numbers


def small_sizes(diagram: Diagram, numbers: Sequence[int]) -> dict[str, int | float]:
    """Every size and constant, free axes given ``numbers`` in turn (again from the first after the last)."""
    axes = set(axis_names(diagram))
    free = [d.name for d in diagram.definitions if d.name in axes and isinstance(d.value, Number)]
    return diagram.values({n: numbers[i % len(numbers)] for i, n in enumerate(free)})


@lru_cache(maxsize=64)
def answers(diagram: Diagram, seed: int) -> tuple[np.ndarray, ...]:
    """The outputs on random inputs at small sizes."""
    values = small_sizes(diagram, SMALL)
    inputs = draw_inputs(diagram, values, seed)
    arrays = evaluate(diagram, values, inputs)
    return tuple(np.asarray(arrays[o], dtype=float) for o in diagram.outputs)


def equal(old: Diagram, new: Diagram, seeds: Sequence[int] = (0, 1)) -> bool:
    """Whether the outputs agree; False where the new ones do not exist. Raises `WrongRule` where they differ."""
    for seed in seeds:
        for a, b in zip(answers(old, seed), answers(new, seed), strict=True):
            here, there = np.isfinite(a), np.isfinite(b)
            if (here & ~there).any() or (np.isneginf(a) & ~np.isneginf(b)).any():
                return False
            both = here & there
            scale = np.max(np.abs(a[both]), initial=1e-300)
            if not np.allclose(a[both], b[both], rtol=TOLERANCE, atol=TOLERANCE * 1e-2 * scale):
                raise WrongRule(f"{print_diagram(old)}\nis not\n\n{print_diagram(new)}")
    return True


# Sequences of steps


def options(case: Case, rule: str, random: Random) -> list[Case]:
    """What one step of a rule may give."""
    if rule == RENAME:
        return [renamed(case, random)]
    made = locally(case.diagram, rule) if rule in LOCAL else LINES[rule](case.diagram, random)
    return [Case(without_dead_lines(d), case.axes) for d in made if d != case.diagram]


def step(case: Case, rule: str, where: float) -> Case | None:
    """The case after one step, or None where the rule has no place or the values do not exist."""
    found = options(case, rule, Random(int(where * 2**32)))
    if not found:
        return None
    new = found[int(where * len(found))]
    try:
        new = replace(new, diagram=parse(print_diagram(new.diagram)))  # what a reader of the text would see
    except WeaveError as error:
        raise WrongRule(f"{rule}: {error}\n{print_diagram(new.diagram)}") from error
    return new if equal(case.diagram, new.diagram) else None


def start(diagram: Diagram) -> Case:
    return Case(diagram, {a: a for a in axis_names(diagram)})


def follow(diagram: Diagram, steps: Sequence[Step]) -> Case:
    """The case after these steps; one that does not apply is left out."""
    case = start(diagram)
    for rule, where in steps:
        case = step(case, rule, where) or case
    return case


def draw(
    diagram: Diagram, seed: str, rules: Sequence[str] = RULES, least: int = 3, most: int = 10, largest: int = 1500
) -> tuple[list[Step], Case]:
    """A random sequence of ``least`` to ``most`` steps that apply, and the case that they give.

    Texts grow to ``largest`` characters.
    """
    random, case, steps = Random(seed), start(diagram), list[Step]()
    wanted = random.randint(least, most)
    for _ in range(10 * wanted):
        rule, where = random.choice(rules), random.random()
        new = step(case, rule, where)
        if new is not None and len(print_diagram(new.diagram)) <= largest:
            case = new
            steps.append((rule, where))
        if len(steps) == wanted:
            break
    return steps, case


def shrunk(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """A sequence from which no step can be left out without losing the failure."""
    kept = list(steps)
    again = True
    while again:
        again = False
        for i in range(len(kept)):
            fewer = kept[:i] + kept[i + 1 :]
            if fails(fewer):
                kept, again = fewer, True
                break
    return kept
