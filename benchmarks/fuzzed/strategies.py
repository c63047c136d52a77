"""Our DDP with any overlap strategy, on three small layers: python -m testbed fuzz … -- --strategy dear."""

import argparse

import torch
import torch.distributed as dist
from torch import nn

import ddp

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="wait_free")
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
model = ddp.DistributedDataParallel(net, strategy=args.strategy, bucket_cap_mb=0.0002)
optimizer = ddp.OverlappedOptimizer(
    model, lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
)
torch.manual_seed(1 + dist.get_rank())

for step in range(args.steps):
    loss = model(torch.randn(3, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach()
    dist.all_reduce(total)
    print(f"step {step}: {total:.6f}")
optimizer.synchronize()
dist.destroy_process_group()
