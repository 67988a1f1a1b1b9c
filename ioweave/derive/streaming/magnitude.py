"""How the errors of polynomials reach the outputs of a diagram.

Statement. Every array ``A`` has a measure ``|A|+`` with ``|A| <= |A|+`` and a number ``e`` such that the
diagram with polynomials makes ``A'`` with ``|A' - A| <= e |A|+``. The measure of a sum is the sum of
measures, of a product the product: the same computation on absolute values. Where nothing cancels
it is ``A`` itself, and ``e`` is a relative error: only by such values is anything divided.
Source. Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2002, 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ioweave.derive.streaming.formula import text
from ioweave.derive.streaming.intervals import Intervals
from ioweave.derive.streaming.polynomial import Fitted
from ioweave.diagrams.affine import Affine
from ioweave.diagrams.boxes import Box, Opened
from ioweave.diagrams.expressions import Apply, Expr, Number, Read, reads
from ioweave.diagrams.operators import PREDICATES

MEASURE = ".measure"
_UP = 1 + 1e-12  # numbers below are worked out in float64


class Uncarried(Exception):
    """The error of a polynomial has no bound behind some operator; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands behind the mark of a site: the exact value, its weight and the polynomial."""

    exact: Expr
    weight: Expr
    fitted: Fitted


@dataclass(frozen=True, slots=True)
class _Value:
    """``exact`` is the value, ``measure`` its measure; ``own`` says that they are the same."""

    exact: Expr
    error: float
    measure: Expr
    own: bool


@dataclass
class Carried:
    """The errors and measures of the arrays of a diagram; ``boxes`` make the measures."""

    boxes: tuple[Box, ...] = ()
    errors: dict[str, float] = field(default_factory=dict)
    measures: dict[str, str] = field(default_factory=dict)

    def error(self, name: str) -> float:
        """The largest error of an array over its measure; 0 for what no polynomial reaches."""
        return self.errors.get(name, 0.0)

    def measure(self, name: str) -> str:
        """The array that measures another one: itself where nothing cancels."""
        return self.measures.get(name, name)


def carried(exact: Opened, marked: tuple[Box, ...], marks: Mapping[str, Mark], intervals: Intervals) -> Carried:
    """The errors of every box of ``marked``, whose bodies read the marks of sites. Raises `Uncarried`."""
    known = {b.name: b for b in exact.boxes}
    found = _Carrier(marks, intervals)
    boxes: list[Box] = []
    for b in marked:
        value = found.of(b.body)
        if value.error == 0:
            continue
        if b.scan is not None:
            raise Uncarried(f"the error of a polynomial is not carried through the recurrence {b.name}")
        if b.reduction not in (None, "sum", "max", "min"):
            raise Uncarried(f"the error of a polynomial is not carried through the {b.reduction} of {b.name}")
        found.result.errors[b.name] = value.error
        if not value.own:
            name = b.name + MEASURE
            reduction = "max" if b.reduction == "min" else b.reduction
            found.result.measures[b.name] = name
            boxes.append(replace(known[b.name], name=name, body=value.measure, reduction=reduction, line=name))
    for n in exact.outputs:
        if found.result.error(n) == 0 and n not in found.result.errors and not _positive(n, known[n], intervals):
            name = n + MEASURE
            found.result.measures[n] = name
            boxes.append(_absolute(known[n], name))
    found.result.boxes = tuple(boxes)
    return found.result


def _positive(name: str, box: Box, intervals: Intervals) -> bool:
    bound = intervals.array(name)
    return bound.lo >= 0 and not bound.masked and box is not None


def _absolute(box: Box, name: str) -> Box:
    read = Read(box.name, tuple(Affine.axis(a) for a in box.axes))
    return Box(name, box.axes, Apply("abs", (read,)), None, (), box.dtype, name)


class _Carrier:
    def __init__(self, marks: Mapping[str, Mark], intervals: Intervals) -> None:
        self._marks = marks
        self._intervals = intervals
        self.result = Carried()

    def of(self, e: Expr) -> _Value:
        """The error and the measure of an expression, measured boxes read by the names of their measures."""
        if isinstance(e, Read):
            return self._read(e)
        if not isinstance(e, Apply):
            return self._plain(e)
        args = [self.of(a) for a in e.args]
        exact = Apply(e.op, tuple(a.exact for a in args))
        if all(a.error == 0 for a in args):
            return self._plain(exact)
        return self._apply(e.op, exact, args)

    def _plain(self, e: Expr) -> _Value:
        bound = self._intervals.of(e)
        own = bound.lo >= 0 and not bound.masked
        return _Value(e, 0.0, e if own else Apply("abs", (e,)), own)

    def _read(self, e: Read) -> _Value:
        mark = self._marks.get(e.array)
        if mark is not None:
            f = mark.fitted
            if f.relative:
                own = f.positive or self._intervals.of(mark.exact).lo >= 0
                return _Value(mark.exact, f.error, mark.exact if own else Apply("abs", (mark.exact,)), own)
            scale: Expr = Number(f.scale)
            if f.zeros:
                scale = Apply("mul", (scale, Apply("pow", (mark.weight, Number(f.zeros)))))
            return _Value(mark.exact, f.error, scale, False)
        error = self.result.error(e.array)
        if error == 0:
            return self._plain(e)
        measure = self.result.measure(e.array)
        return _Value(e, error, Read(measure, e.index), measure == e.array)

    def _apply(self, op: str, exact: Expr, args: list[_Value]) -> _Value:
        match op:
            case "add" | "sub" | "masked_sub" | "max" | "min":
                join = "add" if op in ("add", "sub", "masked_sub") else "max"
                measure = Apply(join, (args[0].measure, args[1].measure))
                own = all(a.own for a in args) and op not in ("sub", "masked_sub")
                return _Value(exact, max(a.error for a in args), exact if own else measure, own)
            case "neg" | "abs" | "relu":
                own = args[0].own and op != "neg"
                return _Value(exact, args[0].error, args[0].measure, own)
            case "mul":
                a, b = args
                error = (a.error + b.error + a.error * b.error) * _UP
                return self._joined(op, exact, error, args)
            case "div" | "masked_div":
                a, b = args
                if b.error == 0:
                    below = b if b.own else replace(b, measure=Apply("abs", (b.exact,)))
                    return self._joined(op, exact, a.error, [a, below])
                below = self._trusted(op, exact, b)
                return self._joined(op, exact, (a.error + b.error) / (1 - b.error) * _UP, [a, below])
            case "where":
                own = all(a.own for a in args[1:])
                measure = Apply("where", (args[0].exact, args[1].measure, args[2].measure))
                return _Value(exact, max(a.error for a in args[1:]), exact if own else measure, own)
            case _ if op in PREDICATES:
                raise Uncarried(f"{text(exact)} compares a value that is approximate")
            case "pow":
                return self._power(exact, args)
            case _:
                return self._function(op, exact, args[0])

    def _joined(self, op: str, exact: Expr, error: float, args: list[_Value]) -> _Value:
        own = all(a.own for a in args)
        return _Value(exact, error, exact if own else Apply(op, tuple(a.measure for a in args)), own)

    def _trusted(self, op: str, exact: Expr, value: _Value) -> _Value:
        if not value.own or value.error >= 1:
            raise Uncarried(f"{text(exact)}: {op} needs a value that is never negative and of which no part cancels")
        return value

    def _power(self, exact: Expr, args: list[_Value]) -> _Value:
        base, exponent = args[0], args[1].exact
        if not isinstance(exponent, Number) or exponent.value != int(exponent.value) or exponent.value < 1:
            raise Uncarried(f"the error of a polynomial is not carried through {text(exact)}")
        error = math.expm1(exponent.value * math.log1p(base.error)) * _UP
        return self._joined("pow", exact, error, [base, args[1]])

    def _function(self, op: str, exact: Expr, a: _Value) -> _Value:
        if op in ("sqrt", "rsqrt"):
            self._trusted(op, exact, a)
            root = math.sqrt(1 - a.error)
            return _Value(exact, (1 - root if op == "sqrt" else 1 / root - 1) * _UP + 1e-15, exact, True)
        if op == "log":
            self._trusted(op, exact, a)
            measure = Apply("max", (Number(1.0), Apply("abs", (exact,))))
            return _Value(exact, -math.log1p(-a.error) * _UP, measure, False)
        if op == "exp":
            known = not any(r.array.endswith(MEASURE) for r in reads(a.measure))
            most = self._intervals.of(a.measure).hi if known else math.inf
            if not math.isfinite(most):
                raise Uncarried(f"{text(exact)}: the error of its exponent has no bound")
            return _Value(exact, math.expm1(a.error * most) * _UP, exact, True)
        if op in ("tanh", "sin"):  # of slope at most 1, and no larger than their argument
            return _Value(exact, a.error, a.measure, False)
        if op in ("cos", "sigmoid"):
            return _Value(exact, a.error, Apply("max", (Number(1.0), a.measure)), False)
        raise Uncarried(f"the error of a polynomial is not carried through {text(exact)}")
