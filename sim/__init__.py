"""Networks and clusters in virtual time; knows messages and links, and no collectives.

    Topology        ranks, links and routes            Network   messages that share the links
    Stream          an in-order queue of operations    Cluster   rank threads in virtual time
    Trace           what happened when, for Perfetto   load_network, preset_names   networks by name
    Device          how fast a rank computes           load_device, device_names    devices by name
    Straggler, Jitter, LinkChange, LinkFailure, Background   conditions under which a cluster works

Virtual time is an int in picoseconds, sizes are int bytes, bandwidths int bytes per second.  Every name is
imported when it is first used: a topology needs no engine of events.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.cluster.cluster import Cluster as Cluster
    from sim.errors import ConditionError as ConditionError
    from sim.errors import DeadlockError as DeadlockError
    from sim.errors import DeviceFileError as DeviceFileError
    from sim.errors import LinkFailedError as LinkFailedError
    from sim.errors import NetworkFileError as NetworkFileError
    from sim.errors import RankError as RankError
    from sim.errors import SimulationError as SimulationError
    from sim.errors import TopologyError as TopologyError
    from sim.errors import UnitError as UnitError
    from sim.files.device_file import device_names as device_names
    from sim.files.device_file import load_device as load_device
    from sim.hardware import Device as Device
    from sim.network.network import Network as Network
    from sim.network.stream import Stream as Stream
    from sim.network.transfers import transfer_times as transfer_times
    from sim.scenario.conditions import Background as Background
    from sim.scenario.conditions import Condition as Condition
    from sim.scenario.conditions import Jitter as Jitter
    from sim.scenario.conditions import LinkChange as LinkChange
    from sim.scenario.conditions import LinkFailure as LinkFailure
    from sim.scenario.conditions import Straggler as Straggler
    from sim.topology import Topology as Topology
    from sim.topology.description import load_network as load_network
    from sim.topology.description import preset_names as preset_names
    from sim.trace import Trace as Trace

_HOMES = {
    "sim.cluster.cluster": ("Cluster",),
    "sim.errors": (
        "ConditionError",
        "DeadlockError",
        "DeviceFileError",
        "LinkFailedError",
        "NetworkFileError",
        "RankError",
        "SimulationError",
        "TopologyError",
        "UnitError",
    ),
    "sim.files.device_file": ("device_names", "load_device"),
    "sim.hardware": ("Device",),
    "sim.network.network": ("Network",),
    "sim.network.stream": ("Stream",),
    "sim.network.transfers": ("transfer_times",),
    "sim.scenario.conditions": (
        "Background",
        "Condition",
        "Jitter",
        "LinkChange",
        "LinkFailure",
        "Straggler",
    ),
    "sim.topology": ("Topology",),
    "sim.topology.description": ("load_network", "preset_names"),
    "sim.trace": ("Trace",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Import what is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
