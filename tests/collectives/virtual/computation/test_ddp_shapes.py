"""Comparison of parameters under a model of computation: the time and the words of torch's own."""

import pytest
import torch
import torch.nn.parallel.distributed as stock
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import Roofline
from collectives.virtual.computation import ddp_shapes
from sim.errors import RankError
from tests.collectives.virtual.clusters import in_group

C_PLUS_PLUS = stock._verify_param_shape_across_processes


@pytest.mark.parametrize(
    ("model", "device"),
    [
        (lambda rank: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), "h100"),
        (lambda rank: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), "laptop-cpu"),
        (lambda rank: nn.Linear(4, 4, bias=rank == 0), "h100"),
        (lambda rank: nn.Linear(4, 4 + rank // 2), "h100"),
    ],
    ids=["same", "same on a CPU", "other number", "other size"],
)
def test_the_comparison_takes_the_time_and_says_the_words_of_that_in_c_plus_plus(model, device, monkeypatch):
    def outcome():
        """Return the times of a run in which each rank trains its model, or what is said instead."""

        def work(rank):
            DistributedDataParallel(model(rank))(torch.ones(2, 4)).sum().backward()

        try:
            return in_group(work, 3, "nccl", compute=Roofline(device)).times_ps
        except RankError as error:
            return type(error.__cause__), str(error).partition("\n")[0]

    ours = outcome()
    monkeypatch.setattr(ddp_shapes, "_verify", C_PLUS_PLUS)

    assert ours == outcome()
    assert (ours[0] is RuntimeError) is not isinstance(model(0), nn.Sequential)
