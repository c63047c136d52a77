"""Links as a calibration has found them, put on other networks of the same machines and software."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collectives.errors import NotSupportedError
from sim.topology import Topology
from sim.topology.link_sharing import LinkSharing
from sim.units import SECOND
from testbed.calibration.live.calibration import Calibration, LinkClass, LinkShares
from testbed.calibration.live.constants import sharing_of


def applied_to(topology: Topology, calibration: Calibration) -> Topology:
    """Return *topology* with the shares and latencies of *calibration*; rates and wiring stay its own.

    Of a topology whose nodes have several ranks, links at the ranks are inside nodes, all others between
    them; of another, links at the ranks are between nodes, all others trunks.  Trunks that were not measured
    share as links between nodes do, and add no latency.  A path's latency is that of its links at the ends.

    Raises:
        NotSupportedError: nothing was measured of a class of links that *topology* has.
    """
    wiring = topology.routing.wiring()
    at_rank = (np.asarray(wiring.tail) < topology.num_ranks) | (np.asarray(wiring.head) < topology.num_ranks)
    several = topology.ranks_per_node > 1
    ends: LinkClass = "inside_node" if several else "between_nodes"
    middle: LinkClass = "between_nodes" if several else "trunk"
    near = _measured(calibration, ends)
    if at_rank.all():
        far, extra = near, 0.0
    elif several:
        far = _measured(calibration, middle)
        extra = far.latency.value
    else:
        far = calibration.classes.get(middle, near)
        extra = max(0.0, far.latency.value - near.latency.value)

    half = np.where(at_rank, near.latency.value / 2, extra / 2)
    tables = [sharing_of(near) if own else sharing_of(far) for own in at_rank.tolist()]
    return replace(
        topology,
        link_latency=np.rint(half * SECOND).astype(np.int64),
        sharing=LinkSharing.of([(1, table) for table in tables], topology.routing),
    )


def _measured(calibration: Calibration, kind: LinkClass) -> LinkShares:
    if kind not in calibration.classes:
        raise NotSupportedError(
            f"{calibration.name}: nothing was measured of links {kind.replace('_', ' ')}, only of links "
            f"{', '.join(own.replace('_', ' ') for own in calibration.classes)}; calibrate where such are"
        )
    return calibration.classes[kind]
