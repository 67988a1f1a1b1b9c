"""Records to JSON and back, by the type hints of their dataclasses: strict, bounded, and nothing is ever evaluated.

A dataclass is an object of its fields; a field that holds its default is left out. A node of an
expression says which it is under ``node``; infinities are the texts ``inf`` and ``-inf``, which JSON has
no number for.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.expressions import Apply, Constant, Index, Lookup, Number, Read, Reduce, Scan, Size

LARGEST_FILE = 1 << 24  # bytes
NESTING = 240  # brackets within brackets
_LONGEST = 1 << 16  # characters of one text, entries of one list
_NODES: dict[str, type] = {c.__name__.lower(): c for c in (Number, Constant, Index, Size, Read, Apply, Reduce, Scan)}
_TAGS = {c: tag for tag, c in _NODES.items()}
_WORDS = {"pass": "run"}  # words of Python that are names in a report
_INFINITE = {"inf": float("inf"), "-inf": float("-inf")}

T = TypeVar("T")


def encode(value: Any) -> Any:
    """A record as what `json` writes. Raises TypeError for what no record holds."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {v: k for k, v in _INFINITE.items()}.get(value, value)
    if isinstance(value, frozenset):
        return sorted(encode(v) for v in value)
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, Mapping):
        return {k: encode(v) for k, v in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} is no record")
    record: dict[str, Any] = {"node": _TAGS[type(value)]} if type(value) in _TAGS else {}
    for f in dataclasses.fields(value):
        held = getattr(value, f.name)
        if not (f.default is not dataclasses.MISSING and type(held) is type(f.default) and held == f.default):
            record[f.name] = encode(held)
    return record


def decode(kind: type[T], value: Any, path: str = "") -> T:
    """A record of the type ``kind`` from JSON. Raises WeaveError with the place, as ``plan.boxes[2].axes``."""
    decoded: T = _decode(kind, value, path)
    return decoded


def _decode(hint: Any, value: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union(get_args(hint), value, path)
    if origin is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            raise _wrong(path, value, " or ".join(map(repr, get_args(hint))))
        return value
    if origin in (tuple, frozenset):
        return _sequence(origin, get_args(hint), value, path)
    if hint is Any:
        return value
    if origin is dict:  # a record of numbers for people, such as a witness: nothing is read from it
        if not isinstance(value, dict):
            raise _wrong(path, value, "an object")
        return value
    if hint in (str, bool, int, float):
        return _plain(hint, value, path)
    return _record(hint, value, path)


def _union(members: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in members:
        return None
    rest = [m for m in members if m is not type(None)]
    if len(rest) == 1:
        return _decode(rest[0], value, path)
    if all(isinstance(m, type) and dataclasses.is_dataclass(m) for m in rest):
        tag = value.get("node") if isinstance(value, dict) else None
        if not isinstance(tag, str) or _NODES.get(tag) not in rest:
            raise _wrong(path, value, f"an expression, whose `node` is one of {', '.join(_NODES)}")
        return _record(_NODES[tag], value, path)
    for member in (bool, int, float):  # the literal of a Number keeps its kind
        if member in rest and (type(value) is member or (member is float and value in ("inf", "-inf"))):
            return _plain(member, value, path)
    raise _wrong(path, value, "a number")


def _sequence(origin: Any, inner: tuple[Any, ...], value: Any, path: str) -> Any:
    if not isinstance(value, list):
        raise _wrong(path, value, "a list")
    if len(value) > _LONGEST:
        raise WeaveError(f"{path}: {len(value)} entries are too many; {_LONGEST} at most")
    if origin is tuple and not (len(inner) == 2 and inner[1] is ...):
        if len(value) != len(inner):
            raise _wrong(path, value, f"a list of {len(inner)}")
        return tuple(_decode(h, v, f"{path}[{n}]") for n, (h, v) in enumerate(zip(inner, value, strict=True)))
    return origin([_decode(inner[0], v, f"{path}[{n}]") for n, v in enumerate(value)])


def _plain(kind: type, value: Any, path: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 1 << 62 else value
    if kind is float and isinstance(value, str):
        value = _INFINITE.get(value, value)
    if type(value) is not kind:
        names = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
        raise _wrong(path, value, names[kind])
    if isinstance(value, int) and abs(value) >= 1 << 62:
        raise WeaveError(f"{path}: the number is too large; less than 2**62 is right")
    if isinstance(value, str) and len(value) > _LONGEST:
        raise WeaveError(f"{path}: a text of {len(value)} characters is too long; {_LONGEST} at most")
    return value


def reported(hint: Any, value: Any) -> Any:
    """What a record's own ``to_json`` writes, brought to the form that `decode` reads; other values stay as they are.

    There a tuple of a few may be an object of its entries, a field named by a word of Python has that word
    (``pass`` for ``run``), and what follows from other fields is written out beside them.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        rest = [m for m in inner if m is not type(None)]
        return reported(rest[0], value) if len(rest) == 1 else value
    if origin is tuple and inner[1:] == (...,):
        return [reported(inner[0], v) for v in value] if isinstance(value, list) else value
    if origin is tuple:
        return list(value.values()) if isinstance(value, dict) and len(value) == len(inner) else value
    if not dataclasses.is_dataclass(hint) or not isinstance(value, dict):
        return value
    hints = _hints(hint) if isinstance(hint, type) else {}
    named = {_WORDS[k] if k in _WORDS and k not in value.keys() & hints.keys() else k: v for k, v in value.items()}
    derived = {k for k in named if k not in hints and isinstance(getattr(hint, k, None), property)}
    return {k: reported(hints[k], v) if k in hints else v for k, v in named.items() if k not in derived}


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, None, {"Lookup": Lookup})  # index forms name it for type checkers alone
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _record(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(path, value, "an object")
    if kind in _TAGS:
        if value.get("node") != _TAGS[kind]:
            raise _wrong(_at(path, "node"), value.get("node"), _TAGS[kind])
        value = {k: v for k, v in value.items() if k != "node"}
    hints = _hints(kind)
    for key in value:
        if key not in hints:
            raise WeaveError(f"{_at(path, key)}: there is no such field; the fields here are {', '.join(hints)}")
    held: dict[str, Any] = {}
    for f in dataclasses.fields(kind):
        if f.name in value:
            held[f.name] = _decode(hints[f.name], value[f.name], _at(path, f.name))
        elif f.default is dataclasses.MISSING:
            raise WeaveError(f"{_at(path, f.name)}: the field is missing")
    return kind(**held)


def _at(path: str, key: str) -> str:
    return f"{path}.{key[:40]}" if path else key[:40]


def _wrong(path: str, value: Any, right: str) -> WeaveError:
    found = {dict: "an object", list: "a list", type(None): "null"}.get(type(value))
    shown = found if found is not None else json.dumps(value, ensure_ascii=False)[:40]
    return WeaveError(f"{path or 'the file'}: {shown} is not {right}")


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises WeaveError for a cut text, a name given twice, too deep a nesting."""
    depth, quoted, escaped = 0, False, False
    for c in text:
        if quoted:
            quoted, escaped = escaped or c != '"', not escaped and c == "\\"
        elif c == '"':
            quoted = True
        elif c in "[{":
            depth += 1
            if depth > NESTING:
                raise WeaveError(f"brackets are nested more than {NESTING} deep; no certificate needs that")
        elif c in "]}":
            depth -= 1
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise WeaveError(f"line {error.lineno}, column {error.colno}: this is not JSON: {error.msg.lower()}") from None
    except ValueError:  # an integer of thousands of digits
        raise WeaveError("a number has too many digits; less than 2**62 is right") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [k for k, _ in pairs]
        twice = next(k for k in names if names.count(k) > 1)
        raise WeaveError(f"`{twice[:40]}` is given twice in one object; give it once")
    return record


def _no_constant(name: str) -> Any:
    raise WeaveError(f"{name} is not JSON; infinities are the texts inf and -inf")
