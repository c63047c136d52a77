"""Our own DistributedDataParallel on ranks with a GPU."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from collectives.virtual import run
from ddp import DistributedDataParallel
from sim.topology import Topology
from tests.collectives.virtual.group_calls.gpus import on_gpus

NUM_RANKS = 2


def train(rank, device="cpu"):
    """Train three steps; return the model's parameters and buffers."""
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    layers = nn.Linear(64, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 10)
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(10 * step + rank)
        model(torch.randn(8, 64).to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [tensor.detach().cpu() for tensor in model.state_dict().values()]


def on_cuda(rank):
    return train(rank, f"cuda:{rank}")


def test_it_trains_on_gpus_what_it_trains_without():
    topology = Topology.switch(num_ranks=NUM_RANKS, bandwidth="25GB/s", latency="2us")

    without = run(train, NUM_RANKS, topology).results
    with_gpus = on_gpus(train, NUM_RANKS, network=topology).results

    for one, other in zip(without, with_gpus, strict=True):
        assert all(map(torch.equal, one, other))


def test_it_takes_the_same_time_without_data():
    def work(rank):
        on_cuda(rank)

    assert on_gpus(work, NUM_RANKS).times_ps == on_gpus(work, NUM_RANKS, fake=True, fold=False).times_ps
