"""Mistake: a rank is left in evaluation mode, in which a layer asks nobody for their statistics.

Class: call ordering
To name: rank 3; model(torch.ones(2, 4)).square().sum().backward()
"""

import torch
import torch.distributed as dist


class Centred(torch.nn.Module):
    def forward(self, inputs):
        if not self.training:
            return inputs
        mean = inputs.detach().mean(0)
        dist.all_reduce(mean)
        return inputs - mean / dist.get_world_size()


dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), Centred()))
model.train(dist.get_rank() != 3)
model(torch.ones(2, 4)).square().sum().backward()
