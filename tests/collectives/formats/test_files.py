"""Schedules and tables of NCCL's tuner in files, which are written as a whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import AlgorithmFileError, NotSupportedError, resolve_algorithm, verify
from collectives.algorithms import ALGORITHMS
from collectives.formats.nccl_tuner import (
    COLUMNS,
    NCCL_ALGORITHMS,
    NCCL_COLLECTIVES,
    TunerTiming,
    to_tuner_csv,
)
from collectives.formats.whole_file import whole_file, write_whole
from collectives.program.contracts import CONTRACTS

EXCHANGE: dict[str, Any] = {
    "schema": 1, "name": "exchange", "collective": "all_gather", "ranks": 2, "chunks": 2,
    "network": {"name": "pair", "digest": "0123456789abcdef"},
    "steps": [[[0, 1, 0, 0, 1, False], [1, 0, 1, 1, 1, False]]],
}  # fmt: skip


def written(folder: Path, **changes) -> str:
    path = folder / "mine.json"
    path.write_text(json.dumps({**EXCHANGE, **changes}))
    return str(path)


def test_a_schedule_is_an_algorithm(tmp_path):
    algorithm = resolve_algorithm(written(tmp_path))

    assert verify(algorithm, 2).num_messages == 2
    with pytest.raises(NotSupportedError, match="is for 2 ranks, got 3"):
        verify(algorithm, 3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": [[[0, 2, 0, 0, 1, False]]]}, "steps 1, 1: expected ranks from 0 to 1"),
        ({"steps": [[[0, 1, 0, 2, 1, False]]]}, "steps 1, 1: expected chunks below 2"),
        ({"steps": [[[0, 1, 0, 0, 1, 1]]]}, "boolean"), ({"collective": "all_love"}, "collective"),
        ({"chunks": 3}, "multiple of the 2 parts"), ({"root": 2}, "root"), ({"colour": 1}, "colour"),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(tmp_path, changes, said):
    with pytest.raises(AlgorithmFileError, match=said):
        resolve_algorithm(written(tmp_path, **changes))


WRITERS = """
import os, resource, sys
from pathlib import Path
from collectives.formats.whole_file import write_whole
from ddp.profiles import load_profile
from sim.trace import Trace
from testbed.output.figure import new_figure, save

trace = Trace()
for number in range(3000):
    trace.span(0, "compute", f"span {number}", number, number + 1)
figure, profile = new_figure(8, 8), load_profile("bert-base")
figure.add_subplot().plot(range(1000))
writers = {
    "a.txt": lambda path: write_whole(path, 70_000 * "x"),
    "a.png": lambda path: save(figure, path),
    "a.svg": lambda path: save(figure, path),
    "a.json": profile.save,
    "trace.json": trace.save,
}
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for name, write in writers.items():
    try:
        write(Path(name))
    except OSError as error:
        assert (error.filename, error.strerror) == (name, "File too large"), (name, error)
    else:
        sys.exit(f"{name} was written")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files there")
def test_a_full_disk_leaves_nothing_behind_and_the_error_names_the_file(tmp_path):
    for name in ("a.txt", "a.png"):
        (tmp_path / name).write_text("before")

    subprocess.run([sys.executable, "-c", WRITERS], cwd=tmp_path, check=True)

    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {"a.txt": "before", "a.png": "before"}


def test_what_is_interrupted_leaves_nothing_behind(tmp_path):
    def write_half():
        with whole_file(tmp_path / "a.txt") as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()

    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "other").write_text("of somebody")
    (tmp_path / "a.txt").symlink_to("other")

    write_whole(tmp_path / "a.txt", "ours")

    assert (tmp_path / "other").read_text() == "of somebody"
    assert (tmp_path / "a.txt").read_text() == "ours"


def test_a_device_is_written_itself():
    write_whole(os.devnull, "text")

    assert not Path(os.devnull).is_file()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "absent" / "a.txt"

    with pytest.raises(FileNotFoundError) as raised:
        write_whole(path, "text")

    assert raised.value.filename == str(path)


# What the parser of the example plugin knows; it takes every other word for one of these.
WORDS = (
    {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"},
    {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"},
    {"ll", "ll128", "simple"},
)


def settings_in(table: str) -> list[list[str]]:
    """Read the table as the plugin does: comments and empty lines are skipped, fields are split at commas."""
    assert all(len(line) < 255 for line in table.split("\n"))
    return [line.split(",") for line in table.split("\n") if line and not line.startswith("#")]


def choice(table: str, collective: str, size: int) -> str | None:
    """Return the algorithm of the first line that matches, as the plugin does."""
    for name, low, high, algorithm, *_ in settings_in(table):
        if name == collective and int(low) <= size <= int(high):
            return algorithm
    return None


TIMES = {
    "ring": {1024: 30.0, 4096: 32.0, 1 << 20: 90.0},
    "double_binary_tree": {1024: 20.0, 4096: 31.0, 1 << 20: 140.0},
    "swing:dims=2": {1024: 10.0, 4096: 40.0},
}

ROWS = [
    TunerTiming("all_reduce", name, size, time)
    for name, times in TIMES.items()
    for size, time in times.items()
]


def test_a_range_reaches_from_the_first_size_won_to_before_the_next():
    table = to_tuner_csv(ROWS, 8)

    assert table.split("\n")[0] == f"# {COLUMNS}"
    assert settings_in(table) == [
        ["allreduce", "1024", "1048575", "tree", "simple", "-1", "-1", "8", "-1", "-1"],
        ["allreduce", "1048576", "1048576", "ring", "simple", "-1", "-1", "8", "-1", "-1"],
    ]
    assert len(COLUMNS.split(",")) == 10


def test_what_the_table_leaves_out_is_said_in_it():
    table = to_tuner_csv([*ROWS, TunerTiming("all_to_all", "direct", 1024, 1.0)], 8)

    assert "# all_reduce: left out, because NCCL has no counterpart: swing.\n" in table
    assert "# all_reduce: swing was faster than what stands here at 1 of 3 sizes.\n" in table
    assert "# all_to_all is left out: the plugin knows allreduce, allgather," in table


@given(
    times=st.lists(
        st.tuples(
            st.sampled_from(sorted(NCCL_ALGORITHMS)), st.sampled_from([8, 64, 512, 4096]), st.integers(1, 9)
        ),
        min_size=1,
        unique_by=lambda row: row[:2],
    )
)
def test_at_every_size_that_was_timed_nccl_gets_the_fastest_and_nothing_outside(times):
    rows = [TunerTiming(collective, name, size, time) for (collective, name), size, time in times]

    table = to_tuner_csv(rows, 4)

    for row in rows:
        same = [
            other
            for other in rows
            if (other.collective, other.size_bytes) == (row.collective, row.size_bytes)
        ]
        best = min(other.time_us for other in same)
        fastest = {NCCL_ALGORITHMS[o.collective, o.algorithm] for o in same if o.time_us == best}
        assert choice(table, NCCL_COLLECTIVES[row.collective], row.size_bytes) in fastest
    for collective in NCCL_COLLECTIVES.values():
        assert choice(table, collective, 4) is None
        assert choice(table, collective, 5000) is None


def test_only_words_that_the_plugin_knows_are_written():
    rows = [TunerTiming(collective, name, 1024, 1.0) for collective, name in NCCL_ALGORITHMS]

    for protocol in WORDS[2]:
        for fields in settings_in(to_tuner_csv(rows, 4, protocol=protocol, channels=8)):
            assert all(field in words for field, words in zip((fields[0], *fields[3:5]), WORDS, strict=True))
            assert fields[5:] == ["8", "-1", "4", "-1", "-1"]


def test_the_counterparts_are_algorithms_that_ship():
    shipped = {(own.collective, own.name) for own in ALGORITHMS}

    assert shipped >= NCCL_ALGORITHMS.keys()
    assert CONTRACTS.keys() >= NCCL_COLLECTIVES.keys()


def test_what_nccl_has_not_is_refused():
    with pytest.raises(NotSupportedError, match=r"nothing that was timed is an algorithm of NCCL's; .* ring"):
        to_tuner_csv([TunerTiming("all_reduce", "swing", 8, 1.0)], 2)
    with pytest.raises(ValueError, match="protocol must be one of simple, ll, ll128, got 'Simple'"):
        to_tuner_csv(ROWS, 2, protocol="Simple")
