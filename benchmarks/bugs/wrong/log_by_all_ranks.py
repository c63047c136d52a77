"""Mistake: every rank opens the same file for its metrics, and empties it.

Class: files
To name: ranks 0, 1, 2, 3; with open(path, "w") as file:
"""

import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
folder = os.path.join(tempfile.gettempdir(), "log_by_all_ranks")
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, "metrics.txt")
with open(path, "w") as file:
    file.write(f"{dist.get_rank()}\n")
dist.all_reduce(torch.ones(1))
