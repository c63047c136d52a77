"""One training step of our DDP against torch's over Gloo, in pairs, in one run.

    torchrun --nproc-per-node 2 benchmarks/ddp_step.py [--algorithm native] [--backend testbed] [--cap 1]

Ours takes what it takes by default, shared memory, or Gloo's own collectives (``--algorithm native``), or any
program; or a group of the backend testbed.

Models: ``small``, 200 small parameters; ``resnet50``, the parameters of ResNet-50, each used once;
``transformer``, an encoder of four layers; and ``blocks``, 24 of a product, a norm and an activation. A
step is zero_grad, forward and backward pass; it takes as long as its slowest rank. Each pair runs a step of
the one and then of the other, the order changing from pair to pair. Torch's are run as they are without us:
Gloo's threads then have the usual policy of the scheduler, which our transports change
(`collectives.transports.gloo_threads`). Printed are the median of the ratios of a pair, ours over torch's,
and the interval in which that median lies with 95 % confidence (bootstrap, seeded).
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import ddp
from collectives.transports.gloo_threads import interrupt_nobody


class EachOnce(nn.Module):
    """Parameters of given sizes, each used once."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(size) for size in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of all weights times *x*."""
        return torch.stack([(weight * x).sum() for weight in self.weights]).sum()


def small() -> tuple[nn.Module, torch.Tensor]:
    """Return 100 layers of 16 by 16, and their input."""
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(100))), torch.ones(4, 16)


def resnet50() -> tuple[nn.Module, torch.Tensor]:
    """Return the parameters of ResNet-50, from the profile that ships, and an input."""
    gradients = ddp.load_profile("resnet50").gradients
    return EachOnce([gradient.numel for gradient in gradients]), torch.ones(1)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Return an encoder of four layers, 256 wide, and a batch of 2 sequences of 32."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.ones(2, 32, 256)


def blocks() -> tuple[nn.Module, torch.Tensor]:
    """Return 24 blocks 256 wide, of 100 small parameters, and a batch of 64."""
    layers = [layer for _ in range(24) for layer in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]
    return nn.Sequential(nn.Linear(64, 256), *layers, nn.Linear(256, 10)), torch.ones(64, 64)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "small": small,
    "resnet50": resnet50,
    "transformer": transformer,
    "blocks": blocks,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--algorithm", help="of ours; native: the group's own")
    parser.add_argument("--views", action="store_true", help="gradients as views of buckets")
    parser.add_argument("--cap", type=float, default=25.0, help="MiB of a bucket")
    parser.add_argument("--backend", choices=("gloo", "testbed"), default="gloo", help="of ours")
    parser.add_argument("--pairs", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dist.new_group(backend=args.backend)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes, {args.pairs} pairs")
        print(f"{'model':<12} {'torch':>10} {'ours':>10}  ratio  95 % interval")
    for name in args.models.split(","):
        torch.manual_seed(0)
        module, inputs = MODELS[name]()
        options = {"bucket_cap_mb": args.cap, "gradient_as_bucket_view": args.views}
        theirs = nn.parallel.DistributedDataParallel(copy.deepcopy(module), **options)
        ours = ddp.DistributedDataParallel(module, process_group=group, algorithm=args.algorithm, **options)
        sides = (theirs, ours)
        pairs = [measure_pair(sides, inputs, turn) for turn in range(args.pairs + 4)][4:]
        if dist.get_rank() == 0:
            report(name, np.array(pairs))
    dist.destroy_process_group()


def measure_pair(sides: tuple[nn.Module, nn.Module], inputs: torch.Tensor, turn: int) -> list[float]:
    """Return the seconds of a step of each, on the slowest rank."""
    seconds = {side: measure(sides[side], inputs) for side in ((0, 1) if turn % 2 else (1, 0))}
    return [seconds[0], seconds[1]]


def interrupt_again() -> None:
    """Give all threads of this process the usual policy."""
    for task in Path("/proc/self/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))


def measure(model: nn.Module, inputs: torch.Tensor) -> float:
    """Return the seconds of one step on the slowest rank."""
    if isinstance(model, ddp.DistributedDataParallel):
        interrupt_nobody()
    else:
        interrupt_again()
    model.zero_grad()
    dist.barrier()
    began = time.perf_counter()
    model(inputs).sum().backward()
    slowest = torch.tensor([time.perf_counter() - began])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def report(name: str, pairs: np.ndarray) -> None:
    """Print one line."""
    ratios = pairs[:, 1] / pairs[:, 0]
    resampled = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    torch_ms, own_ms = np.median(pairs, axis=0) * 1e3
    print(
        f"{name:<12} {torch_ms:7.2f} ms {own_ms:7.2f} ms  {np.median(ratios):5.3f}  {low:.3f} to {high:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
