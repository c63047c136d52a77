"""Pipeline parallelism: each rank has a stage of the model, and micro-batches flow through them.

torchrun --nproc-per-node 2 examples/pipeline.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/pipeline.py --layers 8 --micro-batches 32
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="gloo")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=32, help="of all micro-batches together")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--micro-batches", type=int, default=8)
parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="gpipe")


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
stage = PipelineStage(mine, rank, world_size, torch.device("cpu"))
schedule_class = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[args.schedule]
schedule = schedule_class(stage, args.micro_batches, loss_fn=nn.functional.mse_loss)

inputs = torch.randn(args.batch, width)  # the same on every rank
targets = inputs.flip(1)
is_first, is_last = rank == 0, rank == world_size - 1
losses = torch.zeros(args.steps)
for step in range(args.steps):
    optimizer.zero_grad()
    of_micro_batches = []
    given = (inputs,) if is_first else ()
    wanted = {"target": targets, "losses": of_micro_batches} if is_last else {}
    schedule.step(*given, **wanted)
    optimizer.step()
    if is_last:
        losses[step] = torch.stack(of_micro_batches).mean()

dist.broadcast(losses, src=world_size - 1)
if rank == 0:
    for step, loss in enumerate(losses.tolist()):
        print(f"step {step}: loss {loss:.6f}")
dist.destroy_process_group()
