"""Defaults of a network: what would carry collectives on it, and over which transport."""

from __future__ import annotations

from collectives.catalogue.selectors import NCCL
from sim.topology import Topology
from sim.topology.routing import HostRouting

AUTO = "auto"


def default_transport_model(topology: Topology) -> str:
    """Return the name of the transport model that a real run on *topology* would follow.

    ``nccl`` where the network says what GPUs and network cards it has (``[hardware]``), ``shm`` on one host
    whose ranks share its memory, else ``gloo``.
    """
    if isinstance(topology.routing, HostRouting):
        return "shm"
    return "gloo" if topology.hardware is None else "nccl"


def default_algorithm(topology: Topology) -> str:
    """Return by what collectives on *topology* go where nobody has chosen.

    ``nccl``, NCCL's own choice, where the network says what GPUs it has; else ``auto``, the cheapest there.
    """
    return AUTO if topology.hardware is None else NCCL
