"""Mistake: a rank reduces the same two metrics in another order, and gets the one in place of the other.

Class: call ordering
To name: rank 1; dist.all_reduce(loss)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
loss, accuracy = torch.tensor([2.0]), torch.tensor([0.5])


def reduce_loss():
    dist.all_reduce(loss)


def reduce_accuracy():
    dist.all_reduce(accuracy)


reductions = [reduce_loss, reduce_accuracy]
if dist.get_rank() == 1:
    reductions.reverse()
for reduction in reductions:
    reduction()
