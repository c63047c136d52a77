"""Right: gradients are cleared after the step."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.ones(8)
work = dist.all_reduce(gradient, async_op=True)
work.wait()
gradient.zero_()
