"""Sizes of the messages of a row.

They are arrays, but for two cases that spare a row all arithmetic over ranks: one size for all but a few
messages (`MostlyEqual`), and sizes that turn (`Rotating`).  What they save: ``benchmarks/fast_paths.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from sim.units import Int64Array


@dataclass
class MostlyEqual:
    """Sizes of messages that are one number of bytes but for a few.

    Attributes:
        common: what most are.
        others: those of the other messages, by number.
    """

    common: int
    others: dict[int, int] = field(default_factory=dict)

    def over(self, num_messages: int) -> Int64Array:
        """Return the size of each of *num_messages*."""
        sizes = np.full(num_messages, self.common, dtype=np.int64)
        for message, nbytes in self.others.items():
            sizes[message] = nbytes
        return sizes


@dataclass(frozen=True, eq=False)
class Rotating:
    """Sizes that turn from row to row: message r, which rank r sends, is of ``table[r + turn]`` bytes.

    Attributes:
        table: the sizes of one turn, two times over.
        turn: of this row.
    """

    table: Int64Array
    turn: int

    def over(self, num_messages: int) -> Int64Array:
        """Return the size of each of *num_messages*, which is one turn."""
        return self.table[self.turn : self.turn + num_messages]


Sizes: TypeAlias = MostlyEqual | Rotating | Int64Array
"""Of the messages of a row, in bytes."""


def of_each(sizes: Sizes, num_messages: int) -> Int64Array:
    """Return the size of each of *num_messages*."""
    return sizes if isinstance(sizes, np.ndarray) else sizes.over(num_messages)


def has_empty(sizes: MostlyEqual | Int64Array) -> bool:
    """Return whether some of *sizes* are 0."""
    if isinstance(sizes, MostlyEqual):
        return not (sizes.common and all(sizes.others.values()))
    return not sizes.all()


def without_empty(sizes: Sizes, num_messages: int) -> tuple[Int64Array | None, MostlyEqual | Int64Array]:
    """Return which of *num_messages* are not empty, and their sizes; None: all, whose *sizes* these are."""
    if isinstance(sizes, MostlyEqual) and not has_empty(sizes):
        return None, sizes
    each = of_each(sizes, num_messages)
    if not has_empty(each):
        return None, each
    numbers = np.flatnonzero(each)
    return numbers, each[numbers]
