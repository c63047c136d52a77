"""Routings: the links that a message crosses.

A routing numbers the directed links of a network and says which of them a message crosses between
any two ranks.  Regular networks do that by formula.  The arithmetic works on one pair of ranks as
on arrays of them, so each formula stands here once, and routes of thousands of ranks cost no search.

    Routing   what a routing says      SwitchRouting      one switch
    Wiring    what links connect       TorusRouting       a ring, a grid of rings
    Cut       where links are few      NodesRouting       nodes with network cards
    LinkSpec  a link of a graph        TreeRouting        a tree of switches
                                       ClusterRouting     nodes whose cards are on a tree
                                       HostRouting        one host: memory that ranks share
                                       GraphRouting       any graph: shortest paths
                                       DetourRouting      any of these, without some links
                                       UnsharedRouting    any of these, for each rank its own
"""

from __future__ import annotations

from sim.topology.routing.cluster import ClusterRouting
from sim.topology.routing.detour import DetourRouting
from sim.topology.routing.graph import GraphRouting, LinkSpec
from sim.topology.routing.host import HostRouting
from sim.topology.routing.nodes import NodesRouting
from sim.topology.routing.protocol import Cut, Ranks, Routing, Wiring
from sim.topology.routing.switch import SwitchRouting
from sim.topology.routing.switch_tree import SwitchTree
from sim.topology.routing.torus import TorusRouting
from sim.topology.routing.tree import TreeRouting
from sim.topology.routing.unshared import UnsharedRouting

__all__ = [
    "ClusterRouting",
    "Cut",
    "DetourRouting",
    "GraphRouting",
    "HostRouting",
    "LinkSpec",
    "NodesRouting",
    "Ranks",
    "Routing",
    "SwitchRouting",
    "SwitchTree",
    "TorusRouting",
    "TreeRouting",
    "UnsharedRouting",
    "Wiring",
]
