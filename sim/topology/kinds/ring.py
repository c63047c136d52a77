"""Links between neighbours."""

from __future__ import annotations

from sim.topology.kinds.torus import TorusRouting
from sim.topology.layout import Links, NetworkLayout
from sim.topology.parameters import Bandwidth, Latency, NumRanks
from sim.topology.sharing_table import SharingArgument
from sim.units import parse_count


def ring(
    *,
    num_ranks: NumRanks,
    bandwidth: Bandwidth,
    sharing: SharingArgument = None,
    latency: Latency,
    name: str = "ring",
) -> NetworkLayout:
    """Return ranks with a link to each neighbour; messages go the shorter way round.

    On a tie they go towards the next higher rank.  It is a torus of one dimension; arguments and errors as
    for `switch`.
    """
    routing = TorusRouting((parse_count(num_ranks, "num_ranks"),))
    links = Links.read(routing.num_links, bandwidth, latency, sharing)
    return NetworkLayout(name, routing.num_ranks, 1, [links], routing)
