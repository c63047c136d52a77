"""The table for NCCL's example tuner plugin, read as the plugin reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotSupportedError
from collectives.algorithms import ALGORITHMS
from collectives.formats.nccl_tuner import (
    COLUMNS,
    NCCL_ALGORITHMS,
    NCCL_COLLECTIVES,
    TunerTiming,
    to_tuner_csv,
)
from collectives.program.contracts import CONTRACTS

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


def test_a_range_reaches_from_the_first_size_won_to_before_the_next() -> None:
    table = to_tuner_csv(ROWS, 8)

    assert table.split("\n")[0] == f"# {COLUMNS}"
    assert settings_in(table) == [
        ["allreduce", "1024", "1048575", "tree", "simple", "-1", "-1", "8", "-1", "-1"],
        ["allreduce", "1048576", "1048576", "ring", "simple", "-1", "-1", "8", "-1", "-1"],
    ]
    assert len(COLUMNS.split(",")) == 10


def test_what_the_table_leaves_out_is_said_in_it() -> None:
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
def test_at_every_size_that_was_timed_nccl_gets_the_fastest_and_nothing_outside(
    times: list[tuple[tuple[str, str], int, int]],
) -> None:
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


def test_only_words_that_the_plugin_knows_are_written() -> None:
    rows = [TunerTiming(collective, name, 1024, 1.0) for collective, name in NCCL_ALGORITHMS]

    for protocol in WORDS[2]:
        for fields in settings_in(to_tuner_csv(rows, 4, protocol=protocol, channels=8, num_nodes=2)):
            assert all(field in words for field, words in zip((fields[0], *fields[3:5]), WORDS, strict=True))
            assert fields[5:] == ["8", "2", "4", "-1", "-1"]


def test_the_counterparts_are_algorithms_that_ship() -> None:
    shipped = {(own.collective, own.name) for own in ALGORITHMS}

    assert shipped >= NCCL_ALGORITHMS.keys()
    assert CONTRACTS.keys() >= NCCL_COLLECTIVES.keys()


def test_times_of_nothing_that_nccl_has_are_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"nothing that was timed is an algorithm of NCCL's; .* ring"):
        to_tuner_csv([TunerTiming("all_reduce", "swing", 8, 1.0)], 2)


def test_a_protocol_that_nccl_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="protocol must be one of simple, ll, ll128, got 'Simple'"):
        to_tuner_csv(ROWS, 2, protocol="Simple")
