"""Networks that many tests are given: hosts on one switch, and nodes of ranks behind network cards."""

from sim import Topology


def switch(num_ranks: int, bandwidth="100Gbps", latency="2us") -> Topology:
    """Return ranks on one switch."""
    return Topology.switch(num_ranks=num_ranks, bandwidth=bandwidth, latency=latency)


def nodes(num_nodes: int, ranks_per_node: int, nics_per_node: int = 1, **fields) -> Topology:
    """Return nodes of ranks; *fields* are those that differ from a common cluster."""
    usual = {
        "intra_bandwidth": "300GB/s", "intra_latency": "500ns", "nic_bandwidth": "200Gbps",
        "nic_latency": "2us",
    }  # fmt: skip
    return Topology.nodes(
        num_nodes=num_nodes, ranks_per_node=ranks_per_node, nics_per_node=nics_per_node, **{**usual, **fields}
    )
