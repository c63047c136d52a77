"""Right: two reductions in flight have halves of a buffer each."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
buffer = torch.ones(8)
works = [
    dist.all_reduce(buffer[:4], async_op=True),
    dist.all_reduce(buffer[4:], async_op=True),
]
for work in works:
    work.wait()
