"""Rows of sibling groups: the same program on several groups of one size, step by step side by side."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collectives.program import Algorithm, Step
from collectives.program.chunking import Chunking
from collectives.timing.rows.pattern import MostlyEqual, Pattern, Sizes, of_each
from collectives.timing.rows.repeated_rows import kept_rows, repeated_rows


class SiblingPattern:
    """A pattern repeated over groups; rank r of group g is number ``g * group_size + r``.

    Args:
        pattern: of the messages of one group.
        group_size: ranks of each group.
        num_groups: how many there are.

    Attributes:
        source: rank that sends each message, those of the first group first.
        destination: rank that receives it.
    """

    def __init__(self, pattern: Pattern, group_size: int, num_groups: int) -> None:
        self._pattern = pattern
        self._num_groups = num_groups
        first = np.repeat(np.arange(num_groups) * group_size, len(pattern.source))
        self.source = np.tile(pattern.source, num_groups) + first
        self.destination = np.tile(pattern.destination, num_groups) + first

    def nbytes(self, row: Step, chunking: Chunking) -> Sizes:
        """Return the size of each message of *row* of one group, for all; see `Pattern.nbytes`."""
        sizes = self._pattern.nbytes(row, chunking)
        if isinstance(sizes, MostlyEqual) and not sizes.others:
            return sizes
        num_messages = len(self._pattern.source)
        if isinstance(sizes, MostlyEqual):
            others = {
                group * num_messages + message: nbytes
                for group in range(self._num_groups)
                for message, nbytes in sizes.others.items()
            }
            return MostlyEqual(sizes.common, others)
        return np.tile(of_each(sizes, num_messages), self._num_groups)


def sibling_rows(
    algorithm: Algorithm, group_size: int, num_groups: int
) -> Iterator[tuple[Step, Pattern | SiblingPattern]]:
    """Yield each row of one group with the pattern of all groups; see `kept_rows`."""
    repeated: tuple[Pattern, SiblingPattern] | None = None
    for row, pattern in kept_rows(algorithm, group_size):
        if num_groups == 1:
            yield row, pattern
            continue
        if repeated is None or repeated[0] is not pattern:
            repeated = pattern, SiblingPattern(pattern, group_size, num_groups)
        yield row, repeated[1]


def repeated_sibling_rows(
    algorithm: Algorithm, group_size: int, num_groups: int, chunking: Chunking
) -> Iterator[tuple[Pattern | SiblingPattern, Sizes, int]]:
    """Yield patterns of rows of all groups, sizes of their messages, and how many on end have these."""
    known = repeated_rows(algorithm, group_size)
    if known is None or not all(kind.has_same_sizes(chunking) for kind in known):
        for row, pattern in sibling_rows(algorithm, group_size, num_groups):
            yield pattern, pattern.nbytes(row, chunking), 1
        return
    repeated: tuple[Pattern, Pattern | SiblingPattern] | None = None
    for kind in known:
        if repeated is None or repeated[0] is not kind.pattern:
            own = kind.pattern
            repeated = own, own if num_groups == 1 else SiblingPattern(own, group_size, num_groups)
        yield repeated[1], repeated[1].nbytes(kind.row, chunking), kind.count
