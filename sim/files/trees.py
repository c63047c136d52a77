"""Fields of network files of trees of switches: of two levels, and the k-ary fat tree."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from sim.files.common import AnySize, Common
from sim.files.fields import Bandwidth, Count, Efficiency, SharingTable, Time, parts, quantity
from sim.topology.fabric import FabricName
from sim.units import effective

Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Paths: TypeAlias = Literal["static", "ecmp"]


class LeafSpine(AnySize):
    """Two levels: hosts on leaves, and every leaf on every spine."""

    kind: Literal["leaf_spine"]
    hosts_per_leaf: Count
    bandwidth: Bandwidth
    efficiency: Efficiency = 1.0
    sharing: SharingTable | None = None
    latency: Time
    num_spines: Count = 1
    uplink_bandwidth: Bandwidth
    uplink_efficiency: Efficiency = 1.0
    uplink_sharing: SharingTable | None = None
    uplink_latency: Time | None = None
    fabric: FabricName | None = None
    routing: Paths = "static"
    seed: Seed = 0

    def num_links(self, num_ranks: int) -> int:
        """Return the number of directed links for *num_ranks* ranks."""
        return 2 * num_ranks - 2 * (-num_ranks // self.hosts_per_leaf) * self.num_spines

    def arguments(self, num_ranks: int) -> dict[str, Any]:
        """Return the arguments that make the network for *num_ranks* ranks."""
        return {
            "num_ranks": num_ranks,
            "hosts_per_leaf": self.hosts_per_leaf,
            "bandwidth": effective(self.bandwidth, self.efficiency),
            "sharing": parts(self.sharing),
            "latency": quantity(self.latency),
            "num_spines": self.num_spines,
            "uplink_bandwidth": effective(self.uplink_bandwidth, self.uplink_efficiency),
            "uplink_sharing": parts(self.uplink_sharing),
            "fabric": self.fabric,
            "uplink_latency": quantity(self.latency if self.uplink_latency is None else self.uplink_latency),
            "routing": self.routing,
            "seed": self.seed,
        }


class FatTree(Common):
    """Three levels of equal switches with k ports."""

    kind: Literal["fat_tree"]
    k: Count = Field(multiple_of=2)
    num_ranks: Count | None = None
    bandwidth: Bandwidth
    efficiency: Efficiency = 1.0
    sharing: SharingTable | None = None
    latency: Time
    oversubscription: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    fabric: FabricName | None = None
    routing: Paths = "static"
    seed: Seed = 0

    @property
    def size(self) -> int | None:
        """Number of ranks: as the file says, or else as many as the tree has room for."""
        return self.num_ranks or self.k**3 // 4

    def num_links(self, num_ranks: int) -> int:
        """Return the number of directed links: of the hosts, and of two levels of k³/4 cables."""
        return 2 * num_ranks + self.k**3

    def arguments(self, num_ranks: int) -> dict[str, Any]:
        """Return the arguments that make the network for *num_ranks* ranks."""
        return {
            "k": self.k,
            "num_ranks": num_ranks,
            "bandwidth": effective(self.bandwidth, self.efficiency),
            "sharing": parts(self.sharing),
            "latency": quantity(self.latency),
            "oversubscription": self.oversubscription,
            "fabric": self.fabric,
            "routing": self.routing,
            "seed": self.seed,
        }
