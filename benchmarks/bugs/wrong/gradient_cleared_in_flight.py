"""Mistake: gradients are cleared while they are reduced.

Class: local concurrency
To name: every rank; gradient.zero_()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.ones(8)
work = dist.all_reduce(gradient, async_op=True)
gradient.zero_()
work.wait()
