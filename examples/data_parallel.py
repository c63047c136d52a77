"""Stock DDP: every rank has the whole model and its part of each batch; gradients are averaged.

torchrun --nproc-per-node 2 examples/data_parallel.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/data_parallel.py --width 512 --batch 2048
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=32, help="of all ranks together")
parser.add_argument("--epochs", type=int, default=3, help="of two batches each")
parser.add_argument("--bucket-cap-mb", type=float, help="by default 25, and 1 for the first")
parser.add_argument("--checkpoint", type=Path, help="loaded where it exists, written at the end")


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
model = DistributedDataParallel(
    nn.Sequential(*blocks), bucket_cap_mb=args.bucket_cap_mb, gradient_as_bucket_view=True
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
if args.checkpoint and args.checkpoint.exists():
    model.module.load_state_dict(torch.load(args.checkpoint))

inputs = torch.randn(2 * args.batch, width)
dataset = TensorDataset(inputs, inputs.flip(1))
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=args.batch // world_size, sampler=sampler)

losses = []
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

losses = torch.stack(losses) / world_size
dist.all_reduce(losses)  # the mean over ranks, once for all steps
if rank == 0:
    for step, loss in enumerate(losses.tolist()):
        print(f"step {step}: loss {loss:.6f}")
    if args.checkpoint:
        torch.save(model.module.state_dict(), args.checkpoint)
dist.destroy_process_group()
