"""Transfers between host and device, in closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from sim.files.device_file import load_device

LAUNCH_PS = 5_000_000
NUMEL = 1 << 18
COPY_PS = 4 * NUMEL * 100  # 10 GB/s
H100 = replace(load_device("h100"), host_overhead_ps=LAUNCH_PS, copy_bandwidth=10**10, launch_ps=0)


def time_of(fn: Callable[[], Any]) -> int:
    """Return what *fn* takes of the host, beyond what is done before."""

    def script(rank: int) -> int:
        from collectives.virtual.streams.gpu import current_gpu

        gpu = current_gpu()
        assert gpu is not None
        began_ps = gpu.now_ps()
        fn()
        return gpu.now_ps() - began_ps

    took_ps: int = run(script, 1, "dgx-h100", compute=Roofline(H100), fake=True).results[0]
    return took_ps


def test_the_host_waits_for_a_copy_of_pageable_memory() -> None:
    data = torch.zeros(NUMEL)

    assert time_of(lambda: data.to("cuda")) == LAUNCH_PS + COPY_PS
    assert time_of(lambda: data.to("cuda", non_blocking=True)) == LAUNCH_PS + COPY_PS


def test_the_host_does_not_wait_for_a_copy_of_pinned_memory_that_may_go_on() -> None:
    def pinned() -> torch.Tensor:
        return torch.empty(NUMEL, pin_memory=True)

    assert time_of(lambda: pinned().to("cuda", non_blocking=True)) == LAUNCH_PS
    assert time_of(lambda: pinned().to("cuda")) == LAUNCH_PS + COPY_PS


def test_the_host_waits_for_a_copy_to_it() -> None:
    def there_and_back() -> None:
        device = torch.empty(NUMEL, pin_memory=True).to("cuda", non_blocking=True)
        device.cpu()

    assert time_of(there_and_back) == LAUNCH_PS + 2 * COPY_PS


def test_copies_on_another_stream_run_beside() -> None:
    def two_streams() -> None:
        pinned = torch.empty(NUMEL, pin_memory=True)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            pinned.to("cuda", non_blocking=True)
        pinned.to("cuda", non_blocking=True)
        torch.cuda.synchronize()

    assert time_of(two_streams) == 2 * LAUNCH_PS + COPY_PS
