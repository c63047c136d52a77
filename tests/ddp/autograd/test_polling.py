"""Polling of buckets in flight: as the bytes of gradients ask for, however many gradients these are."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from ddp import DistributedDataParallel
from ddp.autograd.driver import TorchDriver

FLOAT_BYTES, GROUP_BYTES = 4, 1024
ONE_BY_ONE = [{"gradient_as_bucket_view": True}, {"find_unused_parameters": True}]
"""Where gradients are told of one by one."""


@pytest.fixture(scope="module")
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class EachOnce(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(size) for size in sizes)

    def forward(self, x):
        return sum((weight * x).sum() for weight in self.weights)


@pytest.mark.usefixtures("alone")
@example([1] * 60, ONE_BY_ONE[0])
@example([256] * 20, ONE_BY_ONE[1])
@given(st.lists(st.integers(1, 512), min_size=1, max_size=20), st.sampled_from(ONE_BY_ONE))
def test_what_is_in_flight_is_polled_once_for_a_bucket_or_for_the_bytes_of_a_group_of_hooks(sizes, options):
    model = DistributedDataParallel(EachOnce(sizes), algorithm="ring", **options)
    num_bytes = FLOAT_BYTES * sum(sizes)

    for _ in range(3):
        with (
            mock.patch("ddp.autograd.ready_gradients.GROUP_BYTES", GROUP_BYTES),
            mock.patch.object(
                TorchDriver, "advance", autospec=True, side_effect=TorchDriver.advance
            ) as polled,
        ):
            model(torch.ones(1)).sum().backward()
        num_buckets = len(model.bucket_nbytes)
        assert polled.call_count <= num_buckets + num_bytes // GROUP_BYTES
        assert polled.call_count >= num_bytes // (GROUP_BYTES + FLOAT_BYTES * max(sizes))
