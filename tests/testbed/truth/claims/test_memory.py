"""Memory of sharded training: the figures of the paper, and what FSDP gathers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.truth.claims.memory import fsdp_bytes, zero_bytes

STAGES = st.integers(0, 3)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_stages_of_zero_leave_what_the_paper_says(stage: int, gigabytes: float) -> None:
    """Figure 1: 7.5 billion parameters on 64 GPUs."""
    assert zero_bytes(7_500_000_000, 64, stage) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@given(st.integers(1, 10**10), STAGES)
def test_one_rank_has_everything(parameters: int, stage: int) -> None:
    assert zero_bytes(parameters, 1, stage) == 16 * parameters


@given(st.integers(1, 10**6), st.integers(2, 1024), STAGES)
def test_more_ranks_never_take_more_memory_each(parameters: int, ranks: int, stage: int) -> None:
    assert zero_bytes(parameters, ranks, stage) <= zero_bytes(parameters, ranks - 1, stage)


def test_fsdp_keeps_two_units_and_the_rest_gathered() -> None:
    sharded = 16 * 70 / 2

    assert fsdp_bytes([10, 20, 30], 10, 2) == sharded + (2 * (20 + 30 + 10) + 2 * 30) / 2


def test_a_stage_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="stage must be 0 to 3, got 4"):
        zero_bytes(10, 2, 4)
