"""Right: every rank passes the barrier after rank 0 has saved."""

import io

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def save_checkpoint():
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), io.BytesIO())
    dist.barrier()


for _ in range(2):
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    save_checkpoint()
