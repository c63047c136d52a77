"""Cases of the memory of a GPU that are counted by hand: layers of one size, and what a run says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from collectives.virtual import Roofline, VirtualReport, run
from collectives.virtual.memory.report import MemoryReport
from sim.files.device_file import load_device

MIB = 2**20
WIDTH, BATCH, LAYERS = 1024, 256, 4
WEIGHT = WIDTH * WIDTH * 4
ACTIVATION = BATCH * WIDTH * 4
GPU = replace(load_device("h100"), kind="gpu")
CUDA = torch.device("cuda")

with_and_without_data = pytest.mark.parametrize("fake", [True, False])


def report_of(fn: Any, ranks: int = 1, **options: Any) -> VirtualReport:
    return run(fn, ranks, compute=Roofline(options.pop("device", GPU)), **options).report


def memory_of(fn: Any, ranks: int = 1, **options: Any) -> MemoryReport:
    memory = report_of(fn, ranks, **options).memory
    assert memory is not None
    return memory


def stack(**options: Any) -> nn.Sequential:
    return nn.Sequential(
        *[nn.Linear(WIDTH, WIDTH, bias=False, device=CUDA, **options) for _ in range(LAYERS)]
    )
