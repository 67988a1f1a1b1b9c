"""Names of arrays and axes as mathematics."""

from __future__ import annotations

from ioweave.render.figure.typeset import GREEK, GREEK_TAIL

POINT = "."  # the axis of a single value: an array without axes, or one read at a fixed position


LETTERS = frozenset((*GREEK, *GREEK_TAIL))


def maths_name(name: str) -> str:
    """A name in mathematics, without the dollar signs: one letter in italic, longer ones as words."""
    base = name.rstrip("'")
    primes = name[len(base) :]
    stem, _, tail = base.partition("_")
    if (len(stem) > 1 and len(tail) > 1) or "_" in tail:  # a name of words is no index
        stem, tail = base, ""
    core = stem if len(stem) == 1 else rf"\{stem}" if stem in LETTERS else rf"\text{{{stem}}}" if stem else ""
    if not stem:
        core, tail = rf"\text{{{base}}}", ""
    stem_digits = stem.rstrip("0123456789")
    if len(stem_digits) == 1 and len(stem) > 1:
        core, tail = stem_digits, ",".join(t for t in (stem[1:], tail) if t)
    subscript = "_{" + (tail if tail.isdigit() or len(tail) == 1 else rf"\text{{{tail}}}") + "}" if tail else ""
    return f"{core}{primes}{subscript}"


def math(name: str) -> str:
    """A name as markup."""
    return f"${maths_name(name)}$" if name != POINT else ""
