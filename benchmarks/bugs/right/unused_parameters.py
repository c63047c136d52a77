"""Right: DDP is told that a layer is not used."""

import torch
import torch.distributed as dist


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, inputs):
        return self.body(inputs)


dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
for _ in range(2):
    model(torch.ones(2, 2)).sum().backward()
