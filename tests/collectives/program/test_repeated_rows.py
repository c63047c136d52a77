"""Rows that repeat: what is said of them is what each row says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import resolve_algorithm
from collectives.algorithms import ALGORITHMS
from collectives.errors import NotExactError
from collectives.program.channels import in_channels
from collectives.program.chunking import Chunking
from collectives.program.repeated_rows import kept_rows, repeated_rows
from collectives.program.rows import of_each, patterned_rows


@given(
    shipped=st.sampled_from(ALGORITHMS),
    channels=st.integers(1, 3),
    num_ranks=st.integers(1, 10),
    count=st.integers(0, 60),
)
def test_rows_of_one_kind_have_the_messages_of_one_and_their_sizes(
    shipped: Any, channels: int, num_ranks: int, count: int
) -> None:
    algorithm = in_channels(shipped, channels).with_parameters(ranks_per_node=2)
    chunking = Chunking.of(algorithm, num_ranks, count, 4)
    try:
        rows = list(patterned_rows(algorithm, num_ranks))
        known = repeated_rows(algorithm, num_ranks)
    except NotExactError:
        return
    if known is None:
        return

    assert sum(kind.count for kind in known) == len(rows)
    of_rows = iter(rows)
    for kind in known:
        for _ in range(kind.count):
            row, pattern = next(of_rows)
            assert np.array_equal(pattern.source, kind.pattern.source)
            assert np.array_equal(pattern.destination, kind.pattern.destination)
            if kind.has_same_sizes(chunking):
                sizes = [
                    of_each(own.nbytes(one, chunking), len(own.source)).tolist()
                    for one, own in [(row, pattern), (kind.row, kind.pattern)]
                ]
                assert sizes[0] == sizes[1]


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_a_ring_on_channels_is_one_kind_of_row_however_its_parts_divide(collective: str) -> None:
    algorithm = in_channels(resolve_algorithm("ring", collective), 8).with_parameters(ranks_per_node=8)

    (kind,) = repeated_rows(algorithm, 64) or ()

    assert kind.count == 63
    assert kind.has_same_sizes(Chunking.of(algorithm, 64, 64 * 1001, 2))


def test_all_rows_of_a_small_program_are_kept_and_those_of_a_large_one_come_anew() -> None:
    ring = resolve_algorithm("ring", "all_gather")

    assert kept_rows(ring, 8) is kept_rows(ring, 8)
    assert str(list(kept_rows(ring, 8))[3][0]) == str(list(patterned_rows(ring, 8))[3][0])
    assert kept_rows(ring, 2048) is not kept_rows(ring, 2048)
