"""Runs on GPUs for the tests of group calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from collectives.communicators.communicator import Communicator
from collectives.virtual import run
from collectives.virtual.computation.roofline import Roofline
from collectives.virtual.setting import VirtualRun
from sim.files.device_file import load_device
from sim.topology import Topology

GPU = replace(load_device("h100"), kind="gpu")


def on_gpus(work: Callable[[int], Any], num_ranks: int, **options: Any) -> VirtualRun:
    """Run *work* on ranks that compute on GPUs."""
    network = options.pop("network", Topology.switch(num_ranks=num_ranks, bandwidth="25GB/s", latency="2us"))
    return run(work, num_ranks, network, compute=Roofline(GPU), **options)


def communicator(backend: str = "nccl") -> Communicator:
    """Return a communicator between all ranks of the run."""
    dist.init_process_group(backend)
    group: Any = dist.distributed_c10d._get_default_group()
    made: Communicator = group.connect()
    return made
