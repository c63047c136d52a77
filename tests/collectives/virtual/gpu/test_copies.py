"""Transfers between host and device, in closed form."""

from dataclasses import replace

import pytest
import torch

from collectives.virtual.streams.gpu import current_gpu
from sim.files.device_file import load_device
from tests.collectives.virtual.clusters import on_gpus

LAUNCH_PS = 5_000_000
NUMEL = 1 << 18
COPY_PS = 4 * NUMEL * 100  # 10 GB/s
H100 = replace(load_device("h100"), host_overhead_ps=LAUNCH_PS, copy_bandwidth=10**10, launch_ps=0)


def pageable() -> torch.Tensor:
    return torch.zeros(NUMEL)


def pinned() -> torch.Tensor:
    return torch.empty(NUMEL, pin_memory=True)


def on_two_streams(tensor: torch.Tensor) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor.to("cuda", non_blocking=True)
    tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()


@pytest.mark.parametrize(
    ("make", "copy", "expected"),
    [
        (pageable, lambda own: own.to("cuda"), LAUNCH_PS + COPY_PS),
        (pageable, lambda own: own.to("cuda", non_blocking=True), LAUNCH_PS + COPY_PS),
        (pinned, lambda own: own.to("cuda"), LAUNCH_PS + COPY_PS),
        (pinned, lambda own: own.to("cuda", non_blocking=True), LAUNCH_PS),
        (pinned, lambda own: own.to("cuda", non_blocking=True).cpu(), LAUNCH_PS + 2 * COPY_PS),
        (pinned, on_two_streams, 2 * LAUNCH_PS + COPY_PS),
    ],
)
def test_the_host_waits_for_copies_but_those_from_pinned_memory_that_may_go_on(make, copy, expected):
    def script(rank):
        tensor, gpu = make(), current_gpu()
        gpu.synchronize()
        began_ps = gpu.now_ps()
        copy(tensor)
        return gpu.now_ps() - began_ps

    assert on_gpus(script, 1, device=H100, fake=True).results == [expected]
