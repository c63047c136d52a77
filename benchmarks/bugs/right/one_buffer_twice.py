"""Right: each message has a buffer of its own."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    theirs = torch.empty(2, 4)
    works = [dist.irecv(part, src=peer) for part, peer in zip(theirs, (1, 2), strict=True)]
    for work in works:
        work.wait()
else:
    dist.send(torch.full((4,), float(rank)), dst=0)
