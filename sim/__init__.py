"""Networks and clusters in virtual time; knows messages and links, and no collectives.

    Topology        ranks, links and routes            Network   messages that share the links
    Stream          an in-order queue of operations    Cluster   rank threads in virtual time
    Trace           what happened when, for Perfetto   load_network, preset_names   networks by name
    Device          how fast a rank computes           load_device, device_names    devices by name
    Straggler, Jitter, LinkChange, LinkFailure, Background   conditions under which a cluster works

Virtual time is an int in picoseconds, sizes are int bytes, bandwidths int bytes per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.cluster import Cluster
from sim.errors import (
    ConditionError,
    DeadlockError,
    DeviceFileError,
    LinkFailedError,
    NetworkFileError,
    RankError,
    SimulationError,
    TopologyError,
    UnitError,
)
from sim.hardware import Device
from sim.network import Network
from sim.network.stream import Stream
from sim.network.transfers import transfer_times
from sim.scenario.conditions import Background, Condition, Jitter, LinkChange, LinkFailure, Straggler
from sim.topology import Topology
from sim.trace import Trace

if TYPE_CHECKING:
    from sim.files.device_file import device_names, load_device
    from sim.topology.description import load_network, preset_names

__all__ = [
    "Background",
    "Cluster",
    "Condition",
    "ConditionError",
    "DeadlockError",
    "Device",
    "DeviceFileError",
    "Jitter",
    "LinkChange",
    "LinkFailedError",
    "LinkFailure",
    "Network",
    "NetworkFileError",
    "RankError",
    "SimulationError",
    "Straggler",
    "Stream",
    "Topology",
    "TopologyError",
    "Trace",
    "UnitError",
    "device_names",
    "load_device",
    "load_network",
    "preset_names",
    "transfer_times",
]


def __getattr__(name: str) -> Any:
    """Load what reads files only when it is asked for, as it brings pydantic along."""
    if name in ("load_network", "preset_names"):
        from sim.topology import description

        return getattr(description, name)
    if name in ("load_device", "device_names"):
        from sim.files import device_file

        return getattr(device_file, name)
    raise AttributeError(f"module 'sim' has no attribute {name!r}")
