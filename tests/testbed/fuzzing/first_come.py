"""A script whose result depends on which message comes first."""

FIRST_COME = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank():
    dist.send(torch.tensor([float(dist.get_rank())]), 0)
else:
    value = torch.zeros(1)
    print([dist.recv(value) for _ in range(dist.get_world_size() - 1)])
"""
