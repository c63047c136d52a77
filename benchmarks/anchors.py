"""Collectives whose time is known in closed form: the networks, and the formulas.

A message takes the latencies of its links, and its bytes over the bandwidth that is left to it, rounded up to
a whole picosecond.  The forms say how many messages follow each other, and how many share a link.
Chunks have ``ceil(nbytes / n)`` bytes; where that does not divide, the longest ones are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectives import Job
from sim import Topology

MIB, GIB = 2**20, 2**30
NIC, CARD, NVLINK = 12_500_000_000, 25_000_000_000, 300_000_000_000


def step(latency_ns: int, nbytes: int, bandwidth: int) -> int:
    """Return the picoseconds of a message that has *bandwidth* to itself."""
    return latency_ns * 1000 + _up(nbytes * 10**12, bandwidth)


def _up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def switch(n: int) -> Topology:
    """Return n ranks with 100 Gb/s on one switch."""
    return Topology.switch(num_ranks=n, bandwidth="100Gbps", latency="2us")


def neighbours(n: int) -> Topology:
    """Return n ranks with links of 100 Gb/s to their neighbours."""
    return Topology.ring(num_ranks=n, bandwidth="100Gbps", latency="2us")


def nodes(n: int, nics_per_node: int) -> Topology:
    """Return n ranks on nodes of eight, with NVLink inside and cards of 200 Gb/s."""
    return Topology.nodes(
        num_nodes=_up(n, 8),
        ranks_per_node=8,
        intra_bandwidth="300GB/s",
        intra_latency="500ns",
        nics_per_node=nics_per_node,
        nic_bandwidth="200Gbps",
        nic_latency="2us",
    )


def a_card_each(n: int) -> Topology:
    """Return nodes in which every rank has a card of its own."""
    return nodes(n, nics_per_node=8)


def a_card_a_node(n: int) -> Topology:
    """Return nodes whose ranks share a card."""
    return nodes(n, nics_per_node=1)


def tree(n: int) -> Topology:
    """Return leaves of 8 ranks whose uplinks carry a quarter of what the ranks can send."""
    return Topology.leaf_spine(
        num_ranks=n, hosts_per_leaf=8, bandwidth="100Gbps", uplink_bandwidth="200Gbps", latency="2us"
    )


def ring_on_a_switch(n: int, nbytes: int) -> int:
    """Return 2(n−1) steps over two links."""
    return 2 * (n - 1) * step(4000, _up(nbytes, n), NIC)


def ring_on_a_ring(n: int, nbytes: int) -> int:
    """Return 2(n−1) steps over one link."""
    return 2 * (n - 1) * step(2000, _up(nbytes, n), NIC)


def two_rings_on_a_switch(n: int, nbytes: int) -> int:
    """Return 2(n−1) steps in which two messages share every link."""
    return 2 * (n - 1) * step(4000, 2 * _up(nbytes, n), NIC)


def hierarchical(n: int, nbytes: int) -> int:
    """Return reduce-scatter and all-gather in nodes of eight, and rings between nodes in the middle."""
    inside = 14 * step(1000, nbytes // 8, NVLINK)
    return inside + 2 * (n // 8 - 1) * step(4000, nbytes // n, CARD)


def flat_ring_over_nodes(n: int, nbytes: int) -> int:
    """Return 2(n−1) steps, each as long as that between nodes or inside, whichever is longer."""
    return 2 * (n - 1) * max(step(4000, nbytes // n, CARD), step(1000, nbytes // n, NVLINK))


def ring_dealt_out(n: int, nbytes: int) -> int:
    """Return 2(n−1) steps in which eight messages share each card."""
    return 2 * (n - 1) * step(4000, 8 * nbytes // n, CARD)


def all_or_one(n: int, nbytes: int) -> int:
    """Return n−1 messages that share a rank's link, in or out."""
    return step(4000, (n - 1) * nbytes // n, NIC)


def halving_and_doubling(n: int, nbytes: int) -> int:
    """Return messages of a half, a quarter, … and back."""
    return 2 * sum(step(4000, nbytes >> k, NIC) for k in range(1, n.bit_length()))


def all_to_all_over_a_tree(n: int, nbytes: int) -> int:
    """Return what eight ranks of a leaf send to all other leaves, on their uplink."""
    return step(8000, 8 * (n - 8) * nbytes // n, CARD)


def halving_and_doubling_over_a_tree(n: int, nbytes: int) -> int:
    """Return the same as on a switch, but partners n/2, n/4, … 8 ranks away are on other leaves."""
    halves = [(n >> k, nbytes >> k) for k in range(1, n.bit_length())]
    return 2 * sum(
        step(8000, 8 * size, CARD) if distance >= 8 else step(4000, size, NIC) for distance, size in halves
    )


@dataclass(frozen=True)
class Anchor:
    """A collective of n ranks on a network, and its time.

    Attributes:
        algorithm: its name.
        topology: the network of n ranks.
        time_ps: picoseconds for n ranks and a size.
        options: further arguments of `collectives.Job`.
        per_rank: whether the usual size is 1 MiB for each rank, instead of 1 GiB.
        in_makespan: whether the makespan engine gives it.
    """

    algorithm: str
    topology: Callable[[int], Topology]
    time_ps: Callable[[int, int], int]
    options: Mapping[str, Any] = field(default_factory=dict)
    per_rank: bool = False
    in_makespan: bool = True

    def nbytes(self, n: int) -> int:
        """Return the usual size for n ranks."""
        return n * MIB if self.per_rank else GIB

    def job(self, nbytes: int) -> Job:
        """Return it as a job."""
        return Job(self.algorithm, nbytes, **self.options)


ANCHORS = {
    "sw": Anchor("ring", switch, ring_on_a_switch),
    "ring": Anchor("ring", neighbours, ring_on_a_ring),
    "H-hier": Anchor("hierarchical", a_card_each, hierarchical),
    "H-flat": Anchor("ring", a_card_a_node, flat_ring_over_nodes),
    "stride": Anchor("ring", a_card_a_node, ring_dealt_out, {"placement": "round_robin"}),
    "a2a": Anchor("direct", switch, all_or_one, {"collective": "all_to_all"}, per_rank=True),
    "incast": Anchor("direct", switch, all_or_one, {"collective": "gather"}, per_rank=True),
    "rhd": Anchor("halving_doubling", switch, halving_and_doubling),
    "tree a2a": Anchor(
        "direct",
        tree,
        all_to_all_over_a_tree,
        {"collective": "all_to_all"},
        per_rank=True,
        in_makespan=False,  # messages inside a leaf set out earlier than those to other leaves
    ),
    "tree rhd": Anchor("halving_doubling", tree, halving_and_doubling_over_a_tree),
}
