"""Comparison of parameters under a model of computation: the time and the words of torch's own."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as stock
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import Roofline, VirtualRun, run
from collectives.virtual.computation import ddp_shapes
from sim import Topology
from sim.errors import RankError

NETWORK = Topology.switch(num_ranks=3, bandwidth="100Gbps", latency="2us")
C_PLUS_PLUS = stock._verify_param_shape_across_processes


def run_on(model: Callable[[int], nn.Module], device: str) -> VirtualRun:
    """Return a run in which each rank builds a model, and trains it for a step."""

    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        DistributedDataParallel(model(rank))(torch.ones(2, 4)).sum().backward()

    return run(work, network=NETWORK, compute=Roofline(device))


@pytest.mark.parametrize("device", ["h100", "laptop-cpu"])
def test_the_comparison_takes_the_time_that_it_takes_in_c_plus_plus(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(rank: int) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))

    ours = run_on(model, device)
    monkeypatch.setattr(ddp_shapes, "_verify", C_PLUS_PLUS)
    torchs = run_on(model, device)

    assert ours.times_ps == torchs.times_ps


@pytest.mark.parametrize(
    "model",
    [
        lambda rank: nn.Linear(4, 4, bias=rank == 0),
        lambda rank: nn.Linear(4, 4 + rank // 2),
    ],
    ids=["number", "size"],
)
def test_models_that_differ_are_refused_in_the_words_of_torch(
    model: Callable[[int], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RankError) as ours:
        run_on(model, "h100")
    monkeypatch.setattr(ddp_shapes, "_verify", C_PLUS_PLUS)
    with pytest.raises(RankError) as torchs:
        run_on(model, "h100")

    assert isinstance(ours.value.__cause__, RuntimeError)
    assert str(ours.value).partition("\n")[0] == str(torchs.value).partition("\n")[0]
