"""Mistake: a rank holds the weight transposed: as many elements, in another order.

Class: parameter matching
To name: rank 1; dist.all_reduce(gradient)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.arange(6.0).reshape(2, 3)
if dist.get_rank() == 1:
    gradient = gradient.t().contiguous()
dist.all_reduce(gradient)
