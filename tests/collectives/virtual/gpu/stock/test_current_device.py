"""The current device of each rank: what says cuda alone is on it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from sim.files.device_file import load_device


@pytest.mark.parametrize("fake", [False, True])
def test_what_says_cuda_alone_is_on_the_current_device(fake: bool) -> None:
    def devices(rank: int) -> set[torch.device]:
        torch.cuda.set_device(rank)
        made = torch.zeros(3).cuda(), torch.zeros(3).to("cuda"), torch.ones(2, device="cuda")
        return {tensor.device for tensor in (*made, nn.Linear(2, 2).cuda().weight, torch.tensor(1.0).cuda())}

    model = Roofline(replace(load_device("h100"), kind="gpu"))
    outcome = run(devices, 3, "dgx-h100", compute=model, fake=fake, fold=False)

    assert outcome.results == [{torch.device("cuda", rank)} for rank in range(3)]


def test_a_model_without_memory_takes_no_time_to_make() -> None:
    def built(rank: int) -> None:
        with torch.device("meta"):
            nn.Linear(1 << 14, 1 << 14)

    model = Roofline(replace(load_device("h100"), kind="gpu"))

    assert run(built, 1, "dgx-h100", compute=model, fake=True).times_ps == (0,)
