"""`testbed simulate`: what it prints is what the library returns."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from collectives import simulate
from collectives.timing import Assumptions
from sim import Jitter, LinkChange, LinkFailure, Straggler, load_network
from testbed.studies.simulation import SimulationRequest, entries_of, simulated
from tests.commands import called, in_one_line, rows_of

CLUSTER = str(Path(__file__).parents[3] / "examples" / "cluster.toml")
SWITCH = load_network("switch-100g").topology(64)


def test_the_json_is_what_the_library_returns():
    (row,) = rows_of("simulate ring --nbytes 64M")

    expected = simulate("ring", nbytes=2**26, topology=SWITCH)
    assert row == {
        "algorithm": "ring", "chosen": "ring", "collective": "all_reduce", "nbytes": 2**26, "ranks": 64,
        "seconds": expected.seconds, "time_ps": expected.time_ps,
        "algbw": expected.algbw, "busbw": expected.busbw,
        "floor_seconds": expected.floor_seconds, "above_floor": expected.seconds / expected.floor_seconds,
        "engine": "makespan", "model": "links", "transport_model": "gloo", "conditions": [],
        "bottleneck": expected.links.rows()[0],
        "low": None, "high": None, "interval_from": "",  # of so many bytes over Gloo nothing was measured
    }  # fmt: skip


def test_algorithms_are_compared_size_by_size_however_they_are_listed():
    several = "simulate ring,tree swing --nbytes 4K,1M --ranks 8"

    rows = rows_of(several)

    assert [(row["nbytes"], row["algorithm"]) for row in rows] == [
        (nbytes, name) for nbytes in (4096, 2**20) for name in ("ring", "tree", "swing")
    ]
    assert called(several).stdout.count("rank 0 up") == 6


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("--placement round_robin", {"placement": "round_robin"}),
        ("--placement '0,8,1-2, 9'", {"placement": (0, 8, 1, 2, 9)}),
        ("--overhead 1us", {"overhead": "1us"}),
        ("--reduction-bandwidth 10GB/s", {"reduction_bandwidth": 10**10}),
        ("--transport-model gloo --arrival-overhead 5us",
         {"transport_model": "gloo", "arrival_overhead": "5us"}),
        ("--protocol LL128", {"protocol": "LL128"}),
        ("--engine events", {"engine": "events"}),
        ("--model nccl", {"model": "nccl"}),
        ("--straggler 3:2", {"conditions": [Straggler(3, 2)]}),
        ("--straggler 3:+1ms --straggler 5:1.5+2us",
         {"conditions": [Straggler(3, delay="1ms"), Straggler(5, 1.5, "2us")]}),
        ("--fail-link 'rank 0 up@1ms' --fail-link 1@2s",
         {"conditions": [LinkFailure("rank 0 up", "1ms"), LinkFailure(1, "2s")]}),
        ("--degrade-link 'rank 0 up@10us:0.5' --degrade-link 3@2s:2",
         {"conditions": [LinkChange("rank 0 up", "10us", 0.5), LinkChange(3, "2s", 2)]}),
        ("--jitter 1us --seed 3", {"conditions": [Jitter("1us", seed=3)]}),
        ("--collective all-gather", {"collective": "all_gather"}),
    ],
)  # fmt: skip
def test_options_are_those_of_the_library(options, arguments):
    (row,) = rows_of(f"simulate ring --network dgx-a100 --ranks 16 --nbytes 1M {options}")

    expected = simulate("ring", nbytes=2**20, network="dgx-a100", num_ranks=16, **arguments)
    for name in ("time_ps", "engine", "model", "transport_model"):
        assert row[name] == getattr(expected, name)


def test_links_are_listed_with_those_alike_in_one_line_or_each():
    few = "simulate ring --ranks 8"
    short, full = (called(f"{few} {option}").stdout for option in ("--links", "--all-links"))

    assert "rank 0-7 up, rank 0-7 down  ×16" in short
    assert "saturated for" in short
    assert all(f"rank {rank} down" in full for rank in range(8))
    (row,) = rows_of(f"{few} --links")
    assert len(row["links"]) == 16
    assert sum(use["nbytes"] for use in row["links"]) == 2 * 14 * 2**26
    assert row["links"][0]["saturated_seconds"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("ring --engine makespan --ranks 8", "How long links were full is not recorded"),
        ("ring --ranks 256", "How long links were full is not recorded"),
        ("nvls,ring --network dgx-h100 --ranks 8", "nvls is a closed form"),
    ],
)
def test_where_links_have_no_times_or_there_are_none_the_table_says_so(options, said):
    assert said in called(f"simulate {options} --links").stdout


def test_a_trace_holds_every_message(tmp_path):
    path = tmp_path / "trace.json"

    shown = called(f"simulate ring --ranks 4 --nbytes 4000 --trace {path}").stdout

    assert f"Trace, for https://ui.perfetto.dev: {path}" in shown
    content = json.loads(path.read_text())
    sent = [e["args"]["bytes"] for e in content["traceEvents"] if e.get("cat") == "send"]
    assert sum(sent) == 6 * 4 * 1000
    assert content["otherData"]["algorithm"] == "ring"


@pytest.mark.parametrize(
    "asked",
    ["ring tree --nbytes 4K-1M", "ring tree --nbytes 0,1,4K", f"halving_doubling --network {CLUSTER}"],
)
def test_plots_are_drawn_over_sizes_or_of_the_load(tmp_path, asked):
    path = tmp_path / "plot.svg"

    assert f"Plot: {path}" in called(f"simulate {asked} --plot {path}").stdout
    assert "<svg" in path.read_text()


FAILING = f"simulate halving_doubling --network {CLUSTER} --fail-link 'b2 to leaf1@1ms'"


def test_a_link_that_fails_ends_the_run_and_a_way_round_saves_it():
    failed, saved = called(FAILING, code=1), called(f"{FAILING} --reroute")

    assert "link b2 to leaf1 has failed; lost at 1 ms" in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert "LinkFailure(link='b2 to leaf1', at='1ms', reroute=True)" in in_one_line(saved.stdout)
    assert "bottleneck" in saved.stdout


def test_where_too_many_messages_change_their_way_no_links_are_named():
    with mock.patch("collectives.timing.observation.MAX_MESSAGES", 10):
        shown = called(f"{FAILING.replace('halving_doubling', 'ring')} --reroute --links").stdout

    assert "bottleneck" not in shown
    assert "Links: messages changed their way" in shown


@pytest.mark.parametrize(
    ("engine", "expected_steps"), [("makespan", 126), ("events", 252), ("ranks", 64 * 126)]
)
def test_steps_and_time_are_told_who_watches_and_change_nothing(engine, expected_steps):
    said = []
    request = SimulationRequest(
        entries_of(["ring"], "all_reduce", 64, 1, Assumptions()), (2**20,), "all_reduce", SWITCH, "packed",
        engine, Assumptions(), links=False, observe=False,
    )  # fmt: skip
    with mock.patch("testbed.studies.simulation._SHOWN_EVERY", 0):
        (watched,) = simulated(request, lambda text, completed=None: said.append(text), watched=True)
    (alone,) = simulated(request, lambda text, completed=None: None, watched=False)

    assert watched.run == alone.run
    assert said[:2] == ["ring, 1 MiB", "ring, 1 MiB: 1 step"]
    assert said[-1] == f"ring, 1 MiB: {expected_steps} steps, at 669 µs"


@pytest.mark.costly
def test_traces_are_the_same_bytes_under_every_hash_seed(tmp_path):
    words = ["swing", "--network", CLUSTER, "--jitter", "1us", "--trace"]
    written = set()
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.json"
        command = [sys.executable, "-m", "testbed", "simulate", *words, str(path)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
        written.add(path.read_bytes())

    assert len(written) == 1
