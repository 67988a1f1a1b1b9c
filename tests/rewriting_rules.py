"""Equal mathematics, one expression at a time: each rule gives what an expression may be replaced by.

Equality is over the reals and where the values exist. `LOCAL` names the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

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
    free_axes,
    walk,
)

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
HALF = Number(0.5)
ONE, TWO, MINUS = Number(1), Number(2), Number(-1)
NEVER = Number(float("-inf"))
SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne", "and": "and", "or": "or"}
OPPOSITE = {"lt": "ge", "gt": "le", "le": "gt", "ge": "lt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class Known:
    """What a rule may use: every line's expression and axes, positive inputs, and the numbers of constants."""

    lines: Mapping[str, tuple[tuple[str, ...], Expr]]
    positive: frozenset[str]
    constants: Mapping[str, float]


Rule = Callable[[Expr, Known], Iterator[Expr]]


def op(name: str, *args: Expr) -> Expr:
    """The operator ``name`` applied."""
    return Apply(name, args)


def add(a: Expr, b: Expr) -> Expr:
    return op("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return op("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return op("mul", a, b)


def div(a: Expr, b: Expr) -> Expr:
    return op("div", a, b)


def sizes(axes: tuple[str, ...]) -> Expr:
    """The number of elements of these axes."""
    total: Expr = Size(axes[0])
    for a in axes[1:]:
        total = mul(total, Size(a))
    return total


def fixed(e: Expr) -> bool:
    """Whether a value is one number: no array is read and no index stands in it."""
    return not any(isinstance(n, Read | Index | Reduce | Composite) for n in walk(e))


def positive(e: Expr, known: Known) -> bool:
    """Whether a value is surely above zero."""
    match e:
        case Number(value=value):
            return not isinstance(value, bool) and value > 0
        case Size():
            return True
        case Constant(name=name):
            return known.constants.get(name, 0) > 0
        case Read(array=array):
            return array in known.positive or (array in known.lines and positive(known.lines[array][1], known))
        case Apply("exp" | "exp2" | "sigmoid"):
            return True
        case Apply("sqrt" | "rsqrt", (a,)) | Apply("pow", (a, _)):
            return positive(a, known)
        case Apply("mul" | "div" | "add" | "max" | "min", (a, b)):
            return positive(a, known) and positive(b, known)
        case Reduce(op="sum" | "mean" | "max" | "min" | "prod", body=body, where=None):
            return positive(body, known)
    return False


def factors(e: Expr) -> tuple[list[Expr], list[Expr]]:
    """A product's factors above and below the line, in order."""
    match e:
        case Apply("mul", (a, b)):
            (up, down), (up2, down2) = factors(a), factors(b)
            return up + up2, down + down2
        case Apply("div", (a, b)):
            (up, down), (up2, down2) = factors(a), factors(b)
            return up + down2, down + up2
    return [e], []


def product(up: list[Expr], down: list[Expr]) -> Expr:
    """The product of the one over the product of the other, from the left."""
    above = [u for u in up if u != ONE]
    result: Expr = above[0] if above else ONE
    for u in above[1:]:
        result = mul(result, u)
    for d in (d for d in down if d != ONE):
        result = div(result, d)
    return result


def commute(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("add" | "mul" | "max" | "min" as name, (a, b)):
            yield op(name, b, a)


def reassociate(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("add" | "mul" as name, (Apply(inner, (a, b)), c)) if inner == name:
            yield op(name, a, op(name, b, c))
        case Apply("mul", (Apply("div", (a, b)), c)):
            yield div(mul(a, c), b)
        case Apply("div", (Apply("mul", (a, b)), c)):
            yield mul(a, div(b, c))
        case Apply("div", (Apply("div", (a, b)), c)):
            yield div(a, mul(b, c))
        case Apply("sub", (Apply("add" | "sub" as name, (a, b)), c)):
            yield op(name, sub(a, c), b)
    match e:
        case Apply("add" | "mul" as name, (a, Apply(inner, (b, c)))) if inner == name:
            yield op(name, op(name, a, b), c)
        case Apply("mul", (a, Apply("div", (b, c)))):
            yield div(mul(a, b), c)
        case Apply("div", (a, Apply("mul", (b, c)))):
            yield div(div(a, b), c)
        case Apply("div", (a, Apply("div", (b, c)))):
            yield div(mul(a, c), b)
        case Apply("sub", (a, Apply("add", (b, c)))):
            yield sub(sub(a, b), c)


def distribute(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("mul", (a, Apply("add" | "sub" as name, (b, c)))):
            yield op(name, mul(a, b), mul(a, c))
    match e:
        case Apply("mul", (Apply("add" | "sub" as name, (b, c)), a)):
            yield op(name, mul(b, a), mul(c, a))
        case Apply("div", (Apply("add" | "sub" as name, (b, c)), a)):
            yield op(name, div(b, a), div(c, a))
        case Apply("neg", (Apply("add", (a, b)),)):
            yield sub(op("neg", a), b)
        case Apply("neg", (Apply("sub", (a, b)),)):
            yield sub(b, a)
        case Apply("pow", (Apply("mul", (a, b)), Number(value=int()) as n)):
            yield mul(op("pow", a, n), op("pow", b, n))


def factor(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("add" | "sub" as name, (a, b)):
            (up, down), (up2, down2) = factors(a), factors(b)
            for f in up:
                if f in up2 and f != ONE:
                    rest, rest2 = list(up), list(up2)
                    rest.remove(f)
                    rest2.remove(f)
                    yield mul(f, op(name, product(rest, down), product(rest2, down2)))
            for f in down:
                if f in down2:
                    rest, rest2 = list(down), list(down2)
                    rest.remove(f)
                    rest2.remove(f)
                    yield div(op(name, product(up, rest), product(up2, rest2)), f)


def divide(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("div", (a, b)):
            yield mul(a, div(ONE, b))
            yield mul(a, op("pow", b, MINUS))
        case Apply("mul", (a, Apply("div", (Number(value=1), b)))):
            yield div(a, b)
        case Apply("mul", (a, Apply("pow", (b, Number(value=-1))))):
            yield div(a, b)
        case Apply("masked_div", (a, b)):
            yield div(a, b)


def exp_base(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("exp", (a,)):
            yield op("exp2", mul(a, Number(LOG2E)))
            yield op("exp2", mul(Number(LOG2E), a))
            yield op("exp2", div(a, Number(LN2)))
        case Apply("exp2", (Apply("mul", (a, Number(value=value))),)) if value == LOG2E:
            yield op("exp", a)
        case Apply("log", (a,)):
            yield mul(op("log2", a), Number(LN2))
            yield div(op("log2", a), Number(LOG2E))


def exp_sum(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("exp" | "exp2" as name, (Apply("sub" | "masked_sub", (a, b)),)):
            yield div(op(name, a), op(name, b))
            yield mul(op(name, a), op(name, op("neg", b)))
        case Apply("exp" | "exp2" as name, (Apply("add", (a, b)),)):
            yield mul(op(name, a), op(name, b))
        case Apply("mul", (Apply("exp" | "exp2" as name, (a,)), Apply(other, (b,)))) if name == other:
            yield op(name, add(a, b))
        case Apply("div", (Apply("exp" | "exp2" as name, (a,)), Apply(other, (b,)))) if name == other:
            yield op(name, sub(a, b))


def roots(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("sqrt", (a,)):
            yield op("pow", a, HALF)
            yield div(ONE, op("rsqrt", a))
        case Apply("rsqrt", (a,)):
            yield div(ONE, op("sqrt", a))
            yield op("pow", a, Number(-0.5))
        case Apply("pow", (a, Number(value=0.5))):
            yield op("sqrt", a)
        case Apply("pow", (a, Number(value=-0.5))):
            yield op("rsqrt", a)
        case Apply("div", (a, Apply("sqrt", (b,)))):
            yield mul(a, op("rsqrt", b))


def squares(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("pow", (a, Number(value=2))):
            yield mul(a, a)
        case Apply("pow", (a, Number(value=int() as n))) if n > 2:
            yield mul(a, op("pow", a, Number(n - 1)))
        case Apply("mul", (a, b)) if a == b:
            yield op("pow", a, TWO)
    match e:
        case Apply("pow", (Apply("sub" | "add" as name, (a, b)), Number(value=2))):
            double = mul(mul(TWO, a), b)
            yield add(op(name, op("pow", a, TWO), double), op("pow", b, TWO))
        case Apply("add", (Apply("sub" | "add" as name, (Apply("pow", (a, two)), cross)), Apply("pow", (b, two2)))):
            if two == two2 == TWO and cross == mul(mul(TWO, a), b):
                yield op("pow", op(name, a, b), TWO)


def means(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Reduce("mean", axes, body, None):
            yield div(Reduce("sum", axes, body), sizes(axes))
            yield Reduce("sum", axes, div(body, sizes(axes)))
            yield mul(Reduce("sum", axes, body), div(ONE, sizes(axes)))
        case Apply("div", (Reduce("sum", axes, body, None), Size() as s)) if sizes(axes) == s:
            yield Reduce("mean", axes, body)


def out_of_a_sum(e: Expr, known: Known) -> Iterator[Expr]:
    """A factor of every term, taken out."""
    match e:
        case Reduce("sum" | "mean" as name, axes, body, where):
            up, down = factors(body)
            for i, f in enumerate(up):
                if len(up) > 1 and not set(free_axes(f)) & set(axes):
                    yield mul(Reduce(name, axes, product(up[:i] + up[i + 1 :], down), where), f)
            for i, f in enumerate(down):
                if not set(free_axes(f)) & set(axes):
                    yield div(Reduce(name, axes, product(up, down[:i] + down[i + 1 :]), where), f)


def into_a_sum(e: Expr, known: Known) -> Iterator[Expr]:
    """A factor of a sum, on every term."""
    for up, down in (factors(e),) if isinstance(e, Apply) and e.op in ("mul", "div") else ():
        for i, r in enumerate(up):
            match r:
                case Reduce("sum" | "mean" as name, axes, body, where):
                    rest = up[:i] + up[i + 1 :]
                    for j, f in enumerate(rest):
                        if not set(free_axes(f)) & set(axes):
                            left = rest[:j] + rest[j + 1 :]
                            yield product([Reduce(name, axes, mul(body, f), where), *left], down)
                    for j, f in enumerate(down):
                        if not set(free_axes(f)) & set(axes):
                            yield product([Reduce(name, axes, div(body, f), where), *rest], down[:j] + down[j + 1 :])


def split_sum(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Reduce("sum" | "mean" as name, axes, Apply("add" | "sub" as inner, (a, b)), None):
            if set(axes) <= set(free_axes(a)) and set(axes) <= set(free_axes(b)):
                yield op(inner, Reduce(name, axes, a), Reduce(name, axes, b))


def join_sums(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("add" | "sub" as inner, (Reduce(name, axes, a, None), Reduce(other, axes2, b, None))):
            if name == other and name in ("sum", "mean") and axes == axes2:
                yield Reduce(name, axes, op(inner, a, b))


def extremes(e: Expr, known: Known) -> Iterator[Expr]:
    """Increasing maps through a maximum or minimum."""
    match e:
        case Reduce("max" | "min" as name, axes, Apply("add" | "sub" | "mul" | "div" as f, (a, c)), None):
            if not set(free_axes(c)) & set(axes) and (f in ("add", "sub") or positive(c, known)):
                yield op(f, Reduce(name, axes, a), c)
        case Apply("add" | "sub" | "mul" | "div" as f, (Reduce("max" | "min" as name, axes, a, None), c)):
            if not set(free_axes(c)) & set(axes) and (f in ("add", "sub") or positive(c, known)):
                yield Reduce(name, axes, op(f, a, c))
        case Reduce("max", axes, Apply("neg", (a,)), None):
            yield op("neg", Reduce("min", axes, a))
        case Reduce("max", axes, a, None):
            yield op("neg", Reduce("min", axes, op("neg", a)))


def masks(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("where", (c, a, b)):
            yield op("where", op("not", c), b, a)
            if isinstance(c, Apply) and c.op in OPPOSITE:
                yield op("where", op(OPPOSITE[c.op], *c.args), b, a)
            if b == NEVER:
                yield add(a, op("where", c, Number(0), NEVER))
            if isinstance(b, Number) and b.value == 0:
                yield mul(a, op("where", c, ONE, Number(0)))
        case Reduce(name, axes, body, where) if where is not None and name in ("sum", "max"):
            yield Reduce(name, axes, op("where", where, body, Number(0) if name == "sum" else NEVER))
    match e:
        case Apply("add", (a, Apply("where", (c, Number(value=0), Number() as never)))) if never == NEVER:
            yield op("where", c, a, NEVER)
        case Reduce("sum" | "max" as name, axes, Apply("where", (c, a, other)), None):
            if other == (Number(0) if name == "sum" else NEVER):
                yield Reduce(name, axes, a, c)


def predicates(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply(name, (a, b)) if name in SWAPPED:
            yield op(SWAPPED[name], b, a)
            if name in OPPOSITE:
                yield op("not", op(OPPOSITE[name], a, b))


def signs(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("neg", (Apply("neg", (a,)),)):
            yield a
        case Apply("neg", (Apply("mul", (a, b)),)):
            yield mul(op("neg", a), b)
            yield mul(a, op("neg", b))
        case Apply("neg", (a,)):
            yield mul(MINUS, a)
        case Apply("sub", (a, b)):
            yield add(a, op("neg", b))
            yield op("neg", sub(b, a))
        case Apply("masked_sub", (a, b)):
            yield sub(a, b)
        case Read():
            yield op("neg", op("neg", e))


def logarithms(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("log", (Apply("mul" | "div" as f, (a, b)),)) if positive(a, known) and positive(b, known):
            yield op("add" if f == "mul" else "sub", op("log", a), op("log", b))
        case Apply("add" | "sub" as f, (Apply("log", (a,)), Apply("log", (b,)))):
            yield op("log", op("mul" if f == "add" else "div", a, b))
        case Apply("log", (Apply("exp", (a,)),)):
            yield a
        case Apply("log", (Apply("pow", (a, n)),)) if positive(a, known):
            yield mul(n, op("log", a))


def shift_scores(e: Expr, known: Known) -> Iterator[Expr]:
    """One constant added to all scores."""
    match e:
        case Composite("softmax", axes, (a,), options):
            yield Composite("softmax", axes, (add(a, Number(3)),), options)
            yield Composite("softmax", axes, (sub(a, Reduce("max", axes, a)),), options)
            yield Composite("softmax", axes, (add(a, sizes(axes)),), options)
            match a:
                case Apply("add" | "sub", (b, c)) if not set(free_axes(c)) & set(axes):
                    yield Composite("softmax", axes, (b,), options)
        case Composite("logsumexp", axes, (a,), options):
            yield sub(Composite("logsumexp", axes, (add(a, TWO),), options), TWO)


def by_hand(e: Expr, known: Known) -> Iterator[Expr]:
    """A composite written out, with the maximum and without."""
    if not (isinstance(e, Composite) and set(e.axes) <= set(free_axes(e.args[0]))):
        return
    axes, a, options = e.axes, e.args[0], dict(e.options)
    top = Reduce("max", axes, a)
    match e.op:
        case "softmax":
            yield div(op("exp", sub(a, top)), Reduce("sum", axes, op("exp", sub(a, top))))
            yield div(op("exp", a), Reduce("sum", axes, op("exp", a)))
            yield op("exp", sub(a, Composite("logsumexp", axes, (a,))))
        case "logsumexp":
            yield add(top, op("log", Reduce("sum", axes, op("exp", sub(a, top)))))
            yield op("log", Reduce("sum", axes, op("exp", a)))
        case "l2norm":
            yield div(a, op("sqrt", Reduce("sum", axes, mul(a, a))))
        case "rmsnorm":
            eps = options.get("eps", Number(1e-5))
            yield mul(a, op("rsqrt", add(Reduce("mean", axes, op("pow", a, TWO)), eps)))
            yield div(a, op("sqrt", add(div(Reduce("sum", axes, mul(a, a)), sizes(axes)), eps)))
        case "layernorm":
            eps = options.get("eps", Number(1e-5))
            mean = Reduce("mean", axes, a)
            yield div(sub(a, mean), op("sqrt", add(Reduce("mean", axes, op("pow", sub(a, mean), TWO)), eps)))
            square = sub(Reduce("mean", axes, op("pow", a, TWO)), op("pow", mean, TWO))
            yield mul(sub(a, mean), op("rsqrt", add(square, eps)))


def functions(e: Expr, known: Known) -> Iterator[Expr]:
    match e:
        case Apply("relu", (a,)):
            yield op("max", a, Number(0))
            yield op("where", op("gt", a, Number(0)), a, Number(0))
        case Apply("silu", (a,)):
            yield mul(a, op("sigmoid", a))
            yield div(a, add(ONE, op("exp", op("neg", a))))
        case Apply("sigmoid", (a,)):
            yield div(ONE, add(ONE, op("exp", op("neg", a))))


def variances(e: Expr, known: Known) -> Iterator[Expr]:
    """The mean square of what is left of a mean, in the other forms."""
    match e:
        case Reduce("mean", axes, Apply("pow", (Apply("sub", (x, mu)), Number(value=2))), None):
            if is_mean(mu, axes, x, known):
                square = Reduce("mean", axes, op("pow", x, TWO))
                yield sub(square, op("pow", mu, TWO))
                yield sub(square, mul(mu, mu))
                yield div(Reduce("sum", axes, mul(sub(x, mu), x)), sizes(axes))


def is_mean(mu: Expr, axes: tuple[str, ...], x: Expr, known: Known) -> bool:
    """Whether ``mu`` is the mean of ``x``, or reads a line that is."""
    if isinstance(mu, Read) and mu.array in known.lines:
        line_axes, mean = known.lines[mu.array]
        return tuple(form.bare for form in mu.index) == line_axes and mean == Reduce("mean", axes, x)
    return mu == Reduce("mean", axes, x)


def neutral(e: Expr, known: Known) -> Iterator[Expr]:
    if isinstance(e, Read):
        yield mul(e, ONE)
        yield add(e, Number(0))
        yield div(mul(TWO, e), TWO)


LOCAL: dict[str, Rule] = {
    "commute": commute,
    "reassociate": reassociate,
    "distribute": distribute,
    "factor": factor,
    "divide": divide,
    "exp_base": exp_base,
    "exp_sum": exp_sum,
    "roots": roots,
    "squares": squares,
    "means": means,
    "out_of_a_sum": out_of_a_sum,
    "into_a_sum": into_a_sum,
    "split_sum": split_sum,
    "join_sums": join_sums,
    "extremes": extremes,
    "masks": masks,
    "predicates": predicates,
    "signs": signs,
    "logarithms": logarithms,
    "shift_scores": shift_scores,
    "by_hand": by_hand,
    "functions": functions,
    "variances": variances,
    "neutral": neutral,
}
assert math.isclose(LOG2E * LN2, 1)
