"""Training on processes until it fails: what `tools.process_faults.trials` kills a rank of."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from collectives import CollectiveError
from ddp import DistributedDataParallel
from tests.distributed.faults import SIGNALS, TIMEOUT, Account, Scenario

SECONDS_TO_CONNECT = 20.0
"""Time-out of the groups, by which processes that have a core for all of them must have connected."""
ON_TESTBED = "torch's DDP on testbed"
TRAININGS = {"our DDP, ring": "ring", "our DDP, native": "native", ON_TESTBED: ""}


def train_until_one_fails(rank: int, world_size: int, scenario: Scenario) -> Account:
    """Train a small model on all ranks until a step fails; the culprit is killed meanwhile."""
    backend = "gloo" if TRAININGS[scenario.way] else "testbed"
    group = dist.new_group(backend=backend, timeout=timedelta(seconds=SECONDS_TO_CONNECT))
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    model = _wrapped(module, scenario.way, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dist.barrier(group=group)
    if rank == scenario.culprit:
        command = SIGNALS["killed"].format(pid=os.getpid())
        subprocess.Popen(["sh", "-c", f"sleep {scenario.delay}; {command}"])

    steps, began = 0, time.monotonic()
    try:
        while True:
            began = time.monotonic()
            model(torch.randn(8, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    except (CollectiveError, RuntimeError) as error:
        seconds = time.monotonic() - began
        return Account(f"{type(error).__name__}: {error}", seconds, 0, steps, "", 0.0)


def _wrapped(module: torch.nn.Module, way: str, group: Any) -> torch.nn.Module:
    algorithm = TRAININGS[way]
    if algorithm:
        return DistributedDataParallel(module, process_group=group, algorithm=algorithm, timeout=TIMEOUT)
    return torch.nn.parallel.DistributedDataParallel(module, process_group=group)
