"""The digits script, unmodified: one process, several over Gloo, rank threads in virtual time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from collectives.virtual import run
from ddp import Profile
from sim import RankError, Topology

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "digits.py"


def environment():
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def under_torchrun(output, *arguments):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    command = [*launcher, str(SCRIPT), "--output", str(output), *arguments]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr


def in_virtual_time(num_ranks, output, *arguments, compute=None):
    topology = Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")
    return run(SCRIPT, network=topology, argv=["--output", str(output), *arguments], compute=compute)


def parameters(output):
    return torch.load(output / "parameters.pt")


def bitwise_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_four_ranks_learn_more_than_95_percent_and_what_one_process_learns(tmp_path):
    in_virtual_time(4, tmp_path / "four", "--dtype", "float64")

    command = [sys.executable, str(SCRIPT), "--dtype", "float64", "--output", str(tmp_path / "one")]
    subprocess.run(command, env=environment(), check=True, timeout=100)

    metrics = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("four", "one")]
    assert [entry["world_size"] for entry in metrics] == [4, 1]
    assert all(entry["accuracy"] > 0.95 for entry in metrics)
    four, one = parameters(tmp_path / "four"), parameters(tmp_path / "one")
    assert max((four[name] - one[name]).abs().max().item() for name in four) < 1e-10


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize(("backend", "dtype"), [("gloo", "float32"), ("testbed", "float64")])
def test_processes_end_with_the_same_bits_as_virtual_ranks(tmp_path, backend, dtype):
    arguments = ["--epochs", "2", "--dtype", dtype, "--backend", backend]

    under_torchrun(tmp_path / "processes", *arguments)
    in_virtual_time(4, tmp_path / "virtual", *arguments)

    assert bitwise_equal(parameters(tmp_path / "processes"), parameters(tmp_path / "virtual"))


@pytest.mark.costly
def test_a_recorded_profile_charges_the_virtual_ranks(tmp_path):
    in_virtual_time(1, tmp_path, "--epochs", "1", "--record", str(tmp_path / "profile.json"))
    profile, trace = Profile.load(tmp_path / "profile.json"), tmp_path / "trace.json"
    charges = profile.compute_charges()

    outcome = in_virtual_time(4, tmp_path, "--epochs", "1", "--trace", str(trace), compute=charges)

    assert outcome.seconds > 11 * profile.compute_seconds
    tracks = {event.get("cat") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"compute", "communication"} <= tracks


@pytest.mark.parametrize(
    ("num_ranks", "arguments", "complaint"),
    [
        (1, ["--epochs", "0"], "--epochs must be at least 1, got 0"),
        (1, ["--dtype", "int8"], "invalid choice: 'int8'"), (1, ["--algorithm", "rign"], "ring"),
        (2, ["--record", "profile.json"], "run it with one process"), (3, [], "cannot be shared by 3 ranks"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_one_clear_error(tmp_path, capsys, num_ranks, arguments, complaint):
    with pytest.raises(RankError) as caught:
        in_virtual_time(num_ranks, tmp_path, *arguments)

    assert complaint in capsys.readouterr().err + str(caught.value)
