"""Divisions of tensors over ranks, which tell ranks apart that have unequal parts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from collectives.virtual.folding.classes import Division
from collectives.virtual.world import VirtualWorld
from sim.cluster import current_rank_thread


def note_division(division: Division) -> None:
    """Note that something is divided over the ranks of a group."""
    rank_thread = current_rank_thread()
    if rank_thread is not None:
        VirtualWorld.of(rank_thread.cluster).classes.note_division(division)


@dataclass(frozen=True)
class Rows:
    """Rows of a tensor: all parts are as long as the first, up to where the rows end.

    Attributes:
        size: how many rows.
        parts: how many ranks.
    """

    size: int
    parts: int

    @property
    def is_even(self) -> bool:
        """Whether all parts are as long."""
        return self.size % self.parts == 0

    def part(self, number: int) -> int:
        """Return how long a part is."""
        length = -(-self.size // self.parts)
        return min(max(self.size - number * length, 0), length)

    def __str__(self) -> str:
        return f"{self.size} over {self.parts} ranks"


@dataclass(frozen=True)
class Flat:
    """Tensors one after the other in a flat one, whose parts are equally long, whatever tensors are there.

    Attributes:
        sizes: elements of the tensors.
        parts: how many ranks.
        length: elements of a part.
    """

    sizes: tuple[int, ...]
    parts: int
    length: int

    @property
    def is_even(self) -> bool:
        """Whether all parts have pieces as long, of as many tensors."""
        return all(self.part(number) == self.part(0) for number in range(1, self.parts))

    def part(self, number: int) -> tuple[int, ...]:
        """Return how much of each tensor lies in a part, of those of which something does."""
        first, last = number * self.length, (number + 1) * self.length
        ends = list(accumulate(self.sizes))
        lengths = (
            min(end, last) - max(end - size, first) for size, end in zip(self.sizes, ends, strict=True)
        )
        return tuple(length for length in lengths if length > 0)

    def __str__(self) -> str:
        return f"{len(self.sizes)} tensors, {sum(self.sizes)} elements, over {self.parts} ranks"


@dataclass(frozen=True)
class Shares:
    """Tensors each of which belongs to one rank.

    Attributes:
        sizes: elements of those of each rank.
    """

    sizes: tuple[tuple[int, ...], ...]

    @property
    def parts(self) -> int:
        """How many ranks."""
        return len(self.sizes)

    @property
    def is_even(self) -> bool:
        """Whether all ranks have tensors of the same sizes."""
        return len(set(self.sizes)) == 1

    def part(self, number: int) -> tuple[int, ...]:
        """Return the sizes of the tensors of a rank."""
        return self.sizes[number]

    def __str__(self) -> str:
        return f"{sum(map(len, self.sizes))} tensors over {self.parts} ranks"
