"""Buckets are those of torch, the oracle."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from ddp.errors import BucketingError
from ddp.reduction.bucketing import MIB, assign_buckets, bucket_limits

DTYPES = (torch.float32, torch.float64, torch.float16)


def ours(tensors: list[torch.Tensor], limits: list[int], order: list[int] | None = None) -> list[list[int]]:
    nbytes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    return assign_buckets(nbytes, [(tensor.dtype, tensor.device) for tensor in tensors], limits, order)


def torchs(tensors: list[torch.Tensor], limits: list[int], order: list[int] | None = None):
    visited = tensors if order is None else [tensors[index] for index in order]
    no_sparse = [False] * len(tensors)
    return dist._compute_bucket_assignment_by_size(visited, limits, no_sparse, order or [])[0]


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=40),
    num_dtypes=st.integers(1, 3),
    limits=st.lists(st.integers(1, 400), min_size=1, max_size=3),
    data=st.data(),
)
def test_buckets_are_those_of_torch_but_for_the_order_of_the_last_one_of_each_dtype(
    sizes, num_dtypes, limits, data
):
    dtypes = st.sampled_from(DTYPES[:num_dtypes])
    tensors = [torch.empty(size, dtype=data.draw(dtypes)) for size in sizes]
    order = data.draw(st.none() | st.permutations(range(len(sizes))))

    buckets, expected = ours(tensors, limits, order), torchs(tensors, limits, order)

    present = len({tensor.dtype for tensor in tensors})
    in_order = len(buckets) - (0 if order is None or present == 1 else min(present, len(buckets)))
    assert buckets[:in_order] == expected[:in_order]
    assert sorted(buckets) == sorted(expected)


@pytest.mark.parametrize(
    ("caps", "mebibytes"),
    [
        ((None,), (1, 25)), ((10,), (10,)), ((0.5,), (0.5,)), ((10, [4, 0.5, 64]), (4, 0.5, 64)),
        ((10, []), (10,)),
    ],
)  # fmt: skip
def test_the_first_bucket_is_small_only_by_default_and_a_list_of_caps_wins_over_the_one_cap(caps, mebibytes):
    assert bucket_limits(*caps) == tuple(int(cap * MIB) for cap in mebibytes)


@pytest.mark.parametrize("cap", [0, -1, float("nan"), float("inf"), 1e-9])
def test_a_cap_that_is_not_a_positive_number_is_refused(cap):
    with pytest.raises(BucketingError, match="bucket_cap_mb must be a positive number"):
        bucket_limits(cap)
    with pytest.raises(BucketingError, match="bucket_cap_mb_list must be a positive number"):
        bucket_limits(None, [1, cap])


@pytest.mark.parametrize(
    ("nbytes", "keys", "limits", "order", "message"),
    [
        ([4], [], [1], None, "one key per parameter"), ([4], ["f"], [], None, "at least one"),
        ([4], ["f"], [0], None, "positive numbers"), ([-4], ["f"], [1], None, "cannot have -4 bytes"),
        ([4, 4], ["f", "f"], [1], [0, 0], "each of the 2 parameters once"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_together_are_refused(nbytes, keys, limits, order, message):
    with pytest.raises(BucketingError, match=message):
        assign_buckets(nbytes, keys, limits, order)
