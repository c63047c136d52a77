"""Ranks of one host, whose messages go through memory that all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.topology.routing.protocol import Cut, Ranks, Wiring, rank_names


@dataclass(frozen=True)
class HostRouting:
    """Every rank has a link on which it writes and one on which it reads; all messages cross the memory.

    Links: writing of rank r is ``r``, reading ``num_ranks + r``, memory ``2 * num_ranks``.  What a rank
    writes and what it reads go opposite ways, as its processor does both.
    """

    num_ranks: int

    def walk(self, source: Ranks, destination: Ranks) -> Iterator[Ranks]:
        """Yield the link on which *source* writes, the memory, and that on which *destination* reads."""
        yield source
        yield 2 * self.num_ranks + 0 * source
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 writes``, or ``memory``."""
        if link == 2 * self.num_ranks:
            return "memory"
        return f"rank {link % self.num_ranks} {'reads' if link >= self.num_ranks else 'writes'}"

    def wiring(self) -> Wiring:
        """Return the ranks and the two ends of the memory."""
        ranks = np.arange(self.num_ranks)
        written, read = np.full_like(ranks, self.num_ranks), np.full_like(ranks, self.num_ranks + 1)
        return Wiring(
            (*rank_names(self.num_ranks), "memory, written", "memory, read"),
            np.concatenate([ranks, read, written[:1]]),
            np.concatenate([written, ranks, read[:1]]),
            opposite=np.concatenate([self.num_ranks + ranks, ranks, [-1]]),
        )

    def cuts(self) -> list[Cut]:
        """Return the cut around each rank."""
        ranks = np.arange(self.num_ranks)
        writes = ranks[:, None]
        return [Cut("rank", ranks, writes, self.num_ranks + writes)]
