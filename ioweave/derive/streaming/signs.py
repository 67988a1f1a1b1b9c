"""What is never negative: from declared facts and from the shape of an expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ioweave.diagrams.boxes import Box, source
from ioweave.diagrams.expressions import Apply, Expr, Index, Number, Read, Size
from ioweave.diagrams.operators import CASTS, PREDICATES

_ALWAYS = PREDICATES | {"exp", "exp2", "sqrt", "rsqrt", "abs", "relu", "sigmoid"}
_KEEPS = CASTS | {"floor", "round", "tanh", "erf", "silu", "gelu"}


def nonnegative(e: Expr, array: Callable[[str], bool]) -> bool:
    """Whether a value is proved to be >= 0; ``array`` says it of every element of an array."""
    match e:
        case Number(value=v):
            return v >= 0
        case Size() | Index():
            return True
        case Read(array=name):
            return array(source(name))
        case Apply(op=op, args=args):
            if op in _ALWAYS:
                return True
            if op in ("mul", "pow") and _square(op, args):
                return True
            if op == "max":
                return any(nonnegative(a, array) for a in args)
            if op == "where":
                return all(nonnegative(a, array) for a in args[1:])
            if op in ("add", "mul", "div", "masked_div", "min") or op in _KEEPS:
                return all(nonnegative(a, array) for a in args)
            if op == "pow":
                return nonnegative(args[0], array)
            return False
        case _:
            return False


def _square(op: str, args: tuple[Expr, ...]) -> bool:
    if op == "mul":
        return args[0] == args[1]
    power = args[1]
    return isinstance(power, Number) and power.value == int(power.value) and int(power.value) % 2 == 0


class Signs:
    """Signs of the arrays of a set of boxes; each is worked out once."""

    def __init__(self, boxes: Mapping[str, Box], facts: Mapping[str, tuple[str, float]]) -> None:
        self._boxes = boxes
        self._facts = facts
        self._known: dict[str, bool] = {}

    def array(self, name: str) -> bool:
        """Whether every element of an array is proved to be >= 0."""
        if name not in self._known:
            self._known[name] = False  # a cycle cannot occur; running forms read their own box
            fact = self._facts.get(name)
            box = self._boxes.get(name)
            if fact is not None:
                self._known[name] = fact[0] in (">", ">=") and fact[1] >= 0
            elif box is not None and box.scan is not None:
                self._known[name] = self._carried(name, box)
            elif box is not None:
                # the identity of max stands for no element at all, so it says nothing about the sign
                self._known[name] = nonnegative(box.body, self.array)
        return self._known[name]

    def _carried(self, name: str, box: Box) -> bool:
        """Whether a scan stays >= 0: its start is, and every element is where the one before is."""
        before = dict(self._known)
        self._known[name] = True
        assert box.scan is not None
        if nonnegative(box.scan.start, self.array) and nonnegative(box.body, self.array):
            return True
        self._known = before  # what followed from the assumption goes with it
        return False

    def expression(self, e: Expr) -> bool:
        """Whether an expression is proved to be >= 0."""
        return nonnegative(e, self.array)
