"""Spellings of counts, ranges and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import UsageError
from testbed.options.arguments import parse_rank_powers, parse_ranks, parse_sizes


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_a_range_holds_every_rank_or_its_powers_of_two_and_both_ends(low: int, length: int) -> None:
    high = low + length
    text = f"{low}-{high}"

    assert parse_ranks(text) == list(range(low, high + 1))
    powers = parse_rank_powers(text)
    assert (powers[0], powers[-1]) == (low, high)
    assert powers == [n for n in range(low, high + 1) if n in (low, high) or n & (n - 1) == 0]


def test_a_list_is_sorted_and_holds_each_once() -> None:
    assert parse_ranks("8,2-4,3") == [2, 3, 4, 8]


def test_a_range_of_sizes_grows_by_the_factor_up_to_its_end() -> None:
    assert parse_sizes("4K-64K", 4) == [4096, 16384, 65536]
    assert parse_sizes("1M,4K") == [2**20, 4096]
    assert parse_sizes("4K-9K") == [4096, 8192]


@pytest.mark.parametrize("text", ["", "0", "2-", "-2", "4-2", "x", "1-9999999999", "2;3"])
def test_ranks_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        parse_ranks(text)


@pytest.mark.parametrize(("text", "factor"), [("64K-4K", 2), ("0-4K", 2), ("4K-64K", 1)])
def test_ranges_of_sizes_that_never_end_are_refused(text: str, factor: int) -> None:
    with pytest.raises(UsageError):
        parse_sizes(text, factor)
