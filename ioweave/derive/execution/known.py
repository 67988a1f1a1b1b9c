"""What is known of a value on one tile from predicates of indices alone (counting.md 25).

Loaded values are taken as finite. A value is known if it is one number on the whole tile,
whatever is loaded; predicates are evaluated on the tile's own indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ioweave.derive.execution.grid import Grid, values_of
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.expressions import Apply, Constant, Expr, Number, Read, Size, children, is_predicate_of_indices
from ioweave.diagrams.lists import EMPTY
from ioweave.diagrams.operators import PREDICATES

KnownRead = Callable[[Read], float | None]


class Facts:
    """Known values of the sub-expressions of one body on one tile; remembers what it has found."""

    def __init__(self, grid: Grid, read: KnownRead) -> None:
        self.grid = grid
        self.read = read
        self.found: dict[int, float | None] = {}

    def __call__(self, e: Expr) -> float | None:
        """The known value of ``e``, or None."""
        key = id(e)
        if key not in self.found:
            self.found[key] = self._value(e)
        return self.found[key]

    def _value(self, e: Expr) -> float | None:
        match e:
            case Number(value=value):
                return float(value)
            case Constant(name=name) | Size(axis=name):
                return float(self.grid.names[name])
            case Read():
                return self.read(e)
            case Apply(op="where", args=(c, x, y)):
                truth = self.truth(c)
                if truth is None:
                    a, b = self(x), self(y)
                    return a if a is not None and a == b else None
                return self(x if truth else y)
            case Apply(op=op) if op in PREDICATES and is_predicate_of_indices(e):
                truth = self.truth(e)
                return None if truth is None else float(truth)
            case Apply(op="keyed", args=(k, _)):
                return EMPTY if self(k) == EMPTY else None
            case Apply(op=op, args=args):
                return _apply(op, [self(a) for a in args])
        return None

    def truth(self, e: Expr) -> bool | None:
        """Whether a condition holds on the whole tile, on none of it, or (None) neither."""
        if not is_predicate_of_indices(e):
            value = self(e)
            return None if value is None else bool(value)
        with np.errstate(all="ignore"):
            held = values_of(e, self.grid, _no_reads)
        return True if np.all(held) else False if not np.any(held) else None

    def surviving(self, e: Expr) -> Iterator[Read]:
        """The reads on which the value depends."""
        if self(e) is not None:
            return
        match e:
            case Read():
                yield e
                for inner in children(e):  # a lookup needs its index arrays
                    yield from self.surviving(inner)
            case Apply(op="where", args=(c, x, y)):
                truth = self.truth(c)
                if truth is None:
                    yield from self.surviving(c)
                if truth is not False:
                    yield from self.surviving(x)
                if truth is not True:
                    yield from self.surviving(y)
            case Apply(args=args):
                for a in args:
                    yield from self.surviving(a)


def _no_reads(r: Read, grid: Grid) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    raise TypeError(f"{r.array} is read in a predicate of indices")


def _apply(op: str, args: list[float | None]) -> float | None:
    """A known result from known arguments, or from one of them where that decides it."""
    if all(a is not None for a in args):
        with np.errstate(all="ignore"):
            result = float(FUNCTIONS[op](*(np.float64(a) if a is not None else a for a in args)))
        return None if math.isnan(result) else result
    first, other = (args[0], args[1]) if len(args) == 2 else (args[0], None)
    match op:
        case "mul" if 0 in args:
            return 0.0
        case "div" | "masked_div" if first == 0:
            return 0.0
        case "add" | "sub" | "masked_sub" if first is not None and math.isinf(first):
            return first
        case "add" if other is not None and math.isinf(other):
            return other
        case "sub" if other is not None and math.isinf(other):
            return -other
        case "max" if math.inf in args:
            return math.inf
        case "min" if -math.inf in args:
            return -math.inf
        case "and" if 0 in args:
            return 0.0
        case "or" if any(a is not None and a != 0 for a in args):
            return 1.0
    return None
