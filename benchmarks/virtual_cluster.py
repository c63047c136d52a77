"""Time of torch's own data parallelism on many rank threads in virtual time.

    python -m benchmarks.virtual_cluster                 # all cases, each in a fresh process
    python -m benchmarks.virtual_cluster ddp-256         # that one
    python -m benchmarks.virtual_cluster ddp-256 --profile
    python -m benchmarks.virtual_cluster ddp-64 --transport-model gloo

A small model (four layers of 64 × 64) trains for four steps.  The time is that of the processor, all threads
together, without the import of torch; on an idle machine it is that of the clock, as one thing runs at once.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from collectives.execution.transport_model import TRANSPORT_MODELS
from collectives.virtual import Roofline, VirtualRun, run
from sim import Topology

STEPS = 4
ROWS = 20


def train(wrap: Callable[[nn.Sequential], nn.Module]) -> Callable[[int], None]:
    """Return a function of the rank that trains the model that *wrap* makes."""

    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        torch.manual_seed(0)
        model = wrap(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        device = next(model.parameters()).device
        for _ in range(STEPS):
            model(torch.ones(8, 64, device=device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return work


def shard(model: nn.Sequential) -> nn.Module:
    """Shard each layer, and the rest."""
    mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    for layer in [*model, model]:
        fully_shard(layer, mesh=mesh)
    return model


def shard_on_gpus(model: nn.Sequential) -> nn.Module:
    """Do so on virtual GPUs, one a node."""
    return shard(model.cuda())


CASES: dict[str, tuple[int, Callable[[nn.Sequential], nn.Module], str | None]] = {
    "ddp-8": (8, DistributedDataParallel, None),
    "ddp-64": (64, DistributedDataParallel, None),
    "ddp-256": (256, DistributedDataParallel, None),
    "ddp-256-roofline": (256, DistributedDataParallel, "h100"),
    "ddp-1024-roofline": (1024, DistributedDataParallel, "h100"),
    "fsdp2-8": (8, shard, None),
    "fsdp2-64": (64, shard, None),
    "fsdp2-64-roofline": (64, shard, "h100"),
    "fsdp2-128-roofline": (128, shard, "h100"),
    "fsdp2-128-gpus": (128, shard_on_gpus, "h100"),
}


def measure(name: str, transport_model: str) -> tuple[VirtualRun, float, float]:
    """Carry out a case and return the outcome, its CPU seconds and its seconds."""
    num_ranks, wrap, device = CASES[name]
    topology = Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")
    run(train(wrap), network=Topology.switch(num_ranks=2, bandwidth="1GB/s", latency="2us"))  # imports
    began, cpu_began = time.perf_counter(), time.process_time()
    compute = Roofline(device) if device else None
    outcome = run(train(wrap), network=topology, compute=compute, transport_model=transport_model)
    return outcome, time.process_time() - cpu_began, time.perf_counter() - began


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument(
        "--profile", action="store_true", help="print where the ranks' and the engine's time goes"
    )
    parser.add_argument(
        "--transport-model", default="ideal", choices=TRANSPORT_MODELS, help="how steps are completed"
    )
    arguments = parser.parse_args()
    transport_model = arguments.transport_model
    if len(arguments.cases) != 1:
        command = [sys.executable, "-m", "benchmarks.virtual_cluster", "--transport-model", transport_model]
        for name in arguments.cases or CASES:
            subprocess.run([*command, name], check=True)
        return
    (name,) = arguments.cases
    if arguments.profile:
        profile = cProfile.Profile()
        sys.setprofile(None)
        profile.runcall(measure, name, transport_model)
        pstats.Stats(profile).sort_stats("tottime").print_stats(ROWS)
        return
    outcome, cpu, seconds = measure(name, transport_model)
    print(
        f"{name:<20} {cpu:6.2f} s of CPU {seconds:6.2f} s   {outcome.seconds * 1e6:10.2f} us of virtual time"
    )


if __name__ == "__main__":
    main()
