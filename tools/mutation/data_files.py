"""Targets that are data files: networks, devices, profiles, tables, measurements, programs in XML.

What a file is accepted as does not depend on the order of its keys, nor of a table's rows; what is saved is
read back; a program is proved or refused; a time that is predicted from it is not below the floor.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

from collectives.catalogue.measured_times import Table
from collectives.errors import CollectiveError
from collectives.formats.json_document import parse_json, parse_json_document
from collectives.formats.msccl_program import from_msccl_xml
from collectives.proof.proof import estimate_work, prove
from collectives.simulation.simulation import simulate
from ddp.errors import ProfileError
from ddp.profiles import Profile
from ddp.simulation.simulated_step import simulate_step
from sim.files.device_file import parse_device
from sim.topology import Topology
from sim.topology.description import parse_network
from testbed.errors import UsageError
from testbed.truth.calibration.calibration import Calibration
from testbed.truth.published.systems import read_systems
from testbed.truth.published.tables import Said, read_table
from tests.collectives.formats.msccl_files import fused_ring
from tools.mutation.mutators import as_json, as_toml, mutated_bytes, mutated_value, shuffled_keys
from tools.mutation.target import Target, same, text_of

ROOT = Path(__file__).parents[2]
MOST_RANKS = 16
MOST_WORK = 20_000
TABLE = {
    "schema": 1,
    "ranks": 4,
    "transport": "gloo",
    "rows": [
        {"collective": "all_reduce", "algorithm": name, "size_bytes": size, "time_us": time}
        for name, time in (("native", 20.0), ("ring", 10.0), ("tree", 10.0), ("ring:channels=2", 9.0))
        for size in (1024, 65536)
    ],
}
PROFILE = {
    "schema": 1,
    "name": "two layers",
    "source": "by hand",
    "device": "none",
    "forward_seconds": 0.001,
    "backward_seconds": 0.002,
    "gradients": [
        {"name": "a", "numel": 1000, "dtype": "float32", "nbytes": 4000, "ready_seconds": 0.002},
        {"name": "b", "numel": 500, "dtype": "bfloat16", "nbytes": 1000, "ready_seconds": 0.001},
    ],
}
CSV = """set,size_bytes,time_us,collective,ranks,nodes
a,1024,10.5,all_reduce,8,2
a,2048,11,all_reduce,8,2
b,4096,20,broadcast,4,1
"""
NETWORKS = (("10Gbps", "1us"), (1, "1us"), ("9000000TB/s", 0), ("10Gbps", "100000s"), (100, "9000000s"))
"""Bandwidth and latency of those on which steps of profiles are simulated."""
LOG = """# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 16
#  Rank  0 Group  0 Pid  17 on node-0 device  0 [0x00] GPU
#  Rank  1 Group  0 Pid  18 on node-1 device  0 [0x00] GPU
#       size   count   type   redop  root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
#        (B)  (elements)                    (us)  (GB/s)  (GB/s)           (us)  (GB/s)  (GB/s)
           8       2  float    sum     -1  10.50    0.00    0.00      0  10.40    0.00    0.00      0
          16       4  float    sum     -1  11.50    0.00    0.00      0  11.40    0.00    0.00      0
"""
ESTIMATE = {"value": 1e-5, "low": 1e-6, "high": 1e-4}
LINKS = {"rate": ESTIMATE, "latency": ESTIMATE}
COSTS = {"overhead": ESTIMATE, "arrival_overhead": ESTIMATE, "reduction_bandwidth": None}
CALIBRATION = {
    "schema": 1,
    "name": "mine",
    "classes": {
        "between_nodes": {
            "rate": ESTIMATE,
            "latency": ESTIMATE,
            "one_way": [ESTIMATE],
            "both_ways": [ESTIMATE],
        }
    },
    "programs": {**COSTS, "reduction_bandwidth": {"value": 4e9, "low": 3e9, "high": 5e9}},
    "native": COSTS,
    "fits": [{"nbytes": 65536, "num_rows": 3, "median_error": 0.02, "worst_error": 0.05, "spread": 0.01}],
    "origin": {
        "measured": "2026-01-01T00:00:00+00:00",
        "transport": "gloo",
        "num_ranks": 4,
        "ranks_per_node": 1,
        "network": "a switch",
        "num_rows": 30,
        "smallest": 1,
        "largest": 4194304,
        "seconds": 50.0,
        "versions": {"torch": "2.13.0"},
        "ranks_per_rack": None,
    },
}


@cache
def _shipped(folder: str) -> tuple[dict[str, Any], ...]:
    """Return the contents of the TOML files that ship, none of them large."""
    texts = [
        file.read_text()
        for file in resources.files("sim").joinpath(folder).iterdir()
        if file.name[-5:] == ".toml"
    ]
    texts = [text for text in texts if len(text) < 8000]
    if folder == "presets":
        texts.append((ROOT / "examples" / "cluster.toml").read_text())
    return tuple(tomllib.loads(text) for text in texts) + _SMALL[folder]


_SMALL: dict[str, tuple[dict[str, Any], ...]] = {
    "devices": (),
    "presets": (
        {"schema": 1, "kind": "switch", "bandwidth": "100Gbps", "latency": "2us", "efficiency": 0.9},
        {"schema": 1, "kind": "ring", "num_ranks": 4, "bandwidth": "1GB/s", "latency": 1e-6},
        {"schema": 1, "kind": "torus", "dims": [2, 2], "bandwidth": "1GB/s", "latency": "1us"},
        {
            "schema": 1,
            "kind": "graph",
            "node": [{"name": "r[0-3]"}, {"name": "s", "kind": "switch"}],
            "link": [{"from": "r[0-3]", "to": "s", "bandwidth": "1GB/s", "latency": "1us"}],
        },
    ),
}


def _of_values(
    samples: Callable[[], Sequence[Any]], write: Callable[[Any, Random], bytes]
) -> Callable[[Random], bytes]:
    def draw(random: Random) -> bytes:
        content = write(mutated_value(random.choice(samples()), random), random)
        return mutated_bytes(content, random) if random.random() < 0.15 else content

    return draw


def _of_texts(samples: Sequence[str]) -> Callable[[Random], bytes]:
    def draw(random: Random) -> bytes:
        content = random.choice(samples).encode()
        for _ in range(random.choice((1, 1, 2, 3))):
            content = mutated_bytes(content, random)
        return content

    return draw


def _in_a_file(content: bytes, suffix: str, read: Callable[[Path], Any]) -> Any:
    """Return what *read* finds in a file that holds *content*, in memory where there is such a place."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(content)
        return read(path)


def read_network_file(content: bytes) -> None:
    """Read a network, make it small, simulate on it; another order of keys makes the same network."""
    text = text_of(content)
    network = parse_network(text, "mine", "mine.toml")
    other = as_toml(shuffled_keys(tomllib.loads(text), Random(0)))
    same(parse_network(other.decode(), "mine", "mine.toml").fields, network.fields, "keys in another order")

    ranks = network.fields.size or 2 * getattr(network.fields, "ranks_per_node", 1)
    if ranks <= MOST_RANKS:
        topology = network.topology(ranks)
        if topology.link_bandwidth.size <= 10 * MOST_RANKS:
            run = simulate("ring", nbytes=1000, topology=topology)
            assert run.seconds >= run.floor_seconds > (0 if ranks > 1 else -1), run


def read_device_file(content: bytes) -> None:
    """Read a device; another order of keys makes the same device."""
    text = text_of(content)
    device = parse_device(text, "mine", "mine.toml")
    other = as_toml(shuffled_keys(tomllib.loads(text), Random(0)))

    same(parse_device(other.decode(), "mine", "mine.toml"), device, "keys in another order")
    for dtype, rate in device.rates.items():
        assert 0 < rate <= device.peaks[dtype], device


def read_profile(content: bytes) -> None:
    """Read a profile, save and read it again, simulate a step: no shorter than its computation."""

    def parsed(content: bytes) -> Profile:
        return parse_json_document(content, "p.json", Profile, ProfileError, "a profile")

    def saved_and_loaded(path: Path) -> Profile:
        profile.save(path)
        return Profile.load(path)

    profile = parsed(content)
    value = parse_json(content, "p.json", ProfileError)
    same(parsed(json.dumps(shuffled_keys(value, Random(0))).encode()), profile, "keys in another order")
    same(_in_a_file(b"", ".json", saved_and_loaded), profile, "saved")

    bandwidth, latency = NETWORKS[len(content) % len(NETWORKS)]
    topology = Topology.switch(num_ranks=2, bandwidth=bandwidth, latency=latency)
    step = simulate_step(profile, topology=topology)
    assert step.time_ps >= max(step.floor_ps, profile.compute_ps), step


def read_measured_times(content: bytes) -> None:
    """Read a table of measured times; its choice does not depend on the order of rows."""

    def chosen(content: bytes) -> list[str]:
        table = _in_a_file(content, ".json", lambda path: Table(path, 4))
        selected = [table.select("all_reduce", nbytes) for nbytes in (0, 1, 1024, 4096, 2**30)]
        return [str(own) for own in selected]

    found = chosen(content)
    value = shuffled_keys(parse_json(content, "t.json", CollectiveError), Random(0))
    value["rows"].reverse()
    same(chosen(json.dumps(value).encode()), found, "rows in another order")


def read_measurements(content: bytes) -> None:
    """Read measurements of any format; the rows are of positive, finite times."""
    rows = _in_a_file(content, ".csv", lambda path: read_table(path, Said("all_reduce", 8, 2)))
    for row in rows:
        assert 0 < row.seconds < 1e7, row
        assert 0 <= row.nbytes < 2**63, row
        assert 1 <= row.num_nodes <= row.num_ranks <= 2**20, row
        assert row.num_ranks % row.num_nodes == 0, row


def read_systems_file(content: bytes) -> None:
    """Read a file of systems; another order of keys says the same."""
    found = _in_a_file(content, ".json", read_systems)
    other = json.dumps(shuffled_keys(parse_json(content, "s.json", UsageError), Random(0)))
    same(_in_a_file(other.encode(), ".json", read_systems), found, "keys in another order")
    for system in found.values():
        assert system.num_ranks % system.num_nodes == 0, system
        assert 0 <= system.intra_bandwidth < 1e18, system
        assert 0 <= system.nic_bandwidth < 1e18, system


def read_msccl(content: bytes) -> None:
    """Read a program in XML and prove it, or have it refused; another order of attributes means the same."""
    algorithm = from_msccl_xml(content)
    world_size = next((ranks for ranks in range(1, 9) if _takes(algorithm, ranks)), 0)
    if not world_size or estimate_work(algorithm, world_size) > MOST_WORK:
        return
    steps = [list(algorithm.steps(rank, world_size)) for rank in range(world_size)]
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError:  # of names with colons, which ours takes as they are
        prove(algorithm, world_size)
        return
    for element in root.iter():
        element.attrib = dict(reversed(element.attrib.items()))
    again = from_msccl_xml(ElementTree.tostring(root))
    same(
        [list(again.steps(rank, world_size)) for rank in range(world_size)],
        steps,
        "attributes in another order",
    )
    prove(algorithm, world_size)


def _takes(algorithm: Any, world_size: int) -> bool:
    try:
        algorithm.num_chunks(world_size)
        next(iter(algorithm.steps(0, world_size)), None)
    except CollectiveError:
        return False
    return True


def read_calibration(content: bytes) -> None:
    """Read a calibration; what is written again is the same."""
    found = _in_a_file(content, ".json", Calibration.read)
    same(Calibration.from_json(found.as_json()), found, "written and read")


def _systems() -> Sequence[Any]:
    content = json.loads((ROOT / "testbed/truth/published/data/systems.json").read_text())
    return [{name: fields} for name, fields in list(content.items())[:40]]


def _toml(value: Any, random: Random) -> bytes:
    if not isinstance(value, dict):
        return b"".join((b"schema = ", as_json(value, random)))
    return as_toml(value)


TARGETS = (
    Target("network", _of_values(lambda: _shipped("presets"), _toml), read_network_file, weight=6),
    Target("device", _of_values(lambda: _shipped("devices"), _toml), read_device_file, weight=6),
    Target("profile", _of_values(lambda: [PROFILE], as_json), read_profile, weight=6),
    Target("measured_times", _of_values(lambda: [TABLE], as_json), read_measured_times, weight=6),
    Target("measurements", _of_texts([CSV, LOG]), read_measurements, weight=6),
    Target("bench_document", _of_values(lambda: [TABLE], as_json), read_measurements, weight=6),
    Target("systems", _of_values(_systems, as_json), read_systems_file, weight=6),
    Target("calibration", _of_values(lambda: [CALIBRATION], as_json), read_calibration, weight=6),
    Target("msccl", _of_texts([fused_ring(3), fused_ring(2)]), read_msccl, weight=6),
)
