"""Numbers and formulas in words."""

from __future__ import annotations

import re

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def times(ratio: float) -> str:
    """``1.25×``, ``105×``."""
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.1f}×" if ratio >= 10 else f"{ratio:.2f}×"


def change(before: float, after: float) -> str:
    """How ``after`` compares with ``before``: ``105× less``, ``1.5% more``, or nothing where they are equal."""
    if before == after or not before or not after:
        return ""
    ratio = max(before, after) / min(before, after)
    word = "less" if after < before else "more"
    if ratio < 1.1:
        return f"{100 * abs(after - before) / before:.2g}% {word}"
    return f"{times(ratio)} {word}"


def formula_words(formula: str) -> str:
    """A formula for people: ``4*q*x*d**2/g_q`` becomes ``4qxd²/g_q``; names of several letters keep a dot."""
    names = {n for n in re.findall(r"[A-Za-z_]\w*", formula) if n not in ("sqrt", "and", "or")}
    plain = all(len(n) == 1 for n in names)
    out = re.sub(r"sqrt\((\w+)\)", r"√\1", formula).replace("sqrt(", "√(")
    out = re.sub(r"\*\*(\d+)", lambda m: m.group(1).translate(_SUPERSCRIPTS), out)
    out = out.replace("*", "" if plain else "·").replace("<=", "≤").replace(">=", "≥")
    # a number stands right before its factor
    return re.sub(r"(?<![\w.])(\d+)·(?=[A-Za-z√(])", r"\1", out)


def numbered(n: int, noun: str) -> str:
    """``1 value``, ``66 values``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
