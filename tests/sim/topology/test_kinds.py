"""Kinds of network files, and where ranks sit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import load_network
from sim.errors import NetworkFileError, TopologyError
from sim.hardware import Channels, Hardware
from sim.topology import Topology
from sim.topology.description import parse_network
from sim.topology.files.hardware_table import HardwareTable
from sim.topology.files.schema import json_schema
from sim.topology.kinds import KINDS
from sim.topology.placement import places
from tests.given import nodes

ROOT = Path(__file__).parents[3]


COMMON = {"bandwidth": "100Gbps", "latency": "2us"}


LEAF_SPINE = {
    **COMMON,
    "hosts_per_leaf": 4,
    "uplink_bandwidth": "200Gbps",
    "num_spines": 2,
    "routing": "ecmp",
    "seed": 3,
}


FAT_TREE = {**COMMON, "k": 4, "oversubscription": 1.5, "routing": "ecmp", "seed": 5}


CLUSTER = {
    "num_ranks": 200,
    "ranks_per_node": 8,
    "nics_per_node": 4,
    "rails": 2,
    "intra_bandwidth": "450GB/s",
    "nic_bandwidth": "400Gbps",
    "nodes_per_leaf": 2,
    "oversubscription": 1.5,
    "fabric": "ethernet",
    "seed": 3,
}


HARDWARE = """
in_network_reduction = true
[hardware]
generation = "hopper"
one_node = {count = 12, intra_bandwidth = "30GB/s"}
several_nodes = {count = 16, intra_bandwidth = "24GB/s", inter_bandwidth = "200Gbps"}
net_latency = "2us"
"""


def written(kind, **fields):
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in fields.items()]
    return "\n".join(["schema = 1", f'kind = "{kind}"', *lines]) + "\n"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("torus", {**COMMON, "shape": [4, 2, 3]}),
        ("fat_tree", FAT_TREE),
        ("fat_tree", {**FAT_TREE, "num_ranks": 11}),
        ("leaf_spine", {**LEAF_SPINE, "num_ranks": 10}),
        ("leaf_spine", {**LEAF_SPINE, "num_ranks": 10, "uplink_latency": "5us"}),
        ("fat_tree", {**FAT_TREE, "routing": "spray"}),
        ("cluster", CLUSTER),
        ("cluster", {**CLUSTER, "nodes_per_pod": 4, "core_oversubscription": 7.0, "intra_latency": "1us"}),
    ],
)
def test_a_file_of_a_kind_makes_what_the_constructor_of_that_kind_makes(kind, fields):
    topology = parse_network(written(kind, **fields), "mine", "mine.toml").topology()

    assert topology.digest() == getattr(Topology, kind)(**fields).digest()
    assert topology.name == "mine"


def test_uplinks_have_an_efficiency_of_their_own():
    text = written("leaf_spine", **LEAF_SPINE, num_ranks=8, efficiency=0.5, uplink_efficiency=0.25)

    topology = parse_network(text, "mine", "mine.toml").topology()

    assert set(topology.link_bandwidth) == {6_250_000_000}


def test_the_hardware_table_becomes_the_hardware_of_the_topology():
    topology = parse_network(written("switch", **COMMON) + HARDWARE, "mine", "mine.toml").topology(4)

    assert topology.in_network_reduction
    assert topology.hardware == Hardware(
        "hopper",
        Channels.of(12, "30GB/s"),
        Channels.of(16, "24GB/s", "200Gbps"),
        net_latency_ps=2_000_000,
    )


def test_the_hardware_table_has_the_fields_of_hardware():
    assert {name.removesuffix("_ps") for name in Hardware.__dataclass_fields__} == set(
        HardwareTable.model_fields
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            written("torus", **COMMON, shape=[2**10] * 3),
            "would have 1073741824 ranks; expected at most 1048576",
        ),
        (written("torus", **COMMON, shape=[2] * 20), "shape: .*at most 16"),
        (written("torus", **COMMON, shape=[0]), "line 5: shape 1: .*got 0"),
        (written("torus", **COMMON, shape=[]), "shape: .*at least 1"),
        (written("fat_tree", **COMMON, k=3), "k: .*multiple of 2, got 3"),
        (written("fat_tree", **COMMON, k=10**6), "would have 25.* ranks; expected at most 1048576"),
        (written("fat_tree", **COMMON, k=10**6, num_ranks=8), "directed links; expected at most 8388608"),
        (written("fat_tree", **COMMON, k=4, num_ranks=17), "line 6: num_ranks: 17 ranks"),
        (written("leaf_spine", **{**LEAF_SPINE, "num_spines": 10**12}), "directed links; expected at most"),
        (
            written("leaf_spine", **{**LEAF_SPINE, "routing": "best"}),
            "routing: .*'static', 'ecmp' or 'spray', got 'best'",
        ),
        (
            HARDWARE.replace("30GB", "30XB"),
            "line 9: hardware, one_node, intra_bandwidth: cannot read '30XB/s'",
        ),
        (
            HARDWARE.replace("count", "cuont"),
            r"hardware, one_node, cuont: unknown field \(did you mean 'count'",
        ),
        (HARDWARE.replace("net_latency", "netlatency"), r"netlatency: unknown field \(did you mean 'net_lat"),
        (HARDWARE.replace("hopper", "hoper"), "hardware, generation: .*'hopper'.*got 'hoper'"),
        (
            HARDWARE.replace("hopper", "ampere") + "nvls_one_node = {count = 1, intra_bandwidth = 1}",
            "hardware: nvls channels: ampere has no NVLink SHARP",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, said):
    if "[hardware]" in text:
        text = written("switch", **COMMON) + text

    with pytest.raises(NetworkFileError, match=said):
        parse_network(text, "mine", "mine.toml")


def test_a_tree_that_is_not_full_has_the_ranks_that_the_file_states():
    network = parse_network(written("fat_tree", **COMMON, k=4), "mine", "mine.toml")

    assert network.num_ranks == network.topology().num_ranks == 16
    with pytest.raises(TopologyError, match="has 16 ranks, not 8"):
        network.topology(8)


def test_the_example_of_the_documentation_is_a_network_of_eight_ranks():
    topology = load_network(ROOT / "examples" / "cluster.toml").topology()

    assert topology.num_ranks == 8
    assert topology.ranks_per_node == 4
    route = [topology.link_name(link) for link in topology.route(0, 6)]
    assert [name for name in route if "spine1" in name]
    assert topology.hardware is not None


def test_all_kinds_are_documented():
    text = (ROOT / "docs" / "files.md").read_text()

    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []


def test_the_json_schema_of_the_documentation_is_that_of_the_models():
    """To renew it: ``python -m sim.topology.files.schema > docs/network.schema.json``."""
    assert json.loads((ROOT / "docs" / "network.schema.json").read_text()) == json_schema()


LINKS = {"bandwidth": "100Gbps", "latency": "2us"}


def test_round_robin_puts_the_next_rank_on_the_next_node():
    assert places("round_robin", nodes(3, 2)) == (0, 2, 4, 1, 3, 5)


def test_round_robin_passes_over_a_node_that_is_full():
    assert places("round_robin", nodes(3, 3, num_ranks=7)) == (0, 3, 6, 1, 4, 2, 5)


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_round_robin_uses_every_place_once_and_nodes_in_turn(num_nodes, ranks_per_node, data):
    num_ranks = data.draw(st.integers(1, num_nodes * ranks_per_node))
    placed = places("round_robin", nodes(num_nodes, ranks_per_node, num_ranks=num_ranks))

    assert sorted(placed) == list(range(num_ranks))
    turns = [place % ranks_per_node for place in placed]
    assert turns == sorted(turns)


@pytest.mark.parametrize("make", [Topology.switch, Topology.ring])
def test_round_robin_is_packed_where_there_are_no_nodes(make):
    topology = make(num_ranks=6, **LINKS)

    assert places("round_robin", topology) == places("packed", topology) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("given_one", [[5, 0, 3], (2,), [0, 1, 2, 3, 4, 5]])
def test_a_list_says_where_each_rank_is_and_how_many_take_part(given_one):
    assert places(given_one, Topology.switch(num_ranks=6, **LINKS)) == tuple(given_one)


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        ("scattered", "placement: expected 'packed', 'round_robin' or a list of places, got 'scattered'"),
        ([], "placement: expected a place for each rank, got none"),
        ([0, 6], "placement of rank 1: switch has places 0 to 5, got 6"),
        ([-1], "placement of rank 0: switch has places 0 to 5, got -1"),
        ([0, 3, 0], "placement: ranks 0 and 2 are both at place 0; give each its own"),
        ([0, True], "placement of rank 1: switch has places 0 to 5, got True"),
        ([0, "1"], "placement of rank 1: switch has places 0 to 5, got '1'"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(placement, said):
    with pytest.raises(TopologyError, match=f"^{said}"):
        places(placement, Topology.switch(num_ranks=6, **LINKS))
