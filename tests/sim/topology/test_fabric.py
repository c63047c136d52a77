"""Fabrics: which links have the sharing table of a port, and who says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import load_network
from sim.errors import NetworkFileError, TopologyError
from sim.topology import Topology
from sim.topology.fabric import FABRICS
from sim.topology.sharing_table import WHOLE, Sharing

TCP = "ethernet-tcp"
SHAPES = st.one_of(
    st.fixed_dictionaries({"kind": st.just("switch"), "num_ranks": st.integers(1, 9)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("leaf_spine"),
            "num_ranks": st.integers(1, 9),
            "hosts_per_leaf": st.integers(1, 4),
            "num_spines": st.integers(1, 3),
            "uplink_bandwidth": st.just(2e9),
        }
    ),
    st.fixed_dictionaries({"kind": st.just("fat_tree"), "k": st.just(4), "num_ranks": st.integers(1, 9)}),
)


def made(shape: dict[str, Any], **more: Any) -> Topology:
    kind, *_ = (shape := dict(shape)).pop("kind"), None
    topology: Topology = getattr(Topology, kind)(bandwidth=1e9, latency=0, **shape, **more)
    return topology


@given(SHAPES)
def test_ports_of_switches_have_the_table_and_links_that_leave_a_host_have_none(
    shape: dict[str, Any],
) -> None:
    topology = made(shape, fabric=TCP)

    assert topology.sharing is not None
    leaves_a_switch = topology.routing.wiring().tail >= topology.num_ranks
    for link, is_port in enumerate(leaves_a_switch.tolist()):
        assert topology.sharing.of_link(link) == (FABRICS[TCP] if is_port else WHOLE)


def test_inside_a_node_there_is_no_fabric() -> None:
    links = {"intra_bandwidth": 4e9, "intra_latency": 0, "nic_bandwidth": 1e9, "nic_latency": 0}
    topology = Topology.nodes(num_nodes=2, ranks_per_node=2, nics_per_node=1, **links, fabric=TCP)

    assert topology.sharing is not None
    shared = [link for link in range(topology.num_links) if topology.sharing.of_link(link) != WHOLE]
    assert [topology.link_name(link) for link in shared] == ["node 0 NIC 0 down", "node 1 NIC 0 down"]


@given(SHAPES, st.sampled_from([None, "infiniband", "roce"]))
def test_where_nothing_is_lost_the_network_is_the_same_as_without_a_fabric(
    shape: dict[str, Any], fabric: str | None
) -> None:
    topology = made(shape, fabric=fabric)

    assert topology.sharing is None
    assert topology.digest() == made(shape).digest() != made(shape, fabric=TCP).digest()


@given(SHAPES)
def test_a_table_of_the_links_own_goes_before_that_of_the_fabric(shape: dict[str, Any]) -> None:
    own = Sharing((1.0, 0.5))

    topology = made(shape, fabric=TCP, sharing=own)

    assert topology.sharing is not None
    assert topology.sharing.of_link(0) == topology.sharing.of_link(topology.num_ranks) == own


@pytest.mark.parametrize("table", FABRICS.values(), ids=FABRICS)
def test_one_flow_gets_all_and_more_flows_never_get_more(table: Sharing) -> None:
    assert table.one_way == table.both_ways
    assert table.one_way[0] == 1
    assert list(table.one_way) == sorted(table.one_way, reverse=True)


def test_an_unknown_fabric_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"fabric: expected one of ethernet-tcp, .*, got 'token-ring'"):
        Topology.switch(num_ranks=2, bandwidth=1e9, latency=0, fabric="token-ring")

    file = tmp_path / "mine.toml"
    file.write_text(
        'schema = 1\nkind = "switch"\nbandwidth = "1Gbps"\nlatency = "1us"\nfabric = "ethernet"\n'
    )
    with pytest.raises(NetworkFileError, match=r"line 5: fabric: .*'ethernet-tcp'"):
        load_network(file)


@pytest.mark.parametrize("name", ["ethernet-10g", "ethernet-25g", "ethernet-100g"])
def test_a_network_brings_its_fabric_and_the_ideal_one_leaves_it_out(name: str) -> None:
    assert load_network(name).topology(4).sharing is not None
    assert load_network(name, ideal=True).topology(4).sharing is None
