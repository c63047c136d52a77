"""Which links a message crosses, by formula.

A routing numbers the directed links of a network and says, for any two ranks, how many links the
way between them has and which is the k-th.  The arithmetic works on one pair of ranks as on
arrays of them, so each formula stands here once, and routes of thousands of ranks cost no search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from sim.units import Int64Array

Ranks: TypeAlias = int | Int64Array
"""One rank (or link), or an array of them; arguments of one call are of one kind."""


class Routing(Protocol):
    """How the links of a network are numbered and used.

    An implementer decides the numbering and the way between two different ranks.  Its ``repr``
    must tell apart routings that behave differently, as it goes into the topology's digest.
    """

    def num_hops(self, source: Ranks, destination: Ranks) -> Ranks:
        """Return the number of links from *source* to *destination*."""

    def hop(self, source: Ranks, destination: Ranks, k: int) -> Ranks:
        """Return the k-th link from *source* to *destination*; undefined from ``num_hops`` on."""

    def link_name(self, link: int) -> str:
        """Return a name of *link* for people."""

    def cuts(self) -> list[Cut]:
        """Return cuts whose links every message between two groups must use, narrow ones first.

        No algorithm can beat what these links carry; see `collectives.floor`.
        """


@dataclass(frozen=True, slots=True)
class Cut:
    """A division of the ranks into groups, and the links that cross a group's boundary.

    Attributes:
        name: what a group is, for example ``rank`` or ``node``.
        group_sizes: ranks of each of the g groups, int64.
        links_out: links on which messages leave each group, shape (g, k), padded with -1.
        links_in: links on which messages enter each group, shape (g, k), padded with -1.
    """

    name: str
    group_sizes: Int64Array
    links_out: Int64Array
    links_in: Int64Array


@dataclass(frozen=True)
class SwitchRouting:
    """Every rank has an up link to one switch and a down link from it.

    Links: up of rank r is ``r``, down is ``num_ranks + r``.
    """

    num_ranks: int

    def num_hops(self, source: Ranks, destination: Ranks) -> Ranks:
        """Return two, up and down."""
        return source * 0 + 2

    def hop(self, source: Ranks, destination: Ranks, k: int) -> Ranks:
        """Return the up link of *source*, then the down link of *destination*."""
        return self.num_ranks + destination if k else source

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up``."""
        return f"rank {link % self.num_ranks} {'down' if link >= self.num_ranks else 'up'}"

    def cuts(self) -> list[Cut]:
        """Return the cut around each rank."""
        ranks = np.arange(self.num_ranks)[:, None]
        return [Cut("rank", np.ones(self.num_ranks, dtype=np.int64), ranks, self.num_ranks + ranks)]


@dataclass(frozen=True)
class RingRouting:
    """Every rank has a link to either neighbour; the shorter way round, on a tie to rank + 1.

    Links: from r to r + 1 is ``r``, from r to r - 1 is ``num_ranks + r``.  Two ranks have one
    link each way, the first kind.
    """

    num_ranks: int

    def num_hops(self, source: Ranks, destination: Ranks) -> Ranks:
        """Return the distance the shorter way round."""
        ahead = (destination - source) % self.num_ranks
        return _choose(2 * ahead <= self.num_ranks, ahead, self.num_ranks - ahead)

    def hop(self, source: Ranks, destination: Ranks, k: int) -> Ranks:
        """Return the link out of the k-th rank on the way."""
        p = self.num_ranks
        ahead = (destination - source) % p
        return _choose(2 * ahead <= p, (source + k) % p, p + (source - k) % p)

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 to 4``."""
        source = link % self.num_ranks
        return f"rank {source} to {(source + (1 if link < self.num_ranks else -1)) % self.num_ranks}"

    def cuts(self) -> list[Cut]:
        """Return the cut around each rank."""
        p = self.num_ranks
        ranks = np.arange(p)
        if p == 2:
            out, into = ranks[:, None], (1 - ranks)[:, None]
        else:
            out = np.stack([ranks, p + ranks], axis=1)
            into = np.stack([(ranks - 1) % p, p + (ranks + 1) % p], axis=1)
        return [Cut("rank", np.ones(p, dtype=np.int64), out, into)]


@dataclass(frozen=True)
class NodesRouting:
    """A switch inside each node; between nodes the network cards (NICs), on a switch of theirs.

    A message inside a node crosses the rank's up and the peer's down link there; one to another
    node crosses only the up link of its NIC and the down link of the peer's.  Consecutive ranks
    share a NIC.

    Links, with R ranks on C NICs: up of rank r is ``r``, down is ``R + r``; up of NIC c is
    ``2R + c``, down is ``2R + C + c``.
    """

    num_ranks: int
    ranks_per_node: int
    ranks_per_nic: int

    @property
    def num_nics(self) -> int:
        """Number of NICs that some rank uses."""
        return -(-self.num_ranks // self.ranks_per_nic)

    def num_hops(self, source: Ranks, destination: Ranks) -> Ranks:
        """Return two, up and down."""
        return source * 0 + 2

    def hop(self, source: Ranks, destination: Ranks, k: int) -> Ranks:
        """Return the up link, then the down link, inside the node or of the NICs."""
        near = source // self.ranks_per_node == destination // self.ranks_per_node
        end = destination if k else source
        inside = k * self.num_ranks + end
        outside = 2 * self.num_ranks + k * self.num_nics + end // self.ranks_per_nic
        return _choose(near, inside, outside)

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up`` or ``node 1 NIC 0 down``."""
        if link < 2 * self.num_ranks:
            return f"rank {link % self.num_ranks} {'down' if link >= self.num_ranks else 'up'}"
        down, nic = divmod(link - 2 * self.num_ranks, self.num_nics)
        node, nic = divmod(nic, self.ranks_per_node // self.ranks_per_nic)
        return f"node {node} NIC {nic} {'down' if down else 'up'}"

    def cuts(self) -> list[Cut]:
        """Return the cuts around each node and around each rank."""
        ranks = np.arange(self.num_ranks)
        num_nodes = -(-self.num_ranks // self.ranks_per_node)
        nics_per_node = self.ranks_per_node // self.ranks_per_nic
        nics = np.arange(num_nodes * nics_per_node).reshape(num_nodes, nics_per_node)
        up = np.where(nics < self.num_nics, 2 * self.num_ranks + nics, -1)
        sizes = np.bincount(ranks // self.ranks_per_node, minlength=num_nodes)
        own_nic = 2 * self.num_ranks + ranks // self.ranks_per_nic
        out = np.stack([ranks, own_nic], axis=1)
        into = np.stack([self.num_ranks + ranks, own_nic + self.num_nics], axis=1)
        return [
            Cut("node", sizes, up, np.where(up >= 0, up + self.num_nics, -1)),
            Cut("rank", np.ones(self.num_ranks, dtype=np.int64), out, into),
        ]


def _choose(condition: Any, yes: Ranks, no: Ranks) -> Ranks:
    """Return *yes* where *condition* holds and *no* elsewhere, for one value or for arrays."""
    if isinstance(condition, np.ndarray):
        chosen: Int64Array = np.where(condition, yes, no)
        return chosen
    return yes if condition else no
