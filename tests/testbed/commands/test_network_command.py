"""`testbed network`: the list of presets, and the facts of one."""

from pathlib import Path

import pytest

from sim import load_network, preset_names
from tests.commands import called, reported

CLUSTER = str(Path(__file__).parents[3] / "examples" / "cluster.toml")


def test_without_a_name_all_presets_are_listed():
    listed = [own["name"] for own in reported("network")["networks"]]

    assert listed == list(preset_names())
    assert set(listed) <= set(called("network").stdout.split())


@pytest.mark.parametrize("name", [*preset_names(), CLUSTER])
def test_every_preset_is_shown_with_its_source_and_digest(name):
    shown, document = called("network", name).stdout, reported("network", name)

    topology = load_network(name).topology(document["ranks"])
    assert document["digest"] == topology.digest() == document["topologies"][topology.name]
    assert document["digest"] in shown
    assert load_network(name).source.strip() in shown
    assert document["diameter"]["hops"] >= 2
    assert document["bisection"]["bandwidth"] > 0


def test_the_facts_of_nodes_are_those_that_one_works_out_by_hand():
    document = reported("network nvlink-400g --ranks 32")

    assert (document["ranks"], document["nodes"], document["ranks_per_node"]) == (32, 4, 8)
    assert document["diameter"] | {"hops": 2, "latency_ps": 2_700_000} == document["diameter"]
    assert document["bisection"]["bandwidth"] == 16 * 50 * 10**9
    assert document["oversubscription"] == {"ratio": 9.0, "group": "node"}
    assert sum(own["count"] for own in document["links"]) == document["num_links"] == 128
