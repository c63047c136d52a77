"""Rows that repeat: a program of thousands of rows, of which there are a few kinds, gone through once.

Rows on end are of one kind if they have the same pattern, and sizes that depend on the division of the buffer
alone: where all chunks are of one size, or where every operation moves the chunk of one slice of a part, as
in channels.  Then one row stands for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from collectives.program.chunking import Chunking
from collectives.program.program import Algorithm, Local, Operation, Program, Step
from collectives.program.rank_array import Deferred
from collectives.program.rows import Pattern, patterned_rows

MAX_KINDS = 64
"""Kinds of rows up to which a program is kept."""
MAX_MESSAGES = 400_000
"""Messages of one row of each kind, together, up to which it is."""

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
        NotExactError: see `collectives.program.rows.patterned_rows`.
    """
    return _found(_Program(algorithm.program, str(algorithm), algorithm.collective, algorithm), num_ranks)


@dataclass(frozen=True)
class _Program:
    """An algorithm; two are equal if they run the same program with the same parameters."""

    program: Program
    text: str
    collective: str
    algorithm: Algorithm = field(compare=False)


@lru_cache(maxsize=16)
def _found(program: _Program, num_ranks: int) -> tuple[RepeatedRow, ...] | None:
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


def _form(row: Step) -> _Form:
    return tuple([(type(operation), _length(operation), _place(operation)) for operation in row])


def _length(operation: Operation) -> int | None:
    length: Any = operation.num_chunks
    return length if isinstance(length, int) else None


def _place(operation: Operation) -> tuple[int, int] | None:
    chunk: Any = operation.chunk
    return chunk.place if isinstance(chunk, Deferred) else None
