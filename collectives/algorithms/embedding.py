"""A program inside a larger one: on some of the ranks, and on some of the chunks.

A program speaks of ranks ``0 … p-1`` and of chunks ``0 … k-1``.  `Members` say which ranks of a
larger world those are; `embed` turns what the program yields into steps of that world.  Algorithms
that are made of others, such as hierarchical and bucket, are then sequences of embedded programs.
It is all plain arithmetic, so what is embedded in array form is in array form again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Local, Operation, Step, Transfer, as_step


class Members(Protocol):
    """Some ranks of a larger world, as the one at *index* among them sees them.

    In array form each rank of the world sees the members that it is one of.
    """

    @property
    def index(self) -> int:
        """The rank's number among the members."""

    @property
    def size(self) -> int:
        """How many they are."""

    def rank_of(self, index: int) -> int:
        """Return which rank of the larger world the one at *index* is."""


@dataclass(frozen=True, slots=True)
class Group:
    """The *size* ranks ``first, first + stride, …``: `Members` at equal distances.

    In array form *index* and *first* are arrays.
    """

    index: int
    size: int
    first: int
    stride: int = 1

    def rank_of(self, index: int) -> int:
        """Return which rank of the larger world the one at *index* is."""
        return self.first + index * self.stride

    def reversed(self) -> Group:
        """Return the same ranks, counted from the other end."""
        last = self.first + (self.size - 1) * self.stride
        return Group(self.size - 1 - self.index, self.size, last, -self.stride)


def embed(
    program: Algorithm, group: Members, *, first_chunk: int, num_chunks: int, of: int, when: bool = True
) -> Iterator[Step]:
    """Yield the steps of *program* among *group* on the *num_chunks* chunks from *first_chunk*.

    Args:
        program: one whose messages arrive in the chunks that they left, or in scratch.
        group: the ranks that run it.
        first_chunk: of the larger world, where the program's chunk 0 begins.
        num_chunks: of the larger world, a multiple of the number of chunks of the program.
        of: chunks of the larger world; it must have the scratch that `scratch_for` says.
        when: whether this rank is in the group; elsewhere the steps are empty.

    Raises:
        NotSupportedError: *program* moves chunks about; among equal parts it may, but the chunks
            of a larger world may be of different lengths.
    """
    own_chunks = program.num_chunks(group.size)
    width = num_chunks // own_chunks

    def place(chunk: int) -> int:
        return chunk // own_chunks * of + first_chunk + chunk % own_chunks * width

    for step in program(group.index, group.size):
        placed: list[Operation] = []
        for operation in as_step(step):
            other_end: Any = group.rank_of(operation.peer) if isinstance(operation, Transfer) else None
            if isinstance(operation, Local):
                if np.any((operation.source - operation.chunk) % own_chunks):
                    raise NotSupportedError(
                        f"{program} for {program.collective} moves chunks about; embed ring instead"
                    )
                other_end = place(operation.source)
            taking_part = operation.when & when
            length = operation.num_chunks * width
            placed.append(type(operation)(other_end, place(operation.chunk), length, taking_part))
        yield tuple(placed)


def scratch_for(program: Algorithm, group_size: int, of: int) -> int:
    """Return the scratch chunks that a world of *of* chunks needs for *program* in it."""
    return -(-program.num_scratch_chunks(group_size) // program.num_chunks(group_size)) * of


def side_by_side(*programs: Iterable[Step]) -> Iterator[Step]:
    """Yield steps in which all *programs* take their next one at once, those that have one left."""
    for steps in zip_longest(*programs, fillvalue=()):
        yield tuple(operation for step in steps for operation in step)
