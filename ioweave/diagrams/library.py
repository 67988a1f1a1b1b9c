"""Where texts come from: the catalogue, files and standard input."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.errors import WeaveError

FAMILIES = (  # in the order of lists
    "softmax attention",
    "softmax attention, masks",
    "softmax attention, scores",
    "softmax attention, positions and biases",
    "softmax attention, heads and caches",
    "softmax attention, normalisers",
    "functions of attention weights",
    "attention without softmax",
    "recurrences",
    "selection",
    "losses and similarities",
    "normalisation and statistics",
    "products",
)
_LARGEST = 1 << 20  # bytes of a file


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file of the catalogue says of itself: a sentence, its family, and where it was published (or empty)."""

    name: str
    sentence: str
    family: str
    paper: str

    def to_json(self) -> dict[str, str]:
        """The entry as a record."""
        return {"name": self.name, "family": self.family, "sentence": self.sentence, "paper": self.paper}


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The algorithms of the catalogue, in alphabetical order."""
    folder = resources.files("ioweave.diagrams") / "catalogue"
    return tuple(sorted(f.name.removesuffix(".weave") for f in folder.iterdir() if f.name.endswith(".weave")))


def catalogue_text(name: str) -> str:
    """The file of a catalogue entry as it is. Raises `WeaveError` for an unknown name."""
    if name not in names():
        raise WeaveError(_unknown(name))
    return (resources.files("ioweave.diagrams") / "catalogue" / f"{name}.weave").read_text(encoding="utf-8")


def entries() -> tuple[Entry, ...]:
    """Every algorithm of the catalogue, by family and name; the texts are read, no diagram is made."""
    found = (entry(name, catalogue_text(name)) for name in names())
    return tuple(sorted(found, key=lambda e: (FAMILIES.index(e.family), e.name)))


def entry(name: str, text: str) -> Entry:
    """What the description of a text says.

    Its first line is the sentence; later lines ``Family: ...`` and ``Paper: ...`` (or ``Source: ...``
    for what is no paper) give the rest. Raises `WeaveError` for a family that is not one of `FAMILIES`.
    """
    lines = description(text).splitlines()
    told = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    family = told.get("Family", "")
    if family not in FAMILIES:
        told_family = f"the family `{family}`" if family else "no family"
        raise WeaveError(f"{name} has {told_family}; write one of: {'; '.join(FAMILIES)}")
    return Entry(name, lines[0], family, told.get("Paper", told.get("Source", "")))


def description(text: str) -> str:
    """The string that a text begins with, empty where it begins with anything else; the rest is not read."""
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE)
    first = next(t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in blank)
    return ast.get_docstring(ast.parse(first.string)) or "" if first.type == tokenize.STRING else ""


def source(what: str) -> tuple[str, str]:
    """The text that a catalogue name, a path or ``-`` (standard input) stands for, and its name in errors.

    Raises `WeaveError` for an unknown name, a directory, and a file that is missing, unreadable,
    too large, empty or not UTF-8.
    """
    if what == "-":
        return _decoded(sys.stdin.buffer.read(_LARGEST + 1), "<stdin>"), "<stdin>"
    if what in names():
        return catalogue_text(what), f"{what}.weave"
    path = Path(what)
    try:
        if path.is_dir():
            raise WeaveError(f"{what} is a directory; give a file of the notation or one of `ioweave list algorithms`")
        if not path.exists():
            raise WeaveError(_unknown(what))
        with path.open("rb") as file:
            return _decoded(file.read(_LARGEST + 1), what), what
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no path"
        raise WeaveError(f"{_shown(what)} cannot be read: {reason.lower()}; give a readable file") from None


def load(what: str, overrides: Mapping[str, int | float] | None = None) -> Diagram:
    """The diagram of a catalogue name, a path or ``-``. Raises `WeaveError` as `source` and `parse` do."""
    from ioweave.diagrams.notation import parse

    text, file = source(what)
    return parse(text, file, overrides)


def _decoded(data: bytes, file: str) -> str:
    if len(data) > _LARGEST:
        raise WeaveError(f"{file} is larger than {_LARGEST} bytes; a diagram is a short text")
    if not data.strip():
        raise WeaveError(f"{file} is empty; write inputs and at least one line, e.g. `Y[i] = 2 * X[i]`")
    if b"\0" in data:
        raise WeaveError(f"{file} is a binary file; a diagram is plain UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WeaveError(f"{file} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def _shown(what: str) -> str:
    """The argument on one line."""
    clean = what if what.isprintable() else repr(what)
    return clean if len(clean) <= 80 else clean[:77] + "..."


def _unknown(what: str) -> str:
    from ioweave.diagrams.notation.nearest import nearest

    hint = nearest(what, names())
    return f"no algorithm or file is called {_shown(what)}{hint}; `ioweave list algorithms` names the catalogue"
