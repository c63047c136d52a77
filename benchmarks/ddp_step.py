"""One training step of our DDP against torch's over Gloo, in pairs, in one run.

    torchrun --nproc-per-node 2 benchmarks/ddp_step.py [--algorithm native] [--cases "small;ragged"]

Ours takes what it takes by default, shared memory, or Gloo's own collectives (``--algorithm native``), or any
program; or a group of the backend testbed.

`CASES` are models and what DDP is asked for. A step is zero_grad, forward and backward pass; it takes as
long as its slowest rank. Each pair runs a step of the one and then of the other, the order changing from
pair to pair. Torch's are run as they are without us: Gloo's threads then have the usual policy of the
scheduler, which our transports change (`collectives.transports.gloo_threads`). Printed are the median of
the ratios of a pair, ours over torch's, and the interval in which that median lies with 95 % confidence
(bootstrap, seeded); and the median of the same ratio of processor time, of all threads of all ranks,
which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

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


def ragged() -> tuple[nn.Module, torch.Tensor]:
    """Return 400 parameters of 1 to 30,000 elements, in no order, each used once."""
    sizes = np.exp(np.random.default_rng(0).uniform(0, np.log(30_000), 400))
    return EachOnce([int(size) for size in sizes]), torch.ones(1)


def one_large() -> tuple[nn.Module, torch.Tensor]:
    """Return one parameter of 64 MiB."""
    return EachOnce([2**24]), torch.ones(1)


class PartlyUsed(nn.Module):
    """Blocks beside as many that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = blocks()[0], blocks()[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the blocks in use make of *x*."""
        return self.used(x)


def partly_used() -> tuple[nn.Module, torch.Tensor]:
    """Return twice the blocks, of which half are used, and a batch of 64."""
    return PartlyUsed(), torch.ones(64, 64)


@dataclass(frozen=True)
class Case:
    """A model, and what both are asked for.

    Attributes:
        model: returns it, and its input.
        options: arguments of `DistributedDataParallel`.
        num_passes: forward and backward passes of a step, all but the last in ``no_sync``.
        hook: a communication hook.
    """

    model: Callable[[], tuple[nn.Module, torch.Tensor]]
    options: dict[str, Any] = field(default_factory=dict)
    num_passes: int = 1
    hook: Callable[..., Any] | None = None

    def wrap(self, wrapper: Callable[..., nn.Module], module: nn.Module) -> nn.Module:
        """Return a copy of *module* in *wrapper*."""
        wrapped = wrapper(copy.deepcopy(module), **self.options)
        if self.hook is not None:
            wrapped.register_comm_hook(None, self.hook)
        return wrapped

    def step(self, model: nn.Module, inputs: torch.Tensor) -> None:
        """Run a step of *model*."""
        model.zero_grad()
        for number in range(1, self.num_passes + 1):
            with model.no_sync() if number < self.num_passes else nullcontext():
                model(inputs).sum().backward()


SMALL_BUCKETS = {"bucket_cap_mb": 1}
CASES = {
    "small": Case(small),
    "ragged": Case(ragged),
    "transformer": Case(transformer),
    "resnet50": Case(resnet50),
    "one_large": Case(one_large),
    "blocks": Case(blocks, SMALL_BUCKETS),
    "blocks, views": Case(blocks, SMALL_BUCKETS | {"gradient_as_bucket_view": True}),
    "blocks, static_graph": Case(blocks, SMALL_BUCKETS | {"static_graph": True}),
    "blocks, find_unused": Case(partly_used, SMALL_BUCKETS | {"find_unused_parameters": True}),
    "transformer, views": Case(transformer, {"gradient_as_bucket_view": True}),
    "transformer, no_sync": Case(transformer, num_passes=4),
    "transformer, fp16 hook": Case(transformer, hook=fp16_compress_hook),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default="", help="separated by semicolons; by default all")
    parser.add_argument("--algorithm", help="of ours; native: the group's own")
    parser.add_argument("--backend", choices=("gloo", "testbed"), default="gloo", help="of ours")
    parser.add_argument("--pairs", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dist.new_group(backend=args.backend)
    own = partial(ddp.DistributedDataParallel, process_group=group, algorithm=args.algorithm)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes, {args.pairs} pairs")
        print(f"{'case':<22} {'torch':>10} {'ours':>10}  ratio  95 % interval    processor time")
    for name in args.cases.split(";") if args.cases else CASES:
        case = CASES[name.strip()]
        torch.manual_seed(0)
        module, inputs = case.model()
        sides = [case.wrap(wrapper, module) for wrapper in (nn.parallel.DistributedDataParallel, own)]
        steps = [partial(case.step, side, inputs) for side in sides]
        pairs = [measure_pair(sides, steps, turn) for turn in range(args.pairs + 4)][4:]
        if dist.get_rank() == 0:
            report(name, np.array(pairs))
    dist.destroy_process_group()


def measure_pair(sides: list[nn.Module], steps: list[Callable[[], None]], turn: int) -> list[list[float]]:
    """Return the seconds of a step of each, and those of processors."""
    order = (0, 1) if turn % 2 else (1, 0)
    seconds = {}
    for side in order:
        if isinstance(sides[side], ddp.DistributedDataParallel):
            interrupt_nobody()
        else:
            interrupt_again()
        seconds[side] = measure(steps[side])
    return [seconds[0], seconds[1]]


def interrupt_again() -> None:
    """Give all threads of this process the usual policy; one may end meanwhile."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))


def measure(step: Callable[[], None]) -> list[float]:
    """Return the seconds of one step on the slowest rank, and of the processors of all ranks."""
    dist.barrier()
    began, used = time.perf_counter(), time.process_time()
    step()
    slowest = torch.tensor([time.perf_counter() - began])
    total = torch.tensor([time.process_time() - used])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    dist.all_reduce(total)
    return [slowest.item(), total.item()]


def report(name: str, pairs: np.ndarray) -> None:
    """Print one line of *pairs*, of two sides with two times each."""
    ratios, of_processors = (pairs[:, 1] / pairs[:, 0]).T
    resampled = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    torch_ms, own_ms = np.median(pairs[:, :, 0], axis=0) * 1e3
    print(
        f"{name:<22} {torch_ms:7.2f} ms {own_ms:7.2f} ms  {np.median(ratios):5.3f}  {low:.3f} to {high:.3f}"
        f"   {np.median(of_processors):5.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
