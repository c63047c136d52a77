"""Mistake: a thread gathers a checkpoint on the group on which the training reduces.

Class: call ordering
To name: every rank; dist.all_gather(copies, weights)
"""

import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights, gradient = torch.ones(1000), torch.ones(1000)


def save():
    copies = [torch.empty(1000) for _ in range(dist.get_world_size())]
    dist.all_gather(copies, weights)


saving = threading.Thread(target=save)
saving.start()
dist.all_reduce(gradient)
saving.join()
