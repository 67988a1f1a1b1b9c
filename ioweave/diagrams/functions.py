"""Functions of named-axis arrays: elementwise ones, reductions, contractions and composites.

>>> from ioweave.diagrams.named import array, axes
>>> t, m = axes("t m", t=8192, m=4096)
>>> X = array("X", t, m)
>>> mean(X**2, over=m).axes
('t',)
>>> softmax(X, over=m).axes
('t', 'm')

A trailing underscore sets a reduction apart from Python's own function of that name.
"""

from __future__ import annotations

import math

from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.named import (
    Array,
    Axis,
    Operand,
    Over,
    apply,
    composite,
    lift,
    listed,
    over_axes,
    reduce,
)
from ioweave.diagrams.operators import KEEP, REVERSED
from ioweave.diagrams.parts import check_dtype
from ioweave.diagrams.stepping import scan as scan

inf = math.inf


def exp(a: Operand) -> Array:
    """E to the power of each value."""
    return apply("exp", a)


def exp2(a: Operand) -> Array:
    """2 to the power of each value."""
    return apply("exp2", a)


def log(a: Operand) -> Array:
    """The natural logarithm of each value."""
    return apply("log", a)


def log2(a: Operand) -> Array:
    """The logarithm to base 2 of each value."""
    return apply("log2", a)


def sqrt(a: Operand) -> Array:
    """The square root of each value; of ``d.size`` for the root of a size."""
    return apply("sqrt", a)


def rsqrt(a: Operand) -> Array:
    """One over the square root of each value."""
    return apply("rsqrt", a)


def tanh(a: Operand) -> Array:
    """The hyperbolic tangent of each value."""
    return apply("tanh", a)


def sigmoid(a: Operand) -> Array:
    """1 / (1 + exp(-a)) of each value."""
    return apply("sigmoid", a)


def silu(a: Operand) -> Array:
    """A * sigmoid(a) of each value."""
    return apply("silu", a)


def gelu(a: Operand) -> Array:
    """A times the normal distribution function of a."""
    return apply("gelu", a)


def relu(a: Operand) -> Array:
    """Each value, or 0 where it is negative."""
    return apply("relu", a)


def erf(a: Operand) -> Array:
    """The error function of each value."""
    return apply("erf", a)


def sin(a: Operand) -> Array:
    """The sine of each value."""
    return apply("sin", a)


def cos(a: Operand) -> Array:
    """The cosine of each value."""
    return apply("cos", a)


def floor(a: Operand) -> Array:
    """The largest integer not above each value."""
    return apply("floor", a)


def round_(a: Operand) -> Array:
    """Each value rounded to an integer, half to even."""
    return apply("round", a)


def maximum(a: Operand, b: Operand) -> Array:
    """The larger of two values, elementwise; `max_` is the reduction."""
    return apply("max", a, b)


def minimum(a: Operand, b: Operand) -> Array:
    """The smaller of two values, elementwise; `min_` is the reduction."""
    return apply("min", a, b)


def where(condition: Operand, a: Operand, b: Operand) -> Array:
    """``a`` where the condition holds, else ``b``: ``where(x <= q, S, -inf)``."""
    return apply("where", condition, a, b)


def masked_sub(a: Operand, b: Operand) -> Array:
    """``a - b``, which keeps -inf where ``a`` is -inf."""
    return apply("masked_sub", a, b)


def masked_div(a: Operand, b: Operand) -> Array:
    """``a / b``, which keeps 0 where ``a`` is 0."""
    return apply("masked_div", a, b)


def cast(a: Operand, dtype: str) -> Array:
    """Each value rounded to ``dtype``; a cast is part of the function. WeaveError for an unknown dtype."""
    check_dtype("cast", dtype)
    return apply(dtype, a)


def dot(a: Operand, b: Operand, *more: Operand, over: Over) -> Array:
    """The sum over axes of the product of two or more arrays.

    Raises WeaveError for an axis that none of them has.
    """
    product = apply("mul", a, b)
    for factor in more:
        product = apply("mul", product, factor)
    for axis in over_axes(over)[0]:
        if axis not in product.axes:
            raise WeaveError(
                f"dot over {axis}: no operand has it; their axes are [{', '.join(product.axes)}], sum over one of these"
            )
    return reduce("sum", product, over)


def sum_(a: Operand, *, over: Over, where: Operand | None = None) -> Array:
    """The sum over axes; ``where`` leaves terms out."""
    return reduce("sum", a, over, where)


def prod_(a: Operand, *, over: Over, where: Operand | None = None) -> Array:
    """The product over axes; ``where`` leaves terms out."""
    return reduce("prod", a, over, where)


def max_(a: Operand, *, over: Over, where: Operand | None = None) -> Array:
    """The largest value over axes; ``where`` leaves terms out."""
    return reduce("max", a, over, where)


def min_(a: Operand, *, over: Over, where: Operand | None = None) -> Array:
    """The smallest value over axes; ``where`` leaves terms out."""
    return reduce("min", a, over, where)


def any_(a: Operand, *, over: Over, where: Operand | None = None) -> Array:
    """Whether any value over the axes is true; ``where`` leaves terms out."""
    return reduce("any", a, over, where)


def all_(a: Operand, *, over: Over, where: Operand | None = None) -> Array:
    """Whether all values over the axes are true; ``where`` leaves terms out."""
    return reduce("all", a, over, where)


def mean(a: Operand, *, over: Over, where: Operand | None = None) -> Array:
    """The sum over axes divided by their size, or by the count of what ``where`` keeps."""
    return reduce("mean", a, over, where)


def softmax(a: Operand, *, over: Over) -> Array:
    """Exponentials over the axes divided by their sum; the axes stay."""
    return composite("softmax", a, over)


def logsumexp(a: Operand, *, over: Over) -> Array:
    """The logarithm of the sum of exponentials; the axes go."""
    return composite("logsumexp", a, over)


def layernorm(a: Operand, *, over: Over, **options: Operand) -> Array:
    """Values less their mean over their standard deviation; option ``eps``. Gains are written out."""
    return composite("layernorm", lift(a), over, **options)


def rmsnorm(a: Operand, *, over: Over, **options: Operand) -> Array:
    """Values over their root mean square; option ``eps``. Gains are written out."""
    return composite("rmsnorm", lift(a), over, **options)


def l2norm(a: Operand, *, over: Over) -> Array:
    """Values over the root of the sum of their squares."""
    return composite("l2norm", a, over)


def cumsum(a: Operand, *, over: Axis, reversed: bool = False) -> Array:
    """The sum of all values up to each one along an axis, or of all from it on; the axis stays."""
    return composite("cumsum", a, over, **({REVERSED: True} if reversed else {}))


def topk(a: Operand, *, over: Over, into: Axis, where: Operand | None = None) -> Array:
    """The largest values over axes in descending order, along the axis ``into``; ``where`` leaves terms out."""
    return listed("topk", a, over, into, where)


def argtopk(a: Operand, *, over: Axis, into: Axis, where: Operand | None = None) -> Array:
    """The positions of the largest values over an axis, int32, along ``into``; of equal ones the first."""
    return listed("argtopk", a, over, into, where)


def keep(*indices: Operand, p: Operand) -> Array:
    """Dropout: true with probability ``1 - p``, a function of whole numbers made of indices alone."""
    if not indices:
        raise WeaveError("keep draws for indices; write which, e.g. keep(q, x, p=0.1)")
    return apply(KEEP, p, *indices)
