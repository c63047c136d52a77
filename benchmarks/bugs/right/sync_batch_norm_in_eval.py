"""Right: every rank is back in training mode."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.SyncBatchNorm.convert_sync_batchnorm(net))
model.train()
model(torch.randn(2, 4)).square().sum().backward()
