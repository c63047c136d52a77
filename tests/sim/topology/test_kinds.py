"""Each kind of network file makes the network that its constructor makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim import load_network
from sim.errors import NetworkFileError, TopologyError
from sim.files.hardware_table import HardwareTable
from sim.files.schema import KINDS, json_schema
from sim.hardware import Channels, Hardware
from sim.topology import Topology
from sim.topology.description import parse_network

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
            "routing: .*'static' or 'ecmp', got 'best'",
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
    """To renew it: ``python -m sim.files.schema > docs/network.schema.json``."""
    assert json.loads((ROOT / "docs" / "network.schema.json").read_text()) == json_schema()
