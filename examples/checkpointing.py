"""Sharded checkpoints: every rank writes its part of model and optimizer; training goes on from it.

torchrun --nproc-per-node 2 examples/checkpointing.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/checkpointing.py --width 512 --batch 2048
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=32, help="of all ranks together")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--checkpoint", help="folder; a temporary one by default")


class Block(nn.Sequential):
    """Layers, and a way around them."""

    def forward(self, x):
        """Return what the layers add to *x*, and *x*."""
        return x + super().forward(x)


def build():
    """Return a fresh model, whose parameters are sharded, and its optimizer."""
    torch.manual_seed(0)
    shapes = [(width, 4 * width)] * args.layers
    model = nn.Sequential(*(Block(nn.Linear(n, m), nn.GELU(), nn.Linear(m, n)) for n, m in shapes))
    mesh = init_device_mesh("cpu", (world_size,))  # by default of GPUs, where there are some
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), lr=0.003)


def train(model, optimizer, num_steps):
    """Return the loss on this rank of each step."""
    losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


args = parser.parse_args()
dist.init_process_group(args.backend)
rank, world_size = dist.get_rank(), dist.get_world_size()
width = args.width
folder = [args.checkpoint or (tempfile.mkdtemp() if rank == 0 else None)]
dist.broadcast_object_list(folder)  # rank 0's

torch.manual_seed(1)
batch = torch.randn(args.batch, width)
inputs = batch[rank::world_size]  # this rank's part
targets = inputs.flip(1)

model, optimizer = build()
losses = train(model, optimizer, args.steps // 2)
names = ("model", "optimizer")
checkpoint.save(dict(zip(names, get_state_dict(model, optimizer), strict=True)), checkpoint_id=folder[0])

model, optimizer = build()  # as after a restart
state = dict(zip(names, get_state_dict(model, optimizer), strict=True))
checkpoint.load(state, checkpoint_id=folder[0])
set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
losses += train(model, optimizer, args.steps - args.steps // 2)

losses = torch.stack(losses) / world_size
dist.all_reduce(losses)  # the mean over ranks, once for all steps
if rank == 0:
    for step, loss in enumerate(losses.tolist()):
        print(f"step {step}: loss {loss:.6f}")
dist.destroy_process_group()
