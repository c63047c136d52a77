"""A program inside a larger one: on some of the ranks, and on some of the chunks.

A program speaks of ranks ``0 … p-1`` and of chunks ``0 … k-1``.  A `Subgroup` says which ranks of a
larger world those are; `embed` turns what the program yields into steps of that world.  Algorithms
that are made of others, such as hierarchical and bucket, are then sequences of embedded programs.
It is all plain arithmetic, so what is embedded in array form is in array form again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Local, Operation, Step, as_step
from collectives.program.program import moved
from collectives.program.rank_array import Deferred, LazyArray


class Subgroup(Protocol):
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
    """The *size* ranks ``first, first + stride, …``: a `Subgroup` at equal distances.

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
    program: Algorithm, group: Subgroup, *, first_chunk: int, num_chunks: int, of: int, when: bool = True
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
    width = _as_one(num_chunks) // own_chunks
    ends = _Ends(group)

    def place(chunk: Any) -> Any:
        return chunk // own_chunks * of + first_chunk + chunk % own_chunks * width

    for step in program(group.index, group.size):
        placed: list[Operation] = []
        for operation in as_step(step):
            if isinstance(operation, Local) and np.any((operation.source - operation.chunk) % own_chunks):
                raise NotSupportedError(
                    f"{program} for {program.collective} moves chunks about; embed ring instead"
                )
            first: Any = place(operation.source) if isinstance(operation, Local) else ends.of(operation.peer)
            taking_part = when if operation.when is True else operation.when & when
            chunk: Any = operation.chunk
            over_ranks = isinstance(chunk, np.ndarray | LazyArray)
            chunk = Deferred(partial(place, chunk)) if over_ranks else place(chunk)
            placed.append(moved(operation, first, chunk, operation.num_chunks * width, taking_part))
        yield tuple(placed)


class _Ends:
    """Which ranks of the larger world peers are; those that a program keeps are looked up once."""

    def __init__(self, group: Subgroup) -> None:
        self._group = group
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, peer: Any) -> Any:
        """Return which rank *peer* of the group is; for the same object, the same."""
        if id(peer) not in self._known:
            if len(self._known) >= 8:
                self._known.clear()
            self._known[id(peer)] = peer, self._group.rank_of(peer)
        return self._known[id(peer)][1]


def _as_one(number: Any) -> Any:
    """Return *number*, which in array form is one for each rank, as one where they are all equal."""
    return int(number[0]) if isinstance(number, np.ndarray) and (number == number[0]).all() else number


def scratch_for(program: Algorithm, group_size: int, of: int) -> int:
    """Return the scratch chunks that a world of *of* chunks needs for *program* in it."""
    return -(-program.num_scratch_chunks(group_size) // program.num_chunks(group_size)) * of


def side_by_side(*programs: Iterable[Step]) -> Iterator[Step]:
    """Yield steps in which all *programs* take their next one at once, those that have one left."""
    for steps in zip_longest(*programs, fillvalue=()):
        yield tuple(operation for step in steps for operation in step)


def each_between(start: int, stop: int) -> Iterator[tuple[int, bool]]:
    """Yield each number from *start* to below *stop*, and whether this rank has it.

    In array form these are arrays over ranks: each rank gets its next number, until no rank has one left.
    """
    for ahead in range(int(np.max(stop - start))):
        yield start + ahead, start + ahead < stop
