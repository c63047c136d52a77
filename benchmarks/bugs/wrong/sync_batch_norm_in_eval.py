"""Mistake: a rank is left in evaluation mode, in which SyncBatchNorm asks nobody for their statistics.

Class: call ordering
To name: rank 3; model(torch.randn(2, 4)).square().sum().backward()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.SyncBatchNorm.convert_sync_batchnorm(net))
model.train(dist.get_rank() != 3)
model(torch.randn(2, 4)).square().sum().backward()
