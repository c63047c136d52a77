"""Networks by name and from files; whatever is wrong in a file is named."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import load_network, preset_names
from sim.errors import NetworkFileError, TopologyError
from sim.topology import Topology
from sim.topology.description import parse_network

SWITCH = """
schema = 1
kind = "switch"
bandwidth = "100Gbps"
latency = "2us"
"""
NODES = """
schema = 1
kind = "nodes"
ranks_per_node = 8
intra_bandwidth = "450GB/s"
intra_latency = "300ns"
nics_per_node = 2
nic_bandwidth = 50e9
nic_latency = 2e-6
"""


def test_the_presets_are_known():
    assert {"ethernet-25g", "nvlink-400g", "switch-100g"} < set(preset_names())


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("num_ranks", [1, 2, 7, 8, 9, 1024])
def test_a_preset_makes_a_network_of_any_size_and_says_where_it_is_from(name, num_ranks):
    network = load_network(name)

    assert network.name == network.topology(num_ranks).name == name
    assert network.topology(num_ranks).num_ranks == num_ranks
    assert network.description
    assert "latenc" in network.source.lower()


def test_the_preset_switch_is_the_one_of_the_documentation():
    expected = Topology.switch(num_ranks=64, bandwidth="100Gbps", latency="2us")

    assert load_network("switch-100g").topology(64).digest() == expected.digest()


@pytest.mark.parametrize("kind", ["switch", "ring"])
def test_a_file_describes_a_network(tmp_path, kind):
    path = tmp_path / "mine.toml"
    path.write_text(SWITCH.replace("switch", kind) + 'description = "d"\nsource = "s"\n')

    network = load_network(path)

    expected = getattr(Topology, kind)(num_ranks=5, bandwidth="100Gbps", latency="2us")
    assert network.topology(5).digest() == expected.digest()
    assert (network.name, network.description, network.source) == ("mine", "d", "s")
    assert load_network(str(path)) == network


@given(bandwidth=st.integers(1, 2**62), efficiency=st.floats(1e-300, 1))
def test_a_link_carries_the_part_of_its_line_rate_that_the_efficiency_says(bandwidth, efficiency):
    text = f"""
        schema = 1
        kind = "switch"
        bandwidth = {bandwidth}
        efficiency = {efficiency!r}
        latency = 0
    """

    topology = parse_network(text, "mine", "mine.toml").topology(2)

    assert set(topology.link_bandwidth) == {max(1, math.floor(bandwidth * Fraction(repr(efficiency))))}


def test_a_network_of_a_stated_size_has_that_and_no_other():
    network = parse_network(SWITCH + "num_ranks = 5", "mine", "mine.toml")

    assert network.num_ranks == network.topology().num_ranks == network.topology(5).num_ranks == 5
    with pytest.raises(TopologyError, match="mine has 5 ranks, not 6; its file states its size"):
        network.topology(6)


def test_a_network_of_any_size_must_be_told_how_many_ranks_and_not_too_many():
    network = parse_network(SWITCH, "mine", "mine.toml")

    with pytest.raises(TopologyError, match="mine is one of any size; say how many ranks"):
        network.topology()
    with pytest.raises(TopologyError, match="would have 1048577 ranks; expected at most 1048576"):
        network.topology(2**20 + 1)


def test_a_topology_is_made_from_a_file_or_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SWITCH + "num_ranks = 5")

    assert Topology.from_file(path).digest() == load_network(path).topology().digest()
    assert Topology.from_file("dgx-h100", 24).digest() == load_network("dgx-h100").topology(24).digest()


@given(st.integers(1, 40))
def test_ranks_fill_nodes_in_order_and_share_network_cards_as_the_file_says(tmp_path_factory, num_ranks):
    path = tmp_path_factory.mktemp("networks") / "nodes.toml"
    path.write_text(NODES)

    topology = load_network(path).topology(num_ranks)

    assert topology.ranks_per_node == min(8, num_ranks)
    for rank in range(8, num_ranks):
        _, down = topology.route(0, rank)
        assert topology.link_name(down) == f"node {rank // 8} NIC {rank % 8 // 4} down"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind =", "not a TOML file"),
        ("schema = 1", "kind: expected one of switch, ring, nodes, .*; it is missing"),
        (SWITCH.replace("switch", "swich"), r"got 'swich' \(did you mean 'switch'\?\)"),
        (SWITCH.replace('"switch"', "7"), "line 3: kind: expected one of switch, ring, nodes, .*; got 7"),
        (
            SWITCH.replace("bandwidth", "bandwith"),
            r"line 4: bandwith: unknown field \(did you mean 'bandwidth'\?\)",
        ),
        (SWITCH.replace("bandwidth", "bandwith"), "bandwidth: this field is missing"),
        (SWITCH.replace("schema = 1", ""), "schema: this field is missing"),
        (SWITCH.replace("schema = 1", "schema = 2"), "schema: input should be 1, got 2"),
        (
            SWITCH.replace("100Gbps", "fast"),
            "line 4: bandwidth: cannot read 'fast'; expected a bandwidth such as",
        ),
        (SWITCH.replace('"100Gbps"', "-1"), "bandwidth: -1 is not positive"),
        (SWITCH.replace('"2us"', "[1]"), r"latency: cannot read \[1\]"),
        (NODES.replace("nics_per_node = 2", "nics_per_node = 3"), "line 7: nics_per_node: 3 does not divide"),
        (NODES.replace("ranks_per_node = 8", 'ranks_per_node = "8"'), "ranks_per_node: .*, got '8'"),
        (NODES.replace("ranks_per_node = 8", "ranks_per_node = 0"), "ranks_per_node: .*, got 0"),
        (SWITCH + "efficiency = 1.5", "efficiency: input should be less than or equal to 1, got 1.5"),
        (SWITCH + "efficiency = 0", "efficiency: input should be greater than 0, got 0"),
        (SWITCH + "num_ranks = 1000000000000", "would have 1000000000000 ranks; expected at most 1048576"),
        (SWITCH + "num_ranks = 1e308", r"num_ranks: .*, got 1e\+308"),
        (SWITCH + "num_ranks = " + "9" * 5000, "not a TOML file: Exceeds the limit"),
        (SWITCH + "num_ranks = 0x" + "F" * 5000, "num_ranks: .*, got a number of thousands of digits"),
        ("x = " + "[" * 5000, "not a TOML file"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(NetworkFileError, match=said) as raised:
        load_network(path)

    assert str(raised.value).startswith(f"{path}: ")


RATES = 'schema = 1\nbandwidth = "1GB/s"\nlatency = 0\n'
COUNTED = (
    NODES + "num_ranks = 8\n",
    RATES + 'kind = "fat_tree"\nk = 4\n',
    RATES + 'kind = "leaf_spine"\nuplink_bandwidth = 1\nnum_ranks = 8\nhosts_per_leaf = 2\nnum_spines = 2\n',
    RATES + 'kind = "torus"\nshape = [2, 2]\n',
)


@pytest.mark.parametrize(
    "number", ["1e308", "1000000000000", "-1", "0", "nan", "inf", "true", '"8"', "1_000"]
)
def test_any_number_where_a_count_belongs_is_read_or_refused_in_one_line(number):
    for text in COUNTED:
        for count in re.finditer(r"(?<=[ \[])[248]\b", text):
            said = "mine.toml: "
            try:
                parse_network(text[: count.start()] + number + text[count.end() :], "mine", "mine.toml")
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


@pytest.mark.parametrize("num_ranks", [0, -1])
@pytest.mark.parametrize("name", ["nvlink-400g", "switch-100g"])
def test_an_impossible_number_of_ranks_is_refused(name, num_ranks):
    with pytest.raises(TopologyError, match="num_ranks: expected a whole number of at least 1"):
        load_network(name).topology(num_ranks)


def test_importing_sim_brings_neither_torch_nor_pydantic():
    code = "import sim, sys; sys.exit(bool({'torch', 'pydantic'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
