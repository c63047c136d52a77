"""Fabrics: what the switches of a network do where several flows end in one port.

A port of a switch has one queue for all flows that leave by it.  Where flow control makes senders wait before
that queue is full, they get all of the port, however many they are.  TCP over Ethernet learns that it is full
by frames that are lost and sent again, some after a time-out.  A fabric is the sharing table of such a port
(`sim.topology.sharing_table`); links that leave a host have none, as a host queues for itself.

    ethernet-tcp  queues that lose what comes when they are full, and no flow control.  Measured by
                  ``benchmarks.lab.shaped --incast`` on a switch of 2 to 16 hosts at 25 Mbit/s: each
                  sends to k others and receives from k at once, 4 MiB in all.  Hosts are as Linux makes
                  them (trains of frames up to 64 KiB, time-outs of 200 ms or more); a port queues 256 KiB,
                  the part of each of 64 ports that share 16 MiB.
    infiniband    credits: nothing is sent for which there is no room (InfiniBand Architecture Specification,
                  volume 1, section 7.9).  All of the port, by assumption.
    roce          priority flow control stops a sender before a queue is full, and DCQCN slows it down before
                  that (Zhu et al., "Congestion control for large-scale RDMA deployments", SIGCOMM 2015).  All
                  of the port, by assumption: that senders which are stopped stop others is left out.

Assumptions: those of sharing tables.  A table of the links' own goes before that of their fabric.  More flows
than were measured get as much as most of those measured did.  A time-out takes as long on a fast link as on a
slow one, so where there are any, fast links lose more than the table says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from sim.errors import TopologyError
from sim.topology.sharing_table import WHOLE, Sharing, SharingArgument

FabricName: TypeAlias = Annotated[str, "fabric"]
"""A parameter of a kind of network, one of `FABRICS`."""

_DROP_TAIL = (1.0, 0.95, 0.9, 0.875, 0.85, 0.825, 0.8, 0.785, 0.77, 0.755, 0.74, 0.725, 0.71, 0.695, 0.68)
"""Measured with 1, 3, 7 and 15 flows, over what one gets; on lines between."""

FABRICS: Mapping[str, Sharing] = {
    "ethernet-tcp": Sharing(_DROP_TAIL),
    "infiniband": WHOLE,
    "roce": WHOLE,
}
"""What flows that end in a port get of it together, by name."""


def of_ports(fabric: str | None, own: SharingArgument) -> SharingArgument:
    """Return what flows get of links that leave a switch of *fabric*: as their *own* table says, if any.

    Raises:
        TopologyError: there is no such fabric.
    """
    if fabric is not None and fabric not in FABRICS:
        raise TopologyError(f"fabric: expected one of {', '.join(FABRICS)}, got {fabric!r}")
    return FABRICS[fabric] if own is None and fabric is not None else own


def loses(fabric: str | None) -> bool:
    """Return whether flows that end in one port of *fabric* get less than all of it together."""
    return not FABRICS.get(fabric or "", WHOLE).is_whole
