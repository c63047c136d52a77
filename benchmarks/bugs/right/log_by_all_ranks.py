"""Right: every rank has a file of its own for its metrics."""

import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
folder = os.path.join(tempfile.gettempdir(), "log_by_all_ranks")
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, f"metrics-{dist.get_rank()}.txt")
with open(path, "w") as file:
    file.write(f"{dist.get_rank()}\n")
dist.all_reduce(torch.ones(1))
