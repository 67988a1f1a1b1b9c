"""Machines: levels of memory with capacities and bandwidths, and peaks of arithmetic, read from TOML.

A machine file has ``name``, ``title``, a ``[[level]]`` for each level from the largest down
(``name``, ``capacity``, ``instances``, and below the first ``bandwidth`` to the level above),
and tables ``[peak.mma]``, ``[peak.vector]``, ``[peak.special]`` from dtype to rate. Every
quantity is a string with its unit.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

from ioweave.diagrams.dtypes import DTYPES
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import listed, nearest
from ioweave.hierarchy.quantities import (
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    parse_bandwidth,
    parse_bytes,
    parse_flops_rate,
)

WorkClass = Literal["mma", "vector", "special"]
WORK_CLASSES: tuple[WorkClass, ...] = ("mma", "vector", "special")

_SHIPPED = resources.files("ioweave.hierarchy") / "machine_files"
_LEVEL_KEYS = ("name", "capacity", "instances", "bandwidth")
_MACHINE_KEYS = ("name", "title", "level", "peak")


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """One kind of memory: ``instances`` of it, each of ``capacity`` (None: without limit).

    ``bandwidth`` is that of all instances together, to and from the level above; None at the top.
    """

    name: str
    capacity: Bytes | None
    instances: int
    bandwidth: BytesPerSecond | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Levels from the largest down, and the peak rate of each class of arithmetic by dtype."""

    name: str
    title: str
    levels: tuple[MemoryLevel, ...]
    peaks: tuple[tuple[WorkClass, tuple[tuple[str, FlopsPerSecond], ...]], ...]

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the levels, the largest first."""
        return tuple(level.name for level in self.levels)

    def level(self, name: str) -> MemoryLevel:
        """The level called ``name``. Raises WeaveError with the nearest name."""
        for level in self.levels:
            if level.name == name:
                return level
        raise WeaveError(
            f"machine {self.name} has no level `{name}`{nearest(name, self.level_names)}; "
            f"its levels are {listed(self.level_names)}"
        )

    def bandwidth(self, upper: str, lower: str) -> BytesPerSecond:
        """What can cross between two levels: the least bandwidth on the way.

        Raises WeaveError for an unknown level, or where ``lower`` is not below ``upper``.
        """
        names = self.level_names
        top, bottom = names.index(self.level(upper).name), names.index(self.level(lower).name)
        on_the_way = [level.bandwidth for level in self.levels[top + 1 : bottom + 1] if level.bandwidth is not None]
        if not on_the_way:
            raise WeaveError(f"level {lower!r} of machine {self.name} is not below {upper!r}")
        return min(on_the_way)

    def peak(self, work: WorkClass, dtype: str) -> FlopsPerSecond:
        """The rate of a class of work on values of ``dtype``.

        A dtype that the machine does not list runs as the narrowest listed one that is at
        least as wide, or as the widest if there is none.
        """
        rates = dict(dict(self.peaks)[work])
        if dtype in rates:
            return rates[dtype]
        by_width = sorted(rates, key=lambda d: DTYPES[d].bits)
        wide_enough = [d for d in by_width if DTYPES[d].bits >= DTYPES[dtype].bits]
        return rates[wide_enough[0] if wide_enough else by_width[-1]]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers: bytes, bytes a second, operations a second."""
        return {
            "name": self.name,
            "title": self.title,
            "levels": [
                {
                    "name": level.name,
                    "capacity": level.capacity.value if level.capacity else None,
                    "instances": level.instances,
                    "bandwidth": level.bandwidth.value if level.bandwidth else None,
                }
                for level in self.levels
            ],
            "peaks": {work: {dtype: rate.value for dtype, rate in rates} for work, rates in self.peaks},
        }


def machine_names() -> tuple[str, ...]:
    """The machines that come with ioweave, sorted."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in _SHIPPED.iterdir() if f.name.endswith(".toml")))


def load_machine(name_or_path: str) -> Machine:
    """A machine by its name, or from a TOML file (a path with a slash, or ending in ``.toml``).

    Raises WeaveError, one line: an unknown name with the nearest, or the file, the key, what is
    wrong with it and what would be right.
    """
    if name_or_path in machine_names():
        return read_machine((_SHIPPED / f"{name_or_path}.toml").read_text("utf-8"), f"{name_or_path}.toml")
    path = Path(name_or_path)
    if path.suffix != ".toml" and len(path.parts) < 2:
        raise WeaveError(
            f"unknown machine `{name_or_path}`{nearest(name_or_path, machine_names())}; "
            f"there are {listed(machine_names())}, and the paths of .toml files"
        )
    try:
        return read_machine(path.read_text("utf-8"), name_or_path)
    except OSError as error:
        raise WeaveError(
            f"cannot read the machine file {name_or_path}: {(error.strerror or 'no such file').lower()}"
        ) from None
    except UnicodeDecodeError:
        raise WeaveError(f"{name_or_path} is not a text file; a machine is written in TOML") from None


def read_machine(text: str, file: str) -> Machine:
    """A machine from the text of its TOML file; ``file`` is named in errors. Raises WeaveError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WeaveError(f"{file}: not TOML: {error}") from None
    _check_keys(table, _MACHINE_KEYS, ("name", "level", "peak"), file, "")
    name = _string(table, "name", file, "")
    levels = tuple(
        _level(row, f"level[{i}]", file) for i, row in enumerate(_array_of_tables(table["level"], "level", file))
    )
    _check_levels(levels, file)
    return Machine(
        name=name,
        title=_string(table, "title", file, "") if "title" in table else name,
        levels=levels,
        peaks=_peaks(table["peak"], file),
    )


def with_capacity(machine: Machine, capacities: Mapping[str, Bytes]) -> Machine:
    """The machine with the capacity of some levels replaced. Raises WeaveError for an unknown level."""
    for name in capacities:
        machine.level(name)
    levels = tuple(replace(level, capacity=capacities.get(level.name, level.capacity)) for level in machine.levels)
    return replace(machine, levels=levels)


def parse_capacity_option(text: str, machine: Machine) -> dict[str, Bytes]:
    """``smem=128KiB``, or several with commas, as `with_capacity` takes them. Raises WeaveError."""
    capacities: dict[str, Bytes] = {}
    for part in text.split(","):
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise WeaveError(f"a capacity is written level=amount, as smem=128KiB, not {part.strip()!r}")
        if name in capacities:
            raise WeaveError(f"the capacity of {name} is given twice; give it once")
        machine.level(name)
        capacities[name] = parse_bytes(amount, f"the capacity of {name}")
    return capacities


def parse_levels_option(text: str, machine: Machine) -> tuple[str, ...]:
    """``gmem,smem``: levels of the machine from the largest down, two or more. Raises WeaveError."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        machine.level(name)
    order = machine.level_names
    if list(names) != sorted(set(names), key=order.index):
        ordered = ",".join(sorted(set(names), key=order.index))
        raise WeaveError(f"levels go from the largest down, each once: {ordered} in place of {text!r}")
    if len(names) < 2:
        raise WeaveError(f"transfers need two levels or more, as gmem,smem, not {text!r}")
    return names


def _level(row: dict[str, Any], where: str, file: str) -> MemoryLevel:
    _check_keys(row, _LEVEL_KEYS, ("name",), file, where)
    name = _string(row, "name", file, where)
    instances = row.get("instances", 1)
    if type(instances) is not int or instances < 1:
        raise WeaveError(f"{file}: {where}.instances must be a whole number from 1, not {instances!r}")
    capacity = bandwidth = None
    if "capacity" in row:
        key = f"{file}: {where}.capacity"
        capacity = parse_bytes(_quantity(row["capacity"], key, "227 KiB"), key)
    if "bandwidth" in row:
        key = f"{file}: {where}.bandwidth"
        bandwidth = parse_bandwidth(_quantity(row["bandwidth"], key, "3.35 TB/s"), key)
    return MemoryLevel(name, capacity, instances, bandwidth)


def _check_levels(levels: tuple[MemoryLevel, ...], file: str) -> None:
    if len(levels) < 2:
        raise WeaveError(f"{file}: a machine has two levels or more; write a [[level]] for each, the largest first")
    for i, level in enumerate(levels):
        where = f"{file}: level[{i}] ({level.name})"
        if level.name in [other.name for other in levels[:i]]:
            raise WeaveError(f"{where} has the name of a level above it; give each level its own")
        if i == 0:
            if level.bandwidth is not None:
                raise WeaveError(f"{where} is the highest and has no level to exchange with; leave its bandwidth out")
            continue
        above = levels[i - 1]
        if level.bandwidth is None:
            raise WeaveError(f'{where} has no bandwidth to {above.name}; add one, as bandwidth = "3.35 TB/s"')
        if level.capacity is None:
            raise WeaveError(
                f'{where} has no capacity; add one, as capacity = "227 KiB" (the first level alone may lack it)'
            )
        if level.instances % above.instances:
            raise WeaveError(
                f"{where} has {level.instances} instances under {above.instances} of {above.name}; "
                "each of the upper must have equally many of the lower"
            )
        highest = levels[0].capacity
        # a lower level may well hold more than the next (registers, shared memory), but never more than the highest
        if highest is not None and level.capacity.value * level.instances > highest.value:
            raise WeaveError(f"{where} holds more than {levels[0].name} in all; list the largest level first")


def _peaks(table: Any, file: str) -> tuple[tuple[WorkClass, tuple[tuple[str, FlopsPerSecond], ...]], ...]:
    if not isinstance(table, dict):
        raise WeaveError(f"{file}: peak must be tables, as [peak.mma]")
    _check_keys(table, WORK_CLASSES, WORK_CLASSES, file, "peak")
    peaks = []
    for work in WORK_CLASSES:
        where = f"peak.{work}"
        rates = table[work]
        if not isinstance(rates, dict) or not rates:
            raise WeaveError(f'{file}: {where} needs a rate by dtype, as fp16 = "989 TFLOP/s"')
        for dtype in rates:
            if dtype not in DTYPES:
                raise WeaveError(
                    f"{file}: {where} has an unknown dtype `{dtype}`{nearest(dtype, DTYPES)}; use {listed(DTYPES)}"
                )
        peaks.append((work, tuple((dtype, _peak(rate, f"{file}: {where}.{dtype}")) for dtype, rate in rates.items())))
    return tuple(peaks)


def _peak(rate: Any, key: str) -> FlopsPerSecond:
    return parse_flops_rate(_quantity(rate, key, "989 TFLOP/s"), key)


def _check_keys(table: dict[str, Any], known: Iterable[str], needed: Iterable[str], file: str, where: str) -> None:
    place = f"{file}: {where}" if where else file
    for key in table:
        if key not in known:
            raise WeaveError(f"{place}: unknown key `{key}`{nearest(key, known)}; it may be {listed(known)}")
    for key in needed:
        if key not in table:
            raise WeaveError(f"{place}: the key {key!r} is missing; add it")


def _array_of_tables(value: Any, key: str, file: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise WeaveError(f"{file}: {key} must be an array of tables; begin each with [[{key}]]")
    return cast(list[dict[str, Any]], value)


def _string(table: dict[str, Any], key: str, file: str, where: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip():
        dotted = f"{where}.{key}" if where else key
        raise WeaveError(f'{file}: {dotted} must be a text, as {key} = "smem", not {value!r}')
    return value


def _quantity(value: Any, key: str, example: str) -> str:
    if not isinstance(value, str):
        raise WeaveError(f'{key} must be a text with its unit, as "{example}", not {value!r}')
    return value
