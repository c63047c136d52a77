"""Right: every rank trains its two models in one order."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
models = [DistributedDataParallel(torch.nn.Linear(4, 4)) for _ in range(2)]
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
torch.manual_seed(dist.get_rank())
order = [0, 1]
for _ in range(3):
    for number in order:
        models[number](torch.randn(8, 4)).square().mean().backward()
        optimizers[number].step()
        optimizers[number].zero_grad()
