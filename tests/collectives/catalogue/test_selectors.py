from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import AlgorithmFileError, NotSupportedError, UnknownAlgorithmError
from collectives.catalogue.selectors import Auto, Table, parse_auto

TIMES = {"native": {1024: 10.0, 4096: 20.0, 65536: 300.0}, "ring": {1024: 90.0, 4096: 95.0, 65536: 200.0}}


def write(path: Path, times: Any = TIMES, **fields: Any) -> Path:
    rows = [
        {"collective": "all_reduce", "algorithm": name, "size_bytes": size, "time_us": time}
        for name, by_size in times.items()
        for size, time in by_size.items()
    ]
    path.write_text(json.dumps({"ranks": 4, "transport": "gloo", "rows": rows} | fields))
    return path


def name_of(selected: Any) -> str:
    return "native" if selected is None else selected.name


@pytest.mark.parametrize(
    ("nbytes", "fastest"),
    [(0, "native"), (1, "native"), (1024, "native"), (4096, "native"), (65536, "ring"), (2**30, "ring")],
)
def test_a_table_says_what_was_fastest(tmp_path: Path, nbytes: int, fastest: str) -> None:
    table = Table(write(tmp_path / "table.json"), 4)

    assert name_of(table.select("all_reduce", nbytes)) == fastest


@given(nbytes=st.integers(4096, 65536))
def test_between_two_sizes_times_lie_on_a_line_in_logarithms(
    tmp_path_factory: pytest.TempPathFactory, nbytes: int
) -> None:
    table = Table(write(tmp_path_factory.mktemp("table") / "table.json"), 4)
    share = math.log(nbytes / 4096) / math.log(16)
    native, ring = 20 * 15**share, 95 * (200 / 95) ** share

    assert name_of(table.select("all_reduce", nbytes)) == ("native" if native <= ring else "ring")


def test_where_there_is_no_native_the_best_of_ours_is_taken(tmp_path: Path) -> None:
    table = Table(write(tmp_path / "table.json"), 4).without_native()

    assert name_of(table.select("all_reduce", 1024)) == "ring"


def test_a_collective_that_was_not_measured_runs_the_default(tmp_path: Path) -> None:
    table = Table(write(tmp_path / "table.json"), 4)

    assert name_of(table.select("broadcast", 1024)) == "tree"


def test_a_table_of_another_group_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "table.json")

    with pytest.raises(
        NotSupportedError, match="measured with 4 ranks, and this group has 8; measure it with"
    ):
        Table(path, 8)
    with pytest.raises(NotSupportedError, match="measured over gloo, and this group is over nccl"):
        Table(path, 4, transport="nccl")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not a JSON file"),
        ("[]", "no table of measurements"),
        ('{"ranks": 4, "transport": "gloo"}', "no table of measurements .KeyError: 'rows'"),
        ('{"ranks": 4, "transport": "gloo", "rows": [{"algorithm": "ring"}]}', "KeyError: 'time_us'"),
        ('{"ranks": 4, "transport": "gloo", "rows": []}', "ValueError: it has no rows"),
    ],
)
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)

    with pytest.raises(AlgorithmFileError, match=f"table.json: .*{complaint}"):
        Table(path, 4).select("all_reduce", 8)


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlgorithmFileError, match="cannot read this table: No such file"):
        Table(tmp_path / "none.json", 4)


def test_auto_takes_a_table_or_a_reduction_bandwidth() -> None:
    assert parse_auto("ring") is None
    assert parse_auto({"all_gather": "auto"}) is None
    assert parse_auto("auto") == Auto()
    assert parse_auto("auto:table=a/b.json") == Auto(table=Path("a/b.json"))
    assert parse_auto("auto:reduction_bandwidth=50GB/s") == Auto(reduction_bandwidth="50GB/s")
    with pytest.raises(UnknownAlgorithmError, match="expected auto, auto:table=FILE"):
        parse_auto("auto:speed=1")
