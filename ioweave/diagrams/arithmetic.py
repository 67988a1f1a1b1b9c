"""What each scalar operator and reduction means on NumPy arrays (float64, exact arithmetic aside)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ioweave.diagrams.operators import CASTS


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
