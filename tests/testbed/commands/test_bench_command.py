"""`testbed bench`: its rows, its usage, and how it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from testbed.cli import app

COLUMNS = ["collective", "algorithm", "size_bytes", "count", "type", "redop", "root"]
COLUMNS += ["time_us", "algbw_gbs", "busbw_gbs", "wrong"]

NOTHING = """
from collectives import Recv, Send

def overwrites(rank, world_size):
    peer = 1 - rank
    yield Send(peer, chunk=rank), Recv(peer, chunk=peer)
"""


def run_bench(*arguments: str, code: int = 0, **variables: str) -> dict[str, Any]:
    """Run the real command in a process of its own and return its JSON."""
    finished = subprocess.run(
        [sys.executable, "-m", "testbed", "bench", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **variables},
    )
    assert finished.returncode == code, finished.stderr
    return json.loads(finished.stdout)


def test_the_simulated_ring_on_a_switch_is_the_closed_form(tmp_path: Path) -> None:
    network = tmp_path / "own.toml"
    network.write_text(
        'schema = 1\nkind = "switch"\nbandwidth = "100Gbps"\nlatency = "2us"\n', encoding="utf-8"
    )

    result = CliRunner().invoke(
        app, ["bench", "--ranks", "64", "--sizes", "64M", "--network", str(network), "--json"]
    )

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    (row,) = document["rows"]
    assert list(row) == [*COLUMNS, "seconds", "engine", "floor_us"]
    assert (row["collective"], row["algorithm"], row["engine"]) == ("all_reduce", "ring", "makespan")
    assert row["time_us"] == pytest.approx(11073.64608, rel=1e-12)
    assert row["wrong"] is None
    assert row["floor_us"] <= row["time_us"]
    assert document["method"] == ["simulated"]
    assert document["topologies"]


def test_nodes_are_those_of_the_network() -> None:
    arguments = ["--algorithm", "hierarchical", "--network", "nvlink-400g", "--ranks", "32", "--json"]

    result = CliRunner().invoke(app, ["bench", "--sizes", "1M", *arguments])

    assert result.exit_code == 0, result.stderr
    assert "hierarchical:ranks_per_node=8 on nvlink-400g" in json.loads(result.stdout)["model"]


def test_what_gloo_runs_is_simulated_and_carries_a_payload() -> None:
    arguments = ["bench", "--transport", "sim", "--algorithm", "native", "--sizes", "4K,3M", "--payload"]
    arguments += ["--collective", "reduce_scatter", "--transport-model", "gloo", "--json"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [(row["algorithm"], row["wrong"]) for row in rows] == [("native", 0)] * 2
    assert all(row["chosen"].startswith("gloo_") for row in rows)


def test_the_transport_that_is_simulated_is_named() -> None:
    arguments = ("--ranks", "4", "--sizes", "1M", "--algorithm", "tree")

    ideal, gloo = (
        json.loads(CliRunner().invoke(app, ["bench", *arguments, *counted, "--json"]).stdout)
        for counted in (["--ideal"], [])
    )
    assert (ideal["transport_model"], gloo["transport_model"]) == ("ideal", "gloo")
    assert gloo["rows"][0]["time_us"] > ideal["rows"][0]["time_us"]


def test_threads_are_measured_checked_and_compared_with_a_fitted_model() -> None:
    arguments = ["bench", "--transport", "threads", "--ranks", "3", "--sizes", "1K-64K", "--factor", "8"]

    result = CliRunner().invoke(app, [*arguments, "--iterations", "3", "--compare", "--json"])

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert [row["size_bytes"] for row in document["rows"]] == [1024, 8192, 65536]
    assert all(row["wrong"] == 0 and row["simulated_us"] > 0 for row in document["rows"])
    assert "fitted to this very run" in document["model"]


def test_a_wrong_payload_is_counted_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "collectives.catalogue.admission.evidence_of", lambda *_: None
    )  # as if it were proved
    path = tmp_path / "own.py"
    path.write_text(NOTHING, encoding="utf-8")
    arguments = ["bench", "--transport", "threads", "--iterations", "1", "--ranks", "2", "--sizes", "1K"]

    result = CliRunner().invoke(app, [*arguments, "--algorithm", f"{path}:overwrites", "--json"])

    assert result.exit_code == 1
    assert json.loads(result.stdout)["rows"][0]["wrong"] > 0
    assert "came out wrong; " in result.stderr


@pytest.mark.distributed
def test_a_port_in_use_ends_with_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        result = CliRunner().invoke(app, ["bench", "--transport", "gloo", "--port", port])

    assert result.exit_code == 2
    assert f"port {port} is in use" in result.stderr


@pytest.mark.costly
@pytest.mark.distributed
def test_under_torchrun_the_ranks_that_run_are_joined() -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        variables["MASTER_PORT"] = str(probe.getsockname()[1])

    document = run_bench("--transport", "gloo", "--sizes", "4K", "--iterations", "1", **variables)

    assert document["ranks"] == 1


@pytest.mark.costly
@pytest.mark.distributed
def test_more_nccl_ranks_than_gpus_are_refused_with_2(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "--transport", "nccl", "--ranks", str(torch.cuda.device_count() + 1)]
    monkeypatch.setattr(sys, "argv", ["testbed", *words])

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 2
    assert "nccl needs a GPU of its own for each rank" in result.stderr + capfd.readouterr().err


@pytest.mark.gpu
@pytest.mark.distributed
@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_nccl_is_measured_and_its_payload_right(algorithm: str) -> None:
    ranks = str(torch.cuda.device_count())

    document = run_bench(
        "--transport", "nccl", "--ranks", ranks, "--sizes", "4K,1M", "--algorithm", algorithm
    )

    assert [row["wrong"] for row in document["rows"]] == [0, 0]
