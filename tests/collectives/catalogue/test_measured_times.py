"""Tables of measured times choose by size, whatever the order of their rows, and name what ships."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collectives import AlgorithmFileError, NotSupportedError, resolve_algorithm, verify
from collectives.catalogue.admission import is_shipped
from collectives.catalogue.measured_times import Table, schedules_of
from collectives.formats.schedule_file import NetworkOfSchedule, Schedule

TIMES = {"native": {1024: 10.0, 4096: 20.0, 65536: 300.0}, "ring": {1024: 90.0, 4096: 95.0, 65536: 200.0}}

NETWORK = NetworkOfSchedule(name="four", digest="0" * 16)


def write(path: Path, times=TIMES, **fields) -> Path:
    rows = [
        {"collective": "all_reduce", "algorithm": name, "size_bytes": size, "time_us": time}
        for name, by_size in times.items()
        for size, time in by_size.items()
    ]
    path.write_text(json.dumps({"ranks": 4, "transport": "gloo", "rows": rows} | fields))
    return path


def name_of(selected) -> str:
    return "native" if selected is None else selected.name


@given(nbytes=st.integers(0, 2**20))
@example(nbytes=0)
@example(nbytes=4096)
@example(nbytes=65536)
@example(nbytes=2**30)
def test_a_table_says_what_was_fastest_between_sizes_by_a_line_in_logarithms(tmp_path_factory, nbytes):
    table = Table(write(tmp_path_factory.mktemp("table") / "table.json"), 4)
    share = math.log(min(max(nbytes, 4096), 65536) / 4096) / math.log(16)
    native, ring = 20 * 15**share, 95 * (200 / 95) ** share

    assert name_of(table.select("all_reduce", nbytes)) == ("native" if native <= ring else "ring")
    assert name_of(table.without_native().select("all_reduce", nbytes)) == "ring"
    assert name_of(table.select("broadcast", nbytes)) == "tree"  # which was not measured: the default


def test_a_table_of_another_group_is_refused(tmp_path):
    path = write(tmp_path / "table.json")

    with pytest.raises(
        NotSupportedError, match="measured with 4 ranks, and this group has 8; measure it with"
    ):
        Table(path, 8)
    with pytest.raises(NotSupportedError, match="measured over gloo, and this group is over nccl"):
        Table(path, 4, transport="nccl")


def test_a_table_chooses_a_schedule_that_lies_beside_it(tmp_path):
    ring = resolve_algorithm("ring")
    Schedule.of(ring, 4, NETWORK).save(tmp_path / "mine.json")
    table = Table(write(tmp_path / "table.json", {"mine.json": {1024: 1.0}, "tree": {1024: 2.0, 8: 0.5}}), 4)

    chosen = table.select("all_reduce", 1024)

    assert chosen is not None
    assert not is_shipped(chosen)
    assert verify(chosen, 4).num_messages == verify(ring, 4).num_messages
    assert name_of(table.select("all_reduce", 8)) == "tree"
    assert len(schedules_of(table.path)) == 1


def table_of(*changes: dict[str, Any]) -> str:
    """Return a table with a row for each of *changes*."""
    row = {"collective": "all_reduce", "algorithm": "ring", "size_bytes": 1024, "time_us": 1.0}
    return json.dumps({"ranks": 4, "transport": "gloo", "rows": [row | changed for changed in changes]})


NAMES_OF_FILES = (
    "evil.py:f", "evil.xml", "hierarchical:intra=evil.py:f", "evil.xml:channels=2", "evil.py:f.json",
    "../evil.json", "/evil.json", "evil.json:channels=2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read this table: No such file"),
        ("{", "not a JSON file"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected a table of measured times"),
        ('{"ranks": 4, "transport": "gloo"}', "rows: this field is missing"),
        ('{"ranks": 1e400, "transport": "gloo", "rows": []}', "ranks: .*got inf"),
        ('{"ranks": 4, "transport": "mpi", "rows": []}', "transport: .*got 'mpi'"),
        ('{"ranks": 4, "transport": "gloo", "rows": [{"algorithm": "ring"}]}', "rows 1, time_us: this field"),
        ('{"ranks": 4, "transport": "gloo", "rows": []}', "rows: .*at least 1 item"),
        ('{"ranks": 4, "ranks": 8, "transport": "gloo", "rows": []}', "the key 'ranks' stands twice"),
        (table_of({"time_us": -5.0}), "rows 1, time_us: .*greater than or equal to 0, got -5.0"),
        (table_of({"time_us": 1e300}), "rows 1, time_us: .*less than or equal to"),
        (table_of({"time_us": math.nan}), "expected finite numbers, got NaN"),
        (table_of({"size_bytes": -1}), "rows 1, size_bytes: .*greater than or equal to 0"),
        (table_of({"size_bytes": 10**30}), "rows 1, size_bytes: "),
        (table_of({"size_bytes": 1.5}), "rows 1, size_bytes: .*valid integer"),
        (table_of({"algorithm": None}), "rows 1, algorithm: .*valid string, got None"),
        (table_of({"algorithm": "ring:channels=99"}), "rows 1: ring: channels must be from 1 to 64"),
        (
            table_of({"algorithm": "rign"}),
            "rows 1: unknown algorithm 'rign' for all_reduce; did you mean 'ring'",
        ),
        (table_of({"algorithm": "auto"}), "rows: expected algorithms, got choices between them alone"),
        (table_of({"algorithm": "connect"}), "rows: expected algorithms, got choices between them alone"),
        (table_of({"collective": "all_reduse"}), "rows 1: unknown collective"),
        (table_of({"algorithm": "native", "collective": "all_reduse"}), "rows 1: unknown collective"),
        (table_of({}, {"time_us": 2.0}), "rows 2: 'ring' of 1024 bytes is there twice"),
        (table_of({"algorithm": "gather.json"}), r"rows 1: gather\.json is for all_gather, not"),
        *((table_of({"algorithm": name}), "a table is data and runs no code") for name in NAMES_OF_FILES),
    ],
)
def test_a_file_that_is_no_table_is_refused_by_name_and_runs_nothing(tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("raise SystemExit('a table has run code')")
    Schedule.of(resolve_algorithm("ring", "all_gather"), 4, NETWORK).save(tmp_path / "gather.json")
    if text is not None:
        Path("table.json").write_text(text)

    with pytest.raises(AlgorithmFileError, match=f"table.json: .*{said}"):
        Table(tmp_path / "table.json", 4)
