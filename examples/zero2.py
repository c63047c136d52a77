"""ZeRO stage 2, by FSDP2: gradients and Adam's state are sharded; parameters between steps only.

torchrun --nproc-per-node 2 examples/zero2.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/zero2.py --width 512 --batch 2048
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=32, help="of all ranks together")
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
model = nn.Sequential(*blocks)
mesh = init_device_mesh("cpu", (world_size,))  # by default of GPUs, where there are some
for block in model:  # whole from forward to backward: gathered once
    fully_shard(block, mesh=mesh, reshard_after_forward=False)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

batch = torch.randn(args.batch, width)
inputs = batch[rank::world_size]  # this rank's part
targets = inputs.flip(1)

losses = []
for _ in range(args.steps):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())

losses = torch.stack(losses) / world_size
dist.all_reduce(losses)  # the mean over ranks, once for all steps
if rank == 0:
    for step, loss in enumerate(losses.tolist()):
        print(f"step {step}: loss {loss:.6f}")
dist.destroy_process_group()
