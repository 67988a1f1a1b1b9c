"""Index forms: integer combinations of axes, sizes and looked-up integers plus an offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ioweave.diagrams.expressions import Lookup

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Affine:
    """``sum(c * axis) + sum(c * size) + sum(c * lookup) + offset``; terms are sorted and never zero.

    ``axes`` hold the coefficients of index variables, ``sizes`` those of axis sizes and
    integer constants, which are fixed once the sizes are. ``lookups`` are integers that no affine form
    gives: what an array holds there (a gather, ``K[page[b], d]``), or ``x // p`` and ``x % p``.
    """

    axes: tuple[tuple[str, int], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    offset: int = 0
    lookups: tuple[tuple[Lookup, int], ...] = ()

    @staticmethod
    def make(
        axes: Mapping[str, int],
        sizes: Mapping[str, int] | None = None,
        offset: int = 0,
        lookups: Mapping[Lookup, int] | None = None,
    ) -> Affine:
        """Build the form from coefficient maps, dropping zero terms."""
        return Affine(
            tuple(sorted((a, c) for a, c in axes.items() if c)),
            tuple(sorted((a, c) for a, c in (sizes or {}).items() if c)),
            offset,
            tuple(sorted(((x, c) for x, c in (lookups or {}).items() if c), key=repr)),
        )

    @staticmethod
    def axis(name: str) -> Affine:
        """The bare index ``name``."""
        return Affine(((name, 1),))

    @property
    def names(self) -> tuple[str, ...]:
        """The axes that the form depends on, those of its lookups included."""
        if not self.lookups:
            return tuple(a for a, _ in self.axes)
        inner = (a for lookup, _ in self.lookups for a in lookup.names)
        return tuple(dict.fromkeys((*(a for a, _ in self.axes), *inner)))

    @property
    def bare(self) -> str | None:
        """The axis, if the form is nothing but one axis; else None."""
        if len(self.axes) == 1 and self.axes[0][1] == 1 and not self.sizes and self.offset == 0 and not self.lookups:
            return self.axes[0][0]
        return None

    def rename(self, names: Mapping[str, str]) -> Affine:
        """The same form over renamed axes."""
        lookups = {lookup.rename(names): c for lookup, c in self.lookups}
        return Affine.make({names.get(a, a): c for a, c in self.axes}, dict(self.sizes), self.offset, lookups)

    def fixed(self, sizes: Mapping[str, int]) -> int:
        """The part that neither an axis nor a lookup moves, for concrete sizes."""
        return self.offset + sum(c * sizes[s] for s, c in self.sizes)

    def __add__(self, other: Affine) -> Affine:
        axes = _combine(self.axes, other.axes)
        lookups = _combine(self.lookups, other.lookups)
        return Affine.make(axes, _combine(self.sizes, other.sizes), self.offset + other.offset, lookups)

    def scale(self, factor: int) -> Affine:
        """The form times an integer."""
        return Affine.make(
            {a: c * factor for a, c in self.axes},
            {s: c * factor for s, c in self.sizes},
            self.offset * factor,
            {x: c * factor for x, c in self.lookups},
        )

    def __str__(self) -> str:
        parts: list[str] = []
        for name, c in (*self.axes, *((f"{s}", c) for s, c in self.sizes)):
            sign = "-" if c < 0 else "+"
            term = name if abs(c) == 1 else f"{abs(c)} * {name}"
            parts.append(f"{sign} {term}" if parts else (f"-{term}" if c < 0 else term))
        if self.offset or not parts:
            sign = "-" if self.offset < 0 else "+"
            parts.append(f"{sign} {abs(self.offset)}" if parts else str(self.offset))
        return " ".join(parts)


def _combine(a: Iterable[tuple[T, int]], b: Iterable[tuple[T, int]]) -> dict[T, int]:
    total = dict(a)
    for name, c in b:
        total[name] = total.get(name, 0) + c
    return total
