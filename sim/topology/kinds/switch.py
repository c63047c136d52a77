"""All ranks on one non-blocking switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.topology.fabric import FabricName, of_ports
from sim.topology.layout import Links, NetworkLayout
from sim.topology.parameters import Bandwidth, Latency, NumRanks
from sim.topology.routing import Cut, Ranks, Wiring, cut_around_ranks, rank_names, up_or_down
from sim.topology.sharing_table import SharingArgument
from sim.units import parse_count


def switch(
    *,
    num_ranks: NumRanks,
    bandwidth: Bandwidth,
    sharing: SharingArgument = None,
    latency: Latency,
    fabric: FabricName | None = None,
    name: str = "switch",
) -> NetworkLayout:
    """Return ranks on one non-blocking switch; a path has two links, up and down.

    Args:
        num_ranks: number of ranks, at least 1.
        bandwidth: of each link and direction, ``"100Gbps"`` or a number of bytes/s.
        sharing: what flows get of each link, such as ``{"one_way": [1.0, 0.98], "both_ways": [0.95]}``;
            see `sim.topology.sharing_table`.
        latency: of each link, ``"2us"`` or a number of seconds.
        fabric: what flows get of a port of the switch where *sharing* does not say it, such as
            ``"ethernet-tcp"``; see `sim.topology.fabric`.  None: all of it.
        name: for people.

    Raises:
        TopologyError: an impossible number of ranks, or parts; an unknown fabric.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    ranks = parse_count(num_ranks, "num_ranks")
    up = Links.read(ranks, bandwidth, latency, sharing)
    down = up._replace(sharing=of_ports(fabric, sharing))
    return NetworkLayout(name, ranks, 1, [up, down], SwitchRouting(ranks))


@dataclass(frozen=True)
class SwitchRouting:
    """Every rank has an up link to one switch and a down link from it.

    Links: up of rank r is ``r``, down is ``num_ranks + r``.
    """

    num_ranks: int

    by_channel = False

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the up link of *source*, then the down link of *destination*."""
        yield source
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up``."""
        return up_or_down(link, self.num_ranks)

    def wiring(self) -> Wiring:
        """Return the ranks and ``switch``."""
        ranks = np.arange(self.num_ranks)
        switch = np.full_like(ranks, self.num_ranks)
        names = (*rank_names(self.num_ranks), "switch")
        return Wiring(names, np.concatenate([ranks, switch]), np.concatenate([switch, ranks]))

    def cuts(self) -> list[Cut]:
        """Return the cut around each rank."""
        return [cut_around_ranks(self.num_ranks)]
