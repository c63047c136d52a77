"""Pools of cached blocks: from which of them a request is served, by size and then by address.

Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp (``BlockPool``, ``BlockComparatorSize``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass

SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment.

    Attributes:
        pool: whose it is.
        address: in a space in which nothing else lies; where it is means nothing.
        size: in bytes.
        requested: what was asked for, in bytes.
        before, after: its neighbours in the segment.
    """

    pool: Pool
    address: int
    size: int
    requested: int = 0
    is_free: bool = False
    before: Block | None = None
    after: Block | None = None

    @property
    def is_split(self) -> bool:
        """Whether it is not a whole segment."""
        return self.before is not None or self.after is not None


class Pool:
    """The cached blocks of one stream, small or large.

    Attributes:
        end: the last block of the segment that grows, where there is one.
    """

    def __init__(self, stream: Hashable, is_small: bool) -> None:
        self.stream = stream
        self.is_small = is_small
        self.end: Block | None = None
        self._free: list[tuple[int, int, Block]] = []

    @property
    def page(self) -> int:
        """By how much its growing segment grows, in bytes."""
        return SMALL_SEGMENT if self.is_small else LARGE_SEGMENT

    def add(self, block: Block) -> None:
        """Cache a block."""
        block.is_free = True
        insort(self._free, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        """Take a cached block out."""
        block.is_free = False
        del self._free[bisect_left(self._free, (block.size, block.address))]

    def best(self, size: int) -> Block | None:
        """Return the smallest cached block of at least *size* bytes."""
        place = bisect_left(self._free, (size, 0))
        return self._free[place][2] if place < len(self._free) else None

    def cached(self) -> list[Block]:
        """Return all cached blocks."""
        return [block for _, _, block in self._free]
