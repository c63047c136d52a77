"""A loop in the manner of torchtitan: tensor and sequence parallelism in a block, FSDP2 around it.

torchrun --nproc-per-node 4 examples/frameworks/titan_loop.py --tp 2
testbed run --ranks 16 --network dgx-h100 --compute h100 examples/frameworks/titan_loop.py --tp 8
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Block(nn.Module):
    """A gated feed-forward block of Llama, and a way around it."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.w1 = nn.Linear(width, 4 * width, bias=False)
        self.w2 = nn.Linear(4 * width, width, bias=False)
        self.w3 = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x):
        """Return what the block adds to *x*, and *x*."""
        hidden = self.norm(x)
        return x + self.w2(nn.functional.silu(self.w1(hidden)) * self.w3(hidden))


PLAN = {
    "norm": SequenceParallel(),
    "w1": ColwiseParallel(input_layouts=Shard(1)),
    "w2": RowwiseParallel(output_layouts=Shard(1)),
    "w3": ColwiseParallel(input_layouts=Shard(1)),
}

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=1, help="ranks among which a block is divided")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--batch", type=int, default=16, help="of all ranks together")
parser.add_argument("--sequence", type=int, default=8)
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if device == "cuda" else "gloo")
mesh = init_device_mesh(device, (dist.get_world_size() // args.tp, args.tp), mesh_dim_names=("dp", "tp"))

torch.manual_seed(0)
model = nn.Sequential(*(Block(args.width) for _ in range(args.layers))).to(device)
for name, block in list(model.named_children()):
    parallelize_module(block, mesh["tp"], PLAN)
    model.register_module(name, checkpoint_wrapper(block))
    fully_shard(getattr(model, name), mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, fused=False)

batch = torch.randn(args.batch, args.sequence, args.width)
part = batch[mesh["dp"].get_local_rank() :: mesh["dp"].size()]
inputs = part.chunk(args.tp, dim=1)[mesh["tp"].get_local_rank()].to(device)
for step in range(args.steps):
    loss = nn.functional.mse_loss(model(inputs), inputs.flip(2))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {mean.item():.6f}")
dist.destroy_process_group()
