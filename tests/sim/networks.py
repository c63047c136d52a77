"""Random networks of every kind, small enough to check message by message."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from sim.topology import Topology

LATENCIES = st.sampled_from(["0s", "1ps", "500ns", "2us"])


@st.composite
def networks(
    draw: st.DrawFn, bandwidth: st.SearchStrategy[int] | None = None, max_ranks: int = 12
) -> Topology:
    """Draw a network of at most *max_ranks* ranks whose links have *bandwidth* (bytes/s)."""
    bandwidth = bandwidth or st.integers(1, 10**12)
    kind = draw(st.sampled_from(["switch", "ring", "nodes"]))
    if kind == "nodes":
        nics, per_nic = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
        num_nodes = draw(st.integers(1, max(1, max_ranks // (nics * per_nic))))
        return Topology.nodes(
            num_nodes=num_nodes,
            ranks_per_node=nics * per_nic,
            intra_bandwidth=draw(bandwidth),
            intra_latency=draw(LATENCIES),
            nics_per_node=nics,
            nic_bandwidth=draw(bandwidth),
            nic_latency=draw(LATENCIES),
            num_ranks=draw(st.integers(1, min(max_ranks, num_nodes * nics * per_nic))),
        )
    make: Any = Topology.switch if kind == "switch" else Topology.ring
    topology: Topology = make(
        num_ranks=draw(st.integers(1, max_ranks)), bandwidth=draw(bandwidth), latency=draw(LATENCIES)
    )
    return topology
