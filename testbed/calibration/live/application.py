"""A calibration applied: its constants as a network, and what it found of TCP put on another network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collectives.errors import NotSupportedError
from testbed.calibration.live.quantities import LinkClass, LinkShares

if TYPE_CHECKING:
    from sim import Topology
    from sim.topology.sharing_table import Sharing

_PS = 1e12


def applied(name: str, classes: Mapping[LinkClass, LinkShares], topology: Topology) -> Topology:
    """Return *topology* with the shares and latencies of *classes*; rates and wiring stay its own.

    Of a topology whose nodes have several ranks, links at the ranks are inside nodes, all others between
    them; of another, links at the ranks are between nodes, all others trunks.  Trunks that were not measured
    share as links between nodes do, and add no latency.  A path's latency is that of its links at the ends.

    Args:
        name: of the calibration that has found them.
        classes: what it has found, by class of links.
        topology: the network.

    Raises:
        NotSupportedError: nothing was measured of a class of links that *topology* has.
    """
    from sim.topology.link_sharing import LinkSharing

    wiring = topology.routing.wiring()
    at_rank = (np.asarray(wiring.tail) < topology.num_ranks) | (np.asarray(wiring.head) < topology.num_ranks)
    several = topology.ranks_per_node > 1
    ends: LinkClass = "inside_node" if several else "between_nodes"
    middle: LinkClass = "between_nodes" if several else "trunk"
    near = _measured(name, classes, ends)
    if at_rank.all():
        far, extra = near, 0.0
    elif several:
        far = _measured(name, classes, middle)
        extra = far.latency.value
    else:
        far = classes.get(middle, near)
        extra = max(0.0, far.latency.value - near.latency.value)

    half = np.where(at_rank, near.latency.value / 2, extra / 2)
    tables = [sharing_of(near) if own else sharing_of(far) for own in at_rank.tolist()]
    return replace(
        topology,
        link_latency=np.rint(half * _PS).astype(np.int64),
        sharing=LinkSharing.of([(1, table) for table in tables], topology.routing),
    )


def sharing_of(shares: LinkShares) -> Sharing:
    """Return *shares* as a sharing table."""
    from sim.topology.sharing_table import Sharing

    one_way, both_ways = (
        tuple(round(min(1.0, own.value), 4) for own in ways) for ways in (shares.one_way, shares.both_ways)
    )
    return Sharing(one_way, both_ways)


def _measured(name: str, classes: Mapping[LinkClass, LinkShares], kind: LinkClass) -> LinkShares:
    if kind not in classes:
        raise NotSupportedError(
            f"{name}: nothing was measured of links {kind.replace('_', ' ')}, only of links "
            f"{', '.join(own.replace('_', ' ') for own in classes)}; calibrate where such are"
        )
    return classes[kind]
