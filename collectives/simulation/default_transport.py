"""Default transport model of a network: what our programs would run over on it."""

from __future__ import annotations

from sim.topology import Topology


def default_transport_model(topology: Topology) -> str:
    """Return the name of the transport model that a real run on *topology* would follow.

    ``nccl`` where the network says what GPUs and network cards it has (``[hardware]``), else ``gloo``.
    """
    return "gloo" if topology.hardware is None else "nccl"
