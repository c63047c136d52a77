"""What each collective demands: who holds what before, and who must hold what after.

Proofs are symbolic.  The content of a chunk is a set of *contributions*, one bit per rank:
bit ``q`` of chunk ``c`` stands for what rank ``q`` held in chunk ``c`` at the start.  A
reduction unites disjoint sets.  ``None`` as a demand means that the chunk may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True, slots=True)
class Contract:
    """The contract of one collective.

    Attributes:
        name: as in ``torch.distributed``.
        before: ``before(rank, chunk, world_size, num_chunks, root)`` is the set held at the start.
        after: the set that must be held at the end, or None.
        min_bytes_sent_fraction: what the busiest rank must send at least, over the bytes of the
            buffer (Chan et al., "Collective communication: theory, practice, and experience", 2007).
        rooted: the program has a keyword-only argument ``root``.
    """

    name: str
    before: Callable[[int, int, int, int, int], int]
    after: Callable[[int, int, int, int, int], int | None]
    min_bytes_sent_fraction: Callable[[int], Fraction]
    rooted: bool = False


def owner(chunk: int, world_size: int, num_chunks: int) -> int:
    """Return the rank whose equal part of the buffer holds *chunk*."""
    return chunk * world_size // num_chunks


def _own(rank: int, chunk: int, world_size: int, num_chunks: int, root: int) -> int:
    return 1 << rank


def _own_part(rank: int, chunk: int, world_size: int, num_chunks: int, root: int) -> int:
    return 1 << rank if owner(chunk, world_size, num_chunks) == rank else 0


def _roots(rank: int, chunk: int, world_size: int, num_chunks: int, root: int) -> int:
    return 1 << rank if rank == root else 0


def _everything(rank: int, chunk: int, world_size: int, num_chunks: int, root: int) -> int:
    return (1 << world_size) - 1


def _from_owner(rank: int, chunk: int, world_size: int, num_chunks: int, root: int) -> int:
    return 1 << owner(chunk, world_size, num_chunks)


def _from_root(rank: int, chunk: int, world_size: int, num_chunks: int, root: int) -> int:
    return 1 << root


def _reduced_part(rank: int, chunk: int, world_size: int, num_chunks: int, root: int) -> int | None:
    return (1 << world_size) - 1 if owner(chunk, world_size, num_chunks) == rank else None


CONTRACTS: Mapping[str, Contract] = {
    contract.name: contract
    for contract in (
        Contract("all_reduce", _own, _everything, lambda p: Fraction(2 * (p - 1), p)),
        Contract("reduce_scatter", _own, _reduced_part, lambda p: Fraction(p - 1, p)),
        Contract("all_gather", _own_part, _from_owner, lambda p: Fraction(p - 1, p)),
        Contract("broadcast", _roots, _from_root, lambda p: Fraction(min(p - 1, 1)), rooted=True),
    )
}


def describe(contributions: int, world_size: int) -> str:
    """Return a set of contributions in words, for example ``ranks 0, 2``."""
    ranks: list[Any] = [rank for rank in range(world_size) if contributions >> rank & 1]
    if not ranks:
        return "nothing"
    if len(ranks) == world_size:
        return "all ranks"
    return f"rank{'s' * (len(ranks) > 1)} " + ", ".join(map(str, ranks))
