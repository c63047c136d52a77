"""Files of other tools, given where a file of ours was expected: each error says what they are."""

from pathlib import Path

import pytest

import testbed
from testbed.options.values import KINDS, foreign_kind

ROOT = Path(__file__).resolve().parents[3]
HEADS = {
    "an MSCCL program (XML)": b'<algo name="ring" nchannels="2" nchunksperloop="8">',
    "an NCCL topology (XML, NCCL_TOPO_DUMP_FILE)": b'<system version="1">\n  <cpu numaid="0" arch="x86_64">',
    "an NCCL graph (XML, NCCL_GRAPH_DUMP_FILE)": b'<graphs version="1">\n  <graph id="0" pattern="4">',
    "an MSCCL++ plan (JSON)": b'{"name": "allreduce", "gpus": [{"id": 0, "threadblocks": []}]}',
    "a Kineto trace (torch.profiler)": b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}',
    "a Chrome trace": b'{"traceEvents": []}',
    "a flight-recorder dump of torch (pickle)": b"\x80\x04\x95}\x94(\x8c\x07version\x94\x8c\tpg_config\x94",
    "a flight-recorder dump of torch (JSON)": b'{"version": "2.4", "pg_config": {}, "entries": []}',
    "a Chakra execution trace (protobuf)": b"\x07\n\x050.0.4\x00",
    "a PyTorch execution trace (JSON)": b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}',
    "an ASTRA-sim network (YAML)": b"topology: [ Ring, Switch ]\nnpus_count: [ 8, 4 ]\n",
    "an ASTRA-sim system (JSON)": b'{"scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"]}',
    "an ns-3 topology": b"6 2 5\n4 5\n0 4 400Gbps 0.0005ms 0\n",
    "a matrix of nvidia-smi topo -m": b"\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\n",
    "a report of the OSU micro-benchmarks": b"# OSU MPI-CUDA Allreduce Latency Test v7.3\n1024 12.3\n",
    "a report of perftest (ib_write_bw)": b" #bytes     #iterations    BW peak[Gb/sec]\n 65536 5000 392.1\n",
    "an SQLite database (nsys export)": b"SQLite format 3\x00",
    "a file compressed by gzip": b"\x1f\x8b\x08\x00",
    "a log of nccl-tests": b"#   size   count  type   redop  root  time\n 8 2 float sum -1 1.0\n",
}  # fmt: skip
COMMANDS = {
    "a network": (lambda file: testbed.network(file), ".toml"),
    "a question": (lambda file: testbed.plan(file), ".toml"),
    "a profile": (lambda file: testbed.scale(profile=file, network="ethernet-25g", ranks="2"), ".json"),
    "an algorithm": (lambda file: testbed.verify(file), ".xml"),
    "a schedule": (lambda file: testbed.verify(file), ".json"),
    "measured times": (lambda file: testbed.calibrate(table_file=file), ".csv"),
    "a result": (lambda file: testbed.compare(file, file), ".json"),
}
READ_HERE = {
    ("an MSCCL program (XML)", "an algorithm"),
    ("an MSCCL program (XML)", "a schedule"),
    ("a log of nccl-tests", "measured times"),
}


def test_each_kind_has_a_file_that_begins_so():
    assert [kind.name for kind in KINDS] == list(HEADS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", HEADS)
def test_an_error_says_what_the_file_is(tmp_path, kind, command):
    call, suffix = COMMANDS[command]
    file = tmp_path / f"given{suffix}"
    file.write_bytes(HEADS[kind])

    with pytest.raises(Exception) as error:  # noqa: PT011 - each of its own kind
        call(str(file))

    notes = getattr(error.value, "__notes__", [])
    advised = any(note.startswith(f"{file} looks like {kind}: ") for note in notes)
    assert advised != ((kind, command) in READ_HERE), error.value


def test_no_file_of_ours_is_foreign():
    ours = [*ROOT.glob("sim/*/*.toml"), *ROOT.glob("examples/*.toml"), *ROOT.glob("ddp/profiles/*.json")]

    assert ours
    assert [file for file in ours if foreign_kind(str(file))] == []
