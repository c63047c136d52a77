"""Folded runs without data, which are folded unless it is switched off."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from sim.files.device_file import load_device


@pytest.mark.costly
def test_unequal_shards_are_classes_before_anything_is_computed() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        model = nn.Sequential(nn.Linear(512, 20, device=device), nn.Linear(20, 512, device=device))
        fully_shard(model, mesh=init_device_mesh("cuda", (8,)))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.ones(4, 512, device=device)).sum().backward()
            optimizer.step()

    folded = run(work, 8, "dgx-h100", compute=Roofline(load_device("h100")), fake=True)
    unfolded = run(work, 8, "dgx-h100", compute=Roofline(load_device("h100")), fake=True, fold=False)

    assert folded.times_ps == unfolded.times_ps
    assert folded.report.folded == ("ranks 0, 1, 2, 3, 4, 5 as rank 0",)  # of 3 rows; then 2, then none
