"""Kinds of networks, one file each: what one is made of, its links, and the routes on them.

A kind is a function that returns a `NetworkLayout`; its parameters are at once the fields of its files
(`sim.topology.parameters`), and the first line of its file says in the JSON Schema what it is.  Its routing
stands behind it.  To add one, read `switch`, write a file, and name it in `KINDS` and in `Topology`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sim.topology.kinds.cluster import cluster
from sim.topology.kinds.fat_tree import fat_tree
from sim.topology.kinds.graph import graph
from sim.topology.kinds.host import host
from sim.topology.kinds.leaf_spine import leaf_spine
from sim.topology.kinds.nodes import nodes
from sim.topology.kinds.ring import ring
from sim.topology.kinds.switch import switch
from sim.topology.kinds.torus import torus
from sim.topology.layout import NetworkLayout

KINDS: Mapping[str, Callable[..., NetworkLayout]] = {
    kind.__name__: kind for kind in (switch, ring, nodes, leaf_spine, torus, fat_tree, cluster, host, graph)
}
"""By the names that network files have for them."""
