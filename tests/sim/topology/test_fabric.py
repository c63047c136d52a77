"""Fabrics: which links have the sharing table of a port, and who says so."""

from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Topology, load_network
from sim.topology.fabric import FABRICS
from sim.topology.sharing_table import WHOLE, Sharing
from tests.given import nodes
from tests.sim.networks import arguments

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
