"""Tensor parallelism: the first layer of each block by columns, the second by rows, on DTensors.

torchrun --nproc-per-node 2 examples/tensor_parallel.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/tensor_parallel.py --width 1024
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=32, help="every rank sees all of it")
parser.add_argument("--steps", type=int, default=6)


class Block(nn.Sequential):
    """Layers, and a way around them."""

    def forward(self, x):
        """Return what the layers add to *x*, and *x*."""
        return x + super().forward(x)


args = parser.parse_args()
dist.init_process_group(args.backend)
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
width = args.width
blocks = [
    Block(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(args.layers)
]
plan = {}
for number in range(args.layers):
    plan |= {f"{number}.0": ColwiseParallel(), f"{number}.2": RowwiseParallel()}
model = parallelize_module(nn.Sequential(*blocks), init_device_mesh("cpu", (world_size,)), plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

inputs = torch.randn(args.batch, width)  # the same on every rank
targets = inputs.flip(1)

losses = []
for _ in range(args.steps):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())

losses = torch.stack(losses)
if rank == 0:
    for step, loss in enumerate(losses.tolist()):
        print(f"step {step}: loss {loss:.6f}")
dist.destroy_process_group()
