"""What each scalar operator and reduction means on NumPy arrays (float64, exact arithmetic aside)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ioweave.diagrams.operators import CASTS, KEEP


def _masked_sub(a: Any, b: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(a), -np.inf, np.subtract(a, b))


def _masked_div(a: Any, b: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.equal(a, 0), 0.0, np.true_divide(a, b))


def _sigmoid(a: Any) -> Any:
    a = np.asarray(a, dtype=float)
    return 0.5 * (1 + np.tanh(0.5 * a))


def _power(a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    if b.dtype.kind in "iu" and a.dtype.kind in "iu" and np.any(b < 0):
        a = a.astype(float)
    return np.power(a, b)


def _erf(a: Any) -> Any:
    from scipy.special import erf  # half a second to import, and few algorithms need it

    return erf(np.asarray(a, dtype=float))


_GOLDEN = 0x9E3779B97F4A7C15
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _mixed(h: Any) -> Any:
    """The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014) on unsigned 64-bit integers."""
    for shift, factor in _MIXERS:
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h ^ (h >> np.uint64(31))


def keep(p: Any, *indices: Any) -> Any:
    """Dropout: true with probability ``1 - p``, a function of the indices alone, whatever is computed around it.

    A counter-based draw: h starts at 0 and takes in one index i after the other, h = mix(h + (i + 1) * golden),
    where mix is the finaliser of splitmix64 and golden its increment, modulo 2**64. The upper 53 bits of h,
    divided by 2**53, are uniform on [0, 1); the element is kept where they are at least p.
    """
    h: Any = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for i in indices:
            counter = np.asarray(i).astype(np.int64).astype(np.uint64) + np.uint64(1)
            h = _mixed(h + counter * np.uint64(_GOLDEN))
    return np.greater_equal((h >> np.uint64(11)).astype(float) / 2.0**53, p)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "pow": _power,
    "neg": np.negative,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "relu": lambda a: np.maximum(a, 0),
    "floor": np.floor,
    "round": np.round,  # half to even
    "where": np.where,
    "masked_sub": _masked_sub,
    "masked_div": _masked_div,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "silu": lambda a: a * _sigmoid(a),
    "gelu": lambda a: 0.5 * a * (1 + _erf(a / np.sqrt(2))),
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    KEEP: keep,
    **{name: (lambda a: a) for name in CASTS},
}

REDUCERS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
}
