"""Mistake: rank 0 receives from anybody and takes it that rank 1 comes first.

Class: message race
To name: rank 0; dist.recv(
Ranks: 3
Check: orders
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    results = torch.empty(2, 1)
    for number in range(2):
        dist.recv(results[number])
    print(results.tolist())
else:
    dist.send(torch.tensor([float(rank)]), dst=0)
