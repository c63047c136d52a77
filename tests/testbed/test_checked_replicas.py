"""Tests that check replicas (the same parameters, the same bits) and what ranks do on streams of GPUs."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from testbed.testing import RacesError, ReplicasPartError, VirtualCluster, on_ranks


def train(rank, averages=True):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layer = nn.Linear(2, 2)
    model = DistributedDataParallel(layer) if averages else layer
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.full((1, 2), float(rank))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@on_ranks(3, check="replicas")
def test_replicas_that_stay_alike_pass(rank):
    train(rank)


@pytest.mark.parametrize(
    ("work", "said"), [(train, "weight"), (lambda rank, _: None, "nothing was compared")]
)
def test_replicas_that_part_and_a_check_of_nothing_fail(work, said):
    with pytest.raises(ReplicasPartError, match=said):
        VirtualCluster(3, check="replicas").run(work, False)


def reads_early(rank):
    dist.init_process_group("nccl")
    total = torch.ones(64, device=torch.device("cuda", rank))
    work = dist.all_reduce(total, async_op=True)
    total.mul(2)
    work.wait()


def test_a_race_on_the_streams_of_a_gpu_fails_a_test_unless_nothing_is_checked():
    with pytest.raises(RacesError, match=r"mul reads .* all_reduce of test_checked"):
        VirtualCluster(2, "dgx-h100", compute="h100").run(reads_early)

    VirtualCluster(2, "dgx-h100", compute="h100", check="none").run(reads_early)
