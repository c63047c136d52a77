"""Routings: the links that a message crosses.

A routing numbers the directed links of a network and says which of them a message crosses between
any two ranks.  Regular networks do that by formula.  The arithmetic works on one pair of ranks as
on arrays of them, so each formula stands once, and routes of thousands of ranks cost no search.
Each kind of network has its own (`sim.topology.kinds`); those here change another.

    Routing   what a routing says      DetourRouting        any routing, without some links
    Wiring    what links connect       UnsharedRouting      any, for each rank links of its own
    Cut       where links are few      PrivateLinksRouting  any, with links that only one rank uses
                                       FurtherLinksRouting  any, with links of single connections
"""

from __future__ import annotations

from sim.topology.routing.connections import Crossed, FurtherLinks, FurtherLinksRouting
from sim.topology.routing.detour import DetourRouting
from sim.topology.routing.hashing import ecmp_seed
from sim.topology.routing.private import PrivateLinksRouting
from sim.topology.routing.protocol import (
    Cut,
    Ranks,
    Routing,
    Wiring,
    choose,
    cut_around_ranks,
    one_pair,
    rank_names,
    up_or_down,
)
from sim.topology.routing.unshared import UnsharedRouting

__all__ = [
    "Crossed",
    "Cut",
    "DetourRouting",
    "FurtherLinks",
    "FurtherLinksRouting",
    "PrivateLinksRouting",
    "Ranks",
    "Routing",
    "UnsharedRouting",
    "Wiring",
    "choose",
    "cut_around_ranks",
    "ecmp_seed",
    "one_pair",
    "rank_names",
    "up_or_down",
]
