"""Suggestions for names that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (did you mean `known`?)`` for the nearest known name, or nothing if none is near."""
    names = sorted(set(known))
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not found:
        found = [n for n in names if n.lower() == name.lower()][:1]
    return f" (did you mean `{found[0]}`?)" if found else ""


def listed(names: Iterable[str], most: int = 12) -> str:
    """The names, comma-separated, each once, cut after ``most``."""
    all_names = list(dict.fromkeys(names))
    shown = ", ".join(all_names[:most])
    return shown + (", ..." if len(all_names) > most else "") if all_names else "none"


def or_one_of(names: Iterable[str]) -> str:
    """``, or use one of a, b`` for the names there are; nothing where there are none."""
    all_names = list(names)
    return f", or use one of {listed(all_names)}" if all_names else ""
