"""Ranks on one non-blocking switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.topology.routing.protocol import Cut, Ranks, Wiring, rank_names


@dataclass(frozen=True)
class SwitchRouting:
    """Every rank has an up link to one switch and a down link from it.

    Links: up of rank r is ``r``, down is ``num_ranks + r``.
    """

    num_ranks: int

    def walk(self, source: Ranks, destination: Ranks) -> Iterator[Ranks]:
        """Yield the up link of *source*, then the down link of *destination*."""
        yield source
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up``."""
        return f"rank {link % self.num_ranks} {'down' if link >= self.num_ranks else 'up'}"

    def wiring(self) -> Wiring:
        """Return the ranks and ``switch``."""
        ranks = np.arange(self.num_ranks)
        switch = np.full_like(ranks, self.num_ranks)
        names = (*rank_names(self.num_ranks), "switch")
        return Wiring(names, np.concatenate([ranks, switch]), np.concatenate([switch, ranks]))

    def cuts(self) -> list[Cut]:
        """Return the cut around each rank."""
        ranks = np.arange(self.num_ranks)
        up = ranks[:, None]
        return [Cut("rank", ranks, up, self.num_ranks + up)]
