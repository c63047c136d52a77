"""Messages of a layout: collectives of its groups where they are placed, and transfers between stages.

All groups of an axis communicate at once: where they share links, a group's collective takes longer by as
much as its busiest link has more to carry, each group taken as a ring of its ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from collectives.timing import Assumptions, simulate
from sim.topology import Topology
from testbed.planning.layouts.layout import Layout


class Messages:
    """How long messages take on a network, in seconds.

    Args:
        topology: the network.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._assumed = Assumptions.of_a_real_run(topology, on_gpu=True)
        self._alone = lru_cache(maxsize=None)(self._simulated)
        self._contention = lru_cache(maxsize=None)(self._shared)
        self._per_byte = lru_cache(maxsize=None)(self._seconds_per_byte)

    def collective(
        self, collective: str, nbytes: float, layout: Layout, *axes: str, within: slice | None = None
    ) -> float:
        """Return the time of a collective of a group along *axes*, while all such groups have theirs.

        Args:
            collective: its name.
            nbytes: of the buffer, as nccl-tests counts it.
            layout: that places the group.
            axes: along which its ranks lie.
            within: which of these ranks have it; None: all.
        """
        places = layout.group(*axes)
        places = places if within is None else places[within]
        if len(places) == 1 or int(nbytes) == 0:
            return 0.0
        return self._alone(collective, int(nbytes), places) * self._contention(places)

    def transfer(self, nbytes: float, layout: Layout) -> float:
        """Return the time of a message between stages furthest apart, while all ranks send theirs."""
        stages = layout.group("pp")
        return nbytes * max(self._per_byte(pair) for pair in pairwise(stages))

    def nodes(self, places: Iterable[int]) -> int:
        """Return how many nodes there are from the first place to the last."""
        each = self.topology.ranks_per_node
        return max(places) // each - min(places) // each + 1

    def _simulated(self, collective: str, nbytes: int, places: tuple[int, ...]) -> float:
        return simulate(
            self._assumed.algorithm,
            nbytes=nbytes,
            topology=self.topology,
            collective=collective,
            placement=list(places),
            assumptions=self._assumed,
        ).seconds

    def _seconds_per_byte(self, pair: tuple[int, int]) -> float:
        rates = [int(self.topology.link_bandwidth[link]) for link in self.topology.route(*pair)]
        return self._contention(pair) / min(rates)

    def _shared(self, places: tuple[int, ...]) -> float:
        """Return by what factor a group is slower while the others that are placed like it communicate."""
        own = self._carried([places])
        everyone = self._carried(self._alike(places))
        bandwidth = self.topology.link_bandwidth
        alone, together = (
            max(flows / int(bandwidth[link]) for link, flows in carried.items())
            for carried in (own, everyone)
        )
        return together / alone

    def _alike(self, places: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the groups of all ranks that lie apart as *places* do."""
        groups, taken = [], set[int]()
        for base in range(self.topology.num_ranks - places[-1]):
            if base in taken:
                continue
            group = tuple(base + place for place in places)
            if taken.isdisjoint(group):
                groups.append(group)
                taken.update(group)
        return groups

    def _carried(self, groups: Iterable[tuple[int, ...]]) -> Counter[int]:
        """Return how many messages links carry, of a ring in each group."""
        carried = Counter[int]()
        for group in groups:
            for source, destination in zip(group, (*group[1:], group[0]), strict=True):
                carried.update(self.topology.route(source, destination))
        return carried
