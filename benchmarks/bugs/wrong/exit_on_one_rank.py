"""Mistake: a rank finds nothing to do and ends the process with success.

Class: call ordering
To name: rank 3; dist.all_reduce(total)
"""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
files = ["a", "b", "c"][dist.get_rank() :: dist.get_world_size()]
if not files:
    sys.exit(0)
total = torch.tensor([float(len(files))])
dist.all_reduce(total)
