"""Rows of a program with their sizes: thousands, of which there are a few kinds, each gone through once.

Rows on end are of one kind if they have the same pattern, and sizes that depend on the division of the buffer
alone: where all chunks are of one size, or where every operation moves the chunk of one slice of a part, as
in channels.  Then one row stands for all of them.  Of small programs, which many groups carry out time and
again, all rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from collectives.errors import NotExactError
from collectives.program.chunking import Chunking
from collectives.program.program import Algorithm, Local, Operation, Step
from collectives.program.program_key import ProgramKey
from collectives.timing.rows.pattern import Pattern, length_of, patterned_rows, place_of
from collectives.timing.rows.sizes import MostlyEqual, Sizes, of_each

MAX_KINDS = 64
"""Kinds of rows up to which a program is kept."""
MAX_MESSAGES = 400_000
"""Messages of one row of each kind, together, up to which it is."""

MAX_KEPT = 8_000_000
"""Operations of all ranks up to which all rows of a program are kept."""

_Form: TypeAlias = tuple[tuple[type[Operation], int | None, tuple[int, int] | None], ...]


@dataclass(frozen=True)
class RepeatedRow:
    """Rows on end of one kind.

    Attributes:
        row: one of them.
        pattern: of all.
        count: how many there are.
        form: what sizes may depend on, beside where chunks lie.
    """

    row: Step
    pattern: Pattern
    count: int
    form: _Form

    def has_same_sizes(self, chunking: Chunking) -> bool:
        """Return whether messages of all these rows are certainly as large as those of this one."""
        if chunking.is_even:
            return all(length is not None for _, length, _ in self.form)
        return all(
            kind is Local or (place is not None and place[1] == chunking.chunks_per_part)
            for kind, _, place in self.form
        )


class SiblingPattern:
    """A pattern repeated over groups; rank r of group g is number ``g * group_size + r``.

    Attributes:
        source: rank that sends each message, those of the first group first.
        destination: rank that receives it.
        channel: the connection that carries it.
    """

    def __init__(self, pattern: Pattern, group_size: int, num_groups: int) -> None:
        self.pattern = pattern
        self._num_groups = num_groups
        first = np.repeat(np.arange(num_groups) * group_size, len(pattern.source))
        self.source = np.tile(pattern.source, num_groups) + first
        self.destination = np.tile(pattern.destination, num_groups) + first
        self.channel = np.tile(pattern.channel, num_groups)

    def nbytes(self, row: Step, chunking: Chunking) -> Sizes:
        """Return the size of each message of *row* of one group, for all; see `Pattern.nbytes`."""
        sizes, num_messages = self.pattern.nbytes(row, chunking), len(self.pattern.source)
        if not isinstance(sizes, MostlyEqual):
            return np.tile(of_each(sizes, num_messages), self._num_groups)
        firsts = range(0, num_messages * self._num_groups, max(1, num_messages))
        others = {first + message: size for first in firsts for message, size in sizes.others.items()}
        return MostlyEqual(sizes.common, others)


class SizedRow(NamedTuple):
    """Rows on end with messages of the same sizes.

    Attributes:
        step: one of them, of one group.
        pattern: of all.
        nbytes: of each message.
        num_rows: how many rows there are.
    """

    step: Step
    pattern: Pattern | SiblingPattern
    nbytes: Sizes
    num_rows: int


def sized_rows(
    algorithm: Algorithm, num_ranks: int, chunking: Chunking, *, num_groups: int = 1, each: bool = False
) -> Iterator[SizedRow]:
    """Yield the rows of *algorithm* in groups of *num_ranks*; *each* by itself, or those alike at once.

    Raises:
        NotExactError: see `Pattern`.
    """
    kinds = None if each else repeated_rows(algorithm, num_ranks)
    rows: Iterable[tuple[Step, Pattern, int]]
    if kinds is not None and all(kind.has_same_sizes(chunking) for kind in kinds):
        rows = ((kind.row, kind.pattern, kind.count) for kind in kinds)
    else:
        rows = ((step, pattern, 1) for step, pattern in kept_rows(algorithm, num_ranks))
    siblings: SiblingPattern | None = None
    for step, pattern, count in rows:
        if num_groups > 1 and (siblings is None or siblings.pattern is not pattern):
            siblings = SiblingPattern(pattern, num_ranks, num_groups)
        messages = siblings or pattern
        yield SizedRow(step, messages, messages.nbytes(step, chunking), count)


def repeated_rows(algorithm: Algorithm, num_ranks: int) -> tuple[RepeatedRow, ...] | None:
    """Return the rows of *algorithm*, found once for each number of ranks; None if there are many kinds.

    Raises:
        NotExactError: see `collectives.timing.rows.pattern.patterned_rows`.
    """
    return _found(ProgramKey.of(algorithm), num_ranks)


def kept_rows(
    algorithm: Algorithm, num_ranks: int, most_messages: int | None = None
) -> Iterable[tuple[Step, Pattern]]:
    """Return what `collectives.timing.rows.pattern.patterned_rows` yields, kept where that is little.

    Raises:
        NotExactError: as there.
    """
    rows = _kept(ProgramKey.of(algorithm), num_ranks)
    return patterned_rows(algorithm, num_ranks, most_messages) if rows is None else rows


@lru_cache(maxsize=16)
def _found(program: ProgramKey, num_ranks: int) -> tuple[RepeatedRow, ...] | None:
    found: list[RepeatedRow] = []
    num_messages = 0
    for row, pattern in patterned_rows(program.algorithm, num_ranks):
        form = _form(row)
        if found and found[-1].pattern is pattern and found[-1].form == form:
            found[-1] = replace(found[-1], count=found[-1].count + 1)
            continue
        num_messages += len(pattern.source)
        if len(found) == MAX_KINDS or num_messages > MAX_MESSAGES:
            return None
        found.append(RepeatedRow(row, pattern, 1, form))
    return tuple(found)


@lru_cache(maxsize=32)
def _kept(program: ProgramKey, num_ranks: int) -> tuple[tuple[Step, Pattern], ...] | None:
    rows: list[tuple[Step, Pattern]] = []
    num_operations = 0
    try:
        for row, pattern in patterned_rows(program.algorithm, num_ranks, MAX_KEPT):
            num_operations += len(row) * num_ranks
            if num_operations > MAX_KEPT:
                return None
            rows.append((row, pattern))
    except NotExactError:
        return None
    return tuple(rows)


def _form(row: Step) -> _Form:
    return tuple([(type(operation), length_of(operation), place_of(operation)) for operation in row])
