"""`testbed network`: the list of presets, and the facts of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim import load_network, preset_names
from testbed.cli import app

CLUSTER = str(Path(__file__).parents[3] / "examples" / "cluster.toml")


def network(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["network", *arguments])


def test_without_a_name_all_presets_are_listed() -> None:
    result = network()

    assert result.exit_code == 0
    for name in preset_names():
        assert name in result.stdout
    listed = json.loads(network("--json").stdout)["networks"]
    assert [own["name"] for own in listed] == list(preset_names())


@pytest.mark.parametrize("name", [*preset_names(), CLUSTER])
def test_every_preset_is_shown_with_its_source_and_digest(name: str) -> None:
    result = network(name)
    document = json.loads(network(name, "--json").stdout)

    assert result.exit_code == 0
    topology = load_network(name).topology(document["ranks"])
    assert document["digest"] == topology.digest() == document["topologies"][topology.name]
    assert document["digest"] in result.stdout
    assert load_network(name).source.strip() in result.stdout
    assert document["diameter"]["hops"] >= 2
    assert document["bisection"]["bandwidth"] > 0


def test_the_facts_of_nodes_are_those_that_one_works_out_by_hand() -> None:
    document = json.loads(network("nvlink-400g", "--ranks", "32", "--json").stdout)

    assert (document["ranks"], document["nodes"], document["ranks_per_node"]) == (32, 4, 8)
    assert document["diameter"]["hops"] == 2
    assert document["diameter"]["latency_ps"] == 2_700_000
    assert document["bisection"]["bandwidth"] == 16 * 50 * 10**9
    assert document["oversubscription"] == {"ratio": 9.0, "group": "node"}
    assert sum(own["count"] for own in document["links"]) == document["num_links"] == 128


def test_the_number_of_ranks_is_that_of_the_file_or_two_nodes_at_least() -> None:
    assert json.loads(network(CLUSTER, "--json").stdout)["ranks"] == 8
    assert json.loads(network("gb200-nvl72", "--json").stdout)["ranks"] == 144
    assert json.loads(network("switch-100g", "--json").stdout)["ranks"] == 64


def test_a_network_is_drawn_where_one_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.svg"

    result = network(CLUSTER, "--plot", str(path))

    assert result.exit_code == 0
    assert f"Drawn in {path}." in result.stdout
    assert "<svg" in path.read_text()
