"""Defaults of a network: what would carry collectives on it, and over which transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.catalogue.selectors import NCCL
from sim.topology import Topology
from sim.topology.routing import HostRouting

if TYPE_CHECKING:
    from collectives.simulation.closed_forms import Model
    from sim.topology.description import NetworkDescription

AUTO = "auto"


def asked_topology(
    topology: Topology | None, network: str | NetworkDescription | None, num_ranks: int | None
) -> Topology:
    """Return the network on which something is asked: a bare topology, or a network of so many ranks.

    Raises:
        ValueError: both are given, or neither.
        NetworkFileError, TopologyError: there is no such network, or not of so many ranks.
    """
    if (topology is None) == (network is None):
        raise ValueError("expected a topology (links alone) or a network (what a real run uses), one of both")
    if topology is not None:
        if num_ranks not in (None, topology.num_ranks):
            raise ValueError(f"num_ranks={num_ranks}: the topology has {topology.num_ranks} ranks")
        return topology
    assert network is not None
    from sim.topology.description import load_network  # which brings pydantic along

    description = load_network(network) if isinstance(network, str) else network
    return description.topology(num_ranks)


def default_transport_model(topology: Topology) -> str:
    """Return the name of the transport model that a real run on *topology* would follow.

    ``nccl`` where the network says what GPUs and network cards it has (``[hardware]``), ``shm`` on one host
    whose ranks share its memory, else ``gloo``.
    """
    if isinstance(topology.routing, HostRouting):
        return "shm"
    return "gloo" if topology.hardware is None else "nccl"


def default_model(topology: Topology) -> Model:
    """Return by which model of time collectives on *topology* go where nobody has chosen.

    ``library``, what was measured of the library or what its own model makes likely, where the network says
    what GPUs it has; else ``links``.
    """
    return "links" if topology.hardware is None else "library"


def default_algorithm(topology: Topology) -> str:
    """Return by what collectives on *topology* go where nobody has chosen.

    ``nccl``, NCCL's own choice, where the network says what GPUs it has; else ``auto``, the cheapest there.
    """
    return AUTO if topology.hardware is None else NCCL
