"""Rows that repeat: a program of thousands of rows, of which there are a few kinds, gone through once.

Rows on end are of one kind if they have the same pattern, and sizes that depend on the division of the buffer
alone: where all chunks are of one size, or where every operation moves the chunk of one slice of a part, as
in channels.  Then one row stands for all of them.  Of small programs, which many groups carry out time and
again, all rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from collectives.errors import NotExactError
from collectives.program.chunking import Chunking
from collectives.program.program import Algorithm, Local, Operation, Step
from collectives.program.program_key import ProgramKey
from collectives.program.rank_array import Deferred
from collectives.timing.rows.pattern import Pattern, patterned_rows

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
            kind is Local or (length == 1 and place is not None and place[1] == chunking.chunks_per_part)
            for kind, length, place in self.form
        )


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
    return tuple([(type(operation), _length(operation), _place(operation)) for operation in row])


def _length(operation: Operation) -> int | None:
    length: Any = operation.num_chunks
    return length if isinstance(length, int) else None


def _place(operation: Operation) -> tuple[int, int] | None:
    chunk: Any = operation.chunk
    return chunk.place if isinstance(chunk, Deferred) else None
