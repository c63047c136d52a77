"""Mistake: two reductions in flight share the middle of a buffer.

Class: local concurrency
To name: every rank; dist.all_reduce(buffer[
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
buffer = torch.ones(8)
works = [
    dist.all_reduce(buffer[:4], async_op=True),
    dist.all_reduce(buffer[3:], async_op=True),
]
for work in works:
    work.wait()
