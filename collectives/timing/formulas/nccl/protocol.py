"""NCCL's protocols on a simulated network: payload of a link, and latency of a message.

    protocol  payload    why
    LL        1/2        every 4 bytes of data carry a flag of 4 bytes
    LL128     120/128    every 120 bytes of data carry a flag of 8 bytes
    Simple    1          flags are apart from the data, behind a fence

In NCCL's model a ring's step over a class of links (nvlink, pci, net) takes a latency that depends on the
protocol: copy, fence, flag and wire.  `with_protocol` makes a message between the two nearest ranks of a
class take exactly that before its bytes flow: what the wire does not take already is added, as overhead of
the host, to the link on which a message leaves its rank or network card.  A pair that is farther apart
takes more by its further links; a wire that is slower than NCCL's figure stays as it is.  Not included is
what NCCL takes once per call (7 to 14 us, ``base_latency`` in `collectives.timing.formulas.nccl.constants`).

Ranks that share a node are joined by the links that the hardware names, else by NVLink; where each node is
one rank, all links are of the class net.  Ranks that forward for others (ring, torus) would pay at every
rank on the way; such networks are refused, but not those in which each rank has a link to each.

Source: NVIDIA/nccl 2.30, ``src/graph/tuning.cc`` (``hwLatencies`` of Ring), ``src/include/device.h`` (sizes
of lines and flags).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from collectives.errors import NotSupportedError
from collectives.timing.formulas.nccl.constants import NCCL_2_30, LinkClass, NcclProtocol
from sim.topology import Topology
from sim.topology.routing import Wiring

Mask: TypeAlias = npt.NDArray[np.bool_]

PAYLOAD = MappingProxyType({"LL": Fraction(1, 2), "LL128": Fraction(120, 128), "Simple": Fraction(1)})
"""The part of the bytes on the wire that is data."""

_PS_PER_US = 10**6


def hop_latency_ps(protocol: NcclProtocol, link: LinkClass) -> int:
    """Return what a step of NCCL's ring takes over a class of links, without its bytes, in picoseconds."""
    return round(NCCL_2_30.hop_latency[link]["Ring"][protocol] * _PS_PER_US)


def with_protocol(topology: Topology, protocol: NcclProtocol) -> Topology:
    """Return *topology* as messages see it that are sent by *protocol*.

    Bandwidths are scaled by `PAYLOAD`, and a fraction of a byte per second is dropped.

    Raises:
        ValueError: there is no such protocol.
        NotSupportedError: ranks forward for others, or it cannot be told which links are those of
            network cards.
    """
    if protocol not in PAYLOAD:
        known = ", ".join(get_args(NcclProtocol))
        raise ValueError(f"protocol: expected one of {known}, got {protocol!r}")
    what = f"protocol {protocol} on {topology.name}"

    wiring = topology.routing.wiring()
    inside, between = _ends(topology, wiring, what)
    latency = topology.link_latency.copy()
    near: LinkClass = topology.hardware.intra_link if topology.hardware else "nvlink"
    for (leaving, entering), link in ((inside, near), (between, "net")):
        if leaving.any() and entering.any():
            wire = latency + int(topology.link_latency[entering].min())
            overhead = np.maximum(hop_latency_ps(protocol, link) - wire, 0)
            latency = np.where(leaving, latency + overhead, latency)

    payload = PAYLOAD[protocol]
    bandwidth = [
        max(1, int(rate) * payload.numerator // payload.denominator) for rate in topology.link_bandwidth
    ]

    return replace(
        topology,
        name=f"{topology.name}, {protocol}",
        link_bandwidth=np.array(bandwidth, dtype=np.int64),
        link_latency=latency,
    )


def _ends(topology: Topology, wiring: Wiring, what: str) -> tuple[tuple[Mask, Mask], tuple[Mask, Mask]]:
    """Return which links leave and enter a rank inside its node, and which between nodes."""
    num_ranks = topology.num_ranks
    leaving, entering = wiring.tail < num_ranks, wiring.head < num_ranks
    ends = {
        *zip(wiring.tail[leaving & entering].tolist(), wiring.head[leaving & entering].tolist(), strict=True)
    }
    if ends and len(ends) < num_ranks * (num_ranks - 1):
        raise NotSupportedError(f"{what}: ranks are linked to ranks and forward for others; use switches")
    from_card = np.isin(wiring.tail, wiring.joins[wiring.joins[:, 0] < num_ranks, 1])
    to_card = np.isin(wiring.head, wiring.joins[wiring.joins[:, 1] < num_ranks, 0])
    none = np.zeros_like(leaving)
    if topology.ranks_per_node == 1 and not from_card.any():
        return (none, none), (leaving, entering)
    if not from_card.any() and topology.num_ranks > topology.ranks_per_node:
        raise NotSupportedError(f"{what}: it cannot be told which links are those of network cards")
    return (leaving, entering), (from_card, to_card)
