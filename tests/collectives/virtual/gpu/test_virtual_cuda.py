"""Virtual CUDA devices: a training step on one rank, with data and without."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

from collectives.errors import NotSupportedError
from collectives.virtual import VirtualRun, run
from collectives.virtual.computation import Roofline
from sim.files.device_file import load_device

H100 = dataclasses.replace(load_device("h100"), kind="gpu")


def on_gpu(fn: object, fake: bool) -> VirtualRun:
    return run(fn, 1, "dgx-h100", compute=Roofline(H100), fake=fake)  # type: ignore[arg-type]


def train(rank: int) -> list[float]:
    """Train a layer with attention behind it for three steps on a CUDA device."""
    torch.manual_seed(0)
    model = nn.Linear(64, 64).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(32, 64).cuda()
    losses = []
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            hidden = model(inputs).view(4, 8, 4, 16).transpose(1, 2)
        attended = nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
        loss = attended.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_without_data_a_run_takes_the_time_of_one_with_data() -> None:
    with_data, without = on_gpu(train, fake=False), on_gpu(train, fake=True)

    assert with_data.times_ps == without.times_ps
    assert all(math.isnan(loss) for loss in without.results[0])


def test_with_data_values_are_those_of_the_cpu() -> None:
    on_cpu = run(train, 1, "dgx-h100")

    assert on_gpu(train, fake=False).results == on_cpu.results


def test_torch_has_no_cuda_before_and_after() -> None:
    on_gpu(train, fake=True)

    assert not torch.cuda.is_available()
    assert torch.accelerator.current_accelerator() is None


def test_a_kernel_takes_its_time_on_the_stream_and_its_launch_on_the_host() -> None:
    def script(rank: int) -> tuple[bool, float]:
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        x = torch.empty(1 << 20, device="cuda")
        begin.record()
        x.zero_()
        end.record()
        end.synchronize()
        return x.is_cuda, begin.elapsed_time(end)

    outcome = on_gpu(script, fake=True)

    is_cuda, milliseconds = outcome.results[0]
    assert is_cuda
    assert 0 < milliseconds < 1


def test_fake_needs_a_gpu() -> None:
    with pytest.raises(NotSupportedError, match="needs a GPU as its model of computation"):
        run(train, 1, "dgx-h100", compute=Roofline("laptop-cpu"), fake=True)
