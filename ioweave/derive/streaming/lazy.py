"""Lazy references: an accumulator is rescaled only where the maximum has moved by enough.

Statement. Any reference ``r`` that bounds an exponent is exact over the reals: the sum carried is
``sum exp(s - r)`` and the tail undoes ``r``. For a step ``t`` the reference ``t * floor(m / t)`` of the running
maximum m keeps ``s - r < t``, and moves only where m crosses a multiple of t.
Source. The conditional rescaling of FlashAttention-4 (2026); the shift invariance of the softmax-contraction
of Abbott and Zardini (arXiv 2412.03317, table 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

from ioweave.derive.streaming.formats import largest_finite
from ioweave.derive.streaming.forms import ONE, Form, Monomial, atom, express, multiply, number
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply

_MOST = 60.0  # beyond, exp of the step leaves nothing of the range of fp32 to the sum


def lazy_reference(reference: Form, step: float) -> Form:
    """``step * floor(reference / step)`` as a form of code."""
    from fractions import Fraction

    size = Fraction(str(step))
    floored = Apply("floor", (Apply("div", (express(reference), number(size))),))
    return multiply(((Monomial(), size),), atom(floored, ONE))


def check_lazy(step: float, dtypes: Sequence[str]) -> None:
    """Raises `WeaveError` for a step that is negative, or whose exponential is out of range of a type."""
    if step == 0:
        return
    narrow = min(dtypes, key=largest_finite, default="fp32")
    most = min(log(largest_finite(narrow)), _MOST)
    if step < 0:
        raise WeaveError(
            f"a lazy step is above 0, not {step:g}; 8 rescales where a maximum grows by a factor {exp(8):.0f}"
        )
    if not step <= most:
        raise WeaveError(
            f"a lazy step of {step:g} lets weights reach exp({step:g}), which {narrow} does not hold; "
            f"give a number above 0 and at most {most:.3g}"
        )
