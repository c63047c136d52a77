"""`testbed bench`: its rows over every collective, several algorithms beside each other, and how it ends."""

import json
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from collectives import algorithm_names
from collectives.communicators.on_one_host import OnOneHost
from collectives.program.contracts import CONTRACTS
from testbed.benchmarking import benchmark
from testbed.benchmarking.measure import row
from testbed.cli import app
from testbed.commands import bench
from testbed.scripts.launch import free_port
from tests.commands import called, reported, rows_of

COLUMNS = """
    collective algorithm size_bytes count type redop root
    time_us algbw_gbs busbw_gbs wrong seconds engine floor_us
"""
NOTHING = """
from collectives import Recv, Send

def overwrites(rank, world_size):
    peer = 1 - rank
    yield Send(peer, chunk=rank), Recv(peer, chunk=peer)
"""
BOTH_SIZES = "bench --nbytes 1K,64K"


def run_bench(line, **variables):
    """Run the real command in a process of its own and return its JSON."""
    command = [sys.executable, "-m", "testbed", "bench", *line.split(), "--json"]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **variables}
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_the_simulated_ring_on_a_switch_is_the_closed_form():
    (row,) = rows_of("bench --ranks 64 --nbytes 64M --network switch-100g")

    assert list(row) == COLUMNS.split()
    assert (row["collective"], row["algorithm"], row["engine"]) == ("all_reduce", "ring", "makespan")
    assert row["time_us"] == pytest.approx(2 * 63 * (2**20 / 12.5e9 + 4e-6) * 1e6, rel=1e-9)
    assert row["wrong"] is None
    assert row["floor_us"] <= row["time_us"]


@pytest.mark.parametrize("transport", ["sim", "threads"])
@pytest.mark.parametrize("collective", CONTRACTS)
def test_every_collective_is_timed_and_its_payload_checked(collective, transport):
    how = "--payload" if transport == "sim" else "--transport threads --iterations 2"

    document = reported(f"{BOTH_SIZES} --collective {collective} --ranks 3 --algorithm all {how}")

    refused = {own["algorithm"] for own in document["refused"]}
    ran = [name for name in algorithm_names(collective) if name not in refused]
    assert sorted(own["algorithm"] for own in document["rows"]) == sorted([*ran, *ran])
    assert {own["collective"] for own in document["rows"]} == {document["collective"]} == {collective}
    assert {own["wrong"] for own in document["rows"]} == {0}
    assert {own["root"] for own in document["rows"]} <= {0, None}


@pytest.mark.parametrize("collective", ["all_reduce", "gather"])
def test_native_is_nccl_s_own_choice_where_a_simulated_network_names_its_gpus(collective):
    asked = f"--network dgx-h100 --ranks 16 --nbytes 64K,1M --collective {collective}"

    native, nccl = (rows_of(f"bench {asked} --payload --algorithm {name}") for name in ("native", "nccl"))

    assert [row["seconds"] for row in native] == [row["seconds"] for row in nccl]
    assert [row["wrong"] for row in native] == [0, 0]


def test_what_gloo_runs_is_simulated_and_carries_a_payload():
    native = "bench --transport sim --algorithm native --transport-model gloo"

    rows = rows_of(f"{native} --nbytes 4K,3M --payload --collective reduce_scatter")

    assert [(row["algorithm"], row["wrong"]) for row in rows] == [("native", 0)] * 2
    assert all(row["chosen"].startswith("gloo_") for row in rows)


def test_threads_are_measured_checked_and_compared_with_a_fitted_model():
    document = reported(
        "bench --transport threads --ranks 3 --nbytes 1K-64K --factor 8 --iterations 3 --compare"
    )

    assert [row["size_bytes"] for row in document["rows"]] == [1024, 8192, 65536]
    assert all(row["wrong"] == 0 and row["simulated_us"] > 0 for row in document["rows"])
    assert "fitted to this very run" in document["model"]


def test_nodes_are_those_of_the_network():
    document = reported("bench --nbytes 1M --algorithm hierarchical --network nvlink-400g --ranks 32")

    assert "hierarchical:ranks_per_node=8 on nvlink-400g" in document["model"]


def test_every_row_says_which_engine_gave_it():
    document = reported(f"{BOTH_SIZES} --ranks 16 --algorithm ring,double_binary_tree")

    engines = {own["algorithm"]: own["engine"] for own in document["rows"]}
    assert engines == {"ring": "makespan", "double_binary_tree": "events"}
    assert "engines makespan and events" in document["model"]


def test_the_fastest_are_marked_and_who_refuses_is_named():
    chosen = "--collective all_gather --algorithm ring,bruck,halving_doubling:order=near"

    shown = called(f"{BOTH_SIZES} --ranks 6 --network ethernet-25g {chosen}").stdout

    lines = shown.splitlines()
    assert lines[0] == "All-gather on ethernet-25g, 6 ranks, simulated"
    assert [line.split()[0] for line in lines[5:8]] == ["bruck", "ring", "floor"]
    assert "1008 B – 64 KiB  bruck" in shown
    assert "Left out: halving_doubling:order=near of all_gather is for powers of two" in shown


def test_what_would_take_long_to_simulate_is_left_out_unless_it_is_named(
    monkeypatch,
):
    monkeypatch.setattr(benchmark, "MAX_MESSAGES", 100)

    refusals = reported(f"{BOTH_SIZES} --ranks 16 --algorithm all")["refused"]
    named = rows_of(f"{BOTH_SIZES} --ranks 16 --algorithm double_binary_tree")

    refused = {own["algorithm"]: own["reason"] for own in refusals}
    assert "--algorithm all,double_binary_tree" in refused["double_binary_tree"]
    assert "ring" not in refused
    assert len(named) == 2


def test_the_result_is_saved_and_drawn_as_well_as_printed(tmp_path):
    saved, drawn = tmp_path / "times.json", tmp_path / "times.png"

    document = reported(f"{BOTH_SIZES} --algorithm ring,tree --output {saved} --plot {drawn}")

    assert json.loads(saved.read_text()) == document
    assert (document["transport"], document["ranks"], len(document["rows"])) == ("sim", 4, 4)
    assert drawn.stat().st_size > 5000
    assert {path.name for path in tmp_path.iterdir()} == {"times.json", "times.png"}


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    """The name of a program that comes out wrong, as if it were proved."""
    monkeypatch.setattr("collectives.catalogue.admission.evidence_of", lambda *_: None)
    path = tmp_path / "own.py"
    path.write_text(NOTHING, encoding="utf-8")
    return f"{path}:overwrites"


@pytest.mark.parametrize("how", ["--payload", "--transport threads --iterations 1"])
def test_whoever_comes_out_wrong_is_counted_and_named_and_never_wins(wrong, how):
    result = called(f"{BOTH_SIZES} --ranks 2 {how} --algorithm {wrong},ring", code=1)

    assert f"came out wrong; {wrong}: " in result.stderr
    assert result.stdout.count("*") == 3
    assert "1 KiB – 64 KiB  ring" in result.stdout


@pytest.mark.parametrize("how", ["", "--json"])
def test_what_was_simulated_when_it_is_interrupted_is_printed(monkeypatch, how):
    def interrupted(request, *_):
        for name in ("ring", "tree"):
            yield row(request, name, 256, 1e-6, None, engine="makespan")
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "simulate_rows", interrupted)

    result = called(f"{BOTH_SIZES} --algorithm all {how}", code=130)

    assert result.stderr == "testbed: interrupted\n"
    assert ("*1.00" in result.stdout) is not bool(how)
    assert "Traceback" not in result.stdout


def test_a_simulated_choice_says_what_it_has_chosen_and_is_no_slower_than_that():
    rows = rows_of(f"{BOTH_SIZES} --ranks 8 --algorithm auto,ring,tree,direct --payload")

    times = {(own["algorithm"], own["size_bytes"]): own["time_us"] for own in rows}
    for own in rows:
        if own["algorithm"] == "auto":
            assert own["wrong"] == 0
            assert times.get((own["chosen"], own["size_bytes"]), own["time_us"]) == own["time_us"]


@pytest.mark.costly
@pytest.mark.distributed
def test_over_gloo_all_are_compared_with_gloos_own_and_rank_0_alone_prints(tmp_path):
    saved = tmp_path / "gloo.json"
    gloo = f"--transport gloo --ranks 3 --nbytes 4K --iterations 2 --output {saved}"

    document = run_bench(f"{gloo} --collective broadcast --algorithm all")

    assert [own["algorithm"] for own in document["rows"]] == [*algorithm_names("broadcast"), "native"]
    assert (document["ranks"], {own["count"] for own in document["rows"]}) == (3, {1024})
    assert {own["wrong"] for own in document["rows"]} == {0}
    assert json.loads(saved.read_text())["rows"] == document["rows"]


@pytest.mark.costly
@pytest.mark.distributed
def test_over_shared_memory_it_times_what_connect_chooses_and_says_so():
    document = run_bench("--transport shm --ranks 2 --nbytes 1K,2M --iterations 1 --compare")

    chosen = [str(OnOneHost().select("all_reduce", row["size_bytes"])) for row in document["rows"]]
    assert [row["chosen"] for row in document["rows"]] == chosen
    assert {row["wrong"] for row in document["rows"]} == {0}
    assert f"all-reduce by connect()'s choice ({', '.join(chosen)}) over shm" in document["model"]
    assert all(row["simulated_us"] > 0 for row in document["rows"])


@pytest.mark.costly
@pytest.mark.distributed
def test_from_python_ranks_that_are_processes_are_measured_too():
    result = bench.bench(transport="gloo", ranks=2, nbytes="4K", iterations=2, algorithm=["ring", "native"])

    assert [(own["algorithm"], own["wrong"]) for own in result.rows] == [("ring", 0), ("native", 0)]


@pytest.mark.costly
@pytest.mark.distributed
def test_under_torchrun_the_ranks_that_run_are_joined():
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    document = run_bench("--transport gloo --nbytes 4K --iterations 1", **variables)

    assert document["ranks"] == 1


@pytest.mark.costly
@pytest.mark.distributed
def test_more_nccl_ranks_than_gpus_are_refused_with_2(monkeypatch, capfd):
    words = ["bench", "--transport", "nccl", "--ranks", str(torch.cuda.device_count() + 1)]
    monkeypatch.setattr(sys, "argv", ["testbed", *words])

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 2
    assert "nccl needs a GPU of its own for each rank" in result.stderr + capfd.readouterr().err


@pytest.mark.gpu
@pytest.mark.distributed
@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_nccl_is_measured_and_its_payload_right(algorithm):
    ranks = torch.cuda.device_count()

    document = run_bench(f"--transport nccl --ranks {ranks} --nbytes 4K,1M --algorithm {algorithm}")

    assert [row["wrong"] for row in document["rows"]] == [0, 0]
