"""The driver of a pass: what it asks of collectives and when, and the times that it logs."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import Parameter

from ddp import DistributedDataParallel
from ddp.autograd.driver import TorchDriver
from ddp.autograd.observation.iteration_times import IterationTimes
from ddp.autograd.unused import FindUnused
from tests.ddp.rank_threads import on_ranks


def test_what_the_graph_does_not_reach_is_surely_unused_unless_another_forward_pass_may_use_it():
    used, unused = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    readiness = FindUnused([used, unused])

    readiness.forward_ended([used.sum()])
    assert readiness.surely_unused == {1}

    readiness.forward_ended([unused.sum()])
    assert readiness.surely_unused == frozenset()


def collectives_of_a_pass(strategy: str) -> list[str]:
    """Return what our communicator starts and waits for in one pass with unused parameters."""

    def one(_: int) -> list[str]:
        options = {"algorithm": "ring", "strategy": strategy, "find_unused_parameters": True}
        model = DistributedDataParallel(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), **options)
        said: list[str] = []
        communicator = model._communicator
        all_reduce = communicator.all_reduce

        def noted(tensor: torch.Tensor, *arguments: object, **options: object):
            what = "users" if tensor.dtype is torch.int32 else "gradients"
            said.append(f"start {what}")
            work = all_reduce(tensor, *arguments, **options)
            wait = work.wait
            work.wait = lambda *limit: (said.append(f"await {what}"), wait(*limit))
            return work

        communicator.all_reduce = noted
        model._driver.forward_begins()
        loss = model.module[0](torch.ones(1, 2))
        model._driver.forward_ended([loss])
        loss.sum().backward()
        assert model.module[1].weight.grad is None
        return list(dict.fromkeys(said))

    (first, second) = on_ranks(one)
    assert first == second
    return first


USERS_BEHIND = ["start gradients", "start users", "await gradients", "await users"]
USERS_AFTER = ["start gradients", "await gradients", "start users", "await users"]


@pytest.mark.parametrize(
    ("strategy", "expected"), [("wait_free", USERS_BEHIND), ("after_backward", USERS_AFTER)]
)
def test_who_has_used_what_is_added_up_behind_the_last_bucket_where_all_start_as_soon_as_they_may(
    strategy, expected
):
    assert collectives_of_a_pass(strategy) == expected


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


def test_times_are_those_of_the_latest_iteration_that_was_looked_at_and_over_at_a_forward_pass():
    clock = iter(range(0, 10**9, 1000))
    times = IterationTimes(lambda: next(clock))
    times.rate = 4
    iterations, lengths = [], []
    for _ in range(14):
        times.begin()
        iterations.append(times.rows()["iteration"])
        for stamp in ("backward_began", "first_launch", "last_gradient", "last_reduced"):
            times.last(stamp)
        rows = times.rows()
        lengths.append((rows["iteration"], rows["backward_comm_time"], rows["avg_backward_comm_time"]))
    assert iterations == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 12, 12]
    expected = [(number, 2, 2) for number in iterations]
    assert lengths == [(0, 0, 0), *expected[1:]]
