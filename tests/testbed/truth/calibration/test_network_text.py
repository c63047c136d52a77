import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from ddp import Profile
from sim.topology.description import parse_network
from testbed.cli import app
from testbed.truth.calibration.calibration import (
    CachedBuffers,
    Calibration,
    Estimate,
    Fit,
    LinkShares,
    Origin,
    SoftwareCosts,
)
from testbed.truth.calibration.network_text import network_toml


def estimate(value):
    return Estimate(value, 0.9 * value, 1.1 * value)


SHARES = LinkShares(estimate(25e6), estimate(100e-6), (estimate(0.95),), (estimate(0.9), estimate(0.8)))
TRUNK = LinkShares(estimate(50e6), estimate(120e-6), (estimate(0.9),), (estimate(0.9),))
OURS = SoftwareCosts(estimate(60e-6), estimate(10e-6), estimate(4e9))
IN_MEMORY = replace(OURS, call_overhead=estimate(80e-6), copy_bandwidth=estimate(5e9))
NATIVE = SoftwareCosts(estimate(2e-6), estimate(0.0))


def calibration(ranks_per_node=1, ranks_per_rack=None, **classes):
    in_memory = "memory" in classes
    origin = Origin(
        measured="2026-01-01T00:00:00+00:00",
        transport="shm" if in_memory else "gloo",
        num_ranks=8,
        ranks_per_node=ranks_per_node,
        network='four "hosts"',
        num_rows=70,
        smallest=4,
        largest=1 << 21,
        seconds=60.0,
        versions={"torch": "2.13.0", "numpy": None},
        ranks_per_rack=ranks_per_rack,
    )
    fits = (Fit(65536, 9, 0.02, 0.1, 0.01),)
    if in_memory:
        return Calibration("mine", classes, IN_MEMORY, fits, origin, cached=CachedBuffers(1 << 24, 1.5, 3.0))
    return Calibration("mine", classes, OURS, fits, origin, NATIVE)


CASES = {
    "switch": calibration(between_nodes=SHARES),
    "nodes": calibration(ranks_per_node=4, inside_node=SHARES, between_nodes=TRUNK),
    "host": calibration(ranks_per_node=8, inside_node=SHARES, memory=TRUNK),
    "leaf_spine": calibration(ranks_per_rack=4, between_nodes=SHARES, trunk=TRUNK),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_network_file_holds_the_links_and_the_calibration(kind, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(network_toml(CASES[kind]))

    read = Calibration.read(file)
    network = parse_network(file.read_text(), "mine", str(file))

    assert network.kind == kind
    assert read.classes == CASES[kind].classes
    assert replace(read, origin=CASES[kind].origin) == CASES[kind]
    assert read.origin.versions == {"torch": "2.13.0"}


def test_the_file_makes_the_network_that_the_calibration_describes():
    text = network_toml(CASES["leaf_spine"])

    made = parse_network(text, "mine", "mine.toml").topology(8)

    applied = CASES["leaf_spine"].applied_to(made)
    assert made.digest() == applied.digest()


def test_the_file_says_with_which_options_software_is_counted():
    text = network_toml(CASES["switch"])

    assert "--overhead 60000ns --arrival-overhead 10000ns --reduction-bandwidth 4000000000" in text
    assert "Nothing was measured of buffers below 4 B or above 2097152 B" in text


@pytest.fixture
def calibrated(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(network_toml(CASES["switch"]))
    return str(file)


def run(*arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def test_sizes_beyond_the_calibration_are_said_by_simulate(calibrated):
    arguments = ["simulate", "ring", "--network", calibrated, "--ranks", "4"]
    above = "above 2097152 bytes, the most calibrated"

    alone = run(*arguments, "--nbytes", "4M")
    several = run(*arguments, "--nbytes", "1M-8M")
    rows = json.loads(run(*arguments, "--nbytes", "2,2M,4M", "--json"))["rows"]

    assert f"beyond {above}" in alone
    assert f"Beyond what was measured: 4 MiB, 8 MiB, {above}." in several
    assert [row.get("beyond") for row in rows] == ["below 4 bytes, the least calibrated", None, above]
    assert "eyond" not in run(*arguments, "--nbytes", "2M")


@pytest.mark.parametrize("beyond", [False, True])
def test_buckets_beyond_the_calibration_are_said_by_scale(calibrated, tmp_path, beyond):
    profile = tmp_path / "profile.json"
    nbytes = 2**22 if beyond else 2**20
    Profile.uniform(num_buckets=2, bucket_bytes=nbytes, seconds_per_bucket=1e-3).save(profile)
    arguments = ["scale", "--profile", str(profile), "--network", calibrated, "--ranks", "1,2"]

    alone, together, *_ = json.loads(run(*arguments, "--strategy", "per_parameter", "--json"))["rows"]

    said = "; buckets are beyond what was measured: above 2097152 bytes, the most calibrated"
    assert together["expected"].endswith(said) == beyond
    assert said not in alone["expected"]
