"""The payload check finds what is wrong, and rows mean what nccl-tests means."""

from __future__ import annotations

import pytest
import torch

from testbed.errors import UsageError
from testbed.measure import ITEM_SIZES, Sample, combine, count_of, row, sample_all_reduce


class Alone:
    """A communicator of one rank; *spoil* is what its all-reduce does to the tensor."""

    rank, world_size = 0, 1

    def __init__(self, spoil=lambda tensor: None) -> None:
        self.spoil = spoil

    def all_reduce(self, tensor: torch.Tensor) -> None:
        self.spoil(tensor)

    def barrier(self) -> None:
        pass


def sample(communicator: Alone, dtype: str = "float32") -> Sample:
    options = {"iterations": 3, "warmup": 1, "device": torch.device("cpu")}
    (only,) = sample_all_reduce(communicator, [10], dtype, **options)  # type: ignore[arg-type]
    return only


@pytest.mark.parametrize("dtype", ITEM_SIZES)
def test_a_right_payload_has_no_wrong_element(dtype: str) -> None:
    taken = sample(Alone(), dtype)

    assert (taken.count, taken.wrong, len(taken.seconds)) == (10, 0, 3)


def test_every_wrong_element_is_counted_in_both_checks() -> None:
    assert sample(Alone(lambda tensor: tensor[3:5].add_(1))).wrong == 4


def test_a_row_takes_the_median_call_of_the_slowest_rank_and_adds_up_what_is_wrong() -> None:
    fast, slow = Sample(1024, (1e-6, 1e-6, 9e-6), 1), Sample(1024, (2e-6, 3e-6, 1e-6), 2)

    (combined,) = combine([[fast], [slow]], "float32")

    assert (combined.time_us, combined.wrong) == (pytest.approx(3.0), 3)


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    measured = row(count=250_000_000, dtype="float32", world_size=4, seconds=0.5, wrong=0)

    assert (measured.size_bytes, measured.algbw_gbs, measured.busbw_gbs) == (10**9, 2.0, 3.0)


def test_a_size_below_one_element_is_refused() -> None:
    with pytest.raises(UsageError, match="3 B holds no element of float32"):
        count_of(3, "float32")
