import pytest

from collectives import NotSupportedError, simulate
from sim import Topology
from testbed.truth.calibration.calibration import (
    Calibration,
    Estimate,
    LinkClass,
    LinkShares,
    Origin,
    SoftwareCosts,
)

ORIGIN = Origin("2026-01-01T00:00:00+00:00", "gloo", 4, 1, "a switch", 9, 4, 1 << 20, 9.0, {})
NO_COSTS = SoftwareCosts(Estimate.exactly(0), Estimate.exactly(0))


def calibration(**latencies: float) -> Calibration:
    classes: dict[LinkClass, LinkShares] = {
        kind: LinkShares(
            Estimate.exactly(25e6),
            Estimate.exactly(latency),
            (Estimate.exactly(0.95),),
            (Estimate.exactly(0.9), Estimate.exactly(0.8)),
        )
        for kind, latency in latencies.items()
    }
    return Calibration("mine", classes, NO_COSTS, (), ORIGIN, NO_COSTS)


def seconds(topology, source, destination):
    return simulate(
        "tree", nbytes=1, topology=topology, collective="broadcast", placement=[source, destination]
    ).seconds


def test_a_network_keeps_its_rates_and_takes_shares_and_latency():
    switch = Topology.switch(num_ranks=4, bandwidth="80Mbps", latency="1ms")

    applied = calibration(between_nodes=100e-6).applied_to(switch)

    assert (applied.link_bandwidth == switch.link_bandwidth).all()
    took = simulate("tree", nbytes=9_500_000, topology=applied, collective="broadcast", placement=[0, 3])
    assert took.seconds == pytest.approx(1 + 100e-6)


def test_a_trunk_that_was_not_measured_shares_as_other_links_and_adds_no_latency():
    racks = Topology.leaf_spine(
        num_ranks=4, hosts_per_leaf=2, bandwidth="80Mbps", uplink_bandwidth="80Mbps", latency="1ms"
    )

    applied = calibration(between_nodes=100e-6).applied_to(racks)

    assert seconds(applied, 0, 1) == pytest.approx(seconds(applied, 0, 2), rel=1e-3)
    assert {applied.sharing.of_link(link).both_ways for link in range(applied.num_links)} == {(0.9, 0.8)}


def test_a_trunk_that_was_measured_adds_what_its_path_takes_more():
    racks = Topology.leaf_spine(
        num_ranks=4, hosts_per_leaf=2, bandwidth="80Mbps", uplink_bandwidth="80Mbps", latency="1ms"
    )

    applied = calibration(between_nodes=100e-6, trunk=300e-6).applied_to(racks)

    assert seconds(applied, 0, 2) - seconds(applied, 0, 1) == pytest.approx(200e-6, rel=1e-3)


def test_paths_inside_a_node_and_between_nodes_have_their_own_latency():
    nodes = Topology.nodes(
        num_nodes=2,
        ranks_per_node=2,
        intra_bandwidth="10GB/s",
        intra_latency="1us",
        nics_per_node=1,
        nic_bandwidth="80Mbps",
        nic_latency="1ms",
    )

    applied = calibration(inside_node=20e-6, between_nodes=100e-6).applied_to(nodes)

    assert seconds(applied, 0, 1) == pytest.approx(20e-6, rel=1e-2)
    assert seconds(applied, 1, 2) == pytest.approx(100e-6, rel=1e-2)
    with pytest.raises(NotSupportedError, match="mine: nothing was measured of links inside node"):
        calibration(between_nodes=100e-6).applied_to(nodes)
