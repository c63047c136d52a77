"""Plans of shaped networks: forwarding by destination along the simulator's routes, or a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import NotSupportedError
from sim import Topology
from sim.files.network_file import read_network
from testbed.truth.shaped.plan import Plan, plan, wire


def walk(made: Plan, source: int, destination: int) -> list[int]:
    """Return the links on the way that devices and forwarding tables of *made* give a message."""
    device_of = {(hop.vertex, hop.destination): hop.device for hop in made.hops}
    across = {}
    for here, there in made.cables:
        across[here.vertex, here.device] = here, there
        across[there.vertex, there.device] = there, here
    links, vertex = [], source
    while vertex != destination:
        end, other = across[vertex, device_of[vertex, destination]]
        links += [] if end.link is None else [end.link]
        vertex = other.vertex
    return links


NETWORKS = st.one_of(
    st.builds(lambda ranks: Topology.switch(num_ranks=ranks, bandwidth=1e7, latency=0), st.integers(2, 9)),
    st.builds(
        lambda ranks, leaf, spines: Topology.leaf_spine(
            num_ranks=ranks,
            hosts_per_leaf=leaf,
            num_spines=spines,
            bandwidth=1e7,
            uplink_bandwidth=2e7,
            latency=0,
        ),
        st.integers(2, 9),
        st.integers(1, 4),
        st.integers(1, 3),
    ),
    st.builds(
        lambda nodes, cards: Topology.nodes(
            num_nodes=nodes,
            ranks_per_node=2,
            intra_bandwidth=4e7,
            intra_latency=0,
            nics_per_node=cards,
            nic_bandwidth=1e7,
            nic_latency=0,
        ),
        st.integers(1, 4),
        st.integers(1, 2),
    ),
)


@given(NETWORKS)
def test_messages_take_the_routes_of_the_simulator(topology: Topology) -> None:
    made = plan(topology)

    for source in range(topology.num_ranks):
        for destination in range(topology.num_ranks):
            if source != destination:
                assert walk(made, source, destination) == list(topology.route(source, destination))


@given(NETWORKS)
def test_each_link_leaves_by_one_device_at_its_own_rate(topology: Topology) -> None:
    rates = {end.link: end.rate for end in plan(topology).ends() if end.link is not None}

    assert rates == dict(enumerate(topology.link_bandwidth.tolist()))


def test_what_switches_cannot_forward_is_refused_by_name() -> None:
    ring = Topology.ring(num_ranks=4, bandwidth=1e7, latency=0)
    with pytest.raises(
        NotSupportedError, match=r"pass through rank 1; a shaped network has hosts at its edge"
    ):
        plan(ring)

    hashed = Topology.leaf_spine(
        num_ranks=8,
        hosts_per_leaf=2,
        num_spines=4,
        bandwidth=1e7,
        uplink_bandwidth=1e7,
        latency=0,
        routing="ecmp",
    )
    with pytest.raises(NotSupportedError, match=r"depends on the source; .* not ecmp"):
        plan(hashed)

    with pytest.raises(NotSupportedError, match=r"1000 ranks; a shaped network has 2 to 16 hosts"):
        plan(Topology.switch(num_ranks=1000, bandwidth=1e7, latency=0))


def test_wires_have_the_rates_of_the_file_without_its_efficiencies(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    file.write_text(
        'schema = 1\nkind = "switch"\nnum_ranks = 3\n'
        'bandwidth = "80Mbps"\nefficiency = 0.5\nlatency = "1us"\n'
    )
    network = read_network(file)

    assert set(wire(network).link_bandwidth.tolist()) == {10_000_000}
    (said,) = plan(wire(network)).unbuilt
    assert said.startswith("latencies of the file (up to 1 us a link) are not built")
