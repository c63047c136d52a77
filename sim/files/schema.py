"""Fields of network files: one model for each kind of network.

A model holds what is written, in the units of `sim.units`: bandwidths in bytes per second, latencies in
picoseconds.  Beside each bandwidth stands an efficiency: the part of the line rate that is left for
payload (headers, flow control, protocol), 1 unless the file says otherwise; links get the product.  A
sharing table beside it says what several flows, and flows both ways, leave of that product.

Every kind says how many ranks it has (``size``, None for any number), about how many links it would
need (so that what is too large is refused before it is built), and the arguments of the constructor of
`sim.topology.Topology` that has its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from sim.files.common import AnySize, Common
from sim.files.fields import Bandwidth, Count, Efficiency, FabricName, SharingTable, Size, Time
from sim.files.graph_tables import (
    LinkClassTable,
    LinkTable,
    NodeTable,
    RouteTable,
    Vertices,
    count_links,
    count_ranks,
    named_links,
    static_routes,
)
from sim.files.trees import Cluster, FatTree, LeafSpine, Seed
from sim.units import MOST_SPEEDUP

Speedup: TypeAlias = Annotated[float, Field(ge=1, le=MOST_SPEEDUP)]


class Switch(AnySize):
    """All ranks on one non-blocking switch."""

    kind: Literal["switch"]
    bandwidth: Bandwidth
    efficiency: Efficiency = 1.0
    sharing: SharingTable | None = None
    latency: Time
    fabric: FabricName | None = None

    def num_links(self, num_ranks: int) -> int:
        """Return the number of directed links for *num_ranks* ranks."""
        return 2 * num_ranks


class Ring(AnySize):
    """Links between neighbours."""

    kind: Literal["ring"]
    bandwidth: Bandwidth
    efficiency: Efficiency = 1.0
    sharing: SharingTable | None = None
    latency: Time

    def num_links(self, num_ranks: int) -> int:
        """Return the number of directed links for *num_ranks* ranks."""
        return 2 * num_ranks


class Nodes(AnySize):
    """Nodes of several ranks with a fast network inside and network cards between them."""

    kind: Literal["nodes"]
    ranks_per_node: Count
    intra_bandwidth: Bandwidth
    intra_efficiency: Efficiency = 1.0
    intra_sharing: SharingTable | None = None
    intra_latency: Time
    nics_per_node: Count
    nic_bandwidth: Bandwidth
    nic_efficiency: Efficiency = 1.0
    nic_sharing: SharingTable | None = None
    nic_latency: Time
    fabric: FabricName | None = None

    def num_links(self, num_ranks: int) -> int:
        """Return the largest number of directed links for *num_ranks* ranks."""
        return 4 * num_ranks

    def arguments(self, num_ranks: int) -> dict[str, Any]:
        """Return the arguments that make the network for *num_ranks* ranks."""
        return super().arguments(num_ranks) | {"num_nodes": max(1, -(-num_ranks // self.ranks_per_node))}


class Torus(Common):
    """A grid that closes in each of its dimensions."""

    kind: Literal["torus"]
    shape: list[Count] = Field(min_length=1, max_length=16)
    bandwidth: Bandwidth
    efficiency: Efficiency = 1.0
    sharing: SharingTable | None = None
    latency: Time

    @property
    def size(self) -> int | None:
        """Number of ranks."""
        return math.prod(self.shape)

    def num_links(self, num_ranks: int) -> int:
        """Return the largest number of directed links."""
        return 2 * len(self.shape) * num_ranks


class Host(AnySize):
    """Ranks of one host, that share its memory."""

    kind: Literal["host"]
    bandwidth: Bandwidth
    efficiency: Efficiency = 1.0
    sharing: SharingTable | None = None
    memory_bandwidth: Bandwidth
    memory_efficiency: Efficiency = 1.0
    latency: Time
    cache: Size | None = None
    cache_speedup: Speedup = 1.0
    cache_copy_speedup: Speedup = 1.0

    def num_links(self, num_ranks: int) -> int:
        """Return the number of directed links for *num_ranks* ranks."""
        return 2 * num_ranks + 1

    def arguments(self, num_ranks: int) -> dict[str, Any]:
        """Return the arguments that make the network for *num_ranks* ranks."""
        return super().arguments(num_ranks) | {"cache": self.cache or 0}


class Graph(Common):
    """Any graph: nodes and links by name."""

    kind: Literal["graph"]
    ranks_per_node: Count = 1
    routing: Literal["shortest", "ecmp"] = "shortest"
    metric: Literal["hops", "latency"] = "hops"
    seed: Seed = 0
    classes: dict[str, LinkClassTable] = Field(default={}, alias="class")
    nodes: list[NodeTable] = Field(min_length=1, alias="node")
    links: list[LinkTable] = Field(default=[], alias="link")
    routes: list[RouteTable] = Field(default=[], alias="route")

    @property
    def size(self) -> int | None:
        """Number of ranks."""
        return count_ranks(self.nodes)

    def num_links(self, num_ranks: int) -> int:
        """Return the number of directed links."""
        return count_links(self.links)

    def arguments(self, num_ranks: int) -> dict[str, Any]:
        """Return the arguments that make the network."""
        vertices = Vertices.of(self.nodes)
        links = list(named_links(self.links, self.classes, [*vertices.ranks, *vertices.switches]))
        return {
            "ranks": vertices.ranks,
            "switches": vertices.switches,
            "links": links,
            "routes": static_routes(self.routes, vertices, links),
            "ranks_per_node": self.ranks_per_node,
            "routing": self.routing,
            "metric": self.metric,
            "seed": self.seed,
        }


AnyNetwork: TypeAlias = Switch | Ring | Nodes | LeafSpine | Torus | FatTree | Cluster | Host | Graph
KINDS: Mapping[str, type[AnyNetwork]] = {
    "switch": Switch,
    "ring": Ring,
    "nodes": Nodes,
    "leaf_spine": LeafSpine,
    "torus": Torus,
    "fat_tree": FatTree,
    "cluster": Cluster,
    "host": Host,
    "graph": Graph,
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of network files."""
    described: TypeAdapter[Any] = TypeAdapter(Annotated[AnyNetwork, Field(discriminator="kind")])
    return {"title": "Network", **described.json_schema(by_alias=True)}


if __name__ == "__main__":  # writes what docs/network.schema.json holds
    print(json.dumps(json_schema(), indent=1))
