"""Model parallelism by hand: each rank has some of the layers, and passes on what they give.

torchrun --nproc-per-node 2 examples/model_parallel.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/model_parallel.py --layers 8
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=6)


class Block(nn.Sequential):
    """Layers, and a way around them."""

    def forward(self, x):
        """Return what the layers add to *x*, and *x*."""
        return x + super().forward(x)


args = parser.parse_args()
dist.init_process_group(args.backend)
rank, world_size = dist.get_rank(), dist.get_world_size()
if args.layers < world_size:
    raise SystemExit(f"{args.layers} layers are too few for {world_size} ranks")

torch.manual_seed(0)
width = args.width
blocks = [
    Block(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(args.layers)
]
mine = nn.Sequential(*blocks[args.layers * rank // world_size : args.layers * (rank + 1) // world_size])
optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9)

inputs = torch.randn(args.batch, width)  # the same on every rank
targets = inputs.flip(1)
is_first, is_last = rank == 0, rank == world_size - 1
losses = torch.zeros(args.steps)
for step in range(args.steps):
    optimizer.zero_grad()
    x = inputs.clone().requires_grad_()
    if not is_first:
        dist.recv(x.data, src=rank - 1)
    output = mine(x)
    if is_last:
        loss = nn.functional.mse_loss(output, targets)
        loss.backward()
        losses[step] = loss.detach()
    else:
        dist.send(output.detach(), dst=rank + 1)
        gradient = torch.empty_like(output)
        dist.recv(gradient, src=rank + 1)
        output.backward(gradient)
    if not is_first:
        dist.send(x.grad, dst=rank - 1)
    optimizer.step()

dist.broadcast(losses, src=world_size - 1)
if rank == 0:
    for step, loss in enumerate(losses.tolist()):
        print(f"step {step}: loss {loss:.6f}")
dist.destroy_process_group()
