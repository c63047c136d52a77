"""Contents of a chunk, without data: which ranks' contributions to which chunk, in one integer.

    bits 0 … p-1   the ranks whose contributions are in it
    bit  p         UNDEFINED: it was reduced with what nobody had put there, or never written
    bit  p+1       TWICE: a contribution was added that was already in it
    bit  p+2       MIXED: contributions to different chunks were added
    above          the chunk that they are contributions to

Reducing two chunks is then a union, and whatever goes wrong on the way stays visible at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Contents:
    """The integers that stand for contents among *world_size* ranks."""

    world_size: int

    @cached_property
    def undefined(self) -> int:
        """The flag of a chunk that holds something that nobody has put there."""
        return 1 << self.world_size

    @cached_property
    def twice(self) -> int:
        """The flag of a chunk in which a contribution is more than once."""
        return 2 << self.world_size

    @cached_property
    def mixed(self) -> int:
        """The flag of a chunk in which contributions to different chunks are."""
        return 4 << self.world_size

    @cached_property
    def _chunk_bit(self) -> int:
        return self.world_size + 3

    @cached_property
    def _spoiled(self) -> int:
        return self.undefined | self.twice | self.mixed

    def of(self, ranks: int, chunk: int) -> int:
        """Return the content made of the contributions of *ranks*, a set of bits, to *chunk*."""
        return ranks | chunk << self._chunk_bit

    def unknown(self, chunk: int) -> int:
        """Return the content of *chunk* where nobody has put anything."""
        return self.undefined | chunk << self._chunk_bit

    def reduce(self, held: int, incoming: int) -> int:
        """Return what is held after *incoming* has been reduced into it."""
        if (held ^ incoming) >> self._chunk_bit:
            low = (1 << self._chunk_bit) - 1
            return held | incoming & low | self.mixed
        if held & incoming & (self.undefined - 1):
            return held | incoming | self.twice
        return held | incoming

    def spoiled(self, content: int) -> bool:
        """Return whether something has gone wrong on the way to *content*."""
        return content & self._spoiled != 0

    def describe(self, content: int) -> str:
        """Return *content* in words, for example ``chunk 3 of ranks 0, 2``."""
        if content & self.mixed:
            return "contributions to different chunks"
        if content & self.undefined:
            return "something undefined, made of a chunk that no rank had filled"
        chunk = content >> self._chunk_bit
        ranks = [rank for rank in range(self.world_size) if content >> rank & 1]
        if len(ranks) == self.world_size:
            text = f"chunk {chunk} of all ranks"
        else:
            text = f"chunk {chunk} of rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
        return text + (", some of them more than once" if content & self.twice else "")
