"""Mistake: what a rank sends to another in an all-to-all is not what that expects of it.

Class: parameter matching
To name: ranks 0, 1; dist.all_to_all_single(received, sent, expected, given)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
given = [1, 3] if rank == 0 else [2, 2]
expected = [1, 2] if rank == 0 else [2, 2]
sent, received = torch.ones(4), torch.empty(sum(expected))
dist.all_to_all_single(received, sent, expected, given)
