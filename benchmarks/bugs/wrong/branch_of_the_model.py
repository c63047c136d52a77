"""Mistake: a rank takes a branch of the model that leaves a layer out, and DDP was not told of it.

Class: call ordering
To name: rank 2; model(torch.ones(2, 2), rank == 2).sum().backward()
"""

import torch
import torch.distributed as dist


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, inputs, is_short):
        outputs = self.body(inputs)
        return outputs if is_short else self.head(outputs)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(Net())
for _ in range(2):
    model(torch.ones(2, 2), rank == 2).sum().backward()
