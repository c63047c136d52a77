"""Contracts of the collectives: who holds what before, and who must hold what after.

A buffer is divided into chunks, and every rank contributes to each.  What a chunk holds is said
as a `Part`: the ranks whose contributions are in it, and the chunk that they contributed to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple


class Part(NamedTuple):
    """Contributions of *ranks*, a set of bits, to *chunk*."""

    ranks: int
    chunk: int


class Place(NamedTuple):
    """A chunk of a rank, and all on which a contract depends."""

    rank: int
    chunk: int
    world_size: int
    num_chunks: int
    root: int

    @property
    def own(self) -> Part:
        """What this rank contributes to this chunk."""
        return Part(1 << self.rank, self.chunk)

    @property
    def whole(self) -> Part:
        """The contributions of all ranks to this chunk."""
        return Part((1 << self.world_size) - 1, self.chunk)

    @property
    def owner(self) -> int:
        """The rank to whose equal part of the buffer this chunk belongs."""
        return self.chunk * self.world_size // self.num_chunks

    @property
    def mirrored_chunk(self) -> int:
        """The chunk in which the owner of this chunk has what it gives to this rank."""
        chunks_per_rank = self.num_chunks // self.world_size
        return self.rank * chunks_per_rank + self.chunk % chunks_per_rank


Demand = Callable[[Place], Part | None]


@dataclass(frozen=True, slots=True)
class Contract:
    """The contract of one collective.

    Attributes:
        name: as in ``torch.distributed``.
        before: what a place holds at the start; None: nothing that anybody has put there.
        after: what a place must hold at the end; None: anything.
        min_bytes_sent_fraction: what the busiest rank must send at least, over the bytes of the
            buffer (Chan et al., "Collective communication: theory, practice, and experience", 2007).
        equal_parts: the buffer consists of one part per rank, all of one size, and each is divided
            into chunks by itself.  The last chunks, of a part or of the buffer, may be shorter, so a
            message must arrive in the same place of a part that it left.
    """

    name: str
    before: Demand
    after: Demand
    min_bytes_sent_fraction: Callable[[int], Fraction]
    equal_parts: bool = False

    def num_parts(self, world_size: int) -> int:
        """Return of how many parts, each divided into chunks by itself, the buffer consists."""
        return world_size if self.equal_parts else 1


CONTRACTS: Mapping[str, Contract] = {
    contract.name: contract
    for contract in (
        Contract(
            "all_reduce",
            before=lambda place: place.own,
            after=lambda place: place.whole,
            min_bytes_sent_fraction=lambda p: Fraction(2 * (p - 1), p),
        ),
        Contract(
            "reduce_scatter",
            before=lambda place: place.own,
            after=lambda place: place.whole if place.owner == place.rank else None,
            min_bytes_sent_fraction=lambda p: Fraction(p - 1, p),
            equal_parts=True,
        ),
        Contract(
            "all_gather",
            before=lambda place: place.own if place.owner == place.rank else None,
            after=lambda place: Part(1 << place.owner, place.chunk),
            min_bytes_sent_fraction=lambda p: Fraction(p - 1, p),
            equal_parts=True,
        ),
        Contract(
            "broadcast",
            before=lambda place: place.own if place.rank == place.root else None,
            after=lambda place: Part(1 << place.root, place.chunk),
            min_bytes_sent_fraction=lambda p: Fraction(min(p - 1, 1)),
        ),
        Contract(
            "reduce",
            before=lambda place: place.own,
            after=lambda place: place.whole if place.rank == place.root else None,
            min_bytes_sent_fraction=lambda p: Fraction(min(p - 1, 1)),
        ),
        Contract(
            "gather",
            before=lambda place: place.own if place.owner == place.rank else None,
            after=lambda place: Part(1 << place.owner, place.chunk) if place.rank == place.root else None,
            min_bytes_sent_fraction=lambda p: Fraction(min(p - 1, 1), p),
            equal_parts=True,
        ),
        Contract(
            "scatter",
            before=lambda place: place.own if place.rank == place.root else None,
            after=lambda place: Part(1 << place.root, place.chunk) if place.owner == place.rank else None,
            min_bytes_sent_fraction=lambda p: Fraction(p - 1, p),
            equal_parts=True,
        ),
        Contract(
            "all_to_all",
            before=lambda place: place.own,
            after=lambda place: Part(1 << place.owner, place.mirrored_chunk),
            min_bytes_sent_fraction=lambda p: Fraction(p - 1, p),
            equal_parts=True,
        ),
    )
}
