"""Networks by name and from files; whatever is wrong in a file is named."""

import inspect
import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import NetworkFileError, Topology, TopologyError, load_network, preset_names
from sim.hardware import Channels, Hardware
from sim.topology.description import NetworkDescription, parse_network
from sim.topology.files.hardware_table import HardwareTable
from sim.topology.kinds import KINDS
from tests.sim.networks import KINDS as DRAWN
from tests.sim.networks import arguments

ROOT = Path(__file__).parents[3]
LINKS = {"bandwidth": "100Gbps", "latency": "2us"}
FILES: dict[str, dict[str, Any]] = {
    "switch": LINKS,
    "ring": LINKS,
    "torus": {**LINKS, "shape": [2, 2]},
    "nodes": {
        "ranks_per_node": 8, "intra_bandwidth": "450GB/s", "intra_latency": "300ns",
        "nics_per_node": 2, "nic_bandwidth": 50e9, "nic_latency": 2e-6,
    },
    "leaf_spine": {
        **LINKS, "hosts_per_leaf": 4, "uplink_bandwidth": "200Gbps", "num_spines": 2, "num_ranks": 8,
    },
    "fat_tree": {**LINKS, "k": 4},
    "cluster": {
        "ranks_per_node": 8, "intra_bandwidth": "450GB/s", "nic_bandwidth": "400Gbps",
        "nodes_per_leaf": 32, "oversubscription": 2,
    },
}  # fmt: skip
HARDWARE = """in_network_reduction = true
[hardware]
generation = "hopper"
one_node = {count = 12, intra_bandwidth = "30GB/s"}
several_nodes = {count = 16, intra_bandwidth = "24GB/s", inter_bandwidth = "200Gbps"}
net_latency = "2us"
"""

NVLS = "nvls_one_node = {count = 1, intra_bandwidth = 1}"


def toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)


def written(kind: str, **fields) -> str:
    """Return a file; a field stands on the line 3 or a later one, and None leaves it out."""
    return lines({"schema": 1, "kind": kind, **FILES.get(kind, {}), **fields})


def lines(fields: dict[str, Any]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in fields.items() if value is not None)


def parse(text: str) -> NetworkDescription:
    return parse_network(text, "mine", "mine.toml")


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("num_ranks", [1, 2, 7, 8, 9, 1024])
def test_a_preset_makes_a_network_of_any_size_and_says_where_it_is_from(name, num_ranks):
    network = load_network(name)

    assert network.name == network.topology(num_ranks).name == name
    assert network.topology(num_ranks).num_ranks == num_ranks
    assert network.description
    assert "latenc" in network.source.lower()


@given(st.sampled_from(DRAWN[:-1]), st.data())
def test_a_file_makes_what_the_constructor_of_its_kind_makes(kind, data):
    """The fields of a file are the arguments, but that links get of a bandwidth what an efficiency leaves."""
    fields = data.draw(arguments(kind, st.integers(10**6, 10**12)))
    tables = [name for name in inspect.signature(KINDS[kind]).parameters if name.endswith("sharing")]
    fields |= {name: {"one_way": [1.0, 0.5]} for name in tables if data.draw(st.booleans())}
    made, said = dict(fields), {name: value for name, value in fields.items() if name != "num_nodes"}
    for name in [name for name in fields if name.endswith("bandwidth") and data.draw(st.booleans())]:
        part = data.draw(st.floats(0.01, 1))
        said[name.replace("bandwidth", "efficiency")] = part
        made[name] = math.floor(made[name] * Fraction(repr(part)))

    network = parse(lines({"schema": 1, "kind": kind, **said}))

    assert network.topology().digest() == getattr(Topology, kind)(**made).digest()
    assert network.topology().name == "mine"


@given(bandwidth=st.integers(1, 2**62), efficiency=st.floats(1e-300, 1))
def test_a_link_carries_the_part_of_its_line_rate_that_the_efficiency_says(bandwidth, efficiency):
    topology = parse(written("switch", bandwidth=bandwidth, efficiency=efficiency)).topology(2)

    assert set(topology.link_bandwidth) == {max(1, math.floor(bandwidth * Fraction(repr(efficiency))))}


def test_a_file_is_read_by_its_path_and_a_topology_is_made_from_it_or_from_a_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(written("switch", num_ranks=5, description="d", source="s"))

    network = load_network(path)

    assert (network.name, network.description, network.source) == ("mine", "d", "s")
    assert load_network(str(path)) == network
    assert Topology.from_file(path).digest() == network.topology().digest()
    assert Topology.from_file("dgx-h100", 24).digest() == load_network("dgx-h100").topology(24).digest()


@pytest.mark.parametrize(("kind", "fields", "size"), [("switch", {"num_ranks": 5}, 5), ("fat_tree", {}, 16)])
def test_a_network_of_a_stated_size_has_that_and_no_other(kind, fields, size):
    network = parse(written(kind, **fields))

    assert network.num_ranks == network.topology().num_ranks == network.topology(size).num_ranks == size
    with pytest.raises(TopologyError, match=f"mine has {size} ranks, not 6; its file states its size"):
        network.topology(6)


def test_a_network_of_any_size_must_be_told_how_many_ranks_and_not_too_many():
    network = parse(written("switch"))

    with pytest.raises(TopologyError, match="mine is one of any size; say how many ranks"):
        network.topology()
    with pytest.raises(TopologyError, match="would have 1048577 ranks; expected at most 1048576"):
        network.topology(2**20 + 1)


def test_the_hardware_table_becomes_the_hardware_of_the_topology():
    topology = parse(written("switch") + HARDWARE).topology(4)

    assert topology.in_network_reduction
    channels = Channels.of(12, "30GB/s"), Channels.of(16, "24GB/s", "200Gbps")
    assert topology.hardware == Hardware("hopper", *channels, net_latency_ps=2_000_000)
    fields = {name.removesuffix("_ps") for name in Hardware.__dataclass_fields__}
    assert fields == set(HardwareTable.model_fields)


WRONG = [
    ("kind =", "not a TOML file"),
    ("x = " + "[" * 5000, "not a TOML file"),
    ("schema = 1", "kind: expected one of switch, ring, nodes, .*; it is missing"),
    (written("swich"), r"line 2: kind: .* got 'swich' \(did you mean 'switch'\?\)"),
    (written("switch").replace('"switch"', "7"), "line 2: kind: expected one of switch, ring, .*; got 7"),
    (written("switch").replace("bandwidth", "bandwith"), r"line 3: bandwith: unknown field \(did you mean '"),
    (written("switch", bandwidth=None), "bandwidth: this field is missing"),
    (written("switch", schema=None), "schema: this field is missing"),
    (written("switch", schema=2), "line 1: schema: input should be 1, got 2"),
    (written("switch", bandwidth="fast"), "line 3: bandwidth: cannot read 'fast'; expected a bandwidth such"),
    (written("switch", bandwidth=-1), "line 3: bandwidth: -1 is not positive"),
    (written("switch", latency=[1]), r"line 4: latency: cannot read \[1\]"),
    (written("switch", efficiency=1.5), "line 5: efficiency: input should be less than or equal to 1, got"),
    (written("switch", efficiency=0), "line 5: efficiency: input should be greater than 0, got 0"),
    (written("switch", fabric="token"), "line 5: fabric: .*'ethernet-tcp'"),
    (written("switch", num_ranks=10**12), "would have 1000000000000 ranks; expected at most 1048576"),
    (written("switch", num_ranks=1e308), r"num_ranks: .*, got 1e\+308"),
    (written("switch") + "num_ranks = " + "9" * 5000, "not a TOML file: Exceeds the limit"),
    (written("switch") + "num_ranks = 0x" + "F" * 5000, "num_ranks: .*, got a number of thousands of digits"),
    (written("nodes", ranks_per_node="8"), "line 3: ranks_per_node: .*, got '8'"),
    (written("nodes", ranks_per_node=0), "line 3: ranks_per_node: .*, got 0"),
    (written("torus", shape=[2**10] * 3), "would have 1073741824 ranks; expected at most 1048576"),
    (written("torus", shape=[2] * 20), "line 5: shape: .*at most 16"),
    (written("torus", shape=[0]), "line 5: shape 1: .*got 0"),
    (written("fat_tree", k=3), "line 5: k: .*multiple of 2, got 3"),
    (written("fat_tree", k=10**6), "would have 25.* ranks; expected at most 1048576"),
    (written("fat_tree", k=10**6, num_ranks=8), "directed links; expected at most 8388608"),
    (written("leaf_spine", num_spines=10**12), "directed links; expected at most"),
    (written("cluster", rails=3), "line 8: rails: 3 does not divide nics_per_node, 8"),
    (written("cluster", num_ranks=8, uplinks_per_leaf=10**9, routing="ecmp"), "links; expected at most"),
    *(
        (written("switch") + HARDWARE.replace(old, new) + NVLS, said)
        for old, new, said in [
            ("30GB", "30XB", "line 8: hardware, one_node, intra_bandwidth: cannot read '30XB/s'"),
            ("count", "cuont", r"hardware, one_node, cuont: unknown field \(did you mean 'count'"),
            ("net_latency", "netlatency", r"netlatency: unknown field \(did you mean 'net_lat"),
            ("hopper", "hoper", "hardware, generation: .*'hopper'.*got 'hoper'"),
            ("hopper", "ampere", "line 6: hardware: nvls channels: ampere has no NVLink SHARP"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_wrong_in_a_file_is_named_in_one_line_with_its_number(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(NetworkFileError, match=said) as raised:
        load_network(path)

    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


COUNTED = [
    written(kind, **fields)
    for kind, fields in [("nodes", {"num_ranks": 8}), ("fat_tree", {}), ("leaf_spine", {}), ("torus", {})]
]


@pytest.mark.parametrize(
    "number", ["1e308", "1000000000000", "-1", "0", "nan", "inf", "true", '"8"', "1_000"]
)
def test_any_number_where_a_count_belongs_is_read_or_refused_in_one_line(number):
    for text in COUNTED:
        for count in re.finditer(r"(?<=[ \[])[248]\b", text):
            said = "mine.toml: "
            try:
                parse(text[: count.start()] + number + text[count.end() :])
            except NetworkFileError as error:
                said = str(error)

            assert re.fullmatch(r"mine\.toml: .{,2500}", said)


def test_an_unknown_name_gets_the_nearest_and_all_that_there_are():
    with pytest.raises(
        NetworkFileError, match=r"'switch-100'.*mean 'switch-100g'.*one of aws-p3dn, .*nvlink-400g"
    ):
        load_network("switch-100")


@pytest.mark.parametrize("what", ["missing.toml", "."])
def test_what_is_no_file_is_named(tmp_path, what):
    with pytest.raises(NetworkFileError, match="cannot read this network file"):
        load_network(tmp_path / what)


def test_the_example_of_the_documentation_is_a_network_of_eight_ranks():
    topology = load_network(ROOT / "examples" / "cluster.toml").topology()

    assert (topology.num_ranks, topology.ranks_per_node) == (8, 4)
    assert any("spine1" in topology.link_name(link) for link in topology.route(0, 6))
    assert topology.hardware is not None


def test_all_kinds_are_documented():
    text = (ROOT / "docs" / "files.md").read_text()

    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []
