"""Sharing tables: what flows get of a link by their number and directions, and which links are opposites."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.timing import simulate
from sim.errors import TopologyError
from sim.network.transfers import transfer_times
from sim.scenario.conditions import Straggler
from sim.topology import Topology
from sim.topology.link_sharing import LinkSharing
from sim.topology.sharing_table import WHOLE, Sharing

GIGABYTE = 10**9


def switch(num_ranks: int, **table: list[float]) -> Topology:
    return Topology.switch(num_ranks=num_ranks, bandwidth=f"{GIGABYTE}Bps", latency=0, sharing=table)


def test_the_last_part_goes_on_for_more_flows() -> None:
    table = Sharing((1.0, 0.5), (0.25,))

    assert [table.part(flows, False) for flows in (1, 2, 3, 9)] == [1.0, 0.5, 0.5, 0.5]
    assert [table.part(flows, True) for flows in (1, 9)] == [0.25, 0.25]


def test_directions_do_not_mind_each_other_unless_the_table_says_so() -> None:
    assert Sharing((0.9, 0.8)).both_ways == (0.9, 0.8)
    assert not Sharing((0.9, 0.8)).minds_direction


@pytest.mark.parametrize("parts", [(0.0,), (1.1,), (-1,), (float("nan"),), (True,), ("1",), ()])
def test_a_part_that_is_none_is_refused(parts: tuple[float, ...]) -> None:
    with pytest.raises(TopologyError, match="sharing, one_way: expected"):
        Sharing(parts)


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(TopologyError, match="expected one_way and both_ways, got 'oneway'"):
        switch(2, oneway=[1.0])


def test_a_network_whose_flows_get_everything_is_the_same_as_without_tables() -> None:
    whole = switch(4, one_way=[1.0, 1.0], both_ways=[1])

    assert whole.sharing is None
    assert whole.digest() == switch(4).digest() != switch(4, one_way=[0.5]).digest()


def test_up_and_down_of_a_rank_are_opposites() -> None:
    topology = switch(3, both_ways=[0.5])

    assert topology.sharing is not None
    names = [topology.link_name(int(link)) for link in topology.sharing.opposite]
    assert names == ["rank 0 down", "rank 1 down", "rank 2 down", "rank 0 up", "rank 1 up", "rank 2 up"]


def test_of_several_cables_between_two_the_first_is_opposite_to_the_first() -> None:
    links = [("a", "b", 10, 0), ("a", "b", 10, 0), ("b", "a", 10, 0), ("b", "a", 10, 0), ("a", "b", 10, 0)]
    graph = Topology.graph(ranks=["a", "b"], links=links)

    sharing = LinkSharing.of([(5, Sharing((1.0,), (0.5,)))], graph.routing)

    assert sharing is not None
    assert sharing.opposite.tolist() == [2, 3, 0, 1, -1]


def test_two_flows_one_way_get_the_second_part() -> None:
    incast = [(1, 0, GIGABYTE, 0), (2, 0, GIGABYTE, 0)]

    assert transfer_times(incast, topology=switch(3, one_way=[1.0, 0.8])) == [2.5, 2.5]


def test_flows_both_ways_get_their_part_until_one_ends() -> None:
    topology = switch(2, both_ways=[0.5])

    assert transfer_times([(0, 1, GIGABYTE, 0), (1, 0, GIGABYTE // 2, 0)], topology=topology) == [1.5, 1.0]


def test_a_flow_that_comes_the_other_way_slows_one_that_is_under_way() -> None:
    topology = switch(2, both_ways=[0.5])

    assert transfer_times([(0, 1, GIGABYTE, 0), (1, 0, GIGABYTE, 0.5)], topology=topology) == [1.5, 2.0]


def test_flows_elsewhere_do_not_mind() -> None:
    topology = switch(4, one_way=[1.0, 0.5], both_ways=[0.25])

    assert transfer_times([(0, 1, GIGABYTE, 0), (2, 3, GIGABYTE, 0)], topology=topology) == [1.0, 1.0]


@pytest.mark.parametrize("engine", ["makespan", "events", "ranks"])
def test_a_ring_runs_at_the_part_of_both_ways(engine: str) -> None:
    topology = switch(4, one_way=[0.95], both_ways=[0.5])

    run = simulate("ring", nbytes=4 * GIGABYTE, topology=topology, engine=engine)

    assert run.seconds == 2 * 3 * 1 / 0.5


@pytest.mark.parametrize("engine", ["makespan", "events", "ranks"])
def test_an_all_to_all_runs_at_the_part_of_so_many_flows_both_ways(engine: str) -> None:
    topology = switch(4, one_way=[0.95], both_ways=[0.9, 0.8, 0.5])

    run = simulate("direct", nbytes=4 * GIGABYTE, topology=topology, engine=engine, collective="all_to_all")

    assert run.seconds == 3 / 0.5


def test_a_slow_rank_has_the_share_of_a_slow_link() -> None:
    table = {"one_way": [0.95, 0.9], "both_ways": [0.8]}
    slow = Topology.switch(num_ranks=2, bandwidth=GIGABYTE // 4, latency=0, sharing=table)

    straggling = simulate(
        "ring", nbytes=8 * GIGABYTE, topology=switch(2, **table), conditions=[Straggler(1, 4)]
    )

    assert straggling.seconds == simulate("ring", nbytes=8 * GIGABYTE, topology=slow).seconds


def test_a_link_is_saturated_while_flows_take_what_the_table_leaves() -> None:
    run = simulate("ring", nbytes=4 * GIGABYTE, topology=switch(2, both_ways=[0.5]), observe=True)

    assert run.links[0].saturated_seconds == run.seconds
    assert run.links[0].utilisation == 0.5


def test_several_classes_of_links_keep_their_tables() -> None:
    nodes = Topology.nodes(
        num_nodes=2,
        ranks_per_node=2,
        intra_bandwidth="1GB/s",
        intra_latency=0,
        nics_per_node=1,
        nic_bandwidth="1GB/s",
        nic_latency=0,
        nic_sharing={"one_way": [0.5]},
    )

    assert nodes.sharing is not None
    assert [nodes.sharing.of_link(link) for link in (0, 7, 8, 11)] == [WHOLE, WHOLE] + [Sharing((0.5,))] * 2


def test_what_links_carry_together_follows_from_the_flows_on_them() -> None:
    sharing = switch(2, one_way=[1.0, 0.5], both_ways=[0.25]).sharing

    assert sharing is not None
    carried = sharing.bandwidths(np.full(4, 100), np.array([1, 0, 0, 2]))
    assert carried.tolist() == [100, 25, 25, 50]
