"""Targets that are data files: networks, devices, profiles, tables, measurements, programs in XML.

Three properties hold of each: what is wrong is refused in one short line that names the file, the order of
keys (of rows, of attributes) does not matter, and what is saved is read back.  Beyond that, a program is
proved or refused, and a time that is predicted from a file is not below the floor.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from collectives.catalogue.measured_times import Table
from collectives.errors import CollectiveError
from collectives.formats.json_document import parse_json, parse_json_document
from collectives.formats.msccl_program import from_msccl_xml
from collectives.proof.proof import estimate_work, prove
from collectives.timing.simulation import simulate
from ddp.errors import ProfileError
from ddp.profiles import Profile
from ddp.step.simulated_step import simulate_step
from sim.files.device_file import parse_device
from sim.topology import Topology
from sim.topology.description import parse_network
from sim.topology.files.schema import model
from sim.topology.kinds import KINDS
from testbed.calibration.live.calibration import Calibration
from testbed.calibration.tables.rows import MeasuredRow, read_systems
from testbed.calibration.tables.tables import read_table
from testbed.errors import UsageError, exit_code_of
from testbed.options.arguments import TableOptions
from tests.collectives.formats.msccl_files import fused_ring
from tests.inputs.mutators import any_value, as_json, as_toml, mutated_bytes, mutated_value, shuffled_keys
from tests.inputs.target import Target, same, text_of

Read = TypeVar("Read")
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
COSTS = {"overhead": ESTIMATE, "arrival_overhead": ESTIMATE, "reduction_bandwidth": None}
RATES = {"rate": ESTIMATE, "latency": ESTIMATE, "one_way": [ESTIMATE], "both_ways": [ESTIMATE]}
CALIBRATION = {
    "schema": 1,
    "name": "mine",
    "classes": {"between_nodes": RATES},
    "programs": {**COSTS, "reduction_bandwidth": {"value": 4e9, "low": 3e9, "high": 5e9}},
    "native": COSTS,
    "fits": [{"nbytes": 65536, "num_rows": 3, "median_error": 0.02, "worst_error": 0.05, "spread": 0.01}],
    "origin": {
        "measured": "2026-01-01T00:00:00+00:00", "transport": "gloo", "num_ranks": 4, "ranks_per_node": 1,
        "network": "a switch", "num_rows": 30, "smallest": 1, "largest": 4194304, "seconds": 50.0,
        "versions": {"torch": "2.13.0"}, "ranks_per_rack": None,
    },
}  # fmt: skip


@cache
def _shipped(folder: str) -> tuple[dict[str, Any], ...]:
    """Return the contents of the TOML files that ship, none of them large."""
    texts = [file.read_text() for file in sorted((ROOT / "sim" / folder).glob("*.toml"))]
    texts = [text for text in texts if len(text) < 8000]
    if folder == "presets":
        texts.append((ROOT / "examples" / "cluster.toml").read_text())
    return tuple(tomllib.loads(text) for text in texts) + _SMALL[folder]


_RATES = {"schema": 1, "bandwidth": "1GB/s", "latency": "1us"}
_NODES = {"intra_bandwidth": 1, "intra_latency": 0, "nic_bandwidth": 1, "nic_latency": 0}
_SPINES = {"uplink_bandwidth": 1, "num_ranks": 8, "hosts_per_leaf": 2, "num_spines": 2}
_ENDS = [{"name": "r[0-3]"}, {"name": "s", "kind": "switch"}]
_LINK = {"from": "r[0-3]", "to": "s", "bandwidth": 1, "latency": "1us"}
_SMALL: dict[str, tuple[dict[str, Any], ...]] = {
    "devices": (),
    "presets": (
        {**_RATES, "kind": "switch", "efficiency": 0.9},
        {**_RATES, "kind": "ring", "num_ranks": 4},
        {**_RATES, "kind": "torus", "shape": [2, 2]},
        {**_RATES, "kind": "fat_tree", "k": 4},
        {**_RATES, "kind": "leaf_spine", **_SPINES},
        {**_NODES, "schema": 1, "kind": "nodes", "num_ranks": 8, "ranks_per_node": 8, "nics_per_node": 8},
        {**_NODES, "schema": 1, "kind": "cluster", "num_ranks": 8, "ranks_per_node": 2, "nodes_per_leaf": 2},
        {"schema": 1, "kind": "graph", "node": _ENDS, "link": [_LINK]},
    ),
}
ATTRIBUTES = ("-2", "-1", "0", "1", "2", "3", "4", "5", "", "i", "o", "s", "r", "rrcs", "nop", "x")
FIELDS = sorted({field.alias or name for kind in KINDS for name, field in model(kind).model_fields.items()})


def _of_values(
    samples: Callable[[], Sequence[Any]], write: Callable[[Any, Random], bytes]
) -> Callable[[Random], bytes]:
    def draw(random: Random) -> bytes:
        content = write(mutated_value(random.choice(samples()), random), random)
        return mutated_bytes(content, random) if random.random() < 0.15 else content

    return draw


def _of_any_fields(random: Random) -> bytes:
    """Return a network file of some kind with fields and values that may be of any."""
    fields = {name: any_value(random, FIELDS) for name in random.choices(FIELDS, k=random.randrange(9))}
    return as_toml({**fields, "schema": 1, "kind": random.choice(sorted(KINDS))})


def _of_programs(random: Random) -> bytes:
    """Return a program in XML with one attribute that may be of any."""
    if random.random() < 0.5:
        return _OF_XML(random)
    pieces = fused_ring(random.choice((2, 3))).split('"')
    pieces[random.randrange(len(pieces) // 2) * 2 + 1] = random.choice(ATTRIBUTES)
    return '"'.join(pieces).encode()


def _of_networks(random: Random) -> bytes:
    draw = random.choices((_OF_NETWORKS, _of_any_fields, _of_any_signs), (6, 3, 1))[0]
    return draw(random)


def _of_any_signs(random: Random) -> bytes:
    return "".join(random.choices("[]{}=\"'#.\n ab1_-ÄΩ\0", k=random.randrange(40))).encode()


def _of_texts(samples: Sequence[str]) -> Callable[[Random], bytes]:
    def draw(random: Random) -> bytes:
        content = random.choice(samples).encode()
        for _ in range(random.choice((1, 1, 2, 3))):
            content = mutated_bytes(content, random)
        return content

    return draw


def _in_a_file(content: bytes, suffix: str, read: Callable[[Path], Read]) -> Read:
    """Return what *read* finds in a file that holds *content*, in memory where there is such a place."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(content)
        return read(path)


@dataclass(frozen=True)
class Loader:
    """Something that reads files of one kind.

    Attributes:
        name: of the target.
        draw: returns a file, most of which are wrong somewhere.
        load: reads it; what it refuses it calls ``file``.
        reordered: returns a file that means the same.
        saved: returns the file that what was read is saved as, where something saves it.
        check: asserts what else holds of what was read.
    """

    name: str
    draw: Callable[[Random], bytes]
    load: Callable[[bytes], Any]
    reordered: Callable[[bytes], bytes] = bytes
    saved: Callable[[Any], bytes] | None = None
    check: Callable[[Any], object] = id

    def read(self, content: bytes) -> None:
        """Read a file rightly, or refuse it in one short line that names it."""
        try:
            found = self.load(content)
        except Exception as error:
            if exit_code_of(error) is not None:
                _is_said_in_our_words(str(error), most=2500 + len(content))
            raise
        same(self.load(self.reordered(content)), found, "in another order")
        if self.saved is not None:
            same(self.load(self.saved(found)), found, "saved")
        self.check(found)


def _is_said_in_our_words(message: str, most: int) -> None:
    assert re.match(r"(\S*/)?file(\.\w+|, line \d+)?: |MSCCL XML", message), message
    assert "\n" not in message or "deadlock" in message, message
    assert len(message) < most, message


def _keys_of_toml(content: bytes) -> bytes:
    return as_toml(shuffled_keys(tomllib.loads(text_of(content)), Random(0)))


def _keys_of_json(content: bytes) -> bytes:
    return json.dumps(shuffled_keys(parse_json(content, "own", UsageError), Random(0))).encode()


def _rows(content: bytes) -> bytes:
    value = json.loads(_keys_of_json(content))
    Random(0).shuffle(value["rows"])
    return json.dumps(value).encode()


def _attributes(content: bytes) -> bytes:
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError:  # of names with colons, which ours takes as they are
        return content
    for element in root.iter():
        element.attrib = dict(reversed(element.attrib.items()))
    return ElementTree.tostring(root)


def _simulates(network: Any) -> None:
    """Where the network is small, a collective on it is not below the floor."""
    ranks = network.fields.size or 2 * getattr(network.fields, "ranks_per_node", 1)
    if ranks <= MOST_RANKS:
        topology = network.topology(ranks)
        if topology.link_bandwidth.size <= 10 * MOST_RANKS:
            run = simulate("ring", nbytes=1000, topology=topology)
            assert run.seconds >= run.floor_seconds, run
            assert run.floor_seconds > 0 or ranks == 1 or run.seconds < 1e-9, run


def _reaches_its_peaks_at_most(device: Any) -> None:
    for dtype, rate in device.rates.items():
        assert 0 < rate <= device.peaks[dtype], device


def _saved(profile: Profile) -> bytes:
    def save(path: Path) -> bytes:
        profile.save(path)
        return path.read_bytes()

    return _in_a_file(b"", ".json", save)


def _takes_its_time(profile: Profile) -> None:
    """A step is no shorter than its computation."""
    bandwidth, latency = NETWORKS[len(profile.gradients) % len(NETWORKS)]
    topology = Topology.switch(num_ranks=2, bandwidth=bandwidth, latency=latency)
    step = simulate_step(profile, topology=topology)
    assert step.time_ps >= max(step.floor_ps, profile.compute_ps), step


def _choices(path: Path) -> list[str]:
    table = Table(path, 4)
    return [str(table.select("all_reduce", nbytes)) for nbytes in (0, 1, 1024, 4096, 2**30)]


def _rows_have_bounds(rows: list[MeasuredRow]) -> None:
    for row in rows:
        assert 0 < row.seconds < 1e7, row
        assert 0 <= row.nbytes < 2**63, row
        assert 1 <= row.num_nodes <= row.num_ranks <= 2**20, row
        assert row.num_ranks % row.num_nodes == 0, row


def _as_json(calibration: Calibration) -> bytes:
    return json.dumps(calibration.as_json()).encode()


def _systems_have_bounds(found: Any) -> None:
    for system in found.values():
        assert system.ranks % system.num_nodes == 0, system
        for rate in (system.hardware.intra_gbps_per_gpu, system.hardware.nic_gbps):
            assert rate is None or 0 <= rate < 1e9, system


@dataclass(frozen=True)
class Program:
    """A program in XML; two are the same if their steps are."""

    algorithm: Any = field(compare=False)
    steps: list[Any]


def _program(content: bytes) -> Program:
    algorithm = from_msccl_xml(content)
    world_size = next((ranks for ranks in range(1, 9) if _takes(algorithm, ranks)), 0)
    if world_size and estimate_work(algorithm, world_size) > MOST_WORK:
        world_size = 0
    return Program(algorithm, [list(algorithm.steps(rank, world_size)) for rank in range(world_size)])


def _takes(algorithm: Any, world_size: int) -> bool:
    try:
        algorithm.num_chunks(world_size)
        next(iter(algorithm.steps(0, world_size)), None)
    except CollectiveError:
        return False
    return True


def _is_proved(program: Program) -> None:
    if program.steps:
        prove(program.algorithm, len(program.steps))


def _systems() -> Sequence[Any]:
    content = json.loads((ROOT / "benchmarks/lab/published/data/systems.json").read_text())
    return [{name: fields} for name, fields in list(content.items())[:40]]


def _toml(value: Any, random: Random) -> bytes:
    if not isinstance(value, dict):
        return b"".join((b"schema = ", as_json(value, random)))
    return as_toml(value)


def _network(content: bytes) -> Any:
    return parse_network(text_of(content), "mine", "file.toml")


def _device(content: bytes) -> Any:
    return parse_device(text_of(content), "mine", "file.toml")


def _profile(content: bytes) -> Profile:
    return parse_json_document(content, "file.json", Profile, ProfileError, "a profile")


def _measured(content: bytes) -> list[MeasuredRow]:
    return _in_a_file(content, ".csv", lambda path: read_table(path, TableOptions("all_reduce", 8, 2)))


def _from_json(read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    return lambda content: _in_a_file(content, ".json", read)


_OF_NETWORKS = _of_values(lambda: _shipped("presets"), _toml)
_DEVICE = _of_values(lambda: _shipped("devices"), _toml)
_PROFILE = _of_values(lambda: [PROFILE], as_json)
_SYSTEMS = _of_values(_systems, as_json)
_TABLE = _of_values(lambda: [TABLE], as_json)
_CALIBRATION = _of_values(lambda: [CALIBRATION], as_json)
_OF_XML = _of_texts([fused_ring(3), fused_ring(2)])
LOADERS = (
    Loader("network", _of_networks, _network, _keys_of_toml, check=_simulates),
    Loader("device", _DEVICE, _device, _keys_of_toml, check=_reaches_its_peaks_at_most),
    Loader("profile", _PROFILE, _profile, _keys_of_json, _saved, _takes_its_time),
    Loader("measured_times", _TABLE, _from_json(_choices), _rows),
    Loader("measurements", _of_texts([CSV, LOG]), _measured, check=_rows_have_bounds),
    Loader("bench_document", _TABLE, _measured, check=_rows_have_bounds),
    Loader(
        "systems",
        _of_values(_systems, as_json),
        _from_json(read_systems),
        _keys_of_json,
        None,
        _systems_have_bounds,
    ),
    Loader("calibration", _CALIBRATION, _from_json(Calibration.read), _keys_of_json, _as_json),
    Loader("msccl", _of_programs, _program, _attributes, check=_is_proved),
)
TARGETS = tuple(Target(loader.name, loader.draw, loader.read, weight=6) for loader in LOADERS)
