"""Calibrations: read and written, as files of networks, and applied to networks."""

import json
from dataclasses import replace

import pytest

from benchmarks.lab.shaped.applied import applied_to
from collectives import NotSupportedError, simulate
from ddp import Profile
from sim import Topology
from sim.topology.description import parse_network
from testbed.calibration.live.calibration import (
    CachedBuffers,
    Calibration,
    Estimate,
    Fit,
    LinkShares,
    Origin,
    SoftwareCosts,
)
from testbed.calibration.live.constants import network_toml
from testbed.errors import UsageError
from tests.commands import called, in_one_line, rows_of
from tests.given import nodes, switch


def calibration(**latencies):
    """Return a calibration of links that share alike and whose paths take so long."""
    one_way, both_ways = (Estimate.exactly(0.95),), (Estimate.exactly(0.9), Estimate.exactly(0.8))
    return calibration_of_kind(
        **{
            kind: LinkShares(Estimate.exactly(25e6), Estimate.exactly(latency), one_way, both_ways)
            for kind, latency in latencies.items()
        }
    )


def seconds(topology, source, destination):
    return simulate(
        "tree", nbytes=1, topology=topology, collective="broadcast", placement=[source, destination]
    ).seconds


def test_a_network_keeps_its_rates_and_takes_shares_and_latency():
    plain = switch(4, "80Mbps", "1ms")

    applied = applied_to(plain, calibration(between_nodes=100e-6))

    assert (applied.link_bandwidth == plain.link_bandwidth).all()
    took = simulate("tree", nbytes=9_500_000, topology=applied, collective="broadcast", placement=[0, 3])
    assert took.seconds == pytest.approx(1 + 100e-6)


RACKS = Topology.leaf_spine(
    num_ranks=4, hosts_per_leaf=2, bandwidth="80Mbps", uplink_bandwidth="80Mbps", latency="1ms"
)


@pytest.mark.parametrize(("measured", "more"), [({}, 0), ({"trunk": 300e-6}, 200e-6)])
def test_a_trunk_adds_what_its_path_was_measured_to_take_more_and_shares_as_other_links(measured, more):
    applied = applied_to(RACKS, calibration(between_nodes=100e-6, **measured))

    assert seconds(applied, 0, 2) - seconds(applied, 0, 1) == pytest.approx(more, abs=1e-6)
    assert {applied.sharing.of_link(link).both_ways for link in range(applied.num_links)} == {(0.9, 0.8)}


def test_paths_inside_a_node_and_between_nodes_have_their_own_latency():
    slow = nodes(2, 2, intra_bandwidth="10GB/s", nic_bandwidth="80Mbps")

    applied = applied_to(slow, calibration(inside_node=20e-6, between_nodes=100e-6))

    assert seconds(applied, 0, 1) == pytest.approx(20e-6, rel=1e-2)
    assert seconds(applied, 1, 2) == pytest.approx(100e-6, rel=1e-2)
    with pytest.raises(NotSupportedError, match="mine: nothing was measured of links inside node"):
        applied_to(slow, calibration(between_nodes=100e-6))


def estimate(value):
    return Estimate(value, 0.9 * value, 1.1 * value)


SHARES = LinkShares(estimate(25e6), estimate(100e-6), (estimate(0.95),), (estimate(0.9), estimate(0.8)))
TRUNK = LinkShares(estimate(50e6), estimate(120e-6), (estimate(0.9),), (estimate(0.9),))
OURS = SoftwareCosts(estimate(60e-6), estimate(10e-6), estimate(4e9))
IN_MEMORY = replace(OURS, call_overhead=estimate(80e-6), copy_bandwidth=estimate(5e9))
NATIVE = SoftwareCosts(estimate(2e-6), estimate(0.0))


def calibration_of_kind(ranks_per_node=1, ranks_per_rack=None, **classes):
    in_memory = "memory" in classes
    origin = Origin(
        measured="2026-01-01T00:00:00+00:00", transport="shm" if in_memory else "gloo", num_ranks=8,
        ranks_per_node=ranks_per_node, ranks_per_rack=ranks_per_rack, network='four "hosts"', num_rows=70,
        smallest=4, largest=1 << 21, seconds=60.0, versions={"torch": "2.13.0", "numpy": None},
    )  # fmt: skip
    fits = (Fit(65536, 9, 0.02, 0.1, 0.01),)
    if in_memory:
        return Calibration("mine", classes, IN_MEMORY, fits, origin, cached=CachedBuffers(1 << 24, 1.5, 3.0))
    return Calibration("mine", classes, OURS, fits, origin, NATIVE)


CASES = {
    "switch": calibration_of_kind(between_nodes=SHARES),
    "nodes": calibration_of_kind(ranks_per_node=4, inside_node=SHARES, between_nodes=TRUNK),
    "host": calibration_of_kind(ranks_per_node=8, inside_node=SHARES, memory=TRUNK),
    "leaf_spine": calibration_of_kind(ranks_per_rack=4, between_nodes=SHARES, trunk=TRUNK),
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


def test_the_file_makes_the_network_that_the_calibration_describes_and_names_its_options():
    text, other = (network_toml(CASES[kind]) for kind in ("leaf_spine", "switch"))

    made = parse_network(text, "mine", "mine.toml").topology(8)

    assert made.digest() == applied_to(made, CASES["leaf_spine"]).digest()
    assert "--overhead 60000ns --arrival-overhead 10000ns --reduction-bandwidth 4000000000" in other
    assert "Nothing was measured of buffers below 4 B or above 2097152 B" in other


def test_a_result_document_with_a_calibration_is_read_too_and_what_holds_none_is_refused(tmp_path):
    file, content = tmp_path / "mine.json", CASES["switch"].as_json()
    file.write_text(json.dumps({"method": "measured", "calibration": content}))
    assert Calibration.read(file) == CASES["switch"]

    content["native"]["overhead"]["value"] = "fast"
    with pytest.raises(UsageError, match=r"mine: native, overhead, value: .*got 'fast'"):
        Calibration.from_json(content, "mine")
    for text in ("no json", "[]", '{"schema": 7}'):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"mine\.json"):
            Calibration.read(file)


@pytest.fixture
def calibrated(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(network_toml(CASES["switch"]))
    return str(file)


def test_sizes_beyond_the_calibration_are_said_by_simulate(calibrated):
    line = f"simulate ring --network {calibrated} --ranks 4 --nbytes"
    above = "above 2097152 bytes, the most calibrated"

    alone, several, within = (in_one_line(called(line, sizes).stdout) for sizes in ("4M", "1M-8M", "2M"))
    rows = rows_of(line, "2,2M,4M")

    assert f"beyond {above}" in alone
    assert f"Beyond what was measured: 4 MiB, 8 MiB, {above}." in several
    assert [row.get("beyond") for row in rows] == ["below 4 bytes, the least calibrated", None, above]
    assert "eyond" not in within


@pytest.mark.parametrize("beyond", [False, True])
def test_buckets_beyond_the_calibration_are_said_by_scale(calibrated, tmp_path, beyond):
    profile = tmp_path / "profile.json"
    nbytes = 2**22 if beyond else 2**20
    Profile.uniform(num_buckets=2, bucket_bytes=nbytes, seconds_per_bucket=1e-3).save(profile)
    asked = f"scale --profile {profile} --network {calibrated} --ranks 1,2"

    alone, together, *_ = rows_of(f"{asked} --strategy per_parameter")

    said = "; buckets are beyond what was measured: above 2097152 bytes, the most calibrated"
    assert together["assumed"].endswith(said) == beyond
    assert said not in alone["assumed"]
