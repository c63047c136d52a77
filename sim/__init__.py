"""Networks and clusters in virtual time; knows messages and links, and no collectives.

    Topology        ranks, links and routes            Network   messages that share the links
    Stream          an in-order queue of operations    Cluster   rank threads in virtual time
    Trace           what happened when, for Perfetto   load_network, preset_names   networks by name

Virtual time is an int in picoseconds, sizes are int bytes, bandwidths int bytes per second.
"""

from sim.errors import (
    DeadlockError,
    NetworkFileError,
    RankError,
    SimulationError,
    TopologyError,
    UnitError,
)
from sim.network import Network
from sim.stream import Stream
from sim.topology import Topology

__all__ = [
    "DeadlockError",
    "Network",
    "NetworkFileError",
    "RankError",
    "SimulationError",
    "Stream",
    "Topology",
    "TopologyError",
    "UnitError",
]
