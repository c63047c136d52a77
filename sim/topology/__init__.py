"""Topologies: ranks, links and routes.  Open `topology` first."""

from sim.topology.topology import Topology

__all__ = ["Topology"]
