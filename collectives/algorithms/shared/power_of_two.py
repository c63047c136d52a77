"""World sizes that are no powers of two, for algorithms whose partners differ in one bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collectives.errors import NotSupportedError
from collectives.program import Local, Operation, Program, Recv, RecvReduce, Send, Step


def floor_log2(world_size: int) -> int:
    """Return k of the largest power of two, ``2^k``, that is not above *world_size*."""
    return world_size.bit_length() - 1


def is_power_of_two(world_size: int) -> bool:
    """Return whether *world_size* is a power of two."""
    return world_size == 1 << floor_log2(world_size)


def require_power_of_two(world_size: int, what: str, instead: str) -> None:
    """Refuse any other world size.

    Raises:
        NotSupportedError: *world_size* is no power of two; the message says what to use *instead*.
    """
    if not is_power_of_two(world_size):
        raise NotSupportedError(f"{what} is for powers of two, got {world_size} ranks; use {instead}")


def folded(program: Program, rank: int, world_size: int, num_chunks: int) -> Iterator[Step]:
    """Yield this rank's steps of an all-reduce for any world size, given one for powers of two.

    Of ``2^k + e`` ranks, each of the first e even ones hands its *num_chunks* chunks to its right
    neighbour, which reduces them, and is sent the result in the end.  The other ``2^k``, numbered
    anew without gaps, run *program*.  That costs two steps, and one buffer sent, more.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005, on all-reduce; the neighbours are those of MPICH.
    """
    fold = Fold.of(rank, world_size)
    if fold.extra:
        yield fold.to_host(RecvReduce, 0, 0, num_chunks)
    for step in program(fold.core_rank, fold.core):
        yield tuple(fold.among_hosts(operation) for operation in step)
    if fold.extra:
        yield fold.to_leaf(0, 0, num_chunks)


def folded_reduce_scatter(program: Program, rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a reduce-scatter for any world size, given one for powers of two.

    As `folded`, but a host works on its leaf's chunk and its own, which lie side by side, and sends
    the leaf only that: two steps more, and at most one buffer sent.
    """
    fold = Fold.of(rank, world_size)
    if fold.extra:
        yield fold.to_host(RecvReduce, 0, 0, world_size)
    for step in program(fold.core_rank, fold.core):
        yield tuple(fold.on_both_chunks(fold.among_hosts(operation)) for operation in step)
    if fold.extra:
        yield fold.to_leaf(rank - 1, rank, 1)


def folded_all_gather(program: Program, rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of an all-gather for any world size: `folded_reduce_scatter` backwards."""
    fold = Fold.of(rank, world_size)
    if fold.extra:
        yield fold.to_host(Recv, rank, rank - 1, 1)
    for step in program(fold.core_rank, fold.core):
        yield tuple(fold.on_both_chunks(fold.among_hosts(operation)) for operation in step)
    if fold.extra:
        yield fold.to_leaf(0, 0, world_size)


@dataclass(frozen=True, slots=True)
class Fold:
    """Who stands in for whom: of ``2^k + e`` ranks, the first e odd ones for their left neighbours.

    Attributes:
        rank: this rank, or all ranks.
        core: ``2^k``.
        extra: e.
    """

    rank: int
    core: int
    extra: int

    @classmethod
    def of(cls, rank: int, world_size: int) -> Fold:
        """Return the fold of *world_size* ranks as *rank* sees it."""
        core = 1 << floor_log2(world_size)
        return cls(rank, core, world_size - core)

    @property
    def core_rank(self) -> int:
        """The number of this rank among those that stay."""
        number: int = self.rank - np.minimum((self.rank + 1) // 2, self.extra)
        return number

    @property
    def is_leaf(self) -> bool:
        """Whether another stands in for this rank."""
        return (self.rank < 2 * self.extra) & (self.rank % 2 == 0)

    @property
    def is_host(self) -> bool:
        """Whether this rank stands in for another."""
        return (self.rank < 2 * self.extra) & (self.rank % 2 == 1)

    def to_host(
        self, receive: type[Recv] | type[RecvReduce], sent: int, received: int, num_chunks: int
    ) -> Step:
        """Return the step in which leaves hand chunks from *sent* on to their hosts."""
        return (
            Send(self.rank + 1, sent, num_chunks, when=self.is_leaf),
            receive(self.rank - 1, received, num_chunks, when=self.is_host),
        )

    def to_leaf(self, sent: int, received: int, num_chunks: int) -> Step:
        """Return the step in which hosts hand chunks from *sent* on to their leaves."""
        return (
            Send(self.rank - 1, sent, num_chunks, when=self.is_host),
            Recv(self.rank + 1, received, num_chunks, when=self.is_leaf),
        )

    def among_hosts(self, operation: Operation) -> Operation:
        """Return *operation* of the ranks numbered anew as one of the ranks as they are."""
        stays = (self.rank >= 2 * self.extra) | (self.rank % 2 == 1)
        when = operation.when & stays
        if isinstance(operation, Local):
            return replace(operation, when=when)
        peer: Any = operation.peer + np.minimum(operation.peer + 1, self.extra)
        return replace(operation, peer=peer, when=when)

    def on_both_chunks(self, operation: Operation) -> Operation:
        """Return *operation* with a chunk for each core rank as one with a chunk for each rank."""
        first = self.first_chunk(operation.chunk)
        length = self.first_chunk(operation.chunk + operation.num_chunks) - first
        return replace(operation, chunk=first, num_chunks=length)

    def first_chunk(self, core_chunk: int) -> int:
        """Return the first chunk of the rank, and its leaf, whose number among those that stay this is."""
        first: int = core_chunk + np.minimum(core_chunk, self.extra)
        return first
