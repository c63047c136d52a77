"""Fields of network files of trees of switches: of two levels, the k-ary fat tree, clusters of GPU nodes."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from sim.files.common import AnySize, Common
from sim.files.fields import Bandwidth, Count, Efficiency, FabricName, SharingTable, Time
from sim.units import parse_time

Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Oversubscription: TypeAlias = Annotated[float, Field(gt=0, le=1e9)]
Paths: TypeAlias = Literal["static", "ecmp", "spray"]


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


class FatTree(Common):
    """Three levels of equal switches with k ports."""

    kind: Literal["fat_tree"]
    k: Count = Field(multiple_of=2)
    num_ranks: Count | None = None
    bandwidth: Bandwidth
    efficiency: Efficiency = 1.0
    sharing: SharingTable | None = None
    latency: Time
    oversubscription: Oversubscription = 1.0
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


class Cluster(AnySize):
    """GPU nodes whose network cards are on leaves by rails, on spines and, above several pods, on cores."""

    kind: Literal["cluster"]
    ranks_per_node: Count
    intra_link: Literal["nvlink", "pcie"] = "nvlink"
    pxn: bool | None = None
    intra_bandwidth: Bandwidth
    intra_efficiency: Efficiency = 1.0
    intra_sharing: SharingTable | None = None
    intra_latency: Time | None = None
    nics_per_node: Count | None = None
    nic_bandwidth: Bandwidth
    nic_efficiency: Efficiency = 1.0
    nic_sharing: SharingTable | None = None
    nic_latency: Time = parse_time("1350ns")
    rails: Count | None = None
    nodes_per_leaf: Count
    oversubscription: Oversubscription = 1.0
    nodes_per_pod: Count | None = None
    core_oversubscription: Oversubscription = 1.0
    uplinks_per_leaf: Count | None = None
    uplinks_per_spine: Count | None = None
    uplink_sharing: SharingTable | None = None
    uplink_latency: Time = parse_time("150ns")
    fabric: Literal["infiniband", "spectrum_x", "ethernet"] = "infiniband"
    routing: Paths | None = None
    seed: Seed = 0

    def num_links(self, num_ranks: int) -> int:
        """Return about the largest number of directed links for *num_ranks* ranks."""
        cards = self.nics_per_node or self.ranks_per_node
        rails = self.rails or cards
        leaves = -(-num_ranks // (self.ranks_per_node * self.nodes_per_leaf)) * rails
        up = self.uplinks_per_leaf or self.nodes_per_leaf * cards / rails / self.oversubscription
        over = 0.0
        if self.nodes_per_pod is not None:
            per_pod = self.nodes_per_pod / self.nodes_per_leaf * rails
            over = up * (self.uplinks_per_spine or per_pod / self.core_oversubscription) / per_pod
        return 4 * num_ranks + 2 * math.ceil(leaves * (1 + up + over))
