"""Right: a rank with nothing to do takes part with a tensor of zeros."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
files = ["a", "b", "c"][dist.get_rank() :: dist.get_world_size()]
sys.stdout.write(f"{len(files)} files\n")
total = torch.tensor([float(len(files))])
dist.all_reduce(total)
