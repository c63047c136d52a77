"""Resources of a network: groups of links that are bought together, under the names of the file's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from testbed.studies.network_survey import kind_of

if TYPE_CHECKING:
    from sim.topology import Topology
    from sim.units import Int64Array

ALL_LINKS = "all links"
"""The group of every link."""

FIELDS: Mapping[tuple[str, ...], str] = {
    ("node switch", "rank"): "intra_bandwidth",
    ("node NIC", "switch"): "nic_bandwidth",
    ("leaf", "node NIC"): "nic_bandwidth",
    ("leaf", "spine"): "uplink_bandwidth",
}
"""The field of a network file that says what such links carry, where not all have one."""


def link_groups(topology: Topology) -> dict[str, Int64Array]:
    """Return the numbers of the links of each group, by its name.

    Links that join ends of the same kinds are a group.  It is named after the field of the network's file
    that gives its bandwidth, or after its ends, such as ``gpu to nvswitch``.
    """
    wiring = topology.routing.wiring()
    kinds = [kind_of(name) for name in wiring.names]
    ends = [
        tuple(sorted((kinds[tail], kinds[head])))
        for tail, head in zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True)
    ]
    known = sorted(set(ends))
    number = {pair: place for place, pair in enumerate(known)}
    of = np.array([number[pair] for pair in ends], dtype=np.int64)
    return {_name(pair, len(known)): np.flatnonzero(of == place) for pair, place in number.items()}


def _name(ends: tuple[str, ...], num_groups: int) -> str:
    alone = "bandwidth" if num_groups == 1 or ends == ("leaf", "rank") else " to ".join(ends)
    return FIELDS.get(ends, alone)
