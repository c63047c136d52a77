"""Messages that share the links of a topology.  Open `network` first."""

from sim.network.network import Network

__all__ = ["Network"]
