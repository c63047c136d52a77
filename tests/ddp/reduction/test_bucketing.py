"""Buckets are those of torch, the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from ddp.errors import BucketingError
from ddp.reduction.bucketing import MIB, assign_buckets, bucket_limits

DTYPES = (torch.float32, torch.float64, torch.float16)


@st.composite
def parameters(draw: st.DrawFn, num_dtypes: int) -> list[torch.Tensor]:
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=40))
    return [torch.empty(size, dtype=draw(st.sampled_from(DTYPES[:num_dtypes]))) for size in sizes]


LIMITS = st.lists(st.integers(1, 400), min_size=1, max_size=3)


def ours(tensors: list[torch.Tensor], limits: list[int], order: list[int] | None = None) -> list[list[int]]:
    nbytes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    return assign_buckets(nbytes, [(tensor.dtype, tensor.device) for tensor in tensors], limits, order)


def torchs(tensors: list[torch.Tensor], limits: list[int], order: list[int] | None = None) -> Any:
    visited = tensors if order is None else [tensors[index] for index in order]
    no_sparse = [False] * len(tensors)
    return dist._compute_bucket_assignment_by_size(visited, limits, no_sparse, order or [])[0]


@given(parameters(num_dtypes=3), LIMITS)
def test_buckets_in_definition_order_are_those_of_torch(
    tensors: list[torch.Tensor], limits: list[int]
) -> None:
    assert ours(tensors, limits) == torchs(tensors, limits)


@given(parameters(num_dtypes=1), LIMITS, st.randoms(use_true_random=False))
def test_buckets_in_ready_order_are_those_of_torch(
    tensors: list[torch.Tensor], limits: list[int], random: Any
) -> None:
    order = list(range(len(tensors)))
    random.shuffle(order)

    assert ours(tensors, limits, order) == torchs(tensors, limits, order)


@given(parameters(num_dtypes=3), LIMITS, st.randoms(use_true_random=False))
def test_buckets_of_several_dtypes_differ_from_torchs_in_the_order_of_the_last_ones_at_most(
    tensors: list[torch.Tensor], limits: list[int], random: Any
) -> None:
    order = list(range(len(tensors)))
    random.shuffle(order)

    buckets, expected = ours(tensors, limits, order), torchs(tensors, limits, order)

    num_left_over = min(len({tensor.dtype for tensor in tensors}), len(buckets))
    assert buckets[:-num_left_over] == expected[:-num_left_over]
    assert sorted(buckets) == sorted(expected)


@given(parameters(num_dtypes=3), LIMITS)
def test_every_parameter_is_in_one_bucket_and_every_bucket_of_one_dtype(
    tensors: list[torch.Tensor], limits: list[int]
) -> None:
    buckets = ours(tensors, limits)

    assert sorted(index for bucket in buckets for index in bucket) == list(range(len(tensors)))
    assert all(len({tensors[index].dtype for index in bucket}) == 1 for bucket in buckets)


def test_the_first_bucket_is_small_only_by_default() -> None:
    assert bucket_limits(None) == (MIB, 25 * MIB)
    assert bucket_limits(10) == (10 * MIB,)
    assert bucket_limits(0.5) == (MIB // 2,)


def test_a_list_of_caps_wins_over_the_one_cap() -> None:
    assert bucket_limits(10, [4, 0.5, 64]) == (4 * MIB, MIB // 2, 64 * MIB)
    assert bucket_limits(10, []) == (10 * MIB,)


@pytest.mark.parametrize("cap", [0, -1, float("nan"), float("inf"), 1e-9])
def test_a_cap_that_is_not_a_positive_number_is_refused(cap: float) -> None:
    with pytest.raises(BucketingError, match="bucket_cap_mb must be a positive number"):
        bucket_limits(cap)
    with pytest.raises(BucketingError, match="bucket_cap_mb_list must be a positive number"):
        bucket_limits(None, [1, cap])


@pytest.mark.parametrize(
    ("nbytes", "keys", "limits", "order", "message"),
    [
        ([4], [], [1], None, "one key per parameter"),
        ([4], ["f"], [], None, "at least one"),
        ([4], ["f"], [0], None, "positive numbers"),
        ([-4], ["f"], [1], None, "cannot have -4 bytes"),
        ([4, 4], ["f", "f"], [1], [0, 0], "each of the 2 parameters once"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(
    nbytes: list[int], keys: list[str], limits: list[int], order: list[int] | None, message: str
) -> None:
    with pytest.raises(BucketingError, match=message):
        assign_buckets(nbytes, keys, limits, order)
