"""Sharing tables: what flows get of a link by their number and directions, and which fabrics have which."""

from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import simulate
from sim import Topology, TopologyError, load_network, transfer_times
from sim.topology.fabric import FABRICS
from sim.topology.link_sharing import LinkSharing
from sim.topology.sharing_table import WHOLE, Sharing
from tests.given import nodes
from tests.sim.networks import arguments

GIGABYTE = 10**9


def switch(num_ranks: int, **table: list[float]) -> Topology:
    return Topology.switch(num_ranks=num_ranks, bandwidth=f"{GIGABYTE}Bps", latency=0, sharing=table)


def test_the_last_part_goes_on_and_directions_mind_each_other_only_if_a_table_says_so():
    table, one_way = Sharing((1.0, 0.5), (0.25,)), Sharing((0.9, 0.8))

    assert [table.part(flows, False) for flows in (1, 2, 3, 9)] == [1.0, 0.5, 0.5, 0.5]
    assert [table.part(flows, True) for flows in (1, 9)] == [0.25, 0.25]
    assert (one_way.both_ways, one_way.minds_direction) == ((0.9, 0.8), False)


def test_a_network_whose_flows_get_everything_is_the_same_as_without_tables():
    whole = switch(4, one_way=[1.0, 1.0], both_ways=[1])

    assert whole.sharing is None
    assert whole.digest() == switch(4).digest() != switch(4, one_way=[0.5]).digest()


@pytest.mark.parametrize("parts", [(0.0,), (1.1,), (-1,), (float("nan"),), (True,), ("1",), ()])
def test_a_part_that_is_none_is_refused(parts):
    with pytest.raises(TopologyError, match="sharing, one_way: expected"):
        Sharing(parts)


def test_up_and_down_of_a_rank_are_opposites():
    topology = switch(3, both_ways=[0.5])

    names = [topology.link_name(int(link)) for link in topology.sharing.opposite]
    assert names == ["rank 0 down", "rank 1 down", "rank 2 down", "rank 0 up", "rank 1 up", "rank 2 up"]


def test_of_several_cables_between_two_the_first_is_opposite_to_the_first():
    links = [("a", "b", 10, 0), ("a", "b", 10, 0), ("b", "a", 10, 0), ("b", "a", 10, 0), ("a", "b", 10, 0)]
    graph = Topology.graph(ranks=["a", "b"], links=links)

    sharing = LinkSharing.of([(5, Sharing((1.0,), (0.5,)))], graph.routing)

    assert sharing.opposite.tolist() == [2, 3, 0, 1, -1]


@pytest.mark.parametrize(
    ("table", "messages", "seconds"),
    [
        ({"one_way": [1.0, 0.8]}, [(1, 0, 1, 0), (2, 0, 1, 0)], [2.5, 2.5]),
        ({"both_ways": [0.5]}, [(0, 1, 1, 0), (1, 0, 0.5, 0)], [1.5, 1.0]),
        ({"both_ways": [0.5]}, [(0, 1, 1, 0), (1, 0, 1, 0.5)], [1.5, 2.0]),
        ({"one_way": [1.0, 0.5], "both_ways": [0.25]}, [(0, 1, 1, 0), (2, 3, 1, 0)], [1.0, 1.0]),
    ],
    ids=["two one way", "both ways until one ends", "one comes the other way", "elsewhere"],
)
def test_flows_get_the_part_of_so_many_and_of_their_directions(table, messages, seconds):
    sent = [(source, to, int(gigabytes * GIGABYTE), at) for source, to, gigabytes, at in messages]

    assert transfer_times(sent, topology=switch(4, **table)) == seconds


@pytest.mark.parametrize("engine", ["makespan", "events", "ranks"])
@pytest.mark.parametrize(
    ("algorithm", "collective", "table", "seconds"),
    [
        ("ring", "all_reduce", {"one_way": [0.95], "both_ways": [0.5]}, 2 * 3 / 0.5),
        ("direct", "all_to_all", {"one_way": [0.95], "both_ways": [0.9, 0.8, 0.5]}, 3 / 0.5),
    ],
)
def test_a_collective_runs_at_the_part_of_so_many_flows_both_ways(
    algorithm, collective, table, seconds, engine
):
    run = simulate(
        algorithm, nbytes=4 * GIGABYTE, topology=switch(4, **table), engine=engine, collective=collective
    )

    assert run.seconds == seconds


Shape: TypeAlias = tuple[str, dict[str, Any]]

TCP = "ethernet-tcp"
SHAPES = st.one_of(
    *(st.tuples(st.just(kind), arguments(kind)) for kind in ("switch", "leaf_spine", "fat_tree"))
).filter(lambda drawn: drawn[1].get("routing") != "spray")


def made(shape: Shape, **more) -> Topology:
    kind, drawn = shape
    return getattr(Topology, kind)(**drawn, **more)


@given(SHAPES)
def test_ports_of_switches_have_the_table_of_a_fabric_that_loses_unless_links_have_one_of_their_own(shape):
    plain, lossy, own = (
        made(shape), made(shape, fabric=TCP), made(shape, fabric=TCP, sharing=Sharing((1.0, 0.5))),
    )  # fmt: skip

    leaves_a_switch = lossy.routing.wiring().tail >= lossy.num_ranks
    for link, is_port in enumerate(leaves_a_switch.tolist()):
        assert lossy.sharing.of_link(link) == (FABRICS[TCP] if is_port else WHOLE)
    for link in (0, own.num_ranks):
        assert own.sharing.of_link(link) == Sharing((1.0, 0.5))
    for fabric in (None, "infiniband", "roce"):
        without = made(shape, fabric=fabric)
        assert without.sharing is None
        assert without.digest() == plain.digest() != lossy.digest()


def test_inside_a_node_there_is_no_fabric_and_each_class_of_links_has_a_table_of_its_own():
    for tables, expected in (({"fabric": TCP}, ["down"]), ({"nic_sharing": Sharing((0.5,))}, ["up", "down"])):
        topology = nodes(2, 2, **tables)

        shared = [link for link in range(topology.num_links) if topology.sharing.of_link(link) != WHOLE]
        names = [f"node {node} NIC 0 {way}" for way in expected for node in (0, 1)]
        assert [topology.link_name(link) for link in shared] == names


@pytest.mark.parametrize("table", FABRICS.values(), ids=FABRICS)
def test_one_flow_gets_all_and_more_flows_never_get_more(table):
    assert table.one_way == table.both_ways
    assert table.one_way[0] == 1
    assert list(table.one_way) == sorted(table.one_way, reverse=True)


@pytest.mark.parametrize("name", ["ethernet-10g", "ethernet-25g", "ethernet-100g"])
def test_a_network_brings_its_fabric_and_the_ideal_one_leaves_it_out(name):
    assert load_network(name).topology(4).sharing is not None
    assert load_network(name, ideal=True).topology(4).sharing is None
